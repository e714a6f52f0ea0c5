"""`Schedules`: the methods of `client.schedules`."""

from collections.abc import Sequence
from typing import Any

from sublet.model import Submitted
from sublet.options import Options
from sublet.protocol.payload import payload_of
from sublet.schedules import operations
from sublet.schedules.definition import NewSchedule, Schedule, new_schedule
from sublet.schedules.operations import Synced
from sublet.schedules.recurrence import Recurrence
from sublet.store.store import Store

DEFAULT = Options()


class Schedules:
    """The schedules of a namespace, for one event loop."""

    def __init__(self, store: Store) -> None:
        self._operations, self._follow = store.operations, store.follow

    async def put(
        self, name: str, recurrence: Recurrence, task: str, payload: Any = None, options: Options = DEFAULT
    ) -> str:
        """Store a schedule that submits `task` with the arguments `payload` (by name) at each occurrence.
        Return `created`, `changed` or `unchanged`.

        If the recurrence has changed, occurrences count from now. A paused schedule stays paused. Raises
        Invalid, Changed; WrongState if the schedule exists and its new queue is in another partition.
        """
        wanted = new_schedule(name, recurrence, task, payload_of({} if payload is None else payload), options)
        return await self._follow(operations.put(self._operations, wanted))

    async def get(self, name: str) -> Schedule:
        """Return a schedule with its next (up to 5) and last (up to 10) occurrences. Raises NotFound."""
        return await self._follow(operations.get(self._operations, name))

    async def list(self, after: str = "", most: int | None = None) -> Sequence[Schedule]:
        """Return up to `most` (None: all) schedules whose names sort behind `after`, sorted by name, without
        payloads, `upcoming` and `last_runs`. Invalid ones are left out.
        """
        page = await self._follow(operations.page(self._operations, after, most))
        return page.schedules

    async def remove(self, name: str) -> bool:
        """Remove a schedule; its submitted jobs stay. Return whether it existed."""
        return await self._follow(operations.remove(self._operations, name))

    async def pause(self, name: str) -> str:
        """Stop a schedule from submitting jobs until `resume`. Return `paused`. Raises NotFound, Invalid, Changed."""
        return await self._follow(operations.pause(self._operations, name))

    async def resume(self, name: str) -> str:
        """Let a paused schedule submit jobs again; what it missed is skipped. Return `resumed`. Raises
        NotFound, Invalid, Changed.
        """
        return await self._follow(operations.resume(self._operations, name))

    async def run(self, name: str, job_id: str | None = None) -> Submitted:
        """Submit a schedule's job now, besides its occurrences, also if it is paused. Repeated with the same
        `job_id`, this stores no second job. Raises NotFound, and the errors of a submit.
        """
        return await self._follow(operations.run(self._operations, name, job_id))

    async def sync(
        self, wanted: Sequence[NewSchedule], source: str, *, remove: bool = False
    ) -> Sequence[Synced]:
        """Store the schedules of one owner, `source`; return for each `created`, `changed`, `unchanged` or
        `removed`.

        Another owner's schedules of the same names become this owner's. With `remove`, those of `source` that
        are not in `wanted` are deleted. Raises Invalid or WrongState before any change.
        """
        return await self._follow(operations.sync(self._operations, wanted, source, remove))
