"""Advice after `init`: the first steps, and commands to paste."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from sublet.errors import JobsError
from sublet.source_tree import CHECKOUT, VERSION, is_checkout

HELLO = '{"name": "Ada"}'
REQUIREMENTS = "requirements.txt"
PACKAGES = ("sublet", "sublet_functions")


class Job(NamedTuple):
    """An example job for the commands that `init` prints."""

    task: str
    queue: str
    payload: dict[str, Any]


UNKNOWN = Job("YOUR_TASK", "default", {"YOUR": "ARGUMENTS"})


def commands(readme: str) -> list[str]:
    """Return the commands in the shell blocks of a README, multi-line ones as one."""
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    return [line.removeprefix("$ ") for line in re.split(r"(?<!\\)\n", "".join(blocks)) if line.strip()]


def job_of(app: str, folder: Path) -> Job:
    """Return an example job of the app, which another process loads. Missing parts are those of UNKNOWN."""
    from sublet.devtools.platform.app_source import inspect_app

    try:
        with contextlib.chdir(folder):
            seen = asyncio.run(inspect_app(app, os.environ))
    except (JobsError, OSError):
        return UNKNOWN
    if seen.example:
        return Job(**seen.example)
    return UNKNOWN._replace(task=seen.tasks[0], queue=seen.queues[0]) if seen.tasks else UNKNOWN


def with_job(command: str, job: Job) -> str:
    """Return a command of a template, with this job and queue in place of the template's example."""
    queue = {} if job.queue == "default" else {"queue": job.queue}
    flags = "".join(f" --queue {shlex.quote(name)}" for name in queue.values())
    body = json.dumps({"task": job.task, **queue, "payload": job.payload})
    shown = f"{shlex.quote(job.task)} {shlex.quote(json.dumps(job.payload))}{flags}"
    command = command.replace(f"hello '{HELLO}'", shown)
    command = command.replace(f"""'{{"task": "hello", "payload": {HELLO}}}'""", shlex.quote(body))
    return command.replace('"queues": ["default"]', f'"queues": {json.dumps([job.queue])}')


def wheel(folder: Path, ours: str) -> tuple[list[str], list[str]]:
    """Return advice and commands to build Sublet's wheel; both are empty unless the project has a
    requirements.txt without it. `ours`: the template's requirements.txt.
    """
    try:
        there = (folder / REQUIREMENTS).read_text("utf-8", errors="replace")
    except OSError:
        return [], []
    if re.search(r"\bsublet-[\w.!+]+-py3-none-any\.whl", there):
        return [], []
    line = ours.strip().replace("sublet", f"./sublet-{VERSION}-py3-none-any.whl", 1)
    checkout = str(CHECKOUT) if is_checkout() else "PATH/TO/THE/CHECKOUT"
    build = f"pip wheel --no-deps -w . {shlex.quote(checkout)}"
    known = f"Sublet is in no package index until a release is published, so {REQUIREMENTS}"
    if there == ours:
        return [f"{known} names a package that the first command below builds"], [
            f"{build} && echo '{line}' > {REQUIREMENTS}"
        ]
    return [f"{known} has to name the package that the first command below builds: {line}"], [build]


def hidden(folder: Path, module: str) -> list[str]:
    """Return a warning for each module of the project that has the name of a package of Sublet."""
    return [
        f"rename {' and '.join(map(str, found))}: Sublet's package has the same name, and one of them hides the other"
        for name in PACKAGES
        if (found := _modules_named(folder, name, module))
    ]


def _modules_named(folder: Path, name: str, module: str) -> list[Path]:
    if folder.resolve() == CHECKOUT:
        return []
    own = [
        path for path in (folder / f"{name}.py", folder / name) if path.is_file() or any(path.glob("*.py"))
    ]
    return own or ([folder / name] if module.partition(".")[0] == name else [])
