"""`JobSource`: the interface by which workers reach jobs. `Store` implements it in Redis, `HttpSource` over
HTTP.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sublet.model import (
    Beat,
    Card,
    Claimed,
    Description,
    Ending,
    Lease,
    Note,
    Standing,
    Submission,
    Submitted,
    WorkerInfo,
)
from sublet.steps.calls import Kept

HTTP_QUEUES = 1000


class JobSource(Protocol):
    """Access to a namespace's jobs. After an error each method may be called again."""

    async def submit(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Store any number of jobs. A known id or deduplication key gives the existing job."""
        ...

    async def claim(
        self,
        *,
        worker: str,
        queues: Sequence[str],
        n: int,
        lease: float,
        wait: float = 0,
        strict: bool = False,
        life: str = "",
    ) -> Claimed:
        """Lease up to `n` jobs for `lease` seconds (0 jobs: only do maintenance); wait up to `wait` seconds
        for the first. Patterns or over 32 queues are asked in turns, with `strict` in the given order.

        `life` is given for a worker with an exclusive identity: raises Changed after another worker took
        over.
        """
        ...

    async def heartbeat(self, beats: Sequence[Beat], *, lease: float) -> list[int | str]:
        """Extend leases to `lease` seconds from now, at most to 5 s after the attempt's timeout; store the
        progress (up to 1 KiB).

        Returns per lease its new end (ms since 1970), CANCEL_REQUESTED (it is extended, too), LEASE_LOST or
        NOT_FOUND.
        """
        ...

    async def settle(self, endings: Sequence[Ending]) -> list[str]:
        """Report outcomes. Returns per attempt the job's new state (`scheduled <ms>`: when it is due),
        LEASE_LOST or NOT_FOUND.
        """
        ...

    async def note(self, notes: Sequence[Note]) -> list[str]:
        """Store checkpoints (one above 64 KiB is left out) and the last 8 KiB of logs. Returns per lease `noted`,
        LEASE_LOST or NOT_FOUND.
        """
        ...

    async def step(self, lease: Lease, steps: Mapping[str, bytes]) -> dict[str, Kept]:
        """Keep steps of a running job; return those that were there. Without any, return all. Raises LeaseLost,
        NotFound, StepsFull, Invalid, Unavailable.
        """
        ...

    async def enlist(self, card: Card) -> bool:
        """Register a worker, or renew its registration. Returns True if it should drain."""
        ...

    async def publish(self, tasks: Sequence[Description], starting: bool) -> None:
        """Write a worker's tasks to the catalogue if it is `starting`; else renew them there."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """Return the registered workers without their leases, the one with the latest heartbeat first."""
        ...

    async def reconcile(self, gone: Mapping[str, str]) -> int:
        """End the leases of workers (name → life) that are gone, and delete their registrations, unless they
        have another life. Returns the number of leases.
        """
        ...

    async def retire(self, card: Card) -> bool:
        """Ask whether an idle worker may leave its pool. If it returns True (also if the pool is unknown),
        the worker may not claim again.
        """
        ...

    async def leave(self, card: Card) -> None:
        """Delete the registration of a worker without leases, unless it has another life."""
        ...

    async def watch(self, job_id: str, wait: float) -> Standing:
        """Wait up to `wait` seconds for a job's end; return its state and result."""
        ...

    async def aclose(self) -> None:
        """Finish background work and close all connections."""
        ...


class PoolSummoner(Protocol):
    """Starts the workers that pools are owed."""

    prompt: bool
    nudged: int

    async def summon(self) -> Any:
        """Summon and invoke owed workers once; return how many were, and could not be, invoked."""
        ...

    async def finish(self) -> None:
        """Wait until all invocations have ended."""
        ...

    async def aclose(self, patience: float = ...) -> None:
        """Wait up to `patience` seconds for invocations under way, and cancel the rest."""
        ...
