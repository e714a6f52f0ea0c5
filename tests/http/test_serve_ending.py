"""Streams, and the stop of the server."""

import asyncio
import contextlib
import signal
import socket

import pytest

from sublet_functions.http.limits import Limits
from sublet_functions.http.response import Response
from sublet_functions.serve import Stop
from tests.support.http_server import Held, ask, fronting, refuses, serve_process, serving, wire
from tests.support.processes import until
from tests.support.program_runs import soon

pytest_plugins = ["tests.support.http_settings"]

GET = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"


# streams


class Streaming:
    """A core that streams the given pieces."""

    def __init__(self):
        self.pieces = asyncio.Queue()
        self.made, self.notes = 0, []

    async def answer(self, request):
        return Response(200, self.stream(), {"Content-Type": "text/event-stream"})

    async def stream(self):
        try:
            while True:
                piece = await self.pieces.get()
                if isinstance(piece, Exception):
                    raise piece
                if piece is None:
                    return
                self.made += 1
                yield piece
        finally:
            self.notes.append("closed")


@pytest.fixture
async def streaming():
    core = Streaming()
    async with fronting(core, Limits(linger_seconds=0.1)) as (front, url):
        yield core, front, url


async def test_a_stream_is_sent_in_chunks_and_its_connection_stays_usable(streaming):
    core, _, url = streaming
    async with wire(url) as one:
        for _ in range(2):
            one.write(GET)
            assert (await one.reader.readuntil(b"\r\n\r\n")).count(b"Transfer-Encoding: chunked") == 1
            for piece in (b"one", b"", b"three"):
                core.pieces.put_nowait(piece)
                assert not piece or await one.reader.readexactly(len(piece) + 5) == b"%x\r\n%b\r\n" % (
                    len(piece),
                    piece,
                )
            core.pieces.put_nowait(None)
            assert await one.reader.readexactly(5) == b"0\r\n\r\n"
    assert core.notes == ["closed"] * 2


async def test_a_stream_to_http_1_0_ends_with_the_connection(streaming):
    core, _, url = streaming
    async with wire(url) as one:
        one.write(b"GET /a HTTP/1.0\r\n\r\n")
        for piece in (b"one", b"two", None):
            core.pieces.put_nowait(piece)
        answer = await one.answer()
        assert (answer.body, answer.headers["connection"]) == (b"onetwo", "close")
        assert "transfer-encoding" not in answer.headers


async def test_a_stream_is_closed_when_its_client_disconnects(streaming):
    core, front, url = streaming
    async with wire(url) as one:
        one.write(GET)
        core.pieces.put_nowait(b"one")
        await one.reader.readuntil(b"one")
    await soon(lambda: core.notes == ["closed"] and not front.state.open)


async def test_a_failed_stream_has_no_final_chunk(streaming, caplog):
    core, _, url = streaming
    async with wire(url) as one:
        one.write(GET)
        core.pieces.put_nowait(b"one")
        core.pieces.put_nowait(ValueError("with a s3cret in it"))
        with contextlib.suppress(ConnectionError):
            assert not (await one.rest()).endswith(b"0\r\n\r\n")
    assert "a response was cut off: unexpected ValueError" in caplog.text
    assert "s3cret" not in caplog.text


async def test_a_stream_is_produced_at_the_speed_of_its_client(streaming):
    core, _, url = streaming
    for _ in range(1000):
        core.pieces.put_nowait(b"x" * 1_000_000)
    async with wire(url) as one:
        one.write(GET)
        await soon(lambda: core.made)
        made = -1
        while made != core.made:
            made = core.made
            await asyncio.sleep(0.1)
        assert made < 100
        await one.reader.readuntil(b"x" * 1000)
        await one.reader.readexactly(20_000_000)
        await soon(lambda: core.made > made)


# the stop


async def test_a_stop_answers_waiting_requests_and_ends_streams(settings):
    stop = Stop()
    async with serving(settings, stop=stop) as api:
        job = (await ask(api, "POST", "/jobs", {"task": "t", "queue": "q"})).json()["id"]
        asked = [
            ("POST", "/jobs/claim", {"wait": 20}),
            ("GET", "/jobs/next?wait=20", None),
            ("GET", f"/jobs/{job}?wait=20", None),
            ("POST", "/tick?for=50", None),
            ("GET", "/events?wait=20", None),
        ]
        waiting = [asyncio.create_task(ask(api, *one)) for one in asked]
        async with wire(api) as idle, wire(api) as stream:
            stream.write(b"GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
            await stream.reader.readuntil(b"\n\n")
            idle.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await idle.answer()).status == 200
            done, _ = await asyncio.wait(waiting, timeout=0.5)
            assert not done
            stop.ask()
            answers = await asyncio.wait_for(asyncio.gather(*waiting), 5)
            assert [answer.status for answer in answers] == [204, 204, 200, 200, 200]
            assert answers[2].json()["state"] == "queued"
            assert answers[4].json()["events"] == []
            assert (await stream.rest()).endswith(b"\r\n0\r\n\r\n"), "it ends with a final chunk"
            assert await idle.is_closed()
        await soon(lambda: refuses(api))


async def test_a_stop_ends_a_stream_with_a_final_chunk(streaming):
    core, front, url = streaming
    async with wire(url) as one:
        one.write(GET)
        core.pieces.put_nowait(b"one")
        await one.reader.readuntil(b"one\r\n")
        await front.stop(5, asyncio.Event())
        assert await one.rest() == b"0\r\n\r\n"
    assert core.notes == ["closed"]


async def test_a_stop_finishes_begun_requests_and_closes_idle_connections():
    core = Held()
    async with fronting(core) as (front, url), wire(url) as one, wire(url) as idle:
        one.write(GET)
        await asyncio.wait_for(core.asked.wait(), 30)
        stopping = asyncio.create_task(front.stop(1000, asyncio.Event()))
        await soon(lambda: refuses(url))
        assert await idle.is_closed()
        core.go.set()
        answer = await one.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        await asyncio.wait_for(stopping, 5)
    assert core.notes == []


async def test_a_second_stop_cancels_running_requests(caplog):
    core, hurried = Held(), asyncio.Event()
    async with fronting(core) as (front, url), wire(url) as one:
        one.write(GET)
        await asyncio.wait_for(core.asked.wait(), 30)
        stopping = asyncio.create_task(front.stop(1000, hurried))
        await soon(lambda: refuses(url))
        hurried.set()
        await asyncio.wait_for(stopping, 5)
        assert await one.is_closed()
    assert core.notes == ["cancelled"]
    assert "1 requests were cancelled" in caplog.text


def test_a_second_signal_ends_the_process_at_once(settings):
    with serve_process(settings) as server:
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as half:
            half.sendall(
                b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n"
            )
            assert half.recv(100).startswith(b"HTTP/1.1 100")
            server.signal(signal.SIGTERM)
            until(lambda: refuses(server.url))
            assert server.process.poll() is None
            server.signal(signal.SIGTERM)
            assert server.wait() == 0
        assert "1 requests were cancelled" in server.output()
