"""One job, two workers, a reaper, a producer and one fault, in every possible order. The counts are exact: if
one changes, either the scripts answer differently in some order, or the model was changed; find out which."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.faults.simulation.exhaustive import CASTS, enumerate_all, line
from tests.support.draws import one_in
from tests.support.paths import ROOT

ORDERS = {
    "complete complete": 6_057_012,
    "complete fail": 6_170_641,
    "complete release": 7_048_795,
    "complete complete, twice the time": 443_494,
    "complete complete, one considered dead": 1_041_015,
}


def test_every_cast_has_an_expected_count():
    assert {cast.name for cast in CASTS} == set(ORDERS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cast", one_in(len(CASTS), CASTS), ids=lambda cast: cast.name)
def test_every_order_of_calls_keeps_every_promise(cast):
    count = enumerate_all(cast)
    print(line(count))
    assert count.orders == ORDERS[cast.name]


def test_a_defect_that_needs_one_order_is_found_with_its_path(tmp_path):
    root = ROOT
    for folder in ("lua", "jobs", "tests/faults/simulation"):
        shutil.copytree(root / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    library = tmp_path / "lua" / "lib" / "base.lua"
    right = "if job.token ~= token then return 'LEASE_LOST' end"
    assert right in library.read_text(), "the script has changed: plant the defect elsewhere"
    library.write_text(library.read_text().replace(right, ""))
    words = [sys.executable, "-m", "tests.faults.simulation", "--exhaustive"]
    env = {**os.environ, "PYTHONPATH": f"{tmp_path / 'jobs'}{os.pathsep}{tmp_path}"}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "LEASE_LOST" in done.stdout or "token" in done.stdout
    assert "time passes, more than a lease" in done.stdout
