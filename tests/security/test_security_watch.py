"""Idle and incomplete connections time out, and no malformed input stops the timeouts of other connections."""

import asyncio
import contextlib

import pytest

pytest.importorskip("aiohttp")

from sublet_functions.http.limits import Limits
from tests.http.test_http_bad_input import Mirror
from tests.support.http_server import ask, fronting, wire


@pytest.mark.parametrize(
    ("begun", "limits"),
    [
        (b"", Limits(100, head_seconds=60, idle_seconds=0.5, linger_seconds=0.05)),
        (b"GET / HTTP/1.1\r\nX-A: ", Limits(100, head_seconds=0.3, idle_seconds=60, linger_seconds=0.05)),
    ],
    ids=["idle", "incomplete"],
)
async def test_idle_connections_are_closed_so_that_new_ones_are_accepted(begun, limits):
    async with fronting(Mirror(), limits) as (front, url), contextlib.AsyncExitStack() as crowd:
        for _ in range(120):
            one = await crowd.enter_async_context(wire(url))
            one.write(begun)
        assert len(front.state.open) <= 100, "at most the limit"
        async with asyncio.timeout(20):
            while front.state.open:
                await asyncio.sleep(0.01)
        assert (await ask(url, "GET", "/")).status == 200


NONSENSE = [
    b"hello\r\n\r\n",
    b"GET / HTTP/1.1\r\n: x\r\n\r\n",
    b"GET /" + b"x" * 9_000,
    b"\x16\x03\x01",
    b"GET / HTTP/1.1\r\nX",
]


@pytest.mark.parametrize("data", NONSENSE, ids=lambda data: repr(data[:12]))
async def test_malformed_input_after_a_long_pause_does_not_end_the_timeouts_of_others(data):
    """A regression test: the final response was once sent twice, and that error ended the timeouts of all
    connections.
    """
    limits = Limits(head_seconds=0.2, idle_seconds=60, linger_seconds=0.5)
    async with fronting(Mirror(), limits) as (front, url), wire(url) as one, wire(url) as slow:
        await asyncio.sleep(0.3)  # as long as the headers may take: the bug needed this pause
        one.write(data)
        answer = await one.answer()
        assert answer.status in (400, 408, 414, 431)
        assert await one.is_closed(), "there is only one final response"
        slow.write(b"GET / HTTP/1.1\r\nX-A: ")
        assert (await slow.answer()).status == 408
        assert await slow.is_closed()
        assert not front._watching.done()
