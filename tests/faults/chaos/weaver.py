"""A producer process: store workflows and record the replies.

    python -m tests.faults.chaos.weaver NAME LEDGER-FILE RATE [plain]

It repeats a call without a reply with the same ids. Each callback waits for a signal, which comes at once, and one workflow
in ten is stored in several calls; with `plain` none does. After SIGTERM it stores no new workflows, and ends when all have a reply.
"""

import asyncio
import json
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sublet.connection.settings import Settings
from sublet.errors import JobsError, Unavailable
from sublet.model import Submission
from sublet.protocol.plan import Plan
from sublet.store.store import Store
from sublet.workflows import storing
from sublet.workflows.graph import Node
from sublet.workflows.operations import store
from sublet.workflows.storing import Linked
from tests.faults.chaos.ledger import EntryWriter
from tests.faults.chaos.producer import BATCHES, FAILING, PATIENCE, REST
from tests.faults.chaos.tasks import QUEUES, app, callback_task, sleep_task
from tests.faults.chaos.workflows import SHAPES, Woven, edges_of, size_of

SECONDS = 0.02
"""How long a job takes."""
PARTLY = 10
"""One workflow in so many is stored in several calls, however small it is; none of over MOST jobs."""
MOST = 100
PART = 30
"""Jobs of such a call."""


class Weaver:
    """Stores `rate` workflows per second."""

    def __init__(self, name: str, writer: EntryWriter, source: Store, rate: float, plain: bool) -> None:
        self._name, self._writer, self._source, self._rate, self._plain = name, writer, source, rate, plain
        self._stop = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Store workflows until stopped, then wait up to 30 s for the replies."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        made, begin = 0, loop.time()
        while not self._stop.is_set():
            while made < (loop.time() - begin) * self._rate:
                task = asyncio.create_task(self._weave(made))
                self._open.add(task)
                task.add_done_callback(self._open.discard)
                made += 1
            try:
                async with asyncio.timeout(1 / BATCHES):
                    await self._stop.wait()
            except TimeoutError:
                pass
        if self._open:
            _, late = await asyncio.wait(self._open, timeout=PATIENCE)
            for task in late:
                task.cancel()

    async def _weave(self, n: int) -> None:
        drawn = random.Random(f"{self._name} {n}")
        size = size_of(drawn)
        jobs = [self._job(f"{self._name}.{n}.{i}", i % FAILING == 0, i == size - 1) for i in range(size)]
        edges = edges_of(SHAPES[n % len(SHAPES)], size, drawn)
        flow = f"0-{self._name}.{n}"
        for job in jobs:
            self._writer.write("planned", job.id)
        try:
            await self._repeat(lambda: self._stored(flow, jobs, edges, n))
            if not self._plain:
                await self._repeat(lambda: self._source.operations.signal(jobs[-1].id, "go", b"1"))
        except JobsError as error:
            self._writer.write("refused-workflow", flow, str(error))
            return
        ids = [job.id for job in jobs]
        woven = Woven(flow, ids, [(ids[first], ids[then]) for first, then in edges])
        self._writer.write("woven", flow, json.dumps(woven))
        for job_id in ids:
            self._writer.write("acked", job_id)

    def _job(self, name: str, fails: bool, is_callback: bool) -> Submission:
        made = (
            callback_task.job(waits=not self._plain)
            if is_callback
            else sleep_task.job(seconds=SECONDS, fails=fails)
        )
        return app.operations.submission(made.task, made.payload, QUEUES[0], made.rules, name)

    def _stored(self, flow: str, jobs: list[Submission], edges: list[tuple[int, int]], n: int) -> Plan[Any]:
        after = {i: [jobs[first].id for first, then in edges if then == i] for i in range(len(jobs))}
        if self._plain or n % PARTLY or len(jobs) > MOST:
            nodes = {job.id: Node(job, dict.fromkeys(after[i])) for i, job in enumerate(jobs)}
            return store(self._source.operations, flow, nodes)
        linked = [Linked(job, after[i]) for i, job in enumerate(jobs)]
        return _in_several_calls(self._source.operations.base_of_job(jobs[0].id), flow, linked)

    async def _repeat(self, plan: Callable[[], Plan[Any]]) -> None:
        while True:
            try:
                await self._source.follow(plan())
            except Unavailable:
                await asyncio.sleep(REST)
            else:
                return


def _in_several_calls(base: str, flow: str, jobs: list[Linked]) -> Plan[None]:
    *others, callback = jobs
    parts = [others[start : start + PART] for start in range(0, len(others), PART)]
    for part in [*parts, [callback], []]:
        answer = yield storing.workflow(base, flow, "open" if part else "seal", part)
        if isinstance(answer, str):
            raise JobsError(answer)


async def main(name: str, path: str, rate: str, plain: str = "") -> None:
    """Run the command line."""
    source = Store(Settings.read())
    try:
        await Weaver(name, EntryWriter(Path(path)), source, float(rate), bool(plain)).run()
    finally:
        await source.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
