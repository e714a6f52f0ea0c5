"""The attempts of a job after its worker died, froze, was stopped or was late; and the event stream across
killed servers."""

import asyncio
import json
import threading
import time
import urllib.error
import urllib.request
import uuid

import aiohttp
import pytest
import redis

from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.protocol import keys
from tests.support import misbehaving_tasks as tasks
from tests.support.http_server import serve_process
from tests.support.processes import SECONDS, on_linux, until
from tests.support.worker_processes import KIND, Stage

pytestmark = on_linux


class ServedStage:
    """A stage with a server of its own."""

    def __init__(self, stage, url):
        self.stage, self.url = stage, url

    def ask(self, method, path, body=None):
        """The status and body of a response."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def job(self, job_id):
        status, job = self.ask("GET", f"/jobs/{job_id}")
        assert status == 200
        return job

    def begun(self, name, task):
        """A job that this worker has started and whose lease it has extended."""
        (job_id,) = self.stage.submit(task)
        self.stage.until_noted("began", job_id)
        until(lambda: (job := self.job(job_id))["heartbeat_at"] > job["claimed_at"], "a heartbeat")
        job = self.job(job_id)
        assert job["worker"] == name
        assert job["submitted_at"] <= job["claimed_at"] < job["heartbeat_at"] < job["lease_expires_at"]
        assert (job["state"], job["attempt"], job["attempts"]) == ("running", 1, [])
        return job

    def ended(self, before, code, state):
        """The job after its first attempt ended with this code."""
        job = until(lambda: (now := self.job(before["id"]))["attempts"] and now, f"the end of {before}")
        attempt = job["attempts"][0]
        assert (attempt["number"], attempt["worker"], attempt["code"]) == (1, before["worker"], code)
        assert attempt["claimed_at"] == before["claimed_at"] < attempt["ended_at"]
        assert job["state"] == state
        assert job["lease_expires_at"] is job["heartbeat_at"] is job["worker"] is None
        return job


@pytest.fixture(scope="module")
def served(server_url, tmp_path_factory):
    stage = Stage(server_url(KIND), tmp_path_factory.mktemp("served"))
    with serve_process(stage.settings) as server:
        yield ServedStage(stage, server.url)
    stage.close()


FLAGS = ("--slots", "2", "--grace", "0.2s")


def test_a_killed_worker_is_an_attempt_with_an_expired_lease(served):
    worker = served.stage.hire(*FLAGS, "--name", "killed", "--lease", "2s")
    job = served.begun("killed", tasks.rests)
    worker.kill()
    until(
        lambda: served.ask("POST", "/tick")[1]["reaped"] or served.job(job["id"])["attempts"],
        "the end of the lease",
    )
    after = served.ended(job, "lease_expired", "queued")
    assert after["attempts"][0]["ended_at"] >= job["lease_expires_at"]
    assert after["tries_left"] == 2
    served.ask("POST", f"/jobs/{job['id']}/cancel", {})


def test_a_timeout_is_an_attempt_that_timed_out(served):
    worker = served.stage.hire(*FLAGS, "--name", "slow", "--lease", "3s")
    (job_id,) = served.stage.submit(tasks.rests.options(timeout=0.5, max_attempts=1))
    job = until(lambda: (now := served.job(job_id))["claimed_at"] and now, "the attempt")
    after = served.ended(job, "timed_out", "dead")
    assert after["finished_at"] >= after["attempts"][0]["ended_at"]
    assert after["attempts"][0]["message"]
    worker.stop()


def test_a_cancelled_running_job_has_a_cancelled_attempt(served):
    worker = served.stage.hire(*FLAGS, "--name", "called-off", "--lease", "3s")
    job = served.begun("called-off", tasks.rests)
    assert served.ask("POST", f"/jobs/{job['id']}/cancel", {}) == (202, {"id": job["id"], "state": "running"})
    now = served.job(job["id"])
    assert now["state"] == "cancelled" or now["cancel_requested_at"] > job["claimed_at"]
    served.ended(job, "cancelled", "cancelled")
    worker.stop()


def test_a_stopped_worker_is_a_released_attempt(served):
    worker = served.stage.hire(*FLAGS, "--name", "stopped", "--lease", "3s")
    job = served.begun("stopped", tasks.rests)
    worker.hurry()
    after = served.ended(job, "released", "queued")
    assert (after["tries_left"], after["attempts"][0]["message"]) == (3, "the worker stopped")
    served.ask("POST", f"/jobs/{job['id']}/cancel", {})


def test_a_reconciled_worker_is_a_crashed_attempt(served):
    worker = served.stage.hire(*FLAGS, "--name", "reconciled", "--lease", "60s")
    (job_id,) = served.stage.submit(tasks.rests)
    served.stage.until_noted("began", job_id)
    job = served.job(job_id)
    worker.kill()
    (known,) = [one for one in served.ask("GET", "/workers")[1]["workers"] if one["name"] == job["worker"]]
    assert (known["jobs"], known["leases"]) == ([job_id], 1)
    path = f"/workers/{known['name']}/reconcile"
    assert served.ask("POST", path, {"life": known["life"]}) == (200, {"ended": 1})
    assert served.ask("POST", path, {"life": known["life"]}) == (200, {"ended": 0})
    after = served.ended(job, "crashed", "queued")
    assert after["attempts"][0]["message"] == "its worker was gone or replaced"
    served.ask("POST", f"/jobs/{job_id}/cancel", {})


def test_refused_calls_of_an_expired_attempt_leave_no_trace(served):
    """The expired attempt stays in the history unchanged; late calls only get an error."""
    served.ask("POST", "/jobs", {"task": "t", "queue": "ghosts"})
    wish = {"queues": ["ghosts"], "lease": 0.1, "worker": "ghost"}
    (lease,) = served.ask("POST", "/jobs/claim", wish)[1]["jobs"]
    path = f"/jobs/{lease['id']}"
    until(lambda: served.ask("POST", "/tick")[1]["reaped"], "the end of the lease")
    (again,) = served.ask("POST", "/jobs/claim", wish | {"worker": "other", "lease": 30})[1]["jobs"]
    assert (again["attempt"], again["recovered"]) == (2, "lease_expired")
    before = served.job(lease["id"])
    for verb, more in (
        ("complete", {"result": 1}),
        ("fail", {}),
        ("release", {}),
        ("heartbeat", {}),
        ("note", {"log": "x"}),
    ):
        status, problem = served.ask("POST", f"{path}/{verb}", {"token": lease["token"], **more})
        assert (status, problem["type"]) == (409, "urn:sublet:problem:lease-lost")
    assert served.job(lease["id"]) == before
    assert [(a["worker"], a["code"]) for a in before["attempts"]] == [("ghost", "lease_expired")]
    assert served.ask("POST", f"{path}/complete", {"token": again["token"], "result": 2})[0] == 200
    after = served.job(lease["id"])
    assert (after["result"], [(a["worker"], a["code"]) for a in after["attempts"]]) == (
        2,
        [("ghost", "lease_expired"), ("other", "completed")],
    )


# the event stream


class Browser:
    """Reads a stream line by line, as an EventSource does, and keeps its events and the last id."""

    def __init__(self):
        self.events, self.last_id = [], ""

    async def read(self, session, url, enough):
        """Read until there is enough, or the stream breaks or ends. Returns whether the client ended the read."""
        if enough():
            return True  # no further event may come
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": self.last_id} if self.last_id else {})
        try:
            async with session.get(f"{url}/events", params={"after": "0"}, headers=headers) as answer:
                assert (answer.status, answer.content_type) == (200, "text/event-stream")
                name = data = ""
                async for line in answer.content:
                    field, _, value = line.decode().rstrip("\n").partition(": ")
                    if field == "id":
                        self.last_id = value
                    elif field == "event":
                        name = value
                    elif field == "data":
                        data = value
                    elif not field and data:
                        self.events.append((self.last_id, name, json.loads(data)))
                        name = data = ""
                        if enough():
                            return True
        except aiohttp.ClientError:
            pass
        return False


@pytest.fixture
def settings(server_url):
    return Settings(redis_url=server_url("redis"), namespace=f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def busy(settings):
    """Submit jobs one by one in a thread until stopped; yields their ids."""
    over, ids = threading.Event(), []

    def work():
        with SyncClient(settings) as client:
            while not over.is_set() and len(ids) < 5000:
                ids.append(client.submit("t").id)
                time.sleep(0.002)

    thread = threading.Thread(target=work)
    thread.start()
    yield ids, over, thread
    over.set()
    thread.join(SECONDS)


async def test_a_broken_event_stream_continues_at_another_server(settings, busy):
    """Every event is received once, although servers are killed and the client disconnects."""
    ids, over, thread = busy
    browser = Browser()
    with serve_process(settings) as first, serve_process(settings) as second:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(SECONDS)) as session:
            listening = asyncio.create_task(browser.read(session, first.url, lambda: False))
            await _until(lambda: len(browser.events) > 50)
            first.process.kill()
            assert not await listening
            there = len(browser.events)
            await _until(lambda: len(ids) > there + 50)
            assert await browser.read(session, second.url, lambda: len(browser.events) >= there + 100)
            over.set()
            await _until(lambda: not thread.is_alive())
            with redis.Redis.from_url(settings.redis_url) as raw:
                entries = [
                    entry.decode() for entry, _ in raw.xrange(keys.events(keys.base(settings.namespace)))
                ]
            assert await browser.read(session, second.url, lambda: browser.last_id == entries[-1])
            assert [id_ for id_, _, _ in browser.events] == entries
            assert [job for _, _, data in browser.events for job in data["jobs"]] == ids
            assert len(ids) < 5000
            ending = asyncio.create_task(browser.read(session, second.url, lambda: False))
            await asyncio.sleep(0.1)
            began = time.monotonic()
            second.signal()
            assert not await ending
            assert time.monotonic() - began < 5  # less than the eight seconds of grace for requests in flight


async def _until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.01)
