"""The random decisions of a run: each has a name, and its first option is the ordinary one.

A run is fully described by its *deviations*, the decisions for another option. Decisions are drawn from the
seed by their names and not from one stream, so that leaving out a deviation does not change the others. This
makes a failing run easy to shrink.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

Deviations = dict[str, int]
"""Name of the decision → number of the option that was taken, from 1."""


class Choices:
    """Decides by a seed; or replays deviations, and takes the ordinary option otherwise."""

    def __init__(self, seed: int | None = None, replay: Mapping[str, int] | None = None) -> None:
        self.seed, self.replay = seed, replay
        self.taken: Deviations = {}
        self.calm = False
        """Set at the end of a run: no faults from then on."""

    def pick(self, name: str, options: Sequence[T], chance: float = 1.0) -> T:
        """The first option, or with this probability one of the others. A name is used once in a run."""
        if self.calm or len(options) < 2:
            return options[0]
        if self.replay is not None:
            number = min(self.replay.get(name, 0), len(options) - 1)
        else:
            number = self._draw(name, len(options) - 1, chance)
        if number:
            self.taken[name] = number
        return options[number]

    def _draw(self, name: str, others: int, chance: float) -> int:
        digest = hashlib.blake2b(f"{self.seed} {name}".encode(), digest_size=8).digest()
        drawn = int.from_bytes(digest, "big") / 2**64
        return 1 + min(others - 1, int(drawn / chance * others)) if drawn < chance else 0
