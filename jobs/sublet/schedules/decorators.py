"""The schedules that a program declares: `@app.schedule` above or below `@app.task`."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from sublet.errors import Invalid

if TYPE_CHECKING:
    from sublet.app import Task
    from sublet.schedules.definition import NewSchedule
    from sublet.schedules.recurrence import Recurrence


class Wish(NamedTuple):
    """What one decorator says."""

    name: str
    recurrence: "Recurrence"
    payload: Mapping[str, Any]


def wish(name: str, payload: Mapping[str, Any] | None, **when: Any) -> Wish:
    """What a decorator says, checked. Raises Invalid, with the field and the reason."""
    from sublet.schedules.definition import (  # an app without schedules has no use for the calendar
        check_name,
        recurrence,
    )

    if callable(when["cron"]):
        raise Invalid(
            'schedule: say when, as in @app.schedule("0 9 * * MON-FRI", tz="Europe/Berlin") or @app.schedule(every=30)'
        )
    said = {
        field: value.total_seconds() if isinstance(value, timedelta) else value
        for field, value in when.items()
    }
    if payload is not None and not isinstance(payload, Mapping):
        raise Invalid("schedule: payload is a dictionary of the task's arguments by name")
    try:
        return Wish(name and check_name(name), recurrence(said), payload or {})
    except Invalid as error:
        raise Invalid(f"schedule{f' {name}' if name else ''}: {error}") from None


class Declared:
    """The schedules of an app. A function that is no task yet waits here until it is one."""

    def __init__(self) -> None:
        self._made: dict[str, NewSchedule] = {}
        self._waiting: list[tuple[Callable[..., Any], Wish]] = []

    def __bool__(self) -> bool:
        return bool(self._made or self._waiting)

    def all(self) -> "list[NewSchedule]":
        """All that are declared. Raises Invalid if one is of a function that never became a task of this app."""
        for function, wish in self._waiting:
            raise Invalid(
                f"schedule {wish.name or _called(function)}: {_called(function)} is no task of this app; put @app.task directly "
                "above or below @app.schedule, with no other decorator in between"
            )
        return list(self._made.values())

    def add(self, task: "Task[..., Any]", wish: Wish) -> None:
        """A schedule of a task. Raises Invalid for a name that is taken, and arguments that do not fit."""
        from sublet.schedules.definition import NAME_MAX, new_schedule

        name = wish.name or task.name
        if not wish.name and len(name) > NAME_MAX:
            raise Invalid(
                f"task {name}: a schedule's name has {NAME_MAX} characters at most; give this one a name of its own"
            )
        if name in self._made:
            also = (
                f"; give a second one of task {task.name} a name of its own: name=…" if not wish.name else ""
            )
            raise Invalid(f"schedule {name}: there is one of this name already{also}")
        try:
            payload = task.arguments.dump((), dict(wish.payload))
        except Invalid as error:
            raise Invalid(
                f"schedule {name}: {error} (payload={{…}} gives a schedule its task's arguments by name)"
            ) from None
        self._made[name] = new_schedule(name, wish.recurrence, task.name, payload, task.defaults)

    def wait(self, function: Callable[..., Any], wish: Wish) -> None:
        """A schedule of a function that is to become a task."""
        self._waiting.append((function, wish))

    def settle(self, task: "Task[..., Any]") -> None:
        """The function of this task waits no more."""
        mine = [wish for function, wish in self._waiting if function is task.function]
        self._waiting = [each for each in self._waiting if each[0] is not task.function]
        for wish in mine:
            self.add(task, wish)


def _called(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
