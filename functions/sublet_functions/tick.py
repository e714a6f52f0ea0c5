"""The tick: sees to what time has decided, to schedules, and to workers that are owed. Any number may run, from any cron."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, NamedTuple

from sublet.errors import JobsError, NoNamespace

if TYPE_CHECKING:
    from sublet.client.client import SyncClient
    from sublet.operations.operations import Operations
    from sublet.protocol.plan import Plan
    from sublet.scaling.summoner import Summoned
    from sublet_functions.adapters.cloudevents import Event
    from sublet_functions.api.request import Call, Reply
    from sublet_functions.schemas.query import Nothing, TickQuery

ROUNDS = 1000
"""Calls that one round makes at most, of each kind."""


@dataclass
class Ticked:
    """What the rounds of a tick did: leases that ended, jobs that fell due, finished jobs forgotten, jobs that schedules made,
    workers that were summoned, and those that could not be invoked."""

    reaped: int = 0
    promoted: int = 0
    pruned: int = 0
    fired: int = 0
    summoned: int = 0
    unreached: int = 0
    rounds: int = 0

    def heard(self, summoned: Summoned) -> None:
        """Add what the summoning of a round came to."""
        self.summoned, self.unreached = self.summoned + summoned.summoned, self.unreached + summoned.failed


Report = Callable[[Ticked, bool], None]
"""Hears after each round what all of them did so far, and whether there are pools."""


def run_tick(
    client: SyncClient,
    *,
    by: str,
    seconds: float = 0.0,
    every: float = 5.0,
    report: Report = lambda done, pools: None,
) -> Ticked:
    """Do one round of upkeep at once, and further ones every `every` seconds until `seconds` are over.

    Raises Unavailable when Redis does not answer: the next tick is the retry.
    """
    start, done = time.monotonic(), Ticked()
    while True:
        found = client.tend(one_round(client.operations, by, done))
        if found.pools:
            from sublet.scaling.sync_summoner import summon_once  # a tick without pools has no need of it

            done.heard(summon_once(client.operations.settings, transport=client.transport))
        if found.trouble:
            raise found.trouble
        report(done, found.pools)
        pause = _pause(start, every, seconds)
        if pause is None:
            return done
        time.sleep(pause)


async def tick(call: Call[Nothing | Event, TickQuery]) -> Reply:
    """Do one round of upkeep, and further ones `every` so many seconds until `for` is over. Any number may run at once.

    Any CloudEvent may stand for it, and is answered with 202.
    """
    from sublet_functions.adapters.cloudevents import TAKEN, Event
    from sublet_functions.api.request import Reply  # whoever ticks from a shell has no need of these
    from sublet_functions.api.response import json_reply

    asked, done, start = call.query, Ticked(), time.monotonic()
    while True:
        found = await call.store.tend(
            one_round(call.store.operations, f"http:{call.who.name}".rstrip(":"), done)
        )
        if found.pools and call.store.summoner:
            done.heard(await call.store.summoner.summon())
        if found.trouble:
            raise found.trouble
        pause = _pause(start, asked.every, asked.seconds)
        if pause is None or call.store.hurried.is_set():
            return Reply(TAKEN) if isinstance(call.body, Event) else json_reply(asdict(done))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await call.store.hurried.wait()


def _pause(start: float, every: float, seconds: float) -> float | None:
    """Seconds until the next round: they begin every so often, from the first on, for so long. None when it was the last."""
    passed = time.monotonic() - start
    at = (passed // every + 1) * every
    return at - passed if at <= seconds else None


class Round(NamedTuple):
    """What a round leaves to its caller."""

    pools: bool
    """Are there pools, which may be owed workers?"""
    trouble: JobsError | None
    """What came of the schedules, if they could not be fired: to be raised when all else is done."""


def one_round(operations: Operations, by: str, done: Ticked) -> Plan[Round]:
    """One round, but for the summoning. Where there is no namespace yet, there is nothing to do, and none is made."""
    done.rounds += 1
    try:
        return (yield from _upkeep(operations, by, done))
    except NoNamespace:
        return Round(False, None)


def _upkeep(operations: Operations, by: str, done: Ticked) -> Plan[Round]:
    """What makes no job comes first, for that works on a full server, too."""
    come, trouble = False, None
    for _ in range(ROUNDS):
        reaped = yield from operations.reap(by)
        done.reaped, done.promoted, come = (
            done.reaped + reaped.ended,
            done.promoted + reaped.queued,
            come or reaped.come,
        )
        if not reaped.more:
            break
    for _ in range(ROUNDS):
        pruned, more = yield from operations.prune()
        done.pruned += pruned
        if not more:
            break
    try:
        done.fired += (yield from operations.fire(by)) if come else 0
    except (
        JobsError
    ) as error:  # a full server takes no new job: now, of all times, its workers must be called
        trouble = error
    return Round(reaped.pools > 0, trouble)
