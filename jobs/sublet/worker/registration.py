"""A worker's place on the register: it comes, takes over from predecessors that are gone, is seen, and leaves."""

import asyncio
import json
import logging
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from typing import Any

from sublet.errors import Invalid, JobsError, NoNamespace
from sublet.model import Card, WorkerInfo
from sublet.store.source import JobSource
from sublet.worker import host_identity as host

log = logging.getLogger("sublet.worker.worker")

ABOUT_MAX = 4096
"""Bytes that a worker may say of itself."""
PATIENCE = 2.0
"""Seconds that leaving may take."""


def worker_name() -> str:
    """Who this process is: host, pid, and chance, so that no two are the same."""
    host = "".join(c for c in socket.gethostname() if c.isalnum() or c in "_.-")[:64] or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"


class Register:
    """One worker on the register, from its start to its end."""

    def __init__(
        self,
        source: JobSource,
        worker: str,
        worker_id: str,
        says: Callable[[], dict[str, Any]],
        named: bool = True,
        pool: str = "",
        summons: str = "",
    ) -> None:
        self._source, self._says = source, says
        self._pool, self._summons = pool, summons
        self._turn = asyncio.Lock()
        self.unwanted = False
        """Was it told at once to go? Nobody waits for its summons any more, or its pool is gone or has other queues."""
        self._me = host.identity()
        self._exclusive = bool(worker_id) or named
        """Could there be another in its place, or (where somebody has given it) of its name?"""
        self._worker, self._worker_id, self._life = worker, worker_id, secrets.token_hex(8)
        self._mine: WorkerInfo | None = None
        """What the register said of it when it was last seen there."""

    def _card(self) -> Card:
        about = {**self._me, **self._says()}
        said = json.dumps(about).encode()
        if len(said) > ABOUT_MAX:  # the names of many queues, no doubt
            said = json.dumps({word: value for word, value in about.items() if word != "queues"}).encode()
        return Card(self._worker, self._life, self._worker_id, said, self._pool, self._summons)

    async def enlist(self) -> int:
        """Come: give back what predecessors held that are gone, before anything is claimed. How many leases that were.

        Predecessors are workers of this machine whose process is gone, and whoever held this exclusive place before. A live
        sibling is never touched. Raises Invalid when a worker of the same name is alive here.
        """
        known = await self._source.workers() if self._me["boot"] or self._worker_id else []
        for other in known:
            if (
                other.name == self._worker
                and host.is_here(other.about, self._me)
                and not host.is_gone(other.about, self._me)
            ):
                raise Invalid(
                    f"a worker named {self._worker} runs on this machine already (pid {other.about['pid']}): give another --name"
                )
        gone = {
            other.name: other.life
            for other in known
            if host.is_gone(other.about, self._me) or (self._worker_id and other.worker_id == self._worker_id)
        }
        given_back = await self._source.reconcile(gone) if gone else 0
        self.unwanted = await self._source.enlist(self._card())
        if self._worker_id:
            self._look(await self._source.workers())
        return given_back

    async def seen(self) -> bool:
        """Be seen. True when this worker is to finish and go: an operator has asked it to, or another has taken its place."""
        try:
            if self._exclusive and await self._is_succeeded():
                log.warning(
                    "another worker has taken this one's %s: finishing",
                    "identity" if self._worker_id else "name",
                )
                return True
            async with self._turn:
                return await self._source.enlist(self._card())
        except NoNamespace:  # the data was flushed this very moment: the next claim makes it anew
            return False

    async def retire(self) -> bool:
        """Ask whether this worker, which is idle, may go. True: its pool counts it no more, and it must take nothing more."""
        async with self._turn:  # a sign of life that came later would have it counted again
            if not self._pool:
                return True
            may_go = await self._source.retire(self._card())
            if may_go:
                self.stand_down()
            return may_go

    def stand_down(self) -> None:
        """Count no more among the workers of its pool, from the next sign of life on."""
        self._pool = self._summons = ""

    async def _is_succeeded(self) -> bool:
        """Has another worker come into this one's place, or by its name, since? Whoever did so last has it."""
        known = await self._source.workers()
        mine = self._look(known)  # if struck off, or not among those that a long list has: as it was
        rivals = [
            other
            for other in known
            if other.name == self._worker or (self._worker_id and other.worker_id == self._worker_id)
        ]
        if mine is None:
            return bool(rivals)
        return any(
            (other.enlisted_at, other.name) > (mine.enlisted_at, mine.name) and _may_succeed(other, mine)
            for other in rivals
            if not self._is_this(other)
        )

    def _is_this(self, other: WorkerInfo) -> bool:
        return (other.name, other.life) == (self._worker, self._life)

    def _look(self, known: Sequence[WorkerInfo]) -> WorkerInfo | None:
        """Its own card, as it is or as it was last seen."""
        self._mine = next((each for each in known if self._is_this(each)), self._mine)
        return self._mine

    async def leave(self) -> None:
        """Go. That the source does not answer is no reason to stay."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._source.leave(self._card())
        except (JobsError, TimeoutError) as error:
            log.warning("cannot leave the register: %s", error)


def _may_succeed(other: WorkerInfo, mine: WorkerInfo) -> bool:
    """Over HTTP any worker may name any place: only one that came with a token of the same name, or without the API, takes it."""
    return other.name == mine.name or other.about.get("principal") in (None, mine.about.get("principal"))
