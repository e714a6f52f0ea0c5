"""How a task's context reaches its steps, and the exception that suspends an attempt."""

from collections.abc import AsyncIterator, Callable, Generator, Iterator, Mapping
from typing import Any, Literal, Protocol

from sublet.model import Lease, Submission
from sublet.outcome import Outcome


class Suspended(BaseException):
    """Ends an attempt whose task waits; `ctx.sleep`, `ctx.wait_for` and `ctx.call` raise it. The job runs
    again when the wait is over. `except Exception` does not catch it; never swallow it.
    """

    def __init__(
        self, kind: Literal["sleep", "signal", "call"], name: str, seconds: float | None = None
    ) -> None:
        super().__init__(f"{kind} {name}")
        self.kind, self.name, self.seconds = kind, name, seconds


class Upstream(Protocol):
    """The outcomes of a job's upstreams, to iterate over, or await as a list."""

    def __aiter__(self) -> AsyncIterator[Outcome]: ...
    def __iter__(self) -> Iterator[Outcome]: ...
    def __await__(self) -> Generator[Any, None, list[Outcome]]: ...


class Steps(Protocol):
    """The steps of one attempt. In an async task each method returns an awaitable, else the value."""

    @property
    def renewed(self) -> bool:
        """Whether this attempt has kept a new step, which renewed the job's tries."""
        ...

    def step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        """Return a step's kept result, as read from JSON; without one, call the function and keep its result first."""
        ...

    def sleep(self, name: str, seconds: float) -> Any:
        """Raise Suspended until the sleep, which the first call begins, is over; then do nothing."""
        ...

    def wait_for(self, name: str, seconds: float | None) -> Any:
        """Return a signal's value. Until it arrives, raise Suspended; if it does not within `seconds`
        (None: no limit), raise TimeoutError.
        """
        ...

    def call(self, name: str, job: Submission) -> Any:
        """Store a job once, return its result. Raise Suspended until its end, JobFailed without a result."""
        ...

    def emit(self, chunk: Any) -> Any:
        """Append a chunk to the job's stream, soon."""
        ...

    def upstream(self) -> Upstream:
        """Return the outcomes of the job's upstreams."""
        ...


class StepOpener(Protocol):
    """Opens the steps of an attempt at their first use."""

    def open_steps(self, lease: Lease) -> Steps:
        """Return the steps of this lease's job."""
        ...
