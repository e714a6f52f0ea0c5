"""How a task steers: Snooze to come back later, Discard to give up, a failure to be tried again, a cancel to clean up.

    python3 -m examples.steering

Runs its own worker for a second and prints each job's story.
"""

import asyncio

from sublet import App, Context, Discard, JobFailed, Snooze
from sublet_functions.work import work

app = App()


@app.task
async def wait_for_payment(ctx: Context, order: int) -> str:
    """Not there yet? Give the job back for a while: no slot is held, no try is burnt."""
    if ctx.attempt < 3:
        raise Snooze(0.05, "not paid yet")
    return f"order {order} is paid"


@app.task
async def deliver(address: str) -> str:
    """What can never work needs no second try."""
    if "@" not in address:
        raise Discard(f"{address!r} is no address")
    return "sent"


@app.task(max_attempts=4, backoff=0.02)
async def flaky(ctx: Context) -> str:
    """What may work next time is simply raised; `ctx.recovered` says how the attempt before ended."""
    if ctx.attempt < 3:
        raise ConnectionError("the other side hung up")
    return f"worked at attempt {ctx.attempt}, after {ctx.recovered}"


async def main() -> None:
    """Submit one of each and read the stories."""
    handles = [await wait_for_payment.submit(7), await deliver.submit("nowhere"), await flaky.submit()]
    worker = asyncio.create_task(work(app, queues=["default"], seconds=1))
    for handle in handles:
        try:
            print("result:", await handle.result(timeout=10))
        except JobFailed as error:
            print("failed:", error)
        for attempt in (await handle.get()).attempts:
            print(f"   {attempt.number}. {attempt.code} {attempt.message}".rstrip())
    await worker
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
