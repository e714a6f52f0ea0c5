"""SIGTERM and SIGINT: how a worker stops when idle, busy, starting, without Redis, or with its whole terminal."""

import signal
import time

import pytest

from tests.support import misbehaving_tasks as tasks
from tests.support.processes import is_alive, on_linux, until

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = on_linux
OVER_BOTH = pytest.mark.parametrize("through", ["redis", "http"])
PATIENT = ("--slots", "4", "--lease", "300s", "--grace", "300s")
HASTY = ("--slots", "4", "--lease", "300s", "--grace", "500ms")
BOTH = [tasks.rests, tasks.plain_rests]


def last_heartbeat_of(job):
    return job.heartbeat_at or job.claimed_at


@OVER_BOTH
def test_an_idle_worker_stops_at_once(stage):
    """…whatever its grace, on either signal, with an idle child or without."""
    workers = {number: stage.start(*PATIENT) for number in (signal.SIGTERM, signal.SIGINT)}
    for number, worker in workers.items():
        worker.until("ready")
        stage.until_ended(*stage.submit(tasks.plain_quick))
        assert worker.stop(number) == 0
        assert len(worker.seen("summary")) == 1
        assert worker.words == []


@pytest.mark.parametrize("task", BOTH, ids=["async", "plain"])
def test_jobs_that_end_within_the_grace_are_completed_and_no_other_is_started(stage, task):
    worker = stage.hire(*PATIENT)
    (job_id,) = stage.submit(task, stage.go)
    stage.until_noted("began")
    worker.send(signal.SIGTERM)
    worker.until("stopping")
    (later,) = stage.submit(task, stage.go)
    stage.say_go()
    assert worker.wait() == 0
    assert stage.states(job_id, later) == ["completed", "queued"]
    assert stage.codes(job_id) == ["completed"]
    assert stage.codes(later) in ([], ["released"]), "a claim that had been sent before gives it back"
    assert stage.notes("began", later) == []


def test_leases_are_kept_during_a_long_grace(stage):
    """Otherwise another worker, which is ready, would run the job again."""
    worker = stage.hire("--slots", "2", "--lease", "1s", "--grace", "300s")
    (job_id,) = stage.submit(tasks.rests, stage.go)
    stage.until_noted("began")
    stage.hire("--slots", "2", "--lease", "1s")
    worker.send(signal.SIGTERM)
    worker.until("stopping")
    stopped_at = last_heartbeat_of(stage.job(job_id))
    until(
        lambda: (last_heartbeat_of(stage.job(job_id)) - stopped_at).total_seconds() > 1.5,
        "heartbeats for more than a lease",
    )
    stage.say_go()
    assert worker.wait() == 0
    assert stage.codes(job_id) == ["completed"]


@OVER_BOTH
@pytest.mark.parametrize("hurry", [False, True], ids=["grace over", "second signal"])
def test_jobs_that_do_not_end_in_time_are_released_without_counting_the_attempt(stage, hurry):
    """The async task is cancelled; a plain function's child is killed."""
    worker = stage.hire(*(PATIENT if hurry else HASTY))
    ids = stage.submit(tasks.rests) + stage.submit(tasks.plain_rests)
    pids = {note.id: note.pid for note in stage.until_noted("began", count=2)}
    assert (worker.hurry() if hurry else worker.stop()) == 0
    assert len(worker.seen("released")) == 2
    for job_id in ids:
        job = stage.job(job_id)
        assert (job.state, job.tries_left, stage.codes(job_id)) == ("queued", job.max_attempts, ["released"])
    assert stage.notes("told", ids[0])
    until(lambda: not is_alive(pids[ids[1]]), "the end of the child")
    assert worker.seen("summary")[0]["released"] == 2


@OVER_BOTH
def test_no_job_is_lost_by_a_signal_at_any_moment_of_the_start(stage):
    """Before Python has installed its handler the signal ends the process; afterwards it stops the worker.
    No lease remains in either case.
    """
    ids = stage.submit(tasks.rests, always=True, n=6)
    workers = []
    for i in range(6):
        workers.append(stage.start(*HASTY))
        time.sleep(0.1 * i)  # no condition here: the moment is random
        workers[i].send(signal.SIGTERM)
    codes = [worker.wait() for worker in workers]
    assert set(codes) <= {0, -signal.SIGTERM}
    assert [worker.words for worker in workers] == [[]] * 6
    assert stage.states(*ids) == ["queued"] * 6
    assert {stage.job(job_id).tries_left for job_id in ids} <= {None, 3}


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["silent", "gone"])
def test_a_worker_can_be_stopped_while_redis_is_away(private, how):
    """Its jobs are queued again when the leases end; the worker does not wait for Redis."""
    worker = private.hire(*HASTY, env={"SUBLET_TIMEOUT": "0.3"})
    (job_id,) = private.submit(tasks.rests)
    private.until_noted("began")
    private.signal_server(how)
    worker.send(signal.SIGTERM)
    try:
        code = worker.wait(14.5)  # a blocking read takes 15 s here: it must not wait for one
    finally:
        private.signal_server(signal.SIGCONT)
    assert code in (0, 3)
    assert private.notes("told", job_id)
    assert "Traceback" not in "".join(worker.words)


def test_ctrl_c_reaches_the_children_but_does_not_end_them(stage):
    """A terminal signals the whole process group; the worker decides how a running job ends."""
    worker = stage.hire(*PATIENT)
    ids = stage.submit(tasks.rests, stage.go) + stage.submit(tasks.plain_rests, stage.go)
    stage.until_noted("began", count=2)
    worker.send(signal.SIGINT, group=True)
    worker.until("stopping")
    stage.say_go()
    assert worker.wait() == 0
    assert [stage.codes(job_id) for job_id in ids] == [["completed"]] * 2


def test_a_closed_terminal_stops_the_worker_gracefully(stage):
    worker = stage.hire(*HASTY)
    (job_id,) = stage.submit(tasks.rests)
    stage.until_noted("began")
    assert worker.stop(signal.SIGHUP) == 0
    assert stage.codes(job_id) == ["released"]


def test_a_worker_whose_output_is_closed_releases_its_jobs(stage):
    worker = stage.hire(*HASTY)
    (job_id,) = stage.submit(tasks.rests)
    stage.until_noted("began")
    worker.leave()
    stage.submit(tasks.quick)
    until(lambda: not worker.readers[0].is_alive(), "its reader has left")
    stage.submit(tasks.quick)  # it may have reported the first one before
    assert worker.wait() == 141
    assert stage.states(job_id) == ["queued"]
    assert stage.codes(job_id) == ["released"]
