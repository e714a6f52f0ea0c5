"""Our own worker as the client under examination: `conforming_worker.py submit TASK JSON`,
`conforming_worker.py work`, `conforming_worker.py wait ID`."""

import asyncio
import json
import os
import secrets
import signal
import sys
from typing import Any

from sublet import App, Context
from sublet.options import Options
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker

app = App()


@app.task
async def echo(value: Any = None) -> Any:
    return {"value": value}


@app.task
async def sleep(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.task
async def boom(message: str) -> None:
    raise ValueError(message)


@app.task
async def count(ctx: Context) -> int:
    n = (ctx.restored or {"n": 0})["n"] + 1
    ctx.checkpoint({"n": n})
    if n < 3:
        await asyncio.sleep(0.7)  # a checkpoint is sent within half a second
        raise ValueError("not yet")
    return int(n)


@app.task
async def errand(ctx: Context, seconds: float) -> list[Any]:
    drawn = await ctx.step("draw", secrets.token_hex, 8)
    await ctx.sleep("pause", seconds)
    return [drawn, await ctx.wait_for("go")]


QUEUES = os.environ.get("SUBLET_QUEUES", "default").split(",")


async def submit(task: str, payload: str) -> None:
    handle = await app.client.submit(task, json.loads(payload), Options(queue=QUEUES[0]))
    print(handle.id)
    await app.aclose()


async def work() -> None:
    lease, slots = float(os.environ.get("SUBLET_LEASE", "30")), int(os.environ.get("SUBLET_SLOTS", "10"))
    worker = Worker(app, app.client.store, WorkerConfig(queues=QUEUES, strict=True, lease=lease, slots=slots))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, worker.stop)
    await worker.run()
    await app.aclose()


async def wait(job_id: str) -> None:
    try:
        print(json.dumps(await app.client.result(job_id, timeout=60)))
    finally:
        await app.aclose()


if __name__ == "__main__":
    asyncio.run({"submit": submit, "work": work, "wait": wait}[sys.argv[1]](*sys.argv[2:]))
