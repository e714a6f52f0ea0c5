"""One invocation on a platform with a time limit: `work(app, seconds=…)` returns before it and holds no lease.

The test plays the platform: it passes the remaining time, and kills the process when the time is over.
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

def say(event, lease=None, detail=""):
    print(json.dumps({"event": event, "clock": time.monotonic(), "id": lease and lease.id, "detail": detail}), flush=True)

async def handle(seconds, slots):
    say("invoked")
    await work(app, seconds=seconds, slots=slots, processes=2, lease=300, report=say)
    say("returned")

asyncio.run(handle(float(sys.argv[1]), int(sys.argv[2])))
"""


class Platform:
    """Invokes the handler, and kills it at the time limit."""

    def __init__(self, stage):
        self.stage = stage

    def invoke(self, seconds, slots=4):
        """Run one invocation to its end; it must return in time."""
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
    """Unfinished jobs are released; the attempt does not count."""
    short = stage.submit(tasks.naps, 0.1, n=20) + stage.submit(tasks.plain_naps, 0.1, n=4)
    long = stage.submit(tasks.rests, always=True) + stage.submit(tasks.plain_rests, always=True)
    process = platform.invoke(3, slots=8)
    assert stage.states(*short) == ["completed"] * 24
    assert stage.states(*long) == ["queued"] * 2
    assert {stage.job(job_id).tries_left for job_id in long} == {3}
    assert {code for job_id in long for code in stage.codes(job_id)} == {"released"}
    assert len(process.seen("completed")) == 24


def test_several_invocations_complete_a_backlog(stage, platform):
    """…each job once, although every invocation ends before the backlog does."""
    ids = stage.submit(tasks.naps, 0.25, n=24)
    for _ in range(10):
        platform.invoke(2, slots=4)
        assert "running" not in stage.states(*ids)
        if set(stage.states(*ids)) == {"completed"}:
            break
    assert set(stage.states(*ids)) == {"completed"}
    assert len(stage.notes("done")) == len(ids)


def test_a_job_that_needs_more_time_is_not_started(stage, platform):
    """The remaining time is shorter than the task's timeout: the job waits for the next invocation, with
    all its attempts.
    """
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


def test_a_drain_ends_when_the_queues_are_empty(stage):
    ids = stage.submit(tasks.naps, 0.2, n=4) + stage.submit(tasks.plain_naps, 0.2, n=3)
    worker = stage.start("--drain", "--slots", "3")
    assert worker.wait() == 0
    assert set(stage.states(*ids)) == {"completed"}


def test_a_worker_releases_jobs_that_are_unfinished_at_its_time_limit(stage):
    (job_id,) = stage.submit(tasks.rests, always=True)
    worker = stage.start("--for", "1s", "--slots", "3", "--lease", "300s")
    assert worker.wait() == 0
    assert stage.codes(job_id) == ["released"]
