"""Plain tasks with steps, which run in child processes."""

import os
import threading
import time

from sublet import App, Context
from sublet.connection.settings import Settings

app = App(settings=Settings())


def charge(number: int, size: int) -> list[object]:
    """The pid tells whether it was called again."""
    return [number, os.getpid(), "x" * size]


@app.task(max_attempts=2, backoff=0.0)
def order(ctx: Context, number: int, size: int = 0) -> list[object]:
    """Charges, dies once, sleeps, and waits for an approval."""
    paid = ctx.step("charge", charge, number, size)
    if ctx.attempt == 1:
        os._exit(3)
    ctx.sleep("cool-off", 0.01)
    approval = ctx.wait_for("approval")
    return [paid[0], paid[1] != os.getpid(), len(str(paid[2])), approval, ctx.tries_left]


@app.task
def many(ctx: Context) -> int:
    """Keeps 15 large steps, then reads them all in the next attempt."""
    found = [ctx.step(f"part-{i}", str, "x" * 60_000) for i in range(15)]
    ctx.sleep("nap", 0.01)
    return sum(map(len, found))


@app.task(max_attempts=1)
def full(ctx: Context) -> str:
    """The error of the script reaches the task."""
    for i in range(18):
        ctx.step(f"part-{i}", str, "x" * 65_000)
    return "no limit"


@app.task
def tells(ctx: Context, count: int) -> None:
    """Emits chunks."""
    for i in range(count):
        ctx.emit(i)


@app.task
def threads(ctx: Context) -> list[int]:
    """Steps from several threads at once."""
    found: dict[int, int] = {}

    def keep(i: int) -> None:
        found[i] = ctx.step(f"part-{i}", int, i)

    own = [threading.Thread(target=keep, args=(i,)) for i in range(8)]
    for thread in own:
        thread.start()
    for thread in own:
        thread.join()
    return [found[i] for i in range(8)]


LATE: list[str] = []


@app.task
def outlived(ctx: Context) -> str:
    """Leaves a thread that asks for a step when the job has ended."""

    def late() -> None:
        time.sleep(0.2)
        try:
            ctx.step("late", str, "late")
        except Exception as error:  # noqa: BLE001  # the test compares its kind
            LATE.append(f"{type(error).__name__}: {error}")

    threading.Thread(target=late).start()
    return "ended"


@app.task
def seen_late(ctx: Context) -> list[str]:
    """In the same child: how the thread ended; its own step works."""
    until = time.monotonic() + 20
    while not LATE and time.monotonic() < until:
        time.sleep(0.01)
    return [*LATE, ctx.step("own", str, "own")]
