"""`sublet dev`: a server, the API, a tick, and workers that are summoned when there is work, all of them watched.

Nothing here is a master: what this process does, any submit, tick and worker can do elsewhere. It is the parent that a terminal
needs, so that Ctrl-C ends all of it.
"""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublet.connection.settings import Settings
from sublet.devtools.platform.api_service import ApiService, has_no_secret
from sublet.devtools.platform.app_runner import AppRunner
from sublet.devtools.platform.app_source import AppBroken, AppInfo, look
from sublet.devtools.platform.redis_service import RedisService, temporary
from sublet.devtools.platform.reports import Report, Reporter, lines_on_loop
from sublet.devtools.platform.supervisor import Service, Supervisor
from sublet.errors import Invalid

HURRIED = 130
"""The exit code of a second Ctrl-C."""


@dataclass(frozen=True)
class PlatformConfig:
    """What somebody wants of it."""

    app: str
    settings: Settings
    """Where the jobs live; without a server of one's own, its URL is that of the embedded one."""
    embedded: bool = True
    """Start a server, and keep it alive."""
    data: Path | None = None
    """Where it keeps its data; else in a temporary folder."""
    port: int = 0
    workers: int = 4
    slots: int = 10
    linger: float = 5.0
    lease: float = 30.0
    reload: bool = True
    call: str = "sublet"
    """How this program is called, for lines that can be pasted."""


class Platform:
    """All of it, from start to end. Belongs to one event loop."""

    def __init__(self, wishes: PlatformConfig, report: Report) -> None:
        self.wishes, self.report = wishes, Reporter(report)
        self._over, self._hurry = asyncio.Event(), asyncio.Event()
        self._ends = contextlib.AsyncExitStack()
        self._supervisors: list[Supervisor] = []
        self._api: ApiService | None = None
        self._fleet: AppRunner | None = None
        self._temporary: Path | None = None

    def stop(self) -> None:
        """End it in order: workers finish or give back, the API answers who waits, the server closes its files.

        Called again: at once.
        """
        if self._over.is_set():
            self._hurry.set()
        else:
            self.report(
                "dev", "stopping", "workers finish or give back what they have; Ctrl-C again ends it at once"
            )
        self._over.set()

    async def run(self) -> int:
        """Play the platform until a signal comes (SIGINT, SIGTERM, SIGHUP); the exit code.

        Raises Unavailable, Invalid or JobsError for what cannot be started. No process is left behind, whatever happens.
        """
        with _signals(self.stop):
            playing = asyncio.create_task(self._play())
            hurried = asyncio.create_task(self._hurry.wait())
            await asyncio.wait([playing, hurried], return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
            if playing.done():
                playing.result()
                return 0
            self._end_at_once()
            return HURRIED

    async def _play(self) -> None:
        async with self._ends:
            await self._until_over(self._start())
            if self._fleet and not self._over.is_set():
                self._invite()
                loops = [supervisor.run() for supervisor in self._supervisors] + self._fleet.loops(self._over)
                await self._until_over(*loops)

    async def _until_over(self, *work: Coroutine[Any, Any, None]) -> None:
        """Go on with some work until all of it is done, some of it fails, or it is over. Raises what it died of."""
        tasks = [asyncio.create_task(each) for each in work]
        over = asyncio.create_task(self._over.wait())
        all_done = asyncio.ensure_future(asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION))
        try:
            await asyncio.wait([over, all_done], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (over, all_done, *tasks):
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _start(self) -> None:
        """Start everything, side by side where one does not need the other."""
        wishes = self.wishes
        settings = await self._start_server() if wishes.embedded else wishes.settings
        env = {"SUBLET_REDIS_URL": settings.redis_url, "SUBLET_NAMESPACE": settings.namespace}
        self._api = ApiService(env, lines_on_loop(self._on_api_log), wishes.port)
        serving = asyncio.create_task(self._keep(self._api))
        try:
            seen = await self._first_look(env)
            self._fleet = AppRunner(wishes, settings, seen, self.report, env)
            try:
                await self._fleet.start()
                await serving
            finally:
                self._ends.push_async_callback(self._fleet.workers.aclose)
        finally:
            serving.cancel()

    async def _first_look(self, env: Mapping[str, str]) -> AppInfo:
        """What the app has. Raises Invalid: an app that cannot be loaded now may be one that is not there at all."""
        try:
            return await look(self.wishes.app, env)
        except AppBroken as error:
            raise Invalid(str(error)) from None

    def _invite(self) -> None:
        """Say where it is, and what to try in another terminal."""
        assert self._fleet
        assert self._api
        seen, call = self._fleet.reload.seen, self.wishes.call
        timed = f" · by the clock: {', '.join(seen.schedules)}" if seen.schedules else ""
        facts = {"tasks": seen.tasks, "queues": seen.queues, "schedules": seen.schedules}
        self.report("app", "ready", f"{seen.app}: {', '.join(seen.tasks) or 'no tasks'}{timed}", **facts)
        job = seen.example or {"task": "TASK", "queue": seen.queues[0], "payload": {}}
        self.report(
            "dev",
            "ready",
            "try, in another terminal:",
            url=self._api.url,
            redis_url=self._fleet.settings.shown_url,
        )
        body, payload = json.dumps(job), json.dumps(job["payload"])
        for line in (
            f"curl -s {self._api.url}/jobs -H content-type:application/json -d {shlex.quote(body)}",
            *self._exports(),
            f"{call} submit {job['task']} {shlex.quote(payload)} --queue {job['queue']} --wait",
        ):
            self.report("dev", "try", line)

    def _exports(self) -> list[str]:
        """What another terminal must know."""
        assert self._fleet
        settings, usual = self._fleet.settings, Settings()
        known = settings.redis_url if has_no_secret(settings.redis_url) else "…"  # whoever gave it knows it
        lines = [f"export SUBLET_REDIS_URL={shlex.quote(known)}"]
        if settings.namespace != usual.namespace:
            lines.append(f"export SUBLET_NAMESPACE={settings.namespace}")
        return lines

    async def _start_server(self) -> Settings:
        """The server on its folder; the settings with its URL. Raises Unavailable."""
        if os.environ.get("SUBLET_REDIS_URL"):
            self.report(
                "server",
                "warning",
                "SUBLET_REDIS_URL is set, and not used: dev starts its own server; --redis-url URL uses yours",
            )
        folder = self.wishes.data
        if folder is None:
            folder = self._temporary = self._ends.enter_context(temporary())
        server = RedisService(folder, self._temporary is not None)
        self._ends.push_async_callback(server.aclose)
        await self._keep(server)
        return replace(self.wishes.settings, redis_url=server.url)

    async def _keep(self, piece: Service) -> None:
        supervisor = Supervisor(piece, self.report)
        self._supervisors.append(supervisor)
        self._ends.push_async_callback(supervisor.stop)
        await supervisor.start()

    def _on_api_log(self, line: dict[str, Any]) -> None:
        self.report(
            "api", str(line.get("level", "error")), str(line.get("words") or line.get("message") or "")
        )

    def _end_at_once(self) -> None:
        if self._fleet:
            self._fleet.workers.kill()
        for supervisor in self._supervisors:
            supervisor.piece.close()
            supervisor.piece.stop(at_once=True)
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """Have signals call `stop`."""
    loop, taken = asyncio.get_running_loop(), []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if (
            number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
        ):  # started under nohup: stay
            loop.add_signal_handler(number, stop)
            taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
