"""Whether a server has room for more jobs, without I/O: they are refused in words before it is full.

What a job in flight needs then still has its place: claims, heartbeats, endings. An acceptance may rest on what the server said
up to a second ago, a refusal never does: a server that has room again takes jobs at once.
"""

import math
import threading
import time
from collections.abc import Sequence
from typing import Any

from sublet.errors import Forbidden, OutOfMemory, Refused, Unfit
from sublet.model import Submission
from sublet.protocol import keys, server_info
from sublet.protocol.plan import Plan
from sublet.protocol.reads import together
from sublet.protocol.scripts import Call
from sublet.protocol.server_info import Memory

BELIEVED = 1.0
"""Seconds for which a server is believed that has said how much room there is."""
SILENT = 60.0
"""Seconds for which one is not asked again that does not say, or lets this user not hear it."""
PART = 16
"""A process asks again, too, once it has sent a 16th of the room that there was: others send at the same time."""
JOB_BYTES = 1024
"""What a job takes beside its payload, about, and rather more than less."""
FIRING_BYTES = 1 << 20
"""Payloads that one firing of schedules stores, at most."""
SCRIPT_BYTES = 1 << 20
"""What one script stores weighs no more, about: it is taken in as a whole while there is any room at all."""


def weigh(jobs: Sequence[Submission]) -> int:
    """Bytes that these jobs will take, about, and rather more than less."""
    return len(jobs) * JOB_BYTES + sum([len(job.payload) for job in jobs]) * 5 // 4


class Admission:
    """What a process knows of the room there is, by partition: on a cluster each may be on another node.

    They may as well all be on one. So each believes in its part of the room, and what is under way counts against every one.
    """

    def __init__(self, share: float, partitions: int = 1) -> None:
        self._share, self._partitions = share, partitions
        self._until: dict[str, float] = {}
        self._left: dict[str, float] = {}
        self._under_way: dict[int, int] = {}  # by thread: none writes to another's number

    def send(self, size: int) -> None:
        """So many bytes are on their way from this thread: they count against the room, there or not yet."""
        thread = threading.get_ident()
        self._under_way[thread] = self._under_way.get(thread, 0) + size

    def sent(self, size: int) -> None:
        """They are there, or lost."""
        self._under_way[threading.get_ident()] -= size

    def believes(self, base: str, size: int) -> bool:
        """Is there room for so many bytes, by what the server said lately? Then they count as sent."""
        if self._share >= 1:  # it is the server itself that refuses, when it is full
            return True
        left = self._left.get(base, 0) if time.monotonic() < self._until.get(base, -math.inf) else 0
        if left == math.inf:
            return True
        if size <= left:
            self._left[base] -= size
        return size <= left

    def refuse(self, base: str, size: int) -> Plan[OutOfMemory | None]:
        """Why so many bytes are not taken in, by what the server says now; None where there is room, or it does not say."""
        if self._share >= 1:
            return None
        now = time.monotonic()
        self._until[base] = now + BELIEVED  # whoever comes while this one asks goes by what was known
        seen = yield from look(base)
        if seen is None or not seen.used:
            self._until[base], self._left[base] = now + SILENT, math.inf
            return None
        room = (
            seen.most * self._share - seen.used - sum([*self._under_way.values()]) if seen.most else math.inf
        )
        self._left[base] = room / PART / self._partitions - size
        if room >= (size if size > SCRIPT_BYTES else 0):
            return None
        more = ", with more on its way," if seen.used < seen.most * self._share else ""
        return OutOfMemory(
            f"Redis has used {seen.used / seen.most:.0%} of its memory{more} and takes no new job from {self._share:.0%} on "
            "(SUBLET_MEMORY); workers still empty it: add workers, or raise maxmemory"
        )


def look(base: str) -> Plan[Memory | None]:
    """What the server of a partition says of its memory; None where it says nothing, or not to everyone."""
    try:
        seen: Memory | None = yield server_info.memory(base)
    except (Refused, Forbidden, Unfit):  # one that is away is for the caller to hear of
        return None
    return seen


def stored(base: str, jobs: Sequence[Submission]) -> Plan[list[bool]]:
    """Per job: is it there already, or another one that holds its key? Then `submit` takes no room for it."""
    locks = [keys.lock(base, job.queue, key) if (key := _key(job.rules)) else "" for job in jobs]
    held: list[tuple[bool, str, bool]] = yield _held(base, jobs, locks)
    holders = [holder for there, holder, lasts in held if holder and not (there or lasts)]
    alive: list[bool] = (yield _exist(base, holders)) if holders else []
    known = dict(zip(holders, alive, strict=True))
    return [there or lasts or known.get(holder, False) for there, holder, lasts in held]


def _key(rules: str) -> str:
    return next((word[4:] for word in rules.split(" ") if word.startswith("key=")), "")


def _held(base: str, jobs: Sequence[Submission], locks: Sequence[str]) -> Call[list[tuple[bool, str, bool]]]:
    """Per job: is it there; who holds its key, if anybody; and does the key stand whatever became of that one?"""
    commands: list[tuple[Any, ...]] = []
    for job, lock in zip(jobs, locks, strict=True):
        commands += [
            ("EXISTS", keys.job(base, job.id)),
            ("GET", lock or base + ":"),
            ("PTTL", lock or base + ":"),
        ]

    def read(reply: Sequence[Any]) -> list[tuple[bool, str, bool]]:
        found = [reply[i : i + 3] for i in range(0, len(reply), 3)]
        return [
            (bool(there), holder.decode() if holder else "", int(ttl) > 0) for there, holder, ttl in found
        ]

    return together(commands, read)


def _exist(base: str, ids: Sequence[str]) -> Call[list[bool]]:
    return together(
        [("EXISTS", keys.job(base, job_id)) for job_id in ids], lambda reply: [bool(one) for one in reply]
    )
