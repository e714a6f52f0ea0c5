"""Real gunicorns with the API: disconnecting clients, killed workers, SIGTERM."""

import asyncio
import contextlib
import os
import signal
import socket
import uuid
from urllib.parse import urlsplit

import pytest
import redis

from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.options import Options
from tests.support.http_server import SECRET, ask, wire
from tests.support.platforms import environment, up
from tests.support.platforms import wsgi as gunicorn
from tests.support.processes import children_of, until

WAIT = 30.0


@pytest.fixture(scope="module")
def settings(server_url):
    return Settings(redis_url=server_url("valkey"), namespace=f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="module", params=["sync", "gthread"])
def server(request, settings, tmp_path_factory):
    """A gunicorn with one worker, forked from a master that has loaded the application."""
    words = [
        "--preload",
        "--worker-class",
        request.param,
        "--threads",
        "8" if request.param == "gthread" else "1",
    ]
    with gunicorn(settings, tmp_path_factory.mktemp(request.param), *words, SUBLET_SUMMON="1") as server:
        server.kind = request.param
        yield server


async def take(server, method, path, body=None, **headers):
    return await ask(server.url, method, path, body, token=SECRET, **headers)


async def submitted(server, queue):
    return (await take(server, "POST", "/jobs", {"task": "t", "queue": queue})).json()["id"]


async def test_a_job_is_submitted_claimed_and_done(server):
    job = await submitted(server, "whole")
    lease = (await take(server, "GET", "/jobs/next?queue=whole&wait=5")).json()
    assert lease["id"] == job
    assert (
        await take(server, "POST", f"/jobs/{job}/complete", {"token": lease["token"], "result": 1})
    ).status == 200
    assert (await take(server, "HEAD", f"/jobs/{job}")).status == 200


async def test_paths_and_bodies_arrive_unchanged(server):
    assert (await take(server, "GET", "/jobs/a%2Fb")).problem == "invalid", (
        "one path segment, which is invalid"
    )
    chunked = b'1\r\n{\r\ne\r\n"task": "abc"}\r\n0\r\n\r\n'
    head = f"POST /jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\nContent-Type: application/json\r\n"
    async with wire(server.url) as one:
        one.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunked)
        assert (await one.answer()).status == 201
    async with wire(server.url) as one:
        one.write(f"{head}Content-Length: 99999999\r\n\r\n{{".encode())
        assert (await one.answer()).problem == "too-large"
    async with wire(server.url) as one:
        one.write(f"{head}Content-Length: 99\r\n\r\n{{".encode())
        one.writer.write_eof()
        answer = await one.answer()
        assert answer.problem in ("bad-request", "timeout")
    assert (
        await ask(server.url, "POST", "/jobs", {"task": "t"}, token="another-secret-that-is-long")
    ).status == 401


async def test_a_client_that_disconnects_during_a_claim_takes_no_job(server, settings):
    async with claiming(server, settings, "left") as one:
        one.close(rudely=True)
        with contextlib.suppress(ConnectionError):
            await one.writer.wait_closed()
    job = submit_beside(settings, "left")
    lease = (await take(server, "GET", "/jobs/next?queue=left&wait=10")).json()
    assert lease["id"] == job


@contextlib.asynccontextmanager
async def claiming(server, settings, queue):
    """A connection with a waiting claim."""
    before = scripts_run(settings)
    async with wire(server.url) as one:
        one.write(
            f"GET /jobs/next?queue={queue}&wait=20 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\n\r\n".encode()
        )
        await asyncio.to_thread(until, lambda: scripts_run(settings) > before, "the claim has started")
        yield one


def scripts_run(settings):
    with redis.Redis.from_url(settings.redis_url) as raw:
        return raw.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]


def submit_beside(settings, queue):
    """Submit a job with another client: the server is busy, or stopping."""
    with SyncClient(settings) as client:
        return client.submit("t", None, Options(queue=queue)).id


async def test_events_stream_with_threads_and_end_at_once_without(server):
    await submitted(server, "events")
    head = f"GET /events?after=0 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRET}\r\nAccept: text/event-stream\r\n\r\n"
    async with wire(server.url) as one:
        one.write(head.encode())
        if server.kind == "sync":
            assert b"event: queued" in (await one.answer()).body
            return
        async with asyncio.timeout(WAIT):
            await one.reader.readuntil(b"event: queued")
            job = await submitted(server, "events")
            await one.reader.readuntil(job.encode())


async def test_a_killed_gunicorn_worker_loses_no_job(server, settings):
    (worker,) = children_of(server.pid)
    async with claiming(server, settings, "killed") as one:
        os.kill(worker, signal.SIGKILL)
        assert await one.is_closed()
    await asyncio.to_thread(until, lambda: worker not in children_of(server.pid) and children_of(server.pid))
    job = await submitted(server, "killed")
    assert (await take(server, "GET", "/jobs/next?queue=killed&wait=5")).json()["id"] == job


async def test_sigterm_answers_a_waiting_claim(server, settings):  # the last test: it stops the server
    async with claiming(server, settings, "ending") as one:
        server.signal()
        async with asyncio.timeout(10):  # less than the 20 s of its wait
            assert (await one.answer()).status == 204
    assert await asyncio.to_thread(server.wait) == 0
    assert "Traceback" not in server.output()


IMPATIENT = "from sublet_functions import wsgi\nwsgi.BODY_SECONDS = wsgi.SEND_SECONDS = 0.5\napp = wsgi.app\n"


@pytest.fixture(scope="module")
def impatient(settings, tmp_path_factory):
    """A gunicorn with two threads and shorter timeouts."""
    folder = tmp_path_factory.mktemp("impatient")
    (folder / "impatient.py").write_text(IMPATIENT)
    env = environment(settings, folder, SUBLET_SIGNING_SECRETS="whsec_QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo=")
    with up(["gunicorn", "impatient:app", "--threads", "2", "--bind", "127.0.0.1:0"], folder, env) as server:
        yield server


async def test_a_slow_body_times_out_and_frees_its_thread(impatient):
    head = "POST /work HTTP/1.1\r\nHost: x\r\nwebhook-id: 1\r\nwebhook-timestamp: 1\r\nwebhook-signature: v1,x\r\n"
    async with wire(impatient.url) as one:
        one.write(f"{head}Content-Type: application/json\r\nContent-Length: 9000\r\n\r\n".encode())
        answering = asyncio.create_task(one.answer())
        async with asyncio.timeout(WAIT):
            while not answering.done():
                one.write(b" ")
                await asyncio.sleep(0.1)
        answer = await answering
    assert (answer.status, answer.problem) == (408, "timeout")


def is_dropped(one):
    """Has the server closed the connection?"""
    try:
        one.send(b"x")
    except ConnectionError:
        return True
    return False


async def test_clients_that_read_no_responses_are_disconnected(impatient):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.socket()) for _ in range(2)]
        for one in clients:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", urlsplit(impatient.url).port))
            one.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 80)
        for one in clients:
            await asyncio.to_thread(until, lambda one=one: is_dropped(one), "the connection is closed")
        assert (await ask(impatient.url, "GET", "/healthz")).status == 200
    assert "Traceback" not in impatient.output()
