"""Clients that disconnect: claimed jobs are released, and delivered responses are kept."""

import asyncio
import json

import pytest
import redis

from sublet_functions.http.limits import Limits
from sublet_functions.server.writer import ResponseWriter
from tests.support.http_server import Held, ask, fronting, serving, wire
from tests.support.program_runs import soon

pytest_plugins = ["tests.support.http_settings"]

GET = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"


def post(path, body):
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


async def test_a_waiting_claim_takes_no_job_after_its_client_disconnects(settings):
    async with serving(settings) as api:
        async with wire(api) as one:
            one.write(post("/jobs/claim", {"wait": 20}))
            with redis.Redis.from_url(settings.redis_url) as raw:
                await soon(lambda: "blpop" in [client["cmd"] for client in raw.client_list()])
        for _ in range(3):
            assert (await ask(api, "POST", "/jobs", {"task": "t"})).status == 201
        claimed = await ask(api, "POST", "/jobs/claim", {"n": 100})
        assert len(claimed.json()["jobs"]) == 3


async def test_a_handler_is_cancelled_when_its_client_disconnects():
    core = Held()
    async with fronting(core) as (_, url):
        for abortive in (False, True):
            one = await disconnect(core, url, abortive)
            await soon(lambda: core.notes, one)
            assert core.notes == ["cancelled"]
            core.notes.clear()


async def disconnect(core, url, abortive=False):
    core.asked.clear()
    async with wire(url) as one:
        one.write(GET)
        await asyncio.wait_for(core.asked.wait(), 30)
        one.close(rudely=abortive)
        return one


async def test_an_undeliverable_response_is_discarded():
    core = Held(stubborn=True)
    async with fronting(core) as (_, url):
        await disconnect(core, url)
        await soon(lambda: len(core.notes) == 2)
        assert core.notes == ["cancelled", "undone"]


@pytest.mark.parametrize("size", [5, 1_000_000])
async def test_a_delivered_response_is_not_undone(size):
    core = Held(b"x" * size)
    core.go.set()
    async with fronting(core) as (front, url):
        async with wire(url) as one:
            for _ in range(2):
                one.write(GET)
                assert len((await one.answer()).body) == size
        await soon(lambda: not front.state.open)
        assert core.notes == []


@pytest.mark.parametrize("leaves", [True, False], ids=["disconnects", "stops reading"])
def test_a_partly_delivered_response_is_discarded(loop_factory, leaves):
    async def partly():
        core = Held(b"x" * 50_000_000)
        core.go.set()
        async with fronting(core, Limits(send_seconds=30 if leaves else 0.3)) as (front, url):
            async with wire(url) as one:
                one.write(GET)
                await one.reader.readexactly(1000)
                if leaves:
                    one.close(rudely=True)
                await soon(lambda: not front.state.open)
            await soon(lambda: core.notes)
            assert core.notes == ["undone"]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(partly())


class Sticky:
    """A transport that keeps the last ten bytes and applies back-pressure as real ones do."""

    def __init__(self):
        self.left, self.high, self.taken = 0, 65_536, asyncio.Event()

    def is_closing(self):
        return False

    def get_extra_info(self, name):
        return None

    def set_write_buffer_limits(self, high=65_536):
        self.high = high

    def write(self, data):
        self.left = 10

    def get_write_buffer_size(self):
        return self.left

    async def drain(self):
        if self.left > self.high:
            await self.taken.wait()


async def test_a_confirmed_write_waits_for_the_last_byte():
    transport = Sticky()
    outlet = ResponseWriter(transport, transport.drain, 30)
    await asyncio.wait_for(outlet.write(b"x" * 100), 5)
    sending = asyncio.create_task(outlet.write(b"x" * 100, confirm=True))
    done, _ = await asyncio.wait([sending], timeout=0.05)
    assert not done
    transport.taken.set()
    await asyncio.wait_for(sending, 5)
    assert transport.high == 65_536


@pytest.fixture(params=["asyncio", "uvloop"])
def loop_factory(request):
    return pytest.importorskip("uvloop").new_event_loop if request.param == "uvloop" else None


async def test_a_failed_cleanup_affects_no_other_request(caplog):
    core = Held(stubborn=True)

    async def undo():
        raise RuntimeError("with a s3cret in it")

    core.undo = undo
    async with fronting(core) as (_, url):
        await disconnect(core, url)
        await soon(lambda: "was not cleaned up" in caplog.text)
        assert "s3cret" not in caplog.text
        core.go.set()
        assert (await ask(url, "GET", "/")).status == 200
