"""Each promise of flow control can be broken: a defect planted in a script is found by the simulation, as the promise that it breaks."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.faults.simulation.flow.limits import Bucket, Limits, Rate, limits_of, limits_of_group
from tests.faults.simulation.request import Violation
from tests.support.draws import one_in
from tests.support.paths import ROOT

PROGRAM = """
import sys
from tests.faults.simulation.choices import Choices
from tests.faults.simulation.run import run
wrong = (run(Choices(seed)).wrong for seed in range(1, 80) if Choices(seed).pick("groups and limits", (False, True), 0.5))
print(next(filter(None, wrong), "nothing was found"))
"""
CONCLUDED = "  return_place(job)\n"
DEFECTS = {
    "a queue takes more than its limit": (
        "lib/turns.lua", "n, room, f.clock = n - 1, room - 1,", "n, room, f.clock = n - 1, room,", "run, at most"),
    "a group takes more than its limit": (
        "lib/flow.lua", "if g.concurrency and g.running >= g.concurrency then",
        "if g.concurrency and g.running > g.concurrency then", "run, at most"),
    "a group that may go on gets no turn": ("lib/flow.lua", "    if rests then f:settle(g) end\n", "", "and no turn"),
    "a failed attempt keeps its place": (
        "lib/lifecycle.lua", CONCLUDED, "  if ending.verb ~= 'fail' then return_place(job) end\n", "the places of"),
    "a lost lease keeps its place": (
        "lib/lifecycle.lua", CONCLUDED, "  if ending.verb ~= 'reap' then return_place(job) end\n", "the places of"),
    "a group's tokens are not taken": (
        "lib/turns.lua", "    F.charge(g, cost)\n    F.keep_tokens(g)\n    return", "    return", "the tokens of"),
    "a rate gives one token more than its burst": (
        "lib/flow.lua", "math.max(0, rate.burst - cost) * rate.ms or 0", "math.max(0, rate.burst + 1 - cost) * rate.ms or 0",
        "ms, expected at most"),
    "a group waits longer than for its token": (
        "lib/flow.lua", "peek('ZADD', f.tokens, math.ceil(at), g.name)", "peek('ZADD', f.tokens, math.ceil(at) + 300, g.name)",
        "its token comes at"),
    "no worker waits for a token": (
        "claim.lua", "reply[2] = by_turns(name):appoint(worker, reply[2])", "by_turns(name):appoint(worker, reply[2])",
        "no worker comes for it"),
    "a place that goes back wakes nobody": (
        "lib/flow.lua", "    if rests or before and before >= f.concurrency then f:call_worker() end\n", "", "no worker comes for it"),
}  # fmt: skip
"""Script, text, replacement, and words of the violation."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("defect", one_in(3, [*DEFECTS]))
def test_a_planted_defect_breaks_its_promise(defect, tmp_path):
    name, right, wrong, words = DEFECTS[defect]
    for folder in ("lua", "jobs", "tests/faults/simulation"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (tmp_path / "lua" / name).read_text()
    assert text.count(right) == 1, "the script has changed: plant the defect elsewhere"
    (tmp_path / "lua" / name).write_text(text.replace(right, wrong))
    env = {**os.environ, "PYTHONPATH": f"{tmp_path / 'jobs'}{os.pathsep}{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=590
    )
    assert words in done.stdout, done.stdout + done.stderr


def test_limits_are_read_as_the_scripts_read_them():
    text = "jobs=5 concurrency=3 group_concurrency=2 group_rate=60 group_per=60000"
    assert limits_of(text) == Limits(3)
    assert limits_of_group("g", "", text) == Limits(2, Rate(60, 60_000, 1))
    assert limits_of_group("g", "concurrency=9 rate=5 per=1000 burst=3", text) == Limits(9, Rate(5, 1000, 3))
    assert limits_of_group("", "", text) == Limits()


def test_a_window_with_more_than_the_burst_and_what_came_is_a_violation():
    bucket = Bucket(Rate(2, 1000, 3))
    for moment in (0, 0, 0, 500):
        bucket.start("q", moment, 1)
    with pytest.raises(Violation, match="q used 2 tokens in 400 ms"):
        Bucket(Rate(1, 1000, 1), used=[(0, 1)]).start("q", 400, 1)
    with pytest.raises(Violation, match=r"q used 5 tokens in 600 ms, expected at most 4\.2"):
        bucket.start("q", 600, 1)


def test_a_job_above_the_burst_needs_all_tokens_and_those_after_it_pay():
    bucket = Bucket(Rate(1, 1000, 2))
    bucket.start("q", 0, 10)
    assert bucket.allowed_at(1) == 9000
    with pytest.raises(Violation):
        bucket.start("q", 8000, 1)


def test_tokens_that_are_given_back_may_be_used():
    bucket = Bucket(Rate(1, 1000, 5))
    bucket.start("q", 0, 5)
    bucket.charge(0, -4)
    bucket.start("q", 0, 4)
    assert bucket.allowed_at(5) == 5000
