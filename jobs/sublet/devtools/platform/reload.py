"""Reload: when the app's source changes, look at it anew, and have the workers replaced if it can be loaded."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path

from sublet.devtools.platform.app_source import AppBroken, AppInfo, can_watch, changes, look
from sublet.devtools.platform.reports import Reporter

SHOWN = 3
"""Changed files that are named."""


class Reload:
    """What is known of the app's source. While it is broken, no worker is started; who is here goes on with the old code."""

    def __init__(
        self,
        app: str,
        env: Mapping[str, str],
        seen: AppInfo,
        report: Reporter,
        take: Callable[[AppInfo], Awaitable[None]],
    ) -> None:
        self.app, self.seen, self._env = app, seen, env
        self.broken = ""
        """Why it cannot be loaded; empty while it can."""
        self._report, self._take = report, take
        self._folders = set(seen.folders)

    async def run(self, over: asyncio.Event) -> None:
        """Watch until it is over."""
        if not can_watch():
            turn_on = "pip install 'sublet[dev]' (from a checkout: '.[dev]') turns it on"
            self._report("app", "warning", f"reload is off, for there is no watchfiles: {turn_on}")
            await over.wait()
        while not over.is_set():
            watched = self._there()
            async with aclosing(changes(watched, over)) as found:
                async for files in found:
                    await self._look(files)
                    if self._there() != watched:  # it has source in other places now: watch these, too
                        break

    def _there(self) -> list[str]:
        return sorted(filter(os.path.isdir, self._folders))

    async def _look(self, files: list[str]) -> None:
        """Look at it anew, and tell."""
        names = [Path(file).name for file in files]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        self._report("app", "changed", f"{', '.join(names[:SHOWN])}{more} changed", files=files)
        try:
            self.seen = await look(self.app, self._env)
        except AppBroken as error:
            self.broken = str(error)
            self._report(
                "app",
                "broken",
                f"{error}; workers that are here go on with the old code, no new one is started until that is mended",
            )
            return
        self.broken = ""
        self._folders |= set(self.seen.folders)
        await self._take(self.seen)
        count = len(self.seen.tasks)
        tasks = "1 task" if count == 1 else f"{count} tasks"
        self._report(
            "app",
            "reloaded",
            f"{tasks}; the workers are replaced, and give back what they cannot finish",
            tasks=count,
        )
