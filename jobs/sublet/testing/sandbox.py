"""The sandbox: an app on a Redis of its own in this process, a worker that works until all is done, and time that travels."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sublet.app import App
from sublet.client.client import SyncClient
from sublet.connection.settings import Settings
from sublet.errors import Invalid
from sublet.model import Job, State
from sublet.options import Seconds
from sublet.testing.drain import ROUNDS, Drain, Drained
from sublet.testing.server import Server
from sublet.testing.work import PLAIN, Ear, Plain, at_home, worker_of
from sublet.worker.worker import Worker


class HasId(Protocol):
    """A handle, a job, or what a submit answered."""

    @property
    def id(self) -> str:
        """The job's id."""
        ...


class Sandbox:
    """While it is entered, `app` lives in it: its client, its handles, its workers; nothing outside is touched.

    Its clock stands still at `now` (the present, unless given) and moves only by `travel` and `drain(through=…)`. Jobs run one
    at a time, or `slots` at a time; plain functions in a thread of this process, or as `plain` says: "inline" in the very thread
    of the test, "process" in real child processes. Enter it by `with` or `async with`. Raises Unfit without a fit fakeredis.
    """

    def __init__(
        self, app: App, *, plain: Plain = "thread", slots: int = 1, now: datetime | None = None
    ) -> None:
        if plain not in PLAIN:
            raise Invalid(f"plain {plain!r}: use {', '.join(PLAIN)}")
        if now is not None and now.tzinfo is None:
            raise Invalid(f"now {now}: give a moment with a time zone")
        self.app, self.plain, self.slots = app, plain, slots
        self._now = now
        self._server: Server | None = None
        self._ear = Ear()
        self._exits = contextlib.ExitStack()

    def __enter__(self) -> "Sandbox":
        if self._server is not None:
            raise Invalid("this sandbox is entered already: make another one")
        server = Server(self._now or datetime.now(UTC))
        self._exits.enter_context(
            self.app.using(Settings(redis_url="redis://sandbox", client_factory=server))
        )
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

    # time

    @property
    def now(self) -> datetime:
        """What the clock of the sandbox says."""
        return self._here().now

    def travel(self, by: Seconds = 0, *, to: datetime | None = None) -> datetime:
        """Let time pass, by a duration or up to a moment, and let happen what falls due. Answers the new moment.

        Delays, backoffs and windows pass, leases end, what is past its retention is forgotten, and schedules fire as if nobody
        had looked meanwhile. What is queued by that waits for a worker: for `drain`. Raises Invalid for a moment in the past.
        """
        server = self._here()
        goal = to if to is not None else server.now + _duration(by)
        if goal.tzinfo is None or goal < server.now:
            raise Invalid(f"travel to {goal}: give a moment with a time zone, and not before {server.now}")
        server.advance(goal)
        client = self._client()
        for _ in range(ROUNDS):
            done = client.reap("sandbox")
            if not done.more:
                break
        if done.come:
            client.follow(client.operations.fire("sandbox"))
        for _ in range(ROUNDS):
            if not client.prune()[1]:
                break
        return server.now

    # work

    async def drain(self, *, through: Seconds = 0, raising: bool = False, limit: int = 1000) -> Drained:
        """Have a worker work until no job is queued; answer what it did, and what is left for later.

        With `through`, then travel from one due moment to the next, that far at most, until nothing waits any more. With
        `raising`, end at the first failed attempt and raise what its task raised (JobFailed, if that was in another process).
        Raises Endless when `limit` attempts were not enough.
        """
        server = self._here()
        drain, until = Drain(self._ear, self._client(), raising, limit), server.now + _duration(through)
        for _ in range(ROUNDS):
            await self._work(drain)
            moment = drain.next_at()
            if moment is None or moment > until:
                break
            self.travel(to=moment)
        return drain.report()

    def drain_sync(self, *, through: Seconds = 0, raising: bool = False, limit: int = 1000) -> Drained:
        """The same for code without an event loop: each call runs one of its own."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            raise Invalid("drain_sync inside of an event loop: use `await sandbox.drain()`")
        self._here()
        return asyncio.run(self._drain_apart(through, raising, limit))

    async def _drain_apart(self, through: Seconds, raising: bool, limit: int) -> Drained:
        try:
            return await self.drain(through=through, raising=raising, limit=limit)
        finally:
            await self.app.client.aclose()  # the one of this loop, which ends now

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[Worker]:
        """Have a worker work beside the test, for code that itself waits for results. Time stands still all the same."""
        async with self._worker(None) as worker:
            running = asyncio.create_task(worker.run())
            try:
                yield worker
            finally:
                worker.stop()
                await running

    async def _work(self, drain: Drain) -> None:
        """Send workers to the queues until all are dry, or what is there cannot be had."""
        for _ in range(ROUNDS):
            queues = drain.queues()
            if not queues:
                return
            async with self._worker(queues, drain) as worker:
                if not await drain.run(worker):
                    return

    @contextlib.asynccontextmanager
    async def _worker(self, queues: list[str] | None, drain: Drain | None = None) -> AsyncIterator[Worker]:
        self._here()
        app = at_home(self.app, self.plain, self._ear)
        async with worker_of(app, self._ear, queues, self.slots, drain.hear if drain else None) as worker:
            yield worker

    # to look

    def job(self, job: HasId | str) -> Job:
        """One job, by its handle or id, with its story. Raises NotFound."""
        return self._client().get(job if isinstance(job, str) else job.id)

    def jobs(
        self, *, state: State | str | None = None, task: str | None = None, queue: str | None = None
    ) -> list[Job]:
        """All jobs, or those of a state, a task or a queue, with their stories; those submitted first come first."""
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

    def _here(self) -> Server:
        if self._server is None:
            raise Invalid("nobody is in this sandbox: use it inside of `with Sandbox(app) as sandbox:`")
        return self._server

    def _client(self) -> SyncClient:
        self._here()
        return self.app.sync


def _duration(seconds: Seconds) -> timedelta:
    return seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
