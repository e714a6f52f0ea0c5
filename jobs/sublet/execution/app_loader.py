"""Load the apps that a command names."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

from sublet.app import App
from sublet.errors import Invalid, did_you_mean
from sublet.tasks.naming import place_of
from sublet.tasks.user_modules import import_by_name, is_module_name


def load_app(target: str) -> App:
    """Import and return the app MODULE:APP, or the only one of MODULE, with its `include`. The current folder
    is searched, too; the modules' output goes to stderr. Raises Invalid.
    """
    with _output_to_stderr():
        return _find_app(target).load()


@contextlib.contextmanager
def _output_to_stderr() -> Iterator[None]:
    # A command's own output must be readable by machines. Programs that a module runs inherit descriptor 1
    sys.stdout.flush()
    try:
        own = os.dup(1)
    except OSError:  # closed
        own = -1
    try:
        if own >= 0:
            os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if own >= 0:
            os.dup2(own, 1)
            os.close(own)


def load_apps(targets: Sequence[str]) -> dict[str, App]:
    """Import apps, as `load_app`; return each by the first of `targets` that names it. Raises Invalid."""
    apps: dict[str, App] = {}
    for target in targets:
        if (app := load_app(target)) not in apps.values():
            apps[target] = app
    return apps


def merged(apps: Mapping[str, App]) -> App:
    """Return one app with the tasks of all (not their schedules), or the only app itself. Settings are those
    of the first. Raises Invalid if two apps have a task or schedule of one name.
    """
    places = list(apps)
    if len(places) == 1:
        return apps[places[0]]
    for (place, app), (other_place, other) in combinations(apps.items(), 2):
        for name in app.tasks.keys() & other.tasks.keys():
            raise Invalid(
                f"task {name!r} is in {place} ({place_of(app.tasks[name])}) and in {other_place} "
                f"({place_of(other.tasks[name])}): give one of them another name=, or start a worker for each app"
            )
        for name in {one.name for one in app.schedules.all()} & {one.name for one in other.schedules.all()}:
            raise Invalid(
                f"schedule {name!r} is in {place} and in {other_place}: give one of them another name="
            )
    all_tasks = App(settings=apps[places[0]].settings)
    for app in apps.values():
        all_tasks.tasks |= app.tasks
    return all_tasks


def check_same_namespace(apps: Mapping[str, App]) -> None:
    """Raise Invalid unless the settings of all apps have the same Redis URL, namespace and partition count."""
    (place, app), *others = apps.items()
    for other_place, other in others:
        for field in ("redis_url", "namespace", "partitions"):
            if getattr(app.settings, field) != getattr(other.settings, field):
                raise Invalid(
                    f"{place} and {other_place} differ in {field}: a worker serves one namespace; give both the same "
                    "settings, or start a worker for each app"
                )


def _find_app(target: str) -> App:
    name, _, attribute = target.partition(":")
    if name.endswith(".py") or os.sep in name:
        raise Invalid(f"{name} is a file; {_module_advice(name, attribute or 'app')}")
    if not is_module_name(name):
        raise Invalid(
            f"{name!r} is not a module name (letters, digits, _ and dots): write MODULE:APP, e.g. tasks:app"
        )
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
        raise Invalid(
            f"{target} is not an App, its type is {type(found).__name__}{_beside(apps)}: name an App"
        )
    if name not in found.loaded_by:
        found.loaded_by += (name,)
    return found


def _module_advice(name: str, attribute: str) -> str:
    path = Path(os.path.relpath(name)).with_suffix("")
    if path.parts[0] == os.pardir:
        folder, module = os.path.split(os.path.abspath(name))
        return f"change to the folder {folder}, and write {module.removesuffix('.py')}:{attribute}"
    return f"write it as a module: {'.'.join(path.parts)}:{attribute}"


def target_of(target: str) -> str:
    """Return `target` as MODULE:APP; an imported MODULE gets the name of its first app. Schedules are stored
    with this text as their source.
    """
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
    return import_by_name(name, "; --debug shows the whole trace")
