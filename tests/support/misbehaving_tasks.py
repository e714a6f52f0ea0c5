"""Tasks that misbehave, run by the real workers of `tests/support/worker_processes.py`.

Each writes its steps to a ledger, so that a test sees what ran where and how often. Most misbehave in their
first attempt alone, so that the second one shows that the job completes.
"""

import asyncio
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from sublet import App, Context

LEDGER = "DYING_LEDGER"
"""The environment variable that names the ledger. It has a line per note: `id attempt word pid`."""
LONG = 60.0
"""Seconds after which a waiting task gives up: no test waits that long."""

app = App()


def note(ctx: Context, word: str, pid: int | None = None) -> None:
    with open(
        os.environ[LEDGER], "a"
    ) as ledger:  # one short write to a file opened for appending: lines do not mix
        ledger.write(f"{ctx.id} {ctx.attempt} {word} {pid or os.getpid()}\n")


def is_there(path: str) -> bool:
    return Path(path).exists()


def until_there(path: str) -> None:
    """Block until a file exists."""
    until = time.monotonic() + LONG
    while not is_there(path) and time.monotonic() < until:
        time.sleep(0.01)


@app.task(timeout=300)
async def quick(ctx: Context) -> int:
    note(ctx, "done")
    return ctx.attempt


@app.task(timeout=300)
async def emits_until(ctx: Context, until: str) -> int:
    """Emits its attempt and a count until a file exists."""
    count = 0
    while not is_there(until) and ctx.seconds < LONG:
        await ctx.emit([ctx.attempt, count])
        count += 1
        await asyncio.sleep(0.02)
    return count


@app.task(timeout=300)
def plain_quick(ctx: Context) -> int:
    note(ctx, "done")
    return ctx.attempt


@app.task(timeout=300)
async def rests(ctx: Context, until: str = "", always: bool = False) -> int:
    """In the first attempt wait for a file, or for ever; later attempts return at once, unless `always`."""
    note(ctx, "began")
    try:
        seconds = 0.0
        while (ctx.attempt == 1 or always) and not (until and is_there(until)) and seconds < LONG:
            await asyncio.sleep(0.01)
            seconds += 0.01
    except asyncio.CancelledError:
        note(ctx, "told")
        raise
    note(ctx, "done")
    return ctx.attempt


@app.task(timeout=300)
def plain_rests(ctx: Context, until: str = "", always: bool = False) -> int:
    """The same in a child process."""
    note(ctx, "began")
    if ctx.attempt == 1 or always:
        until_there(until or "/nowhere")
    note(ctx, "done")
    return ctx.attempt


@app.task(timeout=300, max_attempts=20, backoff=0.01)
async def naps(ctx: Context, seconds: float) -> None:
    """Work for a while."""
    note(ctx, "began")
    await asyncio.sleep(seconds)
    note(ctx, "done")


@app.task(timeout=300, max_attempts=20, backoff=0.01)
def plain_naps(ctx: Context, seconds: float) -> None:
    """The same in a child process."""
    note(ctx, "began")
    time.sleep(seconds)
    note(ctx, "done")


@app.task(timeout=300, backoff=0.01)
def dies(ctx: Context, how: str) -> int:
    note(ctx, "began")
    if ctx.attempt > 1:
        return ctx.attempt
    if how == "exit":
        os._exit(3)
    if how == "segfault":
        ctypes.string_at(0)
    os.kill(os.getpid(), signal.Signals[how])
    return 0


@app.task(timeout=300, backoff=0.01)
def dies_beside_a_fork(ctx: Context) -> int:
    """Fork a process that holds every pipe of its parent and lives on."""
    note(ctx, "began")
    if ctx.attempt == 1:
        fork = os.fork()
        if not fork:
            time.sleep(2 * LONG)
        note(ctx, "grandchild", fork)
        os.kill(os.getpid(), signal.SIGKILL)
    return ctx.attempt


@app.task(timeout=300, backoff=0.01)
def closes_everything(ctx: Context) -> int:
    """Become a daemon; it cannot report anything after that."""
    note(ctx, "began")
    if ctx.attempt == 1:
        os.closerange(3, 256)
        time.sleep(LONG)
    return ctx.attempt


@app.task(timeout=300, max_attempts=1)
def eats(ctx: Context, mebibytes: int) -> int:
    """Allocate memory and write to all of it."""
    note(ctx, "began")
    return len([bytearray(b"x" * 2**20) for _ in range(mebibytes)])


@app.task(timeout=0.5, max_attempts=1)
def loops(ctx: Context) -> None:
    note(ctx, "began")
    while True:
        pass


@app.task(timeout=0.5, max_attempts=1)
def deadlocks(ctx: Context) -> None:
    """Deadlock: two threads take two locks, each in its own order."""
    one, other, both = threading.Lock(), threading.Lock(), threading.Barrier(2)

    def take(first: threading.Lock, second: threading.Lock) -> None:
        with first:
            both.wait()
            with second:
                note(ctx, "never")

    threading.Thread(target=take, args=(one, other)).start()
    note(ctx, "began")
    take(other, one)


@app.task(timeout=0.5, max_attempts=1, run="thread")
def stuck_in_a_thread(ctx: Context) -> None:
    note(ctx, "began")
    threading.Event().wait()


@app.task(timeout=300, run="thread")
def in_a_thread(ctx: Context) -> None:
    note(ctx, "done")


@app.task(timeout=0.5)
async def swallows(ctx: Context) -> int:
    """Ignore cancellation in the first attempt."""
    note(ctx, "began")
    while ctx.attempt == 1:
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            note(ctx, "swallowed")
    note(ctx, "done")
    return ctx.attempt


@app.task(timeout=300)
async def blocks(ctx: Context, until: str, then: str = "await") -> int:
    """In the first attempt hold the event loop until a file exists; then return, or await."""
    note(ctx, "began")
    if ctx.attempt == 1:
        until_there(until)
        try:
            await asyncio.sleep(LONG if then == "await" else 0)
        except asyncio.CancelledError:
            note(ctx, f"told-{ctx.cancelled}")
            raise
    note(ctx, "done")
    return ctx.attempt


@app.task(timeout=300)
def hogs(ctx: Context, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    note(ctx, "done")


@app.task(timeout=None)
async def hangs(ctx: Context) -> None:
    note(ctx, "began")
    await asyncio.Event().wait()


@app.task(timeout=None)
def plain_hangs(ctx: Context) -> None:
    note(ctx, "began")
    threading.Event().wait()


@app.task(timeout=300)
async def ends_its_worker(ctx: Context, until: str) -> None:
    """End the whole worker process when a file exists."""
    note(ctx, "began")
    while not is_there(until):
        await asyncio.sleep(0.01)
    os._exit(7)


@app.task(timeout=300)
def holds_the_interpreter(ctx: Context) -> int:
    """Compute in C and never let another thread run."""
    note(ctx, "began")
    return sum(range(10**11)) if ctx.attempt == 1 else 0


@app.task(timeout=300, max_attempts=1)
def has_a_child_of_its_own(ctx: Context, then: str = "") -> None:
    """Start a program, as tasks that convert videos do, and wait for it; or hold the interpreter."""
    program = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({2 * LONG})"])
    note(ctx, "grandchild", program.pid)
    note(ctx, "began")
    if then == "hold":
        sum(range(10**11))
    program.wait()


@app.task(timeout=300, max_attempts=1)
def ends_its_own_child(ctx: Context, how: str) -> int | None:
    """Start a program, or a fork, send it SIGTERM, and record how it ended."""
    if how == "fork":
        fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(2 * LONG,))
        fork.start()
        fork.terminate()
        fork.join(LONG)
        return fork.exitcode
    words = [sys.executable, "-c", f"print(flush=True); import time; time.sleep({2 * LONG})"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as program:
        assert program.stdout
        program.stdout.readline()
        program.terminate()
        return program.wait()


@app.task(timeout=300, max_attempts=1)
def has_a_pool(ctx: Context) -> list[int]:
    """Share the work among processes, as tasks that compute much do."""
    with multiprocessing.get_context("fork").Pool(2) as pool:
        return pool.map(abs, [-1, -2, -3])
