"""The `console` blocks of a page, run one after the other in one shell, as if pasted."""

import os
import re
import shlex
import socket
import subprocess
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from tests.support.command_server import CLIENT, COMMANDS
from tests.support.paths import PYTHONPATH

MARK = "\036"
"""A byte that no command prints; it ends the output and the exit code of each command."""


class Step(NamedTuple):
    """A command of a page and the output shown there. … means any text; an indented line continues the
    line before.
    """

    command: str
    shown: str

    @property
    def pattern(self):
        return re.escape(re.sub(r"\n {2,}", "", self.shown).strip()).replace("…", ".*")


def blocks(kind, page):
    """The fenced blocks of a page of one kind: (the words after the kind, the text)."""
    return re.findall(rf"^```{kind} ?(.*?)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def steps(*consoles):
    """The commands of console blocks; one with a here-document has several lines."""
    for console in consoles:
        for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            command = re.match(r"[^\n]*<<'EOF'\n.*?^EOF\n|[^\n]*\n", part, re.MULTILINE | re.DOTALL)[0]
            yield Step(command.rstrip("\n"), part[len(command) :])


def run(steps, folder, env, seconds=60):
    """Run the steps in order in one bash; returns the output and exit code of each."""
    env = env | {"PYTHONUNBUFFERED": "1"}  # both streams go into one pipe, in the order of a terminal
    script = "exec 2>&1\n" + "".join(f"{step.command}\nprintf '{MARK}%s{MARK}' $?\n" for step in steps)
    ran = subprocess.run(["bash", "-c", script], cwd=folder, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         timeout=seconds)  # fmt: skip
    parts = ran.stdout.replace("\r", "").split(MARK)
    return [(text.strip(), int(code)) for text, code in zip(parts[::2], parts[1::2], strict=False)]


def check(step, printed, code):
    """Fail unless a command succeeded and printed what its page shows."""
    assert code == 0, f"{step.command}\nfailed: {printed}"
    assert re.fullmatch(step.pattern, printed, re.DOTALL), f"{step.command}\nprinted {printed}"


def need_curl():
    """Skip a test where no curl knows `--json`, which the pages use."""
    found = re.match(r"curl (\d+)\.(\d+)", subprocess.getoutput("curl --version"))
    if not found or (int(found[1]), int(found[2])) < (7, 82):
        pytest.skip("no curl 7.82 or newer on PATH")


def free_port():
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return str(one.getsockname()[1])


def command_on_path(folder):
    """A PATH that begins with a `sublet` of this checkout."""
    COMMANDS.start()
    command = folder / "bin" / "sublet"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.join(CLIENT)} "$@"\n')
    command.chmod(0o700)
    return f"{command.parent}:{os.environ['PATH']}"


def page_environment(folder, place):
    """The environment of a page's commands: a `sublet` of this checkout, and a namespace."""
    path = command_on_path(folder)
    return {
        **os.environ,
        "PATH": path,
        "PYTHONPATH": PYTHONPATH,
        "SUBLET_NAMESPACE": place.settings.namespace,
        "SUBLET_REDIS_URL": place.settings.redis_url,
    }


@contextmanager
def served(folder, env, port):
    """Run `sublet serve` on a port; gives the line that it prints when it listens."""
    how = {
        "cwd": folder,
        "env": env | {"PORT": port},
        "text": True,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }
    server = subprocess.Popen(["sublet", "serve"], **how)
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        rest, _ = server.communicate(timeout=20)
    assert "Traceback" not in rest
