"""Ctrl-C while a command starts."""

import signal
import subprocess
import sys

import pytest

INTERRUPTED = """
import builtins, os, signal, sys
from sublet.__main__ import main

real, (action, module) = builtins.__import__, sys.argv[1:3]
signal.signal(signal.SIGINT, getattr(signal, action))

def interrupted(name, *rest):
    if name == module:
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *rest)

builtins.__import__ = interrupted
sys.argv[1:] = ["version"]
sys.exit(main())
"""


def start(action, module):
    words = [sys.executable, "-c", INTERRUPTED, action, module]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("module", ["sublet.cli.main", "sublet.cli.error_report", "sublet.errors"])
def test_ctrl_c_during_an_import_is_quiet(module):
    done = start("default_int_handler", module)
    assert (done.returncode, done.stdout, done.stderr) == (128 + signal.SIGINT, "", "")


def test_an_ignored_ctrl_c_stays_ignored():
    done = start("SIG_IGN", "sublet.cli.error_report")
    assert (done.returncode, done.stderr) == (0, "")
