"""Schedules: a report at nine on weekdays, and a probe every second. Only workers run, and each of them may
die.

sublet work examples.on_time:app       stores the schedules, fires them, and runs their jobs
python3 -m examples.on_time            the same for three jobs, then removes the schedules
"""

import asyncio

from sublet import App, Context
from sublet_functions.work import work

app = App()


@app.schedule("0 9 * * MON-FRI", tz="Europe/Berlin", payload={"region": "eu"}, missed="skip", late=3600)
@app.task(queue="reports")
async def report(ctx: Context, region: str) -> str:
    """The report's task. An occurrence is fired up to an hour late. `ctx.occurrence` is when it was due."""
    return f"the report of {ctx.occurrence:%A} for {region}"


@app.schedule(every=1, overlap="skip")
@app.task
async def probe(ctx: Context) -> None:
    """The probe's task. Occurrences that fall due while a probe runs are skipped."""
    print(f"probe of {ctx.occurrence:%H:%M:%S}")


async def main() -> None:
    """Store the schedules, run a worker for three jobs, remove the schedules."""
    for name, answer, _ in await app.client.sync(app, "examples.on_time:app"):
        print(f"{name}: {answer}, {(await app.client.schedules.get(name)).description}")
    await work(app, queues=["default"], max_jobs=3, seconds=50)
    for name in ("report", "probe"):
        await app.client.schedules.remove(name)
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
