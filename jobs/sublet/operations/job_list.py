"""List jobs in pages. A page examines a bounded number of jobs, and of names of queues."""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

from sublet.errors import Invalid, did_you_mean
from sublet.model import JobSummary, Page, State
from sublet.options import check_group, check_tags
from sublet.protocol import keys, queue_names, reads, tag_index
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call
from sublet.workflows import members

EXAMINED = 1000
SOME = 100
QUEUED, GROUPED = State.QUEUED.value, "grouped"
ALL_QUEUES = {QUEUED: "queue", GROUPED: "grouped"}
"""The queued jobs of all queues, without and with a group → the word after the base in the sorted sets' keys."""
TAG = "tag:"

_NUMBER = re.compile(r"[0-9]{1,20}")

Sections = Sequence[tuple[str, str]]
"""What a list reads, in order: partitions (key prefixes), each with a state, one of ALL_QUEUES, `queue:<name>`,
`grouped:<name>`, `tag:<tag>`, or a section of `sublet.workflows.members`.
"""


class _Place(NamedTuple):
    """Where a section continues: at index `offset`. Of all queues: `scan` is the cursor of a page of queues,
    `queue` one of the page. Of a tag: `offset` counts from the ms `scan` (0: the latest). Of a workflow:
    `queue` is the id of the job before.
    """

    offset: int = 0
    scan: int = 0
    queue: str = ""


class _Chunk(NamedTuple):
    jobs: list[tuple[str, _Place]]
    """Ids, each with the place after it."""
    following: _Place | None
    """The place after all of them; None at the section's end."""
    names: int = 0


class Filter(NamedTuple):
    """Which jobs are listed: those that match every value but None. `within`: only in these queues."""

    queue: str | None = None
    task: str | None = None
    within: Container[str] | None = None
    code: str | None = None
    """The code of the job's last error: `ValueError`, `lease_expired`, …."""
    worker: str | None = None
    """The worker that runs the job, or ran its last attempt."""
    since: datetime | None = None
    """The job was submitted then or later."""
    until: datetime | None = None
    """The job was submitted earlier."""
    tag: str | None = None
    group: str | None = None
    workflow: str | None = None
    states: Container[State] | None = None
    """The job has one of these states; only for lists of a tag or a workflow."""

    def check(self) -> None:
        """Raise Invalid for a malformed value, a time without zone, or an `until` that is not after `since`."""
        for name in ("queue", "task", "code", "worker"):
            value = getattr(self, name)
            if value is not None:
                keys.check_name(name, value)
        if self.group is not None:
            check_group(self.group)
        if self.workflow is not None:
            keys.check_name("workflow", self.workflow, keys.ID_MAX)
        if self.tag is not None:
            check_tags([self.tag])
        for name in ("since", "until"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, datetime) and value.tzinfo):
                raise Invalid(f"{name} {str(value)[:80]!r}: use a datetime with a time zone")
        if self.since and self.until and self.since >= self.until:
            raise Invalid(f"since {self.since}, until {self.until}: until must be later than since")

    def takes(self, job: JobSummary, last_worker: str | None = None) -> bool:
        """Whether the filter, but for `workflow`, matches a job. `last_worker`: the worker of its last attempt."""
        return (
            self.queue in (None, job.queue)
            and self.task in (None, job.task)
            and (self.within is None or job.queue in self.within)
            and (self.code is None or (job.last_error is not None and self.code == job.last_error.code))
            and (self.worker is None or self.worker == (job.worker or last_worker))
            and (self.since is None or job.submitted_at >= self.since)
            and (self.until is None or job.submitted_at < self.until)
            and (self.tag is None or self.tag in job.tags)
            and self.group in (None, job.group)
            and (self.states is None or job.state in self.states)
        )

    def up_to(self, last_ms: int) -> Self:
        """Return this filter, for jobs submitted by this time (ms since 1970)."""
        end = datetime.fromtimestamp((last_ms + 1) / 1000, UTC)
        return self._replace(until=min(self.until or end, end))


def states_of(asked: State | str | Iterable[State] | None) -> list[State]:
    """Return the named states, all for None, in the order of a job's life. Raises Invalid."""
    try:
        chosen = (
            set(State)
            if asked is None
            else {State(one) for one in ([asked] if isinstance(asked, str) else asked)}
        )
    except (ValueError, TypeError):
        raise Invalid(f"state {str(asked)[:80]!r}: use one or several of {', '.join(State)}") from None
    return [state for state in State if state in chosen]


def filter_of(values: Mapping[str, Any]) -> Filter:
    """Make a filter, unchecked, of values by name. Raises Invalid for an unknown name."""
    for name in values:
        if name not in Filter._fields:
            public = (field for field in Filter._fields if field not in ("within", "states"))
            known = ("state", "limit", "cursor", *public)
            raise Invalid(f"filter {str(name)[:80]!r}: use {', '.join(known)}{did_you_mean(name, known)}")
    return Filter(**values)


def take(
    base: str, job_ids: Sequence[str], wanted: Filter, *, results: bool = False
) -> Plan[dict[str, JobSummary]]:
    """Return those of at most 100 jobs that the filter, but for `workflow`, matches, by id; with `results`, also the sizes of their results."""
    found: list[JobSummary] = yield reads.summaries(base, job_ids, results=results)
    last: dict[str, str] = {}
    if wanted.worker is not None:
        jobs = [job for job in found if wanted._replace(worker=None).takes(job)]
        ended = [(job.id, job.attempt) for job in jobs if job.attempt and not job.worker]
        last = (yield reads.attempt_workers(base, ended)) if ended else {}
    return {job.id: job for job in found if wanted.takes(job, last.get(job.id))}


def with_index(sections: Sections, tag: str) -> Plan[tuple[Sections, dict[str, int]]]:
    """Return what to read for a list of a tag: its index in each partition, then sections whose jobs the index may
    lack. The dict: partition → the latest submit (ms) of these jobs; 0: none.
    """
    older: dict[str, int] = {}
    bases = list(dict.fromkeys(base for base, _ in sections))
    for base in bases:
        older[base] = yield tag_index.lacking(base, tag)
    return [*((base, TAG + tag) for base in bases), *(one for one in sections if older[one[0]])], older


def list_jobs(
    sections: Sections,
    wanted: Filter,
    limit: int,
    cursor: str | None,
    older: Mapping[str, int] | None = None,
    *,
    is_rising: bool = False,
) -> Plan[Page]:
    """Return a page of the jobs in these sections that the filter matches: up to `limit`, even none although
    more follow. `older`: the dict from `with_index`. `is_rising`: of finished jobs the oldest first.

    Raises Invalid for a cursor of another list.
    """
    at, place = _position(sections, cursor)
    found: list[JobSummary] = []
    examined = names = 0
    while at < len(sections) and len(found) < limit and examined < EXAMINED and names < queue_names.PAGE:
        base, structure = sections[at]
        room = min(limit - len(found) if wanted == Filter() else EXAMINED, EXAMINED - examined)
        bound = (older or {}).get(base, 0)
        is_index = structure.startswith((TAG, members.STRUCTURE))
        chunk = yield from _chunk(base, structure, place, room, bound, is_rising)
        taken = wanted.up_to(bound) if bound and not is_index else wanted
        names += chunk.names
        following = chunk.following
        for i in range(0, len(chunk.jobs), SOME):
            some = chunk.jobs[i : i + SOME]
            ids = [one for one, _ in some]
            jobs = yield from take(base, ids, taken, results=structure == State.COMPLETED or is_index)
            for job_id, after in some:
                following, examined = after, examined + 1
                if job_id in jobs:
                    found.append(jobs[job_id])
                    if len(found) == limit:
                        break
            if len(found) == limit:
                break
        else:
            following = chunk.following
        at, place = (at, following) if following else (at + 1, _Place())
    return Page(jobs=tuple(found), cursor=_cursor(*sections[at], place) if at < len(sections) else None)


def _chunk(base: str, structure: str, place: _Place, room: int, bound: int, is_rising: bool) -> Plan[_Chunk]:
    if structure.startswith(members.STRUCTURE):
        return (yield from _members(base, structure, place, room))
    if structure.startswith(TAG):
        return (yield from _tagged(base, structure, place, room, bound))
    if structure in ALL_QUEUES:
        return (yield from _all_queues(base, structure, place, room))
    return (yield from _structure(base, structure, place, room, is_rising))


def _structure(base: str, structure: str, place: _Place, room: int, is_rising: bool) -> Plan[_Chunk]:
    asked = min(SOME, room)
    ids: list[str] = yield reads.ids(base, structure, place.offset, asked, is_rising=is_rising)
    # Fewer: the end, even if a producer makes the list longer
    following = _Place(place.offset + len(ids)) if len(ids) == asked else None
    return _Chunk([(one, _Place(place.offset + i)) for i, one in enumerate(ids, 1)], following)


def _tagged(base: str, structure: str, place: _Place, room: int, after: int) -> Plan[_Chunk]:
    latest = place.scan or reads.LAST
    found: list[tuple[str, int]] = yield tag_index.newest(
        base, structure.removeprefix(TAG), after, latest, place.offset, min(SOME, room)
    )
    jobs = []
    for job_id, at in found:
        place = _Place(place.offset + 1 if at == place.scan else 1, at)
        jobs.append((job_id, place))
    return _Chunk(jobs, place if found else None)


def _members(base: str, structure: str, place: _Place, room: int) -> Plan[_Chunk]:
    asked = min(SOME, room)
    ids = yield from members.page(base, structure, place.queue, asked)
    following = _Place(queue=ids[-1]) if len(ids) >= asked else None
    return _Chunk([(one, _Place(queue=one)) for one in ids], following)


def _all_queues(base: str, structure: str, place: _Place, room: int) -> Plan[_Chunk]:
    known, scan = yield from queue_names.page(base, place.scan)
    names = [name for name in known if name >= place.queue]
    kind = ALL_QUEUES[structure]
    lengths = yield from queue_names.lengths(base, kind, names, room + place.offset)
    parts: list[tuple[str, int, int]] = []
    for name, length in zip(names, lengths, strict=False):
        start = place.offset if name == place.queue else 0
        count = min(length - start, room)
        if count > 0:
            parts.append((name, start, count))
            room -= count
    jobs = list(_entries(place.scan, parts, (yield _ids(base, kind, parts)))) if parts else []
    if room == 0:
        return _Chunk(jobs, jobs[-1][1], len(names))
    return _Chunk(jobs, _Place(scan=scan) if scan else None, len(names))


def _ids(base: str, kind: str, parts: Sequence[tuple[str, int, int]]) -> Call[list[list[str]]]:
    commands = [("ZRANGE", f"{base}:{kind}:{name}", start, start + count - 1) for name, start, count in parts]
    return reads.together(commands, lambda reply: [[reads.shown(one) for one in ids] for ids in reply])


def _entries(
    scan: int, parts: Sequence[tuple[str, int, int]], found: Sequence[Sequence[str]]
) -> Iterator[tuple[str, _Place]]:
    for (name, start, _), ids in zip(parts, found, strict=True):
        for i, job_id in enumerate(ids, 1):
            yield job_id, _Place(start + i, scan, name)


def _cursor(base: str, structure: str, place: _Place) -> str:
    where = f"{place.scan}/{place.queue}/" if structure in ALL_QUEUES else ""
    if structure.startswith(members.STRUCTURE):
        return f"{base}/{structure}/{place.queue}"
    if structure.startswith(TAG):
        where = f"{place.scan}/"
    return f"{base}/{structure}/{where}{place.offset}"


def _position(sections: Sections, cursor: str | None) -> tuple[int, _Place]:
    if cursor is None:
        return 0, _Place()
    base, _, rest = cursor.partition("/")
    structure, _, position = rest.partition("/")
    scan, queue, offset = "0", "", position
    if structure in ALL_QUEUES:
        scan, queue, offset = [*position.split("/", 2), "", ""][:3]
    elif structure.startswith(members.STRUCTURE):
        queue, offset = position, "0"
    elif structure.startswith(TAG):
        scan, _, offset = position.partition("/")
    fits = _NUMBER.fullmatch(scan) and _NUMBER.fullmatch(offset) and (not queue or keys.is_name(queue))
    if (base, structure) not in sections or not fits or int(offset) >= 10**15 or int(scan) >= 1 << 64:
        raise Invalid(f"cursor {cursor[:80]!r}: use the cursor of the page before, with the same filters")
    return sections.index((base, structure)), _Place(int(offset), int(scan), queue)
