"""Orders for all jobs of a filter, in pages. Each job is ordered at the revision that the page read."""

from collections.abc import Callable, Container, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from sublet.errors import Changed, Invalid, Refused
from sublet.model import JobSummary, Page, State
from sublet.operations import job_list
from sublet.protocol import verbs
from sublet.protocol.plan import Plan

PAGE = 200
"""Most jobs of one page. It examines up to 1,000."""
STATES = {
    "retry": (State.DEAD, State.CANCELLED),
    "cancel": (State.SCHEDULED, State.QUEUED, State.RUNNING),
    "promote": (State.SCHEDULED,),
    "erase": (State.COMPLETED, State.DEAD, State.CANCELLED),
}
"""Order → the states that it takes."""
USUAL = STATES | {"retry": (State.DEAD,), "cancel": (State.SCHEDULED, State.QUEUED)}
"""Order → the states of a selection that names none."""


class Selection(NamedTuple):
    """The jobs of an order: each given value must fit."""

    state: State | None = None
    queue: str | None = None
    task: str | None = None
    code: str | None = None
    """The code of a job's last error."""
    within: Container[str] | None = None

    def states(self, order: str) -> Sequence[State]:
        """Return the states to search. Raises Invalid for one that the order does not take."""
        if self.state is not None and self.state not in STATES[order]:
            raise Invalid(f"state {self.state}: {order} takes {' or '.join(STATES[order])}")
        return USUAL[order] if self.state is None else (self.state,)


class Outcome(NamedTuple):
    """One job's answer, or refusal, at the revision that was seen."""

    id: str
    revision: int
    answer: str
    refusal: Refused | None = None


class OrderPage(NamedTuple):
    """One page of an order. While `cursor` is set, another page follows."""

    found: int
    outcomes: Sequence[Outcome] = ()
    cursor: str | None = None
    references: Mapping[str, tuple[bytes, ...]] = MappingProxyType({})
    """Erased jobs with references to large payloads."""


Order = Callable[[JobSummary], Plan[tuple[str, tuple[bytes, ...]]]]
"""Carries the order out for one job. Returns the answer, and references that are left."""


def is_off(found: int, expected: int) -> bool:
    """Whether a number differs from the expected one by more than a tenth."""
    return abs(found - expected) * 10 > expected


def order_page(
    sections: job_list.Sections,
    wanted: Selection,
    order: Order | None,
    expected: int | None,
    cursor: str | None,
) -> Plan[OrderPage]:
    """Give an order to one page of jobs; without `order`, count them. Raises Changed, without effect, if the number is
    off from `expected` by more than a tenth.
    """
    taken = job_list.Filter(queue=wanted.queue, task=wanted.task, within=wanted.within)
    page: Page = yield from job_list.list_jobs(sections, taken, PAGE, cursor)
    jobs = [job for job in page.jobs if wanted.code is None or _code(job) == wanted.code]
    if expected is not None and is_off(len(jobs), expected):
        raise Changed(
            f"{len(jobs):,} jobs were found, and {expected:,} expected: nothing was done: count them again"
        )
    if order is None:
        return OrderPage(len(jobs), cursor=page.cursor)
    outcomes, moved, references = list[Outcome](), list[JobSummary](), dict[str, tuple[bytes, ...]]()
    for job in jobs:
        try:
            answer, left = yield from order(job)
        except Refused as error:
            outcomes.append(Outcome(job.id, job.revision, "", error))
            continue
        outcomes.append(Outcome(job.id, job.revision, answer))
        moved += [job] if answer != "requested" else []
        references |= {job.id: left} if left else {}
    return OrderPage(len(jobs), outcomes, _closed_up(page.cursor, moved), references)


def _code(job: JobSummary) -> str | None:
    return job.last_error.code if job.last_error else None


def _closed_up(cursor: str | None, moved: Sequence[JobSummary]) -> str | None:
    """Return a cursor, with the jobs that have left its structure subtracted from its offset."""
    if cursor is None:
        return None
    place, _, offset = cursor.rpartition("/")
    _, structure, *rest = place.split("/")
    if structure.startswith("queue:"):
        structure, rest = State.QUEUED.value, [structure.removeprefix("queue:")]
    left = sum(job.state == structure and (not rest or job.queue == rest[-1]) for job in moved)
    return f"{place}/{max(0, int(offset) - left)}"


VERBS = {"retry": verbs.retry, "cancel": verbs.cancel, "promote": verbs.promote}
