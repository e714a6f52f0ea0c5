"""The seam between those who run or submit jobs and those who keep them.

A worker and a producer need these things, and know nothing of Redis. `sublet.store.store.Store` gives them over Redis.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sublet.model import Beat, Card, Claimed, Ending, Note, Standing, Submission, Submitted, WorkerInfo


class JobSource(Protocol):
    """Where jobs come from and go to. Every method is safe to call again after it failed."""

    async def submit(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Store jobs, as many as there are; a known id or key answers with the job that is already there."""
        ...

    async def claim(
        self, *, worker: str, queues: Sequence[str], n: int, lease: float, wait: float = 0
    ) -> Claimed:
        """Take up to `n` jobs (0: do the upkeep alone); with `wait`, stay up to that many seconds for the first to come."""
        ...

    async def heartbeat(self, beats: Sequence[Beat], *, lease: float) -> list[int | str]:
        """Extend leases. Per lease its new end in ms, or LEASE_LOST, NOT_FOUND, CANCEL_REQUESTED."""
        ...

    async def settle(self, endings: Sequence[Ending]) -> list[str]:
        """End attempts. Per ending the job's new state (with more words), LEASE_LOST or NOT_FOUND."""
        ...

    async def note(self, notes: Sequence[Note]) -> list[str]:
        """Keep checkpoints and logs with their jobs. Per lease `noted`, LEASE_LOST or NOT_FOUND."""
        ...

    async def enlist(self, card: Card) -> bool:
        """A worker's sign of life. True when it has been asked to finish and go."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """The workers on the register; what they hold is left out."""
        ...

    async def reconcile(self, gone: Mapping[str, str]) -> int:
        """Strike off workers (name → life) that are gone for good and end their leases. How many those were."""
        ...

    async def retire(self, card: Card) -> bool:
        """May an idle worker of a pool go? True: it counts no more from this moment, and must take nothing more."""
        ...

    async def leave(self, card: Card) -> None:
        """Strike off a worker that holds nothing any more."""
        ...

    async def watch(self, job_id: str, wait: float) -> Standing:
        """Where a job stands, as soon as it has ended or `wait` seconds are over."""
        ...

    async def aclose(self) -> None:
        """Let go of all connections."""
        ...


class PoolSummoner(Protocol):
    """Starts workers for pools: see `sublet.scaling.summoner.Summoner`, which implements it."""

    prompt: bool
    nudged: int

    async def summon(self) -> Any:
        """Ask every pool how many workers it is owed, and invoke them."""
        ...

    async def settle(self) -> None:
        """Wait until all workers that are owed by now have been invoked."""
        ...

    async def aclose(self, patience: float = ...) -> None:
        """Invoke what is still owed, within `patience` seconds, and close all connections."""
        ...
