"""The app of the suite's workers."""

import asyncio
import os
import secrets
from functools import cache
from pathlib import Path

from sublet.app import App
from sublet.context import Context
from sublet.options import Backoff
from tests.faults.chaos.ledger import EntryWriter

QUEUES = ("chaos-0", "chaos-1", "chaos-2", "chaos-3")
"""Several queues, for several partitions."""

OVER = "CHAOS_OVER"
"""The variable that names a file. While it exists, jobs of tenants end at once."""

SEEN = "CHAOS_SEEN"
"""The variable that names the folder in which tasks record the steps that they see."""

app = App()


@app.task(queue=QUEUES[0], timeout=60, max_attempts=50, backoff=Backoff(first=0.2, cap=1))
async def sleep_task(ctx: Context, seconds: float = 0.0, fails: bool = False) -> int:
    """Sleep and return the attempt. If `fails`, the first attempt fails."""
    await asyncio.sleep(seconds)
    if fails and ctx.attempt == 1:
        raise RuntimeError("the first attempt fails")
    return ctx.attempt


@app.task(
    queue=QUEUES[0],
    group=lambda tenant: tenant,
    timeout=60,
    max_attempts=50,
    backoff=Backoff(first=0.2, cap=1),
)
async def tenant_task(ctx: Context, tenant: str, seconds: float) -> int:
    """A tenant's job: sleep and return the attempt."""
    await asyncio.sleep(0 if _is_over() else seconds)
    return ctx.attempt


@app.task(queue=QUEUES[0], timeout=60, max_attempts=50, backoff=Backoff(first=0.2, cap=1))
async def callback_task(ctx: Context, waits: bool) -> int:
    """A job with steps: each charge is recorded, also after a sleep and, if it `waits`, after a signal."""
    for sleeps in (True, False):
        charge = await ctx.step("charge" if sleeps else "charge-again", _charge)
        _recorder().write("charged", ctx.id, f"{sleeps} {charge}", ctx.attempt)
        if sleeps:
            await ctx.sleep("rest", 0.2)
    if waits:
        await ctx.wait_for("go")
    return ctx.attempt


async def _charge() -> str:
    return secrets.token_hex(8)


@cache
def _recorder() -> EntryWriter:
    return EntryWriter(Path(os.environ[SEEN]) / f"steps-{os.getpid()}.jsonl")


def _is_over() -> bool:
    return os.path.exists(os.environ.get(OVER, ""))
