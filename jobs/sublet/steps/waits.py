"""How a task's context reaches its steps, and the exception that suspends an attempt."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from sublet.model import Lease


class Suspended(BaseException):
    """Ends an attempt whose task waits; `ctx.sleep` and `ctx.wait_for` raise it. The job runs again when the wait is
    over. `except Exception` does not catch it; a task must not either.
    """

    def __init__(self, kind: Literal["sleep", "signal"], name: str, seconds: float | None = None) -> None:
        super().__init__(f"{kind} {name}")
        self.kind, self.name, self.seconds = kind, name, seconds


class Steps(Protocol):
    """The steps of one attempt. In an async task each method returns an awaitable."""

    @property
    def renewed(self) -> bool:
        """Whether this attempt has kept a step, so that the tries began anew."""
        ...

    def step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return the kept result of a step; without one, call the function and keep its result."""
        ...

    def sleep(self, name: str, seconds: float) -> Any:
        """Return if the sleep is over; else raise Suspended."""
        ...

    def wait_for(self, name: str, seconds: float | None) -> Any:
        """Return the value of a signal; raise Suspended until it arrives, TimeoutError after the limit."""
        ...


class StepOpener(Protocol):
    """Opens the steps of an attempt at their first use."""

    def open_steps(self, lease: Lease) -> Steps:
        """Return the steps of this lease's job."""
        ...
