"""Plain functions: how many no-op ones a worker drains through its child processes, against huey's eight threads.

    python3 bench/plain.py [--json] [--jobs 60000] [--rounds 3] [--processes 1 2 4 8] [--slots 100]

Starts its own server (persistence off; both speak to its unix socket) and, if huey is not installed, a virtual environment for
it in a temporary folder. Each drains jobs that are all there when it starts, in a process of its own: `sublet work` with results
kept, and `huey_consumer` with its thread workers, as its documentation says; huey keeps no result of a task that returns None.
The clock runs from the first job done to the last, so neither's start counts, but the start of most child processes does.
Rounds are interleaved and medians shown; the machine's other load shows in the spread: compare figures of one run.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from jobs import App, Settings
from jobs.config import connect_sync
from jobs.embedded import EmbeddedServer
from jobs.model import Submission

ROOT = Path(__file__).parent.parent
TASKS = '''
from jobs import App

app = App()


@app.task
def noop() -> None:
    """Nothing."""
'''
HUEY = """
import os
from concurrent.futures import ThreadPoolExecutor
from huey import RedisHuey

huey = RedisHuey("bench", url=os.environ["BENCH_URL"])


@huey.task()
def noop():
    pass


def submit(n):
    for _ in range(n):
        noop()


def submit_all(n):
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(submit, [n // 4] * 4))
"""
HUEY_THREADS = 8
PATIENCE = 60.0
"""Seconds that a drain may take."""


def main() -> None:
    """Run everything and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--jobs", type=int, default=60_000, help="jobs per drain, a multiple of four (60,000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the median is shown (3)")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4, 8], help="child processes (1 2 4 8)")
    parser.add_argument("--slots", type=int, default=100, help="jobs that the worker holds at a time (100)")
    asked = parser.parse_args()
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as server:
        (Path(folder) / "bench_tasks.py").write_text(TASKS)
        (Path(folder) / "bench_huey.py").write_text(HUEY)
        python = _python_with_huey(Path(folder))
        version = _version_of_huey(python)
        for number in range(asked.rounds):
            print(f"{server.version}: round {number + 1} of {asked.rounds} …", file=sys.stderr)
            rates = {f"huey {version}, {HUEY_THREADS} threads": _huey(server.url, Path(folder), python, asked.jobs)}
            for processes in asked.processes:
                name = f"sublet, {processes} processes"
                rates[name] = _sublet(server.url, Path(folder), asked.jobs, processes, asked.slots)
            for name, rate in rates.items():
                found.setdefault(name, []).append(rate)
        print(json.dumps({server.version: found}, indent=2) if asked.json else _table(server.version, found))


@contextmanager
def _server(folder: Path) -> Iterator[EmbeddedServer]:
    with EmbeddedServer.start(folder / "data", persistent=False) as server:
        yield server


def _python_with_huey(folder: Path) -> str:
    """A Python that has huey: this one, or one in an environment made for it."""
    if importlib.util.find_spec("huey"):
        return sys.executable
    print("huey is not installed: making an environment for it …", file=sys.stderr)
    venv.create(folder / "huey", with_pip=True)
    python = str(folder / "huey" / "bin" / "python")
    done = subprocess.run([python, "-m", "pip", "install", "-q", "huey", "redis[hiredis]"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"huey could not be installed; `pip install huey` where this bench runs, and try again:\n{done.stderr[-500:]}")
    return python


def _version_of_huey(python: str) -> str:
    code = "from importlib.metadata import version; print(version('huey'))"
    return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def _huey(url: str, folder: Path, python: str, jobs: int) -> float:
    environment = os.environ | {"BENCH_URL": url, "PYTHONPATH": str(folder)}
    raw = connect_sync(Settings(redis_url=url))
    raw.flushall()
    subprocess.run([python, "-c", f"import bench_huey; bench_huey.submit_all({jobs})"], cwd=folder, env=environment, check=True)
    command = [python, "-m", "huey.bin.huey_consumer", "bench_huey.huey", "-k", "thread", "-w", str(HUEY_THREADS), "-q"]
    rate = _drained(command, folder, environment, lambda: jobs - int(raw.llen("huey.redis.bench")), jobs)
    raw.close()
    return rate


def _sublet(url: str, folder: Path, jobs: int, processes: int, slots: int) -> float:
    environment = os.environ | {"SUBLET_REDIS_URL": url, "PYTHONPATH": f"{folder}:{ROOT}"}
    raw = connect_sync(Settings(redis_url=url))
    raw.flushall()
    base = asyncio.run(_submit(Settings(redis_url=url), jobs))
    command = [sys.executable, "-m", "jobs", "work", "bench_tasks:app", "--quiet"]
    command += ["--slots", str(slots), "--processes", str(processes)]
    rate = _drained(command, folder, environment, lambda: int(raw.zcard(f"{base}:completed")), jobs)
    raw.close()
    return rate


async def _submit(settings: Settings, jobs: int) -> str:
    app = App(settings=settings)
    layout = app.layout
    batch: list[Submission] = [layout.submission("noop", b"{}", "default", "") for _ in range(jobs)]
    await app.client.submit_all(batch)
    await app.aclose()
    return layout.of_queue("default")


def _drained(command: list[str], folder: Path, environment: dict[str, str], done: Callable[[], int], jobs: int) -> float:
    """Have a worker drain all jobs; jobs a second from the first look that sees some done to the last."""
    with (
        open(folder / "worker.log", "w+") as errors,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=errors) as process,
    ):
        try:
            rate = _clocked(done, jobs, process)
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
        errors.seek(0)
        words = errors.read(2000)
        if rate is None or "ERROR" in words:
            sys.exit(f"{' '.join(command)}: {done()} of {jobs} jobs done; it said\n{words}")
        return rate


def _clocked(done: Callable[[], int], jobs: int, process: "subprocess.Popen[bytes]") -> float | None:
    until = time.monotonic() + PATIENCE
    began, before = 0.0, 0
    while time.monotonic() < until and process.poll() is None:
        now, count = time.perf_counter(), done()
        if not began and count:
            began, before = now, count
        if count >= jobs:
            return (jobs - before) / (now - began)
        time.sleep(0.005)
    return None


def _table(version: str, found: dict[str, list[float]]) -> str:
    (peer, *_), base = found, 0.0
    base = statistics.median(found[peer])
    lines = [version.ljust(30) + "jobs/s".rjust(10) + "× huey".rjust(10) + "  rounds"]
    for name, rates in found.items():
        rate = statistics.median(rates)
        lines.append(
            name.ljust(30)
            + f"{rate:,.0f}".rjust(10)
            + f"{rate / base:.1f}".rjust(10)
            + f"  {', '.join(f'{r:,.0f}' for r in rates)}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
