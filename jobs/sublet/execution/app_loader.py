"""Load the app that a command names. Errors are one line."""

import contextlib
import importlib
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from sublet.app import App
from sublet.errors import Invalid, did_you_mean

INSTALLED = {"site-packages", "dist-packages"}


def load_app(target: str) -> App:
    """Import the app at MODULE:APP, or the only app of MODULE; the current folder comes first. Raises Invalid."""
    name, _, attribute = target.partition(":")
    if name.endswith(".py") or os.sep in name:
        dotted = name.removeprefix("./").removesuffix(".py").replace(os.sep, ".")
        raise Invalid(f"{name} is a file; write it as a module: {dotted}:{attribute or 'app'}")
    if not all(part.isidentifier() for part in name.split(".")):
        raise Invalid(f"{target!r} is not a module name: write MODULE:APP, e.g. tasks:app")
    module = _import(name)
    apps = [key for key, value in vars(module).items() if isinstance(value, App)]
    if not attribute and len(apps) != 1:
        raise Invalid(
            f"module {name} has {f'{len(apps)} apps; write {name}:{apps[0]}' if apps else 'no app; make one: app = App()'}"
        )
    found: Any = module
    for part in (attribute or apps[0]).split("."):
        found = getattr(found, part, None)
    if found is None:
        raise Invalid(
            f"module {name} has no {attribute!r}{_beside(apps) or did_you_mean(attribute, vars(module))}"
        )
    if not isinstance(found, App):
        raise Invalid(f"{target} is not an App, its type is {type(found).__name__}{_beside(apps)}")
    return found


def target_of(target: str) -> str:
    """Return MODULE:APP of an app that `load_app` has loaded: the source of its schedules."""
    name, _, attribute = target.partition(":")
    if attribute:
        return target
    return f"{name}:{next(key for key, value in vars(sys.modules[name]).items() if isinstance(value, App))}"


def _beside(apps: list[str]) -> str:
    return f" (there is {', '.join(apps)})" if apps else ""


def _import(name: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        # A command's own output must be readable by machines
        with contextlib.redirect_stdout(sys.stderr):
            return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            near = did_you_mean(name, [path.stem for path in Path(here).glob("*.py")])
            raise Invalid(f"there is no module {name} in {here} or on Python's path{near}") from error
        raise Invalid(_why(name, error)) from error
    except BaseException as error:  # a module may raise anything on import, and may exit
        raise Invalid(_why(name, error)) from error


def _why(name: str, error: BaseException) -> str:
    words = " ".join(str(error).split())
    if isinstance(error, SyntaxError):
        words = f"{error.msg} ({Path(error.filename or '?').name}:{error.lineno})"
    else:
        words = f"{words} ({_location(error)})".lstrip()
    return f"module {name} cannot be imported: {type(error).__name__}: {words}; --debug shows the whole trace"


def _location(error: BaseException) -> str:
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename
    ]
    here = [frame for frame in frames if frame.filename.startswith(os.getcwd() + os.sep)]
    own = [frame for frame in here if not INSTALLED & {*Path(frame.filename).parts}]
    last = (own or frames)[-1]
    return f"{os.path.relpath(last.filename) if own else last.filename}:{last.lineno}"
