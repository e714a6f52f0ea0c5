"""`JobSource`: the jobs for workers and producers, over Redis (`Store`) or HTTP (`HttpSource`)."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sublet.model import Beat, Card, Claimed, Ending, Note, Standing, Submission, Submitted, WorkerInfo


class JobSource(Protocol):
    """A store of jobs. A failed method may be called again."""

    async def submit(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Store any number of jobs. A known id or deduplication key gives the existing job."""
        ...

    async def claim(
        self, *, worker: str, queues: Sequence[str], n: int, lease: float, wait: float = 0
    ) -> Claimed:
        """Take up to `n` jobs (0: only do maintenance); wait up to `wait` seconds for the first."""
        ...

    async def heartbeat(self, beats: Sequence[Beat], *, lease: float) -> list[int | str]:
        """Extend leases. Returns per lease its new end in ms, or LEASE_LOST, NOT_FOUND, CANCEL_REQUESTED."""
        ...

    async def settle(self, endings: Sequence[Ending]) -> list[str]:
        """Report outcomes. Returns per attempt the job's new state, LEASE_LOST or NOT_FOUND."""
        ...

    async def note(self, notes: Sequence[Note]) -> list[str]:
        """Store checkpoints and logs. Returns per lease `noted`, LEASE_LOST or NOT_FOUND."""
        ...

    async def enlist(self, card: Card) -> bool:
        """Register a worker, or refresh its registration. True if it should drain."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """Return the workers, without their leases."""
        ...

    async def reconcile(self, gone: Mapping[str, str]) -> int:
        """Remove workers (name → life) that are certainly gone, and end their leases. Returns the leases'
        number.
        """
        ...

    async def retire(self, card: Card) -> bool:
        """Whether a pool's idle worker may leave. True: it counts no more, and must not claim."""
        ...

    async def leave(self, card: Card) -> None:
        """Remove the registration of a worker without leases."""
        ...

    async def watch(self, job_id: str, wait: float) -> Standing:
        """Return a job's state, as soon as it has ended or `wait` seconds are over."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


class PoolSummoner(Protocol):
    """Starts workers for pools (`sublet.scaling.summoner.Summoner`)."""

    prompt: bool
    nudged: int

    async def summon(self) -> Any:
        """Invoke the workers that pools are owed. Returns the counts of this pass (`Summoned`)."""
        ...

    async def settle(self) -> None:
        """Wait until all workers owed by now are invoked."""
        ...

    async def aclose(self, patience: float = ...) -> None:
        """Invoke owed workers for up to `patience` seconds, and close all connections."""
        ...
