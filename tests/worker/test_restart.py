"""Several workers on one machine, one of which dies, freezes or restarts: the jobs that are recovered.

The lease is five minutes, so a job that is recovered within a test did not wait for it.
"""

import json
import os
import signal
import subprocess
import sys
import uuid

import pytest
import redis

from sublet.model import Card
from sublet.protocol import keys, verbs
from sublet.worker import host_identity
from tests.support import misbehaving_tasks as tasks
from tests.support.blocked_clients import blocked
from tests.support.processes import on_linux, until

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = on_linux
OVER_BOTH = pytest.mark.parametrize("through", ["redis", "http"])
FLAGS = ("--slots", "2", "--lease", "300s", "--grace", "300s")


@pytest.mark.parametrize(
    ("name", "through"),
    [((), "redis"), (("--name", "one"), "redis"), ((), "http")],
    ids=["a new name", "the same name", "over http"],
)
def test_a_restarted_worker_recovers_only_the_jobs_of_its_dead_predecessor(stage, name):
    first = stage.hire(*FLAGS, *name)
    ids = stage.submit(tasks.rests) + stage.submit(tasks.plain_rests)
    stage.until_noted("began", count=2)
    sibling = stage.hire(*FLAGS)
    theirs = stage.submit(tasks.rests, stage.go) + stage.submit(tasks.plain_rests, stage.go)
    sibling.until("started", count=2)
    first.kill()
    second = stage.hire(*FLAGS, *name)
    for job_id in ids:
        second.until("completed", id=job_id)
        assert stage.codes(job_id) == ["crashed", "completed"]
    stage.say_go()
    for job_id in theirs:
        sibling.until("completed", id=job_id)
        assert stage.codes(job_id) == ["completed"]
    assert not sibling.seen("lost") + sibling.seen("refused")


def test_a_crashed_worker_is_a_predecessor(stage):
    """By `os._exit` in a task: the process is a zombie, and its children are gone."""
    first = stage.hire(*FLAGS)
    (job_id,) = stage.submit(tasks.plain_rests)
    stage.until_noted("began")
    stage.submit(tasks.ends_its_worker.options(max_attempts=1), stage.say_go())
    assert first.wait() == 7
    stage.hire(*FLAGS).until("completed", id=job_id)


def test_a_worker_id_is_taken_over_even_from_a_frozen_holder(stage):
    """Like a pod of a StatefulSet that starts elsewhere while the node of the old one does not answer."""
    identity = {"SUBLET_WORKER_ID": "a"}
    first = stage.hire("--slots", "2", "--lease", "6s", env=identity)
    (job_id,) = stage.submit(tasks.rests)
    stage.until_noted("began")
    first.send(signal.SIGSTOP)
    second = stage.hire(*FLAGS, env=identity)
    second.until("completed", id=job_id)
    first.send(signal.SIGCONT)
    first.until("lost", id=job_id)
    assert stage.codes(job_id) == ["crashed", "completed"]


@OVER_BOTH
def test_a_live_holder_whose_identity_was_taken_over_does_not_claim_its_job_back(stage):
    identity = {"SUBLET_WORKER_ID": "a"}
    first = stage.hire(*FLAGS, env=identity)
    (job_id,) = stage.submit(tasks.rests)
    stage.until_noted("began")
    stage.hire(*FLAGS, "--queues", "other", env=identity)  # so only the first one could claim it
    first.until("draining")
    first.until("lost", id=job_id)
    assert first.wait() == 0
    assert (stage.codes(job_id), stage.states(job_id)) == (["crashed"], ["queued"])
    assert [line for line in first.words if "this worker drains" in line]


def test_a_worker_with_another_identity_takes_over_nothing(stage):
    first = stage.hire(*FLAGS, env={"SUBLET_WORKER_ID": "a"})
    (job_id,) = stage.submit(tasks.rests, stage.go)
    stage.until_noted("began")
    first.send(signal.SIGSTOP)
    with redis.Redis.from_url(stage.settings.redis_url, decode_responses=True) as raw:
        until(lambda: not blocked(raw), "the end of the read in which it would still be given a job")
    second = stage.hire(*FLAGS, env={"SUBLET_WORKER_ID": "b"})
    second.until("completed", id=stage.submit(tasks.quick)[0])
    stage.say_go()
    first.send(signal.SIGCONT)
    first.until("completed", id=job_id)


def test_workers_are_listed_until_they_leave(stage):
    worker = stage.hire(*FLAGS, "--name", "lister")
    (job_id,) = stage.submit(tasks.rests, stage.go)
    worker.until("started", id=job_id)
    (card,) = stage.json("workers")
    assert (card["name"], card["leases"], card["jobs"]) == ("lister", 1, [job_id])
    assert (card["about"]["pid"], card["about"]["host"]) == (worker.pid, os.uname().nodename)
    output = subprocess.run(
        [sys.executable, "-m", "sublet", "workers"],
        env=stage.env,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    ).stdout
    for word in ("lister", str(worker.pid), os.uname().nodename):
        assert word in output
    stage.say_go()
    stage.until_ended(job_id)
    assert worker.stop() == 0
    assert stage.json("workers") == []


@OVER_BOTH
def test_a_drained_worker_finishes_its_jobs_and_exits(stage):
    worker = stage.hire(
        "--slots", "2", "--lease", "3s", "--name", "drained"
    )  # noticed at a heartbeat: send these often
    (job_id,) = stage.submit(tasks.rests, stage.go)
    worker.until("started", id=job_id)
    subprocess.run(
        [sys.executable, "-m", "sublet", "workers", "drain", "drained"],
        env=stage.env,
        capture_output=True,
        timeout=30,
        check=True,
    )
    worker.until("draining")
    (later,) = stage.submit(tasks.quick)
    stage.say_go()
    assert worker.wait() == 0
    assert stage.codes(job_id) == ["completed"]
    assert stage.states(later) == ["queued"]


@pytest.mark.parametrize("recycled", [True, False], ids=["another process by now", "that very process"])
def test_a_pid_alone_does_not_show_that_a_worker_lives(stage, recycled):
    """A worker of this machine whose pid belongs to a living process: a foreign one, unless it started when the worker did."""
    (job_id,) = stage.submit(tasks.rests)
    base = keys.base(stage.settings.namespace)
    run = stage.client.store.transport.run
    about = host_identity.identity()  # of this very process, which is alive
    about["started"] -= 100 * recycled
    run(verbs.enlist(base, Card("gone", "life", "", json.dumps(about).encode())))
    run(verbs.claim(base, claim_id=uuid.uuid4().hex, worker="gone", lease=300, n=1, queues=["default"]))
    worker = stage.hire(*FLAGS)
    (after,) = stage.submit(tasks.quick)
    worker.until("completed", id=after)
    if recycled:
        worker.until("completed", id=job_id)
        assert stage.codes(job_id) == ["crashed", "completed"]
    else:
        assert stage.states(job_id) == ["running"]
        assert stage.job(job_id).worker == "gone"
