"""Statistics for `/metrics` and `/stats`: of at most 1,000 queues, and the same from every server."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sublet.operations import groups, statistics
from sublet.operations.coverage import unserved, waits_unclaimed
from sublet.operations.statistics import QueueNumbers, Times
from sublet.protocol import queue_names
from sublet.store.store import Store
from sublet_functions.handlers.call import Call
from sublet_functions.http.scope import Scope

CHUNK = 50


@dataclass(frozen=True, slots=True)
class NamespaceStatistics:
    """The numbers of a namespace: sums over its partitions, and those of up to 1,000 queues."""

    sizes: dict[str, int]
    totals: dict[str, int]
    queues: tuple[QueueNumbers, ...]
    """Numbers by queue, sorted by name. The last one may be `*`: durations, dead and cancelled jobs of the
    queues that the scripts do not count one by one.
    """
    oldest: dict[str, float]
    """Queue → seconds since its first queued job was due."""
    left_out: int
    """How many queues were not read, if all were asked for."""
    unserved: dict[str, int]
    """Those of `queues`, not paused and without a running job, that no worker and no pool's invoker serves →
    queued jobs, the most first.
    """
    workers: int
    maintenance_age: float | None
    """Seconds since the last maintenance; None before the first."""
    maintenance_by: str | None

    @property
    def reads(self) -> int:
        """About how many Redis commands it took to read this."""
        return 3 * len(self.queues) + self.workers


async def names_within(store: Store, scope: Scope) -> tuple[tuple[str, ...], int]:
    """Return the first thousand names in a scope, known queues and those that it names itself, and how many
    more there are.
    """
    found = set(scope.names)
    if scope.beginnings:
        known = await asyncio.gather(
            *(store.follow(queue_names.names(base)) for base in store.operations.bases)
        )
        found.update(name for part in known for name in part if name in scope)
    return tuple(sorted(found)[: statistics.MOST]), max(0, len(found) - statistics.MOST)


async def shared_statistics(call: Call[Any, Any]) -> tuple[NamespaceStatistics, float]:
    """Return the namespace's statistics, shared with other clients if this one accepts older ones, and when
    they were read (monotonic clock; inf if not shared). Raises Unavailable.
    """
    if call.sharing is None:
        return await read_statistics(call.store), math.inf
    reads, patience = call.sharing
    return await reads.share("", patience, lambda: read_statistics(call.store))


async def read_statistics(store: Store, names: Sequence[str] | None = None) -> NamespaceStatistics:
    """Read the namespace's numbers, and those of the queues `names` (None: the thousand busiest). Raises
    Unavailable.
    """
    bases = store.operations.bases
    found_surveys = await asyncio.gather(*(store.run(statistics.survey(base)) for base in bases))
    surveys = dict(zip(bases, found_surveys, strict=True))
    if names is not None:
        chosen = {
            base: [name for name in names if store.operations.base_of_queue(name) == base] for base in bases
        }
    else:
        chosen = {base: [*own, statistics.OTHERS] for base, own in statistics.busiest(surveys).items()}
    parts = await asyncio.gather(
        *(_read_queues(store, base, own, surveys[base].now) for base, own in chosen.items())
    )
    found = [queue for part, _ in parts for queue in part]
    own = sorted((queue for queue in found if queue.name != statistics.OTHERS), key=lambda queue: queue.name)
    maintained = [
        (survey.maintenance_at, survey.maintenance_by)
        for survey in found_surveys
        if survey.maintenance_at is not None
    ]
    now = max(survey.now for survey in found_surveys)
    return NamespaceStatistics(
        sizes=_sum([survey.sizes for survey in found_surveys]),
        totals=_sum([survey.totals for survey in found_surveys]),
        queues=(*own, *_others([queue for queue in found if queue.name == statistics.OTHERS])),
        oldest={name: age for _, ages in parts for name, age in ages.items()},
        left_out=0 if names is not None else max(0, sum(survey.known for survey in found_surveys) - len(own)),
        unserved=await store.follow_existing(unserved(bases, waits_unclaimed(own))),
        workers=await store.run(statistics.here(bases[0], surveys[bases[0]].now)),
        maintenance_age=max(0, now - max(maintained)[0]) / 1000 if maintained else None,
        maintenance_by=max(maintained)[1] if maintained else None,
    )


def _sum(parts: Sequence[dict[str, int]]) -> dict[str, int]:
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def _others(found: Sequence[QueueNumbers]) -> list[QueueNumbers]:
    total = QueueNumbers(statistics.OTHERS, 0, 0, 0, False, None, Times(), Times(), Times(), 0, 0)
    for queue in found:
        total = replace(
            total,
            wait=total.wait + queue.wait,
            completed=total.completed + queue.completed,
            failed=total.failed + queue.failed,
            dead=total.dead + queue.dead,
            cancelled=total.cancelled + queue.cancelled,
        )
    counted = total.wait.count + total.completed.count + total.failed.count + total.dead + total.cancelled
    return [total] if counted else []


async def _read_queues(
    store: Store, base: str, names: Sequence[str], now: int
) -> tuple[list[QueueNumbers], dict[str, float]]:
    found: list[QueueNumbers] = []
    ages: dict[str, float] = {}
    for start in range(0, len(names), CHUNK):
        numbers = await store.follow(statistics.queues(base, names[start : start + CHUNK]))
        part = await store.follow(groups.with_held(base, numbers))
        found += part
        heads = [(queue.name, queue.head) for queue in part if queue.head]
        due = await store.run(statistics.due(base, [head for _, head in heads])) if heads else []
        for (name, _), due_at in zip(heads, due, strict=True):
            if due_at is not None:
                ages[name] = max(0, now - due_at) / 1000
    return found, ages
