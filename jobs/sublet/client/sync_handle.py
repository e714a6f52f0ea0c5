# Generated from handle.py by `.venv/bin/python -m tests.support.sync_twins --write`: do not edit.
"""`SyncHandle`: a submitted job."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

from sublet.client.result import result_of
from sublet.model import Job, Standing
from sublet.options import Seconds

if TYPE_CHECKING:
    from sublet.client.sync_client import SyncClient

R = TypeVar("R")


@dataclass(slots=True, eq=False)
class SyncHandle(Generic[R]):
    """A submitted job, without an event loop; threads may share it."""

    id: str
    created: bool
    """False if its id or key was stored before."""
    _client: "SyncClient" = field(repr=False)
    _decode: Callable[[bytes], R] = field(repr=False)
    _ended: Standing | None = field(default=None, repr=False)
    """The job's end, if `SyncClient.as_completed` has read it."""

    def result(self, timeout: float = 30.0) -> R:
        """Wait for the result. Raises JobFailed, JobCancelled, NotFound; after `timeout` (s) TimeoutError: the
        job goes on.
        """
        if self._ended:
            ended = self._client._whole(self.id, self._ended)
            return result_of(self.id, ended, self._decode, timeout)
        return self._client.result(self.id, timeout, self._decode)

    def get(self) -> Job:
        """Return the job as it is now."""
        return self._client.get(self.id)

    def cancel(self) -> str:
        """Cancel the job. Return `cancelled`, or `requested` if it runs. Raises WrongState."""
        return self._client.cancel(self.id)

    def reschedule(
        self, *, run_at: datetime | None = None, delay: Seconds | None = None, priority: int | None = None
    ) -> str:
        """Move the waiting job, change its priority, or both: `scheduled` or `queued`. Raises WrongState once it runs."""
        return self._client.reschedule(self.id, run_at=run_at, delay=delay, priority=priority)
