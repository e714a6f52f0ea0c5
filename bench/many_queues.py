"""Measure one worker of many queues, of which few have jobs, beside one of a single queue.

Medians of the rounds:

- jobs_per_second: a backlog spread over the busy queues, from the first start to the last;
- redis_us: CPU time of the server per job meanwhile, in microseconds;
- start_ms: from a submit to the start of the task, one job at a time.
"""

import argparse
import asyncio
import contextlib
import json
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

from sublet import App, Settings
from sublet.client.client import Client
from sublet.connection.settings import connect_sync
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.protocol import keys
from sublet.store.store import Store
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker

KINDS = ("one queue", "pattern", "names")
SECONDS = 60

app = App()
STARTS: list[float] = []
BACKLOG: list[int] = []


@app.task
async def note(at: float) -> None:
    """Note the start of a measured job. `at`: when it was submitted, 0 for the backlog."""
    STARTS.append(time.time())
    if at:
        print(1000 * (STARTS[-1] - at), flush=True)
    elif len(STARTS) == BACKLOG[0]:
        print(STARTS[-1] - STARTS[0], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--queues", type=int, default=10_000, help="queues (10000)")
    parser.add_argument("--busy", type=int, default=50, help="queues with jobs (50)")
    parser.add_argument("--jobs", type=int, default=5000, help="jobs of a backlog (5000)")
    parser.add_argument("--submits", type=int, default=200, help="submits one by one (200)")
    parser.add_argument("--rounds", type=int, default=1, help="rounds (1)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        asyncio.run(_work(*json.load(sys.stdin)))
        return
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    redis = shutil.which("redis-server")
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer.start(Path(folder), binary=redis, persistent=False) as server,
    ):
        settings = Settings(redis_url=server.url, namespace="many-queues")
        with connect_sync(settings) as raw:  # as after their last job
            raw.hset(
                keys.queues(keys.base(settings.namespace)), mapping=dict.fromkeys(_names(args.queues), "")
            )
        for number in range(args.rounds):
            for kind in KINDS[:: -1 if number % 2 else 1]:
                found[kind].append(asyncio.run(_measure(args, settings, kind)))
    medians = {kind: _medians(rounds) for kind, rounds in found.items()}
    if args.json:
        print(json.dumps(medians))
        return
    for kind, figures in medians.items():
        print(f"{kind:10}", *(f"{name} {value:,.2f}" for name, value in figures.items()), sep="  ")


def _medians(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(figures[name] for figures in rounds) for name in rounds[0]}


async def _measure(args: argparse.Namespace, settings: Settings, kind: str) -> dict[str, float]:
    names = _names(1 if kind == "one queue" else args.queues)
    busy = random.Random(7).sample(names, min(args.busy, len(names)))
    raw = connect_sync(settings)

    def used() -> float:
        info: dict[str, Any] = raw.info("cpu")
        return float(info["used_cpu_user"] + info["used_cpu_sys"])

    async with asyncio.timeout(SECONDS), Client(settings) as client:
        await client.submit_all([note.options(queue=busy[i % len(busy)]).job(0.0) for i in range(args.jobs)])
        before = used()
        async with _worker(settings, ["tenant-*"] if kind == "pattern" else names, args.jobs) as worker:
            seconds = await _line(worker)
            cpu, starts = used() - before, []
            for _ in range(args.submits):
                await asyncio.sleep(0.005)
                await client.submit_all([note.options(queue=random.choice(busy)).job(time.time())])
                starts.append(await _line(worker))
    raw.close()
    quantiles = statistics.quantiles(starts, n=100)
    return {
        "jobs_per_second": args.jobs / seconds, "redis_us": cpu / args.jobs * 1e6,
        "start_ms_p50": quantiles[49], "start_ms_p99": quantiles[98],
    }  # fmt: skip


async def _line(worker: Process) -> float:
    assert worker.stdout, "it is a pipe"
    return float(await worker.stdout.readline())


@contextlib.asynccontextmanager
async def _worker(settings: Settings, queues: Sequence[str], jobs: int) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--worker", stdin=PIPE, stdout=PIPE
    )
    try:
        assert process.stdin, "it is a pipe"
        process.stdin.write(json.dumps([settings.redis_url, settings.namespace, queues, jobs]).encode())
        process.stdin.close()
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _work(url: str, namespace: str, queues: Sequence[str], jobs: int) -> None:
    BACKLOG.append(jobs)
    store = Store(Settings(redis_url=url, namespace=namespace))
    worker = Worker(app, store, WorkerConfig(queues=queues))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()
    await store.aclose()


def _names(number: int) -> list[str]:
    return [f"tenant-{i}" for i in range(number)]


if __name__ == "__main__":
    main()
