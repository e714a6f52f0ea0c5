"""Tasks that return `Then`: on the event loop, in a thread, and in child processes."""

from sublet import App, Context, Submission, Then
from sublet.connection.settings import Settings

app = App(settings=Settings())
ONE_TRY = {"max_attempts": 1, "backoff": 0.0}


@app.task(max_attempts=1, queue="parts")
async def part(number: int) -> int:
    if number < 0:
        raise ValueError(f"{number} is negative")
    return number


@app.task(queue="merges")
async def merge(ctx: Context) -> list[object]:
    return [one.value async for one in ctx.upstream]


# With a plain function in each queue, a worker claims from all of them in the same calls
@app.task(queue="parts")
def plain_part() -> None: ...


@app.task(queue="merges")
def plain_merge() -> None: ...


def parts(n: int) -> list[Submission]:
    return [part.job(number) for number in range(n)]


@app.task(**ONE_TRY)
async def on_loop(n: int) -> Then[int]:
    return Then(result=n, jobs=parts(n), callback=merge.job())


@app.task(**ONE_TRY)
async def followed_by_none(n: int) -> Then[int]:
    return Then(result=n, jobs=parts(0))


@app.task(run="thread", **ONE_TRY)
def in_thread(n: int) -> Then[int] | int:
    return Then(n, jobs=parts(n), callback=merge.job()) if n else n


@app.task(**ONE_TRY)
def in_child(n: int) -> Then:  # type: ignore[type-arg]  # the result has any type
    return Then(n, jobs=parts(n), callback=merge.job())


@app.task(**ONE_TRY)
async def failing(on_failure: str) -> Then[None]:
    return Then(None, [part.job(1), part.job(-2)], merge.job(), on_failure)  # type: ignore[arg-type]  # any text is tried


@app.task(**ONE_TRY)
async def wrong(how: str) -> Then[int]:
    """Each misuse of Then."""
    one = part.job(1)
    return {
        "no job": lambda: Then(1, ["part"]),  # type: ignore[list-item]  # the misuse
        "None": lambda: Then(1, [None]),  # type: ignore[list-item]  # the misuse
        "twice": lambda: Then(1, [one, one]),
        "result": lambda: Then("text", [one]),  # type: ignore[arg-type]  # the misuse
        "too many": lambda: Then(1, [one._replace(id=f"0-{n}") for n in range(10_001)]),
        "partition": lambda: Then(1, [one._replace(id="1-other")]),
        "size": lambda: Then(1, [one._replace(payload=b"x" * 300_000)]),
        "key": lambda: Then(1, [one._replace(rules="key=k")]),
    }[how]()


@app.task(**ONE_TRY)
def large(n: int, size: int) -> Then[None]:
    """In a child process: jobs with arguments of this size."""
    return Then(None, [texts.job("ü" * size) for _ in range(n)], merge.job())


@app.task(queue="parts")
async def texts(text: str) -> int:
    return len(text)
