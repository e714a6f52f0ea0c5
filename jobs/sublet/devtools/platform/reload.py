"""Reload: when the source changes, replace the workers if the app's import succeeds."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path

from sublet.devtools.platform.app_source import AppBroken, AppInfo, can_watch, changes, inspect_app
from sublet.devtools.platform.reports import Reporter
from sublet.source_tree import install_command

NAMES_MAX = 3


class Reload:
    """Watches the source. While the import fails, workers keep the old code and none starts."""

    def __init__(
        self,
        app: str,
        env: Mapping[str, str],
        seen: AppInfo,
        report: Reporter,
        on_change: Callable[[AppInfo], Awaitable[None]],
    ) -> None:
        self.app, self.seen, self._env = app, seen, env
        self.broken = ""
        """The last import's error, or empty."""
        self._report, self._on_change = report, on_change
        self._folders = set(seen.folders)

    async def run(self, over: asyncio.Event) -> None:
        """Until `over` is set, replace the workers when source files change. Without watchfiles, only warn."""
        if not can_watch():
            turn_on = f"{install_command('dev')} turns it on"
            self._report("app", "warning", f"reload is off because watchfiles is not installed: {turn_on}")
            await over.wait()
        while not over.is_set():
            watched = self._existing_folders()
            async with aclosing(changes(watched, over)) as found:
                async for files in found:
                    await self._reload(files)
                    if self._existing_folders() != watched:
                        break

    def _existing_folders(self) -> list[str]:
        return sorted(filter(os.path.isdir, self._folders))

    async def _reload(self, files: list[str]) -> None:
        names = [Path(file).name for file in files]
        more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
        self._report("app", "changed", f"{', '.join(names[:NAMES_MAX])}{more} changed", files=files)
        try:
            self.seen = await inspect_app(self.app, self._env)
        except AppBroken as error:
            self.broken = str(error)
            self._report(
                "app",
                "broken",
                f"{error}; running workers keep the old code; no worker is started until this is fixed",
            )
            return
        self.broken = ""
        self._folders |= set(self.seen.folders)
        await self._on_change(self.seen)
        count = len(self.seen.tasks)
        tasks = "1 task" if count == 1 else f"{count} tasks"
        self._report(
            "app",
            "reloaded",
            f"{tasks}; the workers are replaced, and release the jobs that they cannot finish",
            tasks=count,
        )
