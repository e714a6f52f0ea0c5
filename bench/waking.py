"""Measure how soon idle workers wake, and the cost of their waiting.

- due: jobs with a delay of 3 s; from the due time, by the server's clock, to the task's start;
- submit: jobs submitted one at a time to an idle queue; from the submit to the task's start;
- idle: all commands that `sublet work` sends with 1 slot and with 100.
"""

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

from sublet import App, Settings
from sublet.client.client import Client
from sublet.connection.settings import connect_sync
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.store.store import Store
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker

ROOT = Path(__file__).parent.parent
DELAY = 3.0
SUBMITS = 300
PROCESSES = 4
TARGETS = {"due_ms_": 50.0, "idle_commands_": 1.0, "submit_ms_p50": 1.0, "submit_ms_p99": 3.0}

app = App()
STARTED: dict[str, asyncio.Future[float]] = {}


@app.task
async def note(job: str) -> None:
    """The task of the measured jobs: note the moment of its start."""
    STARTED[job].set_result(time.time())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--jobs", type=int, default=30, help="due jobs per crew (30)")
    parser.add_argument("--seconds", type=float, default=30, help="how long idle processes are watched (30)")
    parser.add_argument("--workers", default="1,10,50", help="the crews (1,10,50)")
    parser.add_argument("--server", choices=("redis", "valkey"), help="one of them alone (both)")
    asked = parser.parse_args()
    crews = [int(word) for word in asked.workers.split(",")]
    found: dict[str, dict[str, float]] = {}
    for name, binary in (("redis", "redis-server"), ("valkey", None)):
        if asked.server in (None, name) and (binary is None or shutil.which(binary)):
            with _server(binary) as server:
                print(
                    f"{server.version}: about {asked.jobs * 3.6 + 3 * asked.seconds:.0f} s …", file=sys.stderr
                )
                row = asyncio.run(_latencies(server.url, crews, asked.jobs))
                for slots in (1, 100):
                    row |= _idle(server.url, slots, asked.seconds)
                found[server.version or "server"] = row
                if not asked.json:
                    print(_tables({server.version or "server": row}), flush=True)
    if asked.json:
        print(json.dumps(found, indent=2))


@contextmanager
def _server(binary: str | None) -> Iterator[EmbeddedServer]:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer.start(Path(folder), binary=binary, persistent=False) as server,
    ):
        yield server


async def _latencies(url: str, crews: list[int], jobs: int) -> dict[str, float]:
    due = await asyncio.gather(*(_with_crew(url, count, _due, jobs) for count in crews))
    found: dict[str, float] = {}
    for count, late in zip(crews, due, strict=True):
        found |= _spread(f"due_ms_{{}}_{count}_idle", late)
    for count in crews:
        found |= _spread(f"submit_ms_{{}}_{count}_idle", await _with_crew(url, count, _submits, SUBMITS))
    return found


async def _with_crew(url: str, count: int, measure: Any, jobs: int) -> list[float]:
    settings = Settings(redis_url=url, namespace=f"waking-{count}-{measure.__name__}", timeout=10)
    client, sources = Client(settings), [Store(settings) for _ in range(count)]
    crew = [Worker(app, source, WorkerConfig(queues=["default"], slots=1, grace=0.0)) for source in sources]
    running = []
    for worker in crew:
        running.append(asyncio.create_task(worker.run()))
        await asyncio.sleep(random.uniform(0, 2.0 / count))  # their polls are spread, as in a fleet
    try:
        await _submits(client, 2)
        taken: list[float] = await measure(client, jobs)
        return taken
    finally:
        for worker in crew:
            worker.stop()
        await asyncio.gather(*running)
        await asyncio.gather(client.aclose(), *(source.aclose() for source in sources))


async def _due(client: Client, jobs: int) -> list[float]:
    late = []
    for _ in range(jobs):
        await asyncio.sleep(random.uniform(0.1, 1.0))
        job_id, started = await _submit(client, delay=DELAY)
        due_at = (await client.get(job_id)).due_at
        assert due_at is not None, "it is not due for 3 s"
        late.append((await started - due_at.timestamp()) * 1000)
    return late


async def _submits(client: Client, jobs: int) -> list[float]:
    taken = []
    for _ in range(jobs):
        began = time.time()
        _, started = await _submit(client)
        taken.append((await started - began) * 1000)
        await asyncio.sleep(0.005)
    return taken


async def _submit(client: Client, **options: Any) -> tuple[str, "asyncio.Future[float]"]:
    name = os.urandom(8).hex()
    STARTED[name] = asyncio.get_running_loop().create_future()
    (submitted,) = await client.submit_all([note.options(**options).job(name)])
    return submitted.id, STARTED.pop(name) if STARTED[name].done() else STARTED[name]


def _spread(name: str, values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return {
        name.format("p50"): ordered[len(ordered) // 2],
        name.format("p99"): p99,
        name.format("max"): ordered[-1],
    }


def _idle(url: str, slots: int, seconds: float) -> dict[str, float]:
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "SUBLET_REDIS_URL": url,
        "SUBLET_NAMESPACE": f"waking-idle-{slots}",
    }
    command = [
        sys.executable,
        "-m",
        "sublet",
        "work",
        "bench.waking:app",
        "--queues",
        "default",
        "--slots",
        str(slots),
    ]
    crew = [
        subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(PROCESSES)
    ]
    raw = connect_sync(Settings(redis_url=url, timeout=10))
    try:
        for process in crew:
            assert process.stdout, "it is a pipe"
            assert "ready" in process.stdout.readline()
        time.sleep(2.0)
        with raw.monitor() as monitor:  # type: ignore[no-untyped-call]  # redis-py has no type for it
            began, sent = time.monotonic(), 0
            time.sleep(seconds)
            elapsed = time.monotonic() - began
            raw.echo("the end")
            while "the end" not in (said := monitor.next_command())["command"]:
                sent += said["client_type"] != "lua"
        return {f"idle_commands_per_s_{slots}_slots": sent / elapsed / PROCESSES}
    finally:
        for process in crew:
            process.terminate()
        for process in crew:
            process.communicate(timeout=30)
        raw.close()


def _tables(found: dict[str, dict[str, float]]) -> str:
    lines = []
    for version, row in found.items():
        lines += ["", version.ljust(34) + "seen".rjust(10) + "at most".rjust(10)]
        for name, value in row.items():
            target = next((most for begin, most in TARGETS.items() if name.startswith(begin)), None)
            words = (
                ""
                if target is None
                else f"{target:.10g}".rjust(10) + ("" if value <= target else "   missed")
            )
            lines.append(name.ljust(34) + f"{value:.2f}".rjust(10) + words)
    return "\n".join(lines[1:])


if __name__ == "__main__":
    main()
