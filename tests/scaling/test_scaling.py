"""Pools under many loads, in virtual time with the real scripts: waiting times, and the cost of the
workers.

Each load (tests/support/pool_loads.py) is simulated once; `SUBLET_TEST_SEED=N` draws others, for which the
bounds hold, too. `bench/scaling.py` draws the plots, and docs/measurements/scaling-simulated.md discusses
them.
"""

import importlib
import json
import os
import subprocess
import sys
from functools import cache
from xml.etree import ElementTree

import pytest

from tests.support.paths import ROOT
from tests.support.pool_loads import IDLE, Pool, Scenario, scenarios
from tests.support.simulated_pool import Fleet, Trace

BENCH = ROOT / "bench"
SEED = int(os.environ.get("SUBLET_TEST_SEED") or 1)
NAMES = list(scenarios(SEED))
COLD = 3000
"""The maximum start time of a worker in ms, in most of these loads."""
TICK = 5000
TARGET = 5000
"""The maximum wait of a job in ms, in most of these pools."""
WAITS = {  # the limit in ms for all but 1 % of the jobs, if there may be enough workers
    "burst": 1.5 * TARGET,
    "burst, patient": 30_000,
    "burst, rare ticks": 2 * TARGET,  # no tick comes before the end
    "trickle": 2 * TARGET,
    "steady": 2 * TARGET,
    "steady, short": TARGET,
    "steady, long": 25_000,  # the first jobs show that they are long, while others wait; and a summons may get lost
    "ramp": 2 * TARGET,
    "ramp, one at a time": TARGET,
    "stop": 1.5 * TARGET,
    "long": 25_000,
    "blocked": 4 * TARGET,
    "killed": 4 * TARGET,
    "least": 1.5 * TARGET,
}
COSTS = {  # worker-seconds, as a multiple of the ideal at most; for short jobs the ideal is close to zero
    "burst": 2.0,
    "burst, patient": 1.5,
    "burst, rare ticks": 1.5,
    "trickle": 3.0,
    "steady": 1.8,
    "steady, long": 1.8,
    "ramp": 1.8,
    "ramp, one at a time": 1.8,
    "stop": 2.5,
    "sparse": 7.0,  # a second of work, five of lingering
    "long": 1.8,
    "blocked": 1.8,
    "failing invoker": 2.0,
    "too few": 1.8,
    "killed": 3.0,
    "slow starts": 2.0,
    "least": 2.0,
}
CALM = [
    "burst",
    "burst, patient",
    "burst, rare ticks",
    "trickle",
    "steady",
    "steady, long",
    "stop",
    "long",
    "blocked",
    "least",
]


@cache
def trace_of(name: str) -> Trace:
    """The trace of a load."""
    return Fleet(scenarios(SEED)[name], SEED).run()


every_load = pytest.mark.parametrize("name", NAMES)


@every_load
def test_every_job_is_completed_and_the_workers_leave(name):
    trace = trace_of(name)
    assert trace.completed == len(trace.scenario.jobs) == len(trace.waits)
    assert trace.rows[-1].living == trace.rows[-1].crew == trace.scenario.pool.min


@every_load
def test_there_are_never_more_workers_than_the_maximum(name):
    trace = trace_of(name)
    assert trace.most <= trace.scenario.pool.max
    assert all(row.wanted <= trace.scenario.pool.max for row in trace.rows)
    assert all(row.wanted >= trace.scenario.pool.min for row in trace.rows)


@every_load
def test_no_worker_is_summoned_twice(name):
    """At any number of concurrent requests: present and summoned workers are never more than wanted."""
    assert trace_of(name).beyond == 0
    assert trace_of(name).miscounted == 0


@pytest.mark.parametrize("name", WAITS)
def test_the_waiting_times_are_within_their_limits(name):
    assert trace_of(name).wait(0.01) <= WAITS[name]


@pytest.mark.parametrize("name", COSTS)
def test_the_cost_of_workers_is_within_its_limit(name):
    trace = trace_of(name)
    assert trace.cost <= COSTS[name] * trace.ideal


@every_load
def test_waiting_jobs_get_workers_in_bounded_time(name):
    """The time of a cold start, or of a lost summons: its expiry and the next tick; twice if it is lost twice."""
    pool, load = trace_of(name).scenario.pool, trace_of(name).scenario
    lost_once = pool.arrive + load.tick + max(load.cold)
    assert trace_of(name).forsaken() <= (3 if load.refused else 2) * lost_once


@pytest.mark.parametrize("name", CALM)
def test_no_worker_is_dismissed_and_summoned_again(name):
    trace = trace_of(name)
    assert trace.flaps() <= 1
    assert trace.turns() <= 5


def test_a_steady_load_keeps_its_workers():
    """Four workers suffice for an even load. One more for a burst is not flapping."""
    trace = trace_of("steady")
    begun, over = 20_000, trace.scenario.last
    living = {row.living for row in trace.rows if begun <= row.at <= over}
    assert max(living) - min(living) <= 3  # of 8 concurrent jobs on average, random arrivals make 5 to 11
    assert len(trace.given) <= 10


def test_a_ramp_adds_workers_without_dismissing_any():
    for name in ("ramp", "ramp, one at a time"):
        trace = trace_of(name)
        assert trace.flaps() <= 3
        assert len(trace.lives) <= 2.5 * trace.most


def test_surplus_workers_of_a_burst_leave_although_each_gets_a_job_now_and_then():
    """Redis wakes the longest waiter: work rotates, and no worker is idle for as long as it may linger."""
    trace = trace_of("trickle")
    then = [row.living for row in trace.rows if 60_000 <= row.at <= 100_000]
    assert trace.most > 5
    assert max(then) <= 2
    assert min(then) >= 1


def test_the_workers_leave_after_the_load_ends():
    trace = trace_of("stop")
    last = trace.scenario.last
    gone = next(row.at for row in trace.rows if row.at > last and not row.living)
    assert gone - last <= 20_000  # the last job's run, the linger, and the time until they ask again


def test_a_burst_after_an_idle_time_summons_at_once():
    """A submit summons the workers at once, before any tick."""
    trace = trace_of("burst")
    first = next(row.at for row in trace.rows if row.summoned)
    assert first - IDLE <= 250
    assert trace.most >= 600 / (trace.scenario.pool.wait / 1000) / trace.scenario.pool.slots


def test_a_longer_wait_needs_fewer_workers():
    assert trace_of("burst, patient").most < trace_of("burst").most / 2


def test_unknown_running_times_are_estimated_before_the_first_job_ends():
    """A hundred jobs of a minute: with the default estimate of a second, four workers would seem sufficient."""
    trace = trace_of("long")
    assert trace.wait(0.0) < 30_000
    assert trace.most == 20


def test_short_jobs_get_past_long_ones_that_hold_all_slots():
    assert trace_of("blocked").wait(0.0) < 30_000


def test_an_invoker_that_fails_half_of_the_time_is_called_again():
    trace = trace_of("failing invoker")
    assert len(trace.given) >= len(trace.lives)
    assert trace.wait(0.5) < trace.scenario.pool.arrive


def test_a_single_worker_under_too_much_load_works_without_pauses():
    trace = trace_of("too few")
    assert trace.most == 1
    work = sum(job.takes for job in trace.scenario.jobs) / 1000
    assert trace.cost <= 1.5 * work / trace.scenario.pool.slots + 15


def test_a_late_worker_still_works():
    """If it had to leave, no worker would ever work where a start takes longer than a summons lives."""
    trace = trace_of("slow starts")
    assert trace.sent_home <= 4 * trace.most
    assert trace.wait(0.01) <= 22_000 + TICK


def test_a_killed_worker_is_replaced():
    trace = trace_of("killed")
    assert len(trace.lives) > len(trace.left) + 2
    lost_once = trace.scenario.pool.arrive + TICK + COLD
    assert trace.forsaken() <= lost_once


def test_the_minimum_of_workers_runs_before_the_first_job():
    trace = trace_of("least")
    assert [row.living for row in trace.rows if 15_000 <= row.at < 30_000] == [2] * 60


def test_a_seed_gives_the_same_run():
    scenario = Scenario("a few", scenarios(3)["killed"].jobs[:40], 40, Pool(), killed=0.2)
    first, again = (Fleet(scenario, 7).run() for _ in range(2))
    assert (first.rows, first.waits, first.given) == (again.rows, again.waits, again.given)
    assert first.rows != Fleet(scenario, 8).run().rows


def test_the_bench_prints_its_table(tmp_path):
    words = ["--seeds", "2", "--only", "too few", "--json", tmp_path / "figures.json"]
    run = subprocess.run(
        [sys.executable, BENCH / "scaling.py", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "| too few | " in run.stdout
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [figure["most workers"] for figure in figures["too few"]] == [1, 1]


def test_a_plot_shows_the_simulated_run(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="the extra `bench` is not installed")
    monkeypatch.syspath_prepend(BENCH)
    bench = importlib.import_module("scaling")
    drawn = bench.draw({name: [trace_of(name)] for name in NAMES}, tmp_path)
    assert [path.name for path in drawn] == ["scaling-loads.svg", "scaling-troubles.svg"]
    for path in drawn:
        assert ElementTree.parse(path).getroot().tag.endswith("svg")
        assert path.stat().st_size < 200 * 1024
