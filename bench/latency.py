"""Measure how soon a job starts on an idle queue: from the call of submit to the first line of its task.

`--against` adds another checkout; Huey is a reference, if it is installed. `after`: the part after submit
has returned.
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import random
import shutil
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Last, so that PYTHONPATH may name another checkout.
sys.path += [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

from sublet import App, Settings
from sublet.devtools.embedded_server import EmbeddedServer

ROOT = Path(__file__).parent.parent
BLOCK = 50
WARM_UP = 30
PAUSES = (0.005, 0.03)
"""The least and the most seconds from one start to the next submit."""
PATIENCE = 30.0
TARGETS = {"submit_ms_p50": 1.0, "submit_ms_p99": 3.0}
CLOCK = struct.Struct(">q")

app = App()
_note = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)


def _started() -> None:
    _note.sendto(CLOCK.pack(time.monotonic_ns()), os.environ["LATENCY_NOTES"])


@app.task(queue="loop")
async def noop() -> None:
    """The measured task: report the moment of its start to the submitter."""
    _started()


@app.task(queue="child")
def plain() -> None:
    """The measured task as a plain function, in a child process."""
    _started()


def _peer() -> Any:
    made = importlib.import_module("huey").RedisHuey("latency", url=os.environ["LATENCY_HUEY"], results=False)
    made.noop = made.task()(_started)
    return made


huey = _peer() if "LATENCY_HUEY" in os.environ else None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--jobs", type=int, default=600, help="jobs of each kind (600)")
    parser.add_argument("--server", choices=("redis", "valkey"), help="one of them alone (both)")
    parser.add_argument("--against", metavar="FOLDER", help="another checkout, measured in the same turns")
    asked = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    for name, binary in (("redis", "redis-server"), ("valkey", None)):
        if asked.server in (None, name) and (binary is None or shutil.which(binary)):
            with _server(binary) as (server, folder):
                row = _measure(server.url, folder, asked.jobs, asked.against)
            found[server.version or name] = row
            if not asked.json:
                print(_table(server.version or name, row), flush=True)
    if asked.json:
        print(json.dumps(found, indent=2))


@contextlib.contextmanager
def _server(binary: str | None) -> Iterator[tuple[EmbeddedServer, Path]]:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServer.start(Path(folder), binary=binary, persistent=False) as server,
    ):
        yield server, Path(folder)


def _measure(url: str, folder: Path, jobs: int, against: str | None) -> dict[str, float]:
    trees = {"": ROOT, **({"other_": Path(against)} if against else {})}
    taken: dict[str, list[list[int]]] = {}
    with contextlib.ExitStack() as ends:
        turns: dict[str, subprocess.Popen[str]] = {}
        for prefix, tree in trees.items():
            turns |= {
                prefix + kind: ends.enter_context(_sublet(url, folder, tree, prefix, kind))
                for kind in ("submit", "sync", "plain")
            }
        if not subprocess.run(
            [sys.executable, "-c", "import huey"], capture_output=True, check=False
        ).returncode:
            turns["huey"] = ends.enter_context(_huey(url, folder))
        for submitter in turns.values():
            _turn(submitter, WARM_UP, 0)
        for number in range(-(-jobs // BLOCK)):
            for kind, submitter in turns.items():
                taken.setdefault(kind, []).extend(_turn(submitter, BLOCK, number))
    row: dict[str, float] = {}
    for kind, pairs in taken.items():
        row |= _spread(f"{kind}_ms", [whole for whole, _ in pairs]) | _spread(
            f"{kind}_after_ms", [after for _, after in pairs]
        )
    return row | {"load": os.getloadavg()[0]}


@contextlib.contextmanager
def _sublet(url: str, folder: Path, tree: Path, prefix: str, kind: str) -> Iterator["subprocess.Popen[str]"]:
    env = {"SUBLET_REDIS_URL": url, "SUBLET_NAMESPACE": f"{prefix}{kind}"}
    queue = "child" if kind == "plain" else "loop"
    work = [
        "-m",
        "sublet",
        "work",
        "bench.latency:app",
        "--queues",
        queue,
        "--slots",
        "8" if kind == "plain" else "100",
    ]
    with _pair(env, folder, tree, kind, work) as (said, submitter):
        until = time.monotonic() + PATIENCE
        while "ready" not in said.read_text():
            assert time.monotonic() < until, said.read_text()
            time.sleep(0.05)
        yield submitter


@contextlib.contextmanager
def _huey(url: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    consumer = ["-m", "huey.bin.huey_consumer", "bench.latency.huey", "-w", "8", "-q"]
    with _pair({"LATENCY_HUEY": url}, folder, ROOT, "huey", consumer) as (_, submitter):
        yield submitter


@contextlib.contextmanager
def _pair(
    more: dict[str, str], folder: Path, tree: Path, kind: str, work: list[str]
) -> Iterator[tuple[Path, "subprocess.Popen[str]"]]:
    notes = str(folder / f"{kind}-{len(list(folder.iterdir()))}")
    env = {**os.environ, "PYTHONPATH": f"{tree}:{ROOT}", "LATENCY_NOTES": notes, **more}
    submit = [sys.executable, "-c", f"from bench.latency import submit_requested; submit_requested({kind!r})"]
    submitter = subprocess.Popen(
        submit, cwd=tree, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with Path(f"{notes}.said").open("w") as said:
        worker = subprocess.Popen([sys.executable, *work], cwd=tree, env=env, stdout=said, stderr=said)
    try:
        assert submitter.stdout, "it is a pipe"
        assert submitter.stdout.readline() == "ready\n"
        yield Path(said.name), submitter
    finally:
        submitter.communicate(timeout=PATIENCE)  # it ends when its input ends
        worker.terminate()
        try:
            worker.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def _turn(submitter: "subprocess.Popen[str]", jobs: int, seed: int) -> list[list[int]]:
    assert submitter.stdin, "it is a pipe"
    assert submitter.stdout, "it is a pipe"
    submitter.stdin.write(f"{jobs} {seed}\n")
    submitter.stdin.flush()
    taken: list[list[int]] = json.loads(submitter.stdout.readline())
    return taken


def submit_requested(kind: str) -> None:
    """The submitter's process: submit as many jobs as each input line requests; print each job's ns from the
    call of submit to its start, and from submit's return.
    """
    app.settings = Settings.read()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notes:
        notes.bind(os.environ["LATENCY_NOTES"])
        notes.settimeout(PATIENCE)
        submit = {"sync": noop.submit_sync, "huey": getattr(huey, "noop", None)}.get(kind)
        print("ready", flush=True)
        with asyncio.Runner() as runner:
            for line in sys.stdin:
                jobs, seed = map(int, line.split())
                chance = random.Random(seed)
                taken = []
                for _ in range(jobs):
                    time.sleep(chance.uniform(*PAUSES))
                    taken.append(
                        _one(notes, submit)
                        if submit
                        else runner.run(_one_awaited(notes, plain if kind == "plain" else noop))
                    )
                print(json.dumps(taken), flush=True)
            runner.run(app.aclose())


def _one(notes: socket.socket, submit: Any) -> tuple[int, int]:
    began = time.monotonic_ns()
    submit()
    returned = time.monotonic_ns()
    (started,) = CLOCK.unpack(notes.recv(CLOCK.size))
    return started - began, started - returned


async def _one_awaited(notes: socket.socket, task: Any) -> tuple[int, int]:
    began = time.monotonic_ns()
    await task.submit()
    returned = time.monotonic_ns()
    (started,) = CLOCK.unpack(notes.recv(CLOCK.size))  # blocks: nothing else runs on this loop
    return started - began, started - returned


def _spread(name: str, taken: list[int]) -> dict[str, float]:
    cuts = statistics.quantiles([ns / 1e6 for ns in taken], n=100, method="inclusive")
    return {
        f"{name}_p50": cuts[49],
        f"{name}_p90": cuts[89],
        f"{name}_p99": cuts[98],
        f"{name}_max": max(taken) / 1e6,
    }


def _table(version: str, row: dict[str, float]) -> str:
    lines = [
        f"{version} (load {row['load']:.1f})".ljust(34)
        + "".join(word.rjust(9) for word in ("p50", "p90", "p99", "max"))
    ]
    for name in dict.fromkeys(key.rpartition("_")[0] for key in row if key != "load"):
        shares = ("p50", "p90", "p99", "max")
        missed = [
            share for share in shares if row[f"{name}_{share}"] > TARGETS.get(f"{name}_{share}", float("inf"))
        ]
        lines.append(
            name.ljust(34)
            + "".join(f"{row[f'{name}_{share}']:.2f}".rjust(9) for share in shares)
            + "   missed" * bool(missed)
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
