"""One job, two workers, a reaper, a producer and one fault, in every possible order; two jobs of a group; and jobs that wait. The counts
are exact: if one changes, either the scripts answer differently in some order, or the model was changed; find out which."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.faults.simulation.exhaustive import CASTS, enumerate_all, line
from tests.faults.simulation.flow import orders
from tests.faults.simulation.workflows import orders as linked
from tests.support.draws import one_in
from tests.support.paths import ROOT

ORDERS = {
    "complete complete": 6_057_012,
    "complete fail": 6_170_641,
    "complete release": 7_048_795,
    "complete complete, twice the time": 443_494,
    "complete complete, one considered dead": 1_041_015,
    "a group gets a second place": 6_422_672,
    "a queue loses a place": 461_179,
    "a rate doubles, and a cost is corrected": 27_448,
    "two parents, a child that is cancelled": 568_964,
    "two parents, a child that is held": 568_964,
    "two parents, a child that runs in any case": 585_724,
    "an event before, at and after the wait": 1_134_547,
    "an event, a cancel, and a wait without a limit": 712_554,
}
MODELS = (
    *((enumerate_all, cast) for cast in CASTS),
    *((orders.enumerate_all, cast) for cast in orders.CASTS),
    *((linked.enumerate_all, cast) for cast in linked.CASTS),
)


KEEPS = "  return_place(job)\n"


def test_every_cast_has_an_expected_count():
    assert {cast.name for _, cast in MODELS} == set(ORDERS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("walk_all", "cast"), one_in(len(MODELS), MODELS), ids=lambda one: getattr(one, "name", "")
)
def test_every_order_of_calls_keeps_every_promise(walk_all, cast):
    count = walk_all(cast)
    print(line(count))
    assert count.orders == ORDERS[cast.name]


def planted(folder, name, right, wrong, *words):
    """Run Python in a copy of the code with a defect. Returns the exit code, and its output."""
    for part in ("lua", "jobs", "tests/faults/simulation"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    library = folder / "lua" / "lib" / name
    assert library.read_text().count(right) == 1, "the script has changed: plant the defect elsewhere"
    library.write_text(library.read_text().replace(right, wrong))
    env = {**os.environ, "PYTHONPATH": f"{folder / 'jobs'}{os.pathsep}{folder}"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


def test_a_defect_that_needs_one_order_is_found_with_its_path(tmp_path):
    right = "if job.token ~= token then return 'LEASE_LOST' end"
    code, output = planted(tmp_path, "base.lua", right, "", "-m", "tests.faults.simulation", "--exhaustive")
    assert code == 1, output
    assert "LEASE_LOST" in output or "token" in output
    assert "time passes, more than a lease" in output


@pytest.mark.timeout(310)
@pytest.mark.parametrize(
    ("cast", "name", "right", "wrong", "words"),
    [
        (0, "lifecycle.lua", KEEPS, "  if state ~= 'cancelled' then return_place(job) end\n", "left a job of q that may start"),
        (0, "flow.lua", "    if rests then f:settle(g) end\n", "", "and no turn"),
        (1, "lifecycle.lua", KEEPS, "  if ending.verb ~= 'reap' then return_place(job) end\n", "the places of q"),
        (1, "turns.lua", "and f.concurrency - size_of(peek('HLEN', f.places)) or math.huge\n    while", "and 2 or math.huge\n    while",
         "run, at most"),
        (0, "turns.lua", "    f:recheck(0, FIRST)\n    f:call_worker()\n", "    f:recheck(0, FIRST)\n", "no worker comes for it"),
        (2, "turns.lua", "    F.charge(f, cost - job.held)\n", "", "the tokens of q"),
    ],
)  # fmt: skip
def test_a_defect_of_flow_control_is_found_in_some_order(cast, name, right, wrong, words, tmp_path):
    program = f"from tests.faults.simulation.flow.orders import *; enumerate_all(CASTS[{cast}])"
    code, output = planted(tmp_path, name, right, wrong, "-c", program)
    assert code == 1, output
    assert words in output
    assert "after:" in output


@pytest.mark.timeout(310)
@pytest.mark.parametrize(
    ("cast", "name", "right", "wrong", "words"),
    [
        (0, "edges.lua", "    if #edges > 0 then call('LTRIM', list, #edges, -1) end\n", "", "counts"),
        (1, "edges.lua", "    call('RPUSH', key('broken:', from.id), job.id)\n", "", "counts"),
        (1, "edges.lua", "    if job.broken > 0 and job.cause == from.id then\n", "    if false then\n", "did not end"),
        (2, "edges.lua", "is_done and fulfil or break_off", "fulfil", "was fulfilled"),
        (3, "steps.lua", "    'steps', digits(n + 1)", "    'steps', digits(n)", "counts its steps"),
    ],
)  # fmt: skip
def test_a_defect_of_workflows_or_steps_is_found_in_some_order(cast, name, right, wrong, words, tmp_path):
    program = f"from tests.faults.simulation.workflows.orders import *; enumerate_all(CASTS[{cast}])"
    code, output = planted(tmp_path, name, right, wrong, "-c", program)
    assert code == 1, output
    assert words in output
    assert "after:" in output
