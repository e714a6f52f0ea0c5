"""Any server may answer any request: a job's life across three servers, killed servers, and clients that
disconnect."""

import asyncio
import contextlib
import functools
import json
import random
import socket
import uuid
from urllib.parse import urlsplit

import pytest
import redis

from sublet.connection.settings import Settings
from sublet.protocol import keys
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from tests.conftest import REAL
from tests.support.http_server import SECONDS, ask, fronting, serve_process, serving

pytest_plugins = ["tests.support.http_settings"]

GONE = (OSError, EOFError)
"""Exceptions of a client whose server died: a refused or broken connection, or an incomplete response."""
ROUNDS = 80
RACES = 60
SEED = 5


@pytest.fixture(scope="module")
def shared(server_url):
    """One namespace for the servers of this file."""
    return Settings(redis_url=server_url(REAL[-1]), namespace=f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="module")
def two(shared):
    """Two servers that keep running, each a process."""
    with serve_process(shared) as one, serve_process(shared) as other:
        yield [one.url, other.url]


@pytest.fixture
def third(shared):
    """A server that a test may kill."""
    with serve_process(shared) as server:
        yield server


@pytest.fixture(scope="module")
def raw(shared):
    with redis.Redis.from_url(shared.redis_url) as client:
        yield client


@pytest.fixture
def queue():
    return f"q-{uuid.uuid4().hex[:8]}"


def claim(url, queue, claim_id, **how):
    return ask(url, "POST", "/jobs/claim", {"queues": [queue], "claim_id": claim_id, **how})


async def until(condition):
    """Wait until a condition is true."""
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def attempts(url, path):
    return [(one["number"], one["code"]) for one in (await ask(url, "GET", path)).json()["attempts"]]


async def test_each_request_for_a_job_may_go_to_another_server(two, third, queue):
    """A claim that is repeated at another server after a lost response returns the same job and token."""
    a, b, c = *two, third.url
    path = (await ask(a, "POST", "/jobs", {"task": "t", "queue": queue, "payload": {"n": 1}})).headers[
        "location"
    ]
    claims = [(await claim(url, queue, "x" * 22, worker="w")).json()["jobs"] for url in (b, c, a)]
    assert claims[0][0]["payload"] == {"n": 1}
    assert [(job["id"], job["token"]) for (job,) in claims] == [
        (claims[0][0]["id"], claims[0][0]["token"])
    ] * 3
    proof = {"token": claims[0][0]["token"]}
    assert (await ask(c, "POST", f"{path}/heartbeat", proof | {"progress": 0.5})).status == 200
    assert (await ask(a, "POST", f"{path}/note", proof | {"checkpoint": [1]})).status == 200
    job = (await ask(b, "GET", path)).json()
    assert (job["state"], job["progress"], job["checkpoint"]) == ("running", 0.5, [1])
    for url in (c, a, b):
        assert (await ask(url, "POST", f"{path}/done", proof | {"result": 2})).json()["state"] == "completed"
    job = (await ask(a, "GET", f"{path}?wait=20")).json()
    assert (job["state"], job["result"], job["attempt"]) == ("completed", 2, 1)
    assert (await ask(b, "POST", f"{path}/heartbeat", proof)).problem == "lease-lost"


async def test_a_server_killed_during_a_long_poll_loses_no_job(two, third, queue, raw):
    waiting = asyncio.create_task(claim(third.url, queue, "y" * 22, wait=20))
    following = asyncio.create_task(claim(two[0], queue, "z" * 22, wait=20))
    await until(lambda: raw.info("clients")["blocked_clients"] >= 2)
    third.process.kill()
    third.wait()
    path = (await ask(two[1], "POST", "/jobs", {"task": "t", "queue": queue})).headers["location"]
    with pytest.raises(GONE):
        await waiting
    async with asyncio.timeout(SECONDS):
        answer = await following
    (job,) = answer.json()["jobs"]
    assert (f"/jobs/{job['id']}", job["attempt"]) == (path, 1)


async def test_a_wait_for_a_result_can_be_repeated_at_another_server(two, third, queue, raw, shared):
    path = (await ask(two[0], "POST", "/jobs", {"task": "t", "queue": queue})).headers["location"]
    (job,) = (await claim(two[0], queue, "w" * 22)).json()["jobs"]
    waiting = [asyncio.create_task(ask(url, "GET", f"{path}?wait=20")) for url in (third.url, two[1])]
    await until(lambda: raw.pubsub_numsub(keys.ended(keys.base(shared.namespace)))[0][1] >= 2)
    third.process.kill()
    third.wait()
    with pytest.raises(GONE):
        await waiting[0]
    again = asyncio.create_task(ask(two[0], "GET", f"{path}?wait=20"))
    await ask(two[1], "POST", f"{path}/done", {"token": job["token"], "result": "here"})
    for one in (waiting[1], again):
        async with asyncio.timeout(SECONDS):
            assert (await one).json()["result"] == "here"


async def test_each_job_runs_once_although_a_server_is_killed(two, third, queue):
    """Workers repeat interrupted requests unchanged at another server, and nothing else."""
    urls, ran, done = [*two, third.url], [], asyncio.Event()
    most = 60

    async def ask_any(at, method, path, body):
        for url in [*urls[at:], *urls[:at]] * 2:
            with contextlib.suppress(*GONE):
                return await ask(url, method, path, body)
        raise AssertionError("no server answers")

    async def work(at):
        while not done.is_set():
            words = {"queues": [queue], "n": 3, "wait": 1, "claim_id": uuid.uuid4().hex, "worker": f"w{at}"}
            answer = await ask_any(at, "POST", "/jobs/claim", words)
            for job in answer.json()["jobs"] if answer.status == 200 else ():
                ran.append(job["id"])
                ended = await ask_any(at, "POST", f"/jobs/{job['id']}/done", {"token": job["token"]})
                assert ended.status == 200
            if len(ran) >= most:
                done.set()

    async def submit():
        for n in range(most):
            await ask_any(2, "POST", "/jobs", {"task": "t", "queue": queue, "id": f"{queue}.{n}"})
            if n == most // 2:
                third.process.kill()

    async with asyncio.timeout(SECONDS * 2), asyncio.TaskGroup() as tasks:
        for at in range(3):
            tasks.create_task(work(at))
        tasks.create_task(submit())
    assert sorted(ran) == sorted(f"0-{queue}.{n}" for n in range(most))
    for n in range(most):
        assert await attempts(two[0], f"/jobs/0-{queue}.{n}") == [(1, "completed")]


# clients that disconnect


async def caller(url):
    """A connection without its own loop: received data is visible at once."""
    one = socket.create_connection((urlsplit(url).hostname, urlsplit(url).port))
    one.setblocking(False)
    return one


def received(one):
    """The data received so far."""
    with contextlib.suppress(BlockingIOError):
        return one.recv(65536)
    return b""


class Interrupting:
    """An API whose client disconnects after the response was made and before it is sent; `meanwhile` runs
    before that.
    """

    def __init__(self, settings):
        self.api = Api(Store(settings), Tokens())
        self.caller = self.meanwhile = self.got = None

    async def answer(self, request):
        reply = await self.api.answer(request)
        if self.caller:
            self.got = self.meanwhile and await self.meanwhile()
            self.caller.close()
            self.caller = None
        return reply


@pytest.mark.parametrize("path", ["/jobs/next?lease=60", "/jobs/next?lease=60&wait=5"])
async def test_a_job_claimed_for_a_disconnected_client_is_released_at_once(settings, path):
    core = Interrupting(settings)
    async with fronting(core) as (_, url):
        await ask(url, "POST", "/jobs", {"task": "t"})
        core.caller = await caller(url)
        await asyncio.get_running_loop().sock_sendall(
            core.caller, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        await until(lambda: core.caller is None)
        (job,) = (await ask(url, "POST", "/jobs/claim", {"wait": 20})).json()["jobs"]
        assert job["recovered"] == "released"
    await core.api.aclose()


async def claimer(url, words):
    """A client that has sent a claim."""
    body = json.dumps(words).encode()
    head = b"POST /jobs/claim HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    one = await caller(url)
    await asyncio.get_running_loop().sock_sendall(one, head % len(body) + body)
    return one


@pytest.mark.parametrize("again", ["elsewhere", "nowhere"])
async def test_a_claim_repeated_at_another_server_is_not_released_for_the_first_caller(settings, again):
    core, words = Interrupting(settings), {"lease": 600, "claim_id": "x" * 22}
    async with serving(settings) as other:
        async with fronting(core) as (_, url):
            await ask(url, "POST", "/jobs", {"task": "t"})
            if again == "elsewhere":
                core.meanwhile = functools.partial(ask, other, "POST", "/jobs/claim", words)
            core.caller = await claimer(url, words)
            await until(lambda: core.caller is None)
        await core.api.aclose()  # pending releases are done by now
        jobs = (await ask(other, "GET", "/jobs?state=running")).json()["jobs"]
        assert len(jobs) == (again == "elsewhere")
        if jobs:
            (job,) = core.got.json()["jobs"]
            assert (
                await ask(other, "POST", f"/jobs/{job['id']}/heartbeat", {"token": job["token"]})
            ).status == 200
            assert (
                await ask(other, "POST", f"/jobs/{job['id']}/done", {"token": job["token"]})
            ).status == 200


async def test_no_response_contains_a_lease_that_another_server_releases(two, third, queue):
    """The race: a claim is sent, its connection closed, and the claim repeated at another server at once."""
    chance, held = random.Random(SEED), {}
    await ask(two[0], "POST", "/jobs/batch", {"jobs": [{"task": "t", "queue": queue}] * RACES})
    for number in range(RACES):
        words = {"queues": [queue], "lease": 600, "claim_id": f"{queue}.{number:022}"}
        one = await claimer(third.url, words)
        await asyncio.sleep(chance.random() * 0.003)
        one.close()
        answer = await ask(two[0], "POST", "/jobs/claim", words)
        for job in answer.json()["jobs"] if answer.status == 200 else ():
            assert job["id"] not in held, "one job was leased to two callers"
            held[job["id"]] = job["token"]
    assert await asyncio.to_thread(third.stop) == 0  # and with it all pending releases
    assert held, "no claim was repeated in time: the race was not tested"
    for job_id, token in held.items():
        assert (await ask(two[0], "POST", f"/jobs/{job_id}/heartbeat", {"token": token})).status == 200


@pytest.mark.parametrize("path", ["claim", "next"])
async def test_a_client_that_disconnects_before_the_response_has_claimed_no_job(settings, path):
    """At any moment, also when the job arrives. The lease would last a minute; the job is released at once."""
    chance = random.Random(SEED)
    body = json.dumps({"n": 2, "wait": 5, "lease": 60}).encode()
    host = b" HTTP/1.1\r\nHost: localhost\r\n"
    data = b"GET /jobs/next?wait=5&lease=60" + host + b"\r\n"
    if path == "claim":
        data = b"POST /jobs/claim%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
            host,
            len(body),
            body,
        )
    async with serving(settings) as url:
        received_count = 0
        for number in range(ROUNDS):
            one = await caller(url)
            await asyncio.get_running_loop().sock_sendall(one, data)
            submitting = asyncio.create_task(ask(url, "POST", "/jobs", {"task": "t", "id": f"{number}"}))
            await asyncio.sleep(chance.random() * 0.006)
            answer = received(one)  # nothing arrives before the close: server and caller share one thread
            if chance.random() < 0.5:
                one.shutdown(socket.SHUT_RDWR)
            one.close()
            assert (await submitting).status == 201
            if not answer:
                back = await ask(url, "POST", "/jobs/claim", {"wait": 20})
                assert back.status == 200, number
                (job,) = back.json()["jobs"]
            else:
                received_count += 1
                job = json.loads(answer.partition(b"\r\n\r\n")[2])
                (job,) = job["jobs"] if path == "claim" else [job]
            assert job["id"] == f"0-{number}"
            assert (await ask(url, "POST", f"/jobs/{job['id']}/done", {"token": job["token"]})).status == 200
        assert 0 < received_count < ROUNDS, "all moments had the same result: the race was not tested"
        assert not (await ask(url, "GET", "/jobs?state=running")).json()["jobs"]
