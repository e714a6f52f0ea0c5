"""The documents' own commands, run: the `console` blocks of a page, one after the other in one shell, as if pasted."""

import os
import re
import socket
import subprocess
import sys
from contextlib import contextmanager
from typing import NamedTuple

import pytest

MARK = "\036"
"""A byte that no command prints; it ends each one's words, and its exit code."""


class Step(NamedTuple):
    """A command of a page, and what it prints there: … stands for anything, and what is set in goes on the line before."""

    command: str
    shown: str

    @property
    def pattern(self):
        return re.escape(re.sub(r"\n {2,}", "", self.shown).strip()).replace("…", ".*")


def blocks(kind, page):
    """The fenced blocks of a page of one kind: (the words after it, the text)."""
    return re.findall(rf"^```{kind} ?(.*?)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def steps(*consoles):
    """The commands of console blocks; one with a here-document has several lines."""
    for console in consoles:
        for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
            command = re.match(r"[^\n]*<<'EOF'\n.*?^EOF\n|[^\n]*\n", part, re.MULTILINE | re.DOTALL)[0]
            yield Step(command.rstrip("\n"), part[len(command) :])


def run(steps, folder, env, seconds=60):
    """What each step's command printed, and its exit code, when one bash runs them in their order."""
    env = env | {
        "PYTHONUNBUFFERED": "1"
    }  # both streams go into one pipe, and keep their order as on a terminal
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
    """Skip a test where there is no curl that knows `--json`, which the pages use."""
    found = re.match(r"curl (\d+)\.(\d+)", subprocess.getoutput("curl --version"))
    if not found or (int(found[1]), int(found[2])) < (7, 82):
        pytest.skip("no curl 7.82 or newer on PATH")


def free_port():
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return str(one.getsockname()[1])


def command_on_path(folder):
    """The PATH with a `sublet` in front that is this checkout's."""
    command = folder / "bin" / "sublet"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m jobs "$@"\n')
    command.chmod(0o700)
    return f"{command.parent}:{os.environ['PATH']}"


@contextmanager
def served(folder, env, port):
    """`sublet serve` on a port, in its own terminal: the line that it prints when it is up."""
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
