"""What clients hold for schedules: `client.schedules`. Async and sync over the same plans."""

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, TypeVar

from sublet.model import Submitted
from sublet.operations.operations import Operations
from sublet.options import Options
from sublet.protocol.payload import payload_of
from sublet.protocol.plan import Plan
from sublet.schedules import operations
from sublet.schedules.definition import NewSchedule, Schedule, new_schedule
from sublet.schedules.operations import Synced
from sublet.schedules.recurrence import Recurrence

T = TypeVar("T")
DEFAULT = Options()


class _Follow(Protocol):
    def __call__(self, plan: Plan[T]) -> Awaitable[T]:
        """Carry out a plan."""
        ...


class _FollowSync(Protocol):
    def __call__(self, plan: Plan[T]) -> T:
        """Carry out a plan."""
        ...


class Schedules:
    """The schedules of a namespace, from an event loop: `client.schedules`."""

    def __init__(self, operations: Operations, follow: _Follow) -> None:
        self._operations, self._follow = operations, follow

    async def put(
        self, name: str, recurrence: Recurrence, task: str, payload: Any = None, options: Options = DEFAULT
    ) -> str:
        """Have a schedule be so: `created`, `changed` or `unchanged`. `payload`: the arguments of its jobs by name.

        One whose times change counts from now on; one that is paused stays so. Raises Invalid.
        """
        wanted = new_schedule(name, recurrence, task, payload_of(payload or {}), options)
        return await self._follow(operations.put(self._operations, wanted))

    async def get(self, name: str) -> Schedule:
        """One schedule, with its next runs. Raises NotFound."""
        return await self._follow(operations.get(self._operations, name))

    async def list(self, after: str = "", most: int | None = None) -> Sequence[Schedule]:
        """The schedules by name, without payloads: those that come after a name, all or at most so many."""
        return (await self._follow(operations.page(self._operations, after, most))).schedules

    async def remove(self, name: str) -> bool:
        """Have a schedule be no more; jobs that it has made stay. False if there was none."""
        return await self._follow(operations.remove(self._operations, name))

    async def pause(self, name: str) -> str:
        """Make no more jobs of a schedule until it is resumed. Raises NotFound."""
        return await self._follow(operations.pause(self._operations, name))

    async def resume(self, name: str) -> str:
        """Go on with a schedule, from now on; occurrences that came meanwhile are none. Raises NotFound."""
        return await self._follow(operations.resume(self._operations, name))

    async def run(self, name: str, job_id: str | None = None) -> Submitted:
        """Submit one job of a schedule now, beside its occurrences; the same `job_id` again is the same job. Raises NotFound."""
        return await self._follow(operations.run(self._operations, name, job_id))

    async def sync(
        self, wanted: Sequence[NewSchedule], source: str, *, remove: bool = False
    ) -> Sequence[Synced]:
        """Have these schedules be so, and say of each what became of it; the same again writes nothing.

        `source` says whose they are; with `remove`, those that it once had and has no more are removed. What others have put
        stays, unless it has the name of one of these. Raises Invalid before anything is written.
        """
        return await self._follow(operations.sync(self._operations, wanted, source, remove))


class SyncSchedules:
    """The same for code without an event loop."""

    def __init__(self, operations: Operations, follow: _FollowSync) -> None:
        self._operations, self._follow = operations, follow

    def put(
        self, name: str, recurrence: Recurrence, task: str, payload: Any = None, options: Options = DEFAULT
    ) -> str:
        """Have a schedule be so: `created`, `changed` or `unchanged`. `payload`: the arguments of its jobs by name.

        One whose times change counts from now on; one that is paused stays so. Raises Invalid.
        """
        wanted = new_schedule(name, recurrence, task, payload_of(payload or {}), options)
        return self._follow(operations.put(self._operations, wanted))

    def get(self, name: str) -> Schedule:
        """One schedule, with its next runs. Raises NotFound."""
        return self._follow(operations.get(self._operations, name))

    def list(self, after: str = "", most: int | None = None) -> Sequence[Schedule]:
        """The schedules by name, without payloads: those that come after a name, all or at most so many."""
        return self._follow(operations.page(self._operations, after, most)).schedules

    def remove(self, name: str) -> bool:
        """Have a schedule be no more; jobs that it has made stay. False if there was none."""
        return self._follow(operations.remove(self._operations, name))

    def pause(self, name: str) -> str:
        """Make no more jobs of a schedule until it is resumed. Raises NotFound."""
        return self._follow(operations.pause(self._operations, name))

    def resume(self, name: str) -> str:
        """Go on with a schedule, from now on; occurrences that came meanwhile are none. Raises NotFound."""
        return self._follow(operations.resume(self._operations, name))

    def run(self, name: str, job_id: str | None = None) -> Submitted:
        """Submit one job of a schedule now, beside its occurrences; the same `job_id` again is the same job. Raises NotFound."""
        return self._follow(operations.run(self._operations, name, job_id))

    def sync(self, wanted: Sequence[NewSchedule], source: str, *, remove: bool = False) -> Sequence[Synced]:
        """Have these schedules be so, and say of each what became of it; the same again writes nothing.

        `source` says whose they are; with `remove`, those that it once had and has no more are removed. What others have put
        stays, unless it has the name of one of these. Raises Invalid before anything is written.
        """
        return self._follow(operations.sync(self._operations, wanted, source, remove))
