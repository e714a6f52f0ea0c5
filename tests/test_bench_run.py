"""The bench beside the peers: whoever has a program runs; jobs lost or run twice are told of, and who is how much better."""

import importlib
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parent.parent
BENCH, PEERS = ROOT / "bench", ROOT / "bench" / "peers"
PEER = """
import os, signal, sys, threading
import redis
from work import URL, finished, main, tally, text
line = redis.Redis.from_url(URL)
def submit(n):
    line.lpush("fake", n)
def bulk(numbers):
    line.lpush("fake", *numbers)
def work():
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    while not over.is_set():
        taken = line.brpop("fake", 0.1)
        n = int(taken[1]) if taken else 0
        if taken and not (os.environ.get("FAKE_LOSES") and n % 50 == 7):
            tally(n)
            if os.environ.get("FAKE_TWICE") and n % 40 == 3:
                tally(n)
main(submit, bulk, work, submit, packages=["redis"], settings="a list", ready=line.ping)
"""


@pytest.fixture
def bench(monkeypatch):
    """The bench's modules, by their bare names, as its programs import them."""
    monkeypatch.syspath_prepend(str(BENCH))
    names = ("arena", "contestants", "record", "rounds", "servers", "table", "workloads")
    return SimpleNamespace(**{name: importlib.import_module(f"contest.{name}") for name in names})


@pytest.fixture
def run(bench, tmp_path):
    """Runs contestants on the given phases, each in this interpreter, and returns what was written down."""
    (tmp_path / "with_fake.py").write_text(PEER)

    def go(names, workloads, persistences=("off",), **fake):
        here = {"sublet": bench.contestants.named(["sublet"])[0]}
        here["fake"] = bench.contestants.Contestant("fake", "with_fake.py", "fake", fake)
        paths = {"sublet": PEERS / "with_sublet.py", "fake": tmp_path / "with_fake.py"}
        found = {"PYTHONPATH": f"{ROOT}:{PEERS}"}
        programs = {name: bench.arena.Program((sys.executable, str(paths[name])), tmp_path, found) for name in names}
        plan = bench.rounds.Plan(
            [here[name] for name in names], workloads, 1, persistences, 0.01, samples=10, server=bench.servers.kind_here()
        )
        about = {"machine": {"cpu": "a", "cores": 2, "system": "b"}, "server": "", "began": "now", "rounds": 1}
        record = bench.record.Record(about, tmp_path / "found.json")
        said = io.StringIO()
        bench.rounds.run(plan, programs, record, bench.record.Progress(plan.steps, said))
        assert f"{plan.steps}/{plan.steps}" in said.getvalue()
        return json.loads((tmp_path / "found.json").read_text())

    return go


def test_two_contestants_do_the_same_and_every_figure_is_written_down(bench, run):
    found = run(["sublet", "fake"], ["drain_1", "latency"])
    rows = {(row["contestant"], row["workload"]): row for row in found["results"]}
    wanted = [each for phase in ("drain_1", "latency") for each in bench.workloads.WORKLOADS[phase]]
    assert set(rows) == {(name, workload) for name in ("sublet", "fake") for workload in (*wanted, "latency")}
    assert [row for row in rows.values() if not row["median"] or row["median"] < 0] == []
    assert all((row["note"], row["lost"], row["twice"]) == ("", 0, 0) for row in rows.values())
    assert len(rows["sublet", "latency"]["values"]) == 10
    assert found["left_out"] == {}
    assert found["settings"]["fake"] == "a list"
    assert f"{rows['fake', 'drain_1']['median']:,.0f}" in bench.table.table(found)


def test_a_contestant_that_loses_jobs_or_runs_them_twice_is_told_of(bench, run, monkeypatch):
    monkeypatch.setattr(bench.arena.Arena, "STALL", 0.5)
    found = run(["fake"], ["drain_1", "drain_2"], ["aof"], FAKE_LOSES="1", FAKE_TWICE="1")
    rows = {row["workload"]: row for row in found["results"]}
    assert set(rows) == {"drain_1", "drain_2"}  # what a job costs is told of without persistence alone
    for row in rows.values():
        assert row["lost"] > 0
        assert row["twice"] > 0
        assert "ran " in row["note"]
        assert "twice" in row["note"]
        assert row["note"] in bench.table.table(found)


def test_a_contestant_whose_program_fails_is_left_out_and_told_of(bench, run, tmp_path):
    (tmp_path / "with_fake.py").write_text("raise SystemExit('I am not well')")
    found = run(["fake"], [])
    assert "I am not well" in found["left_out"]["fake"]
    assert "LEFT OUT fake" in bench.table.table(found)


def test_a_drain_counts_each_job_once(bench):
    told = [(n, n * 1_000_000) for n in range(101)]
    assert bench.workloads.rate_of(told) == pytest.approx(1000)
    assert bench.workloads.rate_of([*told, (3, 5_000_000_000)]) == pytest.approx(1000)
    drain = bench.workloads.Drain([*told[1:], (3, 0), (3, 1)], 101)
    assert (drain.lost, drain.twice, drain.note) == (1, 2, "ran 100 of 101, 2 twice")


@pytest.mark.parametrize(
    ("workload", "ours", "theirs", "words"),
    [
        ("drain_1", 30_000, [10_000, 12_000], "2.50 × bullmq"),
        ("latency_p50", 0.5, [0.8, 0.4], "0.80 × bullmq"),
        ("commands", 5, [], ""),
    ],
    ids=["more is better", "less is better", "alone"],
)
def test_the_table_says_how_many_times_better_than_the_best_peer(bench, workload, ours, theirs, words):
    values = {"sublet": ours, "sublet http": 10**6, **dict(zip(("huey", "bullmq"), theirs, strict=False))}
    rows = [
        {
            "contestant": name,
            "persistence": "off",
            "workload": workload,
            "unit": "u",
            "values": [value],
            "median": value,
            "note": "",
        }
        for name, value in values.items()
    ]
    machine = {"cpu": "a", "cores": 2, "system": "b"}
    found = {
        "results": rows,
        "machine": machine,
        "rounds": 1,
        "server": "s",
        "began": "b",
        "left_out": {},
        "settings": {},
        "versions": {},
    }
    (line,) = [line for line in bench.table.table(found).splitlines() if line.startswith(workload)]
    assert line.endswith(words)
    assert words or not line.rstrip().endswith("×")
