"""Wait for wake-ups of all queues that claims of this process wait for, over one blocked connection.

One BLPOP names their wake-up lists, and a list of this process's own, which interrupts it for further
queues. A wake-up goes to the longest waiting claim; if that leaves before it claims, to the next or back to
Redis. Losing a wake-up only delays a job.

At least every 2 s one waiter per partition, and one per pattern, claims for all, and up to three reads per 500
queues find those whose wake-up was lost. For claims of more than 32 queues, `Discovery` finds them.
"""

import asyncio
import contextlib
import math
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from sublet.connection.blocking import blocking_pipeline
from sublet.connection.settings import BLOCK_SECONDS, Settings, connect
from sublet.errors import JobsError
from sublet.protocol import keys
from sublet.protocol.scripts import Call
from sublet.protocol.verbs import PATTERNS_MAX
from sublet.store.waiting.discovery import POLL_SECONDS, POLLED, REST, with_jobs
from sublet.store.waiting.ready_queues import Selection

BLPOP_MAX = 1000
"""Most queues in the BLPOP: each costs the server about 1 µs per wake-up. Others are polled."""

Run = Callable[[Call[Any]], Awaitable[Any]]


class Waiter:
    """A claim that waits. `call` ends the wait, and its owner then claims: for a wake-up, or as the poll for all
    waiters of its partitions.
    """

    def __init__(self, queues: Sequence[tuple[str, str]], selection: Selection | None = None) -> None:
        self.queues = (
            selection.lists if selection else {keys.wake(base, name): (base, name) for base, name in queues}
        )
        self.bases = {base for base, _ in self.queues.values()}
        self.selection = selection
        self.patterns = set(selection.patterns if selection else ())
        self.called: asyncio.Future[None] | None = None
        self.wakeup: WakeUp | None = None
        """The wake-up for which it was called, until it has claimed."""
        self.polls = False
        """Whether it was called to poll, and has not claimed yet."""

    @property
    def idle(self) -> bool:
        """Whether it waits and was not called yet."""
        return self.called is not None and not self.called.done()

    @property
    def named(self) -> tuple[str, str] | None:
        """Base and name of the queue whose wake-up it got; None for a poll."""
        if not self.wakeup:
            return None
        base, queue = self.queues.get(self.wakeup.key, ("", ""))
        named = self.wakeup.element if queue.endswith("*") else queue
        return (base, named) if keys.is_name(named) else None

    def call(self, wakeup: "WakeUp | None" = None) -> None:
        """End the wait, so that the claim runs: for a wake-up, or without one to poll."""
        assert self.called, "it is idle"
        self.wakeup = wakeup
        self.polls = not wakeup
        self.called.set_result(None)

    def claimed(self) -> None:
        """Record that it has claimed: its wake-up is used."""
        self.wakeup = None
        self.polls = False


class WakeUp(NamedTuple):
    """One element of a wake-up list."""

    key: str
    element: str
    """A queue's name in a pattern's list."""


@dataclass(slots=True)
class _QueueWaiters:
    base: str
    queue: str
    waiters: dict[Waiter, None] = field(default_factory=dict)

    def first(self) -> Waiter | None:
        return next((waiter for waiter in self.waiters if waiter.idle), None)

    @property
    def is_searched(self) -> bool:
        """Whether `Discovery` finds its jobs for all its waiters."""
        return all(waiter.selection for waiter in self.waiters)


class WakeUps:
    """The waiting claims of one process. `line` replaces `client`, and may read from several servers."""

    def __init__(self, settings: Settings, run: Run, base: str, client: Any = None, line: Any = None) -> None:
        self._client = None if line else client or connect(settings, blocking=True)
        self._line = line or blocking_pipeline(settings, self._client, client)
        self._run = run
        self._own = keys.wake(base, "|" + secrets.token_urlsafe(16))
        self._waiters: dict[Waiter, None] = {}
        self._queues: dict[str, _QueueWaiters] = {}
        self._named: frozenset[str] = frozenset()
        self._reading = self._interrupted = False
        self._rest: asyncio.TimerHandle | None = None
        self._poll_at = math.inf
        self._polling: asyncio.TimerHandle | None = None
        self._examined_at = -math.inf
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def waiting(
        self, queues: Sequence[tuple[str, str]], next_in: float, selection: Selection | None = None
    ) -> Iterator[Waiter]:
        """Register a waiter for these queues, (base, name) each, or a selection, until the block ends.
        `next_in`: seconds until it should claim.
        """
        waiter, rest = Waiter(queues, selection), 0.0
        self._waiters[waiter] = None
        for key, (base, queue) in waiter.queues.items():
            self._queues.setdefault(key, _QueueWaiters(base, queue)).waiters[waiter] = None
        self.poll_within(next_in)
        try:
            yield waiter
        except JobsError:
            rest = REST
            raise
        finally:
            self._remove(waiter, rest)

    def _remove(self, waiter: Waiter, rest: float) -> None:
        del self._waiters[waiter]
        for key in waiter.queues:
            del self._queues[key].waiters[waiter]
            if not self._queues[key].waiters:
                del self._queues[key]
        if waiter.wakeup:
            self._pass_on(waiter.wakeup)
        if not self._waiters:
            self._plan_poll(math.inf)
        elif waiter.polls:
            self.poll_within(rest)

    async def wait(self, waiter: Waiter, seconds: float) -> bool:
        """Wait up to `seconds`. True: the waiter was called and must claim. `hurry` ends the wait with False."""
        waiter.called = asyncio.get_running_loop().create_future()
        self._read()
        if self._has_unnamed(waiter):
            self._interrupt()
        try:
            # not wait_for: before Python 3.12 it may swallow a cancellation
            async with asyncio.timeout(seconds):
                await waiter.called
        except TimeoutError:
            pass  # it may have been called at the same moment
        finally:
            waiter.called = None
        return bool(waiter.wakeup or waiter.polls)

    def _has_unnamed(self, waiter: Waiter) -> bool:
        if waiter.selection and waiter.selection.has_new_lists:
            waiter.selection.has_new_lists = False
            return True
        return len(self._named) < BLPOP_MAX and not self._named.issuperset(waiter.queues)

    def hurry(self) -> None:
        """Make all calls of `wait` return False."""
        for waiter in self._waiters:
            if waiter.called and not waiter.called.done():
                waiter.called.set_result(None)

    def _read(self) -> None:
        named = [] if self._reading else self._queues_to_name()
        if named:
            self._reading = True
            self._named = frozenset(named)
            self._line.send([(("BLPOP", *named, self._own, BLOCK_SECONDS), self._on_reply)])

    def _queues_to_name(self) -> list[str]:
        return list(islice((key for key, queue in self._queues.items() if queue.first()), BLPOP_MAX))

    def _on_reply(self, found: Any) -> None:
        self._reading = self._interrupted = False
        if isinstance(found, Exception):
            self._reading = True  # no new read before the rest is over
            self._named = frozenset()
            self._rest = asyncio.get_running_loop().call_later(REST, self._read_again)
            return
        key, element = map(_text, found or ("", ""))
        if key in self._queues:
            # last in the next BLPOP, so that a busy queue does not starve the others
            self._queues[key] = self._queues.pop(key)
        if key in ("", self._own):
            self._read()
        else:
            self._pass_on(WakeUp(key, element))
            # after the claim: naming a thousand queues takes 1 ms
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, self._read)

    def _read_again(self) -> None:
        self._rest = None
        self._reading = False
        self._read()

    def _pass_on(self, wakeup: WakeUp) -> None:
        queue = self._queues.get(wakeup.key)
        first = queue.first() if queue else None
        if first:
            first.call(wakeup)
        elif self._reading:
            self._start(self._put_back(wakeup))
        else:
            self._line.send([(("LPUSH", *wakeup), _ignore)])

    async def _put_back(self, wakeup: WakeUp) -> None:
        with contextlib.suppress(JobsError):
            await self._run(Call((("LPUSH", *wakeup),), _ignore))

    def _interrupt(self) -> None:
        if not self._interrupted and not self._rest:
            self._interrupted = True
            self._start(self._wake_own_read())

    async def _wake_own_read(self) -> None:
        expiry = BLOCK_SECONDS * 1000  # the read may have just ended: the element must not stay
        try:
            await self._run(Call((("LPUSH", self._own, 1), ("PEXPIRE", self._own, expiry)), _ignore))
        except JobsError:
            await asyncio.sleep(REST)
            self._interrupted = False
            self._update_names()

    def _update_names(self) -> None:
        if self._reading and not self._named.issuperset(self._queues_to_name()):
            self._interrupt()

    def poll_within(self, seconds: float) -> None:
        """Poll within so many seconds, if a claim waits."""
        at = asyncio.get_running_loop().time() + seconds
        if self._waiters and at < self._poll_at:
            self._plan_poll(at)

    @property
    def next_in(self) -> float:
        """Return the seconds until the next poll."""
        return max(0.0, self._poll_at - asyncio.get_running_loop().time())

    def _plan_poll(self, at: float) -> None:
        if self._polling:
            self._polling.cancel()
        self._poll_at = at
        self._polling = None if at == math.inf else asyncio.get_running_loop().call_at(at, self._poll)

    def _poll(self) -> None:
        self._plan_poll(math.inf)
        self.poll_within(POLL_SECONDS)
        bases: set[str] = set()
        patterns: set[str] = set()
        covered: set[str] = set()
        for waiter in self._waiters:
            renews = len(patterns) < PATTERNS_MAX and not waiter.patterns <= patterns
            if waiter.idle and (renews or not waiter.bases <= bases):
                bases |= waiter.bases
                patterns |= waiter.patterns
                covered.update(waiter.queues)
                waiter.call()
        left = [queue for key, queue in self._queues.items() if key not in covered and not queue.is_searched]
        now = asyncio.get_running_loop().time()
        if left and now - self._examined_at > POLL_SECONDS / 4:  # not for every job that falls due
            self._examined_at = now
            self._start(self._examine(left))
        self._update_names()

    async def _examine(self, queues: Sequence[_QueueWaiters]) -> None:
        with contextlib.suppress(JobsError):  # the claim of the poll raises the same error
            for base in {queue.base for queue in queues}:
                own = [queue for queue in queues if queue.base == base]
                for i in range(0, len(own), POLLED):
                    names = {queue.queue: queue for queue in own[i : i + POLLED]}
                    for name in await with_jobs(self._run, base, list(names)):
                        if first := names[name].first():
                            first.call(WakeUp(keys.wake(base, name), "1"))

    def found(self, base: str, queues: Sequence[str]) -> None:
        """Call an idle waiter for each of these queues, of those that wait for a selection."""
        idle: dict[Selection, list[Waiter]] = {}
        for waiter in self._waiters:
            if waiter.idle and waiter.selection and base in waiter.bases:
                idle.setdefault(waiter.selection, []).append(waiter)
        for queue in queues:
            selection = next((each for each in idle if queue in each), None)
            if selection:
                idle[selection].pop(0).call()
                if not idle[selection]:
                    del idle[selection]

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        """Stop waiting and close the connection."""
        self._plan_poll(math.inf)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=REST)
            for task in late:
                task.cancel()
        await self._line.aclose(at_once=True)
        if self._rest:
            self._rest.cancel()
        if self._client:
            await self._client.aclose()


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode("utf-8", "replace")


def _ignore(reply: Any) -> None:
    pass
