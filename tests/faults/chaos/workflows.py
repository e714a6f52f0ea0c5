"""Judge workflows by the story of their jobs, which Redis wrote by its own clock. No I/O."""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sublet.model import Job, State

SHAPES = ("chain", "fan", "batch", "graph")
LEAST, MOST = 2, 200


class Woven(NamedTuple):
    """A workflow that was stored: its jobs, the last of which is its callback, and its edges."""

    id: str
    jobs: Sequence[str]
    edges: Sequence[tuple[str, str]]


def edges_of(shape: str, size: int, drawn: random.Random) -> list[tuple[int, int]]:
    """The edges of a graph of so many jobs, each from an earlier to a later one. All lead to the last job."""
    last = size - 1
    if shape == "chain":
        return [(n, n + 1) for n in range(last)]
    if shape == "fan":
        return [(n, last) for n in range(last)]
    if shape == "batch":
        return [(0, n) for n in range(1, last)] + [(n, last) for n in range(1 if last > 1 else 0, last)]
    found = {(drawn.randrange(max(0, n - 9), n), n) for n in range(1, last) for _ in range(2)}
    ends = set(range(last)) - {upstream for upstream, _ in found}
    return sorted(found | {(n, last) for n in ends})


def size_of(drawn: random.Random) -> int:
    """A number of jobs: as many workflows have 2 to 20 as 20 to 200."""
    return round(LEAST * math.exp(drawn.random() * math.log(MOST / LEAST)))


def too_early(woven: Iterable[Woven], jobs: Mapping[str, Job]) -> list[str]:
    """The jobs of which an attempt began before an upstream was completed. A lost upstream proves nothing."""
    found = []
    for flow in woven:
        for upstream, downstream in flow.edges:
            first, last = jobs.get(upstream), jobs.get(downstream)
            if first and last and last.attempts:
                is_done = (
                    first.state is State.COMPLETED
                    and first.attempts[-1].ended_at <= last.attempts[0].claimed_at
                )
                found += [] if is_done else [f"{downstream} before {upstream}"]
    return found


def delays(woven: Iterable[Woven], jobs: Mapping[str, Job]) -> list[float]:
    """The seconds from the end of the last upstream of each callback to its first claim."""
    found = []
    for flow in woven:
        callback = jobs.get(flow.jobs[-1])
        before = [
            jobs[upstream]
            for upstream, downstream in flow.edges
            if downstream == flow.jobs[-1] and upstream in jobs
        ]
        if callback and callback.attempts and before:
            ends = max(job.attempts[-1].ended_at for job in before if job.attempts)
            found.append((callback.attempts[0].claimed_at - ends).total_seconds())
    return found


def charged_twice(entries: Iterable[tuple[str, str]]) -> list[str]:
    """The jobs whose tasks have seen two results of one step: (job, step and result) of each time."""
    seen: dict[tuple[str, str], set[str]] = defaultdict(set)
    for job_id, words in entries:
        step, _, result = words.partition(" ")
        seen[job_id, step].add(result)
    return sorted(job_id for (job_id, _), results in seen.items() if len(results) > 1)
