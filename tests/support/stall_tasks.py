"""Tasks that report no progress, or report it in time."""

import asyncio
import time

from sublet import App, Context

app = App()
STALL = {"stall": 1, "max_attempts": 2, "backoff": 0.01, "timeout": 60}
PATIENT = {**STALL, "stall": 3}


@app.task(**STALL)
async def silent(ctx: Context) -> int:
    """Report nothing in the first attempt."""
    while ctx.attempt == 1:
        await asyncio.sleep(0.01)
    return ctx.attempt


@app.task(**STALL)
def plain_silent(ctx: Context) -> int:
    """As `silent`."""
    while ctx.attempt == 1:
        time.sleep(0.01)
    return ctx.attempt


@app.task(run="thread", **STALL)
def thread_silent(ctx: Context) -> int:
    """As `silent`, but it ends."""
    while ctx.attempt == 1 and not ctx.cancelled:
        time.sleep(0.01)
    return ctx.attempt


@app.task(**PATIENT)
async def reports(ctx: Context, checkpoints: bool = False) -> int:
    """Report for longer than the limit."""
    for i in range(9):
        await asyncio.sleep(0.5)
        if checkpoints:
            ctx.checkpoint({"row": i})
        else:
            ctx.progress(i / 9)
    return ctx.attempt


@app.task(**PATIENT)
def plain_reports(ctx: Context) -> int:
    """As `reports`."""
    for i in range(9):
        time.sleep(0.5)
        ctx.progress(i / 9)
    return ctx.attempt


@app.task(**STALL)
async def logs(ctx: Context) -> int:
    """Write log lines in the first attempt: they are no progress."""
    while ctx.attempt == 1:
        ctx.log("here")
        await asyncio.sleep(0.05)
    return ctx.attempt


@app.task(timeout=60)
async def naps(seconds: float) -> None:
    """Sleep."""
    await asyncio.sleep(seconds)


@app.task(**PATIENT)
async def waits(ctx: Context, seconds: float) -> int:
    """Wait for another job."""
    await (await naps.submit(seconds)).result(60)
    return ctx.attempt
