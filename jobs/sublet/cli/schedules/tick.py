"""`tick`: run maintenance, from any cron."""

import sys
from argparse import Namespace
from dataclasses import asdict, replace
from time import strftime

from sublet.cli.output import document, put, write
from sublet.cli.session import client_of, process_name, settings_of
from sublet.client.sync_client import SyncClient
from sublet.errors import Invalid, JobsError
from sublet_functions.tick import TickSummary, run_tick

ALWAYS, SOMETIMES = ("reaped", "promoted", "pruned", "fired"), ("summoned", "unreached")
"""Counters that are always printed; counters that are printed if they are not 0."""


def tick(args: Namespace) -> int:
    """Do maintenance, fire schedules, summon workers; once or (--for) every --every; print the counts."""
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
            _warn_of_uninvoked(client, told)

    with client_of(settings_of(args)) as client:
        done = run_tick(
            client,
            by=process_name("tick"),
            seconds=args.seconds or 0.0,
            every=args.every or 5.0,
            report=report,
        )
    if args.json:
        document(asdict(done))
    else:
        write(_as_text(done) + (f" · in {done.rounds} rounds" if done.rounds > 1 else ""))
    return 0


def _warn_of_uninvoked(client: SyncClient, told: set[str]) -> None:
    from sublet.scaling.sync_summoner import uninvoked

    try:
        found = uninvoked(client.store.settings, client.store.transport)
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
