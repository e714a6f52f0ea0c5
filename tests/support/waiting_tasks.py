"""Tasks that submit jobs and wait for their results: on the loop, in child processes and in threads."""

import asyncio

from sublet import App, Context, Task
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


@app.task(timeout=300)
async def loop_gather(ctx: Context, way: str) -> int:
    handles = [await loop_leaf.submit() for _ in range(2)]
    if way == "gather":
        return sum(await app.gather(handles, timeout=LONG))
    return sum([await handle.result() async for handle in app.as_completed(handles, timeout=LONG)])


def _gather(leaf: Task[..., int], way: str) -> int:
    handles = [leaf.submit_sync() for _ in range(2)]
    if way == "gather":
        return sum(app.sync.gather(handles, timeout=LONG))
    return sum(handle.result() for handle in app.sync.as_completed(handles, timeout=LONG))


@app.task(timeout=300)
def process_gather(ctx: Context, way: str) -> int:
    return _gather(process_leaf, way)


@app.task(run="thread", timeout=300)
def thread_gather(ctx: Context, way: str) -> int:
    return _gather(thread_leaf, way)


@app.task(timeout=300)
def process_loop_gather(ctx: Context, way: str) -> int:
    """A plain task with an event loop of its own."""

    async def run() -> int:
        handles = [await process_leaf.submit() for _ in range(2)]
        if way == "gather":
            return sum(await app.gather(handles, timeout=LONG))
        return sum([await handle.result() async for handle in app.as_completed(handles, timeout=LONG)])

    return asyncio.run(run())
