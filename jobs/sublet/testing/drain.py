"""Run workers until no queued job can start, and add up their counters."""

import dataclasses
from dataclasses import dataclass
from datetime import datetime

from sublet.client.sync_client import SyncClient
from sublet.errors import JobsError
from sublet.model import Lease, State
from sublet.protocol import keys
from sublet.protocol.reads import moment
from sublet.testing.work import FailedAttempt, Recorder
from sublet.worker.summary import Summary
from sublet.worker.worker import Worker

ROUNDS = 10_000
NEVER = 99_999_999_999_999
"""The moment (ms) of a job that waits, without a time limit, for a signal or other jobs."""
QUEUES = 32


class Endless(JobsError):
    """A drain started more attempts than its `limit`, and jobs are still queued."""


@dataclass
class Drained(Summary):
    """What a drain did, and what remains. `completed` to `refused`, and `died`, count attempts, not jobs."""

    died: int = 0
    """Attempts whose task raised `WorkerDied`."""
    scheduled: int = 0
    """Remaining jobs that wait for a time, signal or job."""
    queued: int = 0
    """Remaining jobs in paused queues, or held back by limits."""
    running: int = 0
    """Jobs whose lease has not ended: their worker died, or another worker runs them."""
    next_at: datetime | None = None
    """When the next scheduled job is due, or a lease ends; None without one. Schedules do not count."""


class Drain:
    """One drain, by several workers in turn."""

    def __init__(self, recorder: Recorder, client: SyncClient, raising: bool, limit: int) -> None:
        self._recorder, self._client, self._raising, self._limit = recorder, client, raising, limit
        self._seen, self._deaths, self._started = len(recorder.failures), recorder.deaths, 0
        self._done = Drained()
        self._worker: Worker | None = None

    def queues(self) -> list[str]:
        """Return up to 32 names of unpaused queues with queued jobs. Raises Endless if there are any after
        more than `limit` attempts.
        """
        names = [queue.name for queue in self._client.queues() if queue.queued and queue.paused_at is None]
        if names and self._started > self._limit:
            raise Endless(
                f"more than {self._limit} attempts, and jobs are still queued: "
                "check whether a task submits itself, or raise `limit`"
            )
        return names[:QUEUES]

    async def run(self, worker: Worker) -> bool:
        """Run a worker until it can claim no job, or passes the limit; return whether an attempt started.
        With `raising`, raise the exception of the first failed attempt, or JobFailed.
        """
        self._worker, before = worker, self._started
        summary = await worker.run(drain=True)
        for part in dataclasses.fields(Summary):
            so_far, more = getattr(self._done, part.name), getattr(summary, part.name)
            setattr(self._done, part.name, type(so_far)(so_far + more))
        if failure := self._failure():
            raise failure.error
        return self._started > before

    def on_report(self, event: str, lease: Lease | None, detail: str) -> None:
        """Count an attempt when it starts; stop the worker beyond the limit or, with `raising`, at a failure."""
        self._started += event == "started"
        worker = self._worker
        if worker and (self._started > self._limit or self._failure()):
            self._worker = None  # stop() reports again
            worker.stop()

    def _failure(self) -> FailedAttempt | None:
        return (
            self._recorder.failures[self._seen]
            if self._raising and len(self._recorder.failures) > self._seen
            else None
        )

    def next_at(self) -> datetime | None:
        """Compute `Drained.next_at`."""
        store, heads = self._client.store, list[float]()
        raw = store.transport.client
        for base in store.operations.bases:
            for name in ("scheduled", "running"):
                first = raw.zrange(keys.structure(base, name), 0, 0, withscores=True)
                heads += [score for _, score in first if score < NEVER]
        return moment(min(heads)) if heads else None

    def report(self) -> Drained:
        """Return the totals. Call it once, at the end."""
        done = self._done
        done.died = self._recorder.deaths - self._deaths
        done.refused -= done.died
        done.seconds = round(done.seconds, 3)
        for stats in self._client.stats():
            done.scheduled += stats.states[State.SCHEDULED]
            done.queued += stats.states[State.QUEUED]
            done.running += stats.states[State.RUNNING]
        done.next_at = self.next_at()
        return done
