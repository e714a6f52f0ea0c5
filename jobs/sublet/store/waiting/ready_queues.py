"""Which queues have jobs, and whose turn it is, for claims from patterns or from more than 32 queues."""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from sublet.errors import Invalid
from sublet.model import Lease
from sublet.protocol import keys, verbs

READY_MAX = 10_000
"""Most queues of a partition that are remembered as having jobs."""
LISTS_MAX = 1000
"""Most queues of one claim whose wake-ups are read: those that had jobs last."""
SELECTIONS = 64


class Selection:
    """A claim's queues and patterns, and how many jobs were claimed from each, so that queues take turns.

    The attribute `bases`: the partitions to ask. Raises Invalid.
    """

    def __init__(self, entries: Sequence[str], bases: Sequence[str], base_of: Callable[[str], str]) -> None:
        self.patterns = check_entries(entries)
        self._prefixes = tuple(pattern[:-1] for pattern in self.patterns)
        self._ranks = {entry: i for i, entry in enumerate(entries)}
        names = [entry for entry in entries if not entry.endswith("*")]
        self.bases = list(bases) if self.patterns else list(dict.fromkeys(map(base_of, names)))
        self._lists = {
            keys.wake(base, name): (base, name) for name in names[:LISTS_MAX] for base in [base_of(name)]
        }
        self._is_long = len(names) > LISTS_MAX
        self._taken: dict[str, float] = {}
        self._level = 0.0
        self.has_new_lists = False
        """Whether `prefer` has added to `lists` since this was last set to False."""
        self.searched_at = float("-inf")
        """When the last search of its queues that has ended began (`time.monotonic`)."""

    def __contains__(self, queue: str) -> bool:
        return queue in self._ranks or queue.startswith(self._prefixes)

    @property
    def lists(self) -> dict[str, tuple[str, str]]:
        """The wake-up lists to read: key → partition (key prefix), and queue or pattern."""
        own = {keys.wake(base, pattern): (base, pattern) for base in self.bases for pattern in self.patterns}
        return own | self._lists

    def prefer(self, base: str, queue: str) -> None:
        """If the claim names over 1,000 queues, this among them: from now on read this queue's wake-ups, not
        those of the queue preferred longest ago.
        """
        if self._is_long and queue in self._ranks:
            key = keys.wake(base, queue)
            self.has_new_lists = self.has_new_lists or key not in self._lists
            self._lists.pop(key if key in self._lists else next(iter(self._lists)))
            self._lists[key] = (base, queue)

    def turn(self, queue: str, strict: bool) -> tuple[int, float]:
        """Return a sort key: the queue with the smallest is asked next; if `strict`, the first in the claim's
        order.
        """
        return (self._rank(queue) if strict else 0), max(self._taken.get(queue, 0.0), self._level)

    def _rank(self, queue: str) -> int:
        own = self._ranks.get(queue, len(self._ranks))
        return min([own, *(self._ranks[entry] for entry in self.patterns if keys.fits(queue, entry))])

    def count(self, taken: Mapping[str, int]) -> None:
        """Count claimed jobs (queue → number). A queue gets no extra turns for the time when it was empty."""
        if taken:
            before = {queue: self.turn(queue, False)[1] for queue in taken}
            self._level = max(self._level, min(before.values()))
            self._taken.update({queue: before[queue] + n for queue, n in taken.items()})
        if len(self._taken) > 2 * READY_MAX:
            self._taken = {queue: n for queue, n in self._taken.items() if n > self._level}


def check_entries(entries: Sequence[str]) -> list[str]:
    """Return the patterns among a worker's queues, each once. Raises Invalid for an invalid name or over 16
    patterns.
    """
    for entry in entries:
        if not keys.is_name(entry) and not keys.is_pattern(entry):
            raise Invalid(f"queue {entry[:80]!r}: {keys.entry_rule()}")
    patterns = list(dict.fromkeys(entry for entry in entries if entry.endswith("*")))
    if len(patterns) > verbs.PATTERNS_MAX:
        raise Invalid(
            f"{len(patterns)} patterns: a worker has up to {verbs.PATTERNS_MAX}: use a shorter beginning for several, or *"
        )
    return patterns


class ReadyQueues:
    """The queues that probably have jobs: found by a search, named by a wake-up, or not emptied by a claim."""

    def __init__(self, bases: Sequence[str], base_of: Callable[[str], str]) -> None:
        self._bases, self._base_of = bases, base_of
        self._named: dict[str, dict[str, int]] = {}
        self._count = itertools.count()
        self._selections: dict[tuple[str, ...], Selection] = {}

    def selection(self, entries: Sequence[str]) -> Selection:
        """Return the selection for a claim's queues and patterns; the last 64 are remembered. Raises Invalid."""
        key = tuple(entries)
        selection = self._selections.pop(key, None) or Selection(key, self._bases, self._base_of)
        self._selections[key] = selection
        if len(self._selections) > SELECTIONS:
            del self._selections[next(iter(self._selections))]
        return selection

    def add(self, base: str, queues: Iterable[str]) -> None:
        """Remember that queues have jobs, at most 10,000 per partition."""
        known = self._named.setdefault(base, {})
        for queue in queues:
            if queue in known or len(known) < READY_MAX:
                known[queue] = next(self._count)
            for selection in self._selections.values():
                selection.prefer(base, queue)

    def has(self, base: str, queue: str) -> bool:
        """Whether a queue probably has jobs."""
        return queue in self._named.get(base, ())

    def any(self, selection: Selection) -> bool:
        """Whether a queue of the selection probably has jobs."""
        return any(queue in selection for base in selection.bases for queue in self._named.get(base, ()))

    def bases(self, selection: Selection, strict: bool) -> list[str]:
        """Return the partitions in the order in which the next claim asks them."""
        if len(selection.bases) == 1:
            return selection.bases
        turns: dict[str, tuple[float, float]] = {}
        for base in selection.bases:
            first = next(iter(self.pick(base, selection, 1, strict)), None)
            turns[base] = (float("inf"), 0.0) if first is None else selection.turn(first, strict)
        return sorted(selection.bases, key=turns.__getitem__)

    def pick(self, base: str, selection: Selection, most: int, strict: bool) -> dict[str, int]:
        """Return up to `most` queues that probably have jobs, each with a mark, those to ask next first (`strict`: in the
        given order). Pass them to `claimed`."""
        known = self._named.get(base, {})
        own = [queue for queue in known if queue in selection]
        first = heapq.nsmallest(most, own, key=lambda queue: selection.turn(queue, strict))
        return {queue: known[queue] for queue in first}

    def claimed(
        self, base: str, selection: Selection, asked: Mapping[str, int], leases: Sequence[Lease], wanted: int
    ) -> None:
        """Record that a claim of up to `wanted` jobs `asked` these queues and got these leases; forget queues that
        are empty now.
        """
        selection.count(Counter(lease.queue for lease in leases))
        known, empty = self._named.get(base, {}), list(asked)
        last = leases[-1].queue if leases else ""
        is_full = len(leases) >= wanted or sum(len(lease.payload) for lease in leases) > verbs.BYTES
        if is_full and last in asked:
            empty = empty[: empty.index(last)]
            if last in known:
                known[last] = known.pop(last)  # behind its equals
        for queue in empty:
            if known.get(queue) == asked[queue]:  # not named again meanwhile
                del known[queue]
