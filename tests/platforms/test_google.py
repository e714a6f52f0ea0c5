"""Google's functions-framework as a process: our functions in a main.py, over real HTTP."""

import asyncio
import contextlib
import subprocess
import sys
import uuid

import pytest
import redis
from cloudevents.conversion import to_binary, to_structured
from cloudevents.http import CloudEvent

from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.options import Options
from sublet_functions.google import TickFailed, event
from sublet_functions.wsgi import app
from tests.support.http_server import SECRET, ask, wire
from tests.support.paths import ROOT
from tests.support.platforms import google

WAIT = 30.0


@pytest.fixture(scope="module")
def settings(server_url):
    return Settings(redis_url=server_url("valkey"), namespace=f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="module")
def server(settings, tmp_path_factory):
    """`http`, as Cloud Run functions start it."""
    with google(settings, tmp_path_factory.mktemp("http")) as server:
        yield server


@pytest.fixture(scope="module")
def events(settings, tmp_path_factory):
    """`event`, likewise, without tokens: the platform authorizes the senders of events."""
    words = ["--target", "event", "--signature-type", "cloudevent"]
    with google(settings, tmp_path_factory.mktemp("event"), *words, SUBLET_TOKENS="") as server:
        yield server


def test_the_import_does_not_load_the_framework():
    program = "import sys, sublet_functions.google; print({'flask', 'werkzeug', 'functions_framework'} & sys.modules.keys())"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert ran.stdout == "set()\n", ran.stderr


async def test_a_job_is_submitted_claimed_and_done(server):
    made = await ask(server.url, "POST", "/jobs", {"task": "t", "queue": "whole"}, token=SECRET)
    assert (made.status, made.headers["location"]) == (201, f"/jobs/{made.json()['id']}")
    lease = (await ask(server.url, "GET", "/jobs/next?queue=whole&wait=5", token=SECRET)).json()
    done = await ask(
        server.url, "POST", f"/jobs/{lease['id']}/complete", {"token": lease["token"]}, token=SECRET
    )
    assert done.json()["state"] == "completed"
    empty = await ask(server.url, "GET", "/jobs/next?queue=whole", token=SECRET)
    assert (empty.status, empty.body) == (204, b"")
    assert "sublet-next-in" in empty.headers
    assert "content-type" not in empty.headers, "there is no body"
    head = await ask(server.url, "HEAD", f"/jobs/{lease['id']}", token=SECRET)
    assert (head.status, head.headers["content-type"]) == (200, "application/json")


@pytest.mark.parametrize("token", ["", "another-secret-that-is-long"])
async def test_without_a_valid_token_requests_are_refused(server, token):
    answer = await ask(server.url, "POST", "/jobs", {"task": "t"}, token=token)
    assert (answer.status, answer.problem) == (401, "unauthorized")
    assert answer.headers["www-authenticate"] == "Bearer"


async def test_events_stream_through_the_framework(server):
    head = f"GET /events?after=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\nAccept: text/event-stream\r\n\r\n"
    async with wire(server.url) as one, asyncio.timeout(WAIT):
        one.write(head.encode())
        await one.reader.readuntil(b"retry:")
        made = await ask(server.url, "POST", "/jobs", {"task": "t", "queue": "events"}, token=SECRET)
        await one.reader.readuntil(made.json()["id"].encode())


async def test_a_claim_of_a_disconnected_client_takes_no_job(server, settings):
    async with wire(server.url) as one:
        one.write(
            f"GET /jobs/next?queue=left&wait=20 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n\r\n".encode()
        )
        await one.writer.drain()
        one.close(rudely=True)
        with contextlib.suppress(ConnectionError):
            await one.writer.wait_closed()
    with SyncClient(settings) as client:
        job = client.submit("t", None, Options(queue="left")).id
    assert (await ask(server.url, "GET", "/jobs/next?queue=left&wait=10", token=SECRET)).json()["id"] == job


@pytest.mark.parametrize("mode", [to_binary, to_structured], ids=["binary", "structured"])
async def test_any_event_is_a_tick(events, settings, mode):
    with SyncClient(settings) as client:
        job = client.submit("t", None, Options(queue="due", delay=3600)).id
        with redis.Redis.from_url(settings.redis_url) as raw:
            raw.zadd(
                f"{{{settings.namespace}:0}}:scheduled", {job: 1}, xx=True
            )  # it is due, and not yet promoted
        sent = CloudEvent({"type": "com.example.anything", "source": "/tests"}, {"secret": "x" * 1000})
        headers, body = mode(sent)
        named = {name.replace("-", "_"): str(value) for name, value in headers.items()}
        answer = await ask(events.url, "POST", "/", body, **({"content_type": "application/json"} | named))
        assert (answer.status, answer.body) == (200, b"OK")
        assert client.get(job).state == "queued"


def test_a_failed_tick_raises_an_exception(monkeypatch):
    monkeypatch.setenv("SUBLET_REDIS_URL", "redis://:s3cret@127.0.0.1:1/0")
    monkeypatch.setenv("SUBLET_TOKENS", "")
    try:
        with pytest.raises(TickFailed, match=r"503: Redis is not available: Redis does not answer") as caught:
            event(object())
    finally:
        app.close()
    assert "s3cret" not in str(caught.value)


async def test_a_failed_event_is_a_500_without_details(tmp_path):
    words = ["--target", "event", "--signature-type", "cloudevent"]
    nowhere = Settings(redis_url="redis://:s3cret@127.0.0.1:1/0")
    with google(nowhere, tmp_path, *words) as server:
        headers, body = to_structured(CloudEvent({"type": "a", "source": "/b"}, {}))
        answer = await ask(server.url, "POST", "/", body, content_type=headers["content-type"])
        assert answer.status == 500
        assert b"Traceback" not in answer.body
        assert b"Redis" not in answer.body
        assert "s3cret" not in server.output()


async def test_sigterm_stops_the_servers_within_ten_seconds(
    server, events
):  # the last test: it stops both servers
    async with wire(server.url) as one:
        one.write(
            f"GET /jobs/next?queue=ending&wait=20 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n\r\n".encode()
        )
        await one.writer.drain()
        for process in (server, events):
            process.signal()
            assert await asyncio.to_thread(process.process.wait, 10) == 0
    assert "Traceback" not in server.output() + events.output()
