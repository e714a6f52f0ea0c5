"""Chaos with workflows: the judge of order, callbacks and steps, and a run with real servers and processes."""

import json
import random
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from sublet.model import State
from tests.faults.chaos import workflows as judge
from tests.faults.chaos.scenario import RAN_FOR
from tests.faults.chaos.workflows import SHAPES, Woven
from tests.support.paths import ROOT
from tests.support.processes import plain_environment

SECONDS = 400.0
"""A run that a busy machine slows is repeated twice."""


def job(*spans, state=State.COMPLETED):
    """A job with attempts: (claimed, ended) in seconds."""
    moments = [[datetime.fromtimestamp(at, UTC) for at in span] for span in spans]
    attempts = tuple(SimpleNamespace(claimed_at=begin, ended_at=end) for begin, end in moments)
    return SimpleNamespace(attempts=attempts, state=state)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [2, 3, 17, 200])
def test_each_job_of_a_graph_leads_to_its_callback(shape, size):
    edges = judge.edges_of(shape, size, random.Random(size))
    assert all(0 <= first < then < size for first, then in edges)
    assert {first for first, _ in edges} == set(range(size - 1))
    assert len(edges) == len(set(edges))
    assert len(edges) <= 500


def test_workflows_have_2_to_200_jobs():
    drawn = random.Random(1)
    sizes = [judge.size_of(drawn) for _ in range(1000)]
    assert min(sizes) == 2
    assert max(sizes) >= 190
    assert 400 < sum(size < 20 for size in sizes) < 600


def test_a_job_that_began_before_the_end_of_an_upstream_is_found():
    flow = Woven("f", ["a", "b", "c"], [("a", "c"), ("b", "c")])
    jobs = {"a": job((0, 1)), "b": job((0, 1), (2, 5)), "c": job((5, 6))}
    assert judge.too_early([flow], jobs) == []
    assert judge.too_early([flow], jobs | {"c": job((4, 6))}) == ["c before b"]
    assert judge.too_early([flow], jobs | {"a": job((0, 1), state=State.QUEUED)}) == ["c before a"]
    assert judge.too_early([flow], {"c": jobs["c"]}) == [], "a lost job proves nothing"


def test_the_way_to_a_callback_is_measured_from_its_last_upstream():
    flow = Woven("f", ["a", "b", "c"], [("a", "c"), ("b", "c")])
    assert judge.delays([flow], {"a": job((0, 1)), "b": job((0, 3)), "c": job((3.5, 6))}) == [0.5]
    assert judge.delays([flow], {"c": job((3.5, 6))}) == []


def test_a_step_with_two_results_is_found():
    seen = [("a", "True 1"), ("a", "True 1"), ("a", "False 2"), ("b", "True 3"), ("b", "True 4")]
    assert judge.charged_twice(seen) == ["b"]


@pytest.mark.timeout(SECONDS)
@pytest.mark.skipif(not shutil.which("redis-server"), reason="needs redis-server")
def test_workflows_end_while_everything_is_killed():
    words = [
        "chaos",
        "--quick",
        "--only",
        "workflows,workflows-failover",
        "--binary",
        "redis-server",
        "--json",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "sublet", *words], cwd=ROOT, env=plain_environment() | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    whole, failover = json.loads(done.stdout)["scenarios"]
    for found in (whole, failover):
        assert all(RAN_FOR in failure for failure in found["failures"]), found  # tests share the processor
    notes = whole["notes"]
    assert notes["workflows"] > 40
    assert notes["suspended"] > notes["callbacks"] / 2
    assert notes["largest"] > 50
    assert failover["notes"]["workflows"] > 5
