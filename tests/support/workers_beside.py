"""A worker that runs beside a test, in its event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from sublet.app import App
from sublet.client.handle import Handle
from sublet.errors import JobCancelled, JobFailed
from sublet.model import Job
from sublet.store.source import JobSource
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker


@contextlib.asynccontextmanager
async def beside(app: App, source: JobSource, **config: Any) -> AsyncIterator[Worker]:
    """Run a worker until the block's end; then it stops without a grace."""
    worker = Worker(app, source, WorkerConfig(**{"slots": 1, "grace": 0.0, **config}))
    async with running(worker):
        yield worker


@contextlib.asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    """Run this worker until the block's end."""
    run = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await run


async def ended(app: App, source: JobSource, *handles: Handle[Any]) -> list[Job]:
    """Have a worker of two slots run some handles' jobs to their end, and return them as they are then."""
    async with beside(app, source, slots=2):
        for handle in handles:
            with contextlib.suppress(JobFailed, JobCancelled):
                await handle.result(30)
    return [await handle.get() for handle in handles]
