"""Who says nothing, or only half of it, is let go in its time; and nothing that anybody says ends the watch over the others."""

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
    ids=["silent", "begun"],
)
async def test_idle_connections_are_closed_so_that_new_ones_are_accepted(begun, limits):
    async with fronting(Mirror(), limits) as (front, url), contextlib.AsyncExitStack() as crowd:
        for _ in range(120):
            one = await crowd.enter_async_context(wire(url))
            one.write(begun)
        assert len(front.state.open) <= 100, "no more than may be"
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


@pytest.mark.parametrize("said", NONSENSE, ids=lambda said: repr(said[:12]))
async def test_malformed_input_after_a_long_pause_does_not_end_the_timeouts_of_others(said):
    """Its last word was once said twice, and that error ended the watch: nobody slow was let go again."""
    limits = Limits(head_seconds=0.2, idle_seconds=60, linger_seconds=0.5)
    async with fronting(Mirror(), limits) as (front, url), wire(url) as one, wire(url) as slow:
        await asyncio.sleep(0.3)  # as long as a head may take: the silence is the trouble
        one.write(said)
        answer = await one.answer()
        assert answer.status in (400, 408, 414, 431)
        assert await one.is_closed(), "the last word is one"
        slow.write(b"GET / HTTP/1.1\r\nX-A: ")
        assert (await slow.answer()).status == 408
        assert await slow.is_closed()
        assert not front._watching.done()
