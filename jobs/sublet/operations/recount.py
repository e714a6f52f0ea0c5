"""The backlog of each queue, counted anew while workers and producers go on. Plans without I/O.

All unfinished jobs are looked at, a page at a time; then those that moved meanwhile, which the stream of events tells, again and
again, until nothing moves between the last look and the call that writes: that one is refused otherwise. The stream keeps 10,000
events, so it is followed during the walk, too. What has been written stays right: the scripts keep it so.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from sublet.errors import Changed
from sublet.protocol import keys, reads, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.reads import together
from sublet.protocol.scripts import Call

PAGE = 500
"""Jobs that are looked at in one round trip, about."""
WALKS, ROUNDS = 3, 50
"""How often all jobs are looked at, and how often those that moved, before it is given up."""
MOVED, PAGES = 1000, 20
"""Events in one round trip, and round trips in which the stream must be caught up with."""
FOLLOW = 5
"""Pages of the walk after which the events are read: of these few are lost, however many jobs there are."""
QUEUES = 100
"""Queues that one call takes."""


class Held(NamedTuple):
    """What a job that is not finished adds to the backlog of its queue."""

    queue: str
    bytes: int
    running: bool


class Recounted(NamedTuple):
    """What became of the backlogs of a partition."""

    jobs: int
    """How many unfinished jobs there are."""
    found: list[tuple[str, str]]
    """The queues whose numbers were wrong, and what these said."""
    busy: bool
    """So much moved that not all could be counted."""


class Sums:
    """The unfinished jobs, and what they come to in each queue: at hand, as little time may pass between a look and the write."""

    def __init__(self, queues: set[str]) -> None:
        self.held: dict[str, Held] = {}
        self.queues = {name: [0, 0, 0] for name in queues}

    def note(self, job_id: str, one: Held | None) -> None:
        """What a job adds now; None for nothing."""
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


class Moves:
    """The jobs that moved since a moment, as the stream of events tells them."""

    def __init__(self, base: str, stamp: str) -> None:
        self.base, self.stamp = base, stamp
        self._ids: set[str] = set()

    def follow(self) -> Plan[bool]:
        """Read on to the last event. Is all known that moved? Not where events were cut off that nobody has read."""
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
        """Those that nobody has looked at since they moved."""
        ids, self._ids = sorted(self._ids), set()
        return ids


def recount(base: str, how: str = "mend") -> Plan[Recounted]:
    """Compare the backlogs of a partition with its jobs, and where `how` is `mend`, have them say what there is."""
    sums = Sums(set())
    found: dict[str, str] = {}
    settled: set[str] = set()
    for _ in range(WALKS):
        moves = Moves(base, (yield _last(base)))
        sums = Sums((yield _counted(base)))
        complete = yield from _walk(base, sums, moves)
        for _ in range(ROUNDS):
            if not complete:
                break
            yield from _look(base, moves.take(), sums)
            if (yield from _write(base, how, moves.stamp, sums, settled, found)):
                return Recounted(len(sums.held), sorted(found.items()), False)
            complete = yield from moves.follow()
    return Recounted(len(sums.held), sorted(found.items()), True)


def _write(
    base: str, how: str, stamp: str, sums: Sums, settled: set[str], found: dict[str, str]
) -> Plan[bool]:
    """Send the sums of all queues that are not settled yet, those that have nothing included. Are all settled now?

    Those that were and those that said something else are noted; what is right once is kept so by the scripts.
    """
    names = sorted(sums.queues.keys() - settled)
    for i in range(0, len(names), QUEUES):
        some = names[i : i + QUEUES]
        queues = [
            (name, jobs, size, running) for name in some for jobs, size, running in (sums.queues[name],)
        ]
        try:
            answers = yield verbs.recount(base, how, stamp, queues)
        except Changed:
            return False
        found.update({name: answer for name, answer in zip(some, answers, strict=True) if answer != "sound"})
        settled.update(some)
    return True


def _walk(base: str, sums: Sums, moves: Moves) -> Plan[bool]:
    """Look at all jobs that are in a structure of the unfinished. Is it known which of them moved meanwhile?"""
    names: list[str] = yield reads.queues(base)
    pages = 0
    for structure in ("running", "scheduled", *(f"queue:{name}" for name in names)):
        cursor, more = 0, True
        while more:
            cursor, ids = yield members(base, structure, cursor)
            yield from _look(base, ids, sums)
            more = cursor != 0
            pages += 1
            if pages % FOLLOW == 0 and not (yield from moves.follow()):
                return False
    known: bool = yield from moves.follow()
    return known


def _look(base: str, ids: Sequence[str], sums: Sums) -> Plan[None]:
    """Note what these jobs add to the backlog now: the finished, and those that are gone, nothing."""
    for i in range(0, len(ids), PAGE):
        some = ids[i : i + PAGE]
        for job_id, one in zip(some, (yield _jobs(base, some)), strict=True):
            sums.note(job_id, one)


def members(base: str, structure: str, cursor: int) -> Call[tuple[int, list[str]]]:
    """Some names in a sorted set, and the cursor of the next ones (0: that was all). None that stays is left out."""

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
    """The queues of which there are numbers."""
    read = keys.backlog(base)
    return Call(
        (("HKEYS", read),),
        lambda reply: {n for f in reply if keys.is_name(n := reads.shown(f).rpartition(" ")[0])},
    )


def _last(base: str) -> Call[str]:
    """The id of the last event; empty where there is none."""
    return Call(
        (("XREVRANGE", keys.events(base), "+", "-", "COUNT", 1),),
        lambda reply: reply[0][0].decode() if reply else "",
    )


def _since(base: str, stamp: str) -> Call[tuple[str, set[str], bool] | None]:
    """The id of the last of the events after another, the jobs that they tell of, and are there more? None: some were cut off."""
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
