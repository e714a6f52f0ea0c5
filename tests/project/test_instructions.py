"""`bench/instructions.py` counts what redis-server runs for each verb."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import ROOT

PROGRAM = [sys.executable, str(ROOT / "bench" / "instructions.py")]


@pytest.mark.skipif(
    not all(map(shutil.which, ("valgrind", "redis-server"))), reason="needs valgrind and redis-server"
)
@pytest.mark.timeout(120)
def test_it_counts_each_verb_for_one_job_and_for_fifty():
    done = subprocess.run([*PROGRAM, "--rounds", "1", "--json"], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    (found,) = json.loads(done.stdout).values()
    assert list(found) == [f"{verb} {size}" for size in (1, 50) for verb in ("submit", "claim", "complete")]
    for verb in ("submit", "claim", "complete"):
        assert 10 < found[f"{verb} 50"] < found[f"{verb} 1"] < 1000, "thousands"


def test_without_its_tools_it_says_what_to_install(tmp_path):
    done = subprocess.run(
        PROGRAM, env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr == "instructions.py: valgrind is not on the PATH: install valgrind and redis-server\n"
