"""Cancel, retry, promote or erase all jobs that match a filter, a page at a time."""

import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from sublet.errors import Changed, Invalid, NotFound, Refused, WrongState
from sublet.model import JobSummary, Page, State
from sublet.operations import job_list
from sublet.protocol import audit_log, keys, reads, server_info, verbs
from sublet.protocol.person import person
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call
from sublet.schedules.durations import EPOCH, MS
from sublet.workflows import members, storing

PAGE = 200
"""Most jobs that one page changes."""
LOOKS = 5
SKIPPED = "skipped"
"""Outcome in the audit: the job has changed or gone since the count or list."""
STATES = {
    "retry": (State.DEAD, State.CANCELLED),
    "cancel": (State.SCHEDULED, State.QUEUED, State.RUNNING),
    "promote": (State.SCHEDULED,),
    "erase": (State.COMPLETED, State.DEAD, State.CANCELLED),
}
"""Order → the states of jobs that it can change."""
USUAL = STATES | {"retry": (State.DEAD,), "cancel": (State.SCHEDULED, State.QUEUED)}
"""Order → the states of jobs that it changes if the filter names none."""
CASCADES = ("upstream", "unsealed")
"""Error codes of jobs that were cancelled with a job that they waited for, or an unsealed workflow."""
_CURSOR = re.compile(r"([0-9]{1,14})/([0-9]{1,10})/([A-Za-z0-9_-]{22})@(.+)")
_COUNTS = re.compile(r"([a-z]+) ([0-9,]+)")
_CHANGING = tuple(
    re.compile(pattern, re.ASCII | re.IGNORECASE)
    for pattern in (
        r"""(["'`])(?:(?!\1)[^\n\r\u2028\u2029]){1,200}\1""",
        r"\b[0-9a-f]{8,}\b|\b0x[0-9a-f]+\b|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        r"\d+(\.\d+)?",
    )
)
"""As in `fingerprint` of the dashboard's `format.js`."""


def fingerprint(message: str) -> str:
    """Return an error's message with `…` in place of quoted text, numbers, and hexadecimal words
    (from 8 digits, or with 0x)."""
    for pattern in _CHANGING:
        message = pattern.sub("…", message)
    return message


class Selection(NamedTuple):
    """A filter of jobs: they match every value that is not None. `within`: only in these queues."""

    state: State | None = None
    queue: str | None = None
    task: str | None = None
    code: str | None = None
    """The code of a job's last error."""
    message: str | None = None
    """The message of the job's last error; quoted text and numbers in it may differ."""
    tag: str | None = None
    """One of the job's tags."""
    worker: str | None = None
    """The worker that runs the job, or ran its last attempt."""
    since: datetime | None = None
    """The job was submitted then or later."""
    until: datetime | None = None
    """The job was submitted earlier."""
    workflow: str | None = None
    """The id of the job's workflow."""
    within: Container[str] | None = None

    def listed(self) -> job_list.Filter:
        """Return the filter for a list of jobs, which lacks `message` and, without a workflow, `state`. Raises Invalid."""
        names = set(self._fields) & set(job_list.Filter._fields)
        found = job_list.Filter(**{name: getattr(self, name) for name in names})
        found.check()
        return found if self.workflow is None or self.state is None else found._replace(states=(self.state,))

    def states(self, order: str) -> Sequence[State]:
        """Return the states of the jobs to change: `state`; if it is None, the order's USUAL states, or for a workflow
        its STATES. Raises Invalid if the order cannot change `state`.
        """
        if self.state is not None and self.state not in STATES[order]:
            raise Invalid(
                f"state {self.state}: use {' or '.join(STATES[order])}: {order} changes no other jobs"
            )
        usual = USUAL if self.workflow is None else STATES
        return usual[order] if self.state is None else (self.state,)

    def words(self) -> str:
        """Return the filter as text for the audit: `all` without values; `…` for the message, which may be private."""
        given = self._replace(message="…" if self.message else None, within=None)._asdict()
        words = {
            name: value.isoformat() if isinstance(value, datetime) else value for name, value in given.items()
        }
        return " ".join(f"{name}={value}" for name, value in words.items() if value is not None) or "all"

    def takes(self, job: JobSummary, began: datetime) -> bool:
        """Whether `message` matches a job that was neither submitted, nor has ended, since the order began.

        Other values are not compared.
        """
        if job.submitted_at > began or (job.finished_at is not None and job.finished_at > began):
            return False
        error = job.last_error
        return self.message is None or (
            error is not None and fingerprint(error.message) == fingerprint(self.message)
        )


class OrderOutcome(NamedTuple):
    """What an order did with one job: the `answer`; if this is empty, `refusal` is why the order was refused."""

    id: str
    revision: int
    answer: str
    refusal: Refused | None = None


class OrderPage(NamedTuple):
    """What an order did with one page of jobs. If `cursor` is set, another page follows."""

    found: int
    counted_at: datetime
    """Jobs that were submitted, or have ended, after this moment were left out."""
    outcomes: Sequence[OrderOutcome] = ()
    cursor: str | None = None
    references: Mapping[str, tuple[bytes, ...]] = MappingProxyType({})
    """Id of an erased job → references to its large payload and result, which the caller deletes."""


Order = Callable[[JobSummary, str], Plan[tuple[str, tuple[bytes, ...]]]]
"""Changes a job by the order of this id; returns the answer, and references to large payloads to delete."""


class _Course(NamedTuple):
    """How far an order has come: when it, or its count, began (ms); jobs found; id; place in the list."""

    began: int
    found: int
    order: str
    place: str | None = None

    def cursor(self) -> str | None:
        return f"{self.began}/{self.found}/{self.order}@{self.place}" if self.place else None


def order_page(
    sections: job_list.Sections,
    wanted: Selection,
    name: str,
    order: Order | None,
    expected: int | None,
    cursor: str | None,
    counted_at: datetime | None,
) -> Plan[OrderPage]:
    """Change a page of jobs by the order `name`; without `order`, only count them. The audit has one entry for
    all pages. A cancel also closes an open workflow.

    Raises Changed, before the page changes a job, if the pages have found over a tenth more jobs than `expected`;
    Invalid for an unknown cursor; NotFound for an unknown workflow; WrongState to retry a cancelled one.
    """
    course = yield from _course(cursor, counted_at)
    if wanted.workflow is not None and wanted.within is None and cursor is None:
        yield from _enter(sections, wanted, name if order else "", expected, course.place)
    began = EPOCH + course.began * MS
    page: Page = yield from job_list.list_jobs(sections, wanted.listed(), PAGE, course.place, is_rising=True)
    jobs = [*{job.id: job for job in page.jobs if wanted.takes(job, began)}.values()]
    jobs = (yield from _causes(sections[0][0], jobs)) if name == "retry" and wanted.workflow else jobs
    course = course._replace(found=course.found + len(jobs), place=page.cursor)
    _stop_at_more(course.found, course.found - len(jobs), expected)
    if order is None:
        return OrderPage(len(jobs), began, cursor=course.cursor())
    entry = (sections[0][0], name, wanted.words(), wanted.queue or "")
    so_far = yield from _recorded(entry[0], course.order if cursor else "")
    is_lost = course.found > len(jobs) and not so_far  # the audit has no longer the entry of earlier pages
    asked = len(jobs) if is_lost else max(expected or 0, course.found)
    if jobs:
        words = f"{_words(so_far, asked)}; {len(jobs):,} more found" if so_far else _found(len(jobs), asked)
        yield from audit_log.record(*entry, words, course.order)
    give = partial(_insist, order, sections[0][0]) if wanted.workflow else order
    outcomes, references = yield from _give(give, jobs, course.order)
    words_of = [_outcome(name, one) for one in outcomes]
    moved = [job for job, word in zip(jobs, words_of, strict=True) if word not in ("requested", "refused")]
    so_far.update(words_of)
    if asked:
        words = _words(so_far, asked, is_over=page.cursor is None)
        yield from audit_log.record(*entry, words, course.order)
    place = page.cursor and _closed_up(page.cursor, moved)
    return OrderPage(len(jobs), began, outcomes, course._replace(place=place).cursor(), references)


def _stop_at_more(found: int, before: int, expected: int | None) -> None:
    if expected is not None and found * 10 > expected * 11:
        raise Changed(
            f"{found:,} jobs were found, and {expected:,} expected: "
            f"{f'stopped after {before:,}' if before else 'nothing was done'}: count them again"
        )


def _enter(
    sections: job_list.Sections, wanted: Selection, name: str, expected: int | None, place: str | None
) -> Plan[None]:
    """Cancel an open workflow if the order `name` is `cancel` (empty: a count). Raises NotFound; Changed as
    `order_page`; WrongState to retry a cancelled one.
    """
    base, workflow_id = sections[0][0], wanted.workflow or ""
    state: str = yield members.state(base, workflow_id)
    if name == "cancel" and state == "open":
        if expected is not None:  # the close itself cancels jobs
            page: Page = yield from job_list.list_jobs(sections, wanted.listed(), PAGE, place, is_rising=True)
            _stop_at_more(len(page.jobs), 0, expected)
        yield storing.workflow(base, workflow_id, "cancel")
    if name == "retry" and state == "cancelled":
        raise WrongState(
            f"workflow {workflow_id} was cancelled before all its jobs were stored: store it again as a new one"
        )


def _causes(base: str, jobs: Sequence[JobSummary]) -> Plan[list[JobSummary]]:
    """Return these jobs without those that the retry of their upstream brings back, and those whose workflow
    was never sealed.
    """
    some = [job.id for job in jobs if _cause(job) in CASCADES]
    others = (yield from members.brought_back(base, some)) if some else set[str]()
    return [job for job in jobs if job.id not in others]


def _insist(order: Order, base: str, job: JobSummary, order_id: str) -> Plan[tuple[str, tuple[bytes, ...]]]:
    """Change a job at its present revision. `unchanged`: its state has changed by itself."""
    for _ in range(LOOKS):
        try:
            return (yield from order(job, order_id))
        except WrongState:
            return "unchanged", ()
        except Changed:
            found: list[JobSummary] = yield reads.summaries(base, [job.id])
            job = found[0] if found else job
    return (yield from order(job, order_id))


def _give(
    order: Order, jobs: Sequence[JobSummary], order_id: str
) -> Plan[tuple[list[OrderOutcome], dict[str, tuple[bytes, ...]]]]:
    outcomes, references = list[OrderOutcome](), dict[str, tuple[bytes, ...]]()
    for job in jobs:
        try:
            answer, left = yield from order(job, order_id)
        except Refused as error:
            outcomes.append(OrderOutcome(job.id, job.revision, "", error))
            continue
        outcomes.append(OrderOutcome(job.id, job.revision, answer))
        references |= {job.id: left} if left else {}
    return outcomes, references


def _outcome(order: str, one: OrderOutcome) -> str:
    gone = (Changed, NotFound, WrongState) if order in ("retry", "cancel") else (Changed, NotFound)
    return one.answer if one.refusal is None else SKIPPED if isinstance(one.refusal, gone) else "refused"


def _found(found: int, asked: int) -> str:
    return f"{found:,} found" if found == asked else f"{found:,} of {asked:,} found"


def _words(counts: Counter[str], asked: int, *, is_over: bool = False) -> str:
    """For the audit: `cancelled 2 of 4; skipped 1; refused 1`."""
    answers = [
        f"{answer} {n:,}" for answer, n in sorted(counts.items()) if answer not in (SKIPPED, "refused")
    ]
    skipped = max(counts[SKIPPED], asked - counts.total() + counts[SKIPPED] if is_over else 0)
    words = [f"{', '.join(answers) or 'done 0'} of {asked:,}"]
    words += [f"{name} {n:,}" for name, n in ((SKIPPED, skipped), ("refused", counts["refused"])) if n]
    return "; ".join(words if is_over else [*words, "not finished"])


def _recorded(base: str, order: str) -> Plan[Counter[str]]:
    words: str = (yield audit_log.outcome(base, order)) if order and person() else ""
    numbers = {word: int(number.replace(",", "")) for word, number in _COUNTS.findall(words) if word != "of"}
    return Counter({word: number for word, number in numbers.items() if number})


def _course(cursor: str | None, counted_at: datetime | None) -> Plan[_Course]:
    if cursor is None:
        now: datetime = yield server_info.clock()
        began = min(now, counted_at) if counted_at else now
        return _Course((began - EPOCH) // MS, 0, keys.new_claim_id())
    found = _CURSOR.fullmatch(cursor)
    if not found:
        raise Invalid(f"cursor {cursor[:80]!r}: use the cursor of the page before")
    return _Course(int(found[1]), int(found[2]), found[3], found[4])


def give(order: str, wanted: Selection, base: str, job: JobSummary, order_id: str) -> Plan[str]:
    """Give an order, not `erase`, to one job; return the answer. `cascaded`: cancelled with another job."""
    is_whole = order in ("retry", "cancel") and wanted.workflow is not None
    verb = partial(VERBS[order], how="all") if is_whole else VERBS[order]
    try:
        answer: str = yield verb(base, job.id, job.revision, order=order_id)
        return answer
    except WrongState:
        found: list[JobSummary] = (yield reads.summaries(base, [job.id])) if order == "cancel" else []
        if any(one.state is State.CANCELLED and _cause(one) in CASCADES for one in found):
            return "cascaded"
        raise


def _cause(job: JobSummary) -> str:
    return job.last_error.code if job.last_error else ""


def _closed_up(cursor: str, moved: Sequence[JobSummary]) -> str:
    place, _, offset = cursor.rpartition("/")
    _, structure, *rest = place.split("/")
    if structure.startswith(members.STRUCTURE):  # the place is an id
        return cursor
    kind, _, queue = structure.partition(":")
    if kind in ("queue", "grouped", State.QUEUED):
        grouped = kind == "grouped"
        moved = [job for job in moved if job.state == State.QUEUED and (job.group is not None) == grouped]
        structure, rest = State.QUEUED.value, [queue] if queue else rest
    left = sum(job.state == structure and (not rest or job.queue == rest[-1]) for job in moved)
    return f"{place}/{max(0, int(offset) - left)}"


VERBS: dict[str, Callable[..., Call[str]]] = {
    "retry": verbs.retry,
    "cancel": verbs.cancel,
    "promote": verbs.promote,
}
