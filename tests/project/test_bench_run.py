"""The bench beside other queues: every contestant with a program runs, lost and repeated jobs are reported,
and ratios are right."""

import importlib
import io
import json
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from tests.support.paths import ROOT

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
    names = ("arena", "contestants", "environments", "record", "rounds", "servers", "table", "workloads")
    return SimpleNamespace(**{name: importlib.import_module(f"contest.{name}") for name in names})


@pytest.fixture
def run(bench, tmp_path):
    """Runs contestants on the given phases, each in this interpreter; returns the records."""
    (tmp_path / "with_fake.py").write_text(PEER)

    def go(names, workloads, persistences=("off",), **fake):
        here = {"sublet": bench.contestants.named(["sublet"])[0]}
        here["fake"] = bench.contestants.Contestant("fake", "with_fake.py", "fake", fake)
        paths = {"sublet": PEERS / "with_sublet.py", "fake": tmp_path / "with_fake.py"}
        found = {"PYTHONPATH": f"{ROOT}:{PEERS}"}
        programs = {
            name: bench.arena.Program((sys.executable, str(paths[name])), tmp_path, found) for name in names
        }
        plan = bench.rounds.Plan(
            [here[name] for name in names],
            workloads,
            1,
            persistences,
            0.01,
            samples=10,
            server=bench.servers.kind_here(),
        )
        about = {
            "machine": {"cpu": "a", "cores": 2, "system": "b"},
            "server": "",
            "began": "now",
            "rounds": 1,
        }
        record = bench.record.Record(about, tmp_path / "found.json")
        output = io.StringIO()
        bench.rounds.run(plan, programs, record, bench.record.Progress(plan.steps, output))
        assert f"{plan.steps}/{plan.steps}" in output.getvalue()
        return json.loads((tmp_path / "found.json").read_text())

    return go


def test_two_contestants_run_every_workload_and_every_figure_is_recorded(bench, run):
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


def test_a_contestant_that_loses_or_repeats_jobs_is_reported(bench, run, monkeypatch):
    monkeypatch.setattr(bench.arena.Arena, "STALL", 0.5)
    found = run(["fake"], ["drain_1", "drain_2"], ["aof"], FAKE_LOSES="1", FAKE_TWICE="1")
    rows = {row["workload"]: row for row in found["results"]}
    assert set(rows) == {"drain_1", "drain_2"}  # the cost of a job is measured without persistence alone
    for row in rows.values():
        assert row["lost"] > 0
        assert row["twice"] > 0
        assert "ran " in row["note"]
        assert "twice" in row["note"]
        assert row["note"] in bench.table.table(found)


def test_a_contestant_whose_program_fails_is_left_out_and_reported(bench, run, tmp_path):
    (tmp_path / "with_fake.py").write_text("raise SystemExit('I am not well')")
    found = run(["fake"], [])
    assert "I am not well" in found["left_out"]["fake"]
    assert "LEFT OUT fake" in bench.table.table(found)


def test_a_drain_counts_each_job_once(bench):
    ends = [(n, n * 1_000_000) for n in range(100)]
    assert bench.workloads.rate_of(ends) == pytest.approx(1000)
    assert bench.workloads.rate_of([*ends, (3, 5_000_000_000)]) == pytest.approx(1000)
    drain = bench.workloads.Drain([*ends[1:], (3, 0), (3, 1)], 100)
    assert (drain.lost, drain.twice, drain.note) == (1, 2, "ran 99 of 100, 2 twice")


def test_the_time_of_a_drain_starts_after_a_fifth_of_the_jobs_on_all_workers(bench):
    cold = [(n, n * 50_000_000) for n in range(20)]
    warm = [(n, 1_000_000_000 + n * 1_000_000) for n in range(20, 60)]
    hot = [(n, 1_060_000_000 + (n - 60) * 500_000) for n in range(60, 100)]
    assert bench.workloads.rate_of([*cold, *warm, *hot]) == pytest.approx(79e9 / 59.5e6)
    assert bench.workloads.rate_of([*cold, *warm, *hot], since=hot[0][1]) == pytest.approx(2000)
    assert bench.workloads.rate_of(hot, since=hot[-1][1]) is None


def test_a_phase_lasts_as_long_as_requested(bench):
    turn = bench.workloads.Turn(None, None, None, 2.0)
    assert [turn.jobs(rate) for rate in (10, 3_000, 60_000, 10**6)] == [100, 6_000, 120_000, 150_000]


def test_a_name_of_two_words_may_have_a_hyphen(bench):
    named = bench.contestants.named
    assert [each.name for each in named(["huey-processes", "sublet plain"])] == [
        "sublet plain",
        "huey processes",
    ]
    with pytest.raises(ValueError, match="no contestant plain: there are sublet, sublet-plain"):
        named(["sublet", "plain"])


@pytest.mark.parametrize(
    "words",
    [
        ["--json", "{}/none/found.json"],
        ["--json", "{}"],
        ["--environments", "/dev/null"],
        ["--server", "redis"],
        ["--only", "unknown"],
        ["--rounds", "0"],
        ["--seconds", "nan"],
        ["--seconds", "-3"],
    ],
    ids=" ".join,
)
def test_an_invalid_request_fails_at_once(tmp_path, words):
    command = [sys.executable, str(BENCH / "run.py"), "--environments", str(tmp_path / "made")]
    done = subprocess.run(
        [*command, *(word.format(tmp_path) for word in words)],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (2, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith("run.py: ")
    assert words[-1].format(tmp_path) in last
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_contestants_on_node_are_left_out_without_node(bench, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bench.environments.make(tmp_path, {"bullmq": ["npm:bullmq"]}) == {
        "bullmq": "node is not on the PATH"
    }
    assert "bullmq is left out: node is not on the PATH" in capsys.readouterr().err


def test_an_interrupted_start_leaves_no_partial_environment(bench, tmp_path, monkeypatch, capsys):
    interrupts = "import os, signal; os.kill(os.getppid(), signal.SIGINT); signal.pause()"

    def install(folder, packages, over):
        folder.mkdir(parents=True)
        bench.environments._run([sys.executable, "-c", interrupts], folder, over)

    monkeypatch.setattr(bench.environments, "_install", install)
    with pytest.raises(KeyboardInterrupt):
        bench.environments.make(tmp_path, {"huey": ["huey"]})
    output = capsys.readouterr().err
    assert "interrupted" in output
    assert "FAILED" not in output
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_second_run_waits_for_the_first(bench, tmp_path, monkeypatch):
    messages, there = [], threading.Event()
    monkeypatch.setattr(bench.environments, "say", lambda words: messages.append(words) or there.set())
    order = []

    def second():
        with bench.environments.holding(tmp_path):
            order.append("second")

    thread = threading.Thread(target=second)
    with bench.environments.holding(tmp_path):
        thread.start()
        assert there.wait(20)
        order.append("first")
    thread.join(20)
    assert order == ["first", "second"]
    assert "waiting" in messages[0]


@pytest.mark.parametrize(
    ("workload", "ours", "theirs", "words"),
    [
        ("drain_1", 30_000, [10_000, 12_000], "2.50 × bullmq"),
        ("latency_p50", 0.5, [0.8, 0.4], "0.80 × bullmq"),
        ("commands", 5, [], None),
    ],
    ids=["more is better", "less is better", "without a peer"],
)
def test_the_table_shows_the_ratio_to_the_best_peer(bench, workload, ours, theirs, words):
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
    text = bench.table.table(found)
    if words is None:
        assert bench.table.BESIDE not in text
    else:
        assert text[text.index(bench.table.BESIDE) :].replace("\n", " ").split()[2:] == [
            *words.split()[:2],
            "the",
            "best",
            "peer",
            "bullmq",
        ]
    assert max(map(len, text.splitlines())) <= 100
