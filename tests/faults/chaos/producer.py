"""A producer process: submit jobs and record the replies.

    python -m tests.faults.chaos.producer NAME LEDGER-FILE RATE SECONDS [QUEUE TENANTS]

With QUEUE, its jobs are those of so many tenants in turn.
It repeats a submit without a reply with the same id. After SIGTERM it submits no new jobs, and ends when
all have a reply.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from sublet.connection.settings import Settings
from sublet.errors import JobsError, Unavailable
from sublet.model import Submission
from sublet.store.source import JobSource
from tests.faults.chaos.ledger import EntryWriter
from tests.faults.chaos.tasks import QUEUES, app, sleep_task, tenant_task

REST = 0.05
"""Seconds before a submit is repeated."""
PATIENCE = 30.0
"""Seconds for replies after SIGTERM."""
FAILING = 10
"""One job in so many fails in its first attempt."""
BATCHES = 20
"""Batches per second."""


class Producer:
    """Submits `rate` jobs per second, each of which takes a worker `seconds`."""

    def __init__(
        self,
        name: str,
        writer: EntryWriter,
        source: JobSource,
        rate: float,
        seconds: float,
        queue: str = "",
        tenants: int = 0,
    ) -> None:
        self._name, self._writer, self._source = name, writer, source
        self._rate, self._seconds, self._queue, self._tenants = rate, seconds, queue, tenants
        self._stop = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Submit until stopped, then wait up to 30 s for the replies."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop.set)
        made = 0
        begin = asyncio.get_running_loop().time()
        while not self._stop.is_set():
            due = int((asyncio.get_running_loop().time() - begin) * self._rate) + 1
            if due > made:
                for n in range(made, due):
                    self._begin(self._job(n))
                made = due
            try:
                async with asyncio.timeout(1 / BATCHES):
                    await self._stop.wait()
            except TimeoutError:
                pass
        if self._open:
            _, late = await asyncio.wait(self._open, timeout=PATIENCE)
            for task in late:
                task.cancel()

    def _job(self, n: int) -> Submission:
        if self._queue:
            return tenants_job(self._queue, n % self._tenants, self._seconds, f"{self._name}.{n}")
        made = sleep_task.job(seconds=self._seconds, fails=n % FAILING == 0)
        return app.operations.submission(
            made.task, made.payload, QUEUES[n % len(QUEUES)], made.rules, f"{self._name}.{n}"
        )

    def _begin(self, job: Submission) -> None:
        task = asyncio.create_task(self._submit(job))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _submit(self, job: Submission) -> None:
        self._writer.write("sent", job.id)
        while True:
            try:
                await self._source.submit([job])
            except Unavailable as error:
                self._writer.write("unknown", job.id, type(error).__name__)
                await asyncio.sleep(REST)
            except JobsError as error:
                self._writer.write("rejected", job.id, type(error).__name__)
                return
            else:
                self._writer.write("acked", job.id)
                return


def tenants_job(queue: str, tenant: int, seconds: float, name: str) -> Submission:
    """A job of a tenant, with an id made of this name."""
    made = tenant_task.job(tenant=f"t{tenant}", seconds=seconds)
    return app.operations.submission(made.task, made.payload, queue, made.rules, name)


def _source() -> JobSource:
    url = os.environ.get("SUBLET_SOURCE")
    if url:
        from sublet.store.http import HttpSource

        return HttpSource.read(url, 2.0)
    from sublet.store.store import Store

    return Store(Settings.read())


async def main(name: str, path: str, rate: str, seconds: str, queue: str = "", tenants: str = "0") -> None:
    """Run the command line."""
    source = _source()
    try:
        writer = EntryWriter(Path(path))
        await Producer(name, writer, source, float(rate), float(seconds), queue, int(tenants)).run()
    finally:
        await source.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
