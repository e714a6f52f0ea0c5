"""Something at nine on weekdays, and something every second: no process must stay alive for it but workers, and those may die.

sublet work examples.on_time:app       puts the schedules where the jobs live, fires them, and runs their jobs
python3 -m examples.on_time            the same until three have run, and then takes its schedules away again
"""

import asyncio

from sublet import App, Context
from sublet_functions.work import work

app = App()


@app.schedule("0 9 * * MON-FRI", tz="Europe/Berlin", payload={"region": "eu"}, missed="skip", late=3600)
@app.task(queue="reports")
async def report(ctx: Context, region: str) -> str:
    """Late by up to an hour it is still of use, and it is of its occurrence's day, whenever it runs."""
    return f"the report of {ctx.occurrence:%A} for {region}"


@app.schedule(every=1, overlap="skip")
@app.task
async def probe(ctx: Context) -> None:
    """If one takes longer than a second, the next ones are left out."""
    print(f"probe of {ctx.occurrence:%H:%M:%S}")


async def main() -> None:
    """What a deploy, a worker and an operator do."""
    for name, answer, _ in await app.client.sync(app, "examples.on_time:app"):
        print(f"{name}: {answer}, {(await app.client.schedules.get(name)).words}")
    await work(app, queues=["default"], max_jobs=3, seconds=50)
    for name in ("report", "probe"):
        await app.client.schedules.remove(name)
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
