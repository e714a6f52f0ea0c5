"""`client.schedules` of a `Client`."""

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
    """A namespace's schedules, for one event loop."""

    def __init__(self, store: Store) -> None:
        self._operations, self._follow = store.operations, store.follow

    async def put(
        self, name: str, recurrence: Recurrence, task: str, payload: Any = None, options: Options = DEFAULT
    ) -> str:
        """Store a schedule; `payload` has the arguments by name. Return `created`, `changed` or `unchanged`.

        A changed recurrence counts from now on. A paused schedule stays paused. Raises Invalid,
        WrongState.
        """
        wanted = new_schedule(name, recurrence, task, payload_of({} if payload is None else payload), options)
        return await self._follow(operations.put(self._operations, wanted))

    async def get(self, name: str) -> Schedule:
        """Return a schedule with its next occurrences. Raises NotFound."""
        return await self._follow(operations.get(self._operations, name))

    async def list(self, after: str = "", most: int | None = None) -> Sequence[Schedule]:
        """Return at most `most` schedules (None: all) after a name, sorted, without payloads."""
        page = await self._follow(operations.page(self._operations, after, most))
        return page.schedules

    async def remove(self, name: str) -> bool:
        """Remove a schedule; its jobs stay. Return whether it existed."""
        return await self._follow(operations.remove(self._operations, name))

    async def pause(self, name: str) -> str:
        """Stop making jobs until `resume`. Raises NotFound."""
        return await self._follow(operations.pause(self._operations, name))

    async def resume(self, name: str) -> str:
        """Resume a schedule; missed occurrences are skipped. Raises NotFound."""
        return await self._follow(operations.resume(self._operations, name))

    async def run(self, name: str, job_id: str | None = None) -> Submitted:
        """Submit a schedule's job now. Safe to repeat with one `job_id`. Raises NotFound."""
        return await self._follow(operations.run(self._operations, name, job_id))

    async def sync(
        self, wanted: Sequence[NewSchedule], source: str, *, remove: bool = False
    ) -> Sequence[Synced]:
        """Store the schedules of one owner, `source`. Return each outcome. Safe to repeat.

        `remove`: delete those that this owner no longer declares. Replaces others of the same names. Raises
        Invalid or WrongState before any write.
        """
        return await self._follow(operations.sync(self._operations, wanted, source, remove))
