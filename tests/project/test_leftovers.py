"""The check that no test leaves a process behind: runs of pytest whose tests leave one."""

import os
import subprocess
import sys

import pytest

from tests.support.leftovers import MARK
from tests.support.paths import ROOT
from tests.support.processes import is_alive, on_linux, until

pytestmark = on_linux
CONFTEST = """
import tests.support.leftovers
tests.support.leftovers.SECONDS = 0.3

def pytest_configure(config):
    config.pluginmanager.register(tests.support.leftovers.Leftovers())
"""
SLEEPER = """
import os, signal, subprocess, sys
from pathlib import Path

def start(**how):
    program = "import time; print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True, **how)
    process.stdout.readline()
    Path("pid").write_text(str(process.pid))
    return process
"""


def run(folder, test, *words):
    """Run pytest in a folder, on this one test."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(SLEEPER + test)
    (folder / "pytest.ini").write_text("[pytest]\n")
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words, "test_it.py"]
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False
    )


LEAVES = "def test_leaves():\n    start()\n"
ORPHANS = """
def test_leaves_an_orphan():
    if os.fork() == 0:
        start()
        os._exit(0)
    os.wait()
"""
DIES = """
def test_dies():
    start()
    os.kill(os.getpid(), signal.SIGKILL)
"""
ENDS = """
def test_ends_what_it_starts():
    process = start()
    process.kill()
    process.wait()
"""


SPREAD = ["-n", "2"]


@pytest.mark.parametrize("words", [[], SPREAD], ids=["in one process", "over workers"])
@pytest.mark.parametrize("test", [LEAVES, ORPHANS], ids=["a child", "a daemon"])
def test_a_run_that_leaves_a_process_fails_and_names_it(tmp_path, test, words):
    done = run(tmp_path, test, *words)
    pid = int((tmp_path / "pid").read_text())
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the tests left these processes behind" in done.stdout
    assert f"  {pid} {sys.executable} -c import time" in done.stdout
    assert "1 passed" in done.stdout
    until(lambda: not is_alive(pid), "the end of what was left behind")


def test_processes_of_a_killed_worker_are_found(tmp_path):
    done = run(tmp_path, DIES, *SPREAD, "--max-worker-restart=0")
    pid = int((tmp_path / "pid").read_text())
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"  {pid} {sys.executable} -c import time" in done.stdout
    until(lambda: not is_alive(pid), "the end of what was left behind")


@pytest.mark.parametrize("words", [[], SPREAD], ids=["in one process", "over workers"])
def test_a_run_that_ends_its_processes_succeeds(tmp_path, words):
    done = run(tmp_path, ENDS, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "left these" not in done.stdout


def test_processes_of_other_runs_are_ignored(tmp_path):
    """One of our processes runs at the same time: it is neither reported nor killed."""
    words = [sys.executable, "-c", "import time; print(flush=True); time.sleep(60)"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as ours:
        try:
            ours.stdout.readline()
            done = run(tmp_path, ENDS)
            assert done.returncode == 0, done.stdout
            assert ours.poll() is None
        finally:
            ours.kill()


def test_processes_of_this_run_have_its_mark():
    words = [sys.executable, "-c", f"import os; print(os.environ['{MARK}'])"]
    assert subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout.split()
