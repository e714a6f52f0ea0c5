"""One drain: workers run one after the other until no queue holds a job, and what they did is added up."""

import dataclasses
from dataclasses import dataclass
from datetime import datetime

from sublet.client.client import SyncClient
from sublet.errors import JobsError
from sublet.model import Lease, State
from sublet.protocol import keys
from sublet.protocol.reads import moment
from sublet.testing.work import Ear, Mishap
from sublet.worker.summary import Summary
from sublet.worker.worker import Worker

ROUNDS = 10_000
"""How often anything is done again here, at most."""
QUEUES = 32
"""Queues that one claim may name."""


class Endless(JobsError):
    """A drain came to its limit of attempts, and there was still work."""


@dataclass
class Drained(Summary):
    """What a drain did (`failed` and the like count attempts, not jobs), and what it left."""

    died: int = 0
    """Attempts whose worker died (see `WorkerDied`)."""
    scheduled: int = 0
    """Jobs that wait for a moment: a delay, or the backoff after a failure."""
    queued: int = 0
    """Jobs that wait for a worker: their queue is paused."""
    running: int = 0
    """Jobs under a lease whose worker died, or that another worker runs."""
    next_at: datetime | None = None
    """When the next of these falls due; None if none does."""


class Drain:
    """What a drain has done so far, and whether it may go on."""

    def __init__(self, ear: Ear, client: SyncClient, raising: bool, limit: int) -> None:
        self._ear, self._client, self._raising, self._limit = ear, client, raising, limit
        self._heard, self._deaths, self._started = len(ear.mishaps), ear.deaths, 0
        self._done = Drained()
        self._worker: Worker | None = None

    def queues(self) -> list[str]:
        """The queues that a worker should be sent to next; none when all are dry. Raises Endless at the limit."""
        names = [queue.name for queue in self._client.queues() if queue.queued and queue.paused_at is None]
        if names and self._started > self._limit:
            raise Endless(
                f"more than {self._limit} attempts, and still work: does a task submit itself? Else raise the limit"
            )
        return names[:QUEUES]

    async def run(self, worker: Worker) -> bool:
        """Have a worker work until its queues are dry. False if it found nothing. Raises what a task raised, if so asked."""
        self._worker, before = worker, self._started
        summary = await worker.run(drain=True)
        for part in dataclasses.fields(Summary):
            so_far, more = getattr(self._done, part.name), getattr(summary, part.name)
            setattr(self._done, part.name, type(so_far)(so_far + more))
        if failure := self._failure():
            raise failure.error
        return self._started > before

    def hear(self, event: str, lease: Lease | None, words: str) -> None:
        """Count what the worker starts, and stop it where the drain must end."""
        self._started += event == "started"
        worker = self._worker
        if worker and (self._started > self._limit or self._failure()):
            self._worker = None  # once is enough, and what it then reports comes here, too
            worker.stop()

    def _failure(self) -> Mishap | None:
        return (
            self._ear.mishaps[self._heard] if self._raising and len(self._ear.mishaps) > self._heard else None
        )

    def next_at(self) -> datetime | None:
        """When the next job falls due, or the next lease ends."""
        raw, heads = self._client.transport.client, list[float]()
        for base in self._client.operations.bases:
            for name in ("scheduled", "running"):
                heads += [score for _, score in raw.zrange(keys.structure(base, name), 0, 0, withscores=True)]
        return moment(min(heads)) if heads else None

    def report(self) -> Drained:
        """What was done in all, and what is left."""
        done = self._done
        done.died = self._ear.deaths - self._deaths
        done.refused -= done.died
        done.seconds = round(done.seconds, 3)
        for stats in self._client.stats():
            done.scheduled += stats.states[State.SCHEDULED]
            done.queued += stats.states[State.QUEUED]
            done.running += stats.states[State.RUNNING]
        done.next_at = self.next_at()
        return done
