"""The parts of the bench beside the contest: its meter, a backlog, a killed worker, batch sizes and slots."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.support.paths import ROOT

BENCH, PEERS = ROOT / "bench", ROOT / "bench" / "peers"
PEER = """
import os, time
import redis
from work import URL, finished, main, tally
line = redis.Redis.from_url(URL)
def submit(n):
    line.lpush("fake", n)
def bulk(numbers):
    line.lpush("fake", *numbers)
def work():
    while not os.environ.get("FAKE_FORGETS") and line.lmove("busy", "fake"):
        pass
    while True:
        if taken := line.blmove("fake", "busy", 0):
            tally(int(taken))
            if "FAKE_SLOW" in os.environ:
                time.sleep(float(os.environ["FAKE_SLOW"]))
                finished(int(taken))
            line.lrem("busy", 1, taken)
main(submit, bulk, work, submit, packages=["redis"], settings="a list", ready=line.ping)
"""

BULLMQ = """
let now = 0, most = 0;
class Queue {
  async waitUntilReady() {}
  async close() { console.error(JSON.stringify({ most })) }
  async addBulk(jobs) {
    most = Math.max(most, ++now);
    console.error(JSON.stringify({ jobs: jobs.length }));
    await new Promise((done) => setTimeout(done, 1));
    now--;
  }
}
module.exports = { Queue };
"""


@pytest.fixture
def bench(monkeypatch):
    """The bench's modules, by their bare names, as its programs import them."""
    monkeypatch.syspath_prepend(str(BENCH))
    names = ("arena", "backlog", "contestants", "crashes", "meter", "servers", "sweeps")
    return SimpleNamespace(**{name: importlib.import_module(f"contest.{name}") for name in names})


@pytest.fixture
def arena(bench, tmp_path):
    """A server for Sublet and a contestant whose jobs are a list."""
    (tmp_path / "with_fake.py").write_text(PEER)
    (tmp_path / "data").mkdir()
    found = {"PYTHONPATH": f"{ROOT}:{PEERS}"}
    paths = {"sublet": PEERS / "with_sublet.py", "fake": tmp_path / "with_fake.py"}
    programs = {
        name: bench.arena.Program((sys.executable, str(path)), tmp_path, found)
        for name, path in paths.items()
    }
    with bench.servers.serving(tmp_path / "data", bench.servers.kind_here()) as url:
        yield bench.arena.Arena(url, tmp_path, programs)


def fake(bench, running=1, **variables):
    return bench.contestants.Contestant("fake", "with_fake.py", "fake", variables, running)


def test_the_meter_counts_commands_of_its_interval(bench, arena):
    ask = bench.meter.ask
    with bench.meter.Meter(arena.url).counting() as counted:
        assert ask(arena.url, "SET", "key", "x" * 100_000) == "OK"
        assert ask(arena.url, "EVAL", "redis.call('GET', KEYS[1]) return 7", "1", "key") == "7"
    assert (counted.commands, counted.scripts) == (3, 1)  # SET, EVAL, and GET within it
    assert 100_000 < counted.bytes_moved < 120_000
    assert 100_000 < counted.memory < 400_000  # the server rounds up, and has a buffer for each client
    assert counted.redis_us > 0
    with pytest.raises(RuntimeError, match="unknown command"):
        ask(arena.url, "NONSENSE")


def test_sent_commands_are_counted_apart_from_those_in_scripts(bench, arena):
    with bench.meter.Meter(arena.url).monitoring() as counts:
        bench.meter.ask(arena.url, "SET", "key", "] lua] \n")
        bench.meter.ask(
            arena.url, "EVAL", "return redis.call('GET', KEYS[1]) .. redis.call('GET', KEYS[1])", "1", "key"
        )
    assert (counts.sent, counts.inside) == (2, 2)


def test_a_large_backlog_is_measured_beside_a_small_one(bench, arena, monkeypatch):
    for name, value in {"FEW": 10, "MOST": 40, "FILL_SECONDS": 0.1}.items():
        monkeypatch.setattr(bench.backlog, name, value)
    rows = bench.backlog.run(arena, fake(bench), many=3_000, seconds=0.5)
    assert [row["workload"] for row in rows] == ["backlog_1k", "backlog_1m", "memory_pending_1m"]
    assert all(row["median"] > 0 for row in rows)
    assert "behind" in rows[1]["note"]
    assert bench.meter.ask(arena.url, "DBSIZE") == "0"


@pytest.mark.parametrize("forgets", [False, True], ids=["runs them again", "loses them"])
def test_a_killed_workers_jobs_are_followed(bench, arena, monkeypatch, forgets):
    monkeypatch.setattr(bench.crashes, "EACH", 2)
    monkeypatch.setattr(bench.crashes, "SETTLE_SECONDS", 0.2)
    variables = {"FAKE_SLOW": "0.3", **({"FAKE_FORGETS": "1"} if forgets else {})}
    rows = bench.crashes.run(arena, [fake(bench, **variables)], cap=3 if forgets else 20)
    found = {row["workload"]: row["median"] for row in rows}
    assert [row["note"] for row in rows] == ["1 interrupted"] * 4
    assert (found["crash_lost"], found["crash_twice"]) == (int(forgets), 0)
    assert (found["crash_first"], found["crash_last"]) == (None, None) if forgets else found["crash_last"] > 0


def test_the_outcomes_of_interrupted_jobs_are_counted(bench):
    second = 10**9
    starts, ends = (
        [(1, 1), (2, 2), (3, 3), (1, 4 * second), (2, 5 * second)],
        [(3, 4), (1, 6 * second), (1, 7 * second)],
    )
    counts = SimpleNamespace(tally=lambda: starts, finished=lambda: ends)
    found = bench.crashes._figures(counts, 4, second)
    assert found == {
        "interrupted": 2,
        "crash_first": 3.0,
        "crash_last": 4.0,
        "crash_lost": 2,
        "crash_twice": 1,
    }
    starts.pop()
    assert bench.crashes._figures(counts, 4, second)["crash_last"] is None, (
        "one of the two was never restarted"
    )


def test_batches_and_slots_are_swept(bench, arena, monkeypatch):
    for name, value in {"BATCHES": (1, 10), "SLOTS": (1, 10), "MOST": 60}.items():
        monkeypatch.setattr(bench.sweeps, name, value)
    slots, drain = [], bench.sweeps.drain
    monkeypatch.setattr(
        bench.sweeps, "drain", lambda *words, **options: slots.append(options) or drain(*words, **options)
    )
    rows = bench.sweeps.run(arena, seconds=0.1)
    assert slots == [{"BENCH_SLOTS": "1"}, {"BENCH_SLOTS": "10"}]
    assert [(row["workload"], row["at"]) for row in rows] == [
        (f"sweep_{what}", at) for what in ("batch", "slots") for at in (1, 10)
    ]
    assert all(row["contestant"] == "sublet" and row["median"] > 0 for row in rows)


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
@pytest.mark.parametrize(
    ("variables", "calls", "most"),
    [
        ({}, [500, 500, 500, 100], 4),
        ({"BENCH_BATCH": "400"}, [400] * 4, 1),
        ({"BENCH_BATCH": "1000"}, [1000, 600], 1),
    ],
    ids=["by default", "400", "1000"],
)
def test_the_peers_bulk_calls_have_the_size_of_the_sweep(tmp_path, variables, calls, most):
    (tmp_path / "node_modules" / "bullmq").mkdir(parents=True)
    (tmp_path / "node_modules" / "bullmq" / "index.js").write_text(BULLMQ)
    command = ["node", PEERS / "with_bullmq.mjs", "submit", "bulk", "1600"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BENCH_")} | variables
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    *sizes, at_a_time = [json.loads(line) for line in done.stderr.splitlines()]
    assert sizes == [{"jobs": jobs} for jobs in calls]
    assert at_a_time == {"most": most}, "the number of concurrent calls"
