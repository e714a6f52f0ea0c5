"""Tasks that submit a job and wait for its result: on the loop, in child processes and in threads."""

from sublet import App, Context
from tests.support.misbehaving_tasks import LONG, note, until_there

app = App()


@app.task(timeout=300)
async def loop_leaf(ctx: Context) -> int:
    note(ctx, "leaf")
    return 1


@app.task(timeout=300)
async def loop_parent(ctx: Context, depth: int = 1) -> int:
    note(ctx, "began")
    child = await (loop_leaf.submit() if depth == 1 else loop_parent.submit(depth=depth - 1))
    return 1 + await child.result(timeout=LONG)


@app.task(timeout=300)
def process_leaf(ctx: Context) -> int:
    note(ctx, "leaf")
    return 1


@app.task(timeout=300)
def process_parent(ctx: Context, depth: int = 1, go: str = "") -> int:
    ctx.log("a line before")
    note(ctx, "began")
    if go:
        until_there(go)
    child = process_leaf.submit_sync() if depth == 1 else process_parent.submit_sync(depth=depth - 1)
    return 1 + child.result(timeout=LONG)


@app.task(run="thread", timeout=300)
def thread_leaf(ctx: Context) -> int:
    note(ctx, "leaf")
    return 1


@app.task(run="thread", timeout=300)
def thread_parent(ctx: Context, depth: int = 1) -> int:
    note(ctx, "began")
    child = thread_leaf.submit_sync() if depth == 1 else thread_parent.submit_sync(depth=depth - 1)
    return 1 + child.result(timeout=LONG)


@app.task(timeout=300)
async def later_parent(ctx: Context) -> int:
    child = await loop_leaf.options(delay=1.5).submit()
    return 1 + await child.result(timeout=LONG)
