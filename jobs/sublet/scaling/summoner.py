"""Summon and invoke the workers that pools are owed: after a submit, in a tick, and at a worker's end.

The script `summon` decides in Redis, so two callers never get the same summons.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sublet.errors import Invalid, JobsError, NoNamespace, NotFound, Unavailable, Unfit
from sublet.operations import pools
from sublet.operations.pool import Pool, pool_from
from sublet.protocol import keys
from sublet.protocol.plan import Plan
from sublet.protocol.reads import MALFORMED
from sublet.scaling.invokers import Invocation, InvocationFailed, Invoker, invokers_of, why_missing
from sublet.store.store import Store

log = logging.getLogger(__name__)

PAUSE = 0.05
"""Least seconds between two checks, after submits, whether one pool is owed workers."""
KNOWN = 2.0
SUMMONS_MAX = 100
BATCH = 10
AT_ONCE = 4
"""Most batches of one pool's workers that are invoked at the same time."""
PATIENCE = 8.0
"""Seconds after which the invocation of a batch is given up."""
CLOSING = 8.0
AGAIN = 60.0
REASON_MAX = 300


@dataclass
class Summoned:
    """How many workers were invoked (`summoned`), and how many could not be (`failed`)."""

    pools: int = 0
    """How many pools were checked: only those that the caller may invoke; 0 after `Summoner.invoke`."""
    summoned: int = 0
    failed: int = 0


class InvocationBatch(NamedTuple):
    """Up to 10 workers of a pool to invoke together: one per summons id."""

    pool: Pool
    summons: tuple[str, ...]


Invoking = tuple[int, "asyncio.Task[int]"]
"""How many workers a batch has, and the asyncio task that invokes them; its result is how many failed."""


async def _outcome(invoking: Sequence[Invoking]) -> Summoned:
    lost = sum([await task for _, task in invoking])
    return Summoned(summoned=sum(n for n, _ in invoking) - lost, failed=lost)


class PoolErrors:
    """Logs the errors of single pools, so that the other pools are handled before the first error is raised."""

    def __init__(self) -> None:
        self.stop = False
        """Whether Redis is unavailable, or refuses this user, so the remaining pools would fail as well."""
        self._first: JobsError | None = None

    @contextlib.contextmanager
    def catch(self, pool: str) -> Iterator[None]:
        """Catch and log a JobsError of the `with` block; keep the first of all pools."""
        try:
            yield
        except JobsError as error:
            log.warning("pool %s: cannot check whether it needs workers: %s", pool, error)
            self.stop = isinstance(error, Unavailable) and not isinstance(error, Unfit)
            self._first = self._first or error

    def throw(self) -> None:
        """Raise the first error, if any."""
        if self._first:
            raise self._first


def take_owed(bases: Sequence[str], pool: Pool) -> Plan[list[InvocationBatch]]:
    """Record a summons for each worker that a pool is owed, at most 100; return them in batches ([]: none is
    owed), which the caller must invoke. Raises NotFound; Invalid if the stored pool is invalid.
    """
    summons = pools.new_summons()
    found = yield from pools.ask(bases, pool.name, pool.queues, summons=summons, n=SUMMONS_MAX)
    if not found.given:
        return []
    # The settings may have changed meanwhile.
    try:
        now = pool_from(pool.name, f"0 {found.settings}\n{found.target}", {})
    except (*MALFORMED, OSError) as error:
        raise Invalid(str(error)) from error
    ids = [f"{summons}.{i + 1}" for i in range(found.given)]
    return [InvocationBatch(now, tuple(ids[i : i + BATCH])) for i in range(0, len(ids), BATCH)]


class Summoner:
    """Summons and invokes the workers of those pools that `ours` accepts and whose invoker is in `invokers`.
    For one event loop. Of pools with the invoker `none`, `summon` only updates the stored
    averages (`Sum.rate`, `Sum.run`).
    """

    def __init__(
        self, store: Store, invokers: Mapping[str, Invoker], ours: Callable[[Pool], bool] = lambda pool: True
    ) -> None:
        self._store, self._ours = store, ours
        self.nudged = 0
        self.prompt = False
        """Whether `finish` must be quick, because the process may be frozen after it. Nudges then ignore a
        pool that is newer than the cached list.
        """
        self._invokers = {kind: invoker for kind, invoker in invokers.items() if kind != "none"}
        self._known: dict[str, Pool] = {}
        self._uncalled: list[Pool] = []
        self._by_queue: dict[str, list[str]] = {}
        self._known_at = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None
        self._pending: set[str] = set()
        self._summoning: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._under_way: dict[str, set[asyncio.Task[int]]] = {}
        self._lanes: dict[str, asyncio.Semaphore] = {}
        self._said_at: dict[str, float] = {}
        self._closing = asyncio.Event()

    def nudge(self, queues: Iterable[str]) -> None:
        """Begin to summon workers of the pools of these queues, which have new jobs. Returns at once;
        errors are logged.
        """
        self.nudged += 1
        if self._closing.is_set() or not self._invokers:
            return
        unknown = set(queues)
        if time.monotonic() - self._known_at < KNOWN:
            self._summon_for(unknown)
            unknown = set() if self.prompt else unknown - self._by_queue.keys()
        self._pending |= unknown
        if unknown and self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def summon(self) -> Summoned:
        """Summon and invoke the owed workers of all pools once, up to 100 per pool; wait for the invocations.
        Then raise the first error, such as Unavailable; failed invocations are only counted.
        """
        await self._know()
        invoking: list[Invoking] = []
        errors = PoolErrors()
        for pool in (*self._known.values(), *self._uncalled):
            with errors.catch(pool.name):
                if pool.invoker == "none":
                    with contextlib.suppress(NotFound, NoNamespace):
                        await self._store.follow(
                            pools.sample(self._store.operations.bases, pool.name, pool.queues)
                        )
                elif len(self._under_way.get(pool.name, ())) < AT_ONCE:
                    invoking += [self._start(batch) for batch in await self._take(pool)]
            if errors.stop:
                break
        done = replace(await _outcome(invoking), pools=len(self._known))
        errors.throw()
        return done

    async def invoke(self, batches: Sequence[InvocationBatch]) -> Summoned:
        """Invoke the workers of these batches; return how many were invoked, and how many could not be."""
        return await _outcome([self._start(batch) for batch in batches])

    async def may_leave(self, pool: str, worker: str) -> bool:
        """Ask Redis whether an idle worker may leave its pool. If so, the pool no longer counts the worker.
        Also True if the pool is unknown. Raises Unavailable.
        """
        return await self._store.follow(pools.may_leave(self._store.operations.bases, pool, worker))

    async def finish(self) -> None:
        """Wait until all summoning and invocations have ended."""
        while under_way := self._tasks():
            await asyncio.wait(under_way)

    async def aclose(self, patience: float = CLOSING) -> None:
        """Wait up to `patience` seconds for summoning and invocations under way, cancel the rest, close the
        invokers.
        """
        self._closing.set()
        try:
            async with asyncio.timeout(patience):
                await self.finish()
        except TimeoutError:
            log.warning(
                "gave up %d invocations that did not end in time: their workers are owed again if they do not arrive",
                len(self._tasks()),
            )
        finally:
            left = self._tasks()
            for task in left:
                task.cancel()
            ends = (*left, *(invoker.aclose() for invoker in self._invokers.values()))
            for outcome in await asyncio.gather(*ends, return_exceptions=True):
                if isinstance(outcome, Exception):
                    log.error("cannot close an invoker", exc_info=outcome)

    def _tasks(self) -> list[asyncio.Task[None] | asyncio.Task[int]]:
        looking = [self._refreshing] if self._refreshing else []
        return [
            *looking,
            *self._summoning.values(),
            *(task for tasks in self._under_way.values() for task in tasks),
        ]

    async def _know(self) -> None:
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

    async def _refresh(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._known_at + KNOWN - time.monotonic())):
                await self._closing.wait()
        try:
            await self._know()
        except JobsError as error:
            self._warn("", "cannot read the list of pools: %s", error)
        finally:
            queues, self._pending, self._refreshing = self._pending, set(), None
        self._summon_for(queues)

    def _summon_for(self, queues: Iterable[str]) -> None:
        for name in {name for queue in queues for name in self._pools_of(queue)}:
            if name in self._summoning:
                self._again.add(name)
            else:
                self._summoning[name] = asyncio.get_running_loop().create_task(self._summon_pool(name))

    def _pools_of(self, entry: str) -> Iterable[str]:
        if not entry.endswith("*"):
            return self._by_queue.get(entry, ())
        return (name for queue, names in self._by_queue.items() if keys.fits(queue, entry) for name in names)

    async def _summon_pool(self, name: str) -> None:
        try:
            more = True
            while more and name in self._known:
                self._again.discard(name)
                under_way = self._under_way.get(name, set())
                while len(under_way) >= AT_ONCE:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                batches = await self._take(self._known[name])
                for batch in batches:
                    self._start(batch)
                await asyncio.sleep(0 if self.prompt else PAUSE)
                more = name in self._again or sum(len(batch.summons) for batch in batches) == SUMMONS_MAX
        except JobsError as error:
            self._warn(name, "pool %s: cannot check whether it needs workers: %s", name, error)
        finally:
            del self._summoning[name]
            self._again.discard(name)

    async def _take(self, pool: Pool) -> list[InvocationBatch]:
        try:
            return await self._store.follow(take_owed(self._store.operations.bases, pool))
        except (NotFound, NoNamespace):
            return []

    def _start(self, batch: InvocationBatch) -> Invoking:
        under_way = self._under_way.setdefault(batch.pool.name, set())
        task = asyncio.get_running_loop().create_task(self._invoke(batch.pool, batch.summons))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        return len(batch.summons), task

    async def _invoke(self, pool: Pool, ids: tuple[str, ...]) -> int:
        asked, lost = Invocation(pool.name, pool.target, pool.queues, pool.slots, pool.linger, ids), ids
        async with self._lanes.setdefault(pool.name, asyncio.Semaphore(AT_ONCE)):
            try:
                invoker = self._invokers.get(pool.invoker)
                if invoker is None:
                    raise InvocationFailed(
                        f"the pool was changed to the invoker {pool.invoker}, which this process lacks "
                        f"({why_missing(pool.invoker)}): another process must summon for it"
                    )
                async with asyncio.timeout(PATIENCE):
                    await invoker.invoke(asked)
                return 0
            except InvocationFailed as error:
                lost, why, detail = error.summons or ids, str(error), error.detail
            except TimeoutError:
                why = detail = f"no answer within {PATIENCE:g} s"
            except Exception as error:  # noqa: BLE001  an invoker may raise anything, and its message may contain secrets
                why = detail = f"the invoker raised {type(error).__name__}"
        self._warn(
            pool.name,
            "pool %s: %d of its workers could not be invoked (invoker %s): %s",
            pool.name,
            len(lost),
            pool.invoker,
            detail,
        )
        await self._complain(pool.name, lost, why)
        return len(lost)

    async def _complain(self, name: str, ids: tuple[str, ...], why: str) -> None:
        reason = why.encode("utf-8", "replace")[:REASON_MAX].decode("utf-8", "ignore")
        try:
            await self._store.run(
                pools.complain(
                    self._store.operations.bases[0], name, summons=ids[0], n=len(ids), reason=reason
                )
            )
        except JobsError as error:
            log.debug("pool %s: cannot store a failed invocation: %s", name, error)

    def _warn(self, name: str, words: str, *more: object) -> None:
        now = time.monotonic()
        if now - self._said_at.get(name, float("-inf")) >= AGAIN:
            self._said_at[name] = now
            log.warning(words, *more)


def attach(store: Store) -> Summoner:
    """Make a store summon workers after each submit. Return the summoner, which the caller must close."""
    summoner = Summoner(store, invokers_of())
    store.nudge = summoner.nudge
    return summoner
