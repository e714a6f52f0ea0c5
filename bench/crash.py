"""Measure how soon the jobs of a killed worker run again, and whether each is completed once.

The time runs from the kill (SIGKILL) to the start of the last new attempt:

- elsewhere: an idle worker claims the jobs when the leases expire;
- restarted: a new worker on the machine finds its predecessor dead (`from start` includes the start of Python);
- child: plain functions; all eight child processes are killed.
"""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

from sublet import App, Context, Settings, State
from sublet.client.sync_client import SyncClient
from sublet.devtools.embedded_server import EmbeddedServer

ROOT = Path(__file__).parent.parent
JOBS, PLAIN = 100, 8
LEASES = (2, 10, 30)
PATIENCE = 60.0
"""Seconds, in addition to a lease, after which a wait fails."""
POLL = 0.005

app = App()


def _write(word: str, number: int, attempt: int) -> None:
    with open(os.environ["CRASH_LEDGER"], "ab", buffering=0) as ledger:
        ledger.write(f"{word} {number} {attempt} {os.getpid()} {time.monotonic()}\n".encode())


def _may_end() -> bool:
    return Path(os.environ["CRASH_LEDGER"] + ".open").exists()


@app.task(queue="loop", timeout=None)
async def stay(ctx: Context, number: int) -> int:
    _write("start", number, ctx.attempt)
    while not _may_end():  # noqa: ASYNC110  # another process says so, by a file
        await asyncio.sleep(0.1)
    _write("end", number, ctx.attempt)
    return number


@app.task(queue="child", timeout=None, backoff=0.0)
def stay_there(ctx: Context, number: int) -> int:
    """The same task as a plain function, in a child process."""
    _write("start", number, ctx.attempt)
    while not _may_end():
        time.sleep(0.1)
    _write("end", number, ctx.attempt)
    return number


class Scene:
    """One trial: a namespace, a ledger and workers. All are deleted at its end."""

    def __init__(self, url: str, folder: Path, lease: int, queue: str) -> None:
        self.lease, self.queue = lease, queue
        self.settings = Settings(redis_url=url, namespace=f"crash-{uuid.uuid4().hex[:8]}", timeout=10)
        self.ledger = folder / f"{self.settings.namespace}.ledger"
        self.ledger.touch()
        self._workers: list[subprocess.Popen[bytes]] = []

    def hire(self) -> tuple["subprocess.Popen[bytes]", float]:
        """Start a worker. Returns it when it is ready, and that moment."""
        env = {**os.environ, "PYTHONPATH": str(ROOT), "SUBLET_REDIS_URL": self.settings.redis_url}
        env |= {"SUBLET_NAMESPACE": self.settings.namespace, "CRASH_LEDGER": str(self.ledger)}
        work = [
            "-m",
            "sublet",
            "work",
            "bench.crash:app",
            "--queues",
            self.queue,
            "--lease",
            f"{self.lease}s",
        ]
        slots = (
            ["--slots", str(JOBS)]
            if self.queue == "loop"
            else ["--slots", str(PLAIN), "--processes", str(PLAIN)]
        )
        said = self.ledger.with_suffix(f".{len(self._workers)}")
        with said.open("wb") as out:
            worker = subprocess.Popen(
                [sys.executable, *work, *slots], cwd=ROOT, env=env, stdout=out, stderr=out
            )
        self._workers.append(worker)
        until(lambda: b"ready" in said.read_bytes() or worker.poll() is not None, PATIENCE)
        assert worker.poll() is None, said.read_text()
        return worker, time.monotonic()

    def lines(self, word: str) -> list[tuple[int, int, int, float]]:
        """Return the ledger's lines of `word`, `start` or `end`: number, attempt, pid, moment."""
        whole = self.ledger.read_text().rpartition("\n")[0].split("\n")
        said = [line.split(" ") for line in whole if line.startswith(f"{word} ")]
        return [(int(number), int(attempt), int(pid), float(at)) for _, number, attempt, pid, at in said]

    def started(self, jobs: int, attempt: int) -> float:
        """Wait until `jobs` jobs have begun this attempt, or a later one. Return the last start."""

        def all_of_them() -> bool:
            return len({number for number, of, *_ in self.lines("start") if of >= attempt}) >= jobs

        until(all_of_them, self.lease + PATIENCE)
        return max(at for _, of, _, at in self.lines("start") if of == attempt)

    def faults(self, jobs: int) -> dict[str, int]:
        """Let all jobs end. Return how many of them were `lost`, and how many were completed `twice`."""
        Path(f"{self.ledger}.open").touch()
        with SyncClient(self.settings) as client:
            with contextlib.suppress(TimeoutError):
                until(lambda: client.stats()[0].totals["completed"] >= jobs, PATIENCE)
            time.sleep(0.3)  # time for a second completion, which would be a fault
            completed = client.stats()[0].totals["completed"]
            done = client.list_jobs(state=State.COMPLETED, limit=200).jobs
        ends = Counter(number for number, *_ in self.lines("end"))
        return {
            "lost": jobs - len(done),
            "twice": completed - len(done) + sum(times - 1 for times in ends.values()),
        }

    def close(self) -> None:
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            try:
                worker.wait(PATIENCE / 4)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON array instead of a table")
    parser.add_argument("--quick", action="store_true", help="one lease of each kind")
    parser.add_argument(
        "--server", choices=("redis", "valkey"), help="which one (redis, where it is on the PATH)"
    )
    asked = parser.parse_args()
    binary = "redis-server" if asked.server != "valkey" and shutil.which("redis-server") else None
    plan: list[tuple[Callable[[Scene], dict[str, float]], int]] = [
        (elsewhere, lease) for lease in LEASES[: 1 if asked.quick else 3]
    ]
    plan += [(restarted, lease) for lease in LEASES[2 if asked.quick else 0 :]] + [(child, 30)]
    found: list[dict[str, float | str]] = []
    with _server(binary) as (server, folder):
        for trial, lease in plan:
            print(f"{server.version}: {trial.__name__}, lease {lease} s …", file=sys.stderr)
            scene = Scene(server.url, folder, lease, "child" if trial is child else "loop")
            try:
                found.append({"trial": trial.__name__, "lease": lease, **trial(scene)})
            finally:
                scene.close()
    print(json.dumps(found, indent=2) if asked.json else _table(server.version or "", found))


@contextlib.contextmanager
def _server(binary: str | None) -> Iterator[tuple[EmbeddedServer, Path]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer.start(Path(folder), binary=binary, persistent=False) as server,
    ):
        yield server, Path(folder)


def elsewhere(scene: Scene) -> dict[str, float]:
    """Kill a worker beside an idle one. Return the seconds to the last new attempt, and the faults."""
    worker, _ = scene.hire()
    _submit(scene, "stay", JOBS)
    scene.started(JOBS, 1)
    scene.hire()
    time.sleep(1.0)  # the other worker has claimed nothing, and waits
    killed = _kill(worker)
    again = scene.started(JOBS, 2)
    return {"seconds": again - killed, "target": scene.lease + 1.0, **scene.faults(JOBS)}


def restarted(scene: Scene) -> dict[str, float]:
    """Kill a worker, start one on its host. Return the seconds to the last new attempt, and the faults."""
    worker, _ = scene.hire()
    _submit(scene, "stay", JOBS)
    scene.started(JOBS, 1)
    _kill(worker)
    begun = time.monotonic()
    _, ready = scene.hire()
    again = scene.started(JOBS, 2)
    return {
        "seconds": max(0.0, again - ready),
        "target": 1.0,
        "from start": again - begun,
        **scene.faults(JOBS),
    }


def child(scene: Scene) -> dict[str, float]:
    """Kill the child processes. Return the seconds until Redis has their jobs' failures, and the faults."""
    scene.hire()
    _submit(scene, "stay_there", PLAIN)
    scene.started(PLAIN, 1)
    children = {pid for _, _, pid, _ in scene.lines("start")}
    assert len(children) == PLAIN, children
    with SyncClient(scene.settings) as client:
        killed = time.monotonic()
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        until(lambda: client.stats()[0].totals["failed"] >= PLAIN, PATIENCE)
        noticed = time.monotonic()
    again = scene.started(PLAIN, 2)
    return {"seconds": noticed - killed, "target": 1.0, "all again": again - killed, **scene.faults(PLAIN)}


def _submit(scene: Scene, task: str, jobs: int) -> None:
    app.settings = scene.settings
    with SyncClient(scene.settings) as client:
        client.submit_all([app.tasks[task].job(number) for number in range(jobs)])


def _kill(worker: "subprocess.Popen[bytes]") -> float:
    killed = time.monotonic()
    worker.kill()
    worker.wait()
    return killed


def until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for a condition. Raises TimeoutError when the seconds are over."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(
                f"the jobs or the worker did not reach the expected state within {seconds:g} s"
            )
        time.sleep(POLL)


def _table(version: str, found: list[dict[str, float | str]]) -> str:
    heads = ("seconds", "target", "from start", "all again", "lost", "twice")
    lines = [version.ljust(24) + "".join(head.rjust(12) for head in heads)]
    for row in found:
        cells = (
            "" if head not in row else f"{row[head]:.2f}" if isinstance(row[head], float) else str(row[head])
            for head in heads
        )
        good = float(row["seconds"]) <= float(row["target"]) and not row["lost"] and not row["twice"]
        name = f"{row['trial']}, lease {row['lease']} s".ljust(24)
        lines.append(name + "".join(cell.rjust(12) for cell in cells) + "   missed" * (not good))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
