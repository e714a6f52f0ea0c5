"""What a submit gives back: a job, and where to ask about it. Async and sync."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from sublet.model import Job

if TYPE_CHECKING:
    from sublet.client.client import Client, SyncClient

R = TypeVar("R")


class Handle(Generic[R]):
    """A job that was submitted, and where to ask about it."""

    def __init__(self, client: "Client", job_id: str, created: bool, decode: Callable[[bytes], R]) -> None:
        self.id = job_id
        self.created = created
        """False when a job with the same id or key was there already, and this is it."""
        self._client, self._decode = client, decode

    async def result(self, timeout: float = 30.0) -> R:
        """Wait for the result. Raises JobFailed, JobCancelled, or TimeoutError after `timeout` seconds; the job goes on then."""
        return await self._client.result(self.id, timeout, self._decode)

    async def get(self) -> Job:
        """The job as it stands."""
        return await self._client.get(self.id)

    async def cancel(self) -> str:
        """Call it off: `cancelled`, or `requested` when it runs."""
        return await self._client.cancel(self.id)


class SyncHandle(Generic[R]):
    """The same for code without an event loop."""

    def __init__(
        self, client: "SyncClient", job_id: str, created: bool, decode: Callable[[bytes], R]
    ) -> None:
        self.id = job_id
        self.created = created
        """False when a job with the same id or key was there already, and this is it."""
        self._client, self._decode = client, decode

    def result(self, timeout: float = 30.0) -> R:
        """Wait for the result. Raises JobFailed, JobCancelled, or TimeoutError after `timeout` seconds; the job goes on then."""
        return self._client.result(self.id, timeout, self._decode)

    def get(self) -> Job:
        """The job as it stands."""
        return self._client.get(self.id)

    def cancel(self) -> str:
        """Call it off: `cancelled`, or `requested` when it runs."""
        return self._client.cancel(self.id)
