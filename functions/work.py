"""The worker function: take jobs until the queue is dry, the time is up, or a signal comes; then give back the rest."""

import asyncio
import contextlib
import signal
from collections.abc import Sequence

from jobs.registry import App
from jobs.store import Store
from jobs.worker import Report, Summary, Worker


async def work(
    app: App,
    *,
    queues: Sequence[str] | None = None,
    slots: int | None = None,
    lease: float = 30.0,
    drain: bool = False,
    seconds: float | None = None,
    name: str | None = None,
    report: Report = lambda event, lease, words: None,
) -> Summary:
    """Run one worker in this process, on Redis, and say what it did.

    SIGTERM and SIGINT stop it: it takes no more jobs, lets the running ones finish for a while, and gives the rest back
    without burning a try; a second signal hurries. Raises Unavailable when Redis does not answer at the start; later outages
    are ridden out.
    """
    store = Store(app.settings)
    try:
        await store.prepare()
        worker = Worker(app, store, queues=queues, slots=slots, lease=lease, name=name, report=report)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(NotImplementedError, RuntimeError):  # not the main thread: the platform has the signals
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, worker.stop)
        report("ready", None, f"{worker.name} slots={worker.slots} queues={','.join(worker.queues)}")
        return await worker.run(drain=drain, seconds=seconds)
    finally:
        await store.aclose()
