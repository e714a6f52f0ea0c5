"""Real workers over HTTP, and a real server that is killed, frozen, restarted, or refuses them.

The lease is five minutes by default: a job that is recovered within a test did not wait for its end.
"""

import json
import os
import signal
import urllib.request
from urllib.parse import urlsplit

import pytest
import redis

from tests.support import misbehaving_tasks as tasks
from tests.support.http_server import serve_process
from tests.support.processes import is_alive, on_linux, until

pytest_plugins = ["tests.support.worker_processes", "tests.support.command_line"]
pytestmark = on_linux
FLAGS = ("--slots", "4", "--lease", "300s", "--grace", "300s")
QUICK = {"SUBLET_TIMEOUT": "0.3"}
SECRET = "s3cret-s3cret-s3cret"


@pytest.fixture
def api(stage):
    """The server of the stage's workers."""
    with serve_process(stage.settings) as api:
        stage.over_http(api.url)
        yield api


def again(stage, api):
    """Another server in the place of one that is gone."""
    return serve_process(stage.settings, "--port", str(urlsplit(api.url).port))


def counted(stage):
    (stats,) = stage.client.stats()
    return stats.totals["completed"]


def test_a_restart_of_the_server_loses_and_repeats_no_outcome(stage, api):
    """Outcomes are kept and settled afterwards. Jobs of a claim whose answer was lost are queued again after their lease."""
    worker = stage.hire("--slots", "4", "--lease", "2s", env=QUICK)
    ids = (
        stage.submit(tasks.naps, 0.05, n=40)
        + stage.submit(tasks.rests, stage.go)
        + stage.submit(tasks.plain_rests, stage.go)
    )
    worker.until("completed", count=8)
    api.signal(signal.SIGKILL)
    worker.hears("cannot")
    stage.say_go()
    with again(stage, api):
        stage.until_ended(*ids)
        assert set(stage.states(*ids)) == {"completed"}
        assert counted(stage) == len(ids)
        for job_id in ids:
            *before, last = stage.codes(job_id)
            assert (set(before) <= {"lease_expired"}, last) == (True, "completed")
        assert worker.hears("calls are answered again")
        assert worker.stop() == 0
    assert worker.seen("summary")[0]["completed"] == len(ids)


def test_a_frozen_server_loses_no_outcome(stage, api):
    worker = stage.hire(*FLAGS, env=QUICK)
    ids = stage.submit(tasks.rests, stage.go, n=2) + stage.submit(tasks.plain_rests, stage.go)
    stage.until_noted("began", count=3)
    api.signal(signal.SIGSTOP)
    try:
        stage.say_go()
        stage.until_noted("done", count=3)
        worker.hears("cannot")
    finally:
        api.signal(signal.SIGCONT)
    stage.until_ended(*ids, *stage.submit(tasks.quick, n=3))
    assert [stage.codes(job_id) for job_id in ids] == [["completed"]] * 3
    assert counted(stage) == 6


@pytest.mark.parametrize("how", [signal.SIGSTOP, signal.SIGKILL], ids=["silent", "gone"])
def test_a_worker_can_be_stopped_while_the_server_is_away(stage, api, how):
    """Its jobs are queued again when the leases end; the worker does not wait for the server."""
    worker = stage.hire("--slots", "4", "--lease", "300s", "--grace", "500ms", env=QUICK)
    stage.submit(tasks.rests)
    stage.until_noted("began")
    api.signal(how)
    assert worker.stop() in (0, 3)
    assert stage.notes("told")
    assert "Traceback" not in "".join(worker.words)


def test_a_worker_killed_while_it_waits_loses_no_job(stage, api):
    """Its long poll ends with its connection: the next job is not given to a dead worker."""
    workers = [stage.hire(*FLAGS) for _ in range(3)]
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)
    until(lambda: not any(is_alive(worker.pid) for worker in workers))
    ids = stage.submit(tasks.quick, n=5)
    stage.hire(*FLAGS).until("completed", count=5)
    assert [stage.codes(job_id)[-1] for job_id in ids] == ["completed"] * 5


def test_the_server_stops_gracefully_although_a_worker_waits(stage, api):
    """Its long polls are answered at once, and it exits; the worker finds the next server."""
    worker = stage.hire(*FLAGS, env=QUICK)
    worker.until("completed", id=stage.submit(tasks.quick)[0])
    assert api.stop() == 0
    worker.hears("cannot")
    with again(stage, api):
        worker.until("completed", id=stage.submit(tasks.quick)[0])
        assert worker.stop() == 0


def test_a_token_from_a_file_is_accepted_and_not_shown(stage, tmp_path):
    (tmp_path / "token").write_text(f"{SECRET}\n")
    with serve_process(stage.settings, tokens=f"w:work:{SECRET}") as api:
        stage.over_http(api.url)
        worker = stage.hire(*FLAGS, env={"SUBLET_TOKEN_FILE": str(tmp_path / "token")})
        (job_id,) = stage.submit(tasks.plain_quick)
        worker.until("completed", id=job_id)
        (card,) = stage.json("workers")
        assert (card["about"]["principal"], card["about"]["pid"]) == ("w", worker.pid)
        assert worker.stop() == 0
        assert SECRET not in str(worker) + api.output() + str(card)


def test_a_worker_waits_while_its_token_lacks_the_role(stage, tmp_path):
    """Outcomes are kept and settled afterwards, as during an outage."""
    tokens = tmp_path / "tokens"
    tokens.write_text(f"w:work:{SECRET}\n")
    with serve_process(stage.settings, "--tokens-file", str(tokens)) as api:
        stage.over_http(api.url)
        worker = stage.hire(*FLAGS, env={"SUBLET_TOKEN": SECRET})
        ids = stage.submit(tasks.rests, stage.go)
        stage.until_noted("began")
        tokens.write_text(f"w:submit:{SECRET}\n")
        worker.hears("cannot", "refuses this token for this request")
        stage.say_go()
        stage.until_noted("done")
        tokens.write_text(f"w:work:{SECRET}\n")
        stage.until_ended(*ids, *stage.submit(tasks.quick, n=3))
        assert [stage.codes(job_id) for job_id in ids] == [["completed"]]
        worker.hears("calls are answered again")
        assert worker.stop() == 0
        assert stage.json("workers") == []


def test_a_worker_with_a_token_limited_to_queues_works_and_takes_over_from_its_predecessor(stage, tmp_path):
    with serve_process(stage.settings, tokens=f"w:work@default:{SECRET}") as api:
        stage.over_http(api.url)
        token = {"SUBLET_TOKEN": SECRET, "SUBLET_WORKER_ID": "pod-0"}
        worker = stage.hire(*FLAGS, "--name", "mill", env=token)
        (job_id,) = stage.submit(tasks.rests, stage.go)
        stage.until_noted("began")
        (card,) = stage.json("workers")
        assert (card["name"], card["worker_id"], card["jobs"]) == ("w:mill", "w:pod-0", [job_id])
        os.kill(worker.pid, signal.SIGKILL)
        stage.say_go()
        worker = stage.hire(*FLAGS, "--name", "mill", env=token)
        worker.until("completed", id=job_id)
        assert stage.codes(job_id) == ["crashed", "completed"]
        assert worker.stop() == 0
        refused = stage.start(*FLAGS, "--queues", "default,other", "--wait", "0", env=token)
        refused.hears("limited to the queues default, which do not include other")
        assert refused.process.wait(60) != 0


def test_a_worker_starts_after_a_flush_of_the_apis_data(stage, api):
    """Its first heartbeat creates the namespace again, as a claim does."""
    body = json.dumps({"task": "quick", "payload": {}}).encode()
    asked = urllib.request.Request(f"{api.url}/jobs", body, {"Content-Type": "application/json"})
    assert urllib.request.urlopen(asked, timeout=10).status == 201
    with redis.Redis.from_url(stage.settings.redis_url) as raw:
        assert raw.delete(*raw.keys(f"{{{stage.settings.namespace}:*"))
    worker = stage.hire(*FLAGS)
    until(lambda: stage.json("workers"), str(worker))
    worker.until("completed", id=stage.submit(tasks.quick)[0])
    assert worker.stop() == 0


# ── the first message ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_worker_that_cannot_start_prints_the_reason_on_one_line(shell, stage):
    with serve_process(stage.settings, tokens=f"w:work:{SECRET} r:read:{SECRET}2") as api:
        work, there = (
            ("work", "tasks:app", "--drain"),
            {"SUBLET_SOURCE": api.url, "SUBLET_REDIS_URL": "redis://127.0.0.1:1"},
        )
        assert "requires a token" in shell.no(1, *work, **there)
        assert "refuses this token" in shell.no(1, *work, **there, SUBLET_TOKEN=f"{SECRET}3")
        done = shell.run(*work, **there, SUBLET_TOKEN=SECRET)
        assert (done.returncode, done.stderr) == (0, "")
        assert SECRET not in done.stdout
    assert "no answer from the API" in shell.no(3, *work, "--wait", "0", SUBLET_SOURCE="http://127.0.0.1:1")


def test_flags_take_precedence_over_the_environment(shell):
    namespace = shell.env.pop("SUBLET_NAMESPACE")
    done = shell.run(
        "work", "tasks:app", "--drain", "--namespace", namespace, SUBLET_SOURCE="http://127.0.0.1:1"
    )
    assert done.returncode == 0
    both = ("--source", "http://127.0.0.1:1", "--namespace", namespace)
    assert "leave --redis-url and --namespace out" in shell.no(2, "work", "tasks:app", *both)
    assert "http://127.0.0.1:2" in shell.no(
        3, "work", "tasks:app", "--wait", "0", "--source", "http://127.0.0.1:2", SUBLET_SOURCE="http://no"
    )
