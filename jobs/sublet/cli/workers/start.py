"""The start of a worker: check queues and pool, store schedules."""

import asyncio
from argparse import Namespace
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sublet.app import App
from sublet.errors import Forbidden, Refused, did_you_mean
from sublet.execution.app_loader import target_of
from sublet.operations import pools
from sublet.store.readiness import until_ready
from sublet.store.source import JobSource
from sublet.store.store import Store
from sublet_functions.work import on_signals

UNKNOWN = 5


@dataclass
class Start:
    """What a worker does before it claims. `apps`: by MODULE:APP. `address`: of its job source, without
    password. `connect` adds to `warnings` and sets `pool_exists`; a signal sets `stopped`.
    """

    apps: Mapping[str, App]
    args: Namespace
    address: str
    warnings: list[str] = field(default_factory=list)
    pool_exists: bool = True
    stopped: asyncio.Event = field(default_factory=asyncio.Event)

    async def connect(self, source: JobSource) -> float:
        """Wait until the source answers; if it is Redis, check queues and pool (not with --summons), and
        store schedules. Add to `warnings`; return the seconds waited. Raises Unavailable after --wait or
        --for, at once if it is lasting.
        """
        on_signals(self.stopped.set)
        limits = [seconds for seconds in (self.args.wait, self.args.seconds) if seconds is not None]
        warnings, waited = await until_ready(
            lambda: self._check(source), self.address, min(limits, default=None)
        )
        self.warnings += warnings
        return waited

    async def _check(self, source: JobSource) -> list[str]:
        if not isinstance(source, Store):
            await source.workers()
            return []
        await source.prepare()
        args = self.args
        queues, pool = ([], "") if args.summons else (args.queues or [], args.pool)
        unknown_pool = await _unknown_pool(source, pool)
        self.pool_exists = not unknown_pool
        others = [await _unknown_queues(source, self.apps.values(), queues)]
        others += [await sync_schedules(source, app, place) for place, app in self.apps.items()]
        return [*filter(None, [unknown_pool, "; ".join(filter(None, others))])]


async def _unknown_queues(store: Store, apps: Collection[App], queues: Collection[str]) -> str:
    if not queues:
        return ""
    try:
        known = {name for app in apps for name in app.queues()}
        known |= {queue.name for queue in await store.follow(store.operations.queues())}
    except Forbidden:
        return ""
    unknown = [queue for queue in dict.fromkeys(queues) if queue not in known and not queue.endswith("*")]
    shown = [
        f"queue {queue}: no task of this app uses it, and it never had a job{did_you_mean(queue, known)}"
        for queue in unknown[:UNKNOWN]
    ]
    more = len(unknown) - len(shown)
    return "; ".join([*shown, *([f"and {more:,} more such queues"] if more else [])])


async def _unknown_pool(store: Store, name: str) -> str:
    if not name:
        return ""
    known = {pool.name for pool in await store.follow(pools.known(store.operations.bases))}
    return (
        ""
        if name in known
        else f"there is no pool {name}{did_you_mean(name, known)}; the worker runs without it"
    )


async def sync_schedules(store: Store, app: App, place: str) -> str:
    """Store the schedules of an app (`place`: MODULE:APP); return a warning if they were refused, or others
    owned them, else "".
    """
    if not app.schedules:
        return ""
    from sublet.client.schedules import Schedules  # the calendar is slow to load

    try:
        done = await Schedules(store).sync(app.schedules.all(), target_of(place))
    except Refused as error:
        # for example, Redis is full: workers are needed all the more
        return f"the app's schedules could not be stored: {error}"
    taken = [f"{one.name} ({one.before or 'put by hand'})" for one in done if one.is_taken]
    return f"the app's code now owns schedules: {', '.join(taken)}" if taken else ""
