"""The namespace in numbers, read for `/metrics` and `/stats`: bounded, in few round trips, and the same from every process."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sublet.operations import statistics
from sublet.operations.statistics import QueueNumbers, Times
from sublet.store.store import Store

CHUNK = 250
"""Queues that one round trip asks about."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """All partitions as if they were one."""

    sizes: dict[str, int]
    totals: dict[str, int]
    queues: tuple[QueueNumbers, ...]
    """By name. The last one may be `*`: what was counted of those that have no numbers of their own."""
    oldest: dict[str, float]
    """Queue → for how many seconds the job at its head has been due."""
    left_out: int
    """Queues that are not among these."""
    workers: int
    upkeep_age: float | None
    """Seconds since somebody last saw to what was due; None if nobody ever had to."""
    upkeep_by: str | None
    """Who that was."""


async def look(store: Store, names: Sequence[str] = ()) -> Numbers:
    """Look at these queues, or at all of them (the busiest, if they are more than a thousand). Raises Unavailable."""
    bases = store.operations.bases
    surveys = dict(
        zip(bases, await asyncio.gather(*(store.run(statistics.survey(base)) for base in bases)), strict=True)
    )
    chosen = {
        base: [name for name in names if store.operations.base_of_queue(name) == base] for base in bases
    }
    if not names:
        chosen = {base: [*own, statistics.OTHERS] for base, own in statistics.busiest(surveys).items()}
    now = max(survey.now for survey in surveys.values())
    parts = await asyncio.gather(
        *(_queues(store, base, own, surveys[base].now) for base, own in chosen.items())
    )
    found = [queue for part, _ in parts for queue in part]
    own = sorted((queue for queue in found if queue.name != statistics.OTHERS), key=lambda queue: queue.name)
    upkeeps = [
        (survey.upkeep_at, survey.upkeep_by) for survey in surveys.values() if survey.upkeep_at is not None
    ]
    return Numbers(
        sizes=_sum([survey.sizes for survey in surveys.values()]),
        totals=_sum([survey.totals for survey in surveys.values()]),
        queues=(*own, *_others([queue for queue in found if queue.name == statistics.OTHERS])),
        oldest={name: age for _, ages in parts for name, age in ages.items()},
        left_out=0 if names else max(0, sum(survey.known for survey in surveys.values()) - len(own)),
        workers=await store.run(statistics.here(bases[0], surveys[bases[0]].now)),
        upkeep_age=max(0, now - max(upkeeps)[0]) / 1000 if upkeeps else None,
        upkeep_by=max(upkeeps)[1] if upkeeps else None,
    )


def _sum(parts: Sequence[dict[str, int]]) -> dict[str, int]:
    return {name: sum(part[name] for part in parts) for name in parts[0]}


def _others(found: Sequence[QueueNumbers]) -> list[QueueNumbers]:
    """What the partitions count of all other queues, in one; nothing if that is nothing."""
    one = QueueNumbers(statistics.OTHERS, 0, 0, 0, False, None, Times(), Times(), Times(), 0, 0)
    for queue in found:
        one = replace(
            one,
            wait=one.wait + queue.wait,
            completed=one.completed + queue.completed,
            failed=one.failed + queue.failed,
            dead=one.dead + queue.dead,
            cancelled=one.cancelled + queue.cancelled,
        )
    return [one] if one.wait.count + one.completed.count + one.failed.count + one.dead + one.cancelled else []


async def _queues(
    store: Store, base: str, names: Sequence[str], now: int
) -> tuple[list[QueueNumbers], dict[str, float]]:
    """Some queues of one partition, and how long the jobs at their heads have been due."""
    found: list[QueueNumbers] = []
    ages: dict[str, float] = {}
    for i in range(0, len(names), CHUNK):
        part = await store.run(statistics.queues(base, names[i : i + CHUNK]))
        found += part
        heads = [(queue.name, queue.head) for queue in part if queue.head]
        moments = await store.run(statistics.due(base, [head for _, head in heads])) if heads else []
        ages |= {
            name: max(0, now - at) / 1000
            for (name, _), at in zip(heads, moments, strict=True)
            if at is not None
        }
    return found, ages
