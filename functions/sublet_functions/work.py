"""The worker as a function, which may have a limited time."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from sublet.app import App
from sublet.errors import Invalid
from sublet.execution.runner import NO_LIMITS, Limits
from sublet.job_log import keep_logs
from sublet.protocol.verbs import QUEUES_MAX
from sublet.scaling.invokers import Invoker, invokers_of
from sublet.scaling.summoner import CLOSING, Summoner
from sublet.store.source import HTTP_QUEUES, JobSource
from sublet.store.store import Store
from sublet.worker.config import WorkerConfig
from sublet.worker.summary import Summary
from sublet.worker.worker import Report, Worker

SUMMON_SECONDS = 0.5
"""Summoning other workers at the worker's end may take so many seconds, even if its own time is over."""


async def work(
    app: App,
    source: JobSource | None = None,
    *,
    queues: Sequence[str] | Mapping[str, int] | None = None,
    strict: bool = False,
    slots: int | None = None,
    processes: int | None = None,
    lease: float = 30.0,
    grace: float = 8.0,
    stall: float | None = None,
    blocked: float | None = None,
    limits: Limits = NO_LIMITS,
    commands: bool = False,
    drain: bool = False,
    seconds: float | None = None,
    max_jobs: int | None = None,
    name: str | None = None,
    worker_id: str | None = None,
    pool: str = "",
    summons: str = "",
    linger: float = 0.0,
    invokers: Mapping[str, Invoker] | None = None,
    report: Report = lambda event, lease, detail: None,
    obey: Callable[[Worker], None] | None = None,
    connect: Callable[[JobSource], Awaitable[float]] | None = None,
) -> Summary:
    """Run one worker in this process, on the app's Redis or another `source`, and return its summary.

    `seconds`: the time that the platform has left (None: no limit). The worker ends within it: it releases
    unfinished jobs and, at once, a job whose `timeout` does not fit into the rest, unless it could never fit.
    `worker_id`: by default SUBLET_WORKER_ID. Other options: `WorkerConfig` and `Worker.run`.

    With `drain`, the worker ends when it was idle for `linger` seconds and its `pool`, if any, can spare it.
    At its end, also without `drain`, a worker on Redis summons workers for its queues, unless
    `Summary.dismissed`, by `invokers` (None: those that the environment allows).

    SIGTERM, SIGINT and SIGHUP stop it: running jobs have `grace` seconds, then are released; a second signal
    releases them at once. With `obey`, which gets the worker, signals are left to the caller. `connect`
    replaces the first call: it may wait, and returns the seconds to subtract from `seconds`. A `source` is not
    closed. Raises Unavailable if the source does not answer at the start, Denied, Invalid; later outages are
    retried.
    """
    async with _kept_logs(), _opened_source(app, source) as opened:
        left = _left(seconds, await (connect or _first_call)(opened))
        config = WorkerConfig(
            queues=queues, strict=strict, slots=slots, processes=processes, lease=lease, grace=grace, stall=stall, blocked=blocked, limits=limits,
            commands=commands, name=name, worker_id=_identity(worker_id), pool=pool, summons=summons,
        )  # fmt: skip
        worker = Worker(app, opened, config, report)
        _check_number(worker.queues, opened)
        (obey or _obey_signals)(worker)
        report("ready", None, f"{worker.name} slots={worker.slots} queues={_shown(worker.queues)}")
        async with _summoning_afterwards(opened, invokers, worker, left):
            return await worker.run(drain=drain, seconds=left, max_jobs=max_jobs, linger=linger)


def _left(seconds: float | None, waited: float) -> float | None:
    return None if seconds is None else max(0.0, seconds - waited)


def _check_number(queues: Sequence[str], source: JobSource) -> None:
    if len(queues) > HTTP_QUEUES and not isinstance(source, Store):
        raise Invalid(
            f"{len(queues):,} queues: a worker over HTTP may name {HTTP_QUEUES:,}: use patterns, such as tenant-*"
        )


def _shown(queues: Sequence[str]) -> str:
    more = len(queues) - QUEUES_MAX
    return ",".join(queues[:QUEUES_MAX]) + (f" and {more:,} more" if more > 0 else "")


@contextlib.asynccontextmanager
async def _kept_logs() -> AsyncIterator[None]:
    handler = keep_logs()
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _identity(worker_id: str | None) -> str:
    return os.environ.get("SUBLET_WORKER_ID", "") if worker_id is None else worker_id


@contextlib.asynccontextmanager
async def _opened_source(app: App, source: JobSource | None) -> AsyncIterator[JobSource]:
    if source is not None:
        yield source
        return
    store = Store(app.settings)
    try:
        yield store
    finally:
        await store.aclose()


async def _first_call(source: JobSource) -> float:
    await (source.prepare() if isinstance(source, Store) else source.workers())
    return 0.0


@contextlib.asynccontextmanager
async def _summoning_afterwards(
    source: JobSource, invokers: Mapping[str, Invoker] | None, worker: Worker, seconds: float | None
) -> AsyncIterator[None]:
    ends = time.monotonic() + (float("inf") if seconds is None else seconds)
    if not isinstance(source, Store):
        yield
        return
    summoner = Summoner(source, invokers_of() if invokers is None else invokers)
    try:
        yield
        if not worker.summary.dismissed:
            summoner.nudge(worker.queues)
    finally:
        await summoner.aclose(max(SUMMON_SECONDS, min(CLOSING, ends - time.monotonic())))


def _obey_signals(worker: Worker) -> None:
    on_signals(worker.stop)


def on_signals(stop: Callable[[], None]) -> None:
    """Call `stop`, instead of an earlier one, at each SIGTERM, SIGINT and, unless ignored, SIGHUP. Outside
    the main thread, do nothing.
    """
    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError, RuntimeError):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # under nohup SIGHUP stays ignored
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, stop)
