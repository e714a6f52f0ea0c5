"""Count the backlog of each queue (its unfinished jobs, their bytes, running ones) again, while workers
continue.

`recount` reads all unfinished jobs, then those that the event stream names as changed, until none changes
before the script writes.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sublet.errors import Changed
from sublet.protocol import keys, queue_names, reads, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.reads import together
from sublet.protocol.scripts import Call

PAGE = 500
WALKS, ROUNDS = 3, 50
"""Most readings of all jobs, and most readings of changed jobs for each."""
MOVED, PAGES = 1000, 20
"""How many events one call reads, and after how many calls the stream is too busy."""
FOLLOW = 5
"""After so many pages of jobs the events are read, too: the stream keeps only the last 10,000."""
QUEUES = 100


class Held(NamedTuple):
    """What one unfinished job adds to the backlog of its queue."""

    queue: str
    bytes: int
    running: bool


class Recounted(NamedTuple):
    """The result of counting a partition's backlogs."""

    jobs: int
    """The number of unfinished jobs."""
    found: list[tuple[str, str]]
    """Queues whose stored backlog was wrong, each with `recounted <jobs> <bytes> <running>`, the wrong numbers."""
    busy: bool
    """Whether too many jobs changed meanwhile for an exact count."""


class Sums:
    """The unfinished jobs that were read, and their sums for each queue."""

    def __init__(self, queues: set[str]) -> None:
        self.held: dict[str, Held] = {}
        self.queues = {name: [0, 0, 0] for name in queues}

    def note(self, job_id: str, one: Held | None) -> None:
        """Replace what a job adds to its queue's sums; None: it adds nothing."""
        before = self.held.pop(job_id, None)
        if before:
            self._add(before, -1)
        if one:
            self.held[job_id] = one
            self._add(one, 1)

    def _add(self, one: Held, by: int) -> None:
        sums = self.queues.setdefault(one.queue, [0, 0, 0])
        for i, n in enumerate((1, one.bytes, one.running)):
            sums[i] += by * n


class ChangedJobs:
    """The jobs that have changed since the event with the id `stamp`, from the event stream."""

    def __init__(self, base: str, stamp: str) -> None:
        self.base, self.stamp = base, stamp
        self._ids: set[str] = set()

    def follow(self) -> Plan[bool]:
        """Read the stream to its end. The result is False if events were deleted unread, or there are too many."""
        for _ in range(PAGES):
            found = yield _since(self.base, self.stamp)
            if found is None:
                return False
            self.stamp, ids, more = found[0] or self.stamp, found[1], found[2]
            self._ids |= ids
            if not more:
                return True
        return False

    def take(self) -> list[str]:
        """Return the ids that `follow` has read since the last `take`."""
        ids, self._ids = sorted(self._ids), set()
        return ids


def recount(base: str, how: str = "mend") -> Plan[Recounted]:
    """Compare the stored backlogs of a partition with its jobs, and correct them; `how="look"` only compares."""
    sums = Sums(set())
    found: dict[str, str] = {}
    settled: set[str] = set()
    for _ in range(WALKS):
        changed = ChangedJobs(base, (yield _last(base)))
        sums = Sums((yield _counted(base)))
        complete = yield from _walk(base, sums, changed)
        for _ in range(ROUNDS):
            if not complete:
                break
            yield from _read(base, changed.take(), sums)
            if (yield from _write(base, how, changed.stamp, sums, settled, found)):
                return Recounted(len(sums.held), sorted(found.items()), False)
            complete = yield from changed.follow()
    return Recounted(len(sums.held), sorted(found.items()), True)


def _write(
    base: str, how: str, stamp: str, sums: Sums, settled: set[str], found: dict[str, str]
) -> Plan[bool]:
    names = sorted(sums.queues.keys() - settled)
    for i in range(0, len(names) or 1, QUEUES):
        some = names[i : i + QUEUES]
        last = how == "mend" and i + QUEUES >= len(names)
        queues = [
            (name, jobs, size, running) for name in some for jobs, size, running in (sums.queues[name],)
        ]
        try:
            answers = yield verbs.recount(base, "finish" if last else how, stamp, queues)
        except Changed:
            return False
        found.update({name: answer for name, answer in zip(some, answers, strict=True) if answer != "sound"})
        settled.update(some)
    return True


def _walk(base: str, sums: Sums, changed: ChangedJobs) -> Plan[bool]:
    names = yield from queue_names.names(base)
    grouped = yield from queue_names.lengths(base, "grouped", names)
    queued = [f"queue:{name}" for name in names]
    queued += [f"grouped:{name}" for name, size in zip(names, grouped, strict=True) if size]
    pages = 0
    for structure in ("running", "scheduled", *queued):
        cursor, more = 0, True
        while more:
            cursor, ids = yield members(base, structure, cursor)
            yield from _read(base, ids, sums)
            more = cursor != 0
            pages += 1
            if pages % FOLLOW == 0 and not (yield from changed.follow()):
                return False
    known: bool = yield from changed.follow()
    return known


def _read(base: str, ids: Sequence[str], sums: Sums) -> Plan[None]:
    for i in range(0, len(ids), PAGE):
        some = ids[i : i + PAGE]
        for job_id, one in zip(some, (yield _jobs(base, some)), strict=True):
            sums.note(job_id, one)


def members(base: str, structure: str, cursor: int) -> Call[tuple[int, list[str]]]:
    """Read some members of a sorted set, and the cursor for the next ones (0: the end)."""

    def read(reply: Sequence[Any]) -> tuple[int, list[str]]:
        flat = (
            [part for pair in reply[1] for part in pair]
            if reply[1] and isinstance(reply[1][0], tuple | list)
            else reply[1]
        )
        return int(reply[0]), [name.decode("utf-8", "replace") for name in flat[::2]]

    return Call((("ZSCAN", keys.structure(base, structure), cursor, "COUNT", PAGE),), read)


def _jobs(base: str, ids: Sequence[str]) -> Call[list[Held | None]]:
    def read(reply: Sequence[Any]) -> list[Held | None]:
        return [_held(reply[i], reply[i + 1]) for i in range(0, len(reply), 2)]

    def asked() -> Iterator[tuple[Any, ...]]:
        for job_id in ids:
            yield "HMGET", keys.job(base, job_id), "state", "spec"
            yield "HSTRLEN", keys.job(base, job_id), "payload"

    return together(list(asked()), read)


def _held(fields: Sequence[bytes | None], payload: int) -> Held | None:
    state, spec = fields
    if state not in (b"scheduled", b"queued", b"running") or not spec:
        return None
    header, newline, inline = spec.partition(b"\n")
    queue = reads.shown(header.partition(b" ")[0])
    return (
        Held(queue, len(inline) if newline else int(payload), state == b"running")
        if keys.is_name(queue)
        else None
    )


def _counted(base: str) -> Call[set[str]]:
    read = keys.backlog(base)
    return Call(
        (("HKEYS", read),),
        lambda reply: {n for f in reply if keys.is_name(n := reads.shown(f).rpartition(" ")[0])},
    )


def _last(base: str) -> Call[str]:
    return Call(
        (("XREVRANGE", keys.events(base), "+", "-", "COUNT", 1),),
        lambda reply: reply[0][0].decode() if reply else "",
    )


def _since(base: str, stamp: str) -> Call[tuple[str, set[str], bool] | None]:
    after = reads.events(base, stamp or "0", MOVED)

    def read(reply: Sequence[Any]) -> tuple[str, set[str], bool] | None:
        oldest, found = reply[0], after.read(reply[1])
        if stamp and (not oldest or _order(oldest[0][0].decode()) > _order(stamp)):
            return None
        ids = {job_id for _, fields in found for job_id in fields.get("jobs", "").split()}
        return found[-1][0] if found else "", ids, len(found) == MOVED

    return together([("XRANGE", keys.events(base), "-", "+", "COUNT", 1), *after.commands], read)


def _order(event: str) -> tuple[int, int]:
    at, _, number = event.partition("-")
    return int(at), int(number or 0)
