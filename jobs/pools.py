"""Pools as they are kept in Redis, without I/O: the calls of their scripts."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jobs.scripts import Call, script


class Summoning(NamedTuple):
    """What a pool's sum came to."""

    given: int
    """How many workers the caller has to invoke now: the summonses are `<summons>.1`, `<summons>.2` …"""
    word: str
    """`leave` or `stay`, for a worker that asked; else empty."""
    settings: str
    target: str
    sum: Mapping[str, int]
    """The numbers behind it: ready running rate (jobs that come in 1000 s) run (ms) wanted crew summoned owed."""


class Elsewhere(NamedTuple):
    """A queue that lives in another partition than the pools: what it has now, and what it has had since the beginning."""

    queue: str
    ready: int
    running: int
    finished: int
    ended: int
    took: int


def pool(base: str, name: str, revision: int, settings: str, target: str) -> Call[str]:
    """Put a pool, at the revision that was seen; without settings, remove it. `created`, `changed`, `removed`; raises Changed."""
    return script("pool").call(base, bytes.decode, pool=name, revision=revision, settings=settings, target=target)


def summon(
    base: str, name: str, *, summons: str, n: int, leaver: str = "", elsewhere: Sequence[Elsewhere] = ()
) -> Call[Summoning]:
    """Ask for up to `n` (≤ 100) summonses; with 0, look at the sum. Raises NotFound."""

    def read(reply: list[Any]) -> Summoning:
        given, word, settings, target, *rest = reply
        numbers = {rest[i].decode(): int(rest[i + 1]) for i in range(0, len(rest), 2)}
        return Summoning(int(given), word.decode(), settings.decode(), target.decode(), numbers)

    rest = [field for queue in elsewhere for field in queue]
    return script("summon").call(base, read, rest, pool=name, summons=summons, n=n, leaver=leaver)


def complain(base: str, name: str, *, summons: str, n: int, words: str) -> Call[str]:
    """Say that `n` summoned workers could not be invoked, and why. `noted`."""
    return script("complain").call(base, bytes.decode, pool=name, summons=summons, n=n, words=words)
