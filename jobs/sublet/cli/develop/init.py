"""`init`: write the files by which a platform runs an app.

A template is a folder of `deploy/` for the app `tasks:app`: only this name, tasks.py and the project's
folder are replaced. Its README.md becomes TARGET.md.
"""

from __future__ import annotations

import os
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

from sublet.cli.develop import init_folder, init_steps
from sublet.cli.output import document, table, write
from sublet.cli.parser import program, with_help_hint
from sublet.errors import Invalid, JobsError, did_you_mean
from sublet.source_tree import data_folder

APP = "tasks:app"
README = "README.md"
OWN = (init_steps.REQUIREMENTS, "Dockerfile", ".dockerignore")
TOLD = re.compile(r"(?!#|FROM |COPY |WORKDIR |RUN python )\S")
"""Matches template lines that a project's own file must have; a Dockerfile's usual start does not match."""
OTHERS = {
    "aws": "aws-sam", "lambda": "aws-sam", "sam": "aws-sam",
    "gcp": "cloud-run", "google": "cloud-run", "cloudrun": "cloud-run", "run": "cloud-run",
    "docker": "compose", "docker-compose": "compose", "podman": "compose",
    "k8s": "kubernetes", "k3s": "kubernetes", "keda": "kubernetes", "eks": "kubernetes", "gke": "kubernetes",
    "cron": "crontab", "linux": "systemd", "service": "systemd", "systemctl": "systemd",
}  # fmt: skip
TASKS = """from sublet import App

app = App()


@app.task
async def hello(name: str) -> str:
    return f"hello, {name}"
"""


class File(NamedTuple):
    """A file that `init` writes: its path and content."""

    path: Path
    text: str


class Plan(NamedTuple):
    """Files to write, paths of files that stay, and advice, as on missing lines or a missing app."""

    new: list[File]
    same: list[Path]
    lacking: list[str]


def init(args: Namespace) -> int:
    """List the targets, or write the files of one. Raises Invalid; JobsError, with nothing
    written, if a file cannot be written, or exists with other content (those of OWN, e.g. a Dockerfile, may).
    """
    found = {folder.name: folder for folder in _targets()}
    if not args.target and args.to is None and args.app is None:
        return _list(found, args.json)
    template = found[_check_target(args.target, found)]
    app = os.environ.get("SUBLET_APP") if args.app is None else args.app
    module = _module_of(app or APP)
    folder = _project("." if args.to is None else args.to)
    plan = _plan(template, folder, app, module)
    _write(folder, plan.new)
    words, builds = init_steps.wheel(folder, _text(template / init_steps.REQUIREMENTS))
    steps = init_steps.commands(_text(template / README))
    if not any(file.text == TASKS for file in plan.new) and not _is_same(
        folder / _file_of(folder, module), TASKS
    ):
        job = init_steps.job_of(app or APP, folder)
        steps = [init_steps.with_job(step, job) for step in steps]
    here = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    _print_result(
        args.json,
        args.target,
        folder,
        plan,
        [*plan.lacking, *init_steps.hidden(folder, module), *words],
        [*here, *builds, *steps],
    )
    return 0


def _check_target(target: str, found: dict[str, Traversable]) -> str:
    if not target:
        raise Invalid(with_help_hint(f"TARGET is missing; there are {', '.join(found)}", "init"))
    if target not in found:
        other = OTHERS.get(target.lower())
        near = (
            f", did you mean {other}?"
            if other
            else did_you_mean(target.lower(), found) or f"; there are {', '.join(found)}"
        )
        raise Invalid(with_help_hint(f"there is no target {target[:40]!r}{near}", "init"))
    return target


def _list(found: dict[str, Traversable], as_json: bool) -> int:
    lines = {name: _summary(_text(folder / README)) for name, folder in found.items()}
    if as_json:
        document([{"target": name, "summary": summary} for name, summary in lines.items()])
    else:
        table(["TARGET", "WHAT IT IS"], [*lines.items()])
        write()
        write(f"write one into your project: {program()} init TARGET")
    return 0


def _targets() -> list[Traversable]:
    folder = data_folder("deploy")
    if not folder.is_dir():
        raise JobsError(
            "the templates are missing: Sublet was installed without its folder deploy; install Sublet again"
        )
    return sorted((one for one in folder.iterdir() if (one / README).is_file()), key=lambda one: one.name)


def _text(file: Traversable) -> str:
    return file.read_text("utf-8")


def _summary(readme: str) -> str:
    return readme.splitlines()[0].lstrip("# ")


def _files_of(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, str]]:
    for one in sorted(folder.iterdir(), key=lambda one: one.name):
        if one.is_dir() and one.name != "__pycache__":
            yield from _files_of(one, f"{prefix}{one.name}/")
        elif one.is_file():
            name = f"{folder.name}.md" if not prefix and one.name == README else one.name
            yield f"{prefix}{name}", _text(one)


def _module_of(app: str) -> str:
    module, _, attribute = app.partition(":")
    if module.endswith(".py"):
        dotted = module.removesuffix(".py").replace("/", ".").strip(".")
        raise Invalid(f"{module} is a file; write it as a module: {dotted}:{attribute or 'app'}")
    if not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
        raise Invalid(
            with_help_hint(
                f"{app[:60]!r} is not MODULE:APP with names that Python can import (letters, digits, _), e.g. {APP}",
                "init",
            )
        )
    return module


def _project(name: str) -> Path:
    folder = Path(name)
    for one in (folder, *folder.parents):
        if os.path.lexists(one) and not os.path.isdir(one):
            raise Invalid(f"{one} is not a folder; --to takes the folder of your project")
    if not name:
        raise Invalid("the value of --to is empty: name the folder of your project, or leave --to out")
    return folder


def _plan(template: Traversable, folder: Path, app: str | None, module: str) -> Plan:
    file = _file_of(folder, module)
    plan, others = Plan([], [], []), []
    texts = {
        name: init_folder.with_folder(_for_app(text, app or APP, file), folder)
        for name, text in _files_of(template)
    }
    plan.lacking.extend(init_folder.unseen(folder, texts.values()))
    for name, text in texts.items():
        path = folder / name
        if not os.path.lexists(path):
            plan.new.append(File(path, text))
        elif path.name in OWN and os.path.isfile(path):
            plan.same.append(path)
            plan.lacking.extend(_missing_lines(path, text))
        elif _is_same(path, text):
            plan.same.append(path)
        else:
            others.append(name)
    if others:
        raise JobsError(
            f"nothing was written: {', '.join(others)} {'is' if len(others) == 1 else 'are'} there already, with other "
            "content; move what is there away, or write to another folder (--to FOLDER) and compare"
        )
    if not os.path.exists(folder / file):
        if app:
            plan.lacking.append(f"write {folder / file}, with an App named {app.partition(':')[2]}")
        else:
            plan.new.append(File(folder / file, TASKS))
            if any(folder.glob("*.py")) or any(folder.glob("*/__init__.py")):
                plan.lacking.append(f"no {file} found: wrote an example; use --app MODULE:APP for yours")
    return plan


def _file_of(folder: Path, module: str) -> str:
    name = module.replace(".", "/")
    return f"{name}/__init__.py" if os.path.isfile(folder / name / "__init__.py") else f"{name}.py"


def _for_app(text: str, app: str, file: str) -> str:
    text = re.sub(rf"(?<![\w.:/-]){APP}(?![\w:])", lambda _: app, text)
    return re.sub(r"(?<![\w.-])tasks\.py(?!\w)", lambda _: file, text)


def _is_same(path: Path, text: str) -> bool:
    wanted = text.encode()
    try:
        return path.is_file() and path.stat().st_size == len(wanted) and path.read_bytes() == wanted
    except OSError:
        return False


def _missing_lines(path: Path, text: str) -> list[str]:
    try:
        there = path.read_text("utf-8", errors="replace").splitlines()
    except OSError as error:
        raise JobsError(
            f"nothing was written: {path} cannot be read: {error.strerror}; make it readable, or move it away"
        ) from None
    lines = [line for line in text.splitlines() if TOLD.match(line)]
    if path.name == init_steps.REQUIREMENTS:
        missing = [line for line in lines if not any(_covers(mine, line) for mine in there)]
        return [f"add to {path}: {'  '.join(missing)}"] if missing else []
    missing = [line for line in lines if line not in there]
    return [f"{path}: your file stays as it is; the template has: {'  '.join(missing)}"] if missing else []


def _covers(mine: str, asked: str) -> bool:
    package, *extras = re.findall(r"[\w-]+", asked)
    return re.search(rf"(?<![\w-]){package}(?!\w|-\D)", mine) is not None and all(
        extra in mine for extra in extras
    )


def _write(folder: Path, new: list[File]) -> None:
    made: list[Path] = []
    at = folder
    try:
        for at in sorted(
            {parent for file in new for parent in (file.path.parent, *file.path.parent.parents)}
        ):
            if not os.path.isdir(at):
                at.mkdir()
                made.append(at)
        for at, text in new:
            mode = 0o777 if text.startswith("#!") else 0o666
            with open(os.open(at, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                made.append(at)
                file.write(text.encode())
    except BaseException as error:
        left = _remove_written(made)
        if not isinstance(error, OSError):
            raise
        remains = (
            f"; could not be removed again: {', '.join(map(str, left))}" if left else "; nothing was written"
        )
        raise JobsError(
            f"{at} cannot be written: {error.strerror}{remains}; check its rights and space, or give --to another folder"
        ) from None


def _remove_written(made: list[Path]) -> list[Path]:
    left = []
    for path in reversed(made):
        try:
            path.rmdir() if path.is_dir() else path.unlink()
        except OSError:
            left.append(path)
    return left


def _print_result(
    as_json: bool, target: str, folder: Path, plan: Plan, first: list[str], steps: list[str]
) -> None:
    new = [str(file.path) for file in plan.new]
    same = [str(path) for path in plan.same]
    if as_json:
        answer = {
            "target": target,
            "folder": str(folder),
            "written": new,
            "unchanged": same,
            "first": first,
            "next": steps,
        }
        document(answer)
        return
    for name in new:
        write(f"wrote {name}")
    for name in same:
        write(f"there already: {name}")
    for head, parts in (("first", first), ("next", steps)):
        if parts:
            write()
            write(f"{head}:")
        for line in "\n".join(parts).splitlines() if parts else ():
            write(f"  {line}")
