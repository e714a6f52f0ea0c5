"""`tick`: run maintenance, from any cron."""

import os
import sys
from argparse import Namespace
from dataclasses import asdict, replace
from time import strftime
from typing import TYPE_CHECKING

from sublet.cli.output import document, put, write
from sublet.cli.session import client_of, process_name, settings_of
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.devtools.platform.pool import PREFIX
from sublet.errors import Invalid, JobsError
from sublet_functions.tick import TickSummary, run_tick

if TYPE_CHECKING:
    from sublet.scaling.invokers import Invoker
    from sublet.scaling.summoner import Summoned

ALWAYS, SOMETIMES = ("reaped", "promoted", "pruned", "fired"), ("summoned", "unreached")


def tick(args: Namespace) -> int:
    """Do maintenance, fire schedules, summon workers; once or (--for) repeatedly; print the counts."""
    if args.every is not None and args.seconds is None:
        raise Invalid("--every needs --for: say how long to repeat, e.g. --for 55s --every 5s")
    before, told = TickSummary(), set[str]()

    def report(done: TickSummary, pools: bool) -> None:
        nonlocal before
        if _as_text(done) != _as_text(before) and not args.json and args.seconds:
            write(f"{strftime('%H:%M:%S')}  {_as_text(done, before)}")
            sys.stdout.flush()
        before = replace(done)
        if pools:
            _warn_of_uninvoked(client, told, workers)

    settings = settings_of(args)
    app = args.app or os.environ.get("SUBLET_APP")
    workers = LocalWorkers(app, settings) if app else None
    with client_of(settings) as client:
        done = run_tick(
            client,
            by=process_name("tick"),
            seconds=args.seconds or 0.0,
            every=args.every or 5.0,
            report=report,
            summon=workers.summon if workers else None,
        )
    if args.json:
        document(asdict(done))
    else:
        write(_as_text(done) + (f" · in {done.rounds} rounds" if done.rounds > 1 else ""))
    return 0


class LocalWorkers:
    """Summons workers of all pools but those of `sublet dev`, for a tick. Workers of pools with the invoker
    `process` start on this machine.
    """

    def __init__(self, app: str, settings: Settings) -> None:
        from sublet.scaling.invokers.detached import DetachedInvoker
        from sublet.tasks.user_modules import check_module

        check_module(app.partition(":")[0])
        variables = {"SUBLET_REDIS_URL": settings.redis_url, "SUBLET_NAMESPACE": settings.namespace}
        self._own = DetachedInvoker(app, variables=variables)

    def invokers(self) -> "dict[str, Invoker]":
        """Return this process's invokers by kind, `process` included."""
        from sublet.scaling.invokers import invokers_of

        return invokers_of() | {"process": self._own}

    def summon(self, client: SyncClient) -> "Summoned":
        """Summon and invoke owed workers once, as `summon_once`; return the counts."""
        from sublet.scaling.sync_summoner import summon_once

        store = client.store
        return summon_once(
            store.settings, self.invokers, store.transport, lambda pool: not pool.name.startswith(PREFIX)
        )


def _warn_of_uninvoked(client: SyncClient, told: set[str], workers: LocalWorkers | None) -> None:
    from sublet.scaling.invokers import invokers_of
    from sublet.scaling.sync_summoner import uninvoked

    invokers = workers.invokers if workers else invokers_of
    try:
        found = uninvoked(client.store.settings, client.store.transport, invokers)
    except JobsError:
        return
    for pool in found:
        if pool.pool not in told:
            put(pool.text, stream=sys.stderr)
            told.add(pool.pool)


def _as_text(done: TickSummary, before: TickSummary | None = None) -> str:
    since = before or TickSummary()
    counts = [(name, getattr(done, name) - getattr(since, name)) for name in ALWAYS + SOMETIMES]
    return " · ".join(f"{name} {count}" for name, count in counts if count or name in ALWAYS)
