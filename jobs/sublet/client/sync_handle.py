# Generated from handle.py by `.venv/bin/python -m tests.support.sync_twins --write`: do not edit.
"""`SyncHandle`: a submitted job."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from sublet.client.result import result_of
from sublet.errors import Invalid
from sublet.model import Job, Standing
from sublet.options import Seconds
from sublet.steps.chunks import Chunk

if TYPE_CHECKING:
    from sublet.client.sync_client import SyncClient

R = TypeVar("R")


@dataclass(slots=True, eq=False)
class SyncHandle(Generic[R]):
    """A submitted job, without an event loop; threads may share it."""

    id: str
    created: bool
    """Whether the submit stored a new job. False for an earlier job with this id or deduplication key, and
    for a handle made from an id; True for one from `SyncWorkflow.add`.
    """
    _client: "SyncClient" = field(repr=False)
    _decode: Callable[[bytes], R] = field(repr=False)
    _ended: Standing | None = field(default=None, repr=False)
    replaced: bool = False
    """Whether the submit stored no new job, but gave its arguments to a waiting one of the same key."""
    _is_stored: bool = field(default=True, repr=False)

    def result(self, timeout: float = 30.0) -> R:
        """Wait for the job's end and return its result. Raises JobFailed, JobCancelled, NotFound,
        PayloadLost; Invalid if the result does not match the task's return type; TimeoutError after `timeout`
        seconds, and the job continues.
        """
        self._check_stored()
        if self._ended:
            ended = self._client._whole(self.id, self._ended)
            return result_of(self.id, ended, self._decode, timeout)
        return self._client.result(self.id, timeout, self._decode)

    def stream(self, after: int = 0, timeout: float = 300.0) -> Generator[Chunk, None]:
        """Yield the job's kept and new chunks with ids above `after` (all, if its stream has begun anew),
        until it has ended. Raises NotFound, Unavailable; TimeoutError after `timeout` seconds.
        """
        self._check_stored()
        return self._client.stream(self.id, after, timeout)

    def get(self) -> Job:
        """Return the job with its state, result and attempts. Raises NotFound."""
        self._check_stored()
        return self._client.get(self.id)

    def _check_stored(self) -> None:
        if not self._is_stored:
            raise Invalid(
                f"job {self.id} is not stored: the end of its workflow's `with` block stores it, unless the block raises: call this after the block, or submit the job again"
            )

    def cancel(self) -> str:
        """Cancel the job. Return `cancelled`; if it is running, `requested`: its worker will end it. Raises
        WrongState if it has ended, NotFound.
        """
        self._check_stored()
        return self._client.cancel(self.id)

    def signal(self, name: str, value: Any = None) -> str:
        """Send a signal to the job, for its `ctx.wait_for(name)`. Return `kept`. Raises WrongState if it has
        ended, has another value of `name`, or its wait has timed out; NotFound, StepsFull, Invalid.
        """
        self._check_stored()
        return self._client.signal(self.id, name, value)

    def reschedule(
        self, *, run_at: datetime | None = None, delay: Seconds | None = None, priority: int | None = None
    ) -> str:
        """Give the scheduled or queued job another time (`run_at`, or `delay` from now), priority, or both.
        Return `scheduled` or `queued`. Raises WrongState if it runs or has ended, or if it waits for other
        jobs and is to get a time; Invalid; NotFound.
        """
        self._check_stored()
        return self._client.reschedule(self.id, run_at=run_at, delay=delay, priority=priority)
