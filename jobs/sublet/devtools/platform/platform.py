"""`sublet dev`: a server (or yours), the API, a tick, and workers that are summoned when there is work.

All processes end with this one.
"""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublet.connection.settings import Settings
from sublet.devtools.platform.api_service import ApiService, has_no_secret
from sublet.devtools.platform.app_runner import AppRunner
from sublet.devtools.platform.app_source import AppBroken, AppInfo, inspect_app
from sublet.devtools.platform.redis_service import RedisService
from sublet.devtools.platform.reports import Report, Reporter, lines_on_loop
from sublet.devtools.platform.supervisor import Service, Supervisor
from sublet.devtools.platform.worker_output import LINES_MAX
from sublet.devtools.temporary_folder import temporary
from sublet.errors import Invalid

STOPPED_AT_ONCE = 130

Companion = Callable[[Settings], Coroutine[Any, Any, None]]
"""A coroutine function (the demo's) that runs beside the platform, and is cancelled at the stop. It gets the
settings for clients.
"""


@dataclass(frozen=True)
class PlatformConfig:
    """The settings of one `sublet dev`."""

    app: str
    settings: Settings
    """Settings of the namespace. With `embedded`, the embedded server's URL replaces theirs."""
    embedded: bool = True
    data: Path | None = None
    """The folder of the embedded server's data; None: a temporary one, deleted at the end."""
    port: int | None = 0
    """The API's port; 0: the first free one from 8377; None: no API."""
    workers: int = 4
    slots: int = 10
    wait: float = 5.0
    """Seconds that a job should wait at most; fewer start more workers."""
    linger: float = 5.0
    lease: float = 30.0
    reload: bool = True
    describe: Callable[[Settings], Awaitable[AppInfo]] | None = None
    """Returns a description of the app; called when the server runs. With it, no schedules are stored. None:
    a child process imports the app.
    """
    lines_max: float = LINES_MAX
    """Most lines of job events and workers' output reported in half a second; the others are counted."""
    call: str = "sublet"
    """This program's command line, for commands to try."""


class Platform:
    """One `sublet dev`, on one event loop."""

    def __init__(self, config: PlatformConfig, report: Report) -> None:
        self.config, self.report = config, Reporter(report)
        self.stopped_by: signal.Signals | None = None
        """The signal that stopped the platform; None before, and after a call of `stop` without one."""
        self._over, self._at_once, self._ready = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._cleanup = contextlib.AsyncExitStack()
        self._supervisors: list[Supervisor] = []
        self._api: ApiService | None = None
        self._serving: asyncio.Task[None] | None = None
        self._app: AppRunner | None = None
        self._temporary: Path | None = None
        self._life: tuple[int, ...] = ()
        self._url_lasts = ""
        """When the URL stays the same, as text."""

    def stop(self, by: signal.Signals | None = None) -> None:
        """Ask to stop, and return: workers end first, then the API, then the server. `by`, the signal, is
        kept as `stopped_by`. A second call kills all processes.
        """
        if self._over.is_set():
            self._at_once.set()
        else:
            self.stopped_by = by
            self.report(
                "dev", "stopping", "workers finish or release their jobs; press Ctrl-C again to stop at once"
            )
        self._over.set()

    async def run(self, companion: Companion | None = None) -> int:
        """Run until SIGINT, SIGTERM, SIGHUP or a call of `stop`. Return 0, or, after a
        second of these, STOPPED_AT_ONCE (130): then leave with `os._exit`. Raises Unavailable, Invalid or JobsError if a part cannot
        start, and any exception of `companion`.
        """
        with _signals(self.stop):
            running = asyncio.create_task(self._run(companion))
            stopped_at_once = asyncio.create_task(self._at_once.wait())
            await asyncio.wait([running, stopped_at_once], return_when=asyncio.FIRST_COMPLETED)
            stopped_at_once.cancel()
            if running.done():
                running.result()
                return 0
            self._end_at_once()
            return STOPPED_AT_ONCE

    async def _run(self, companion: Companion | None) -> None:
        async with self._cleanup:
            await self._until_over(self._start())
            if self._app and not self._over.is_set():
                loops = [self._supervise(each) for each in self._supervisors]
                loops += self._app.loops(self._over, self._ready)
                if companion:
                    loops.append(companion(self._app.settings))
                await self._until_over(*loops)

    async def _until_over(self, *work: Coroutine[Any, Any, None]) -> None:
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
        self._life = os.pipe()
        for end in self._life:
            self._cleanup.callback(os.close, end)
        settings = await self._start_server() if config.embedded else config.settings
        env = {"SUBLET_REDIS_URL": settings.redis_url, "SUBLET_NAMESPACE": settings.namespace}
        if config.port is not None:
            self._api = ApiService(env, lines_on_loop(self._on_api_log), config.port)
            self._serving = asyncio.create_task(self._supervisor(self._api).start())
            self._cleanup.callback(self._serving.cancel)
        else:
            self._ready.set()
        seen = await self._inspect(settings, env)
        self._app = AppRunner(config, settings, seen, self.report, env, self._life[1:])
        try:
            await self._app.start()
        finally:
            self._cleanup.push_async_callback(self._app.workers.aclose)

    async def _inspect(self, settings: Settings, env: Mapping[str, str]) -> AppInfo:
        if self.config.describe:
            return await self.config.describe(settings)
        try:
            return await inspect_app(self.config.app, env)
        except AppBroken as error:
            raise Invalid(str(error)) from None

    def _report_ready(self) -> None:
        assert self._app
        assert self._api
        seen = self._app.reload.seen
        timed = f" · schedules: {', '.join(seen.schedules)}" if seen.schedules else ""
        facts = {"tasks": seen.tasks, "queues": seen.queues, "schedules": seen.schedules}
        self.report("app", "ready", f"{seen.app}: {', '.join(seen.tasks) or 'no tasks'}{timed}", **facts)
        self.report("dev", "dashboard", f"dashboard {self._api.url}/ui")
        lasts = f" ({self._url_lasts})" if self._url_lasts else ""
        self.report("dev", "reach", f"for your web process and other terminals{lasts}:")
        for line in self._exports():
            self.report("dev", "try", line)
        self.report(
            "dev",
            "ready",
            "try in another terminal:",
            url=self._api.url,
            redis_url=self._app.settings.shown_url,
        )
        for line in self._tries(seen, self._api.url):
            self.report("dev", "try", line)

    def _tries(self, seen: AppInfo, api: str) -> list[str]:
        assert self._app
        call, settings, usual = self.config.call, self._app.settings, Settings()
        where = f" --redis-url {shlex.quote(settings.redis_url)}" if has_no_secret(settings.redis_url) else ""
        if settings.namespace != usual.namespace:
            where += f" --namespace {settings.namespace}"
        if seen.example is None:
            return [f"{call} tasks{where}"]
        task, payload = seen.example["task"], json.dumps(seen.example["payload"])
        body = shlex.quote(json.dumps(seen.example))
        return [
            f"curl -s {api}/jobs -H content-type:application/json -d {body}",
            f"{call} submit {task} {shlex.quote(payload)} --wait{where}",
        ]

    def _exports(self) -> list[str]:
        assert self._app
        settings, usual = self._app.settings, Settings()
        known = settings.redis_url if has_no_secret(settings.redis_url) else "…"
        lines = [f"export SUBLET_REDIS_URL={shlex.quote(known)}"]
        if settings.namespace != usual.namespace:
            lines.append(f"export SUBLET_NAMESPACE={settings.namespace}")
        return lines

    async def _start_server(self) -> Settings:
        folder, reason = self.config.data, ""
        self._url_lasts = "the same at each start with this --data"
        if folder is None:
            folder, reason = self._cleanup.enter_context(temporary(Path.cwd()))
            self._temporary = folder
            self._url_lasts = "" if reason else "the same at each start in this folder"
        server = RedisService(folder, self._temporary is not None, self._life[0])
        self._cleanup.push_async_callback(server.aclose)
        await self._supervisor(server).start()
        if reason:
            self.report(
                "server", "warning", f"the URL is not this folder's usual one, but {server.url}: {reason}"
            )
        if os.environ.get("SUBLET_REDIS_URL", server.url) not in ("", server.url):
            self.report(
                "server",
                "warning",
                "SUBLET_REDIS_URL is set but not used: dev starts its own server. Use --redis-url URL for yours",
            )
        return replace(self.config.settings, redis_url=server.url)

    def _supervisor(self, service: Service) -> Supervisor:
        supervisor = Supervisor(service, self.report)
        self._supervisors.append(supervisor)
        self._cleanup.push_async_callback(supervisor.stop)
        return supervisor

    async def _supervise(self, supervisor: Supervisor) -> None:
        if supervisor.service is self._api and self._serving:
            await self._serving
            self._report_ready()
            self._ready.set()
        await supervisor.run()

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
def _signals(stop: Callable[[signal.Signals], None]) -> Iterator[None]:
    loop, taken = asyncio.get_running_loop(), []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if (
            number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
        ):  # started under nohup: stay
            loop.add_signal_handler(number, stop, number)
            taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)
