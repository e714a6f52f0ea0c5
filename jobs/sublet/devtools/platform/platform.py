"""`sublet dev`: a server, the API, a tick, and workers that are summoned when there is work.

This process is the parent of all others, so that Ctrl-C ends them. It is not a master: submits, ticks and
workers summon too.
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
from sublet.devtools.platform.app_source import AppBroken, AppInfo, inspect_app
from sublet.devtools.platform.redis_service import RedisService, temporary
from sublet.devtools.platform.reports import Report, Reporter, lines_on_loop
from sublet.devtools.platform.supervisor import Service, Supervisor
from sublet.errors import Invalid

STOPPED_AT_ONCE = 130
"""After a second Ctrl-C."""


@dataclass(frozen=True)
class PlatformConfig:
    """The configuration of a platform."""

    app: str
    settings: Settings
    """With `embedded`, the embedded server's URL replaces this one."""
    embedded: bool = True
    data: Path | None = None
    """None for a temporary folder."""
    port: int = 0
    workers: int = 4
    slots: int = 10
    linger: float = 5.0
    lease: float = 30.0
    reload: bool = True
    call: str = "sublet"
    """This program's command line, for the commands to try."""


class Platform:
    """Runs the platform on one event loop."""

    def __init__(self, config: PlatformConfig, report: Report) -> None:
        self.config, self.report = config, Reporter(report)
        self._over, self._at_once = asyncio.Event(), asyncio.Event()
        self._cleanup = contextlib.AsyncExitStack()
        self._supervisors: list[Supervisor] = []
        self._api: ApiService | None = None
        self._app: AppRunner | None = None
        self._temporary: Path | None = None

    def stop(self) -> None:
        """Stop in order: workers, API, server. A second call stops at once."""
        if self._over.is_set():
            self._at_once.set()
        else:
            self.report(
                "dev", "stopping", "workers finish or release their jobs; press Ctrl-C again to stop at once"
            )
        self._over.set()

    async def run(self) -> int:
        """Run until SIGINT, SIGTERM or SIGHUP. Return the exit code.

        Raises Unavailable, Invalid or JobsError if a part cannot start. No process remains.
        """
        with _signals(self.stop):
            running = asyncio.create_task(self._run())
            stopped_at_once = asyncio.create_task(self._at_once.wait())
            await asyncio.wait([running, stopped_at_once], return_when=asyncio.FIRST_COMPLETED)
            stopped_at_once.cancel()
            if running.done():
                running.result()
                return 0
            self._end_at_once()
            return STOPPED_AT_ONCE

    async def _run(self) -> None:
        async with self._cleanup:
            await self._until_over(self._start())
            if self._app and not self._over.is_set():
                self._report_ready()
                loops = [supervisor.run() for supervisor in self._supervisors] + self._app.loops(self._over)
                await self._until_over(*loops)

    async def _until_over(self, *work: Coroutine[Any, Any, None]) -> None:
        """Run them until all are done, one fails (raised), or the platform stops."""
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
        config = self.config
        settings = await self._start_server() if config.embedded else config.settings
        env = {"SUBLET_REDIS_URL": settings.redis_url, "SUBLET_NAMESPACE": settings.namespace}
        self._api = ApiService(env, lines_on_loop(self._on_api_log), config.port)
        serving = asyncio.create_task(self._supervise(self._api))
        try:
            seen = await self._inspect(env)
            self._app = AppRunner(config, settings, seen, self.report, env)
            try:
                await self._app.start()
                await serving
            finally:
                self._cleanup.push_async_callback(self._app.workers.aclose)
        finally:
            serving.cancel()

    async def _inspect(self, env: Mapping[str, str]) -> AppInfo:
        """Raises Invalid if the import fails at the start."""
        try:
            return await inspect_app(self.config.app, env)
        except AppBroken as error:
            raise Invalid(str(error)) from None

    def _report_ready(self) -> None:
        assert self._app
        assert self._api
        seen, call = self._app.reload.seen, self.config.call
        timed = f" · schedules: {', '.join(seen.schedules)}" if seen.schedules else ""
        facts = {"tasks": seen.tasks, "queues": seen.queues, "schedules": seen.schedules}
        self.report("app", "ready", f"{seen.app}: {', '.join(seen.tasks) or 'no tasks'}{timed}", **facts)
        job = seen.example or {"task": "TASK", "queue": seen.queues[0], "payload": {}}
        self.report(
            "dev",
            "ready",
            "try in another terminal:",
            url=self._api.url,
            redis_url=self._app.settings.shown_url,
        )
        body, payload = json.dumps(job), json.dumps(job["payload"])
        for line in (
            f"curl -s {self._api.url}/jobs -H content-type:application/json -d {shlex.quote(body)}",
            *self._exports(),
            f"{call} submit {job['task']} {shlex.quote(payload)} --queue {job['queue']} --wait",
        ):
            self.report("dev", "try", line)

    def _exports(self) -> list[str]:
        assert self._app
        settings, usual = self._app.settings, Settings()
        known = settings.redis_url if has_no_secret(settings.redis_url) else "…"
        lines = [f"export SUBLET_REDIS_URL={shlex.quote(known)}"]
        if settings.namespace != usual.namespace:
            lines.append(f"export SUBLET_NAMESPACE={settings.namespace}")
        return lines

    async def _start_server(self) -> Settings:
        if os.environ.get("SUBLET_REDIS_URL"):
            self.report(
                "server",
                "warning",
                "SUBLET_REDIS_URL is set but not used: dev starts its own server. Use --redis-url URL for yours",
            )
        folder = self.config.data
        if folder is None:
            folder = self._temporary = self._cleanup.enter_context(temporary())
        server = RedisService(folder, self._temporary is not None)
        self._cleanup.push_async_callback(server.aclose)
        await self._supervise(server)
        return replace(self.config.settings, redis_url=server.url)

    async def _supervise(self, service: Service) -> None:
        supervisor = Supervisor(service, self.report)
        self._supervisors.append(supervisor)
        self._cleanup.push_async_callback(supervisor.stop)
        await supervisor.start()

    def _on_api_log(self, line: dict[str, Any]) -> None:
        self.report("api", str(line.get("level", "error")), str(line.get("message", "")))

    def _end_at_once(self) -> None:
        if self._app:
            self._app.workers.kill()
        for supervisor in self._supervisors:
            supervisor.service.close()
            supervisor.service.stop(at_once=True)
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
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
