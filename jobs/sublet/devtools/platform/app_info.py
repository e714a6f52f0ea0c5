"""Describe an app: queues, tasks, schedules, folders, an example job."""

import inspect
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

from sublet.app import App, Task
from sublet.devtools.platform.app_source import NOT_SOURCE, AppInfo
from sublet.errors import Invalid
from sublet.source_tree import import_folders
from sublet.tasks import catalogue

MOST_FOLDERS = 200
DESCRIPTIONS_MAX = 1 << 18
SAMPLES: tuple[tuple[Any, Any], ...] = (
    (str, "hello"),
    (int, 1),
    (float, 1.5),
    (bool, True),
    (list, []),
    (dict, {}),
    (Any, 1),
)


def describe(place: str, app: App) -> AppInfo:
    """Describe the app, imported from `place` (MODULE:APP)."""
    return AppInfo(
        app=place,
        queues=app.queues(),
        tasks=sorted(app.tasks),
        schedules=sorted(one.name for one in app.schedules.all()),
        folders=sorted(_folders())[:MOST_FOLDERS],
        example=next(filter(None, map(_example, app.tasks.values())), None),
        descriptions=_descriptions(app),
    )


def _descriptions(app: App) -> dict[str, str]:
    found, left = {}, DESCRIPTIONS_MAX
    for name, task in app.tasks.items():
        text = catalogue.description(catalogue.describe(name, task)).text
        left -= len(text)
        if left < 0:
            break
        found[name] = text.decode()
    return found


def _folders() -> Iterator[str]:
    paths = [Path(path) for name, path in sysconfig.get_paths().items() if name.endswith(("stdlib", "lib"))]
    foreign = {*paths, *(path.resolve() for path in paths)}
    foreign |= {Path(folder) for folder in import_folders()}
    files = [Path(file) for module in list(sys.modules.values()) if (file := _file(module))]
    # unresolved, too: Debian's sitecustomize is a link to /etc
    found = {file.resolve().parent for file in files if not {*file.absolute().parents} & foreign}
    for folder in found:
        own = not {folder, *folder.parents} & foreign and not set(NOT_SOURCE) & set(folder.parts)
        if own and folder.is_dir():
            yield str(folder)


def _file(module: ModuleType) -> str | None:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) and file.endswith(".py") else None


def _example(task: Task[..., Any]) -> dict[str, Any] | None:
    if task.run == "command":
        return None
    hints = get_type_hints(task.function)
    parameters = list(inspect.signature(task.function).parameters.values())
    needed = [each.name for each in parameters[task.arguments.takes_context :] if each.default is each.empty]
    kinds = {name: getattr(hints.get(name, str), "__origin__", hints.get(name, str)) for name in needed}
    payload = {name: value for name, hint in kinds.items() for kind, value in SAMPLES if kind is hint}
    if len(payload) < len(needed):
        return None
    try:
        task.arguments.dump((), payload)
    except Invalid:
        return None
    return {"task": task.name, "queue": task.defaults.queue, "payload": payload}
