"""Tasks that call other jobs: on the event loop, in a thread, and in child processes."""

import asyncio
from pathlib import Path

from sublet import App, Context, JobCancelled, JobFailed, Submission
from sublet.connection.settings import Settings

app = App(settings=Settings())
ONE_TRY = {"max_attempts": 1, "backoff": 0.0}


@app.task(max_attempts=1, queue="labels")
async def label(number: int) -> dict[str, int]:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return {"label": number}


@app.task(max_attempts=1, queue="labels")
def plain_label(number: int, size: int = 0) -> str:
    """In a child process itself."""
    return f"label {number}" + "x" * size


def called(number: int) -> Submission:
    return label.job(number)


def before(path: str) -> int:
    """A step beside the call: how often it was done."""
    file = Path(path)
    done = (int(file.read_text()) if file.exists() else 0) + 1
    file.write_text(str(done))
    return done


@app.task(**ONE_TRY)
async def on_loop(ctx: Context, number: int, path: str) -> list[object]:
    done = await ctx.step("before", before, path)
    return [done, await ctx.call("label", called(number))]


@app.task(run="thread", **ONE_TRY)
def in_thread(ctx: Context, number: int, path: str) -> list[object]:
    return [ctx.step("before", before, path), ctx.call("label", called(number))]


@app.task(**ONE_TRY)
def in_child(ctx: Context, number: int, path: str) -> list[object]:
    return [ctx.step("before", before, path), ctx.call("label", called(number))]


@app.task(**ONE_TRY)
async def catching(ctx: Context, number: int) -> list[object]:
    """Catches the failure of the called job, and calls another one."""
    try:
        return [await ctx.call("label", called(number))]
    except JobCancelled as error:
        return ["cancelled", error.job_id]
    except JobFailed as error:
        return [error.code, error.message, await ctx.call("other", called(-number))]


@app.task(**ONE_TRY)
async def several(ctx: Context, n: int) -> list[object]:
    """Calls one after the other, a plain one last."""
    found: list[object] = [await ctx.call(f"label-{i}", called(i)) for i in range(n)]
    return [*found, await ctx.call("plain", plain_label.job(n))]


@app.task(**ONE_TRY)
async def at_once(ctx: Context, n: int) -> list[object]:
    """Calls of a task group run beside each other, once all are stored."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(ctx.call(f"label-{i}", called(i))) for i in range(n)]
    return [task.result() for task in tasks]


@app.task(**ONE_TRY)
async def large(ctx: Context, size: int) -> int:
    return len(await ctx.call("label", plain_label.job(1, size)))


@app.task(**ONE_TRY)
async def wrong(ctx: Context, how: str) -> None:
    """Each misuse of a call."""
    if how == "no job":
        await ctx.call("label", "label")  # type: ignore[arg-type]  # the misuse
    if how == "twice":
        await ctx.call("label", called(1))
        await ctx.call("label", called(2))
    if how == "a step":
        await ctx.step("label", asyncio.sleep, 0)
        await ctx.call("label", called(1))
    if how == "then a step":
        await ctx.call("label", called(1))
        await ctx.wait_for("label")
