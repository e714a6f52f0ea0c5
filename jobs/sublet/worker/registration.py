"""The registration of one worker in Redis."""

import asyncio
import json
import logging
import os
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sublet.errors import Invalid, JobsError, NoNamespace, OutOfMemory, WorkersFull
from sublet.model import Card, WorkerInfo
from sublet.protocol.verbs import QUEUES_MAX
from sublet.store.source import JobSource
from sublet.tasks.catalogue import DescribedTask, Publication
from sublet.worker import host_identity as host

log = logging.getLogger("sublet.worker.worker")

ABOUT_MAX = 4096
PATIENCE = 2.0


def worker_name() -> str:
    """Make a worker's name: `<host>-<pid>-<6 random hex digits>`."""
    host = (
        "".join(c for c in socket.gethostname() if (c.isascii() and c.isalnum()) or c in "_.-")[:64] or "host"
    )
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


def named_queues(queues: Sequence[str]) -> dict[str, Any]:
    """Return `queues` for a registration's `about`; of more than 32 the first 32, and the number of all as
    `queue_count`.
    """
    if len(queues) <= QUEUES_MAX:
        return {"queues": queues}
    return {"queues": queues[:QUEUES_MAX], "queue_count": len(queues)}


class Registration:
    """A worker's registration. `about` returns the description to store. `named`: the user chose the name,
    which must not be used twice. Publishes `tasks` in the background.
    """

    def __init__(
        self,
        source: JobSource,
        worker: str,
        about: Callable[[], dict[str, Any]],
        *,
        worker_id: str = "",
        named: bool = True,
        pool: str = "",
        summons: str = "",
        tasks: Mapping[str, DescribedTask] | None = None,
    ) -> None:
        self._source, self._about = source, about
        self.publication = Publication(lambda *found: source.publish(*found), tasks or {})
        self._pool, self._summons = pool, summons
        self._lock = asyncio.Lock()
        self.unwanted = False
        """Whether Redis asked the worker at its start to drain, e.g. as its pool wants no more."""
        self._host = host.identity()
        self._exclusive = bool(worker_id) or named
        self._is_replaced = False
        self._worker, self._worker_id, self._life = worker, worker_id, secrets.token_hex(8)
        self._record: WorkerInfo | None = None
        self._refused = False

    def _card(self) -> Card:
        about = {**self._host, **self._about()}
        said = json.dumps(about).encode()
        if len(said) > ABOUT_MAX:
            said = json.dumps({word: value for word, value in about.items() if word != "queues"}).encode()
        return Card(self._worker, self._life, self._worker_id, said, self._pool, self._summons)

    @property
    def life(self) -> str:
        """The random name of this run, for claims; empty without a worker identity."""
        return self._life if self._worker_id else ""

    async def enlist(self) -> int:
        """Register the worker, and end its predecessors' leases; return how many. A full Redis, or too many
        workers, is only logged.

        Predecessors are workers of this machine whose process is gone, and the previous holder of this worker
        identity. Raises Invalid if a live worker of this machine has this name, and Unavailable.
        """
        known = await self._source.workers() if self._host["boot"] or self._worker_id else []
        for other in known:
            if (
                other.name == self._worker
                and host.is_here(other.about, self._host)
                and not host.is_gone(other.about, self._host)
            ):
                raise Invalid(
                    f"name {self._worker!r}: a worker of that name runs on this machine already (pid {other.about['pid']}): "
                    "give this one another --name"
                )
        gone = {other.name: other.life for other in known if self._succeeds(other)}
        recovered = await self._source.reconcile(gone) if gone else 0
        self.unwanted = await self._register()
        self.publication.renew()
        if self._worker_id:
            self._own_record(await self._source.workers())
        return recovered

    async def _register(self) -> bool:
        try:
            drain = await self._source.enlist(self._card())
        except (OutOfMemory, WorkersFull) as error:
            if not self._refused:
                log.warning("this worker works without a registration, and tries again: %s", error)
            drain, self._refused = False, True
        else:
            self._refused = False
        return drain

    def _succeeds(self, other: WorkerInfo) -> bool:
        return host.is_gone(other.about, self._host) or bool(
            self._worker_id and other.worker_id == self._worker_id
        )

    async def renew(self) -> bool:
        """Renew the registration. Returns True if the worker must drain: an operator asked for it, its pool
        does not need it, or another worker has its identity or name.
        """
        try:
            if self._exclusive and await self._is_superseded():
                self.warn_replaced()
                return True
            async with self._lock:
                is_asked_to_drain = await self._register()
            self.publication.renew()
            return is_asked_to_drain
        except NoNamespace:
            # The next claim creates it again
            return False

    def warn_replaced(self) -> None:
        """Log, once, that another worker has taken over this one's identity or name."""
        if not self._is_replaced:
            self._is_replaced = True
            log.warning(
                "another worker registered with this worker's %s: this worker drains; give each worker its own",
                "identity (SUBLET_WORKER_ID)" if self._worker_id else "name",
            )

    async def retire(self) -> bool:
        """Return whether this idle worker may leave its pool; True without a pool. After True the pool does
        not count it.
        """
        # A later renewal would count the worker again.
        async with self._lock:
            if not self._pool:
                return True
            may_leave = await self._source.retire(self._card())
            if may_leave:
                self.leave_pool()
            return may_leave

    def leave_pool(self) -> None:
        """Let the pool not count this worker, from the next renewal on."""
        self._pool = self._summons = ""

    async def _is_superseded(self) -> bool:
        known = await self._source.workers()
        mine = self._own_record(known)
        rivals = [
            other
            for other in known
            if other.name == self._worker or (self._worker_id and other.worker_id == self._worker_id)
        ]
        if mine is None:
            return bool(rivals)
        return any(
            (other.enlisted_at, other.name) > (mine.enlisted_at, mine.name) and _may_supersede(other, mine)
            for other in rivals
            if not self._is_this(other)
        )

    def _is_this(self, other: WorkerInfo) -> bool:
        return (other.name, other.life) == (self._worker, self._life)

    def _own_record(self, known: Sequence[WorkerInfo]) -> WorkerInfo | None:
        self._record = next((each for each in known if self._is_this(each)), self._record)
        return self._record

    async def leave(self) -> None:
        """Remove the registration, not the leases. A failure, or no answer in 2 s, is only logged."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._source.leave(self._card())
        except (JobsError, TimeoutError) as error:
            why = str(error) or f"no answer in {PATIENCE:g} s"
            log.warning("cannot remove this worker's registration, which expires by itself: %s", why)


def _may_supersede(other: WorkerInfo, mine: WorkerInfo) -> bool:
    # Over HTTP a worker may send any identity: only a token of the same name, or a worker without the API,
    # takes it over
    return other.name == mine.name or other.about.get("principal") in (None, mine.about.get("principal"))
