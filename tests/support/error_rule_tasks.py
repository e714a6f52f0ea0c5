"""Tasks with `retry_on` and `discard_on`, of each kind, in a module that a child process can import."""

import asyncio
from typing import Any

from sublet import App, Context
from sublet.tasks.programs.program import ProgramFailed

app, lenient = App(), App()


class Away(ConnectionError):
    """An error of this module, with a base class that the rules name."""


ERRORS: dict[str, type[BaseException]] = {
    kind.__name__: kind
    for kind in (Away, OSError, TimeoutError, LookupError, FileNotFoundError, SystemExit, MemoryError)
}
RULES: dict[str, Any] = dict(
    retry_on=(ConnectionError, OSError), discard_on=FileNotFoundError, backoff=0.01, max_attempts=2
)


def fail(error: str) -> None:
    raise ERRORS[error]("as asked")


@app.task(**RULES)
async def on_loop(error: str) -> None:
    fail(error)


@app.task(**RULES, run="thread")
def in_a_thread(error: str) -> None:
    fail(error)


@app.task(**RULES)
def in_a_child(error: str) -> None:
    fail(error)


@lenient.task(discard_on=(LookupError,), backoff=0.01, max_attempts=2)
def only_discards(error: str) -> None:
    fail(error)


@app.task(retry_on=(), backoff=0.01, max_attempts=2, timeout=0.3)
async def stuck(ctx: Context) -> int:
    if ctx.attempt == 1:
        await asyncio.sleep(60)
    return ctx.attempt


exits = app.command("sh -c 'exit 3'", name="exits", retry_on=(ProgramFailed,), backoff=0.01, max_attempts=2)
exits_for_good = app.command("sh -c 'exit 3'", name="exits_for_good", retry_on=(ConnectionError,))
