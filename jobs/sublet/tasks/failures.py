"""`AttemptFailure`: a failed attempt, as the hooks of `@app.on_failure` get it."""

import inspect
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from sublet.errors import Invalid
from sublet.model import State


class AttemptFailure(NamedTuple):
    """An attempt that failed, timed out, crashed, lost its lease or made its job dead."""

    id: str
    task: str
    queue: str
    attempt: int
    code: str
    """The exception's name, or `timed_out`, `crashed`, `lease_expired`, …."""
    state: State
    """The job's state afterwards: `scheduled` if it is tried again, `running` if another attempt has begun,
    `dead` or `cancelled`.
    """
    message: str = ""
    traceback: str = ""
    tags: tuple[str, ...] = ()

    @property
    def will_retry(self) -> bool:
        """Whether the job is tried again."""
        return self.state not in (State.DEAD, State.CANCELLED)


FailureHook = Callable[[AttemptFailure], Awaitable[None] | None]


def check_hook(hook: object) -> None:
    """Raise Invalid if `hook` is not callable, or a generator function."""
    if not callable(hook) or inspect.isgeneratorfunction(hook) or inspect.isasyncgenfunction(hook):
        name = getattr(hook, "__name__", repr(hook)[:80])
        raise Invalid(f"on_failure {name}: give a plain or async function that takes an AttemptFailure")
