"""Find inconsistent data and repair it, while workers go on. Plans, without I/O.

The script `repair` checks all keys and members of sorted sets, and gets its reports again to repair them by
the current data. Jobs return to a queue by ms of the submit and id, within a batch of `FOUND`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sublet.errors import Invalid, Unfit
from sublet.operations.inconsistencies import invalid_metadata
from sublet.operations.recount import members
from sublet.protocol import keys, reads, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.reads import together
from sublet.protocol.scripts import Call

PAGE = 500
"""Keys of one scan step, about."""
CALL = 25
"""Items in one call: each takes a dozen reads, and a repair several writes."""
FOUND = 100_000
"""Inconsistencies that are repaired before the scan goes on."""
ROUNDS, LIMIT = 3, 100
"""Rounds of repair, as one may reveal more; and scans that end early at `FOUND`."""
KINDS = {
    "job": "job",
    "worker": "worker",
    "schedule": "schedule",
    "pool": "pool",
    "crew": "pool",
    "summons": "pool",
}
"""The kind of an item, by the word after the base in its key."""
PAIRS = {"workers": "worker", "schedules": "schedule"}
"""Sorted sets whose members are not jobs."""
BESIDE = (*PAIRS.values(), "pool")
NO_TEXT = "\ufffd"
"""Replaces bytes that are not UTF-8. Such members cannot be sent; they are reported with their key."""
UNFINISHED = ("scheduled", "running")
"""Structures, beside queues, where a member without its hash is a lost job."""
ALONE = ("foreign", "waits")
"""Only reported: data that no Sublet script writes, and items that cannot be checked for it."""


class Fault(NamedTuple):
    """An inconsistency: partition, place, id or name of the item, and the words of the script.

    Further words: `baseless`, `gone` (a lost job), `waits` (a related key has a wrong type).
    """

    base: str
    seen_in: str
    name: str
    words: str

    @property
    def key(self) -> str:
        """The item's full key."""
        if self.seen_in in ("key", "base"):
            return self.name
        return f"{self.base}:{self.seen_in if self.seen_in in BESIDE else 'job'}:{self.name}"

    @property
    def is_lost(self) -> bool:
        """A lost job."""
        return self.seen_in not in BESIDE and not {"gone", "lost"}.isdisjoint(self.words.split(", "))

    @property
    def order(self) -> tuple[int, int, str]:
        """Order of repairs: superfluous entries, then missing ones by submit."""
        _, _, rest = self.words.partition("placed ")
        moment = rest.partition(",")[0].rpartition(" ")[2]
        return (1, int(moment), self.name) if moment.isdigit() else (0, 0, "")


class Audit(NamedTuple):
    """The result of a scan."""

    looked: int
    """Items that were checked."""
    whole: bool
    faults: list[Fault]


Report = Callable[[int, int], None]


class Scan:
    """A scan of one partition."""

    def __init__(
        self, base: str, most: int | None = None, report: Report = lambda looked, faults: None
    ) -> None:
        self.base, self.report, self.most = base, report, most
        self.looked, self.faults = 0, list[Fault]()
        self._todo: list[tuple[str, str]] = []
        self._queues: set[str] = set()

    @property
    def enough(self) -> bool:
        """Whether a limit is reached."""
        return len(self.faults) >= FOUND or (self.most is not None and self.looked >= self.most)

    def run(self) -> Plan[bool]:
        """Scan everything. True if it came to the end."""
        wrong = yield reads.foreign(self.base, [])
        if wrong:
            self.faults += [Fault(self.base, "key", key, "foreign") for key in wrong]
            return False
        self.faults += [
            Fault(self.base, "key", field, "foreign") for field in (yield invalid_metadata(self.base))
        ]
        self._queues.update((yield reads.queues(self.base)))
        ended = yield from self._keys()
        for structure in (*keys.STRUCTURES, *PAIRS, *sorted(f"queue:{name}" for name in self._queues)):
            ended = (yield from self._members(structure)) and ended
        yield from self._flush(0)
        return ended

    def _keys(self) -> Plan[bool]:
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
        """Jobs with a hash were checked with their keys, except in a wrong queue."""
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
        """Until `left` remain."""
        while len(self._todo) > left:
            some, self._todo = self._todo[:CALL], self._todo[CALL:]
            self.faults += yield from ask(self.base, "look", some)
            self.looked += len(some)
            self.report(self.looked, len(self.faults))


def audit(
    bases: Sequence[str], most: int | None = None, report: Report = lambda looked, faults: None
) -> Plan[Audit]:
    """Check these partitions, or about `most` items in each. Writes nothing."""
    looked, whole, faults = 0, True, list[Fault]()
    for base in bases:
        scan = Scan(base, most, lambda n, found: report(looked + n, len(faults) + found))  # noqa: B023  # called in this iteration only
        if (yield reads.layout(base)):
            whole = (yield from scan.run()) and whole
        elif (yield from _has_keys(base)):
            scan.faults.append(Fault(base, "base", base, "baseless"))
        looked, faults = looked + scan.looked, faults + scan.faults
    return Audit(looked, whole, faults)


def repair(
    bases: Sequence[str], report: Report = lambda looked, faults: None
) -> Plan[tuple[Audit, list[Fault]]]:
    """Repair all but the data in `ALONE`. Returns the last audit, and all repairs."""
    mended: list[Fault] = []
    rounds = walks = 0
    while True:
        seen = yield from audit(bases, report=report)
        todo = [fault for fault in seen.faults if fault.words not in ALONE]
        if not todo or rounds == ROUNDS or walks == LIMIT:
            return seen, mended
        before, walks = len(mended), walks + 1
        for base in bases:
            mended += yield from mend(base, [fault for fault in todo if fault.base == base], len(bases))
        rounds += len(seen.faults) < FOUND or len(mended) == before


def mend(base: str, faults: Sequence[Fault], number: int) -> Plan[list[Fault]]:
    """Repair faults of one of `number` partitions, in order. Returns the repaired ones."""
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
    """Send items to the script; each alone, if a key has a wrong type, to report that key."""
    try:
        answers = yield verbs.repair(base, how, seen)
    except (Unfit, Invalid):
        if len(seen) == 1:
            return (yield from _find_wrong_type(Fault(base, *seen[0], "foreign")))
        found: list[Fault] = []
        for one in seen:
            found += yield from ask(base, how, [one])
        return found
    faults = [Fault(base, *one, words) for one, words in zip(seen, answers, strict=True) if words != "sound"]
    answered: list[Fault] = []
    for fault in (yield from _mark_gone(base, faults)):
        answered += (yield from _find_wrong_type(fault)) if fault.words == "foreign" else [fault]
    return answered


def _mark_gone(base: str, faults: Sequence[Fault]) -> Plan[list[Fault]]:
    """Report members of structures of unfinished jobs without a hash as `gone`."""
    names = [fault.name for fault in faults if _may_be_gone(fault)]
    there = (yield _exist(base, names)) if names else []
    gone = {name for name, is_there in zip(names, there, strict=True) if not is_there}
    marked = [fault._replace(words=fault.words.replace("stray", "gone")) for fault in faults]
    return [
        word if _may_be_gone(fault) and fault.name in gone else fault
        for fault, word in zip(faults, marked, strict=True)
    ]


def _may_be_gone(fault: Fault) -> bool:
    """Whether only a member of a structure of unfinished jobs, or a deduplication key, was wrong."""
    waited = fault.seen_in in UNFINISHED or fault.seen_in.startswith("queue:")
    return (waited and fault.words == "stray") or fault.words == "stray, unlocked"


def _find_wrong_type(fault: Fault) -> Plan[list[Fault]]:
    """The key of a wrong type that made the script fail: a related key, for which the item waits, or its own."""
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

    def read(reply: bytes | None) -> tuple[str, str]:
        queue, *words = (reply or b"").partition(b"\n")[0].decode("utf-8", "replace").split(" ")
        return queue, next((word.removeprefix("key=") for word in words[2:] if word.startswith("key=")), "")

    return Call((("HGET", keys.job(base, job_id), "spec"),), read)


def _has_keys(base: str) -> Plan[bool]:
    cursor, more = 0, True
    while more:
        cursor, found = yield _page(base, cursor)
        if found:
            return True
        more = cursor != 0
    return False


def _page(base: str, cursor: int) -> Call[tuple[int, list[tuple[str, str]]]]:

    def read(reply: Sequence[Any]) -> tuple[int, list[tuple[str, str]]]:
        names = [key.decode("utf-8", "replace").removeprefix(f"{base}:").partition(":") for key in reply[1]]
        return int(reply[0]), [(kind, name) for kind, _, name in names]

    return Call((("SCAN", cursor, "MATCH", f"{base}:*", "COUNT", PAGE),), read)


def _holders(base: str, locks: Sequence[str]) -> Call[list[str]]:
    """The jobs that hold these deduplication keys; empty for a missing key."""
    commands = (("MGET", *(f"{base}:key:{lock}" for lock in locks)),)
    return Call(commands, lambda reply: [(name or b"").decode("utf-8", "replace") for name in reply])


def _exist(base: str, ids: Sequence[str]) -> Call[list[bool]]:
    return together(
        [("EXISTS", keys.job(base, job_id)) for job_id in ids], lambda reply: [bool(n) for n in reply]
    )
