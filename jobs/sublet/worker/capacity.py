"""How much a worker has room for: a job must never be claimed that has no free slot, nor, if its task is a plain function, no
free child process.

What kind of job a queue will give is not known before it is claimed. So queues that only async tasks of this program use are one
line, with as much room as there are slots; all others are another, with no more room than there are free children. Neither
waits for the other; within a line, the first queue goes first.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sublet.app import Task


class Line:
    """Queues that are claimed together."""

    def __init__(self, queues: Sequence[str], plain: bool, pure: bool = False) -> None:
        self.queues = list(queues)
        self.plain = plain
        """May its jobs need a child process?"""
        self.pure = pure
        """Do all of them?"""


def lines_of(queues: Sequence[str], tasks: Iterable[Task[..., Any]]) -> list[Line]:
    """The lines of a worker with these tasks."""
    kinds: dict[str, set[bool]] = {}
    for task in tasks:
        kinds.setdefault(task.defaults.queue, set()).add(task.takes_process)
    any_kind = set().union(*kinds.values())  # what a queue that no task of this program names may bring
    plain = [queue for queue in queues if True in kinds.get(queue, any_kind)]
    pure = all(kinds.get(queue, any_kind) == {True} for queue in plain)
    loop = [queue for queue in queues if queue not in plain]
    return [*([Line(plain, True, pure)] if plain else []), *([Line(loop, False)] if loop else [])]


class Room:
    """What a worker may run at once, what it runs, and what it has asked for. Whoever changes these sets `changed`."""

    def __init__(self, slots: int, processes: int, ahead: Callable[[], int] = lambda: 0) -> None:
        self.slots, self.processes = slots, processes
        self.ahead = ahead
        """How many plain jobs may wait for a child process beside those that run, for it would be a moment only."""
        self.most: int | None = None
        """Jobs to run in all; None for any number."""
        self.busy = self.children = self.taken = 0
        self.asking = self.asking_plain = 0
        self.changed = asyncio.Event()

    def free(self, line: Line) -> int:
        """How many more jobs of a line fit."""
        plain = self.children + self.asking_plain
        others = self.busy + self.asking - plain
        if line.plain:
            ahead = self.ahead() if line.pure else 0
            at_once = min(self.processes, self.slots - others)
            room = at_once + ahead - plain if at_once > 0 else 0
            if 2 * room < ahead:  # enough wait: take many at a time
                return 0
        else:
            room = self.slots - others - min(plain, self.processes)
        return room if self.most is None else min(room, self.most - self.taken - self.asking)

    def share(self, line: Line) -> int:
        """How many jobs of a line to ask for in one claim: half of what fits in all, so that another may be under way."""
        return min(self.free(line), max(-(-self.slots // 2), self.ahead() if line.pure else 0))

    @property
    def has_child(self) -> bool:
        """Is a child process free?"""
        return self.processes > self.children + self.asking_plain

    @contextlib.contextmanager
    def asked(self, n: int, plain: bool) -> Iterator[None]:
        """Keep room for `n` jobs while they are asked for."""
        self.asking += n
        self.asking_plain += n * plain
        try:
            yield
        finally:
            self.asking -= n
            self.asking_plain -= n * plain
            self.changed.set()

    @property
    def spent(self) -> bool:
        """Has this worker taken all the jobs that it may?"""
        return self.most is not None and self.taken >= self.most

    def take(self, in_child: bool) -> None:
        """A job begins."""
        self.busy += 1
        self.taken += 1
        self.children += in_child

    def leave(self, in_child: bool) -> None:
        """A job has ended."""
        self.busy -= 1
        self.children -= in_child
        self.changed.set()

    async def until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait for a condition that only changes where `changed` is set; False when the seconds are over first."""
        until = None if seconds is None else time.monotonic() + seconds
        while not condition():
            if until is not None and time.monotonic() >= until:
                return False
            await self.change(None if until is None else until - time.monotonic())
        return True

    async def change(self, seconds: float | None) -> None:
        """Wait for a change, so long at most."""
        self.changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await self.changed.wait()
