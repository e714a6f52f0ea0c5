"""What HTTP tells of a job whose worker died, froze, was stopped or was too late; and of every move, whatever dies."""

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

from sublet.client.client import SyncClient
from sublet.connection.settings import Settings
from sublet.protocol import keys
from tests.support import misbehaving_tasks as tasks
from tests.support.http_server import serve_process
from tests.support.processes import SECONDS, on_linux, until
from tests.support.worker_processes import KIND, Stage

pytestmark = on_linux


class Told:
    """A stage, and what a server of its own tells of it."""

    def __init__(self, stage, url):
        self.stage, self.url = stage, url

    def ask(self, method, path, body=None):
        """Status and body of an answer."""
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
        """A job that the worker of this name has begun, and whose lease it has extended since."""
        (job_id,) = self.stage.submit(task)
        self.stage.until_noted("began", job_id)
        until(lambda: self.job(job_id)["heartbeat_at"], "a heartbeat")
        job = self.job(job_id)
        assert job["worker"] == name
        assert job["submitted_at"] <= job["claimed_at"] < job["heartbeat_at"] < job["lease_expires_at"]
        assert (job["state"], job["attempt"], job["attempts"]) == ("running", 1, [])
        return job

    def ended(self, before, code, state):
        """The job after its first attempt, which ended so."""
        job = until(lambda: (now := self.job(before["id"]))["attempts"] and now, f"the end of {before}")
        attempt = job["attempts"][0]
        assert (attempt["number"], attempt["worker"], attempt["code"]) == (1, before["worker"], code)
        assert attempt["claimed_at"] == before["claimed_at"] < attempt["ended_at"]
        assert job["state"] == state
        assert job["lease_expires_at"] is job["heartbeat_at"] is job["worker"] is None
        return job


@pytest.fixture(scope="module")
def told(server_url, tmp_path_factory):
    stage = Stage(server_url(KIND), tmp_path_factory.mktemp("told"))
    with serve_process(stage.settings) as server:
        yield Told(stage, server.url)
    stage.close()


FLAGS = ("--slots", "2", "--grace", "0.2s")


def test_a_job_tells_of_a_worker_that_was_killed_and_of_the_end_of_its_lease(told):
    worker = told.stage.hire(*FLAGS, "--name", "killed", "--lease", "2s")
    job = told.begun("killed", tasks.rests)
    worker.kill()
    until(
        lambda: told.ask("POST", "/tick")[1]["reaped"] or told.job(job["id"])["attempts"],
        "the end of the lease",
    )
    after = told.ended(job, "lease_expired", "queued")
    assert after["attempts"][0]["ended_at"] >= job["lease_expires_at"]
    assert after["tries_left"] == 2
    told.ask("POST", f"/jobs/{job['id']}/cancel", {})


def test_a_job_tells_of_its_timeout(told):
    worker = told.stage.hire(*FLAGS, "--name", "slow", "--lease", "3s")
    (job_id,) = told.stage.submit(tasks.rests.options(timeout=0.5, max_attempts=1))
    job = until(lambda: (now := told.job(job_id))["claimed_at"] and now, "the attempt")
    after = told.ended(job, "timed_out", "dead")
    assert after["finished_at"] >= after["attempts"][0]["ended_at"]
    assert after["attempts"][0]["message"]
    worker.stop()


def test_a_job_tells_that_it_was_called_off_while_it_ran(told):
    worker = told.stage.hire(*FLAGS, "--name", "called-off", "--lease", "3s")
    job = told.begun("called-off", tasks.rests)
    assert told.ask("POST", f"/jobs/{job['id']}/cancel", {}) == (202, {"id": job["id"], "state": "running"})
    now = told.job(job["id"])
    assert now["state"] == "cancelled" or now["cancel_requested_at"] > job["claimed_at"]
    told.ended(job, "cancelled", "cancelled")
    worker.stop()


def test_a_job_tells_of_a_worker_that_was_stopped_and_gave_it_back(told):
    worker = told.stage.hire(*FLAGS, "--name", "stopped", "--lease", "3s")
    job = told.begun("stopped", tasks.rests)
    worker.hurry()
    after = told.ended(job, "released", "queued")
    assert (after["tries_left"], after["attempts"][0]["message"]) == (3, "the worker stopped")
    told.ask("POST", f"/jobs/{job['id']}/cancel", {})


def test_a_job_tells_of_a_worker_that_was_reconciled_away(told):
    worker = told.stage.hire(*FLAGS, "--name", "reconciled", "--lease", "60s")
    (job_id,) = told.stage.submit(tasks.rests)
    told.stage.until_noted("began", job_id)
    job = told.job(job_id)
    worker.kill()
    (known,) = [one for one in told.ask("GET", "/workers")[1]["workers"] if one["name"] == job["worker"]]
    assert (known["jobs"], known["leases"]) == ([job_id], 1)
    path = f"/workers/{known['name']}/reconcile"
    assert told.ask("POST", path, {"life": known["life"]}) == (200, {"ended": 1})
    assert told.ask("POST", path, {"life": known["life"]}) == (200, {"ended": 0})
    after = told.ended(job, "crashed", "queued")
    assert after["attempts"][0]["message"] == "its worker was gone"
    told.ask("POST", f"/jobs/{job_id}/cancel", {})


def test_what_a_ghost_is_refused_changes_nothing_and_leaves_no_trace(told):
    """The attempt that lost its lease is in the story as what it was; what it said too late is told to it alone."""
    told.ask("POST", "/jobs", {"task": "t", "queue": "ghosts"})
    wish = {"queues": ["ghosts"], "lease": 0.1, "worker": "ghost"}
    (lease,) = told.ask("POST", "/jobs/claim", wish)[1]["jobs"]
    path = f"/jobs/{lease['id']}"
    until(lambda: told.ask("POST", "/tick")[1]["reaped"], "the end of the lease")
    (again,) = told.ask("POST", "/jobs/claim", wish | {"worker": "other", "lease": 30})[1]["jobs"]
    assert (again["attempt"], again["recovered"]) == (2, "lease_expired")
    before = told.job(lease["id"])
    for verb, more in (
        ("complete", {"result": 1}),
        ("fail", {}),
        ("release", {}),
        ("heartbeat", {}),
        ("note", {"log": "x"}),
    ):
        status, problem = told.ask("POST", f"{path}/{verb}", {"token": lease["token"], **more})
        assert (status, problem["type"]) == (409, "urn:sublet:problem:lease-lost")
    assert told.job(lease["id"]) == before
    assert [(a["worker"], a["code"]) for a in before["attempts"]] == [("ghost", "lease_expired")]
    assert told.ask("POST", f"{path}/complete", {"token": again["token"], "result": 2})[0] == 200
    after = told.job(lease["id"])
    assert (after["result"], [(a["worker"], a["code"]) for a in after["attempts"]]) == (
        2,
        [("ghost", "lease_expired"), ("other", "completed")],
    )


# the stream of every move


class Browser:
    """Reads a stream line by line, as an EventSource does, and keeps what one keeps: events, and the last id."""

    def __init__(self):
        self.events, self.last_id = [], ""

    async def read(self, session, url, enough):
        """Listen until there is enough, or the stream breaks or ends. Tells whether it was the client who left."""
        if enough():
            return True  # nothing more may come, ever
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
    """Jobs are submitted, one by one, until told to stop; how many there are."""
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


async def test_of_a_stream_that_was_torn_by_a_dying_server_another_tells_the_rest(settings, busy):
    """Every event once, though servers are killed in the middle and a client hangs up by itself."""
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
            assert time.monotonic() - began < 5  # and not the eight seconds that requests in flight may take


async def _until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.01)
