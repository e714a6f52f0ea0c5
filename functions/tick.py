"""The tick: do what time has decided, and forget what is past its time. Any number may run at once, from any cron."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from jobs.client import SyncClient

ROUNDS = 1000
"""Calls of 200 items that one round makes at most."""


@dataclass
class Ticked:
    """What the rounds of a tick did: leases that ended, jobs that fell due, finished jobs forgotten."""

    reaped: int = 0
    promoted: int = 0
    pruned: int = 0
    rounds: int = 0


def tick(
    client: SyncClient, *, by: str, seconds: float = 0.0, every: float = 5.0, report: Callable[[Ticked], None] = lambda done: None
) -> Ticked:
    """Do one round of upkeep at once, and further ones every `every` seconds until `seconds` are over.

    Raises Unavailable when Redis does not answer: the next tick is the retry.
    """
    until, done = time.monotonic() + seconds, Ticked()
    while True:
        began = time.monotonic()
        _round(client, by, done)
        report(done)
        pause = began + every - time.monotonic()
        if time.monotonic() + max(pause, 0) > until:
            return done
        time.sleep(max(pause, 0))


def _round(client: SyncClient, by: str, done: Ticked) -> None:
    done.rounds += 1
    for _ in range(ROUNDS):
        reaped, promoted, more = client.reap(by)
        done.reaped, done.promoted = done.reaped + reaped, done.promoted + promoted
        if not more:
            break
    for _ in range(ROUNDS):
        pruned, more = client.prune()
        done.pruned += pruned
        if not more:
            break
