"""Shrink a failing run: leave out as many deviations as possible, then take simpler ones, while the run still fails.

This is delta debugging (Zeller and Hildebrandt, 2002) over named decisions. Leaving one out means taking the
ordinary option, and changes no other decision, so most of them can be left out in large pieces.
"""

from collections.abc import Callable

from tests.faults.simulation.choices import Choices, Deviations
from tests.faults.simulation.run import Outcome, run


def shrink(outcome: Outcome, replays: int = 1000) -> Outcome:
    """The smallest failing run within this number of replays, with its story. Any failure counts, not only the same one."""
    left = replays

    def fails(deviations: Deviations) -> Deviations | None:
        nonlocal left
        left -= 1
        if left < 0:
            return None
        again = run(Choices(replay=deviations))
        return again.deviations if again.wrong else None

    small = _simpler(_fewer(outcome.deviations, fails), fails)
    shown = run(Choices(replay=small), with_story=True)
    shown.seed = outcome.seed
    return shown


def smallest(outcome: Outcome, enough: int = 8, seeds: int = 30) -> Outcome:
    """A small failing run. If this seed's cannot be shrunk, as with a tight race, the next seeds are tried, too."""
    best = shrink(outcome)
    for seed in range((outcome.seed or 0) + 1, (outcome.seed or 0) + 1 + seeds):
        if len(best.deviations) <= enough:
            break
        other = run(Choices(seed))
        if other.wrong:
            best = min(best, shrink(other), key=lambda found: len(found.deviations))
    return best


Fails = Callable[[Deviations], Deviations | None]
"""The deviations that a replay met with until it failed; None if it did not fail."""


def _fewer(deviations: Deviations, fails: Fails) -> Deviations:
    """Leave pieces out, large ones first, until none can be left out."""
    size = len(deviations)
    while size:
        names = sorted(deviations)
        start, left_out = 0, False
        while start < len(names):
            piece = set(names[start : start + size])
            found = fails({name: number for name, number in deviations.items() if name not in piece})
            if found is not None:
                deviations, names, left_out = found, [name for name in names if name in found], True
            else:
                start += size
        size = size if left_out and size == 1 else size // 2
    return deviations


def _simpler(deviations: Deviations, fails: Fails) -> Deviations:
    """Take options nearer to the ordinary one."""
    for name in sorted(deviations):
        for number in range(1, deviations.get(name, 0)):
            found = fails({**deviations, name: number})
            if found is not None:
                deviations = found
                break
    return deviations
