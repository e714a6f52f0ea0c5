"""docs/performance.md says what its figures say: its tables are made from them, and so are its pictures."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
MARKS = "".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in ("about", "goals", "behind", "crash", "backlog"))

MEMORY = ("memory_pending", "memory_finished")
PICTURES = ("throughput", "sweeps", "latency", "memory")


@pytest.fixture(scope="module")
def performance():
    """The module of the bench, imported as its own program imports it: from its folder."""
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        spec = importlib.util.spec_from_file_location("performance", ROOT / "bench" / "performance.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules["performance"] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(ROOT / "bench"))


def row(contestant, workload, *values, **more):
    median = sorted(values, key=lambda value: (value is None, value))[len(values) // 2]
    told = {"contestant": contestant, "persistence": "off", "workload": workload, "unit": "", "note": ""}
    return {**told, "values": list(values), "median": median, **more}


def run_of(*rows):
    about = {"machine": {"cores": 2}, "server": "redis 7.0.15", "began": "2026-11-22T00:00:00", "seconds": 90, "rounds": 3}
    return {
        **about,
        "versions": {"huey": {"huey": "3.5.4"}},
        "settings": {"huey": "8 threads"},
        "left_out": {},
        "results": [*rows],
    }


FOUND = run_of(
    *(row(name, "drain_1", rate) for name, rate in {"sublet": 30_000, "bullmq": 16_000, "huey": 2_500}.items()),
    *(row(name, "enqueue_one", rate) for name, rate in {"sublet": 6_000, "huey": 7_000}.items()),
    *(row(name, "enqueue_bulk", rate) for name, rate in {"sublet": 80_000, "huey": 7_000}.items()),
    *(row(name, "latency", *(ms * i / 100 for i in range(1, 200))) for name, ms in {"sublet": 0.5, "huey": 0.7}.items()),
    *(row(name, what, size) for name, size in {"sublet": 690, "huey": 340}.items() for what in MEMORY),
    *(row("sublet", what, 1000 * at, at=at) for what in ("sweep_batch", "sweep_slots") for at in (1, 10, 100)),
    row("sublet", "backlog_1k", 20_000, 30_000, 21_000), row("sublet", "backlog_1m", 29_400, 10_000, 11_000),
    row("sublet", "crash_first", 29.9), row("sublet", "crash_last", 30.1), row("sublet", "crash_lost", 0),
    row("huey", "crash_first", None), row("huey", "crash_last", None), row("huey", "crash_lost", 8),
)  # fmt: skip


def test_the_pages_tables_are_those_of_its_figures(performance):
    page, figures = PAGE.read_text(), PAGE.with_suffix(".json").read_text()
    assert performance.rewrite(page, performance.Run(json.loads(figures))) == page
    assert set(re.findall("<!-- begin: (.+) -->", page)) == set(performance.PARTS), "the page has every part"


def test_the_pages_pictures_are_there_and_named_for_who_cannot_see_them():
    pictures = re.findall(r"!\[(.+)\]\((pictures/performance-.+\.svg)\)", PAGE.read_text())
    assert {path for _, path in pictures} == {
        f"pictures/{path.name}" for path in (PAGE.parent / "pictures").glob("performance-*")
    }


def test_a_goal_is_held_against_the_peer_that_it_names(performance):
    lines = performance.goals(performance.Run(FOUND)).splitlines()
    assert "| drain, one worker, jobs/s | 30,000 | BullMQ 16,000 | 1.88 | 2 × BullMQ | **no** |" in lines
    assert "| the same, beside Python | 30,000 | Huey 2,500 | 12 | 10 × the best | yes |" in lines
    assert "| memory of a pending job, bytes | 690 | Huey 340 | 0.49 | 700 | yes |" in lines
    assert "| drain rate, 1 M pending against 1 k | 0.98 |  |  | 0.97 | yes |" in lines, "the fastest rounds count"


def test_what_a_peer_does_better_is_told(performance):
    heads = ["enqueue one by one", "bytes a pending job", "bytes a finished job"]
    lines = performance.behind(performance.Run(FOUND)).splitlines()[2:]
    assert [line.split(" | ")[0].strip("| ") for line in lines] == heads
    ahead = run_of(row("sublet", "drain_1", 2), row("huey", "drain_1", 1))
    assert performance.behind(performance.Run(ahead)) == "Nowhere in this run."


def test_jobs_that_never_ran_again_are_told_last(performance):
    assert performance.matrix(performance.Run(FOUND), performance.CRASH).splitlines()[2:] == [
        "| Sublet | **29.9** | **30.1** | 0 |",
        "| Huey | never | never | 8 |",
    ]


def test_the_command_writes_tables_pictures_and_figures_and_nothing_else(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")
    page, figures = tmp_path / "page.md", tmp_path / "run.json"
    page.write_text(f"before\n{MARKS}after\n")
    figures.write_text(json.dumps(FOUND))
    command = [sys.executable, ROOT / "bench" / "performance.py", figures, "--page", page, "--pictures", tmp_path]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        seen = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path != figures}
    assert page.read_text().startswith(
        "before\n<!-- begin: about -->\n\nRedis 7.0.15; 2 cores; 2026-11-22; 3 rounds, 2 minutes.\n\n<!-- end"
    )
    assert page.read_text().endswith("<!-- end: backlog -->\nafter\n")
    assert json.loads((tmp_path / "page.json").read_text()) == FOUND
    assert set(seen) == {"page.md", "page.json", *(f"performance-{name}.svg" for name in PICTURES)}
    for path in tmp_path.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert path.stat().st_size < 80 * 1024
        assert "Sublet" in path.read_text()
