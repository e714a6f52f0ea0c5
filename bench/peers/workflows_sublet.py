"""Sublet with workflows: tasks on the event loop of `sublet work`."""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from work import SLOTS, URL, finished, main, tally

sys.path.append(str(Path(__file__).parents[1]))

from graphs.loads import Load

from sublet import App, Context, Settings

AT_ONCE = 4
SETTINGS = f"--slots {SLOTS}; uvloop; defaults otherwise; `app.workflow()`, {AT_ONCE} at a time; the callback reads `ctx.upstream`"
LOAD = Load.given()
app = App(settings=Settings(redis_url=URL))


@app.task
async def step(n: int) -> int:
    tally(n)
    await asyncio.sleep(0)
    finished(n)
    return n


@app.task(timeout=600)
async def callback(ctx: Context, n: int, numbers: int) -> int:
    """Note the start, read and check all results, and note the end."""
    tally(n)
    count = total = 0
    async for one in ctx.upstream:
        count, total = count + 1, total + one.value
    if (count, total) != (numbers, sum(range(n - numbers, n))):
        raise ValueError(f"{count} results with the sum {total}")
    finished(n)
    return total


async def submit_bulk(numbers: Sequence[int]) -> None:
    workflows = iter(range(LOAD.workflows))

    async def submit() -> None:
        for workflow in workflows:
            await _store(workflow)
            if LOAD.paced:
                await asyncio.to_thread(LOAD.await_end, workflow)

    await asyncio.gather(*(submit() for _ in range(1 if LOAD.paced else AT_ONCE)))


async def _store(workflow: int) -> None:
    numbers = LOAD.numbers(workflow)
    async with app.workflow() as flow:
        if LOAD.shape == "fan":
            before = [flow.add(step.job(n)) for n in numbers[:-1]]
            flow.add(callback.job(numbers[-1], LOAD.size), after=before)
        else:
            last = flow.add(step.job(numbers[0]))
            for n in numbers[1:]:
                last = flow.add(step.job(n), after=last)


async def submit_one(n: int) -> None:
    await submit_bulk([n])


async def ready() -> None:
    await app.client.queues()


def work() -> None:
    os.environ |= {"PYTHONPATH": os.pathsep.join(sys.path), "SUBLET_REDIS_URL": URL}
    command = ["-m", "sublet", "work", "workflows_sublet:app", "--slots", str(SLOTS), "--quiet"]
    os.execv(sys.executable, [sys.executable, *command])


if __name__ == "__main__":
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
