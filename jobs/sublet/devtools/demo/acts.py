"""What the demo does to its workers, as two acts that go on beside each other. Each `yield` lets the others have a look."""

import time
from collections.abc import Callable, Generator

from sublet.client.client import SyncClient
from sublet.devtools.demo.cast import Cast, Stuck
from sublet.devtools.demo.screen import Screen
from sublet.devtools.demo.workers import WorkerProcess
from sublet.errors import NotFound
from sublet.model import Job, State

LEASE = 2.0
"""Seconds that a worker of the demo may be silent: short, for the show."""
CATCH_SECONDS = 10.0
"""How long to try to catch a worker while it holds jobs."""
TAKEOVER_SECONDS = LEASE + 20.0
"""How long it may take until a lease has ended and another worker has started on the job."""
GHOST_SECONDS = 10.0
"""How long a worker that woke up may take to be refused."""
SETTLE = 0.03
"""Seconds between two looks at what a worker holds: what it had sent before it stopped has arrived by then."""

Act = Generator[None, None, None]


class Stage:
    """What the acts can see and do, and how far the work is."""

    def __init__(self, client: SyncClient, cast: Cast, screen: Screen, queue: str) -> None:
        self.client, self.cast, self.screen, self.queue = client, cast, screen, queue
        self.began = time.monotonic()
        self.share = 0.0
        """How much of the work is done, 0 to 1."""

    @property
    def seconds(self) -> float:
        """How long the work has been going on."""
        return time.monotonic() - self.began

    def tell(self, sign: str, words: str) -> None:
        """Say what happened."""
        self.screen.happen(self.seconds, sign, words)

    def held_by(self, worker: WorkerProcess) -> dict[str, int]:
        """The jobs that a worker holds in Redis, and which attempt at each that is."""
        page = self.client.list_jobs(state=State.RUNNING, queue=self.queue, limit=100)
        return {job.id: job.attempt for job in page.jobs if job.worker == worker.name}


def kill(stage: Stage, at: float) -> Act:
    """Kill a worker that holds jobs, once a share of the work is done, and see others take the jobs over."""
    caught = yield from _catch(stage, at)
    if caught:
        worker, held = caught
        worker.kill()
        stage.tell("✗", f"killed {worker} (SIGKILL) while it held {_jobs(held)}")
        yield from _taken_over(stage, worker, held)


def freeze(stage: Stage, at: float) -> Act:
    """Freeze a worker that holds jobs; wake it when others have taken them over, and see that what it says is refused."""
    caught = yield from _catch(stage, at)
    if not caught:
        return
    worker, held = caught
    stage.tell("‖", f"froze {worker} (SIGSTOP) while it held {_jobs(held)}")
    yield from _taken_over(stage, worker, held)
    ghosts, before = stage.cast.ledger.ghosts, stage.cast.ledger.ghosts[worker.number]
    worker.wake()
    stage.tell("▶", f"woke {worker} (SIGCONT): it still believes that it holds {_jobs(held)}")
    refused = yield from _until(lambda: ghosts[worker.number] - before >= len(held), GHOST_SECONDS)
    count = ghosts[worker.number] - before
    if refused or count:
        stage.tell(
            "⊘", f"Redis refused {count} late {'report' if count == 1 else 'reports'} of {worker}: LEASE_LOST"
        )


def _until(condition: Callable[[], bool], seconds: float) -> Generator[None, None, bool]:
    """Let time pass until something is true; False when that takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        yield
    return True


def _catch(stage: Stage, at: float) -> Generator[None, None, tuple[WorkerProcess, dict[str, int]] | None]:
    """Freeze a worker at a moment when it holds jobs that it has started; None if none ever did."""
    while stage.share < at:
        yield
    deadline = time.monotonic() + CATCH_SECONDS
    while stage.share < 1 and time.monotonic() < deadline:
        for worker in stage.cast.up()[:-1]:
            worker.freeze()
            held = _held(stage, worker)
            if held:
                return worker, held
            worker.wake()
        yield
    return None


def _held(stage: Stage, worker: WorkerProcess) -> dict[str, int]:
    """What a frozen worker holds and has started; nothing while that is not certain."""
    held = stage.held_by(worker)
    time.sleep(SETTLE)
    stage.cast.listen()
    started = all((worker.number, job, attempt) in stage.cast.ledger.started for job, attempt in held.items())
    return held if started and held == stage.held_by(worker) else {}


def _taken_over(stage: Stage, worker: WorkerProcess, held: dict[str, int]) -> Act:
    """See, in Redis, that leases ended and who runs the jobs now. Raises Stuck if that does not come to be."""
    since, heirs, codes = stage.seconds, set[str](), set[str]()
    waiting = dict(held)

    def look() -> bool:
        for job_id, attempt in list(waiting.items()):
            job = _get(stage, job_id)
            heir = _heir(job, attempt)
            if heir:
                heirs.add(stage.cast.named(heir))
                codes.update(past.code for past in job.attempts if past.number == attempt)
                del waiting[job_id]
        return not waiting

    if not (yield from _until(look, TAKEOVER_SECONDS)):
        raise Stuck(f"nobody took over {_jobs(waiting)} of {worker} in {TAKEOVER_SECONDS:g} s")
    after, attempt = stage.seconds - since, max(held.values()) + 1
    why = "when the leases had ended" if codes != {"crashed"} else "for its process was seen to be gone"
    stage.tell(
        "↻",
        f"{_and(heirs)} took over {_jobs(held)} of {worker}, {why}, {after:.1f} s later: attempt {attempt}",
    )


def _get(stage: Stage, job_id: str) -> Job:
    try:
        return stage.client.get(job_id)
    except NotFound:
        raise Stuck(f"job {job_id} is gone from Redis") from None


def _heir(job: Job, attempt: int) -> str | None:
    """Who works, or has worked, on the attempt after this one."""
    if job.attempt <= attempt:
        return None
    return job.worker or next((past.worker for past in job.attempts if past.number > attempt), None)


def _and(names: set[str]) -> str:
    """Some names in a sentence."""
    *others, last = sorted(names)
    return f"{', '.join(others)} and {last}" if others else last


def _jobs(jobs: dict[str, int]) -> str:
    return "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
