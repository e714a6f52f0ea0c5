"""Figures of flow control, computed from when jobs started and ended."""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

Notes = Sequence[tuple[int, int]]
"""Jobs, and a moment of each in ns, in order."""


def most_at_once(starts: Notes, ends: Notes) -> int:
    """Return the highest number of jobs that ran at a time."""
    moments = sorted([(at, 1) for _, at in starts] + [(at, -1) for _, at in ends])
    most = now = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


def lasted_ms(starts: Notes, ends: Notes) -> float:
    began = dict(starts)
    return statistics.fmean((at - began[n]) / 1e6 for n, at in ends if n in began)


def busiest(starts: Notes, window_ms: int) -> int:
    """Return the highest number of starts within a window of this length, wherever it begins."""
    moments, first, most = [at for _, at in starts], 0, 0
    for i, at in enumerate(moments):
        while at - moments[first] >= window_ms * 1_000_000:
            first += 1
        most = max(most, i - first + 1)
    return most


def steady_rate(starts: Notes, block: int) -> float | None:
    """Return the starts per second, without the first `block` jobs, over whole blocks: from one burst's first job
    to another's.
    """
    moments = [at for _, at in starts]
    blocks = (len(moments) - 1) // block - 1
    if blocks < 1:
        return None
    return blocks * block * 1e9 / (moments[block + blocks * block] - moments[block])


def late_ms(starts: Iterable[float], claims: Iterable[float], every_ms: float) -> list[float]:
    """Return for each job but the first how late it started: ms from its token's moment, `every_ms` after the
    claim of the job before. All moments: ms of one clock.
    """
    waited = pairwise(sorted(claims))
    return [at - before - every_ms for at, (before, _) in zip(sorted(starts)[1:], waited, strict=False)]


def jain(counts: Sequence[int]) -> float:
    """Return Jain's index of fairness: 1 for equal counts, 1/n if one of n has everything (Jain, Chiu, Hawe 1984)."""
    squares = sum(count * count for count in counts)
    return sum(counts) ** 2 / (len(counts) * squares) if squares else 0.0


def while_all_wait(starts: Notes, jobs: int, tenant: Callable[[int], int]) -> Counter[int]:
    """Return how many jobs of each tenant started until the first of them had no more."""
    left = Counter(tenant(n) for n in range(jobs))
    served = Counter(dict.fromkeys(left, 0))
    for n, _ in starts:
        owner = tenant(n)
        served[owner] += 1
        left[owner] -= 1
        if left[owner] == 0:
            break
    return served
