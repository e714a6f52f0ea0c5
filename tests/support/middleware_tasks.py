"""Tasks behind middleware, in a module that a child process can import."""

import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path

from sublet import App, Context

app, forgiving = App(), App()
trail: list[str] = []
"""The calls of the middleware in this process since a task last read them."""
place: ContextVar[str] = ContextVar("place", default="nowhere")
"""Set by the middleware, for the task to read."""


def here() -> str:
    """This process and thread."""
    return f"{os.getpid()} {threading.get_ident()}"


@app.middleware
@contextmanager
def outer(ctx: Context) -> Iterator[None]:
    trail.append(f"outer in {ctx.task} {ctx.attempt}")
    token = place.set(here())
    try:
        yield
    except Exception as error:
        trail.append(f"outer saw {type(error).__name__}")
        raise
    finally:
        place.reset(token)
        trail.append("outer out")


@app.middleware
@asynccontextmanager
async def on_the_loop(ctx: Context) -> AsyncIterator[None]:
    trail.append("loop in")
    yield
    trail.append("loop out")


@app.middleware
@contextmanager
def inner(ctx: Context) -> Iterator[None]:
    trail.append("inner in")
    yield
    trail.append("inner out")


def _seen() -> tuple[str, str, list[str]]:
    """Where the middleware ran, where the task runs, and the calls so far."""
    found = (place.get(), here(), list(trail))
    trail.clear()
    return found


@app.task
def in_a_child() -> tuple[str, str, list[str]]:
    return _seen()


@app.task(run="thread")
def in_a_thread() -> tuple[str, str, list[str]]:
    return _seen()


@app.task
async def on_loop() -> tuple[str, str, list[str]]:
    return _seen()


@app.task(backoff=0.01, max_attempts=2)
def fails_in_a_child(ctx: Context) -> tuple[str, str, list[str]]:
    if ctx.attempt == 1:
        raise LookupError("not there")
    return _seen()


@app.task(timeout=0.5, max_attempts=1)
def stuck_in_a_child(left: str) -> None:
    try:
        while True:
            time.sleep(0.01)
    finally:
        Path(left).write_text("a killed child leaves nothing")


@forgiving.middleware
@contextmanager
def forgives(ctx: Context) -> Iterator[None]:
    """Suppress FileNotFoundError, let other exceptions pass."""
    try:
        yield
    except Exception as error:
        trail.append(f"{ctx.task} {type(error).__name__}")
        if not isinstance(error, LookupError):
            raise


@forgiving.task(max_attempts=1)
def swallowed() -> int | None:
    raise LookupError


@forgiving.task(max_attempts=1)
def refused() -> int:
    return "words"  # type: ignore[return-value]  # on purpose: a result of another type than declared


@forgiving.task
def what_was() -> list[str]:
    return list(trail)
