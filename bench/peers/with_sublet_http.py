"""Sublet over HTTP: one `sublet serve`; `sublet work --source` and submits go through it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from with_sublet import CHUNK, SETTINGS, noop, slow
from work import SLOTS, URL, main, text

from sublet.store.http import HttpSource

_source: list[HttpSource] = []
_served: list["subprocess.Popen[str]"] = []


def serve() -> str:
    """Start the API on a free port; return its URL when it answers."""
    command = [sys.executable, "-m", "sublet", "serve", "--port", "0", "--json"]
    process = subprocess.Popen(
        command, env={**os.environ, "SUBLET_REDIS_URL": URL}, stdout=subprocess.PIPE, text=True
    )
    _served.append(process)
    assert process.stdout, "it is a pipe"
    url: str = json.loads(process.stdout.readline())["url"]
    return url


async def ready() -> None:
    _source.append(HttpSource(serve()))
    await _source[0].workers()


async def close() -> None:
    await _source[0].aclose()
    end_api()


def end_api() -> None:
    for process in _served:
        process.terminate()
        process.communicate(timeout=10)


async def submit_one(n: int) -> None:
    await _source[0].submit([noop.job(n, text(n))])


async def submit_bulk(numbers: Sequence[int]) -> None:
    for start in range(0, len(numbers), CHUNK):
        await _source[0].submit([noop.job(n, text(n)) for n in numbers[start : start + CHUNK]])


async def submit_slow(n: int) -> None:
    await _source[0].submit([slow.job(n)])


def work() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "SUBLET_SOURCE": serve()}
    command = [sys.executable, "-m", "sublet", "work", "with_sublet:app", "--slots", str(SLOTS), "--quiet"]
    worker = subprocess.Popen(command, env=env)
    signal.signal(signal.SIGTERM, lambda *_: worker.terminate())
    try:
        worker.wait()
    finally:
        end_api()


if __name__ == "__main__":
    main(
        submit_one,
        submit_bulk,
        work,
        submit_slow,
        packages=["sublet", "aiohttp", "redis", "hiredis", "uvloop"],
        settings=f"`sublet serve`, one process for who submits and one for the worker; {SETTINGS}",
        ready=ready,
        close=close,
    )
