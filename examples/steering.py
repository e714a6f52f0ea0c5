"""Outcomes of a task: Snooze to run later, Discard to give up, an exception to be retried.

    python3 -m examples.steering

The program runs a worker itself for a second, and prints the attempts of each job.
"""

import asyncio

from sublet import App, Context, Discard, JobFailed, Snooze
from sublet_functions.work import work

app = App()


@app.task
async def wait_for_payment(ctx: Context, order: int) -> str:
    """Snooze twice, then succeed. A snooze releases the slot and uses no try."""
    if ctx.attempt < 3:
        raise Snooze(0.05, "not paid yet")
    return f"order {order} is paid"


@app.task
async def deliver(address: str) -> str:
    """Discard a job with an invalid address: a retry could not succeed."""
    if "@" not in address:
        raise Discard(f"{address!r} is not an address")
    return "sent"


@app.task(max_attempts=4, backoff=0.02)
async def flaky(ctx: Context) -> str:
    """Raise twice, then succeed. An exception is retried. `ctx.recovered` is the code of the previous
    attempt's end.
    """
    if ctx.attempt < 3:
        raise ConnectionError("connection reset")
    return f"worked at attempt {ctx.attempt}, after {ctx.recovered}"


async def main() -> None:
    """Submit one job of each task and print the attempts."""
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
