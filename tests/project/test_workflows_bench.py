"""The bench of workflows: its graphs and figures are right, each part runs with tiny sizes, its page matches its figures."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.support.paths import ROOT

BENCH, PEERS = ROOT / "bench", ROOT / "bench" / "peers"
PAGE = ROOT / "docs" / "measurements" / "workflows.md"
BULLMQ = """
const counted = (node) => 1 + (node.children ?? []).reduce((sum, child) => sum + counted(child), 0);
const deep = (node) => 1 + Math.max(0, ...(node.children ?? []).map(deep));
class FlowProducer {
  async waitUntilReady() {}
  async close() {}
  async addBulk(flows) {
    console.error(JSON.stringify(flows.map((flow) => [flow.name, flow.data.n, counted(flow), deep(flow)])));
  }
}
module.exports = { FlowProducer };
"""
DRAIN = {"jobs_per_s", "submit_per_s", "redis_us", "hold_ms"}
FIGURES = {
    "fan": DRAIN,
    "chain": DRAIN,
    "fan_paced": {"gap_ms"},
    "chain_paced": {"gap_ms"},
    "wide": {*DRAIN, "gap_ms", "read_ms"},
}


@pytest.fixture
def bench(monkeypatch):
    """The bench's modules, by the names by which its programs import them."""
    monkeypatch.syspath_prepend(str(BENCH))
    names = ("graphs.cases", "graphs.loads", "graphs.measure", "graphs.page")
    names += ("contest.arena", "contest.pages", "contest.servers")
    return SimpleNamespace(**{name.partition(".")[2]: importlib.import_module(name) for name in names})


def test_a_fan_has_one_callback_and_a_chain_waits_for_one_job_at_a_time(bench):
    fan = bench.loads.Load("fan", 3, workflows=2)
    assert (fan.jobs_each, fan.jobs) == (4, 8)
    assert [(list(before), after) for before, after in fan.followers()] == [([0, 1, 2], 3), ([4, 5, 6], 7)]
    chain = bench.loads.Load("chain", 3, workflows=2)
    edges = [(list(before), after) for before, after in chain.followers()]
    assert edges == [([0], 1), ([1], 2), ([3], 4), ([4], 5)]


def seen(bench, load, starts, ends):
    moments = [{n: ms * 1_000_000 for n, ms in enumerate(each)} for each in (starts, ends)]
    return bench.measure.Seen(load, *moments, submit_seconds=0.5, redis_us=400.0, hold_ms=2.0)


def test_a_gap_is_from_the_last_end_to_the_start_of_what_waited(bench):
    fan = seen(bench, bench.loads.Load("fan", 3), [0, 0, 0, 14], [10, 12, 5, 20])
    assert bench.measure.gaps_ms(fan) == [2.0]
    found = {figure.workload: figure.value for figure in bench.measure.JUDGES["wide"](fan)}
    expected = {"jobs_per_s": 200, "submit_per_s": 8, "redis_us": 100, "hold_ms": 2}
    assert found == {**expected, "gap_ms": 2, "read_ms": 6}


def test_a_job_that_starts_before_what_it_waits_for_or_twice_or_never_fails_the_case(bench):
    load = bench.loads.Load("chain", 2)
    good = seen(bench, load, [0, 12], [10, 20])
    bench.measure._check("row", good, 2, 2)
    with pytest.raises(bench.arena.Failed, match="1 jobs started before"):
        bench.measure._check("row", seen(bench, load, [0, 9], [10, 20]), 2, 2)
    for starts, ends in ((3, 2), (2, 1), (2, 3)):
        with pytest.raises(bench.arena.Failed, match=f"in {starts} starts and {ends} ends"):
            bench.measure._check("row", good, starts, ends)


def test_each_part_compares_all_contestants_under_the_same_load(bench):
    cases = bench.cases.all_cases()
    assert list(dict.fromkeys(case.part for case in cases)) == list(bench.cases.PARTS)
    assert len({(case.part, case.row) for case in cases}) == len(cases)
    for part in bench.cases.PARTS:
        shared = [case for case in cases if case.part == part and case.load.size <= 10_000]
        assert [case.contestant for case in shared] == [each.name for each in bench.cases.CONTESTANTS]
        assert len({case.load for case in shared}) == 1


@pytest.fixture
def arena(bench, tmp_path):
    """A server, and Sublet's program in this interpreter."""
    (tmp_path / "data").mkdir()
    ours = bench.arena.Program(
        (sys.executable, str(PEERS / "workflows_sublet.py")), tmp_path, {"PYTHONPATH": str(ROOT)}
    )
    with bench.servers.serving(tmp_path / "data", bench.servers.kind_here()) as url:
        yield bench.arena.Arena(url, tmp_path, {"sublet": ours})


@pytest.mark.parametrize("part", FIGURES)
def test_each_part_runs_and_gives_its_figures(bench, arena, part):
    case = next(case for case in bench.cases.all_cases() if case.part == part)
    load = replace(case.load, size=5, workflows=min(case.load.workflows, 3))
    found = {figure.workload: figure for figure in bench.measure.measure(arena, replace(case, load=load))}
    assert set(found) == FIGURES[part]
    assert all(figure.samples or figure.value is not None for figure in found.values())
    if part.endswith("_paced"):
        assert len(found["gap_ms"].samples) == (3 if part == "fan_paced" else 12)


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_the_peer_submits_the_same_graphs(bench, tmp_path):
    (tmp_path / "node_modules" / "bullmq").mkdir(parents=True)
    (tmp_path / "node_modules" / "bullmq" / "index.js").write_text(BULLMQ)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BENCH_")}

    def flows(load):
        """Name and number of each root, the jobs of its flow, and how deep it is."""
        command = ["node", PEERS / "workflows_bullmq.mjs", "submit", "bulk", str(load.jobs)]
        streams = {"capture_output": True, "text": True, "timeout": 60, "check": True}
        done = subprocess.run(command, cwd=tmp_path, env=environ | load.variables(), **streams)
        return [flow for line in done.stderr.splitlines() for flow in json.loads(line)]

    assert flows(bench.loads.Load("fan", 3, workflows=2)) == [["callback", 3, 4, 2], ["callback", 7, 4, 2]]
    assert flows(bench.loads.Load("chain", 3, workflows=2)) == [["step", 2, 3, 3], ["step", 5, 3, 3]]
    assert len(flows(bench.loads.Load("chain", 2, workflows=55))) == 55


def row(contestant, workload, *values):
    median = sorted(values)[len(values) // 2]
    return {
        "contestant": contestant, "persistence": "off", "workload": workload, "unit": "", "note": "",
        "values": list(values), "median": median,
    }  # fmt: skip


def test_a_table_has_medians_and_the_worst_hold(bench):
    found = bench.pages.Run({"results": [
        row("celery threads", "fan jobs_per_s", 1_900, 1_800, 1_950),
        row("celery threads", "fan hold_ms", 1.0, 3.5, 2.0),
        row("bullmq", "fan_paced gap_ms", *range(1, 102)),
    ]})  # fmt: skip
    *_, line = bench.page.part_table(found, "fan").splitlines()
    assert line == "| Celery, threads | 1,900 (1,800–1,950) |  |  | 3.50 |"
    *_, line = bench.page.part_table(found, "fan_paced").splitlines()
    assert line == "| BullMQ | 51.0 | 100.0 | 101.0 | 101 |"


def test_the_tables_of_the_page_match_its_figures(bench):
    page, figures = PAGE.read_text(), PAGE.with_suffix(".json")
    found = bench.pages.read(figures, "workflows.py")
    assert bench.pages.rewrite(page, bench.page.TABLES, found) == page
    for name in bench.page.TABLES:
        assert f"<!-- begin: {name} -->" in page, "the page must have every part"
