"""One invocation on a platform that ends it: `work(app, seconds=…)` is gone by then, with nothing left to lose.

The platform is played by the test: it passes the time that is left, and kills the process when that is over, as a function's
platform does.
"""

import signal
import sys
import time

import pytest

from tests.support import misbehaving_tasks as tasks
from tests.support.processes import on_linux

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = on_linux
HANDLER = """
import asyncio, json, sys, time
from sublet_functions.work import work
from tests.support.misbehaving_tasks import app

def say(event, lease=None, words=""):
    print(json.dumps({"event": event, "clock": time.monotonic(), "id": lease and lease.id, "words": words}), flush=True)

async def handle(seconds, slots):
    say("invoked")
    await work(app, seconds=seconds, slots=slots, processes=2, lease=300, report=say)
    say("returned")

asyncio.run(handle(float(sys.argv[1]), int(sys.argv[2])))
"""


class Platform:
    """Invokes the handler, and kills it when its time is up."""

    def __init__(self, stage):
        self.stage = stage

    def invoke(self, seconds, slots=4):
        """One invocation to its end, and its answer; it must have returned in time."""
        process = self.stage.run([sys.executable, "-c", HANDLER, str(seconds), str(slots)])
        (invoked,) = process.until("invoked")
        while not process.seen("returned") and time.monotonic() < invoked["clock"] + seconds:
            time.sleep(0.005)
        process.process.kill()
        assert process.wait() in (0, -signal.SIGKILL)
        returned = process.seen("returned")
        assert returned, f"it was killed at its deadline\n{process}"
        assert returned[0]["clock"] - invoked["clock"] <= seconds
        return process


@pytest.fixture
def platform(stage):
    return Platform(stage)


def test_an_invocation_returns_in_time_and_holds_nothing(stage, platform):
    """Unfinished jobs are released, without a try being burnt."""
    short = stage.submit(tasks.naps, 0.1, n=20) + stage.submit(tasks.plain_naps, 0.1, n=4)
    long = stage.submit(tasks.rests, always=True) + stage.submit(tasks.plain_rests, always=True)
    said = platform.invoke(3, slots=8)
    assert stage.states(*short) == ["completed"] * 24
    assert stage.states(*long) == ["queued"] * 2
    assert {stage.job(job_id).tries_left for job_id in long} == {3}
    assert {code for job_id in long for code in stage.codes(job_id)} == {"released"}
    assert len(said.seen("completed")) == 24


def test_a_backlog_is_worked_off_invocation_by_invocation(stage, platform):
    """…each job once, though every invocation is cut off in the middle of it."""
    ids = stage.submit(tasks.naps, 0.25, n=24)
    for _ in range(10):
        platform.invoke(2, slots=4)
        assert "running" not in stage.states(*ids)
        if set(stage.states(*ids)) == {"completed"}:
            break
    assert set(stage.states(*ids)) == {"completed"}
    assert len(stage.notes("done")) == len(ids)


def test_a_job_that_could_not_be_finished_is_not_begun(stage, platform):
    """The time left is shorter than the timeout of the task: the job waits for the next invocation, with all its tries."""
    (first, second) = stage.submit(tasks.naps.options(timeout=1.9), 1.0, n=2)
    platform.invoke(2.8, slots=1)
    assert stage.states(first, second) == ["completed", "queued"]
    assert not stage.notes("began", second)
    assert stage.job(second).tries_left in (None, stage.job(second).max_attempts)
    assert stage.start("--drain", "--slots", "1").wait() == 0
    assert stage.states(second) == ["completed"]


def test_a_worker_runs_at_most_max_jobs(stage):
    ids = (
        stage.submit(tasks.quick, n=3) + stage.submit(tasks.plain_quick, n=2) + stage.submit(tasks.quick, n=3)
    )
    worker = stage.start("--max-jobs", "5", "--slots", "3")
    assert worker.wait() == 0
    assert (len(worker.seen("started")), len(worker.seen("completed"))) == (5, 5)
    assert stage.states(*ids) == ["completed"] * 5 + ["queued"] * 3
    assert {stage.job(job_id).attempt for job_id in ids[5:]} == {0}


def test_a_drain_ends_when_the_queues_are_dry(stage):
    ids = stage.submit(tasks.naps, 0.2, n=4) + stage.submit(tasks.plain_naps, 0.2, n=3)
    worker = stage.start("--drain", "--slots", "3")
    assert worker.wait() == 0
    assert set(stage.states(*ids)) == {"completed"}


def test_a_worker_releases_jobs_that_are_unfinished_at_its_time_limit(stage):
    (job_id,) = stage.submit(tasks.rests, always=True)
    worker = stage.start("--for", "1s", "--slots", "3", "--lease", "300s")
    assert worker.wait() == 0
    assert stage.codes(job_id) == ["released"]
