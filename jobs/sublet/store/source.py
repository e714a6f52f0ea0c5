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
from sublet.steps.calls import CalledJob, Kept
from sublet.steps.chunks import Emission
from sublet.workflows.upstream import UpstreamPage

HTTP_QUEUES = 1000


class JobSource(Protocol):
    """Access to jobs. After an error each method may be called again."""

    async def submit(self, jobs: Sequence[Submission]) -> list[Submitted]:
        """Store any number of jobs; return the answers in order: of a known id or key, the existing job's id."""
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
        """Lease up to `n` jobs (0: only do maintenance) for `lease` seconds; wait up to `wait` seconds for the first.
        Up to 32 queues are asked in their order; more, or patterns, in turns unless `strict`.

        `life`: only of a worker with an exclusive identity. Raises Changed after another worker took over.
        """
        ...

    async def heartbeat(self, beats: Sequence[Beat], *, lease: float) -> list[int | str]:
        """Extend leases to `lease` seconds from now, at most to 5 s after the attempt's timeout; store progress
        of up to 1 KiB.

        Returns per lease its new end (ms since 1970), CANCEL_REQUESTED (also extended), LEASE_LOST or NOT_FOUND.
        """
        ...

    async def settle(self, endings: Sequence[Ending]) -> list[str]:
        """Report outcomes. Returns per attempt the job's new state (`scheduled <ms>`: when it is due; `dead …`:
        why a completion was refused), LEASE_LOST, NOT_FOUND, or `QUEUE_FULL …`: the jobs that follow do not
        fit, and the job still runs.
        """
        ...

    async def note(self, notes: Sequence[Note]) -> list[str]:
        """Store checkpoints (one above 64 KiB is left out), the last 8 KiB of logs, and costs. Returns per lease
        `noted`, LEASE_LOST or NOT_FOUND.
        """
        ...

    async def step(self, lease: Lease, steps: Mapping[str, bytes]) -> dict[str, Kept]:
        """Keep up to 100 steps (name → value) of a running job. A new step replaces a signal of its name, and gives
        the job all its tries again. Return the steps kept before, which stay; if `steps` is empty all kept ones,
        also signals and sleeps. Raises LeaseLost, NotFound, StepsFull, Invalid, TooMany, Unavailable.
        """
        ...

    async def emit(self, lease: Lease, emission: Emission) -> None:
        """Append chunks to a running job's stream. Raises LeaseLost, NotFound, OutOfMemory, Invalid, Unavailable."""
        ...

    async def call(self, lease: Lease, called: CalledJob) -> Kept:
        """Store a job for a step, once. Returns the step, of kind `call` until the job has ended. Raises Refused,
        Invalid, Unavailable.
        """
        ...

    async def upstream(self, lease: Lease, start: int) -> UpstreamPage:
        """Return outcomes of jobs that a running job waited for, from index `start` on. Raises LeaseLost, NotFound,
        Unavailable.
        """
        ...

    async def enlist(self, card: Card) -> bool:
        """Register a worker, or renew its registration. Returns True if the worker should drain."""
        ...

    async def publish(self, tasks: Sequence[Description], starting: bool) -> None:
        """Write or renew a worker's tasks in the catalogue. Unless `starting`, a task's different description
        that was renewed in the last 3 hours stays.
        """
        ...

    async def workers(self) -> list[WorkerInfo]:
        """Return the registered workers without their leases, the one with the latest heartbeat first."""
        ...

    async def reconcile(self, gone: Mapping[str, str]) -> int:
        """End the leases of gone workers (name → life), and delete their registrations. Skip a worker not
        registered with this life. Returns how many leases.
        """
        ...

    async def retire(self, card: Card) -> bool:
        """Ask whether an idle worker may leave its pool. After True (also for an unknown pool) the worker must
        not claim again.
        """
        ...

    async def leave(self, card: Card) -> None:
        """Delete a worker's registration, unless its life is another; its leases stay."""
        ...

    async def watch(self, job_id: str, wait: float) -> Standing:
        """Wait up to `wait` seconds for a job's end; then return its standing. State None: no such job."""
        ...

    async def aclose(self) -> None:
        """End background work and close all connections."""
        ...


class PoolSummoner(Protocol):
    """Starts the workers that pools are owed."""

    prompt: bool
    nudged: int

    async def summon(self) -> Any:
        """Summon and invoke owed workers once; return how many were invoked, and how many could not be."""
        ...

    async def finish(self) -> None:
        """Wait until all invocations have ended."""
        ...

    async def aclose(self, patience: float = ...) -> None:
        """Wait up to `patience` seconds for invocations under way; then cancel them."""
        ...
