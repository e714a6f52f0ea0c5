"""The shared part of all contestants' programs, which call `main`: work, tally, command line. Needs only the
standard library."""

import asyncio
import importlib.metadata
import inspect
import json
import os
import platform
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

URL = os.environ.get("BENCH_URL", "redis://127.0.0.1:6379/0")
SLOTS = int(os.environ.get("BENCH_SLOTS", "100"))
PAYLOAD = 200
"""Bytes of a job's arguments as JSON: `{"n": 7, "text": "xxx…"}`."""
ENTRY = struct.Struct("<qq")
POLL, PAUSE = 0.001, 0.005
"""Seconds between two checks for a start, and from a start to the next submit. Shorter timers would occupy
a core.
"""
PATIENCE = float(os.environ.get("BENCH_PATIENCE", "60"))
"""Maximum seconds of `latency`: jobs not sent by then are left out."""

_TEXT = "x" * PAYLOAD
_ROOM = PAYLOAD - len('{"n": , "text": ""}')
_files: dict[str, int] = {}


def text(n: int) -> str:
    return _TEXT[: _ROOM - len(str(n))]


def tally(n: int) -> None:
    """Note the start of job `n`: the first line of every handler."""
    _note("BENCH_TALLY", n)


def finished(n: int) -> None:
    """Note the end of job `n`: the last line of the slow handler."""
    _note("BENCH_FINISHED", n)


def _note(variable: str, n: int) -> None:
    file = _files.get(variable)
    if file is None:
        file = _files[variable] = os.open(os.environ[variable], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, ENTRY.pack(n, time.monotonic_ns()))


def main(
    submit_one: Callable[[int], Any],
    submit_bulk: Callable[[Sequence[int]], Any],
    worker: Callable[[], Any],
    submit_slow: Callable[[int], Any],
    *,
    packages: Sequence[str],
    settings: str,
    ready: Callable[[], Any] | None = None,
    close: Callable[[], Any] | None = None,
) -> None:
    """Run the command line. All callables are plain, or all are async, on uvloop if it is installed."""
    command, *rest = sys.argv[1:]
    if command == "versions":
        commit = _commit() if "sublet" in packages else {}
        print(
            json.dumps(
                {"python": platform.python_version(), **{name: _version(name) for name in packages}, **commit}
            )
        )
    elif command == "settings":
        print(settings)
    elif command == "work":
        _call(worker)
    elif command == "latency":
        print(json.dumps({"sent": _call(_latency, submit_one, _numbers(rest), ready, close)}))
    else:
        kind, *rest = rest
        submit = {"one": submit_one, "bulk": submit_bulk, "slow": submit_slow}[kind]
        print(json.dumps({"seconds": _call(_submit, submit, _numbers(rest), kind == "bulk", ready, close)}))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "is not installed"


def _commit() -> dict[str, str]:
    command = ["git", "-C", os.path.dirname(os.path.abspath(__file__)), "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": done.stdout.strip()}


def _numbers(rest: Sequence[str]) -> range:
    begin = int(rest[1]) if len(rest) > 1 else 0
    return range(begin, begin + int(rest[0]))


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    if not any(inspect.iscoroutinefunction(each) for each in (function, *arguments)):
        return function(*arguments)
    if not inspect.iscoroutinefunction(function):
        function = _submit_async if function is _submit else _latency_async
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(function(*arguments))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    made: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return made


def _submit(submit: Callable[..., Any], numbers: range, bulk: bool, ready: Any, close: Any) -> float:
    if ready:
        ready()
    began = time.perf_counter()
    if bulk:
        submit(numbers)
    else:
        for n in numbers:
            submit(n)
    seconds = time.perf_counter() - began
    if close:
        close()
    return seconds


async def _submit_async(
    submit: Callable[..., Any], numbers: range, bulk: bool, ready: Any, close: Any
) -> float:
    if ready:
        await ready()
    began = time.perf_counter()
    if bulk:
        await submit(numbers)
    else:
        for n in numbers:
            await submit(n)
    seconds = time.perf_counter() - began
    if close:
        await close()
    return seconds


def _latency(submit: Callable[[int], Any], numbers: range, ready: Any, close: Any) -> list[int]:
    if ready:
        ready()
    sent: list[int] = []
    until = time.monotonic() + PATIENCE
    for n in numbers:
        before = _started()
        sent.append(time.monotonic_ns())
        submit(n)
        while _started() == before and time.monotonic() < until:
            time.sleep(POLL)
        if time.monotonic() >= until:
            break
        time.sleep(PAUSE)
    if close:
        close()
    return sent


async def _latency_async(submit: Callable[[int], Any], numbers: range, ready: Any, close: Any) -> list[int]:
    if ready:
        await ready()
    sent: list[int] = []
    until = time.monotonic() + PATIENCE
    for n in numbers:
        before = _started()
        sent.append(time.monotonic_ns())
        await submit(n)
        while _started() == before and time.monotonic() < until:  # noqa: ASYNC110  another process says so, by a file
            await asyncio.sleep(POLL)
        if time.monotonic() >= until:
            break
        await asyncio.sleep(PAUSE)
    if close:
        await close()
    return sent


def _started() -> int:
    try:
        return os.stat(os.environ["BENCH_TALLY"]).st_size
    except FileNotFoundError:
        return 0
