"""Images and containers without a container engine: Dockerfiles and compose files are followed with folders
and processes.

An image is a folder in which the instructions of its Dockerfile are followed; the install lines really run. A
service is a process with the command, the environment and the health check of its compose file. Every host
name is 127.0.0.1, every port a free one.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from tests.support.pages import free_port
from tests.support.processes import until

SECONDS = 60.0

# ── images ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Image:
    """The result of a Dockerfile: a folder that stands for the file system of all its stages."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "/"
    user: str = "root"
    command: list[str] = field(default_factory=list)
    stages: int = 0

    def at(self, path: str) -> Path:
        return self.root / path.removeprefix("/")


def instructions(path: Path) -> list[tuple[str, str]]:
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def sent(context: Path) -> Iterator[Path]:
    """The files of a folder that a build sees. The last line of .dockerignore that matches a file or one of
    its folders decides.
    """
    rules = [
        line
        for line in (context / ".dockerignore").read_text().split("\n")
        if line and not line.startswith("#")
    ]

    def is_ignored(path: Path) -> bool:
        ignored = False
        for rule in rules:
            pattern = rule.removeprefix("!")
            for one in [path, *path.parents][:-1]:
                name = one.name if pattern.startswith("**/") else str(one)
                if fnmatchcase(name, pattern.removeprefix("**/")) and name.count("/") == pattern.removeprefix(
                    "**/"
                ).count("/"):
                    ignored = not rule.startswith("!")
        return ignored

    for folder, names, files in os.walk(context):
        here = Path(folder).relative_to(context)
        names[:] = [name for name in names if not is_ignored(here / name)]
        yield from (here / name for name in files if not is_ignored(here / name))


def build(context: Path, root: Path, **env: str) -> Image:
    """Build the Dockerfile of a folder. `env` is the environment of the commands that it runs."""
    tools = root / "tools"
    tools.mkdir(parents=True)
    python = (
        sys.executable
        if subprocess.run([sys.executable, "-c", "import pip"]).returncode == 0
        else shutil.which("python3")
    )
    for name, words in (("python", ""), ("pip", "-m pip")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{python}" {words} "$@"\n')
        (tools / name).chmod(0o700)
    image = Image(root)
    for word, rest in instructions(context / "Dockerfile"):
        follow(image, context, word, rest, {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", **env})
    return image


def follow(image: Image, context: Path, word: str, rest: str, env: dict[str, str]) -> None:
    """Follow one instruction."""
    if word == "FROM":
        assert rest.split()[0] == "python:3.13-slim"
        image.stages, image.workdir = image.stages + 1, "/"
    elif word == "RUN":
        line = re.sub(r"--mount=\S+ ", "", rest).replace(" /opt/", f" {image.root}/opt/")
        ran = subprocess.run(["/bin/sh", "-c", line], cwd=image.at(image.workdir), env=env, capture_output=True, text=True,
                             timeout=300)  # fmt: skip
        assert ran.returncode == 0, ran.stdout + ran.stderr
    elif word == "WORKDIR":
        image.workdir = rest
        image.at(rest).mkdir(parents=True)
    elif word == "COPY":
        copy(image, context, rest)
    elif word == "ENV":
        image.env = dict(pair.split("=", 1) for pair in rest.split())
    elif word == "CMD":
        image.command = json.loads(rest)  # the exec form: a shell would not pass SIGTERM on
    elif word == "USER":
        image.user = rest
    else:
        assert word == "EXPOSE"


def copy(image: Image, context: Path, rest: str) -> None:
    *sources, target = rest.split()
    if rest.startswith("--from="):
        assert (sources[1], image.at(sources[1]).is_dir()) == (target, True)
        return
    if len(sources) > 1:
        assert target.endswith("/")
        there = [path for path in sent(context) if any(fnmatchcase(str(path), one) for one in sources)]
        assert Path(sources[0]) in there  # a pattern may match nothing, a name must match
        source = "."
    else:
        (source,) = sources
        there = [path for path in sent(context) if source == "." or path.is_relative_to(source)]
    assert there, f"there is no {source}"
    place = image.at(image.workdir) / target
    for path in there:
        to = place / (path if source == "." else path.relative_to(source))
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(context / path, to)


# ── services ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def interpolated(value: Any, env: dict[str, str]) -> Any:
    """The strings of a compose file with its variables filled in. Raises LookupError for a required variable
    that is not set.
    """
    if isinstance(value, dict):
        return {name: interpolated(one, env) for name, one in value.items()}
    if isinstance(value, list):
        return [interpolated(one, env) for one in value]

    def put(found: re.Match[str]) -> str:
        name, how, words = found.groups()
        if how == ":?" and not env.get(name):
            raise LookupError(words)
        return env.get(name) or words

    return re.sub(r"\$\{(\w+)(:[-?])([^}]*)\}", put, value) if isinstance(value, str) else value


def seconds(words: str) -> float:
    return float(words[:-1]) * {"s": 1, "m": 60}[words[-1]]


class Stack:
    """The services of a compose file, as processes."""

    def __init__(self, folder: Path, image: Image, env: dict[str, str], place: Path) -> None:
        self.services = interpolated(yaml.safe_load((folder / "compose.yaml").read_text()), env)["services"]
        self.image, self.place = image, place
        self.ports = {"redis": free_port(), "api": free_port()}
        self.url = f"http://127.0.0.1:{self.ports['api']}"
        self.running: list[tuple[str, subprocess.Popen[bytes]]] = []
        (place / "data").mkdir(parents=True)

    def here(self, words: str) -> str:
        """Replace the hosts and ports of the file by local ones."""
        for there, port in (
            ("redis:6379", self.ports["redis"]),
            ("0.0.0.0:", ""),
            ("127.0.0.1:8377", self.ports["api"]),
        ):
            words = words.replace(there, f"127.0.0.1:{port}")
        return words

    def environment(self, name: str) -> dict[str, str]:
        own = {word: self.here(value) for word, value in self.services[name].get("environment", {}).items()}
        if name == "redis":
            return {"PATH": os.environ["PATH"], **own}
        bin_ = self.image.at(self.image.env["PATH"].partition(":")[0])
        fixed = {
            "PATH": f"{bin_}:/usr/bin:/bin",
            "SUBLET_HOST": "127.0.0.1",
            "PORT": self.ports["api"],
            "HOME": str(self.place),
        }
        marks = {name: value for name, value in os.environ.items() if name == "RUN_OF_THE_TESTS"}
        return {**self.image.env, **fixed, **marks, **own}

    def start(self, name: str) -> None:
        """Start all containers of a service once the services that it depends on are healthy."""
        service = self.services[name]
        for other, how in service.get("depends_on", {}).items():
            assert how["condition"] == "service_healthy"
            until(lambda other=other: self.is_healthy(other), other)
        words, at = service.get("command", self.image.command), self.image.at(self.image.workdir)
        if name == "redis":
            ((volume, target),) = [one.split(":") for one in service["volumes"]]
            assert (volume, target) == ("redis", service["working_dir"])
            words, at = [*words, "--port", self.ports["redis"], "--bind", "127.0.0.1"], self.place / "data"
        for _ in range(service.get("deploy", {}).get("replicas", 1)):
            with (self.place / f"{name}.log").open("ab") as log:
                env = self.environment(name)
                program = shutil.which(words[0], path=env["PATH"])
                self.running.append(
                    (name, subprocess.Popen([program, *words[1:]], cwd=at, env=env, stdout=log, stderr=log))
                )

    def is_healthy(self, name: str) -> bool:
        how, *words = [self.here(word) for word in self.services[name]["healthcheck"]["test"]]
        words = [words[0], "-p", self.ports[name], *words[1:]] if name == "redis" else words
        assert how == "CMD"
        return self.run(name, words).returncode == 0

    def run(self, name: str, words: list[str]) -> "subprocess.CompletedProcess[str]":
        """Run a command in a service's container."""
        env = self.environment(name)
        program = shutil.which(words[0], path=env["PATH"])
        return subprocess.run(
            [program, *words[1:]], env=env, capture_output=True, text=True, timeout=SECONDS, cwd=self.place
        )

    def processes(self, name: str) -> list["subprocess.Popen[bytes]"]:
        return [process for each, process in self.running if each == name]

    def output(self, name: str) -> str:
        return (self.place / f"{name}.log").read_text()

    def stop(self) -> dict[str, int]:
        """Stop all services, dependents first; returns their exit codes. Fails if one had to be killed."""
        codes = {}
        for name in sorted(self.services, key=lambda name: name == "redis"):
            for process in self.processes(name):
                process.send_signal(signal.SIGTERM)
            for process in self.processes(name):
                codes[name] = process.wait(seconds(self.services[name]["stop_grace_period"]))
        return codes


@contextlib.contextmanager
def up(folder: Path, image: Image, env: dict[str, str], place: Path) -> Iterator[Stack]:
    stack = Stack(folder, image, env, place)
    try:
        for name in stack.services:
            stack.start(name)
        until(
            lambda: stack.is_healthy("api") and stack.output("worker").count('"ready"') == 2,
            lambda: stack.output("api"),
        )
        yield stack
    finally:
        for _, process in stack.running:
            if process.poll() is None:
                process.kill()
                process.wait(SECONDS)
