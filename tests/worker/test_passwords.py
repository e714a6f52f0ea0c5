"""A password that is set on a live server, and right again later: workers and the API wait, and then go on."""

import asyncio
import signal

import pytest
import redis

from tests.support import misbehaving_tasks as tasks
from tests.support.http_server import ask, serve_process
from tests.support.processes import on_linux, until

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = [on_linux, pytest.mark.real_server]
CROWD = {"jobs": [{"task": "quick", "payload": {}, "queue": "elsewhere"} for _ in range(20)]}
LARGE = {"task": "quick", "payload": {"text": "x" * 20_000}, "queue": "elsewhere"}


@pytest.fixture
def locked(private):
    """Set the server's password, and cut off all its clients, which authenticated without one; or remove it."""
    url = private.settings.redis_url
    with redis.Redis.from_url(url, single_connection_client=True) as client:

        def lock(password):
            client.config_set("requirepass", password)
            for kind in ("normal", "pubsub") if password else ():
                client.client_kill_filter(_type=kind, skipme=True)

        yield lock
        lock("")


def post(url, body, path="/jobs"):
    return asyncio.run(ask(url, "POST", path, body))


def test_a_worker_waits_for_its_password_to_be_right_again(private, locked):
    worker = private.hire("--slots", "40", "--processes", "1")
    running = private.submit(tasks.rests, private.go, n=30)
    private.until_noted("began", count=30)
    locked("another")
    private.say_go()  # 30 outcomes make a call of more than 10 words
    assert "check user and password" in worker.hears("cannot")
    locked("")
    private.until_ended(*running, *private.submit(tasks.quick), *private.submit(tasks.plain_quick))
    assert {code for job_id in running for code in private.codes(job_id)} == {"completed"}
    worker.hears("calls are answered again")
    assert worker.stop(signal.SIGTERM) == 0


def test_the_api_answers_503_until_its_password_is_right_again(private, locked):
    with serve_process(private.settings) as server:
        assert post(server.url, LARGE).status == 201
        locked("another")
        for body, path in ((CROWD, "/jobs/batch"), (LARGE, "/jobs"), (LARGE | {"payload": {}}, "/jobs")):
            answer = post(server.url, body, path)
            assert (answer.status, answer.problem) == (503, "unavailable")
        assert "check user and password" in server.output()
        locked("")
        until(lambda: post(server.url, LARGE).status == 201, "a job is stored")
