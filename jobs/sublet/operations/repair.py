"""Finds where what is stored of a namespace does not agree with itself, and mends it, while workers go on. Plans without I/O.

All keys of a partition are walked through in steps, and so is what its sorted sets name; the script `repair` looks at each, 25
in a call. What it finds fault with is sent to it once more, to be mended: it decides by what it sees then, so a job that has
moved meanwhile is left alone. Jobs that are put back into a queue go in the order in which they were submitted, as far as the
milliseconds and the ids of one batch of `FOUND` tell.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sublet.errors import Invalid, Unfit
from sublet.operations.inconsistencies import odd
from sublet.operations.recount import members
from sublet.protocol import keys, reads, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.reads import together
from sublet.protocol.scripts import Call

PAGE = 500
"""Keys that one step of a walk takes, about."""
CALL = 25
"""What one call of the script looks at, or mends: each is a dozen reads, and to put a job back several writes."""
FOUND = 100_000
"""Faults that are mended before the walk goes on."""
ROUNDS, LIMIT = 3, 100
"""How often what was found is mended, as what was mended may show another fault; and how often where walks end at `FOUND`."""
KINDS = {
    "job": "job",
    "worker": "worker",
    "schedule": "schedule",
    "pool": "pool",
    "crew": "pool",
    "summons": "pool",
}
"""What a key is of, by the word after the base."""
PAIRS = {"workers": "worker", "schedules": "schedule"}
"""The sorted sets that name hashes other than jobs."""
BESIDE = (*PAIRS.values(), "pool")
"""What is looked at besides jobs, as it is said to the script."""
NO_TEXT = "\ufffd"
"""What is shown for bytes that are no text. Nobody can name these in a call: they are told, with the key that they are in."""
UNFINISHED = ("scheduled", "running")
"""Where a name without its hash is a job that is gone, as it is in a queue."""
ALONE = ("foreign", "waits")
"""What is left alone: what no script writes, whatever it meant; and what cannot be looked at because of another key."""


class Fault(NamedTuple):
    """What does not agree: in which partition, where it was seen, a job's id or a name, and the words of the script.

    Ours are `baseless`, `gone` (a job of which only the name is left) and `waits` (for a key of a wrong type beside it).
    """

    base: str
    seen_in: str
    name: str
    words: str

    @property
    def key(self) -> str:
        """The key of what was looked at, in full."""
        if self.seen_in in ("key", "base"):
            return self.name
        return f"{self.base}:{self.seen_in if self.seen_in in BESIDE else 'job'}:{self.name}"

    @property
    def is_lost(self) -> bool:
        """Is it a job that nobody can run or look at any more?"""
        return self.seen_in not in BESIDE and not {"gone", "lost"}.isdisjoint(self.words.split(", "))

    @property
    def order(self) -> tuple[int, int, str]:
        """Which is mended first: what is too much, then what is missing, the first submitted first, as moments and ids tell."""
        _, _, rest = self.words.partition("placed ")
        moment = rest.partition(",")[0].rpartition(" ")[2]
        return (1, int(moment), self.name) if moment.isdigit() else (0, 0, "")


class Audit(NamedTuple):
    """What a walk has seen."""

    looked: int
    """How many jobs, workers, schedules, entries and so on."""
    whole: bool
    """It came to the end of everything."""
    faults: list[Fault]


Tell = Callable[[int, int], None]
"""Hears how many were looked at, and how many faults were found."""


class Walk:
    """A walk through one partition. It collects what the script says of what it meets."""

    def __init__(self, base: str, most: int | None = None, tell: Tell = lambda looked, faults: None) -> None:
        self.base, self.tell, self.most = base, tell, most
        self.looked, self.faults = 0, list[Fault]()
        self._todo: list[tuple[str, str]] = []
        self._queues: set[str] = set()

    @property
    def enough(self) -> bool:
        """Is this all that it may look at?"""
        return len(self.faults) >= FOUND or (self.most is not None and self.looked >= self.most)

    def walk(self) -> Plan[bool]:
        """Go through everything. Did it come to the end?"""
        wrong = yield reads.foreign(self.base, [])
        if wrong:
            self.faults += [Fault(self.base, "key", key, "foreign") for key in wrong]
            return False
        self.faults += [Fault(self.base, "key", field, "foreign") for field in (yield odd(self.base))]
        self._queues.update((yield reads.queues(self.base)))
        ended = yield from self._keys()
        for structure in (*keys.STRUCTURES, *PAIRS, *sorted(f"queue:{name}" for name in self._queues)):
            ended = (yield from self._members(structure)) and ended
        yield from self._flush(0)
        return ended

    def _keys(self) -> Plan[bool]:
        """Every key of the partition."""
        cursor, more, pages = 0, True, 0
        while more:
            if self.enough or (
                self.most is not None and pages * PAGE > 10 * self.most
            ):  # most keys are others'
                return False
            cursor, found = yield _page(self.base, cursor)
            pages += 1
            yield from self._take([("job", n) for kind, n in found if kind == "job"])
            yield from self._take([(KINDS[kind], n) for kind, n in found if kind in KINDS and kind != "job"])
            self._queues.update(n for kind, n in found if kind == "queue" and keys.is_name(n))
            locks = [name for kind, name in found if kind == "key"]
            holders = (yield _holders(self.base, locks)) if locks else []
            yield from self._take(
                [(f"key:{lock}", holder) for lock, holder in zip(locks, holders, strict=True) if holder]
            )
            more = cursor != 0
        return True

    def _members(self, structure: str) -> Plan[bool]:
        """All that a sorted set names. What is a job has been looked at with its key, but for queues that it is not of."""
        cursor, more = 0, True
        try:
            while more:
                if self.enough:
                    return False
                cursor, found = yield members(self.base, structure, cursor)
                self.faults += [
                    Fault(self.base, "key", f"{self.base}:{structure} {n}", "foreign")
                    for n in found
                    if NO_TEXT in n
                ]
                found = [name for name in found if NO_TEXT not in name]
                if structure in keys.STRUCTURES:
                    there = (yield _exist(self.base, found)) if found else []
                    self.looked += sum(there)
                    found = [name for name, is_there in zip(found, there, strict=True) if not is_there]
                yield from self._take([(PAIRS.get(structure, structure), name) for name in found])
                more = cursor != 0
        except Unfit:
            self.faults.append(Fault(self.base, "key", f"{self.base}:{structure}", "foreign"))
        return True

    def _take(self, seen: Sequence[tuple[str, str]]) -> Plan[None]:
        self._todo += seen
        yield from self._flush(CALL - 1)

    def _flush(self, left: int) -> Plan[None]:
        """Ask of what was met, until so much is left."""
        while len(self._todo) > left:
            some, self._todo = self._todo[:CALL], self._todo[CALL:]
            self.faults += yield from ask(self.base, "look", some)
            self.looked += len(some)
            self.tell(self.looked, len(self.faults))


def audit(
    bases: Sequence[str], most: int | None = None, tell: Tell = lambda looked, faults: None
) -> Plan[Audit]:
    """Look at everything in these partitions, or in each at `most` so many (about), and change nothing."""
    looked, whole, faults = 0, True, list[Fault]()
    for base in bases:
        walk = Walk(base, most, lambda n, found: tell(looked + n, len(faults) + found))  # noqa: B023  # called before it changes
        if (yield reads.layout(base)):
            whole = (yield from walk.walk()) and whole
        elif (yield from _is_left(base)):
            walk.faults.append(Fault(base, "base", base, "baseless"))
        looked, faults = looked + walk.looked, faults + walk.faults
    return Audit(looked, whole, faults)


def repair(bases: Sequence[str], tell: Tell = lambda looked, faults: None) -> Plan[tuple[Audit, list[Fault]]]:
    """Mend what can be mended. The last look, whose faults are what is left; and all that was mended."""
    mended: list[Fault] = []
    rounds = walks = 0
    while True:
        seen = yield from audit(bases, tell=tell)
        todo = [fault for fault in seen.faults if fault.words not in ALONE]
        if not todo or rounds == ROUNDS or walks == LIMIT:
            return seen, mended
        before, walks = len(mended), walks + 1
        for base in bases:
            mended += yield from mend(base, [fault for fault in todo if fault.base == base], len(bases))
        rounds += len(seen.faults) < FOUND or len(mended) == before


def mend(base: str, faults: Sequence[Fault], number: int) -> Plan[list[Fault]]:
    """Have the script mend these faults of one of so many partitions, in their order. What it did."""
    done: list[Fault] = []
    if any(fault.seen_in == "base" for fault in faults):
        yield verbs.init(base, number)
        done += [fault for fault in faults if fault.seen_in == "base"]
    seen = [
        (fault.seen_in, fault.name)
        for fault in sorted(faults, key=lambda fault: fault.order)
        if fault.seen_in != "base"
    ]
    for i in range(0, len(seen), CALL):
        done += [
            fault for fault in (yield from ask(base, "mend", seen[i : i + CALL])) if fault.words not in ALONE
        ]
    return done


def ask(base: str, how: str, seen: Sequence[tuple[str, str]]) -> Plan[list[Fault]]:
    """What the script says of these; where a key in its way is of a wrong type, of each by itself, and what that key is."""
    try:
        answers = yield verbs.repair(base, how, seen)
    except (Unfit, Invalid):
        if len(seen) == 1:
            return (yield from _blame(Fault(base, *seen[0], "foreign")))
        found: list[Fault] = []
        for one in seen:
            found += yield from ask(base, how, [one])
        return found
    faults = [Fault(base, *one, words) for one, words in zip(seen, answers, strict=True) if words != "sound"]
    told: list[Fault] = []
    for fault in (yield from _tell_gone(base, faults)):
        told += (yield from _blame(fault)) if fault.words == "foreign" else [fault]
    return told


def _tell_gone(base: str, faults: Sequence[Fault]) -> Plan[list[Fault]]:
    """The same; what stood where unfinished jobs do, and has no hash, is a job that is gone."""
    names = [fault.name for fault in faults if _may_be_gone(fault)]
    there = (yield _exist(base, names)) if names else []
    gone = {name for name, is_there in zip(names, there, strict=True) if not is_there}
    told = [fault._replace(words=fault.words.replace("stray", "gone")) for fault in faults]
    return [
        word if _may_be_gone(fault) and fault.name in gone else fault
        for fault, word in zip(faults, told, strict=True)
    ]


def _may_be_gone(fault: Fault) -> bool:
    """Is it a name where unfinished jobs stand, or of one that held its key, and nothing is told of its hash?"""
    waited = fault.seen_in in UNFINISHED or fault.seen_in.startswith("queue:")
    return (waited and fault.words == "stray") or fault.words == "stray, unlocked"


def _blame(fault: Fault) -> Plan[list[Fault]]:
    """What is of a wrong type where the script met something that is: keys beside it, for which it waits, or else itself."""
    base, queue, key = fault.base, "", ""
    if fault.seen_in not in BESIDE:
        try:
            queue, key = yield _header(base, fault.name)
        except Unfit:
            return [fault]
    queues = {name for name in (queue, fault.seen_in.removeprefix("queue:")) if keys.is_name(name)}
    wrong: list[str] = yield reads.foreign(base, sorted(queues))
    lock = keys.lock(base, queue, key)
    if key and (yield Call((("TYPE", lock),), lambda reply: reply not in (b"string", b"none"))):
        wrong.append(lock)
    return (
        [*(Fault(base, "key", name, "foreign") for name in wrong), fault._replace(words="waits")]
        if wrong
        else [fault]
    )


def _header(base: str, job_id: str) -> Call[tuple[str, str]]:
    """The queue and the key that a job's header names; empty for none."""

    def read(reply: bytes | None) -> tuple[str, str]:
        queue, *words = (reply or b"").partition(b"\n")[0].decode("utf-8", "replace").split(" ")
        return queue, next((word.removeprefix("key=") for word in words[2:] if word.startswith("key=")), "")

    return Call((("HGET", keys.job(base, job_id), "spec"),), read)


def _is_left(base: str) -> Plan[bool]:
    """Is anything left of a partition that has no base?"""
    cursor, more = 0, True
    while more:
        cursor, found = yield _page(base, cursor)
        if found:
            return True
        more = cursor != 0
    return False


def _page(base: str, cursor: int) -> Call[tuple[int, list[tuple[str, str]]]]:
    """Some keys of a partition, as the word after the base, and what follows; and the cursor of the next ones."""

    def read(reply: Sequence[Any]) -> tuple[int, list[tuple[str, str]]]:
        names = [key.decode("utf-8", "replace").removeprefix(f"{base}:").partition(":") for key in reply[1]]
        return int(reply[0]), [(kind, name) for kind, _, name in names]

    return Call((("SCAN", cursor, "MATCH", f"{base}:*", "COUNT", PAGE),), read)


def _holders(base: str, locks: Sequence[str]) -> Call[list[str]]:
    """The jobs that hold these keys; empty for what is none."""
    commands = (("MGET", *(f"{base}:key:{lock}" for lock in locks)),)
    return Call(commands, lambda reply: [(name or b"").decode("utf-8", "replace") for name in reply])


def _exist(base: str, ids: Sequence[str]) -> Call[list[bool]]:
    return together(
        [("EXISTS", keys.job(base, job_id)) for job_id in ids], lambda reply: [bool(n) for n in reply]
    )
