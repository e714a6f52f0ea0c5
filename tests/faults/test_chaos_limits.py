"""Chaos with limits: the judge of places, tokens and turns, and a run with real servers and processes."""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.faults.chaos import limits as judge
from tests.faults.chaos.limits import Span, Window
from tests.faults.chaos.scenario import RAN_FOR, UNUSED, Finding, scenarios
from tests.support.paths import ROOT
from tests.support.processes import plain_environment

SECONDS = 400.0
"""A run that a busy machine slows is repeated twice."""


def span(begin, end, tenant="a", code="completed"):
    return Span(tenant, begin, end, code)


def test_a_place_that_goes_back_in_the_ms_in_which_another_is_taken_is_not_held_twice():
    assert judge.most_at_once([span(0, 10), span(10, 20)]) == 1
    assert judge.most_at_once([span(0, 11), span(10, 20), span(10, 10)]) == 3
    assert judge.most_at_once([]) == 0


def test_an_attempt_before_its_token_is_found():
    paced = [span(at, at) for at in (0, 0, 0, 100, 200)]
    assert judge.before_token(paced, 100, 3) == 0
    assert judge.before_token(paced, 100, 2) == 3, "those after it are early, too"
    assert judge.before_token([span(at, at) for at in (0, 50, 200)], 100, 1) == 1
    assert judge.before_token([span(at, at) for at in (0, 1000, 1000, 1000)], 100, 3) == 0


def test_turns_are_counted_in_the_window_and_compared_with_an_equal_share():
    spans = [
        span(at, at + 1, tenant) for at, tenant in ((5, "a"), (10, "a"), (11, "b"), (12, "a"), (20, "b"))
    ]
    counted = judge.turns(spans, Window(10, 20), ["a", "b", "c"])
    assert counted == {"a": 2, "b": 1, "c": 0}
    assert judge.unfairness(counted) == 1
    assert judge.unfairness({"a": 95, "b": 105}) == pytest.approx(0.05)
    assert judge.unfairness({"a": 0}) == 1, "no turn at all is not fair"


def test_work_is_compared_with_the_time_when_redis_was_up_and_live_workers_had_the_places():
    window = Window(0, 1000, ((400, 500),))
    whole = [span(at, at + 100) for at in (0, 100, 200, 300, 500, 600, 700, 800, 900)]
    assert window.up == 900
    assert judge.use_of_places(whole, window, 1, 100) == 1
    assert judge.use_of_places(whole[:-1], window, 1, 100) == pytest.approx(8 / 9)
    ghost = [*whole[:4], span(500, 900, code="lease_expired"), span(900, 1000)]
    assert judge.use_of_places(ghost, window, 1, 100) == 1
    assert judge.use_of_places([*ghost, span(1000, 1100)], window, 1, 100) == 1, "that one ends afterwards"
    assert judge.use_of_tokens(whole, window, 100) == 1


def test_a_story_without_an_attempt_is_not_judged():
    job = SimpleNamespace(id="0-a", queue="q", group="a", attempt=2, attempts=())
    assert judge.spans_of([job], "another") == []
    with pytest.raises(ValueError, match="kept 0 of 2 attempts"):
        judge.spans_of([job], "q")


def test_only_failures_of_a_busy_machine_are_tried_again():
    def found(*failures):
        return Finding(scenarios()["limits"], None, None, 0, failures)

    assert found(f"80.0% of the places {UNUSED}, bound 90%").slow
    assert not found(f"80.0% of the places {UNUSED}, bound 90%", "1 lost").slow


@pytest.mark.timeout(SECONDS)
@pytest.mark.skipif(not shutil.which("redis-server"), reason="needs redis-server")
def test_twenty_tenants_share_limits_while_everything_is_killed():
    done = subprocess.run(
        [sys.executable, "-m", "sublet", "chaos", "--quick", "--only", "limits", "--binary", "redis-server", "--json"],
        cwd=ROOT, env=plain_environment() | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    (found,) = json.loads(done.stdout)["scenarios"]
    assert all(RAN_FOR in failure for failure in found["failures"]), found  # tests share the processor
    notes = found["notes"]
    assert notes["flood"] > 0.85
    assert notes["moments"] > 200
    assert notes["turns_places"] > 400
