"""The worker function: take jobs until the queue is dry, the time is up, or a signal comes; then give back the rest."""

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from sublet.app import App
from sublet.context import KeepLog
from sublet.execution.runner import NO_LIMITS, Limits
from sublet.scaling.invokers import Invoker, invokers_of
from sublet.scaling.summoner import CLOSING, Summoner
from sublet.store.source import JobSource
from sublet.store.store import Store
from sublet.worker.summary import Summary
from sublet.worker.worker import Report, Worker

LAST = 0.5
"""Seconds that a worker whose time is up has to have others summoned."""


async def work(
    app: App,
    source: JobSource | None = None,
    *,
    queues: Sequence[str] | None = None,
    slots: int | None = None,
    processes: int | None = None,
    lease: float = 30.0,
    grace: float = 8.0,
    stall: float | None = None,
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
    report: Report = lambda event, lease, words: None,
    obey: Callable[[Worker], None] | None = None,
) -> Summary:
    """Run one worker in this process, on the app's Redis or on another `source`, and say what it did.

    `seconds` is the time that the platform has left for this invocation: the worker is gone by then, takes no job that could
    not be finished in time (a task needs its `timeout`, if that is shorter), and gives back what is not finished. The other
    options are those of `Worker`; `worker_id` is SUBLET_WORKER_ID unless given.

    A worker of a `pool` that drains goes when it has had nothing to do for `linger` seconds and the pool can spare it. One that
    ends otherwise has others summoned for what it leaves behind, by `invokers` (those that the environment allows, unless given).

    SIGTERM, SIGINT and SIGHUP stop it: it takes no more jobs, lets the running ones finish for `grace` seconds, and gives the
    rest back without burning a try; a second signal hurries. Where the signals are somebody else's, `obey` is given the worker,
    to `stop()` it. Raises Unavailable when the source does not answer at the start, Denied when it does not know us, and Invalid
    for options that cannot be; later outages are ridden out. A `source` (say, a `sublet.store.http.HttpSource`) stays open.
    """
    keep_log = KeepLog(logging.INFO)
    logging.getLogger().addHandler(keep_log)
    try:
        async with _answering(app, source) as there:
            worker = Worker(
                app, there, queues=queues, slots=slots, processes=processes, lease=lease, grace=grace, stall=stall, limits=limits,
                commands=commands, name=name, worker_id=os.environ.get("SUBLET_WORKER_ID", "") if worker_id is None else worker_id, pool=pool,
                summons=summons, report=report,
            )  # fmt: skip
            (obey or _obey_signals)(worker)
            report("ready", None, f"{worker.name} slots={worker.slots} queues={','.join(worker.queues)}")
            async with _carrying_on(there, invokers, worker, seconds):
                return await worker.run(drain=drain, seconds=seconds, max_jobs=max_jobs, linger=linger)
    finally:
        logging.getLogger().removeHandler(keep_log)


@contextlib.asynccontextmanager
async def _answering(app: App, source: JobSource | None) -> AsyncIterator[JobSource]:
    """The source that was given or, for as long as it is needed, the app's Redis; either one answers."""
    if source is not None:
        await source.workers()
        yield source
        return
    store = Store(app.settings)
    try:
        await store.prepare()
        yield store
    finally:
        await store.aclose()


@contextlib.asynccontextmanager
async def _carrying_on(
    source: JobSource, invokers: Mapping[str, Invoker] | None, worker: Worker, seconds: float | None
) -> AsyncIterator[None]:
    """Have others summoned for what a worker leaves behind. (Over HTTP, the API sees to that.)"""
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
        await summoner.aclose(max(LAST, min(CLOSING, ends - time.monotonic())))


def _obey_signals(worker: Worker) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(
        NotImplementedError, RuntimeError
    ):  # not the main thread: the platform has the signals
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if (
                number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
            ):  # started under nohup: stay
                loop.add_signal_handler(number, worker.stop)
