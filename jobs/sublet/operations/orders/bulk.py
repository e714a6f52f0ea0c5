"""Orders for all jobs of a filter, in pages. Each job is ordered at the revision that the page read."""

import re
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from sublet.errors import Changed, Invalid, Refused
from sublet.model import JobSummary, Page, State
from sublet.operations import job_list
from sublet.protocol import audit_log, server_info, verbs
from sublet.protocol.plan import Plan
from sublet.schedules.durations import EPOCH, MS

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
_CURSOR = re.compile(r"([0-9]{1,14})@(.+)")
_CHANGING = tuple(
    re.compile(pattern, re.ASCII | re.IGNORECASE)
    for pattern in (
        r"""(["'`])(?:(?!\1)[^\n\r\u2028\u2029]){1,200}\1""",
        r"\b[0-9a-f]{8,}\b|\b0x[0-9a-f]+\b|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        r"\d+(\.\d+)?",
    )
)
"""The same patterns are in the function `fingerprint` of the dashboard's `format.js`."""


def fingerprint(message: str) -> str:
    """Return an error's message without quoted text, hexadecimal words and numbers."""
    for pattern in _CHANGING:
        message = pattern.sub("…", message)
    return message


class Selection(NamedTuple):
    """The jobs of an order: each given value must fit."""

    state: State | None = None
    queue: str | None = None
    task: str | None = None
    code: str | None = None
    """The code of a job's last error."""
    message: str | None = None
    """The last error's message; numbers and quoted text in it may be others."""
    tag: str | None = None
    """One of its tags."""
    worker: str | None = None
    """Of the running, else of the last attempt."""
    since: datetime | None = None
    """Submitted then or later."""
    until: datetime | None = None
    """Submitted earlier."""
    within: Container[str] | None = None

    def listed(self) -> job_list.Filter:
        """Return the filter of a list, without the message. Raises Invalid."""
        names = set(self._fields) & set(job_list.Filter._fields)
        found = job_list.Filter(**{name: getattr(self, name) for name in names})
        found.check()
        return found

    def states(self, order: str) -> Sequence[State]:
        """Return the states to search. Raises Invalid for one that the order does not take."""
        if self.state is not None and self.state not in STATES[order]:
            raise Invalid(f"state {self.state}: {order} takes {' or '.join(STATES[order])}")
        return USUAL[order] if self.state is None else (self.state,)

    def words(self) -> str:
        """Return the filter as text, without the message, which may have data of jobs."""
        given = self._replace(message="…" if self.message else None, within=None)._asdict()
        words = {
            name: value.isoformat() if isinstance(value, datetime) else value for name, value in given.items()
        }
        return " ".join(f"{name}={value}" for name, value in words.items() if value is not None) or "all"

    def takes(self, job: JobSummary, began: datetime) -> bool:
        """Whether a job is ordered; not if it was submitted or ended since the order began."""
        if job.submitted_at > began or (job.finished_at is not None and job.finished_at > began):
            return False
        error = job.last_error
        return self.message is None or (
            error is not None and fingerprint(error.message) == fingerprint(self.message)
        )


class OrderOutcome(NamedTuple):
    """One job's answer, or refusal, at the revision that was seen."""

    id: str
    revision: int
    answer: str
    refusal: Refused | None = None


class OrderPage(NamedTuple):
    """One page of an order. While `cursor` is set, another page follows."""

    found: int
    outcomes: Sequence[OrderOutcome] = ()
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
    name: str,
    order: Order | None,
    expected: int | None,
    cursor: str | None,
) -> Plan[OrderPage]:
    """Give the order `name` to one page of jobs, one entry of the audit; without `order`, count them. Raises Changed,
    without effect, if the number is off by more than a tenth.
    """
    began, place = yield from _began(cursor)
    page: Page = yield from job_list.list_jobs(sections, wanted.listed(), PAGE, place)
    jobs = [job for job in page.jobs if wanted.takes(job, EPOCH + began * MS)]
    if expected is not None and is_off(len(jobs), expected):
        raise Changed(
            f"{len(jobs):,} jobs were found, and {expected:,} expected: nothing was done: count them again"
        )
    if order is None:
        return OrderPage(len(jobs), cursor=page.cursor and f"{began}@{page.cursor}")
    if jobs:
        found = f"{len(jobs):,} jobs found" if len(jobs) != 1 else "1 job found"
        yield from audit_log.record(sections[0][0], name, wanted.words(), wanted.queue or "", found)
    outcomes, moved, references = list[OrderOutcome](), list[JobSummary](), dict[str, tuple[bytes, ...]]()
    for job in jobs:
        try:
            answer, left = yield from order(job)
        except Refused as error:
            outcomes.append(OrderOutcome(job.id, job.revision, "", error))
            continue
        outcomes.append(OrderOutcome(job.id, job.revision, answer))
        moved += [job] if answer != "requested" else []
        references |= {job.id: left} if left else {}
    following = page.cursor and f"{began}@{_closed_up(page.cursor, moved)}"
    return OrderPage(len(jobs), outcomes, following, references)


def _began(cursor: str | None) -> Plan[tuple[int, str | None]]:
    if cursor is None:
        now: datetime = yield server_info.clock()
        return (now - EPOCH) // MS, None
    found = _CURSOR.fullmatch(cursor)
    if not found:
        raise Invalid(f"cursor {cursor[:80]!r}: use the cursor of the page before")
    return int(found[1]), found[2]


def _closed_up(cursor: str, moved: Sequence[JobSummary]) -> str:
    place, _, offset = cursor.rpartition("/")
    _, structure, *rest = place.split("/")
    if structure.startswith("queue:"):
        structure, rest = State.QUEUED.value, [structure.removeprefix("queue:")]
    left = sum(job.state == structure and (not rest or job.queue == rest[-1]) for job in moved)
    return f"{place}/{max(0, int(offset) - left)}"


VERBS = {"retry": verbs.retry, "cancel": verbs.cancel, "promote": verbs.promote}
