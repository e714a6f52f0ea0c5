"""Tasks with groups: each says when it ran, and that it cost 100 tokens."""

import asyncio
import time

from sublet import App, Context

app = App()
OWN = {"queue": "llm", "group": lambda tenant: tenant, "cost": 7}


@app.task(**OWN)
async def on_loop(ctx: Context, i: int, tenant: str) -> tuple[float, float]:
    """On the event loop."""
    began = time.time()
    await asyncio.sleep(0.05)
    ctx.spent(100)
    return began, time.time()


@app.task(run="thread", **OWN)
def in_thread(ctx: Context, i: int, tenant: str) -> tuple[float, float]:
    """In a thread."""
    began = time.time()
    time.sleep(0.05)
    ctx.spent(100)
    return began, time.time()


@app.task(**OWN)
def in_process(ctx: Context, i: int, tenant: str) -> tuple[float, float]:
    """In a child process."""
    began = time.time()
    time.sleep(0.05)
    ctx.spent(100)
    return began, time.time()
