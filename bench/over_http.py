"""Measure the API: submits, batches, claims and completions, and waiting, over real sockets.

- submit: one job a request, on 64 connections; `half` at half of that rate, at fixed times;
- batch: 100 and 1,000 jobs a request, on 4 connections;
- claim + complete: a hundred at a time on 2 connections, and one `sublet work --source`;
- waiting: a thousand waiting claims; their cost, and how soon a submit answers one.

The server has its own core. `per_cpu_s`: rate per second of its CPU time. `kept_waiting`: share of the time
in which others had its core.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

from sublet import App, Settings
from sublet.connection.settings import connect_sync
from sublet.devtools.embedded_server import EmbeddedServer

ROOT = Path(__file__).parent.parent
CONNECTIONS, BATCH_CONNECTIONS, CLAIM_CONNECTIONS = 64, 4, 2
WAKES = 200
PATIENCE = 60.0
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
"""Cores of the machine: the first is for the API, the others are for Redis and the clients."""
CLIENT = [sys.executable, str(ROOT / "bench" / "lean.py")]
TICKS = os.sysconf("SC_CLK_TCK")
GOALS = {"submit_per_s": 3000, "batch_1000_per_s": 30_000, "worker_per_s": 8000}
"""Least rates to reach; LIMITS has the most that other figures may be."""
LIMITS = {"half_ms_p99": 20.0, "blocked_connections": 1, "wake_ms_p50": 5.0}

app = App()


@app.task(queue="bench", name="noop")
async def noop(text: str) -> None:
    """The task of the measured jobs: do nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument(
        "--jobs", type=int, default=20_000, help="single submits; five times as many in batches (20,000)"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of submits at half load (5)")
    parser.add_argument("--polls", type=int, default=1000, help="claims that wait (1000)")
    parser.add_argument("--server", choices=("redis", "valkey"), help="one of them alone (both)")
    asked = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for name, binary in (("redis", "redis-server"), ("valkey", None)):
        if asked.server in (None, name) and (binary is None or shutil.which(binary)):
            with tempfile.TemporaryDirectory() as folder, _pinned(CORES[1:]):
                server = EmbeddedServer.start(Path(folder), binary=binary, persistent=False)
                with server:
                    row = _measure(server.url, asked)
            found[server.version or name] = row
            if not asked.json:
                print(_table(server.version or name, row), flush=True)
    if asked.json:
        print(json.dumps(found, indent=2))


@contextlib.contextmanager
def _pinned(cores: list[int]) -> Iterator[None]:
    if cores and len(CORES) > 1:
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        if cores and len(CORES) > 1:
            os.sched_setaffinity(0, before)


class Api:
    """A process of `sublet serve`, and its use of resources so far."""

    def __init__(self, process: "subprocess.Popen[str]", url: str) -> None:
        self.process, self.url = process, url

    def cpu(self) -> float:
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS

    def waited(self) -> float:
        """Return the seconds in which the server could have run, and another process ran."""
        with contextlib.suppress(OSError):
            return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[1]) / 1e9
        return 0.0

    def mebibytes(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    def measure(self, phase: str, jobs: int, **how: Any) -> dict[str, float]:
        """Run one phase of a client (`lean.py`). Return its figures, and the server's use of resources during
        it.
        """
        cpu, waited, began = self.cpu(), self.waited(), time.perf_counter()
        spec = json.dumps({"url": self.url, "phase": phase, "jobs": jobs, **how})
        done = subprocess.run(
            CLIENT, input=spec, stdout=subprocess.PIPE, text=True, timeout=PATIENCE * 2, check=True
        )
        found: dict[str, float] = json.loads(done.stdout)
        wall = found.pop("seconds", time.perf_counter() - began)
        return found | self.shares(jobs, wall, cpu, waited)

    def shares(self, jobs: int, wall: float, cpu: float, waited: float) -> dict[str, float]:
        """Return the jobs per second of wall and CPU time, and the shares of time in which the server ran and waited."""
        used = max(self.cpu() - cpu, 1 / TICKS)
        return {
            "per_s": jobs / wall,
            "per_cpu_s": jobs / used,
            "busy": used / wall,
            "kept_waiting": (self.waited() - waited) / wall,
        }


@contextlib.contextmanager
def _serving(redis_url: str) -> Iterator[Api]:
    env = {name: v for name, v in os.environ.items() if not name.startswith(("SUBLET_", "REDIS_"))}
    env |= {"SUBLET_REDIS_URL": redis_url, "SUBLET_PORT": "0", "PYTHONPATH": str(ROOT)}
    profile = os.environ.get("BENCH_PROFILE")
    before = ["-m", "cProfile", "-o", profile] if profile else []
    with _pinned(CORES[:1]):
        process = subprocess.Popen(
            [sys.executable, *before, "-m", "sublet", "serve", "--json"],
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            text=True,
        )
    try:
        assert process.stdout, "it is a pipe"
        yield Api(process, json.loads(process.stdout.readline())["url"])
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _measure(redis_url: str, asked: argparse.Namespace) -> dict[str, float]:
    row: dict[str, float] = {}

    def put(name: str, found: dict[str, float]) -> None:
        row.update({f"{name}_{key}": value for key, value in found.items()})

    with _serving(redis_url) as api:
        api.measure("submit", 1000, connections=CONNECTIONS)
        put("submit", api.measure("submit", asked.jobs, connections=CONNECTIONS))
        rate = row["submit_per_s"] / 2
        put("half", api.measure("open", int(rate * asked.seconds), connections=CONNECTIONS, rate=rate))
        for size in (100, 1000):
            jobs = asked.jobs * 5 // 2 // size * size
            put(f"batch_{size}", api.measure("batch", jobs, connections=BATCH_CONNECTIONS, size=size))
        raw = connect_sync(Settings(redis_url=redis_url))
        waiting = raw.zcard("{sublet:0}:queue:bench")
        put("claim_complete", api.measure("drain", waiting, connections=CLAIM_CONNECTIONS))
        api.measure("batch", asked.jobs * 2 // 1000 * 1000, connections=BATCH_CONNECTIONS, size=1000)
        put("worker", _work(api))
        row["idle_mib"] = api.mebibytes()
        with _waiting(api, asked.polls) as client:
            blocked = [one for one in raw.client_list() if "b" in one["flags"]]
            row |= {
                "waiting_mib": api.mebibytes(),
                "blocked_connections": len(blocked),
                "redis_connections": len(raw.client_list()),
            }
            put("wake", client())
        raw.close()
    return row | {"load": os.getloadavg()[0]}


def _work(api: Api) -> dict[str, float]:
    cpu, waited, own = api.cpu(), api.waited(), _of_children()
    command = [
        sys.executable,
        "-m",
        "sublet",
        "work",
        "bench.over_http:app",
        "--drain",
        "--slots",
        "200",
        "--json",
        "--quiet",
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SUBLET_SOURCE": api.url}
    done = subprocess.run(
        command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, timeout=PATIENCE * 5, check=True
    )
    summary = json.loads(done.stdout.splitlines()[-1])
    found = api.shares(summary["completed"], summary["seconds"], cpu, waited)
    return found | {"per_own_cpu_s": summary["completed"] / (_of_children() - own)}


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def _waiting(api: Api, polls: int) -> Iterator[Callable[[], dict[str, float]]]:
    spec = json.dumps({"url": api.url, "phase": "wait", "jobs": WAKES, "connections": polls})
    client = subprocess.Popen(CLIENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdin, "it is a pipe"
    assert client.stdout, "it is a pipe"
    client.stdin.write(spec + "\n")
    client.stdin.flush()
    assert client.stdout.readline() == "waiting\n"

    def go() -> dict[str, float]:
        said, _ = client.communicate("go\n", timeout=PATIENCE)
        found: dict[str, float] = json.loads(said)
        return found

    try:
        yield go
    finally:
        if client.poll() is None:
            client.kill()
            client.communicate()


def _table(version: str, row: dict[str, float]) -> str:
    lines = [f"{version} (load {row['load']:.1f})"]
    for name, value in row.items():
        missed = value < GOALS.get(name, 0) or value > LIMITS.get(name, float("inf"))
        goal = f"   goal {GOALS.get(name, LIMITS.get(name)):,g}" if name in GOALS or name in LIMITS else ""
        lines.append(f"  {name.ljust(30)}{value:>14,.{0 if value >= 100 else 2}f}{goal}{' missed' * missed}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
