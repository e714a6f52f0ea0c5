"""The sums at the end, measured: what Redis says of every job that was submitted, held against what the workers said."""

from collections.abc import Sequence
from dataclasses import dataclass

from sublet.client.client import SyncClient
from sublet.devtools.demo.cast import Ledger
from sublet.devtools.demo.tasks import Report
from sublet.errors import NotFound
from sublet.model import Job, State

LOST = ("lease_expired", "crashed")
"""The codes of attempts whose worker was not heard of again."""


@dataclass
class Tally:
    """How the demo came out."""

    submitted: int
    completed: int = 0
    dead: int = 0
    lost: int = 0
    """Jobs that Redis does not know, or whose accepted completion it does not have."""
    recovered: int = 0
    """Jobs that were completed after a worker that held them had gone silent, or was gone."""
    refused: int = 0
    """Endings and heartbeats of workers that no longer held the lease."""
    completed_twice: int = 0
    """Jobs of which more than one completion was accepted."""
    seconds: float = 0.0

    def words(self) -> list[str]:
        """All of it, for people."""
        named = {"ghosts refused": self.refused, "completed twice": self.completed_twice}
        plain = ("submitted", "completed", "dead", "lost", "recovered")
        numbers = {**{name: getattr(self, name) for name in plain}, **named}
        return [*(f"{name} {number:,}" for name, number in numbers.items()), f"{self.seconds:.1f} s"]

    def complaints(self) -> list[str]:
        """What went wrong, or could not be shown; empty when all is well."""
        complaints = []
        if self.lost:
            complaints.append(f"{self.lost:,} jobs were lost")
        if self.completed_twice:
            complaints.append(f"{self.completed_twice:,} jobs were completed twice")
        if self.completed + self.dead != self.submitted:
            complaints.append(f"{self.submitted - self.completed - self.dead:,} jobs have not ended")
        if not self.recovered:
            complaints.append("not shown: no job was recovered from a worker that went silent")
        if not self.refused:
            complaints.append("not shown: no ghost was refused")
        return complaints


def count(
    client: SyncClient, ids: Sequence[str], ledger: Ledger, seconds: float
) -> tuple[Tally, list[Report]]:
    """Read every job back from Redis, and hold it against the ledger. Gives the sums, and the results."""
    tally = Tally(len(ids), seconds=round(seconds, 1))
    tally.refused = sum(ledger.ghosts.values())
    reports = []
    for job_id in ids:
        accepted = ledger.accepted[job_id]
        tally.completed_twice += accepted > 1
        job = _find(client, job_id)
        if job is None or (accepted and job.state is not State.COMPLETED):
            tally.lost += 1
        elif job.state is State.DEAD:
            tally.dead += 1
        elif job.state is State.COMPLETED:
            tally.completed += 1
            tally.recovered += any(attempt.code in LOST for attempt in job.attempts)
            reports.append(Report.model_validate(job.result))
    return tally, reports


def _find(client: SyncClient, job_id: str) -> Job | None:
    try:
        return client.get(job_id)
    except NotFound:
        return None
