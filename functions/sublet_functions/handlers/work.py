"""`POST /work`: the worker function behind HTTP. Who summons a worker gets one here, for a while, if this server has an app.

The answer's head goes out at once, so that nobody has to wait who only wants to know that a worker has come; what it did follows
at the end, with a line break now and then before it (which JSON allows), so that no gateway takes the connection for dead. The
work does not hang on the connection: it goes on when the caller has hung up.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from sublet.errors import Invalid, JobsError
from sublet.scaling.signing import Secrets, Unsigned
from sublet_functions.api.auth import Principal, Role, Tokens
from sublet_functions.api.parsing import raw_body
from sublet_functions.api.request import Call, Reply, Request
from sublet_functions.api.response import JSON, Problem, encode
from sublet_functions.schemas.query import Query
from sublet_functions.schemas.responses import Answer
from sublet_functions.schemas.summons import Summons

if TYPE_CHECKING:
    from sublet.app import App
    from sublet.model import Lease
    from sublet.worker.summary import Summary
    from sublet.worker.worker import Worker

log = logging.getLogger(__name__)

SUMMONS_MAX = 16 * 1024
"""Bytes of a signed body: it is read before it is known who sends it."""
SECONDS = 55.0
"""How long a worker stays at most, unless SUBLET_WORK_SECONDS says otherwise: gateways cut at 60."""
GRACE = 5.0
"""Seconds that running jobs may go on when the server stops; what is left of its own is for giving them back."""
KEEP_ALIVE = 15.0
"""Seconds of silence after which the caller is sent a line break."""
LAST_RESORT = 4.0
"""Seconds that workers have to give back everything, once they are hurried."""

SAID = 60.0
"""Seconds between two lines in the log about callers that are refused, at least."""

_said_at: dict[int, float] = {}
"""When a refusal of each status was last logged by this process."""

SUMMONER = Principal("summons", frozenset({Role.WORK}))
"""Whoever has signed a request."""


class WorkQuery(Query):
    """For how long."""

    seconds: Annotated[float, Field(ge=1, le=86_400, allow_inf_nan=False)] | None = Field(
        None,
        alias="for",
        description="Be gone by then. The server's own limit is the longest, and the default.",
    )


class Worked(Answer):
    """What the worker did."""

    completed: int
    failed: int
    released: int = Field(description="Given back unfinished.")
    refused: int = Field(description="Ended, but the lease was lost.")
    seconds: float
    stalled: bool


async def work(call: Call[Summons, WorkQuery]) -> Reply:
    """Be a worker until there is nothing to do, or the time is up. A signature (Standard Webhooks) is as good as a token.

    The head of the answer comes at once, the body when the worker has ended. Hanging up does not end it.
    """
    if call.workshop is None:
        raise Problem(
            "not-found",
            "this server has no app, so it cannot run jobs: name one by SUBLET_APP, or sublet serve --app",
        )
    shift = await call.workshop.begin(call.body, call.query.seconds)
    return Reply(200, shift.tell(), {"Content-Type": JSON}, finishes=True)


async def recognise(request: Request, tokens: Tokens, secrets: Secrets) -> tuple[Request, Principal]:
    """Let in who has signed a request with one of our secrets. Gives the request, its body read. Raises Problem for others."""
    stranger = tokens.stranger(request.headers)
    if stranger:
        raise Problem("forbidden", stranger)
    why = "this server has no signing secret (SUBLET_SIGNING_SECRETS)"
    if secrets:
        raw = await raw_body(request, SUMMONS_MAX)
        try:
            secrets.verify(request.headers, raw)
            return replace(request, body=raw, read=None), SUMMONER
        except Unsigned as error:
            why = str(error)
    _refuse(401, why)
    raise Problem("unauthorized", why, headers={"WWW-Authenticate": "Bearer"})


def _refuse(status: int, why: str) -> None:
    """Log that a call to be a worker is refused, now and then: whoever calls may do so often."""
    now = time.monotonic()
    if now - _said_at.get(status, float("-inf")) >= SAID:
        _said_at[status] = now
        log.warning("POST /work was refused with %d (said once a minute at most): %s", status, why)


class Shift:
    """One worker, from its summons to its summary."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.task: asyncio.Task[Summary]
        self._worker: Worker | None = None
        self._stopping = False

    def hold(self, worker: Worker) -> None:
        """This is the worker: stop it, if that was asked for meanwhile."""
        self._worker = worker
        if self._stopping:
            worker.stop()

    def hear(self, event: str, lease: Lease | None, words: str) -> None:
        """It says what happens."""
        if event == "ready":
            self.ready.set()

    def stop(self) -> None:
        """Take no more jobs; called again, give back those that run."""
        self._stopping = True
        if self._worker:
            self._worker.stop()

    async def begun(self) -> None:
        """Wait until it is there. Raises what it could not begin for."""
        ready = asyncio.create_task(self.ready.wait())
        try:
            await asyncio.wait([self.task, ready], return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if not self.ready.is_set():
            self.task.result()

    async def tell(self) -> AsyncIterator[bytes]:
        """The body of the answer, piece by piece."""
        while not self.task.done():
            await asyncio.wait([self.task], timeout=KEEP_ALIVE)
            if not self.task.done():
                yield b"\n"
        done = self.task.result()
        yield encode({name: getattr(done, name) for name in Worked.model_fields}) + b"\n"


class Workshop:
    """Where this process runs jobs when it is called to: `most` workers at a time, each for at most `seconds`.

    One is the rule. Plain functions have one child process for each core from each worker, and a task that blocks the loop holds
    up all of them, and the server.
    """

    def __init__(self, app: App, *, most: int = 1, seconds: float = SECONDS) -> None:
        self._app, self._most, self.seconds = app, most, seconds
        self._shifts: set[Shift] = set()
        self._over = False
        self.stuck = 0
        """Tasks that would not end: an orderly exit would wait for them for ever."""

    @property
    def busy(self) -> bool:
        """Is anybody at work?"""
        return bool(self._shifts)

    @staticmethod
    def seconds_of(environment: dict[str, str] | None = None) -> float:
        """What SUBLET_WORK_SECONDS says. Raises Invalid."""
        said = (os.environ if environment is None else environment).get("SUBLET_WORK_SECONDS", "")
        try:
            seconds = float(said or SECONDS)
        except ValueError:
            seconds = 0.0
        if not 1 <= seconds <= 86_400:
            raise Invalid(f"SUBLET_WORK_SECONDS={said[:40]!r}: use seconds, 1 to 86400")
        return seconds

    async def begin(self, wish: Summons, seconds: float | None) -> Shift:
        """Have a worker, and give it when it is there. Raises Problem where there is no room, and what keeps it from coming."""
        if self._over:
            raise Problem("busy", "this server is about to stop")
        if len(self._shifts) >= self._most:
            _refuse(429, f"{self._most} may be at work here at a time")
            raise Problem(
                "at-work", f"a worker is here already, and {self._most} may be at a time: call another server"
            )
        shift = Shift()
        shift.task = asyncio.create_task(self._run(shift, wish, min(seconds or self.seconds, self.seconds)))
        self._shifts.add(shift)
        shift.task.add_done_callback(partial(self._ended, shift, wish.pool))
        await shift.begun()
        return shift

    async def _run(self, shift: Shift, wish: Summons, seconds: float) -> Summary:
        from sublet_functions.work import work as run_worker  # a server without an app has no need of it

        return await run_worker(
            self._app,
            queues=wish.queues or None,
            slots=wish.slots,
            grace=GRACE,
            drain=True,
            linger=wish.linger,
            pool=wish.pool,
            summons=wish.summons,
            seconds=seconds,
            worker_id="",
            report=shift.hear,
            obey=shift.hold,
        )

    def _ended(self, shift: Shift, pool: str, task: asyncio.Task[Summary]) -> None:
        self._shifts.discard(shift)
        whose = f" of pool {pool}" if pool else ""
        if task.cancelled():
            log.warning("a worker was cut short: its jobs come back when their leases end")
        elif (error := task.exception()) is None:
            done = task.result()
            self.stuck += done.stuck
            counts = f"{done.completed:,} completed, {done.failed:,} failed, {done.released:,} released"
            log.info("a worker%s came and went: %s in %.1f s", whose, counts, done.seconds)
        elif shift.ready.is_set():  # otherwise the caller is told
            words = f": {error}" if isinstance(error, JobsError) else ""
            log.error("a worker%s ended by an error, %s%s", whose, type(error).__name__, words)

    async def finish(self, seconds: float, hurried: asyncio.Event) -> None:
        """Have all workers finish or give back, within so many seconds, or at once when `hurried` is set. No more are let in."""
        self._over = True
        self._stop()
        hurry = asyncio.create_task(hurried.wait())
        try:
            tasks = [shift.task for shift in self._shifts]
            if tasks:
                all_of_them = asyncio.create_task(asyncio.wait(tasks))
                await asyncio.wait([all_of_them, hurry], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                all_of_them.cancel()
        finally:
            hurry.cancel()

    async def aclose(self) -> None:
        """See all workers gone: those that are left give back now, or are cut short."""
        self._over = True
        if self._shifts:
            self._stop()
            await asyncio.wait([shift.task for shift in self._shifts], timeout=LAST_RESORT)
        for shift in tuple(self._shifts):
            shift.task.cancel()
        if self._shifts:
            await asyncio.wait([shift.task for shift in self._shifts], timeout=LAST_RESORT)

    def _stop(self) -> None:
        for shift in tuple(self._shifts):
            shift.stop()
