"""The demo's accidents: one worker is killed, another frozen. The demo's loop advances each generator."""

import time
from collections.abc import Callable, Generator

from sublet.client.client import SyncClient
from sublet.devtools.demo.screen import Screen
from sublet.devtools.demo.worker_group import DemoFailed, WorkerGroup
from sublet.devtools.demo.worker_process import WorkerProcess
from sublet.errors import NotFound
from sublet.model import Job, State

LEASE = 2.0
"""In seconds; short, so that recovery is quick."""
CATCH_SECONDS = 10.0
"""For catching a worker while it holds jobs."""
TAKEOVER_SECONDS = LEASE + 20.0
"""For other workers to take over its jobs, lease included."""
GHOST_SECONDS = 10.0
"""For the refusal of a resumed worker's reports."""
SETTLE = 0.03
"""Seconds for commands sent before the freeze to reach Redis."""

Accident = Generator[None, None, None]


class Show:
    """A running demo."""

    def __init__(self, client: SyncClient, group: WorkerGroup, screen: Screen, queue: str) -> None:
        self.client, self.group, self.screen, self.queue = client, group, screen, queue
        self.began = time.monotonic()
        self.share = 0.0
        """The share of the work that is done, 0 to 1."""

    @property
    def seconds(self) -> float:
        """Seconds since the first submit."""
        return time.monotonic() - self.began

    def report(self, sign: str, words: str) -> None:
        """Print an event."""
        self.screen.add_event(self.seconds, sign, words)

    def held_by(self, worker: WorkerProcess) -> dict[str, int]:
        """Return the jobs that a worker holds in Redis, with the attempt's number."""
        page = self.client.list_jobs(state=State.RUNNING, queue=self.queue, limit=100)
        return {job.id: job.attempt for job in page.jobs if job.worker == worker.name}


def kill(show: Show, at: float) -> Accident:
    """After this share of the work, kill a worker that holds jobs, and wait until others have these."""
    caught = yield from _catch(show, at)
    if caught:
        worker, held = caught
        worker.kill()
        show.report("✗", f"killed {worker} (SIGKILL) while it held {_jobs(held)}")
        yield from _wait_for_takeover(show, worker, held)


def freeze(show: Show, at: float) -> Accident:
    """Freeze a worker that holds jobs, resume it when others have these, and wait for the refusal of its
    reports.
    """
    caught = yield from _catch(show, at)
    if not caught:
        return
    worker, held = caught
    show.report("‖", f"froze {worker} (SIGSTOP) while it held {_jobs(held)}")
    yield from _wait_for_takeover(show, worker, held)
    ghosts = show.group.ledger.ghosts
    before = ghosts[worker.number]
    worker.resume()
    show.report("▶", f"resumed {worker} (SIGCONT): it goes on with {_jobs(held)} whose leases it has lost")
    refused = yield from _wait_until(lambda: ghosts[worker.number] - before >= len(held), GHOST_SECONDS)
    count = ghosts[worker.number] - before
    if refused or count:
        reports = "report" if count == 1 else "reports"
        show.report("⊘", f"Redis refused {count} late {reports} of {worker}: LEASE_LOST")


def _wait_until(condition: Callable[[], bool], seconds: float) -> Generator[None, None, bool]:
    """Yield until the condition holds. Return False at the timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        yield
    return True


def _catch(show: Show, at: float) -> Generator[None, None, tuple[WorkerProcess, dict[str, int]] | None]:
    """Freeze a worker while it holds started jobs. Return None at the timeout."""
    while show.share < at:
        yield
    deadline = time.monotonic() + CATCH_SECONDS
    while show.share < 1 and time.monotonic() < deadline:
        for worker in show.group.active()[:-1]:
            worker.freeze()
            held = _held_and_started(show, worker)
            if held:
                return worker, held
            worker.resume()
        yield
    return None


def _held_and_started(show: Show, worker: WorkerProcess) -> dict[str, int]:
    """Return the started jobs of a frozen worker; empty while that is uncertain."""
    held = show.held_by(worker)
    time.sleep(SETTLE)
    show.group.read_events()
    started = all((worker.number, job, attempt) in show.group.ledger.started for job, attempt in held.items())
    return held if started and held == show.held_by(worker) else {}


def _wait_for_takeover(show: Show, worker: WorkerProcess, held: dict[str, int]) -> Accident:
    """Wait for a later attempt of each job, and report its worker. Raises DemoFailed."""
    since = show.seconds
    heirs, codes = set[str](), set[str]()
    waiting = dict(held)

    def all_taken_over() -> bool:
        for job_id, attempt in list(waiting.items()):
            job = _get(show, job_id)
            heir = _worker_after(job, attempt)
            if heir:
                heirs.add(show.group.label(heir))
                codes.update(past.code for past in job.attempts if past.number == attempt)
                del waiting[job_id]
        return not waiting

    if not (yield from _wait_until(all_taken_over, TAKEOVER_SECONDS)):
        raise DemoFailed(f"no worker took over {_jobs(waiting)} of {worker} in {TAKEOVER_SECONDS:g} s")
    after, attempt = show.seconds - since, max(held.values()) + 1
    why = "the leases had ended" if codes != {"crashed"} else "that process was gone"
    show.report(
        "↻",
        f"{after:.1f} s later {_join(heirs)} took over {worker}'s {_jobs(held)} (attempt {attempt}): {why}",
    )


def _get(show: Show, job_id: str) -> Job:
    try:
        return show.client.get(job_id)
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
