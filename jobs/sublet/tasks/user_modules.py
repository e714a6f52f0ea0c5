"""Import modules of a user's program. Messages are one line."""

import importlib
import importlib.machinery
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from sublet.errors import Invalid, did_you_mean

INSTALLED = {"site-packages", "dist-packages"}


def is_module_name(name: object) -> bool:
    """Whether this could be a module's full name."""
    return isinstance(name, str) and all(part.isidentifier() for part in name.split("."))


def check_module(name: str) -> None:
    """Raise Invalid unless there is a module of this name in the current folder or on Python's path. Of a
    name with dots, only the first part is sought: more would import the package.
    """
    package = name.partition(".")[0]
    finder = importlib.machinery.PathFinder.find_spec
    if is_module_name(name) and not finder(package) and not finder(package, [os.getcwd()]):
        raise _missing(name)
    if not is_module_name(name):
        raise Invalid(f"{name[:80]!r} is not a module name: write MODULE:APP, e.g. tasks:app")


def import_by_name(name: str, hint: str = "") -> ModuleType:
    """Import a module. Raises Invalid: if the module exists, the message names the place in the user's files,
    and ends with `hint`.
    """
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise _missing(name) from error
        raise Invalid(_why(name, error) + hint) from error
    except BaseException as error:  # a module may raise anything, and exit
        raise Invalid(_why(name, error) + hint) from error


def include_module(app: object, name: str) -> None:
    """Import a module that declares tasks of an app. Raises Invalid if that fails, or if all tasks that it
    declares are another App's.
    """
    try:
        names: Iterable[Any] = vars(import_by_name(name)).values()
    except Invalid as error:
        raise Invalid(f"App(include=[{name!r}]): {error}") from error
    tasks = [
        each for each in names if hasattr(type(each), "submit_sync") and each.function.__module__ == name
    ]
    if tasks and all(task.app is not app for task in tasks):
        raise Invalid(
            f"module {name} declares its tasks with another App object: import the app that includes it (a file "
            "that is run as a script is another copy of its module)"
        )


def _missing(name: str) -> Invalid:
    near = did_you_mean(name, _siblings(name))
    return Invalid(
        f"there is no module {name} in {os.getcwd()} or on Python's path{near or ': correct the name, or change to its folder'}"
    )


def _siblings(name: str) -> list[str]:
    parent, dot, _ = name.rpartition(".")
    folders = getattr(sys.modules.get(parent), "__path__", []) if dot else [os.getcwd()]
    return [f"{parent}{dot}{found.name}" for found in pkgutil.iter_modules(folders)]


def _why(name: str, error: BaseException) -> str:
    words = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        words = f"{error.msg} ({Path(error.filename or '?').name}:{error.lineno})"
    else:
        words = f"{words} ({_location(error)})".lstrip()
    if isinstance(error, ImportError) and "circular import" in words:
        words += ": do not import tasks where the app is made, list their modules in App(include=[…])"
    return f"module {name} cannot be imported: {type(error).__name__}: {words}"


def _location(error: BaseException) -> str:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename
    ]
    here = [frame for frame in frames if frame.filename.startswith(os.getcwd() + os.sep)]
    own = [frame for frame in here if not INSTALLED & {*Path(frame.filename).parts}]
    last = (own or frames)[-1]
    return f"{os.path.relpath(last.filename) if own else last.filename}:{last.lineno}"
