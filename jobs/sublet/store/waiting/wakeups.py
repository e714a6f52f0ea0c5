"""Wait for wake-ups of all queues that claims of this process wait for, over one blocked connection.

One BLPOP names their wake-up lists, and a list of this process's own, which interrupts it for further queues.
A wake-up goes to the longest waiting claim; if that fails or is cancelled, to the next or back to Redis.
The claim of a single waiter is sent behind the BLPOP (`ClaimAhead`).

At least every 2 s one waiter per partition, and one per pattern, claims without a wake-up. For the other
queues, up to three reads per 500 find jobs whose wake-up was lost.
"""

import asyncio
import contextlib
import math
import secrets
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from sublet.connection.blocking import blocking_pipeline
from sublet.connection.pipeline import Pipeline, is_error_reply
from sublet.connection.settings import BLOCK_SECONDS, Settings, connect
from sublet.errors import JobsError
from sublet.protocol import keys
from sublet.protocol.scripts import Call
from sublet.protocol.verbs import PATTERNS_MAX
from sublet.store.waiting.claim_ahead import ClaimAhead
from sublet.store.waiting.discovery import POLL_SECONDS, POLLED, REST, with_jobs
from sublet.store.waiting.ready_queues import Selection
from sublet.store.waiting.waiter import QueueWaiters, Waiter, WakeUp

SOON = 0.1
"""Seconds until the connection is used again after an error, times the errors in a row; at most `REST`."""
BLPOP_MAX = 1000
"""Most queues in the blocking read. The others are polled."""

Run = Callable[[Call[Any]], Awaitable[Any]]


class WakeUps:
    """The waiting claims of one process. `line` is a connection to use instead of `client`; `aclose` closes both.
    `withdraw` is called with claims that were sent ahead and whose replies are not needed.
    """

    def __init__(
        self,
        settings: Settings,
        run: Run,
        base: str,
        client: Any = None,
        line: Any = None,
        withdraw: Callable[[ClaimAhead], object] = lambda sent: None,
    ) -> None:
        self._client = None if line else client or connect(settings, blocking=True)
        self._line = line or blocking_pipeline(settings, self._client, client)
        self._run = run
        self._timeout = settings.timeout
        self._withdraw = withdraw
        self._ahead: tuple[Waiter, ClaimAhead] | None = None
        self._breaks = 0
        self._own = keys.wake(base, "|" + secrets.token_urlsafe(16))
        self._waiters: dict[Waiter, None] = {}
        self._queues: dict[str, QueueWaiters] = {}
        self._named: frozenset[str] = frozenset()
        self._reading = self._interrupted = False
        self._rest: asyncio.TimerHandle | None = None
        self._poll_at = math.inf
        self._polling: asyncio.TimerHandle | None = None
        self._examined_at = -math.inf
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def waiting(
        self,
        queues: Sequence[tuple[str, str]],
        next_in: float,
        selection: Selection | None = None,
        prepare: Callable[[], ClaimAhead] | None = None,
    ) -> Iterator[Waiter]:
        """In the `with` block, let a claim wait for these queues (partition, name) or this selection.
        `next_in`: in how many seconds, at most, this or another waiting claim polls. `prepare` makes a claim
        to send ahead.
        """
        waiter, rest = Waiter(queues, selection, prepare), 0.0
        self._waiters[waiter] = None
        for key, (base, queue) in waiter.queues.items():
            self._queues.setdefault(key, QueueWaiters(base, queue)).waiters[waiter] = None
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
        if self._ahead and self._ahead[0] is waiter:
            self._withdraw(self._ahead[1])
            self._ahead = None
        if answered := waiter.take_answered():
            self._withdraw(answered)
        if waiter.wakeup:
            self._pass_on(waiter.wakeup)
        if not self._waiters:
            self._plan_poll(math.inf)
        elif waiter.polls:
            self.poll_within(rest)

    async def wait(self, waiter: Waiter, seconds: float) -> bool:
        """Wait up to `seconds`. Returns True if the claim must run now, or the one sent ahead has its reply;
        False at the timeout or after `hurry`.
        """
        loop = asyncio.get_running_loop()
        if waiter.answered or (waiter.prepare and seconds <= 0):
            return waiter.answered is not None
        waiter.called, waiter.until = loop.create_future(), loop.time() + seconds
        self._read()
        if self._ahead and self._ahead[0] is waiter:
            seconds += REST  # its claim is answered when they are over
        if self._has_unnamed(waiter):
            self._interrupt()
        try:
            # wait_for may swallow a cancellation before Python 3.12
            async with asyncio.timeout(seconds):
                await waiter.called
        except TimeoutError:
            pass  # perhaps called at that moment
        finally:
            waiter.called = None
        return bool(waiter.wakeup or waiter.polls or waiter.answered)

    def _has_unnamed(self, waiter: Waiter) -> bool:
        if waiter.selection and waiter.selection.has_new_lists:
            waiter.selection.has_new_lists = False
            return True
        return len(self._named) < BLPOP_MAX and not self._named.issuperset(waiter.queues)

    def hurry(self) -> None:
        """End all present calls of `wait` early."""
        for waiter in self._waiters:
            if waiter.called and not waiter.called.done():
                waiter.called.set_result(None)

    def _read(self) -> None:
        named = [] if self._reading else self._queues_to_name()
        if not named:
            return
        self._reading = True
        self._named = frozenset(named)
        sent = self._claim_ahead()
        if sent is None:
            self._line.send([(("BLPOP", *named, self._own, BLOCK_SECONDS), self._on_reply)])
            return
        seconds = max(0.001, sent.ends_at - asyncio.get_running_loop().time())
        read = ("BLPOP", *named, self._own, round(seconds, 3))
        self._line.send(
            [(read, partial(self._on_read, sent)), (sent.call.commands[0], partial(self._on_claimed, sent))]
        )

    def _claim_ahead(self) -> ClaimAhead | None:
        waiter = next(iter(self._waiters))
        if (
            self._breaks
            or not waiter.prepare
            or len(self._waiters) > 1
            or not isinstance(self._line, Pipeline)
        ):
            return None
        sent, now = waiter.prepare(), asyncio.get_running_loop().time()
        sent.ends_at = min(waiter.until, now + BLOCK_SECONDS)
        if now + POLL_SECONDS - REST < self._poll_at < sent.ends_at:
            # it is the poll; a server ends reads up to 0.1 s late
            sent.ends_at = self._poll_at
            self._plan_poll(sent.ends_at + REST)  # if it gets no answer
        self._ahead = waiter, sent
        return sent

    def _on_read(self, sent: ClaimAhead, found: Any) -> None:
        sent.read = found
        asyncio.get_running_loop().call_soon(self._expect_answer, sent)  # as a rule it is here then

    def _expect_answer(self, sent: ClaimAhead) -> None:
        if not sent.is_over:
            asyncio.get_running_loop().call_later(self._timeout, self._give_up, sent)

    def _give_up(self, sent: ClaimAhead) -> None:
        if not sent.is_over and isinstance(self._line, Pipeline):
            self._line.fail(TimeoutError(f"a claim was not answered in {self._timeout:g} s"))

    def _on_claimed(self, sent: ClaimAhead, reply: Any) -> None:
        sent.is_over = True
        waiter = self._ahead[0] if self._ahead else None
        self._ahead = None
        if waiter is None:  # it was withdrawn
            self._on_reply(sent.read)
        elif is_error_reply(reply) and waiter.idle:
            key, element = _wakeup_in(sent.read)
            waiter.call(
                WakeUp(key, element) if key in waiter.queues else None
            )  # its next claim may load the script
            self._on_reply(sent.read, is_used=True)
        elif isinstance(reply, Exception):
            self._withdraw(sent)
            self._on_reply(sent.read)
        else:
            sent.reply, waiter.answered = reply, sent
            self._plan_poll(asyncio.get_running_loop().time() + POLL_SECONDS)
            if waiter.idle:
                waiter.call()
            self._on_reply(sent.read, is_used=True)

    def _queues_to_name(self) -> list[str]:
        return list(islice((key for key, queue in self._queues.items() if queue.first()), BLPOP_MAX))

    def _on_reply(self, found: Any, is_used: bool = False) -> None:
        self._reading = self._interrupted = False
        self._breaks = self._breaks + 1 if isinstance(found, Exception) else 0
        if self._breaks:
            self._reading = True  # no new read before the rest is over
            self._named = frozenset()
            self._rest = asyncio.get_running_loop().call_later(
                min(REST, SOON * self._breaks), self._read_again
            )
            return
        key, element = _wakeup_in(found)
        if key in self._queues:
            # last in the next BLPOP: a busy queue must not starve others
            self._queues[key] = self._queues.pop(key)
        if key in ("", self._own) and not is_used:
            self._read()
        else:
            if not is_used:
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
        """Within so many seconds, let one waiting claim per partition and pattern run."""
        at = asyncio.get_running_loop().time() + seconds
        polls_before = self._ahead is not None and self._ahead[1].ends_at <= at
        if self._waiters and at < self._poll_at and not polls_before:
            self._plan_poll(at)

    @property
    def next_in(self) -> float:
        """In how many seconds the next poll is due; infinite without one."""
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
                self._call_to_poll(waiter)
        left = [queue for key, queue in self._queues.items() if key not in covered and not queue.is_searched]
        now = asyncio.get_running_loop().time()
        if left and now - self._examined_at > POLL_SECONDS / 4:  # not for every job that falls due
            self._examined_at = now
            self._start(self._examine(left))
        self._update_names()

    def _call_to_poll(self, waiter: Waiter) -> None:
        if (
            self._ahead
            and self._ahead[0] is waiter
            and asyncio.get_running_loop().time() < self._ahead[1].ends_at
        ):
            self._interrupt()  # its claim polls
            self.poll_within(REST)
        else:
            waiter.call()

    async def _examine(self, queues: Sequence[QueueWaiters]) -> None:
        with contextlib.suppress(JobsError):  # the poll's claim raises it
            for base in {queue.base for queue in queues}:
                own = [queue for queue in queues if queue.base == base]
                for i in range(0, len(own), POLLED):
                    names = {queue.queue: queue for queue in own[i : i + POLLED]}
                    for name in await with_jobs(self._run, base, list(names)):
                        if first := names[name].first():
                            first.call(WakeUp(keys.wake(base, name), "1"))

    def found(self, base: str, queues: Sequence[str]) -> None:
        """For each of these queues, which have jobs, wake one idle claim whose `Selection` includes the queue."""
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
        """Stop reading; close the connections."""
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


def _wakeup_in(found: Any) -> tuple[str, str]:
    key, element = found if isinstance(found, (list, tuple)) else ("", "")
    return _text(key), _text(element)


def _text(raw: bytes | str) -> str:
    return raw if isinstance(raw, str) else raw.decode("utf-8", "replace")


def _ignore(reply: Any) -> None:
    pass
