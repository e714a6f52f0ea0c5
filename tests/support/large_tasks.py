"""Tasks with large arguments and results, in a module that a child process can import."""

from sublet import App, Context

app = App()


@app.task
async def loop_task(text: str, times: int = 1) -> str:
    return text * times


@app.task(run="thread")
def thread_task(text: str, times: int = 1) -> str:
    return text * times


@app.task
def process_task(text: str, times: int = 1) -> str:
    return text * times


@app.task
async def counts(text: str) -> int:
    return len(text)


@app.task
async def like_a_reference() -> dict[str, object]:
    return {"sublet:large": {"bytes": 1, "sha256": "00"}}


@app.task
async def asks(ctx: Context, size: int) -> int:
    return len(await (await loop_task.submit("x" * size)).result())
