"""The demo's accidents: one worker is killed, another frozen."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable

from sublet.client.client import Client
from sublet.devtools.demo.audience import LOGS, Audience
from sublet.devtools.demo.ledger import Worker
from sublet.errors import JobsError, NotFound
from sublet.model import Job, State

LEASE = 2.0
"""The lease in seconds; short, so that lost jobs run again soon."""
POLL_SECONDS = 0.05
CATCH_SECONDS = 10.0
TAKEOVER_SECONDS = LEASE + 20.0
GHOST_SECONDS = 10.0
SETTLE = 0.03


class DemoFailed(JobsError):
    """The demo cannot continue."""


class Show:
    """The demo's jobs, workers and screen while the jobs run."""

    def __init__(self, client: Client, audience: Audience, queue: str) -> None:
        self.client, self.audience, self.queue = client, audience, queue
        self.ledger, self.report = audience.ledger, audience.report
        self.share = 0.0
        """The share of the work that is done, 0 to 1."""

    async def held_by(self, worker: Worker) -> dict[str, int]:
        """Return a worker's jobs (id → attempt) among up to 100 that run in the queue."""
        page = await self.client.list_jobs(state=State.RUNNING, queue=self.queue, limit=100)
        return {job.id: job.attempt for job in page.jobs if job.worker == worker.name}


async def kill(show: Show, at: float) -> None:
    """When the share `at` of the work is done, kill a worker that runs jobs, if one is found within 10 s; wait
    until others have taken them over. Raises DemoFailed after 22 s, or if a job is missing.
    """
    caught = await _catch(show, at)
    if caught:
        worker, held = caught
        worker.kill()
        show.report("✗", f"killed {worker} (SIGKILL) while it held {_jobs(held)}")
        await _wait_for_takeover(show, worker, held)


async def freeze(show: Show, at: float) -> None:
    """As `kill`, but freeze the worker; resume it when others have its jobs, and wait up to 10 s for refused
    late reports.
    """
    caught = await _catch(show, at)
    if not caught:
        return
    worker, held = caught
    show.report("‖", f"froze {worker} (SIGSTOP) while it held {_jobs(held)}")
    await _wait_for_takeover(show, worker, held)
    before = worker.ghosts
    worker.resume()
    show.report("▶", f"resumed {worker} (SIGCONT): it goes on with {_jobs(held)} whose leases it has lost")

    async def all_refused() -> bool:
        return worker.ghosts - before >= len(held)

    await wait_until(all_refused, GHOST_SECONDS)
    count = worker.ghosts - before
    if count:
        reports = "report" if count == 1 else "reports"
        show.report("⊘", f"Redis refused {count} late {reports} of {worker}: LEASE_LOST")


async def wait_until(condition: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Return True once the condition holds, False after `seconds`."""
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


async def _catch(show: Show, at: float) -> tuple[Worker, dict[str, int]] | None:
    deadline = math.inf
    while show.share < 1 and time.monotonic() < deadline:
        await asyncio.sleep(POLL_SECONDS)
        if show.share < at:
            continue
        deadline = min(deadline, time.monotonic() + CATCH_SECONDS)
        for worker in show.ledger.active()[:-1]:
            worker.freeze()
            held = await _held_and_started(show, worker)
            if held:
                return worker, held
            worker.resume()
    return None


async def _held_and_started(show: Show, worker: Worker) -> dict[str, int]:
    held = await show.held_by(worker)
    await asyncio.sleep(SETTLE)
    started = all((worker.pid, job, attempt) in show.ledger.started for job, attempt in held.items())
    return held if started and held == await show.held_by(worker) else {}


async def _wait_for_takeover(show: Show, worker: Worker, held: dict[str, int]) -> None:
    since = time.monotonic()
    heirs, codes = set[str](), set[str]()
    waiting = dict(held)

    async def all_taken_over() -> bool:
        for job_id, attempt in list(waiting.items()):
            job = await _get(show, job_id)
            heir = _worker_after(job, attempt)
            if heir:
                heirs.add(show.ledger.label(heir))
                codes.update(past.code for past in job.attempts if past.number == attempt)
                del waiting[job_id]
        return not waiting

    if not await wait_until(all_taken_over, TAKEOVER_SECONDS):
        raise DemoFailed(
            f"no worker took over {_jobs(waiting)} of {worker} in {TAKEOVER_SECONDS:g} s; see {LOGS['worker']}"
        )
    after, attempt = time.monotonic() - since, max(held.values()) + 1
    why = "the leases had ended" if codes != {"crashed"} else "that process was gone"
    show.report(
        "↻",
        f"{after:.1f} s later {_join(heirs)} took over {worker}'s {_jobs(held)} (attempt {attempt}): {why}",
    )


async def _get(show: Show, job_id: str) -> Job:
    try:
        return await show.client.get(job_id)
    except NotFound:
        raise DemoFailed(f"job {job_id} is missing in Redis") from None


def _worker_after(job: Job, attempt: int) -> str | None:
    if job.attempt <= attempt:
        return None
    return job.worker or next((past.worker for past in job.attempts if past.number > attempt), None)


def _join(names: set[str]) -> str:
    *others, last = sorted(names)
    return f"{', '.join(others)} and {last}" if others else last


def _jobs(jobs: dict[str, int]) -> str:
    return "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
