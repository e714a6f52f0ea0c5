"""The tick: rounds of maintenance, schedules and summoning."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sublet.errors import JobsError, NoNamespace
from sublet.store.orphans import sweep_once

if TYPE_CHECKING:
    from sublet.client.sync_client import SyncClient
    from sublet.operations.operations import Operations
    from sublet.protocol.plan import Plan
    from sublet.scaling.summoner import Summoned

CALLS_MAX = 1000
"""Most calls of `reap`, and of `prune`, in one round."""


@dataclass
class TickSummary:
    """What a tick did in all its `rounds`: leases ended, due jobs queued, finished jobs deleted, schedules' jobs
    submitted, workers invoked (`summoned`) or not (`unreached`).
    """

    reaped: int = 0
    promoted: int = 0
    pruned: int = 0
    fired: int = 0
    summoned: int = 0
    unreached: int = 0
    rounds: int = 0

    def add_summoned(self, summoned: Summoned) -> None:
        """Add the outcome of summoning workers."""
        self.summoned += summoned.summoned
        self.unreached += summoned.failed


Report = Callable[[TickSummary, bool], None]
"""Called after each round with what the tick did so far, and whether there are pools."""
Summon = Callable[["SyncClient"], "Summoned"]


def run_tick(
    client: SyncClient,
    *,
    by: str,
    seconds: float = 0.0,
    every: float = 5.0,
    report: Report = lambda summary, pools: None,
    summon: Summon | None = None,
) -> TickSummary:
    """Run one round at once, then one every `every` seconds until `seconds` are over, then look for large
    payloads without a job, and delete them; return the totals. `by`: the caller's name, for `GET /stats`. `summon` summons workers if
    there are pools (default: with the invokers that the environment allows).

    Raises JobsError if Redis is unavailable or, after summoning, if schedules could not be fired.
    """
    start = time.monotonic()
    summary, store = TickSummary(), client.store
    while True:
        done = store.follow_existing(one_round(store.operations, by, summary))
        if done.pools:
            summary.add_summoned((summon or _summon)(client))
        if done.error:
            raise done.error
        report(summary, done.pools)
        pause = pause_until_next_round(start, every, seconds)
        if pause is None:
            sweep_once(store)
            return summary
        time.sleep(pause)


def _summon(client: SyncClient) -> Summoned:
    from sublet.scaling.sync_summoner import summon_once

    return summon_once(client.store.settings, transport=client.store.transport)


def pause_until_next_round(start: float, every: float, seconds: float) -> float | None:
    """Return the seconds until the next round (every `every` seconds from `start`); None if `seconds` are over then."""
    passed = time.monotonic() - start
    at = (passed // every + 1) * every
    return at - passed if at <= seconds else None


class RoundResult(NamedTuple):
    """One round's result."""

    pools: bool
    """Whether there are pools."""
    error: JobsError | None
    """Why schedules could not be fired; None: no error. The caller raises it once workers are summoned."""


def one_round(operations: Operations, by: str, summary: TickSummary) -> Plan[RoundResult]:
    """Do due maintenance and fire schedules; add to `summary`. Summon no worker. Without a namespace only
    count the round.
    """
    summary.rounds += 1
    try:
        return (yield from _maintain(operations, by, summary))
    except NoNamespace:
        return RoundResult(False, None)


def _maintain(operations: Operations, by: str, summary: TickSummary) -> Plan[RoundResult]:
    schedules_due = False
    for _ in range(CALLS_MAX):
        reaped = yield from operations.reap(by)
        summary.reaped += reaped.ended
        summary.promoted += reaped.queued
        schedules_due = schedules_due or reaped.come
        if not reaped.more:
            break
    for _ in range(CALLS_MAX):
        pruned, more = yield from operations.prune()
        summary.pruned += pruned
        if not more:
            break
    error = None
    if schedules_due:
        try:
            summary.fired += yield from operations.fire(by)
        except JobsError as refused:  # a full server needs its workers
            error = refused
    with suppress(JobsError):  # the history has a gap
        yield from operations.sample()
    return RoundResult(reaped.pools > 0, error)
