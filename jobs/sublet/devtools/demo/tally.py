"""Count the outcomes of the demo's jobs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from sublet.client.client import Client
from sublet.devtools.demo.ledger import Ledger
from sublet.devtools.demo.tasks import Report
from sublet.errors import NotFound
from sublet.model import Job, State

LOST = ("lease_expired", "crashed")
AT_ONCE = 100


@dataclass
class Tally:
    """Jobs of the demo, by outcome."""

    submitted: int
    completed: int = 0
    dead: int = 0
    lost: int = 0
    """Jobs missing in Redis, or not completed there though a completion was accepted."""
    recovered: int = 0
    """Jobs completed after the worker of an earlier attempt died or was frozen."""
    refused: int = 0
    """Attempts whose heartbeat or outcome was refused: the lease was lost."""
    completed_twice: int = 0
    seconds: float = 0.0

    def words(self) -> list[str]:
        """Return the numbers with their names."""
        named = {"late reports refused": self.refused, "completed twice": self.completed_twice}
        plain = ("submitted", "completed", "dead", "lost", "recovered")
        numbers = {**{name: getattr(self, name) for name in plain}, **named}
        return [*(f"{name} {number:,}" for name, number in numbers.items()), f"{self.seconds:.1f} s"]

    def complaints(self) -> list[str]:
        """Return what failed or was not shown; empty if all is well."""
        complaints = []
        if self.lost:
            complaints.append(f"{self.lost:,} jobs were lost")
        if self.completed_twice:
            complaints.append(f"{self.completed_twice:,} jobs were completed twice")
        if self.completed + self.dead != self.submitted:
            complaints.append(f"{self.submitted - self.completed - self.dead:,} jobs have not ended")
        if not self.recovered:
            complaints.append("not shown: no job was recovered from a dead or frozen worker")
        if not self.refused:
            complaints.append("not shown: no late report was refused")
        return complaints


async def count(
    client: Client, ids: Sequence[str], ledger: Ledger, seconds: float
) -> tuple[Tally, list[Report]]:
    """Compare each job in Redis with the ledger. Return the totals and the completed jobs' results."""
    tally = Tally(len(ids), seconds=round(seconds, 1))
    tally.refused = sum(worker.ghosts for worker in ledger.workers)
    reports = []
    for job_id, job in zip(ids, await _find_all(client, ids), strict=True):
        accepted = ledger.accepted[job_id]
        tally.completed_twice += accepted > 1
        if job is None or (accepted and job.state is not State.COMPLETED):
            tally.lost += 1
        elif job.state is State.DEAD:
            tally.dead += 1
        elif job.state is State.COMPLETED:
            tally.completed += 1
            tally.recovered += any(attempt.code in LOST for attempt in job.attempts)
            reports.append(Report.model_validate(job.result))
    return tally, reports


async def _find_all(client: Client, ids: Sequence[str]) -> list[Job | None]:
    found: list[Job | None] = []
    for i in range(0, len(ids), AT_ONCE):
        found += await asyncio.gather(*(_find(client, each) for each in ids[i : i + AT_ONCE]))
    return found


async def _find(client: Client, job_id: str) -> Job | None:
    try:
        return await client.get(job_id)
    except NotFound:
        return None
