"""Check whether the stored data of a namespace agrees, while workers continue.

`audit` reads all keys and all members of the sorted sets; the script `repair` checks each.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sublet.errors import Invalid, Unfit
from sublet.operations.consistency.recount import members
from sublet.protocol import keys, queue_names, reads, server_info, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.reads import PARTITIONS, pairs, together
from sublet.protocol.scripts import Call

PAGE = 500
CALL = 25
FOUND = 100_000
"""After so many faults in a partition a check ends; a repair repairs them and continues."""
TYPES = {
    "job": "hash", "queue": "zset", "wake": "list", "key": "string", "claim": "string",
    "worker": "hash", "schedule": "hash", "pool": "hash", "crew": "zset", "summons": "zset",
    "owner": "zset", "grouped": "zset", "waiting": "zset", "turns": "zset", "full": "zset", "tokens": "zset",
    "tat": "string", "flow": "hash", "groups": "hash", "upstream": "list", "downstream": "list", "broken": "list",
    "workflow": "hash", "members": "zset", "stream": "stream",
}  # fmt: skip
KINDS = {
    "job": "job",
    "worker": "worker",
    "schedule": "schedule",
    "pool": "pool",
    "crew": "pool",
    "summons": "pool",
    "downstream": "edges",
    "broken": "edges",
    "workflow": "workflow",
}
"""First word of a key (behind the base) → what the key is about."""
PAIRS = {"workers": "worker", "schedules": "schedule"}
"""Sorted set whose members are not jobs → the kind of its members."""
BESIDE = {name: name for name in (*PAIRS.values(), "pool", "workflow", "stream")} | {"edges": "downstream"}
"""Kind of an item other than a job → the first word of its key."""
QUEUES = 1000
NO_TEXT = "\ufffd"
"""Replaces bytes that are not UTF-8. Members with it are only reported; keys with it are skipped."""
REPORTED = ("foreign", "broken", "waits")
"""Faults that are not repaired: a wrong type or an invalid name; fields that no script writes; an item that
cannot be checked because of another key's type.
"""
_KNOWN = (  # a later version may have further settings
    rb"(?:jobs|bytes|(?:group_)?(?:concurrency|rate|per|burst)|completed|dead|cancelled|queues|paused|flow)="
)
_SETTINGS = re.compile(rb"(?:[0-9]{1,14} [a-z]+(?: (?!%b(?![0-9]{1,14}(?: |\Z)))[^ =]+=[^ ]+)*)?" % _KNOWN)


class Fault(NamedTuple):
    """An item (a job, worker, …) that does not agree with the rest."""

    base: str
    seen_in: str
    """Where the item was found: its own key (`job`, `worker`, …), a sorted set, `key:<queue>|<key>`; `key` if a key
    itself is wrong, `base` if the partition's hash is missing.
    """
    name: str
    """The item's id or name; or a whole key, if need be with the invalid field or member."""
    found: str
    """What is wrong, separated by commas: words of the script `repair`, `waits` or `baseless`."""

    @property
    def key(self) -> str:
        """The item's Redis key; `name` if that is a whole key."""
        if self.seen_in in ("key", "base"):
            return self.name
        return f"{self.base}:{BESIDE.get(self.seen_in, 'job')}:{self.name}"

    @property
    def is_lost(self) -> bool:
        """Whether an unfinished job does not exist, but a sorted set has its id: the item, or a job of this
        workflow.
        """
        return "gone" in self.found.split(", ")

    @property
    def is_repairable(self) -> bool:
        """Whether `doctor --repair` changes the item."""
        return not all(part.startswith(REPORTED) for part in self.found.split(", "))

    @property
    def order(self) -> tuple[int, int, str]:
        """Sort key for repairs: jobs to put back are last, in the order of their submits."""
        _, _, rest = self.found.partition("placed ")
        moment = rest.partition(",")[0].rpartition(" ")[2]
        return (1, int(moment), self.name) if moment.isdigit() else (0, 0, "")


class Audit(NamedTuple):
    """The result of a check."""

    looked: int
    """How many items were checked."""
    whole: bool
    """Whether every item was checked."""
    faults: list[Fault]


Report = Callable[[int, int, int], None]
"""Called with three numbers: items checked, all items (about), faults."""
Mend = Callable[[str, Sequence[Fault]], Plan[None]]
"""Makes the plan that repairs these faults of the partition with this key prefix."""


def audit(
    bases: Sequence[str],
    most: int | None = None,
    report: Report = lambda looked, size, faults: None,
    mend: Mend | None = None,
) -> Plan[Audit]:
    """Check these partitions, or about `most` items of each. `audit` passes repairable faults to `mend`, if
    given, and leaves these out of the result; it writes nothing itself.
    """
    looked, left, whole, faults = 0, len(bases), True, list[Fault]()

    def tell(n: int, size: int, found: int) -> None:  # the others are about as large
        report(looked + n, looked + size * left, len(faults) + found)

    for base in bases:
        scan = Scan(base, most, tell, mend)
        if (yield reads.layout(base)):
            whole = (yield from scan.run()) and whole
        elif (yield from _has_keys(base)):
            scan.faults.append(Fault(base, "base", base, "baseless"))
            yield from scan.hand_over()
        looked, left, faults = looked + scan.looked, left - 1, faults + scan.faults
    return Audit(looked, whole, faults)


class Scan:
    """The check of one partition. `faults`: those not passed to `mend`."""

    def __init__(self, base: str, most: int | None, report: Report, mend: Mend | None) -> None:
        self.base, self.most, self.report, self.mend = base, most, report, mend
        self.looked, self.size, self.faults = 0, 0, list[Fault]()
        self._todo: list[tuple[str, str]] = []
        self._queues: set[str] = set()

    @property
    def enough(self) -> bool:
        """Whether the limit of items or faults is reached."""
        return len(self.faults) >= FOUND or (self.most is not None and self.looked >= self.most)

    def run(self) -> Plan[bool]:
        """Check the partition. Returns False if a limit or a wrong type ended the check early."""
        wrong = yield server_info.foreign(self.base, [])
        self._add_foreign(wrong)
        if wrong:
            return False
        self._add_foreign((yield invalid_metadata(self.base)))
        self._queues.update((yield from queue_names.names(self.base)))
        self.size = yield from _size(self.base, sorted(self._queues)[:QUEUES])
        ended = yield from self._keys()
        for structure in (*keys.STRUCTURES, *PAIRS, *_queued(sorted(self._queues))):
            ended = (yield from self._members(structure)) and ended
        ended = (yield from self._marks()) and ended
        yield from self._flush(0)
        yield from self.hand_over()
        return ended

    def hand_over(self) -> Plan[None]:
        """Pass all repairable faults to `mend` and forget them; without `mend` do nothing."""
        if self.mend is None:
            return
        todo = [fault for fault in self.faults if fault.is_repairable]
        if todo:
            yield from self.mend(self.base, sorted(todo, key=lambda fault: fault.order))
        self.faults = [fault for fault in self.faults if not fault.is_repairable]

    def _add_foreign(self, names: Sequence[str]) -> None:
        self.faults += [Fault(self.base, "key", name, "foreign") for name in names]

    def _keys(self) -> Plan[bool]:
        cursor, more, pages = 0, True, 0
        while more:
            most_keys_are_others = self.most is not None and pages * PAGE > 10 * self.most
            if self.enough or most_keys_are_others:
                return False
            cursor, found = yield _page(self.base, cursor)
            pages += 1
            yield from self._take_keys([(kind, name) for kind, name in found if kind in TYPES])
            more = cursor != 0
        return True

    def _take_keys(self, found: Sequence[tuple[str, str]]) -> Plan[None]:
        types = (yield _types(self.base, found)) if found else []
        self._add_foreign([f"{self.base}:{kind}:{name}" for (kind, name), it in zip(found, types, strict=True) if it not in (TYPES[kind], "none")])  # fmt: skip
        right = [each for each, it in zip(found, types, strict=True) if it == TYPES[each[0]]]
        yield from self._take([(KINDS[kind], name) for kind, name in right if kind in KINDS])
        self._queues.update(
            name for kind, name in right if kind in ("queue", "grouped") and keys.is_name(name)
        )
        streams = [name for kind, name in right if kind == "stream"]
        have_jobs = (yield _exist(self.base, streams)) if streams else []
        yield from self._take([("stream", name) for name, has_job in zip(streams, have_jobs, strict=True) if not has_job])  # fmt: skip
        locks = [name for kind, name in right if kind == "key"]
        holders = (yield _holders(self.base, locks)) if locks else []
        yield from self._take([(f"key:{lock}", holder) for lock, holder in zip(locks, holders, strict=True) if holder])  # fmt: skip

    def _members(self, structure: str) -> Plan[bool]:
        cursor, more = 0, True
        try:
            while more:
                if self.enough:
                    return False
                cursor, found = yield members(self.base, structure, cursor)
                self._add_foreign([f"{self.base}:{structure} {name}" for name in found if NO_TEXT in name])
                found = [name for name in found if NO_TEXT not in name]
                if structure in keys.STRUCTURES:
                    there = (yield _exist(self.base, found)) if found else []
                    self.looked += sum(there)
                    found = [name for name, is_there in zip(found, there, strict=True) if not is_there]
                yield from self._take([(PAIRS.get(structure, structure), name) for name in found])
                more = cursor != 0
        except Unfit:
            self._add_foreign([f"{self.base}:{structure}"])
        return True

    def _marks(self) -> Plan[bool]:
        cursor, more = 0, True
        while more and not self.enough:
            cursor, found = yield _marked(self.base, cursor)
            yield from self._take([("edges", name) for name in found if NO_TEXT not in name])
            more = cursor != 0
        return not more

    def _take(self, seen: Sequence[tuple[str, str]]) -> Plan[None]:
        self._todo += seen
        yield from self._flush(CALL - 1)

    def _flush(self, left: int) -> Plan[None]:
        while len(self._todo) > left:
            some, self._todo = self._todo[:CALL], self._todo[CALL:]
            self.faults += yield from ask(self.base, "look", some)
            self.looked += len(some)
            self.report(
                self.looked, max(self.looked, min(self.size, self.most or self.size)), len(self.faults)
            )
            if len(self.faults) >= FOUND:
                yield from self.hand_over()


def ask(base: str, how: str, seen: Sequence[tuple[str, str]]) -> Plan[list[Fault]]:
    """Check these items (`seen_in`, `name`) by the script `repair`; return the faults. `how="mend"` also
    repairs them.
    """
    try:
        answers = yield verbs.repair(base, how, seen)
    except (Unfit, Invalid) as error:
        if len(seen) == 1:
            return [Fault(base, *seen[0], "waits" if isinstance(error, Unfit) else "foreign")]
        found: list[Fault] = []
        for one in seen:
            found += yield from ask(base, how, [one])
        return found
    return [Fault(base, *one, found) for one, found in zip(seen, answers, strict=True) if found != "sound"]


def _queued(queues: Sequence[str]) -> list[str]:
    return [f"{kind}:{name}" for name in queues for kind in ("queue", "grouped")]


def _size(base: str, queues: Sequence[str]) -> Plan[int]:
    names = [*keys.STRUCTURES, *PAIRS, *_queued(queues)]
    commands = [("ZCARD", keys.structure(base, name)) for name in names]
    try:
        size: int = yield together(commands, lambda reply: 2 * sum(map(int, reply)))
    except Unfit:
        return 0
    return size


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


def _types(base: str, found: Sequence[tuple[str, str]]) -> Call[list[str]]:
    commands = [("TYPE", f"{base}:{kind}:{name}") for kind, name in found]
    return together(commands, lambda reply: [kind.decode() for kind in reply])


def _holders(base: str, locks: Sequence[str]) -> Call[list[str]]:
    commands = (("MGET", *(f"{base}:key:{lock}" for lock in locks)),)
    return Call(commands, lambda reply: [(name or b"").decode("utf-8", "replace") for name in reply])


def _marked(base: str, cursor: int) -> Call[tuple[int, list[str]]]:
    def read(reply: Sequence[Any]) -> tuple[int, list[str]]:
        return int(reply[0]), [name.decode("utf-8", "replace") for name in reply[1]]

    return Call((("SSCAN", keys.unsettled(base), cursor, "COUNT", PAGE),), read)


def _exist(base: str, ids: Sequence[str]) -> Call[list[bool]]:
    return together(
        [("EXISTS", keys.job(base, job_id)) for job_id in ids], lambda reply: [bool(n) for n in reply]
    )


def invalid_metadata(base: str) -> Call[list[str]]:
    """Read the metadata of a partition; return its invalid fields (queue names, settings, partition counts),
    each as `<key> <field>`.
    """

    def read(reply: Any) -> list[str]:
        queues, number = reply
        found = (
            [
                f"{keys.queues(base)} {name}"
                for name, text in pairs(queues).items()
                if not _is_valid(name, text)
            ]
            if queues
            else []
        )
        return found + (
            [f"{base} partitions"] if number is not None and not PARTITIONS.fullmatch(number) else []
        )

    return together([("HGETALL", keys.queues(base)), ("HGET", base, "partitions")], read)


def _is_valid(name: str, settings: bytes) -> bool:
    return bool(keys.is_name(name) or name == "*") and _SETTINGS.fullmatch(settings) is not None
