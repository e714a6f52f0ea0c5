"""The bench of flow control: its figures are right, each part runs with tiny sizes, and its page matches its figures."""

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
PAGE = ROOT / "docs" / "measurements" / "flow-control.md"
MS = 1_000_000
BULLMQ = """
const log = (words) => console.error(JSON.stringify(words));
class Queue {
  async waitUntilReady() {}
  async close() {}
  async setGlobalConcurrency(n) { log({ concurrency: n }) }
  async setGlobalRateLimit(max, duration) { log({ max, duration }) }
  async addBulk(jobs) { log({ jobs: jobs.length, data: Object.keys(jobs[0].data) }) }
  async getCompleted() { return [{ processedOn: 7 }, { processedOn: 9 }] }
}
module.exports = { Queue };
"""
FIGURES = {
    "concurrency": {"jobs_per_s", "share", "lasted_ms", "in_use", "most", "redis_us"},
    "rate": {"jobs_per_s", "worst_1000", "worst_100", "redis_us"},
    "waiting": {"sent", "inside", "redis_ms"},
    "token": {"late_ms"},
    "fairness": {"jain", "heavy", "window"},
    "groups": {"jobs_per_s", "submit_us", "redis_us"},
}


@pytest.fixture
def bench(monkeypatch):
    """The bench's modules, by the names by which its programs import them."""
    monkeypatch.syspath_prepend(str(BENCH))
    names = ("flow.cases", "flow.figures", "flow.loads", "flow.measure", "flow.page")
    names += ("contest.arena", "contest.pages", "contest.paged_rounds", "contest.record", "contest.servers")
    return SimpleNamespace(**{name.partition(".")[2]: importlib.import_module(name) for name in names})


def at(*moments):
    return [(n, ms * MS) for n, ms in enumerate(moments)]


def test_jobs_that_run_at_once_are_counted_and_one_that_ends_makes_room(bench):
    assert bench.figures.most_at_once(at(0, 5, 10), at(10, 15, 20)) == 2
    assert bench.figures.most_at_once(at(0, 5, 9), at(10, 15, 20)) == 3
    assert bench.figures.lasted_ms(at(0, 5), at(10, 25)) == 15


def test_the_busiest_window_may_begin_anywhere(bench):
    assert (
        bench.figures.busiest(at(0, 900, 950, 1000, 1050, 2000), 1000) == 4
    )  # from 900 or 950, and not from 0
    assert bench.figures.busiest(at(0, 1000, 2000), 1000) == 1


def test_a_rate_is_measured_from_burst_to_burst(bench):
    bursts = at(0, 1, 2, 100, 101, 102, 200, 201, 202, 300)
    assert bench.figures.steady_rate(bursts, 3) == pytest.approx(30)
    assert bench.figures.steady_rate(bursts[:6], 3) is None, "one whole block is not enough"


def test_a_start_is_late_from_the_moment_of_its_token(bench):
    claims, starts = [150.0, 100.0, 203.0], [101.0, 152.0, 205.0]
    assert bench.figures.late_ms(starts, claims, 50) == [2.0, 5.0]


def test_fairness_is_judged_while_every_tenant_has_work(bench):
    assert bench.figures.jain([5, 5, 5]) == 1
    assert bench.figures.jain([9, 0, 0]) == pytest.approx(1 / 3)
    served = bench.figures.while_all_wait(at(*range(8)), 8, lambda n: int(n >= 6))
    assert served == {0: 6, 1: 0}, "tenant 0 has no more work after job 5"


def test_the_heavy_tenant_has_nine_jobs_in_ten(bench):
    load = bench.loads.Load(20_000, tenants=100, heavy=True)
    owners = [load.tenant(n) for n in range(load.jobs)]
    others = [owners.count(tenant) for tenant in range(1, 100)]
    assert owners.count(0) == 18_000
    assert (min(others), max(others), sum(others)) == (20, 21, 2_000)


def test_each_part_compares_both_contestants_under_the_same_load(bench):
    cases = bench.cases.all_cases()
    assert list(dict.fromkeys(case.part for case in cases)) == list(bench.cases.PARTS)
    assert len({(case.part, case.row) for case in cases}) == len(cases)
    for part in bench.cases.PARTS:
        here = [case for case in cases if case.part == part]
        assert {case.contestant for case in here} == {"sublet", "bullmq"}
        assert len({(case.load.jobs, case.load.ms, case.load.slots) for case in here}) <= 2


@pytest.fixture
def arena(bench, tmp_path):
    """A server, and Sublet's program in this interpreter."""
    (tmp_path / "data").mkdir()
    ours = bench.arena.Program(
        (sys.executable, str(PEERS / "limits_sublet.py")), tmp_path, {"PYTHONPATH": str(ROOT)}
    )
    with bench.servers.serving(tmp_path / "data", bench.servers.kind_here()) as url:
        yield bench.arena.Arena(url, tmp_path, {"sublet": ours})


def tiny(bench, part):
    """The first of Sublet's cases of a part, with few jobs and one worker."""
    case = next(case for case in bench.cases.all_cases() if (case.part, case.contestant) == (part, "sublet"))
    few = {"concurrency": 60, "rate": 12, "waiting": 3, "token": 12, "fairness": 2_000, "groups": 200}[part]
    faster = {"rate": 100, "per_ms": 100} if part == "rate" else {}
    return replace(case, load=replace(case.load, jobs=few, **faster), workers=1, seconds=0.3)


@pytest.mark.parametrize("part", FIGURES)
def test_each_part_runs_and_gives_its_figures(bench, arena, monkeypatch, part):
    monkeypatch.setattr(bench.measure, "CALM_SECONDS", 0.5)
    monkeypatch.setattr(bench.measure, "BLOCK", 4)
    found = {figure.workload: figure for figure in bench.measure.measure(arena, tiny(bench, part))}
    assert set(found) == FIGURES[part]
    assert all(figure.samples or figure.value is not None for figure in found.values())
    if part == "concurrency":
        assert 1 < found["most"].value <= 10
    if part == "token":
        assert len(found["late_ms"].samples) == 12 - 1 - bench.cases.SKIPPED
        assert min(found["late_ms"].samples) > -2, "a job does not start before its token"
    if part == "fairness":
        assert found["heavy"].value < 5, "the groups take turns"


def test_a_lost_job_fails_its_case_and_the_others_are_recorded(bench, arena, monkeypatch):
    tiny_cases = [tiny(bench, "groups"), tiny(bench, "concurrency")]

    def losing(where, case):
        if case.part == "groups":
            monkeypatch.setattr(where, "wait", lambda *words: 0)
        try:
            return bench.measure.measure(where, case)
        finally:
            monkeypatch.undo()

    monkeypatch.setattr(bench.measure, "SETTLE_SECONDS", 0.0)
    record = bench.record.Record({"rounds": 1})
    for case in tiny_cases:
        bench.paged_rounds.step(arena, case, losing, record)
    assert "of 200 jobs ran" in record.found["left_out"]["groups, sublet, no groups"]
    assert {row["workload"].partition(" ")[0] for row in record.found["results"]} == {"concurrency"}


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_the_peer_gets_the_limits_of_the_load(bench, tmp_path):
    (tmp_path / "node_modules" / "bullmq").mkdir(parents=True)
    (tmp_path / "node_modules" / "bullmq" / "index.js").write_text(BULLMQ)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BENCH_")}

    def node(load, *words):
        return subprocess.run(
            ["node", PEERS / "limits_bullmq.mjs", *words],
            cwd=tmp_path,
            env=environ | load.variables(),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )

    load = bench.loads.Load(600, ms=5, concurrency=10, rate=50, per_ms=100)
    told = [json.loads(line) for line in node(load, "submit", "bulk", "600").stderr.splitlines()]
    assert told[:2] == [{"concurrency": 10}, {"max": 50, "duration": 100}]
    assert [each["jobs"] for each in told[2:]] == [500, 100]
    assert json.loads(node(bench.loads.Load(1), "claims").stdout) == {"claimed": [7, 9]}
    assert node(bench.loads.Load(1), "claims").stderr == "", "a load without limits sets none"


def row(contestant, workload, *values):
    median = sorted(values)[len(values) // 2]
    return {
        "contestant": contestant, "persistence": "off", "workload": workload, "unit": "", "note": "",
        "values": list(values), "median": median,
    }  # fmt: skip


def test_a_table_has_medians_and_the_worst_round_of_what_must_not_happen(bench):
    found = bench.pages.Run({"results": [
        row("sublet, 1 worker", "concurrency jobs_per_s", 1_900, 1_800, 1_950),
        row("sublet, 1 worker", "concurrency most", 10, 11, 10),
        row("bullmq, 1 worker", "token late_ms", *range(1, 102)),
    ]})  # fmt: skip
    *_, line = bench.page.part_table(found, "concurrency").splitlines()
    assert line == "| Sublet, 1 worker | 1,900 (1,800–1,950) |  |  |  | 11 |  |"
    *_, line = bench.page.part_table(found, "token").splitlines()
    assert line == "| BullMQ, 1 worker | 51.0 | 100.0 | 101.0 | 101 |"
    assert bench.page.part_table(found, "rate") == bench.pages.NOTHING


def limits(*words):
    command = [sys.executable, BENCH / "limits.py", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_an_unreadable_file_is_refused_with_a_message(tmp_path):
    (tmp_path / "wrong.json").write_text("{}")
    done = limits("--from", tmp_path / "wrong.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a file that bench/limits.py --json wrote" in done.stderr
    assert limits("--from", tmp_path / "none.json").returncode == 2


def test_the_tables_of_the_page_match_its_figures(bench, tmp_path):
    page, figures = PAGE.read_text(), PAGE.with_suffix(".json")
    found = bench.pages.read(figures, "limits.py")
    assert bench.pages.rewrite(page, bench.page.TABLES, found) == page
    for name in bench.page.TABLES:
        assert f"<!-- begin: {name} -->" in page, "the page must have every part"
    copy = tmp_path / "page.md"
    copy.write_text("".join(f"<!-- begin: {name} -->\n<!-- end: {name} -->\n" for name in bench.page.TABLES))
    assert limits("--from", figures, "--write", "--page", copy).returncode == 0
    assert copy.with_suffix(".json").read_bytes() == figures.read_bytes()
    assert copy.read_text().count("| Sublet, ") > 10
