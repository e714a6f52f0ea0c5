"""Measure the API as a function on AWS Lambda: its start, and each invocation.

AWS's client, `awslambdaric`, runs the handler; a fake of the Runtime API gives it events. `nothing` is an
empty handler. `import` is `import sublet_functions.aws` in a fresh Python; `cold`: from the start of a
process to its first answer. Figures are medians.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("jobs", "functions", "")]

from sublet import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from tests.support.lambda_runtime import Runtime, http_event, runtime

ROOT = Path(__file__).parent.parent
SECRET = "the-secret-of-the-bench"
HEADERS = {"authorization": f"Bearer {SECRET}", "content-type": "application/json"}
JOB = json.dumps({"task": "noop", "payload": {"text": "x" * 180}}).encode()
NOTHING = "def handler(event, context):\n    return {}\n"
IMPORT = """
import time
began, cpu = time.perf_counter(), time.process_time()
import sublet_functions.aws
print(time.perf_counter() - began, time.process_time() - cpu)
"""

Figures = dict[str, float]


class Context:
    """The context that Lambda passes with an invocation, as the handler uses it."""

    def get_remaining_time_in_millis(self) -> int:
        return 30_000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--rounds", type=int, default=5, help="starts, of which the median is shown (5)")
    parser.add_argument("--calls", type=int, default=500, help="invocations of each kind (500)")
    parser.add_argument("--server", choices=["redis", "valkey"], default="redis", help="which server (redis)")
    asked = parser.parse_args()
    binary = shutil.which("redis-server") if asked.server == "redis" else None
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "nothing.py").write_text(NOTHING)
        with EmbeddedServer.start(folder / "data", binary=binary, persistent=False) as server:
            settings = Settings(redis_url=server.url, namespace=f"bench-{uuid.uuid4().hex[:8]}")
            found = {"import": _imports(asked.rounds), "cold": _cold(settings, asked.rounds)}
            found |= _warm(settings, folder, asked.calls) | _in_process(settings, asked.calls)
            print(
                json.dumps({server.version: found}, indent=2) if asked.json else _table(server.version, found)
            )


def _imports(rounds: int) -> Figures:
    words = [sys.executable, "-c", IMPORT]
    times = []
    for _ in range(rounds + 1):  # the first one may compile
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
        times.append([float(word) * 1000 for word in done.stdout.split()])
    clock, cpu = zip(*times[1:], strict=True)
    return {"ms": statistics.median(clock), "cpu ms": statistics.median(cpu)}


def _cold(settings: Settings, rounds: int) -> Figures:
    started, first = [], []
    with runtime(settings, f"me:admin:{SECRET}") as invoke:
        for _ in range(rounds):
            _sure(invoke, http_event("POST", "/jobs", HEADERS, JOB))
            started.append(invoke.started_in * 1000)
            first.append(invoke.seconds * 1000)
            invoke.kill()
    return {"ms": statistics.median(started), "first answer": statistics.median(first)}


def _events(job: str) -> dict[str, dict[str, Any]]:
    return {
        "GET a job": http_event("GET", f"/jobs/{job}", HEADERS),
        "POST a job": http_event("POST", "/jobs", HEADERS, JOB),
        "a tick": {"sublet": "tick"},
    }


def _warm(settings: Settings, folder: Path, calls: int) -> dict[str, Figures]:
    found = {}
    with runtime(None, handler="nothing.handler", folder=folder) as invoke:
        found["nothing"] = _clocked(lambda: _seconds(invoke, {}), calls)
    with runtime(settings, f"me:admin:{SECRET}") as invoke:
        job = json.loads(_sure(invoke, http_event("POST", "/jobs", HEADERS, JOB))["body"])["id"]
        for name, event in _events(job).items():
            found[name] = _clocked(partial(_seconds, invoke, event), calls)
    return found


def _in_process(settings: Settings, calls: int) -> dict[str, Figures]:
    os.environ |= {"SUBLET_REDIS_URL": settings.redis_url, "SUBLET_NAMESPACE": settings.namespace}
    os.environ |= {"SUBLET_TOKENS": f"me:admin:{SECRET}", "AWS_REGION": "eu-central-1"}
    from sublet_functions.aws import handler

    def seconds(event: dict[str, Any]) -> float:
        began = time.perf_counter()
        handler(event, Context())
        return time.perf_counter() - began

    job = json.loads(handler(http_event("POST", "/jobs", HEADERS, JOB), Context())["body"])["id"]
    return {
        f"{name}, in process": _clocked(partial(seconds, event), calls)
        for name, event in _events(job).items()
    }


def _sure(invoke: Runtime, event: dict[str, Any]) -> Any:
    result, error = invoke(event)
    if error:
        sys.exit(f"the measured invocation failed: {error['errorMessage']}")
    return result


def _seconds(invoke: Runtime, event: dict[str, Any]) -> float:
    _sure(invoke, event)
    return invoke.seconds


def _clocked(once: Callable[[], float], calls: int) -> Figures:
    times = sorted(once() * 1000 for _ in range(calls))
    return {"ms": statistics.median(times), "p99": times[int(len(times) * 0.99)]}


def _table(version: str, found: dict[str, Figures]) -> str:
    lines = [version.ljust(30) + "ms".rjust(10)]
    for name, figures in found.items():
        rest = ", ".join(f"{what} {figure:.2f}" for what, figure in figures.items() if what != "ms")
        lines.append(name.ljust(30) + f"{figures['ms']:.2f}".rjust(10) + f"   {rest}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
