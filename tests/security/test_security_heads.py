"""Unfinished request heads: each is bounded in bytes, and so are those of all connections together."""

import asyncio
import contextlib

import pytest

from sublet_functions.http.limits import Limits
from tests.http.test_http_bad_input import HOST, Mirror
from tests.support.http_server import ask, fronting, wire

HEADERS = b"".join(b"X-%d: " % i + b"x" * 4_000 + b"\r\n" for i in range(90))
PATIENT = Limits(head_seconds=60, idle_seconds=60, linger_seconds=0.1)


@pytest.mark.parametrize("after", [b"", b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"], ids=["first", "pipelined"])
async def test_an_unfinished_head_is_bounded_in_bytes(after):
    """Each line and the number of lines are allowed: their sum is not."""
    async with fronting(Mirror(), PATIENT) as (front, url), wire(url) as one:
        one.write(after + b"GET / HTTP/1.1\r\n" + HOST + HEADERS)
        if after:
            assert (await one.answer()).status == 200
        answer = await one.answer()
        assert (answer.status, answer.problem) == (431, "too-many-headers")
        assert "32,768 bytes" in answer.json()["detail"]
        assert await one.is_closed()
        assert front.state.heads.held == 0


async def test_the_unfinished_heads_of_all_connections_are_bounded():
    limits = Limits(head_seconds=60, idle_seconds=60, linger_seconds=0.1, heads=100_000)
    async with fronting(Mirror(), limits) as (front, url), contextlib.AsyncExitStack() as crowd:
        some = [await crowd.enter_async_context(wire(url)) for _ in range(4)]
        for one in some[:3]:
            one.write(b"GET / HTTP/1.1\r\n" + HOST + HEADERS[:30_000])
        async with asyncio.timeout(20):
            while front.state.heads.held < 90_000:
                await asyncio.sleep(0.01)
        some[3].write(b"GET / HTTP/1.1\r\n" + HOST + HEADERS[:30_000])
        answer = await some[3].answer()
        assert (answer.status, answer.problem) == (503, "busy")
        assert (await ask(url, "GET", "/")).status == 200, "complete requests are answered"
        for one in some[:3]:
            one.writer.close()
        async with asyncio.timeout(20):
            while front.state.heads.held:
                await asyncio.sleep(0.01)


async def test_a_body_does_not_count_as_a_head():
    async with fronting(Mirror(), PATIENT) as (front, url), wire(url) as one:
        for _ in range(2):
            one.write(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 200000\r\n\r\n" + b"x" * 100_000)
            await asyncio.wait_for(one.writer.drain(), 20)
            one.write(b"x" * 100_000)
            assert (await one.answer()).status == 200
        assert front.state.heads.held == 0
