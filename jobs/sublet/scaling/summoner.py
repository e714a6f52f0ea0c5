"""Summons workers for the pools whose queues need some: after a submit, in a tick, at a worker's end.

How many are owed is decided in Redis (`summon`), where two who ask at once are never told the same. What is done here is to ask
at the right moments, and to pass on to an invoker what was handed out. Nothing of it may hold up a submit or make it fail: a
summons that does not get through is counted where people see it, expires by itself, and is handed out again.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sublet.errors import JobsError, NoNamespace, NotFound, Unavailable, Unfit
from sublet.operations import pools
from sublet.operations.pool import Pool, pool_from
from sublet.protocol.plan import Plan
from sublet.scaling.invokers import Invocation, InvocationFailed, Invoker
from sublet.store.store import Store

log = logging.getLogger(__name__)

PAUSE = 0.05
"""Seconds between two askings about one pool."""
KNOWN = 2.0
"""Seconds for which the list of pools is taken to be as it was."""
HANDED = 100
"""Summonses that are asked for at once."""
TOGETHER = 10
"""Workers that one invocation is about."""
LANES = 4
"""Invocations for one pool that are under way at once."""
PATIENCE = 8.0
"""Seconds that one invocation may take, whatever its invoker promises."""
CLOSING = 8.0
"""Seconds that closing waits for what is under way."""
AGAIN = 60.0
"""Seconds between two lines in the log about one pool."""
WORDS_MAX = 300
"""Bytes that are kept of why an invocation failed."""


@dataclass
class Summoned:
    """What one look at all pools came to."""

    pools: int = 0
    """Pools that were asked about: those whose invoker is here."""
    summoned: int = 0
    """Workers that were invoked."""
    failed: int = 0
    """Workers that could not be."""


class Order(NamedTuple):
    """Workers to be invoked together: one for each summons."""

    pool: Pool
    summons: tuple[str, ...]


Invoking = tuple[int, "asyncio.Task[int]"]
"""Of how many workers an invocation is; it gives how many of them could not be invoked."""


async def _outcome(invoking: Sequence[Invoking]) -> Summoned:
    lost = sum([await task for _, task in invoking])
    return Summoned(summoned=sum(n for n, _ in invoking) - lost, failed=lost)


class Troubles:
    """Why pools could not be asked about, kept until the others are seen to."""

    def __init__(self) -> None:
        self.are_all = False
        """Redis does not answer, so it is of no use to ask about another pool."""
        self._first: JobsError | None = None

    @contextlib.contextmanager
    def of(self, pool: str) -> Iterator[None]:
        """Keep what comes of asking about this pool."""
        try:
            yield
        except JobsError as error:
            log.warning("pool %s: cannot ask whether it needs workers: %s", pool, error)
            self.are_all = isinstance(error, Unavailable) and not isinstance(error, Unfit)
            self._first = self._first or error

    def throw(self) -> None:
        """Raise the first of them, if there are any."""
        if self._first:
            raise self._first


def owed(bases: Sequence[str], pool: Pool) -> Plan[list[Order]]:
    """Ask for what a pool is owed: whoever gets orders has to carry them out. Raises NotFound."""
    summons = pools.new_summons()
    found = yield from pools.ask(bases, pool.name, pool.queues, summons=summons, n=HANDED)
    if not found.given:
        return []
    now = pool_from(pool.name, f"0 {found.settings}\n{found.target}", {})  # it may have been changed
    ids = [f"{summons}.{i + 1}" for i in range(found.given)]
    return [Order(now, tuple(ids[i : i + TOGETHER])) for i in range(0, len(ids), TOGETHER)]


class Summoner:
    """Asks what pools are owed, and has it invoked. Belongs to its store's event loop, and closes the invokers that it is given.

    Only pools whose kind of invoker is among these, and of them those that are `ours`, are asked about. For those of `none`, a
    tick has the averages taken, no more.
    """

    def __init__(
        self, store: Store, invokers: Mapping[str, Invoker], ours: Callable[[Pool], bool] = lambda pool: True
    ) -> None:
        self._store, self._ours = store, ours
        self.nudged = 0
        """Times that somebody put something into a queue."""
        self.prompt = False
        """Nothing may be put off: somebody waits for `settle`. A pool that is new is noticed up to 2 s later then."""
        self._invokers = {kind: invoker for kind, invoker in invokers.items() if kind != "none"}
        self._known: dict[str, Pool] = {}
        self._uncalled: list[Pool] = []
        self._by_queue: dict[str, list[str]] = {}
        self._known_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self._unlooked: set[str] = set()
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._under_way: dict[str, set[asyncio.Task[int]]] = {}
        self._lanes: dict[str, asyncio.Semaphore] = {}
        self._said_at: dict[str, float] = {}
        self._closing = asyncio.Event()

    def nudge(self, queues: Iterable[str]) -> None:
        """Something was put into these queues. Returns at once; what comes of it is seen to beside."""
        self.nudged += 1
        if self._closing.is_set() or not self._invokers:
            return
        unknown = set(queues)
        if time.monotonic() - self._known_at < KNOWN:
            self._ask_for(unknown)
            unknown = set() if self.prompt else unknown - self._by_queue.keys()
        self._unlooked |= unknown
        if unknown and self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def summon(self) -> Summoned:
        """Ask about all pools once, and wait for what is invoked. Raises Unavailable when Redis does not answer.

        A pool that cannot be asked about keeps nobody from the others: why it cannot is raised when those are seen to.
        """
        await self._know()
        invoking: list[Invoking] = []
        troubles = Troubles()
        for pool in (*self._known.values(), *self._uncalled):
            with troubles.of(pool.name):
                if pool.invoker == "none":  # somebody may scale it by its sum
                    with contextlib.suppress(NotFound, NoNamespace):
                        await self._store.follow(
                            pools.sample(self._store.operations.bases, pool.name, pool.queues)
                        )
                elif len(self._under_way.get(pool.name, ())) < LANES:  # or else we are at it already
                    invoking += [self._start(order) for order in await self._ask(pool)]
            if troubles.are_all:
                break
        done = replace(await _outcome(invoking), pools=len(self._known))
        troubles.throw()
        return done

    async def carry_out(self, orders: Sequence[Order]) -> Summoned:
        """Have invoked what was handed out, and wait for it."""
        return await _outcome([self._start(order) for order in orders])

    async def may_leave(self, pool: str, worker: str) -> bool:
        """May a worker of a pool go, which is idle? If so it counts no more from this moment on. Raises Unavailable."""
        return await self._store.follow(pools.may_leave(self._store.operations.bases, pool, worker))

    async def settle(self) -> None:
        """Wait until what was nudged is asked for, and what was handed out is invoked."""
        while under_way := self._tasks():
            await asyncio.wait(under_way)

    async def aclose(self, patience: float = CLOSING) -> None:
        """See to what was nudged, for so many seconds at most, and let go of everything."""
        self._closing.set()
        try:
            async with asyncio.timeout(patience):
                await self.settle()
        except TimeoutError:
            log.warning("left %d summonses that would not get through", len(self._tasks()))
        finally:
            left = self._tasks()
            for task in left:
                task.cancel()
            ends = (*left, *(invoker.aclose() for invoker in self._invokers.values()))
            for outcome in await asyncio.gather(*ends, return_exceptions=True):
                if isinstance(outcome, Exception):
                    log.error("cannot close all that summons workers", exc_info=outcome)

    def _tasks(self) -> list[asyncio.Task[None] | asyncio.Task[int]]:
        looking = [self._looking] if self._looking else []
        return [
            *looking,
            *self._asking.values(),
            *(task for tasks in self._under_way.values() for task in tasks),
        ]

    async def _know(self) -> None:
        """Read which pools there are."""
        found = await self._store.follow(pools.known(self._store.operations.bases))
        self._known = {
            pool.name: pool for pool in found if pool.invoker in self._invokers and self._ours(pool)
        }
        self._uncalled = [pool for pool in found if pool.invoker == "none"]
        self._by_queue = {}
        for pool in self._known.values():
            for queue in pool.queues:
                self._by_queue.setdefault(queue, []).append(pool.name)
        self._known_at = time.monotonic()

    async def _look(self) -> None:
        """Look which pools there are, when it is time again: what had none may have one by then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._known_at + KNOWN - time.monotonic())):
                await self._closing.wait()
        try:
            await self._know()
        except JobsError as error:
            self._say("", "cannot look which pools need workers: %s", error)
        finally:
            queues, self._unlooked, self._looking = self._unlooked, set(), None
        self._ask_for(queues)

    def _ask_for(self, queues: Iterable[str]) -> None:
        """Have the pools of these queues asked about: each by one at a time, and once more for who came meanwhile."""
        for name in {name for queue in queues for name in self._by_queue.get(queue, ())}:
            if name in self._asking:
                self._again.add(name)
            else:
                self._asking[name] = asyncio.get_running_loop().create_task(self._attend(name))

    async def _attend(self, name: str) -> None:
        try:
            more = True
            while more and name in self._known:
                self._again.discard(name)
                under_way = self._under_way.get(name, set())
                while len(under_way) >= LANES:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                orders = await self._ask(self._known[name])
                for order in orders:
                    self._start(order)
                await asyncio.sleep(0 if self.prompt else PAUSE)
                more = name in self._again or sum(len(order.summons) for order in orders) == HANDED
        except JobsError as error:
            self._say(name, "pool %s: cannot ask whether it needs workers: %s", name, error)
        finally:
            del self._asking[name]
            self._again.discard(name)

    async def _ask(self, pool: Pool) -> list[Order]:
        try:
            return await self._store.follow(owed(self._store.operations.bases, pool))
        except (NotFound, NoNamespace):  # removed by now
            return []

    def _start(self, order: Order) -> Invoking:
        under_way = self._under_way.setdefault(order.pool.name, set())
        task = asyncio.get_running_loop().create_task(self._invoke(order.pool, order.summons))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        return len(order.summons), task

    async def _invoke(self, pool: Pool, ids: tuple[str, ...]) -> int:
        """Have some workers invoked. How many could not be; that is counted, too."""
        asked, lost = Invocation(pool.name, pool.target, pool.queues, pool.slots, pool.linger, ids), ids
        async with self._lanes.setdefault(pool.name, asyncio.Semaphore(LANES)):
            try:
                invoker = self._invokers.get(pool.invoker)
                if invoker is None:  # the pool has just been given another one
                    raise InvocationFailed(f"who asked has no invoker {pool.invoker}")
                async with asyncio.timeout(PATIENCE):
                    await invoker.invoke(asked)
                return 0
            except InvocationFailed as error:
                lost, why = error.summons or ids, str(error)
            except TimeoutError:
                why = f"no answer for {PATIENCE:g} s"
            except Exception as error:  # noqa: BLE001  what it calls may raise anything, and its words may hold secrets
                why = f"{type(error).__name__} in the invoker"
        self._say(
            pool.name,
            "pool %s: %d of its workers could not be invoked (%s): %s",
            pool.name,
            len(lost),
            pool.invoker,
            why,
        )
        await self._complain(pool.name, lost, why)
        return len(lost)

    async def _complain(self, name: str, ids: tuple[str, ...], why: str) -> None:
        words = why.encode("utf-8", "replace")[:WORDS_MAX].decode("utf-8", "ignore")
        try:
            await self._store.run(
                pools.complain(self._store.operations.bases[0], name, summons=ids[0], n=len(ids), words=words)
            )
        except JobsError as error:  # its summonses expire all the same
            log.debug("pool %s: a failure is not counted: %s", name, error)

    def _say(self, name: str, words: str, *more: object) -> None:
        """Warn, once a minute at most for each pool."""
        now = time.monotonic()
        if now - self._said_at.get(name, float("-inf")) >= AGAIN:
            self._said_at[name] = now
            log.warning(words, *more)
