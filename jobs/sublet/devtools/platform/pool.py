"""A pool of a platform's own, whose workers are processes of this machine."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sublet.operations import pools
from sublet.operations.pool import QUEUES_MAX, Pool, Sum
from sublet.store.store import Store

PREFIX = "dev:"
"""How the names of such pools begin."""
APP_MAX = 100
"""Characters of an app in a pool's name."""


def name_of(app: str, folder: Path) -> str:
    """What the pool of an app is called that was started in this folder: others, elsewhere, may be called tasks:app, too."""
    where = hashlib.sha256(bytes(folder.resolve())).hexdigest()[:6]
    return f"{PREFIX}{re.sub('[^A-Za-z0-9_.:-]', '-', app)[:APP_MAX]}:{where}"


@dataclass(frozen=True)
class PoolLoad:
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


class LocalPool:
    """Puts it and keeps it there, until it is removed: nobody else is to start workers of an app that is only here."""

    def __init__(self, store: Store, wish: Pool) -> None:
        self._store, self._wish = store, wish

    def calls(self, pool: Pool) -> bool:
        """Does the platform start workers for a pool? Not for another platform's own, whose app may be another one."""
        return pool.name == self._wish.name or not pool.name.startswith(PREFIX)

    @property
    def queues(self) -> tuple[str, ...]:
        """Its queues."""
        return self._wish.queues

    async def put(self, queues: Sequence[str]) -> None:
        """Have it, with these queues. Raises Unavailable."""
        self._wish = self._wish.model_copy(update={"queues": tuple(queues[:QUEUES_MAX])})
        await self.restore()

    async def restore(self) -> None:
        """See that it is as it was put: somebody may have changed or removed it, or emptied the server. Raises Unavailable."""
        await self._store.follow(pools.put(self._store.operations.bases, self._wish))

    async def remove(self) -> None:
        """Have no more workers summoned. Raises Unavailable."""
        await self._store.follow(pools.remove(self._store.operations.bases, self._wish.name))

    async def numbers(self, broken: bool) -> PoolLoad:
        """How it fares now. Raises NotFound or Unavailable."""
        found = (await self._store.follow(pools.look(self._store.operations.bases, self._wish))).sum
        assert isinstance(found, Sum)
        return PoolLoad(found.ready, found.running, found.crew, found.summoned, broken)
