"""A task with steps, as `sublet.steps` carries it out: a kept step is not done again, a sleep or a wait ends the attempt."""

from typing import TYPE_CHECKING

from sublet.errors import LeaseLost, NotFound, Unavailable
from sublet.model import Ending, Failure, Lease, Suspension
from sublet.steps import calls
from tests.faults.simulation.actors import BASE
from tests.faults.simulation.workflows.drawn import SLEEPS, STORIES, WAITS
from tests.faults.simulation.world import Sleep, Strand

if TYPE_CHECKING:
    from tests.faults.simulation.crew import Worker


def carry_out(worker: "Worker", lease: Lease) -> Strand[Ending | str | None]:
    """Go through the steps of a job. Returns the early end of the attempt, `lost`, or None if all steps are done."""
    story = worker.world.choices.pick(f"{lease.id} has the steps", STORIES, 0.6)
    if not story:
        return None
    try:
        kept = (yield from worker.ask(calls.step(BASE, lease, {}))) if lease.attempt > 1 else {}
        for words in story:
            name, _, limit = words.partition(" ")
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
