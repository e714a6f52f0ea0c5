"""Tasks for the tests, in a module that a child process can import."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable

from sublet import App, Context, Discard, Snooze

app = App()
RUNNING: dict[str, int] = {"now": 0, "most": 0}
"""How many `crowd` tasks run in this process, and the most that ever did."""


@app.task
async def add(a: int, b: int = 1) -> int:
    return a + b


@app.task
async def crowd(seconds: float = 0.0) -> None:
    RUNNING["now"] += 1
    RUNNING["most"] = max(RUNNING.values())
    try:
        await asyncio.sleep(seconds)
    finally:
        RUNNING["now"] -= 1


@app.task(timeout=0.1, max_attempts=1)
async def too_long() -> None:
    await asyncio.Event().wait()


@app.task(backoff=0.01, max_attempts=2)
async def raises(words: str) -> None:
    raise ValueError(words)


@app.task
async def asks(ctx: Context) -> tuple[str, int, bool, str | None]:
    ctx.progress(0.5, stage="half", message="on the way")
    await asyncio.sleep(0)
    return ctx.id, ctx.attempt, ctx.fence > 1_000_000, ctx.recovered


@app.task
async def waits_until_cancelled(ctx: Context) -> str:
    ctx.progress(0.25)
    try:
        await asyncio.Event().wait()
    finally:
        RUNNING["cancelled"] = ctx.cancelled
    return "never"


@app.task
async def snoozes(ctx: Context) -> int:
    if ctx.attempt < 3:
        raise Snooze(0.01, "not yet")
    return ctx.attempt


@app.task
async def discards() -> None:
    raise Discard("of no use")


@app.task
async def returns_words() -> int:
    return "words"  # type: ignore[return-value]  # on purpose: a result of another type than declared


@app.task
def plain(a: int) -> dict[str, int]:
    print("a task may print")
    return {"a": a, "pid": os.getpid()}


@app.task
def plain_asks(ctx: Context) -> tuple[str, int, bool, str | None]:
    ctx.progress(0.5, stage="half")
    return ctx.id, ctx.attempt, ctx.fence > 1_000_000, ctx.recovered


@app.task(timeout=0.2, max_attempts=1)
def plain_stuck(pid_file: str) -> None:
    with open(pid_file, "w") as file:
        file.write(str(os.getpid()))
    while True:
        pass


@app.task(backoff=0.01)
def plain_dies(ctx: Context, how: str) -> int:
    if ctx.attempt > 1:
        return ctx.attempt
    if how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@app.task(max_attempts=1)
def plain_raises() -> None:
    raise KeyError("no such thing")


@app.task(run="thread")
def threaded() -> tuple[int, str]:
    return os.getpid(), threading.current_thread().name


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even its words")


@app.task(max_attempts=1)
async def unspeakable() -> None:
    raise Unspeakable


@app.task(max_attempts=1)
def plain_unspeakable() -> None:
    raise Unspeakable


@app.task(max_attempts=1)
async def exits(how: str) -> None:
    raise SystemExit(4) if how == "exit" else KeyboardInterrupt


@app.task(max_attempts=1)
def plain_asks_a_person() -> str:
    return input("sure? ")


@app.task
def holds(seconds: float) -> int:
    """Occupy a CPU: heartbeats must survive it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return os.getpid()


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for a condition, polling; fails when it does not become true in time."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not true after {seconds} s: {condition}"
        time.sleep(0.005)
