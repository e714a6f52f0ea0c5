"""A command of the command server (tests/support/command_server.py) is like one that Python started."""

import signal
import subprocess
import sys

import pytest

from tests.support.command_server import CLIENT

pytest_plugins = ["tests.support.command_line"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks with pidfds")
WORK = ("work", "tasks:app", "--json")


@pytest.fixture
def start(shell):
    """Start a command by the command server."""
    started = []

    def start(*words):
        command = [*CLIENT, *words]
        process = subprocess.Popen(
            command, cwd=shell.folder, env=shell.env, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=30)


@pytest.mark.parametrize(
    "words", [["--version"], ["submit", ""], ["submit", "a b", "--json"], ["lst"], ["get", "0-x"]]
)
def test_output_and_exit_code_are_those_of_a_started_python(words, shell):
    how = dict(cwd=shell.folder, env=shell.env, capture_output=True, text=True, timeout=60)
    forked = subprocess.run([*CLIENT, *words], **how)
    started = subprocess.run([*shell.command, *words], **how)
    assert (forked.returncode, forked.stdout, forked.stderr) == (
        started.returncode,
        started.stdout,
        started.stderr,
    )


def test_a_signal_reaches_the_command(start):
    worker = start(*WORK)
    assert "ready" in worker.stdout.readline()
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0


def test_a_command_is_killed_with_its_client(start):
    worker = start(*WORK)
    assert "ready" in worker.stdout.readline()
    worker.kill()
    worker.communicate(timeout=10)  # until the worker, too, has closed the output
