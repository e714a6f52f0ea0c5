"""The platform's own pool: workers are processes of this machine."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sublet.operations import pools
from sublet.operations.pool import QUEUES_MAX, Pool, Sum
from sublet.store.store import Store

PREFIX = "dev:"
APP_MAX = 100


def pool_name(app: str, folder: Path) -> str:
    """Return the pool's name: `dev:APP:` and a hash of the folder."""
    where = hashlib.sha256(bytes(folder.resolve())).hexdigest()[:6]
    return f"{PREFIX}{re.sub('[^A-Za-z0-9_.:-]', '-', app)[:APP_MAX]}:{where}"


@dataclass(frozen=True)
class PoolLoad:
    """Of a pool: jobs that are ready (`waiting`) and that run, live workers, and workers summoned, but not
    registered yet.
    """

    waiting: int
    running: int
    workers: int
    summoned: int
    broken: bool
    """Whether the app cannot be imported, so that no worker starts."""

    @property
    def words(self) -> str:
        """The load as one line."""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        coming = f", {self.summoned} on the way" if self.summoned else ""
        none = " · no worker is started: the app is broken" if self.broken and self.waiting else ""
        return f"{self.waiting:,} waiting · {self.running:,} running · {workers}{coming}{none}"


class LocalPool:
    """The pool of one `sublet dev`, as stored in Redis."""

    def __init__(self, store: Store, pool: Pool) -> None:
        self._store, self._pool = store, pool

    def is_served(self, pool: Pool) -> bool:
        """Whether this process starts the workers of a pool: its own, or one that no `sublet dev` has made."""
        return pool.name == self._pool.name or not pool.name.startswith(PREFIX)

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of the pool's queues."""
        return self._pool.queues

    async def put(self, queues: Sequence[str]) -> None:
        """Store the pool with the first 32 of these queues. Raises JobsError."""
        self._pool = self._pool.model_copy(update={"queues": tuple(queues[:QUEUES_MAX])})
        await self.restore()

    async def restore(self) -> None:
        """Store the pool again if it was changed or removed. Raises JobsError."""
        await self._store.follow(pools.put(self._store.operations.bases, self._pool))

    async def remove(self) -> None:
        """Remove the pool. Raises JobsError."""
        await self._store.follow(pools.remove(self._store.operations.bases, self._pool.name))

    async def load(self, broken: bool) -> PoolLoad:
        """Return the present load; `broken`: the app cannot be imported. Raises NotFound or Unavailable."""
        found = (await self._store.follow(pools.look(self._store.operations.bases, self._pool))).sum
        assert isinstance(found, Sum)
        return PoolLoad(found.ready, found.running, found.crew, found.summoned, broken)
