"""The schedules that a program declares with `@app.schedule`."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sublet.errors import Invalid
from sublet.options import Options
from sublet.tasks.arguments import Arguments

if TYPE_CHECKING:
    from sublet.schedules.definition import NewSchedule
    from sublet.schedules.recurrence import Recurrence


class ScheduledTask(Protocol):
    """The attributes of a task that its declared schedules use."""

    name: str
    function: Callable[..., Any]
    defaults: Options
    arguments: Arguments


class DeclaresSchedules(Protocol):
    """An object with declared schedules: an `App`."""

    schedules: "DeclaredSchedules"


class Declaration(NamedTuple):
    """The arguments of one `@app.schedule`; an empty `name` means the task's name."""

    name: str
    recurrence: "Recurrence"
    payload: Mapping[str, Any]


def declaration(name: str, payload: Mapping[str, Any] | None, **when: Any) -> Declaration:
    """Check the arguments of one `@app.schedule` and return them; `when` has the fields of `Recurrence`.
    Raises Invalid.
    """
    # slow to load
    from sublet.schedules.definition import check_name, recurrence

    if callable(when["cron"]):
        raise Invalid(
            'schedule: @app.schedule is without its times: give them, as in @app.schedule("0 9 * * MON-FRI", tz="Europe/Berlin") or @app.schedule(every=30)'
        )
    fields = {
        field: value.total_seconds() if isinstance(value, timedelta) else value
        for field, value in when.items()
    }
    if payload is not None and not isinstance(payload, Mapping):
        raise Invalid("schedule: payload must be a dictionary of the task's arguments by name")
    try:
        return Declaration(name and check_name(name), recurrence(fields), payload or {})
    except Invalid as error:
        raise Invalid(f"schedule{f' {name}' if name else ''}: {error}") from None


class DeclaredSchedules:
    """The schedules declared in one app. `load` imports the app's modules, which may declare more."""

    def __init__(self, load: Callable[[], object] = lambda: None) -> None:
        self._load = load
        self._schedules: dict[str, NewSchedule] = {}
        self._pending: list[tuple[Callable[..., Any], Declaration]] = []

    def __bool__(self) -> bool:
        return bool(self._schedules or self._pending)

    def all(self) -> "list[NewSchedule]":
        """Import the app's modules; return all declared schedules. Raises Invalid if a scheduled function is
        not a task.
        """
        self._load()
        for function, declared in self._pending:
            called = _name_of(function)
            raise Invalid(
                f"schedule {declared.name or called}: {called} is not a task of this app; put @app.task directly "
                "above or below @app.schedule, with no other decorator in between"
            )
        return list(self._schedules.values())

    def add(self, task: ScheduledTask, declared: Declaration) -> None:
        """Add a schedule of a task. Raises Invalid for a name in use, a payload that does not match the task's
        parameters, and what `new_schedule` refuses.
        """
        from sublet.schedules.definition import NAME_MAX, new_schedule

        name = declared.name or task.name
        if not declared.name and len(name) > NAME_MAX:
            raise Invalid(
                f"task {name}: its schedule needs a name of at most {NAME_MAX} characters; give one with name=…"
            )
        if name in self._schedules:
            raise Invalid(
                f"schedule {name}: this app has another schedule of this name; give each its own with name=…"
            )
        try:
            payload = task.arguments.dump((), dict(declared.payload))
        except Invalid as error:
            raise Invalid(
                f"schedule {name}: {error} (payload={{…}} gives a schedule its task's arguments by name)"
            ) from None
        self._schedules[name] = new_schedule(name, declared.recurrence, task.name, payload, task.defaults)

    def defer(self, function: Callable[..., Any], declared: Declaration) -> None:
        """Keep the schedule of a function until `attach`."""
        self._pending.append((function, declared))

    def attach(self, task: ScheduledTask) -> None:
        """Add the schedules that were declared for this task's function before it became a task."""
        own = [declared for function, declared in self._pending if function is task.function]
        self._pending = [each for each in self._pending if each[0] is not task.function]
        for declared in own:
            self.add(task, declared)


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
