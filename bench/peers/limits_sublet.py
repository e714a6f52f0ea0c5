"""Sublet under limits: tasks on the event loop of `sublet work`; the queue has the limits of BENCH_LOAD."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from work import SLOTS, URL, finished, main, tally, text

sys.path.append(str(Path(__file__).parents[1]))

from flow.loads import Load

from sublet import App, Settings

QUEUE = "default"
CHUNK, PAGE = 10_000, 200
SETTINGS = (
    f"--slots {SLOTS}; uvloop; limits by `configure`, defaults otherwise; bulk = submit_all of {CHUNK:,}"
)
LOAD = Load.given()
app = App(settings=Settings(redis_url=URL))


@app.task(queue=QUEUE)
async def note(n: int, text: str) -> int:
    """Note start and end, and take the time of the load."""
    tally(n)
    await asyncio.sleep(LOAD.ms / 1000)
    if LOAD.ms:
        finished(n)
    return n


async def ready() -> None:
    limits: dict[str, float] = {"concurrency": LOAD.concurrency} if LOAD.concurrency else {}
    if LOAD.rate:
        limits |= {"rate": LOAD.rate, "per": LOAD.per_ms / 1000}
        limits |= {"burst": LOAD.burst} if LOAD.burst else {}
    await app.client.queues()
    if limits:
        await app.client.configure(QUEUE, **limits)


async def submit_one(n: int) -> None:
    await submit_bulk([n])


async def submit_bulk(numbers: Sequence[int]) -> None:
    """Submit thousands at a time, each job with its group if the load has groups."""
    of = [note.options(group=f"tenant-{i}") for i in range(LOAD.tenants)] if LOAD.grouped else []
    for start in range(0, len(numbers), CHUNK):
        part = numbers[start : start + CHUNK]
        tasks = [of[LOAD.tenant(n)] if of else note for n in part]
        await app.client.submit_all([task.job(n, text(n)) for task, n in zip(tasks, part, strict=True)])


async def claims() -> list[float]:
    """Return when the completed jobs were claimed, in ms of Redis's clock."""
    found, cursor = [], None
    while True:
        page = await app.client.list_jobs(state="completed", limit=PAGE, cursor=cursor)
        for job in page.jobs:
            found += [1000 * each.claimed_at.timestamp() for each in (await app.client.get(job.id)).attempts]
        cursor = page.cursor
        if cursor is None:
            await app.aclose()
            return found


def work() -> None:
    os.environ |= {"PYTHONPATH": os.pathsep.join(sys.path), "SUBLET_REDIS_URL": URL}
    command = ["-m", "sublet", "work", "limits_sublet:app", "--slots", str(SLOTS), "--quiet"]
    os.execv(sys.executable, [sys.executable, *command])


if __name__ == "__main__":
    if sys.argv[1:] == ["claims"]:
        print(json.dumps({"claimed": asyncio.run(claims())}))
        sys.exit()
    main(
        submit_one,
        submit_bulk,
        work,
        submit_one,
        packages=["sublet", "redis", "hiredis", "pydantic", "uvloop"],
        settings=SETTINGS,
        ready=ready,
        close=app.aclose,
    )
