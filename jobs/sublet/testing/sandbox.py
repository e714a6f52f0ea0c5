"""An app with its own in-process Redis, worker and clock."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sublet.app import App
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.errors import Invalid
from sublet.large_payloads.files import Files
from sublet.model import Job, State
from sublet.options import Seconds
from sublet.testing.drain import ROUNDS, Drain, Drained
from sublet.testing.server import Server
from sublet.testing.work import PLAIN, Plain, Recorder, sandboxed_app, worker_of
from sublet.worker.worker import Worker


class HasId(Protocol):
    """A handle, a job or the answer to a submit."""

    @property
    def id(self) -> str:
        """The job's id."""
        ...


class Sandbox:
    """In the `with` or `async with` block, `app` uses a new Redis in this process, but in child processes the
    real one. Jobs run only in `drain`, `drain_sync` and `working`, `slots` at a time.

    The clock starts at `now` (default: the present); only `travel` and `drain(through=…)` move it. `plain`:
    where plain functions run, "thread", "inline" (on the test's thread) or "process". Entering raises Unfit
    without a usable fakeredis, Invalid if the app is in a sandbox.
    """

    def __init__(
        self, app: App, *, plain: Plain = "thread", slots: int = 1, now: datetime | None = None
    ) -> None:
        if plain not in PLAIN:
            raise Invalid(f"plain {plain!r}: use {', '.join(PLAIN)}")
        if now is not None and now.tzinfo is None:
            raise Invalid(f"now {now}: use a time with a time zone")
        self.app, self.plain, self.slots = app, plain, slots
        self._now = now
        self._server: Server | None = None
        self._recorder = Recorder()
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> "Sandbox":
        if self._server is not None:
            raise Invalid("this sandbox was entered already: leave it first")
        self.app.load()
        server = Server(self._now or datetime.now(UTC))
        settings = Settings(redis_url="redis://sandbox", client_factory=server)
        if self.app.large_payloads or os.environ.get("SUBLET_LARGE_PAYLOADS"):
            folder = self._exits.enter_context(tempfile.TemporaryDirectory(prefix="sublet-sandbox-"))
            settings = replace(settings, large_payloads=Files(folder))
        self._exits.enter_context(self.app.using(settings))
        self._server = server
        return self

    def __exit__(self, *_: object) -> None:
        self._server = None
        self._exits.close()

    async def __aenter__(self) -> "Sandbox":
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.app.aclose()
        finally:
            self.__exit__()

    @property
    def now(self) -> datetime:
        """The clock's time, in UTC."""
        return self._entered().now

    def travel(self, by: Seconds = 0, *, to: datetime | None = None) -> datetime:
        """Move the clock forward by a duration (number: seconds), or to the moment `to`; return the new time.

        Leases expire, jobs past their retention are deleted, schedules fire as after an outage, and due jobs
        are queued for the next drain. Raises Invalid for a moment in the past or without a time zone.
        """
        server = self._entered()
        goal = to if to is not None else server.now + _duration(by)
        if goal.tzinfo is None or goal < server.now:
            raise Invalid(f"travel to {goal}: use a time with a time zone, not before {server.now}")
        server.advance(goal)
        store = self._client().store
        for _ in range(ROUNDS):
            done = store.follow(store.operations.reap("sandbox"))
            if not done.more:
                break
        if done.come:
            store.follow(store.operations.fire("sandbox"))
        for _ in range(ROUNDS):
            if not store.follow(store.operations.prune())[1]:
                break
        return server.now

    async def drain(self, *, through: Seconds = 0, raising: bool = False, limit: int = 1000) -> Drained:
        """Run a worker until no queued job can start, and no job, lease or schedule is due.

        With `through`, then move the clock to each moment within that duration at which a job is due or a
        lease ends, and run again; the clock stays at the last one. Schedules do not count: `travel` to them.
        With `raising`, raise the exception of the first failed attempt, or JobFailed. Raises Endless if jobs
        are queued after more than `limit` attempts.
        """
        server = self._entered()
        drain, until = Drain(self._recorder, self._client(), raising, limit), server.now + _duration(through)
        for _ in range(ROUNDS):
            await self._work(drain)
            moment = drain.next_at()
            if moment is None or moment > until:
                break
            self.travel(to=moment)
        return drain.report()

    def drain_sync(self, *, through: Seconds = 0, raising: bool = False, limit: int = 1000) -> Drained:
        """As `drain`, but for code without an event loop. Raises Invalid on a running loop."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise Invalid("drain_sync inside an event loop: use `await sandbox.drain()`")
        self._entered()
        return asyncio.run(self.drain(through=through, raising=raising, limit=limit))

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[Worker]:
        """In the `async with` block, run a worker, for code that waits for results; afterwards it stops, and
        releases its jobs. The clock stands still.
        """
        async with self._worker(None) as worker:
            running = asyncio.create_task(worker.run())
            try:
                yield worker
            finally:
                worker.stop()
                await running

    async def _work(self, drain: Drain) -> None:
        for _ in range(ROUNDS):
            self.travel()  # a cancelled job may have kept an occurrence waiting
            queues = drain.queues()
            if not queues:
                return
            async with self._worker(queues, drain) as worker:
                if not await drain.run(worker):
                    return

    @contextlib.asynccontextmanager
    async def _worker(self, queues: list[str] | None, drain: Drain | None = None) -> AsyncIterator[Worker]:
        self._entered()
        app = sandboxed_app(self.app, self.plain, self._recorder)
        async with worker_of(
            app, self._recorder, queues, self.slots, drain.on_report if drain else None
        ) as worker:
            yield worker

    def job(self, job: HasId | str) -> Job:
        """Return a job with its attempts, given by handle or id. Raises NotFound."""
        return self._client().get(job if isinstance(job, str) else job.id)

    def jobs(
        self, *, state: State | str | None = None, task: str | None = None, queue: str | None = None
    ) -> list[Job]:
        """Return all matching jobs with their attempts, in the order of submission."""
        found, cursor, client = list[Job](), None, self._client()
        for _ in range(ROUNDS):
            page = client.list_jobs(
                state=None if state is None else State(state), task=task, queue=queue, cursor=cursor
            )
            found += [client.get(job.id) for job in page.jobs]
            cursor = page.cursor
            if cursor is None:
                break
        return sorted(found, key=lambda job: (job.submitted_at, job.id))

    def _entered(self) -> Server:
        if self._server is None:
            raise Invalid("this sandbox is not entered: use it inside of `with Sandbox(app) as sandbox:`")
        return self._server

    def _client(self) -> SyncClient:
        self._entered()
        return self.app.sync


def _duration(seconds: Seconds) -> timedelta:
    return seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
