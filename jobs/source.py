"""The seam between those who run or submit jobs and those who keep them.

A worker and a producer need five things, and know nothing of Redis. `jobs.store.Store` gives them over Redis.
"""

from collections.abc import Sequence
from typing import Protocol

from jobs.model import Beat, Claimed, Ending, Standing, Submission, Submitted


class JobSource(Protocol):
    """Where jobs come from and go to. Every method is safe to call again after it failed."""

    async def submit(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Store jobs, as many as there are; a known id or key answers with the job that is already there."""
        ...

    async def claim(self, *, worker: str, queues: Sequence[str], n: int, lease: float, wait: float = 0) -> Claimed:
        """Take up to `n` jobs (0: do the upkeep alone); with `wait`, stay up to that many seconds for the first to come."""
        ...

    async def heartbeat(self, beats: Sequence[Beat], *, lease: float) -> list[int | str]:
        """Extend leases. Per lease its new end in ms, or LEASE_LOST, NOT_FOUND, CANCEL_REQUESTED."""
        ...

    async def settle(self, endings: Sequence[Ending]) -> list[str]:
        """End attempts. Per ending the job's new state (with more words), LEASE_LOST or NOT_FOUND."""
        ...

    async def watch(self, job_id: str, wait: float) -> Standing:
        """Where a job stands, as soon as it has ended or `wait` seconds are over."""
        ...

    async def aclose(self) -> None:
        """Let go of all connections."""
        ...
