"""Names of tasks: what is stored in each job, and how a user may shorten it."""

import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Protocol

from sublet.errors import Invalid, did_you_mean
from sublet.protocol import keys

Function = Callable[..., Any]


class NamedTask(Protocol):
    """The attribute of a task that `place_of` reads."""

    function: Function


def default_name(function: Function, qualified: bool) -> str:
    """Return the function's name; if `qualified`, with its module in front: `shop.mail.send`."""
    return f"{_module_of(function)}.{function.__name__}" if qualified else function.__name__


def check_name(name: str, function: Function, tasks: Mapping[str, NamedTask]) -> None:
    """Raise Invalid if a task's name is invalid, or is in `tasks`; then the message names both functions."""
    keys.check_name("task", name)
    if name in tasks:
        here, there = _module_of(function), place_of(tasks[name])
        example = f"'{here.rpartition('.')[2]}.{function.__name__}' for {here}.{function.__name__}"
        raise Invalid(
            f"task {name!r}: the app has a task of this name: pass another name= ({there} has it; e.g. {example}), "
            "or, for functions without name=, make the app with qualified_names=True"
        )


def resolve(name: str, tasks: Collection[str], place: str) -> str:
    """Return `name` if it is in `tasks`, else the only task that ends with a dot and `name`. Raises Invalid
    for none or several; `place` (MODULE:APP) is for the message.
    """
    if name in tasks:
        return name
    found = sorted(each for each in tasks if each.endswith(f".{name}"))
    if len(found) > 1:
        raise Invalid(f"{place} has {len(found)} tasks {name!r}: use one of {', '.join(found)}")
    if not found:
        near = did_you_mean(name, tasks) or f"; there are {', '.join(sorted(tasks)) or 'none'}"
        raise Invalid(f"{place} has no task {name!r}{near}")
    return found[0]


def place_of(task: NamedTask) -> str:
    """Return where a task's function is, such as `shop.mail.send`."""
    return f"{_module_of(task.function)}.{task.function.__qualname__}"


def _module_of(function: Function) -> str:
    module = function.__module__
    if module != "__main__":
        return module
    # a worker imports the same file by its name
    main: Any = sys.modules[module]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    return str(spec.name) if spec else Path(file or module).stem
