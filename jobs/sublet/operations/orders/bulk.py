"""Cancel, retry, promote or erase all jobs that match a filter, a page at a time."""

import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from sublet.errors import Changed, Invalid, Refused
from sublet.model import JobSummary, Page, State
from sublet.operations import job_list
from sublet.protocol import audit_log, keys, server_info, verbs
from sublet.protocol.plan import Plan
from sublet.schedules.durations import EPOCH, MS

PAGE = 200
"""Most jobs that one page changes."""
STATES = {
    "retry": (State.DEAD, State.CANCELLED),
    "cancel": (State.SCHEDULED, State.QUEUED, State.RUNNING),
    "promote": (State.SCHEDULED,),
    "erase": (State.COMPLETED, State.DEAD, State.CANCELLED),
}
"""Order → the states of jobs that it can change."""
USUAL = STATES | {"retry": (State.DEAD,), "cancel": (State.SCHEDULED, State.QUEUED)}
"""Order → the states of jobs that it changes if the filter names none."""
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
    """A filter of jobs: they match every value that is not None."""

    state: State | None = None
    queue: str | None = None
    task: str | None = None
    code: str | None = None
    """The code of a job's last error."""
    message: str | None = None
    """The message of the job's last error; quoted text and numbers in it may differ."""
    tag: str | None = None
    """A tag that the job has."""
    worker: str | None = None
    """The worker that runs the job, or ran its last attempt."""
    since: datetime | None = None
    """The job was submitted then or later."""
    until: datetime | None = None
    """The job was submitted earlier."""
    within: Container[str] | None = None

    def listed(self) -> job_list.Filter:
        """Return the part that a list of jobs can filter by: all but `state` and `message`. Raises Invalid."""
        names = set(self._fields) & set(job_list.Filter._fields)
        found = job_list.Filter(**{name: getattr(self, name) for name in names})
        found.check()
        return found

    def states(self, order: str) -> Sequence[State]:
        """Return the states of jobs that an order looks for. Raises Invalid for a state that it cannot change."""
        if self.state is not None and self.state not in STATES[order]:
            raise Invalid(f"state {self.state}: {order} takes {' or '.join(STATES[order])}")
        return USUAL[order] if self.state is None else (self.state,)

    def words(self) -> str:
        """Return the filter as text for the audit, without the message, which may have private data."""
        given = self._replace(message="…" if self.message else None, within=None)._asdict()
        words = {
            name: value.isoformat() if isinstance(value, datetime) else value for name, value in given.items()
        }
        return " ".join(f"{name}={value}" for name, value in words.items() if value is not None) or "all"

    def takes(self, job: JobSummary, began: datetime) -> bool:
        """Whether a job matches; one that was submitted, or has ended, since the order began does not."""
        if job.submitted_at > began or (job.finished_at is not None and job.finished_at > began):
            return False
        error = job.last_error
        return self.message is None or (
            error is not None and fingerprint(error.message) == fingerprint(self.message)
        )


class OrderOutcome(NamedTuple):
    """What an order did with one job: the answer, or why it was refused. `revision`: the job's when it was read."""

    id: str
    revision: int
    answer: str
    refusal: Refused | None = None


class OrderPage(NamedTuple):
    """What an order did with one page of jobs. If `cursor` is set, another page follows."""

    found: int
    outcomes: Sequence[OrderOutcome] = ()
    cursor: str | None = None
    references: Mapping[str, tuple[bytes, ...]] = MappingProxyType({})
    """Erased job → references to its large payloads, which are to be deleted."""


Order = Callable[[JobSummary], Plan[tuple[str, tuple[bytes, ...]]]]
"""Changes one job; the result is the answer, and references to large payloads that are to be deleted."""


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
    """Change a page of jobs by the order `name`, with one entry in the audit that ends with the outcome;
    without `order`, only count them. Raises Changed, before any change, if their number differs from
    `expected` by over a tenth.
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
    entry = (sections[0][0], name, wanted.words(), wanted.queue or "")
    recorded = keys.new_claim_id()
    if jobs:
        yield from audit_log.record(*entry, f"{len(jobs):,} found", recorded)
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
    if jobs:
        yield from audit_log.record(*entry, _came(outcomes), recorded)
    following = page.cursor and f"{began}@{_closed_up(page.cursor, moved)}"
    return OrderPage(len(jobs), outcomes, following, references)


def _came(outcomes: Sequence[OrderOutcome]) -> str:
    """Return an order's outcome, for the audit: `cancelled 2 of 3`."""
    answers = Counter("refused" if one.refusal else one.answer for one in outcomes)
    refused = answers.pop("refused", 0)
    words = [f"{answer} {n:,}" for answer, n in sorted(answers.items())] or ["done 0"]
    return f"{', '.join(words)} of {len(outcomes):,}" + (f"; refused {refused:,}" if refused else "")


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
    kind, _, queue = structure.partition(":")
    if kind in ("queue", "grouped", State.QUEUED):
        grouped = kind == "grouped"
        moved = [job for job in moved if job.state == State.QUEUED and (job.group is not None) == grouped]
        structure, rest = State.QUEUED.value, [queue] if queue else rest
    left = sum(job.state == structure and (not rest or job.queue == rest[-1]) for job in moved)
    return f"{place}/{max(0, int(offset) - left)}"


VERBS = {"retry": verbs.retry, "cancel": verbs.cancel, "promote": verbs.promote}
