"""Our own worker as the client under examination: `conforming_worker.py submit TASK JSON`,
`conforming_worker.py work`."""

import asyncio
import json
import os
import signal
import sys
from typing import Any

from sublet import App
from sublet.options import Options
from sublet.worker.worker import Worker, WorkerConfig

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


if __name__ == "__main__":
    asyncio.run(submit(*sys.argv[2:]) if sys.argv[1] == "submit" else work())
