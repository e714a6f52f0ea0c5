"""Jobs that wait for the results of other jobs lend their places; if all places wait, the worker says so."""

import sys

import pytest

from tests.support import waiting_tasks as tasks
from tests.support.processes import on_linux, until

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = on_linux
KINDS = pytest.mark.parametrize("kind", ["process", "thread", "loop"])


def hire(stage, *words, slots=2):
    worker = stage.run(
        [sys.executable, "-m", "sublet", "work", f"{tasks.__name__}:app", f"--slots={slots}", *words]
    )
    stage.hired.append(worker)
    return worker


def parent(kind):
    return getattr(tasks, f"{kind}_parent")


@KINDS
def test_parents_on_all_places_get_the_results_of_their_children(stage, kind):
    ids = stage.submit(parent(kind), n=2)
    worker = hire(stage, "--processes", "2")
    stage.until_ended(*ids)
    assert [stage.job(job_id).result for job_id in ids] == [2, 2]
    worker.until("completed", count=4)
    assert not worker.seen("starved")


@KINDS
def test_a_worker_whose_places_all_wait_says_so_and_what_to_do(stage, kind):
    """Each of three generations waits for the next: the worker has places for two."""
    ids = stage.submit(parent(kind), depth=3, n=1 if kind == "process" else 2)
    worker = hire(stage, "--processes", "1")
    (event,) = worker.until("starved")
    places = "2 child processes (1 of them lent)" if kind == "process" else "4 slots (2 of them lent)"
    assert f"all {places} wait for the results of other jobs" in event["detail"]
    assert "higher priority" in event["detail"]
    until(lambda: any("every slot, or child process" in line for line in stage.job(ids[0]).log), "the log")
    if kind == "process":
        assert any("a line before" in line for line in stage.job(ids[0]).log)
    about = until(
        lambda: [each["about"] for each in stage.json("workers") if each["about"].get("starved")], "workers"
    )
    assert about[0]["waiting"] == (2 if kind == "process" else 4)
    hire(stage, "--processes", "2")
    stage.until_ended(*ids)
    assert {stage.job(job_id).result for job_id in ids} == {4}
    assert len(worker.seen("starved")) == 1


@pytest.mark.parametrize("way", ["gather", "as_completed"])
@pytest.mark.parametrize("kind", ["process", "thread", "loop", "process_loop"])
def test_a_parent_on_the_only_place_gathers_its_children(stage, kind, way):
    (job_id,) = stage.submit(getattr(tasks, f"{kind}_gather"), way=way)
    worker = hire(stage, "--processes", "1", slots=1)
    stage.until_ended(job_id)
    assert stage.job(job_id).result == 2
    worker.until("completed", count=3)
    assert worker.seen("completed")[-1]["id"] == job_id


def test_a_draining_worker_runs_the_job_that_another_waits_for(stage):
    (job_id,) = stage.submit(tasks.process_parent)
    worker = hire(stage, "--processes", "2", "--drain")
    assert worker.wait() == 0
    assert stage.job(job_id).result == 2


def test_a_draining_worker_claims_a_job_that_falls_due_while_another_waits_for_it(stage):
    (job_id,) = stage.submit(tasks.later_parent)
    worker = hire(stage, "--drain")
    assert worker.wait() == 0
    assert stage.job(job_id).result == 2


def test_workers_and_doctor_name_a_starved_worker(stage):
    ids = stage.submit(tasks.process_parent, depth=2)
    worker = hire(stage, "--processes", "1")
    worker.until("starved")
    finding = until(
        lambda: [
            each
            for each in stage.json("doctor", codes=(0, 1))["checks"]
            if "wait for the results" in each["found"]
        ],
        "a finding",
    )
    assert finding[0]["level"] == "warn"
    assert finding[0]["subject"] == "workers"
    assert "start another worker" in finding[0]["advice"]
    hire(stage, "--processes", "1")
    stage.until_ended(*ids)
