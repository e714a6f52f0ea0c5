"""The app that the workers of the chaos suite run."""

import asyncio

from sublet.app import App
from sublet.context import Context
from sublet.options import Backoff

QUEUES = ("chaos-0", "chaos-1", "chaos-2", "chaos-3")
"""Four, so that they lie in several partitions where there are any."""

app = App()


@app.task(queue=QUEUES[0], timeout=60, max_attempts=50, backoff=Backoff(first=0.2, cap=1))
async def sleep_task(ctx: Context, seconds: float = 0.0, fails: bool = False) -> int:
    """Take so long, and answer which attempt it was; the first one of a job that `fails` has no answer."""
    await asyncio.sleep(seconds)
    if fails and ctx.attempt == 1:
        raise RuntimeError("the first attempt fails")
    return ctx.attempt
