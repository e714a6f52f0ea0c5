"""The tables and pictures of docs/measurements/performance.md agree with its figures."""

import importlib.util
import json
import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from tests.support.paths import ROOT

PAGE, XEON, LATEST = (
    ROOT / "docs" / "measurements" / "performance.md",
    ROOT / "docs" / "measurements" / "performance-xeon.md",
    ROOT / "docs" / "measurements" / "performance-latest.md",
)
MARKS = "".join(
    f"<!-- begin: {name} -->\n<!-- end: {name} -->\n"
    for name in ("about", "goals", "behind", "crash", "backlog", "noise")
)

MEMORY = ("memory_pending", "memory_finished")
PICTURES = ("throughput", "sweeps", "latency", "memory")


@pytest.fixture(scope="module")
def performance():
    """The module of the bench, imported from its folder as its own program imports it."""
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
    record = {"contestant": contestant, "persistence": "off", "workload": workload, "unit": "", "note": ""}
    return {**record, "values": list(values), "median": median, **more}


def run_of(*rows):
    about = {
        "machine": {"cores": 2},
        "server": "redis 7.0.15",
        "began": "2026-11-22T00:00:00",
        "seconds": 90,
        "rounds": 3,
    }
    return {
        **about,
        "versions": {"huey": {"huey": "3.5.4"}},
        "settings": {"huey": "8 threads"},
        "left_out": {},
        "results": [*rows],
    }


FOUND = run_of(
    row("sublet", "drain_1", 30_000, 29_000, 32_000), row("sublet plain", "drain_1", 20_000),
    *(row(name, "drain_1", rate) for name, rate in {"bullmq": 16_000, "huey": 2_500, "huey processes": 9_000}.items()),
    *(row(name, "enqueue_one", rate) for name, rate in {"sublet": 6_000, "huey": 6_500, "huey processes": 7_000}.items()),
    *(row(name, "enqueue_bulk", rate) for name, rate in {"sublet": 80_000, "huey": 7_000}.items()),
    *(row(name, "latency", *(ms * i / 100 for i in range(1, 200))) for name, ms in {"sublet": 0.5, "huey": 0.7}.items()),
    *(row(name, f"latency_p{at}", at / 100) for name in ("sublet", "huey") for at in (50, 95, 99)),
    *(row(name, what, size) for name, size in {"sublet": 690, "huey": 340}.items() for what in MEMORY),
    *(row("sublet", what, 1000 * at, at=at) for what in ("sweep_batch", "sweep_slots") for at in (1, 10, 100)),
    row("sublet", "backlog_1k", 20_000, 30_000, 21_000), row("sublet", "backlog_1m", 29_400, 10_000, 11_000),
    row("sublet", "crash_first", 29.9), row("sublet", "crash_last", 30.1), row("sublet", "crash_lost", 0),
    row("sublet", "memory_pending_1m", 690), row("sublet", "crash_twice", 0), row("huey", "crash_twice", 1),
    row("huey", "crash_first", None), row("huey", "crash_last", None), row("huey", "crash_lost", 8),
)  # fmt: skip


def test_the_tables_of_the_page_match_its_figures(performance):
    page, figures = PAGE.read_text(), PAGE.with_suffix(".json").read_text()
    assert performance.rewrite(page, performance.Run(json.loads(figures))) == page
    assert set(re.findall("<!-- begin: (.+) -->", page)) == set(performance.PARTS), (
        "the page must have every part"
    )
    for other in (XEON, LATEST):
        page, figures = other.read_text(), other.with_suffix(".json").read_text()
        assert performance.rewrite(page, performance.Run(json.loads(figures))) == page


@pytest.mark.parametrize("page", [PAGE, XEON, LATEST], ids=["the page", "the Xeon's", "the latest"])
def test_a_page_names_the_version_of_its_figures(page):
    commit = json.loads(page.with_suffix(".json").read_text())["versions"]["sublet"]["commit"]
    assert f"commit `{commit}`" in page.read_text().partition("<!-- begin")[0].replace("\n", " ")


def test_the_pages_pictures_exist_and_have_a_text_alternative():
    pictures = re.findall(r"!\[(.+)\]\((pictures/performance-.+\.svg)\)", PAGE.read_text())
    assert {path for _, path in pictures} == {
        f"pictures/{path.name}" for path in (PAGE.parent / "pictures").glob("performance-*")
    }


def test_a_goal_is_compared_with_the_peer_that_it_names(performance):
    lines = performance.goals(performance.Run(FOUND)).splitlines()
    ours = "30,000 (29,000–32,000)"
    assert f"| drain, one worker, jobs/s | {ours} | BullMQ 16,000 | 1.88 | 2 × BullMQ | **no** |" in lines
    assert f"| the same, beside Python | {ours} | Huey 2,500 | 12 | 10 × the best | yes |" in lines, (
        "single processes are compared"
    )
    assert "| memory of a pending job, a million of them, bytes | 690 |  |  | 700 | yes |" in lines
    assert "| drain rate, 1 M pending against 1 k | 0.98 |  |  | 0.97 | yes |" in lines, (
        "the fastest rounds count"
    )


def test_several_processes_are_compared_with_several(performance):
    lines = performance.goals(performance.Run(FOUND)).splitlines()
    plain = "| drain of plain functions, jobs/s | 20,000 | Huey, processes 9,000 | 2.22 | 3 × the better Huey | **no** |"
    assert plain in lines
    assert (
        "| enqueue one by one, jobs/s | 6,000 | Huey, processes 7,000 | 0.86 | 1.1 × the best | **no** |"
        in lines
    )


def test_a_better_peer_is_named(performance):
    heads = ["enqueue one by one", "bytes a pending job", "bytes a finished job"]
    lines = performance.behind(performance.Run(FOUND)).splitlines()[2:]
    assert [line.split(" | ")[0].strip("| ") for line in lines] == heads
    ahead = run_of(row("sublet", "drain_1", 2), row("huey", "drain_1", 1))
    assert performance.behind(performance.Run(ahead)) == "Nowhere in this run."


@pytest.mark.parametrize(
    "rows", [[row("sublet", "drain_1", 2)], [row("huey", "drain_1", 1)], []], ids=["ours", "theirs", "none"]
)
def test_a_figure_without_a_peer_is_not_ahead(performance, rows):
    assert performance.behind(performance.Run(run_of(*rows))) == "Not measured in this run."


def test_an_event_not_seen_in_time_is_sorted_last_and_shown_with_its_limit(performance):
    assert performance.crash(performance.Run(FOUND)).splitlines()[2:] == [
        "| Sublet | 29.9 | 30.1 | 0 | 0 |  | lease 30 s |",
        "| Huey | not in 75 s | not in 75 s | 8 | 1 |  | no: a job leaves its list when it starts |",
    ]


def test_noise_is_estimated_from_equal_contestants_and_from_rounds(performance):
    found = run_of(
        row("huey", "enqueue_one", 6_000, 7_000, 6_500),
        row("huey processes", "enqueue_one", 5_000, 5_000, 10_000),
        row("huey", "drain_1", 1_000, 1_100, 1_050),
    )
    words = performance.noise(performance.Run(found))
    pair = "Huey 6,500 (6,000–7,000) | Huey, processes 5,000 (5,000–10,000)"
    assert f"| enqueue one by one | persistence off | {pair} | 1.30 × |" in words
    assert "1.17 × its worst one in half of all cases" in words


def test_a_busy_machine_is_reported(performance):
    def about(load):
        return performance.about(performance.Run({**FOUND, "machine": {"cores": 2, "load": load}}))

    assert "busy" not in about(1.0)
    assert about(1.0).endswith("Load before: 1.00.")
    assert "Load before: 1.01. **The machine was busy" in about(1.01)


def command(figures, page, **more):
    words = [
        sys.executable,
        ROOT / "bench" / "performance.py",
        figures,
        "--page",
        page,
        "--pictures",
        page.parent,
    ]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, **more)


def test_the_command_writes_tables_pictures_and_figures_and_nothing_else(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")
    page, figures = tmp_path / "page.md", tmp_path / "run.json"
    page.write_text(f"before\n{MARKS}after\n")
    figures.write_text(json.dumps(FOUND))
    for _ in range(2):
        done = command(figures, page)
        assert done.returncode == 0, done.stderr
        seen = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path != figures}
    assert page.read_text().startswith(
        "before\n<!-- begin: about -->\n\nRedis 7.0.15; 2 cores; 2026-11-22; 3 rounds, 2 minutes.\n\n<!-- end"
    )
    assert page.read_text().endswith("<!-- end: noise -->\nafter\n")
    assert json.loads((tmp_path / "page.json").read_text()) == FOUND
    assert set(seen) == {"page.md", "page.json", *(f"performance-{name}.svg" for name in PICTURES)}
    for path in tmp_path.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert path.stat().st_size < 80 * 1024
        assert "Sublet" in path.read_text()


def test_a_picture_without_figures_is_reported(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")
    page, figures = tmp_path / "page.md", tmp_path / "run.json"
    page.write_text(MARKS)
    figures.write_text(json.dumps(run_of(row("sublet", "drain_1", 2))))
    assert command(figures, page).returncode == 0
    for name in PICTURES:
        assert "Not measured in this run." in (tmp_path / f"performance-{name}.svg").read_text()


WRONG = {
    "missing": None, "broken": "{", "empty": "{}", "list": "[]", "no figures": json.dumps(run_of()), "mark": json.dumps(FOUND),
    "page": json.dumps(FOUND),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_an_unreadable_file_is_refused_with_a_message_and_nothing_is_written(tmp_path, what):
    pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")
    page, figures = tmp_path / "page.md", tmp_path / "run.json"
    if WRONG[what] is not None:
        figures.write_text(WRONG[what])
    if what != "page":
        page.write_text("<!-- begin: nonsense -->\n<!-- end: nonsense -->\n" if what == "mark" else MARKS)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    done = command(figures, page)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"performance\.py: .+\n", done.stderr)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_without_matplotlib_nothing_is_written(performance, tmp_path, monkeypatch):
    page, figures = tmp_path / "page.md", tmp_path / "run.json"
    page.write_text(MARKS)
    figures.write_text(json.dumps(FOUND))
    monkeypatch.setattr(performance.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(performance.Unusable, match="matplotlib"):
        performance.write(figures, page, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"page.md", "run.json"}
