"""Tasks that read the outcomes of the jobs that they waited for."""

from collections.abc import Iterable

from sublet import App, Context, Outcome
from sublet.connection.settings import Settings

app = App(settings=Settings())


@app.task(max_attempts=1)
async def number(n: int) -> int:
    if n < 0:
        raise ValueError(f"{n} is negative")
    return n


def told(outcomes: Iterable[Outcome]) -> list[list[object]]:
    """Each state, value and error of the outcomes."""
    return [[one.state, one.value, one.error and type(one.error).__name__] for one in outcomes]


@app.task
async def listed(ctx: Context) -> list[list[object]]:
    return told(await ctx.upstream)


@app.task
async def followed(ctx: Context) -> list[list[object]]:
    return told([one async for one in ctx.upstream])


@app.task(run="thread", max_attempts=1)
def threaded(ctx: Context) -> list[list[object]]:
    return told(ctx.upstream)


@app.task
def plain(ctx: Context) -> list[list[object]]:
    """In a child process."""
    return told(ctx.upstream)


@app.task
async def words(ctx: Context) -> list[str]:
    return [str(one.error) async for one in ctx.upstream]


@app.task(max_attempts=1)
async def wrong(ctx: Context) -> None:
    for _ in ctx.upstream:
        pass


@app.task(max_attempts=1)
def wrong_plain(ctx: Context) -> None:
    ctx.upstream.__await__()
