"""Measure how soon an idle fleet starts a job when the token that it waits for comes.

A queue has a rate, and the jobs of one group wait for its tokens. At a token, no submit or completion wakes a
worker. The delay is from the token's moment, by the server's clock, to the task's start.
"""

import argparse
import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

from sublet import App, Settings
from sublet.client.client import Client
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.protocol import keys
from sublet.protocol.scripts import Call
from sublet.store.store import Store
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker

APART = (0.21, 0.29)
"""Seconds between two tokens, drawn for each sample."""
TARGETS = {"p50": 5.0, "p99": 20.0}
QUEUE = "limited"

app = App()
STARTED: "asyncio.Queue[float]" = asyncio.Queue()


@app.task(queue=QUEUE, group="tenant", cost=1)
async def note(hold: float = 0.0) -> None:
    """The task of the measured jobs: note the moment of its start, and keep its slot."""
    STARTED.put_nowait(time.time())
    await asyncio.sleep(hold)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--samples", type=int, default=300, help="tokens per fleet (300)")
    parser.add_argument("--workers", default="1,4", help="the fleets (1,4)")
    parser.add_argument("--slots", type=int, default=100, help="slots of a worker (100)")
    parser.add_argument("--hold", type=float, default=0.0, help="seconds for which a job keeps its slot (0)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    binary = shutil.which("redis-server")
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer.start(Path(folder), binary=binary, persistent=False) as server,
    ):
        crews = [int(word) for word in asked.workers.split(",")]
        found = asyncio.run(_measure_all(server.url, crews, asked))
        print(json.dumps(found, indent=2) if asked.json else _table(str(server.version), found))


async def _measure_all(url: str, crews: list[int], asked: argparse.Namespace) -> dict[int, dict[str, float]]:
    return {count: _spread(await _measure(url, count, asked)) for count in crews}


def _table(version: str, found: dict[int, dict[str, float]]) -> str:
    rows = [f"{version:<20}" + "".join(f"{name:>12}" for name in ("p50, ms", "p99, ms", "max, ms"))]
    for count, row in found.items():
        missed = [name for name, most in TARGETS.items() if row[name] > most]
        cells = "".join(f"{value:12.2f}" for value in row.values())
        rows.append(
            f"{count:>2} idle workers     {cells}{'   missed: ' + ', '.join(missed) if missed else ''}"
        )
    return "\n".join(rows)


async def _measure(url: str, count: int, asked: argparse.Namespace) -> list[float]:
    """Return the ms from each token to the start of its job."""
    settings = Settings(redis_url=url, namespace=f"tokens-{count}", timeout=10)
    client, sources = Client(settings), [Store(settings) for _ in range(count)]
    crew = [
        Worker(app, source, WorkerConfig(queues=[QUEUE], slots=asked.slots, grace=0.0)) for source in sources
    ]
    running = []
    for worker in crew:
        running.append(asyncio.create_task(worker.run()))
        await asyncio.sleep(random.uniform(0, 2.0 / count))  # their polls are spread, as in a fleet
    bucket = keys.bucket(client.store.operations.base_of_queue(QUEUE), QUEUE)
    late = []
    try:
        for _ in range(asked.samples):
            apart = round(random.uniform(*APART), 3)
            await client.configure(QUEUE, rate=1, per=apart, burst=1)
            await client.submit_all([note.job(asked.hold), note.job(asked.hold)])
            await STARTED.get()
            due_ms: float = await client.store.run(
                Call((("GET", bucket),), lambda reply: float(reply or "nan"))
            )
            late.append(await STARTED.get() * 1000 - due_ms)
            await asyncio.sleep(apart + asked.hold + 0.02)  # the next sample begins with a full bucket
        return late
    finally:
        for worker in crew:
            worker.stop()
        await asyncio.gather(*running)
        await asyncio.gather(client.aclose(), *(source.aclose() for source in sources))


def _spread(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
        "max": ordered[-1],
    }


if __name__ == "__main__":
    main()
