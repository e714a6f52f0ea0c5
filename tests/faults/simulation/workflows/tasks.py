"""A task with steps, as `sublet.steps` carries it out: a kept step is not done again, a sleep or a wait ends the attempt.
And the end of a job that others follow, as `sublet.workflows.following` reports it.
"""

from typing import TYPE_CHECKING

from sublet.errors import JobsError, LeaseLost, NotFound, Unavailable
from sublet.model import Completion, Ending, Failure, Following, Lease, Suspension
from sublet.steps import calls
from sublet.steps.calls import Called, CalledJob
from sublet.workflows import following, storing
from sublet.workflows.storing import Linked
from tests.faults.simulation.actors import BASE, LAYOUT, QUEUES
from tests.faults.simulation.workflows.drawn import CALLED, CALLS, FOLLOWING, SLEEPS, STORIES, WAITS
from tests.faults.simulation.world import Sleep, Strand

if TYPE_CHECKING:
    from tests.faults.simulation.crew import Worker

FOLLOWS = "0-then."
"""How the ids of jobs begin that follow another one. They are not followed by any."""


def carry_out(worker: "Worker", lease: Lease) -> Strand[Ending | str | None]:
    """Go through the steps of a job. Returns the early end of the attempt, `lost`, or None if all steps are done."""
    story = worker.world.choices.pick(f"{lease.id} has the steps", STORIES, 0.6)
    if not story:
        return None
    try:
        kept = (yield from worker.ask(calls.step(BASE, lease, {}))) if lease.attempt > 1 else {}
        for words in story:
            name, _, limit = words.partition(" ")
            if name in CALLS:
                ends = yield from call(worker, lease, name)
                if ends is not None:
                    return ends
                continue
            if name in kept:
                continue
            if name in SLEEPS:
                return Suspension(lease, "sleep", name, float(limit))
            if name in WAITS:
                return Suspension(lease, "signal", name, float(limit) if limit else None)
            yield Sleep(0.05)
            yield from worker.ask(calls.step(BASE, lease, {name: lease.token.encode()}))
    except (LeaseLost, NotFound):
        return "lost"
    except Unavailable:
        return Failure(lease, "Unavailable", "a step could not be kept")
    return None


def call(worker: "Worker", lease: Lease, name: str) -> Strand[Ending | None]:
    """Call another job. Returns None once it is completed, or if its failure is caught; else the end of the attempt."""
    pick = worker.world.choices.pick
    queue = pick(f"{lease.id}: queue of {name}", QUEUES, 0.3)
    rules = pick(f"{lease.id}: rules of {name}", CALLED, 0.5)
    job = LAYOUT.submission("t", b"{}", queue, rules, f"{lease.id}.{name}")
    step = yield from worker.ask(calls.call(BASE, lease, CalledJob(name, job)))
    if isinstance(step, JobsError):
        return Failure(lease, "queue_full", str(step))
    if step.kind == "call":
        return Suspension(lease, "call", name, None)
    is_caught = pick(
        f"{lease.id}, attempt {lease.attempt}: a failure of {name} is caught", (False, True), 0.5
    )
    if Called.of(step.value).state == "completed" or is_caught:
        return None
    return Failure(lease, "JobFailed", f"{name} failed")


def followed(worker: "Worker", ending: Ending) -> Ending:
    """Let other jobs follow a completed one, in some runs."""
    if not isinstance(ending, Completion) or ending.lease.id.startswith(FOLLOWS):
        return ending
    lease, pick = ending.lease, worker.world.choices.pick
    name = f"{lease.id[2:]}.{lease.attempt}"
    what = pick(f"{name} is followed by", FOLLOWING, 0.4)
    jobs = {"nothing": 0, "one": 1, "two": 2, "three": 3, "four": 4}[what.split()[0].rstrip(",")]
    if not jobs:
        return ending
    made = [
        LAYOUT.submission(
            "t", b"{}", pick(f"{name}: queue of {n}", QUEUES, 0.3), "", f"{FOLLOWS[2:]}{name}.{n}"
        )
        for n in range(1, jobs + 2)
    ]
    callback = made[-1] if "callback" in what else None
    return ending._replace(
        following=Following(
            f"0-flow.{name}", tuple(made[:-1]), callback, "run" if "any end" in what else "cancel"
        )
    )


def proceed(worker: "Worker", ending: Completion) -> Strand[str]:
    """Complete a job that others follow; four of them in two calls, as if a call took two. Returns the answer, or a
    refusal.
    """
    assert ending.following
    jobs, callback = ending.following.jobs, ending.following.callback
    linked = [Linked(job) for job in jobs]
    if callback:
        rules = f"on_failure={ending.following.on_failure}"
        linked.append(Linked(callback._replace(rules=rules), [job.id for job in jobs]))
    flow = ending.following.workflow
    if len(jobs) > 3:
        answer = yield from worker.ask(storing.workflow(BASE, flow, "open", linked[:2]))
        if isinstance(answer, str) and not answer.startswith(
            "WRONG_STATE"
        ):  # that may be a repeat, and all is done
            return answer
        linked = linked[2:]
    return (yield from worker.ask(following.proceed(BASE, ending, flow, linked)))
