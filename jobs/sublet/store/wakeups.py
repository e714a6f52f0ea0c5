"""Hears the markers of all queues that somebody in this process waits for, over one blocked connection.

However many wait, for however many sets of queues: one BLPOP names all their queues, and a key of this process's own, by which
the process interrupts it when somebody comes for a queue that it does not name. A marker calls one waiter, the one that has
waited longest; what it cannot follow goes to the next, or back. What is heard is a hint: a lost one costs a look, never a job.

And somebody looks all the same, at the moment that a claim's reply has named and every 2 s at least: one waiter per partition
claims for all. Whether a queue of the others holds work that nobody was called for, a read or two say for hundreds of queues.
"""

import asyncio
import contextlib
import math
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sublet.connection.blocking import blocking_line
from sublet.connection.settings import BLOCK_SECONDS, Settings, connect
from sublet.errors import JobsError
from sublet.protocol import keys
from sublet.protocol.reads import together
from sublet.protocol.scripts import Call

HEARD_MAX = 1000
"""Queues that the blocking read names: each costs the server a µs or so whenever one is heard. The others are looked at."""
LOOKED_AT = 500
"""Queues that one read looks at."""
LOOK = 2.0
"""Seconds after which somebody looks, in case a marker was lost."""
REST = 0.5
"""Seconds to rest after Redis failed a call that is about waiting; the work's own calls tell the world about it."""

Run = Callable[[Call[Any]], Awaitable[Any]]


class Waiter:
    """A claim that waits for a marker of its queues, or for its turn to look on behalf of all."""

    def __init__(self, queues: Sequence[tuple[str, str]]) -> None:
        self.queues = {keys.wake(base, queue): (base, queue) for base, queue in queues}
        self.bases = {base for base, _ in queues}
        self.called: asyncio.Future[None] | None = None
        self.marker = ""
        """The marker that it was called for and has not followed yet."""
        self.looks = False
        """Was it called to look, and has not yet?"""

    @property
    def idle(self) -> bool:
        """May it be called? Not while it claims, nor when it is about to leave."""
        return self.called is not None and not self.called.done()

    def call(self, marker: str = "") -> None:
        """Have it claim: for a marker, or else to look."""
        assert self.called, "it is idle"
        self.marker, self.looks = marker, not marker
        self.called.set_result(None)

    def followed(self) -> None:
        """It has claimed: what it was called for is done."""
        self.marker, self.looks = "", False


@dataclass(slots=True)
class _Line:
    """Those who wait for one queue, the longest first."""

    base: str
    queue: str
    waiters: dict[Waiter, None] = field(default_factory=dict)

    def first(self) -> Waiter | None:
        return next((waiter for waiter in self.waiters if waiter.idle), None)


class Markers:
    """The waiting claims of one process. `run` sends a call over its ordinary connection; `line` may read on several servers."""

    def __init__(self, settings: Settings, run: Run, base: str, client: Any = None, line: Any = None) -> None:
        self._client = None if line else client or connect(settings, blocking=True)
        self._line = line or blocking_line(settings, self._client, client)
        self._run = run
        self._own = keys.wake(base, "|" + secrets.token_urlsafe(16))  # no queue's name has a bar in it
        self._waiters: dict[Waiter, None] = {}
        self._lines: dict[str, _Line] = {}
        self._named: frozenset[str] = frozenset()
        self._reading = self._interrupted = False
        self._rest: asyncio.TimerHandle | None = None
        self._look_at = math.inf
        self._looking: asyncio.TimerHandle | None = None
        self._examined_at = -math.inf
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def waiting(self, queues: Sequence[tuple[str, str]], next_in: float) -> Iterator[Waiter]:
        """Somebody who waits for these queues, (base, name) each, and was told by a claim when to look."""
        waiter, rest = Waiter(queues), 0.0
        self._waiters[waiter] = None
        for key, (base, queue) in waiter.queues.items():
            self._lines.setdefault(key, _Line(base, queue)).waiters[waiter] = None
        self.look_in(next_in)
        try:
            yield waiter
        except JobsError:
            rest = REST
            raise
        finally:
            self._dismiss(waiter, rest)

    def _dismiss(self, waiter: Waiter, rest: float) -> None:
        """Take somebody off the lines. What it was called for and has not followed is the next one's."""
        del self._waiters[waiter]
        for key in waiter.queues:
            del self._lines[key].waiters[waiter]
            if not self._lines[key].waiters:
                del self._lines[key]
        if waiter.marker:
            self._pass_on(waiter.marker)
        if not self._waiters:
            self._plan(math.inf)
        elif waiter.looks:
            self.look_in(rest)

    async def wait(self, waiter: Waiter, seconds: float) -> bool:
        """Wait until this one is called. False when the seconds are over, or nobody is to wait any more: it need not claim."""
        waiter.called = asyncio.get_running_loop().create_future()
        self._read()
        if len(self._named) < HEARD_MAX and not self._named.issuperset(waiter.queues):
            self._interrupt()
        try:
            async with asyncio.timeout(
                seconds
            ):  # and never wait_for: before Python 3.12 it may swallow a cancellation
                await waiter.called
        except TimeoutError:
            pass  # it may have been called at the same moment
        finally:
            waiter.called = None
        return bool(waiter.marker or waiter.looks)

    def hurry(self) -> None:
        """Have nobody wait any more."""
        for waiter in self._waiters:
            if waiter.called and not waiter.called.done():
                waiter.called.set_result(None)

    # what is heard

    def _read(self) -> None:
        """Read a marker, if somebody waits. One read at a time, which is never cut short."""
        named = [] if self._reading else self._wanted()
        if named:
            self._reading, self._named = True, frozenset(named)
            self._line.send([(("BLPOP", *named, self._own, BLOCK_SECONDS), self._hear)])

    def _wanted(self) -> list[str]:
        """What a read should name: those queues for which somebody idle waits, as far as they fit."""
        return list(islice((key for key, line in self._lines.items() if line.first()), HEARD_MAX))

    def _hear(self, found: Any) -> None:
        """Call whoever a marker is for, and read on."""
        self._reading = self._interrupted = False
        if isinstance(found, Exception):
            self._reading, self._named = (
                True,
                frozenset(),
            )  # as good as a read that names nothing, until it has rested
            self._rest = asyncio.get_running_loop().call_later(REST, self._read_again)
            return
        key = "" if not found else found[0] if isinstance(found[0], str) else found[0].decode()
        if key in self._lines:
            self._lines[key] = self._lines.pop(
                key
            )  # the last one in the next read: a busy queue must not drown the others
        if key in ("", self._own):
            self._read()
        else:
            self._pass_on(key)
            loop = asyncio.get_running_loop()
            loop.call_soon(
                loop.call_soon, self._read
            )  # the claim first: to name a thousand queues takes a ms

    def _read_again(self) -> None:
        self._rest, self._reading = None, False
        self._read()

    def _pass_on(self, marker: str) -> None:
        """Call the one who has waited longest; where nobody waits, the marker goes back, for another process."""
        line = self._lines.get(marker)
        first = line.first() if line else None
        if first:
            first.call(marker)
        elif self._reading:
            self._begin(self._put_back(marker))
        else:
            self._line.send([(("LPUSH", marker, 1), _no_matter)])

    async def _put_back(self, marker: str) -> None:
        with contextlib.suppress(
            JobsError
        ):  # a marker is a hint: whether it could be put back decides nothing
            await self._run(Call((("LPUSH", marker, 1),), _no_matter))

    def _interrupt(self) -> None:
        """End the blocking read that is under way, for one that names other queues."""
        if not self._interrupted and not self._rest:
            self._interrupted = True
            self._begin(self._wake_oneself())

    async def _wake_oneself(self) -> None:
        life = BLOCK_SECONDS * 1000  # if the read has just ended: then nobody may ever take what is put there
        try:
            await self._run(Call((("LPUSH", self._own, 1), ("PEXPIRE", self._own, life)), _no_matter))
        except JobsError:
            await asyncio.sleep(REST)
            self._interrupted = False
            self._rename()

    def _rename(self) -> None:
        """Interrupt the read if it should name other queues."""
        if self._reading and not self._named.issuperset(self._wanted()):
            self._interrupt()

    # what is looked at

    def look_in(self, seconds: float) -> None:
        """Have somebody look, after so many seconds at most, if anybody waits."""
        at = asyncio.get_running_loop().time() + seconds
        if self._waiters and at < self._look_at:
            self._plan(at)

    @property
    def next_in(self) -> float:
        """Seconds until somebody will look."""
        return max(0.0, self._look_at - asyncio.get_running_loop().time())

    def _plan(self, at: float) -> None:
        if self._looking:
            self._looking.cancel()
        self._look_at = at
        self._looking = None if at == math.inf else asyncio.get_running_loop().call_at(at, self._look)

    def _look(self) -> None:
        """Call the first in each partition, to claim; see whether the queues of the others hold work; and again in 2 s."""
        self._plan(math.inf)
        self.look_in(LOOK)
        bases: set[str] = set()
        covered: set[str] = set()
        for waiter in self._waiters:
            if waiter.idle and not waiter.bases <= bases:
                bases |= waiter.bases
                covered.update(waiter.queues)
                waiter.call()
        left = [line for key, line in self._lines.items() if key not in covered]
        now = asyncio.get_running_loop().time()
        if left and now - self._examined_at > LOOK / 4:  # and not for every job that falls due
            self._examined_at = now
            self._begin(self._examine(left))
        self._rename()

    async def _examine(self, lines: Sequence[_Line]) -> None:
        """Call the first one of each queue that holds work, though nobody was called for it: its marker was lost."""
        with contextlib.suppress(JobsError):  # whoever looks says what is wrong
            for base in {line.base for line in lines}:
                own = [line for line in lines if line.base == base]
                for i in range(0, len(own), LOOKED_AT):
                    for line in await self._working(base, own[i : i + LOOKED_AT]):
                        if first := line.first():
                            first.call(keys.wake(base, line.queue))

    async def _working(self, base: str, lines: Sequence[_Line]) -> list[_Line]:
        """Those whose queue is not paused and holds jobs. Most of the time there is none, and two commands say so."""
        settings = await self._run(
            Call((("HMGET", keys.queues(base), *(line.queue for line in lines)),), list)
        )
        lines = [
            line for line, words in zip(lines, settings, strict=True) if b" paused=" not in (words or b"")
        ]
        places = [keys.queue(base, line.queue) for line in lines]
        if not places or not await self._run(Call((("EXISTS", *places),), int)):
            return []
        found = await self._run(together([("EXISTS", place) for place in places], list))
        return [line for line, there in zip(lines, found, strict=True) if there]

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Stop listening."""
        self._plan(math.inf)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=REST)
            for task in late:
                task.cancel()
        await self._line.aclose(at_once=True)
        if self._rest:
            self._rest.cancel()
        if self._client:
            await self._client.aclose()


def _no_matter(reply: Any) -> None:
    """A marker is a hint: whether it could be put down decides nothing."""
