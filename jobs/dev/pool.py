"""A pool of a platform's own, whose workers are processes of this machine."""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs import pools
from jobs.pool import QUEUES_MAX, Pool, Sum
from jobs.store import Store


@dataclass(frozen=True)
class Numbers:
    """How it fares."""

    waiting: int
    running: int
    workers: int
    summoned: int
    broken: bool
    """Nobody is started, for the app cannot be loaded."""

    @property
    def words(self) -> str:
        """In a line."""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        coming = f", {self.summoned} on the way" if self.summoned else ""
        none = " · none is started: the app is broken" if self.broken and self.waiting else ""
        return f"{self.waiting:,} waiting · {self.running:,} running · {workers}{coming}{none}"


class OwnPool:
    """Puts it and keeps it there, until it is removed: nobody else is to start workers of an app that is only here."""

    def __init__(self, store: Store, wish: Pool) -> None:
        self._store, self._wish = store, wish

    @property
    def queues(self) -> tuple[str, ...]:
        """Its queues."""
        return self._wish.queues

    async def put(self, queues: Sequence[str]) -> None:
        """Have it, with these queues. Raises Unavailable."""
        self._wish = self._wish.model_copy(update={"queues": tuple(queues[:QUEUES_MAX])})
        await self.see_to()

    async def see_to(self) -> None:
        """See that it is as it was put: somebody may have changed or removed it, or emptied the server. Raises Unavailable."""
        await self._store.follow(pools.put(self._store.layout.bases, self._wish))

    async def remove(self) -> None:
        """Have no more workers summoned. Raises Unavailable."""
        await self._store.follow(pools.remove(self._store.layout.bases, self._wish.name))

    async def numbers(self, broken: bool) -> Numbers:
        """How it fares now. Raises NotFound or Unavailable."""
        found = (await self._store.follow(pools.look(self._store.layout.bases, self._wish))).sum
        assert isinstance(found, Sum)
        return Numbers(found.ready, found.running, found.crew, found.summoned, broken)
