"""Tasks of each kind that return what their context shows, in a module that a child process can import."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any

from sublet import App, Context

app = App()
seen: list[dict[str, Any]] = []
"""The arguments that the middleware saw in this process since a task last read them."""


@app.middleware
@contextmanager
def arguments(ctx: Context) -> Iterator[None]:
    seen.append(dict(ctx.arguments))
    yield


def shown(ctx: Context) -> dict[str, Any]:
    """The facts of the last attempt; the first ones fail."""
    facts = {"attempt": ctx.attempt, "tries_left": ctx.tries_left, "max_attempts": ctx.max_attempts}
    if ctx.tries_left:
        raise RuntimeError(str(facts))
    before, seen[:] = list(seen), []
    types = {name: type(value).__name__ for name, value in ctx.arguments.items()}
    return {**facts, "tags": list(ctx.tags), "types": types, "seen": [sorted(each) for each in before]}


OPTIONS: dict[str, Any] = dict(max_attempts=2, backoff=0.01, tags=("tenant:acme", "import"))


@app.task(**OPTIONS)
async def on_loop(ctx: Context, day: date, n: int = 1) -> dict[str, Any]:
    return shown(ctx)


@app.task(**OPTIONS, run="thread")
def in_a_thread(ctx: Context, day: date, n: int = 1) -> dict[str, Any]:
    return shown(ctx)


@app.task(**OPTIONS)
def in_a_child(ctx: Context, day: date, n: int = 1) -> dict[str, Any]:
    return shown(ctx)
