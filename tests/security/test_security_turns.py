"""Large bodies come in turns: one line for each name, others between two bodies, and no line that a caller can leave blocked."""

import asyncio
import json
import time
from types import SimpleNamespace

import pytest

from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http import body as queues
from sublet_functions.http.auth import Tokens
from sublet_functions.http.body import LARGE, LONG, SHORT, BodyQueues
from sublet_functions.http.problems import Problem
from sublet_functions.http.request import Request
from tests.support.program_runs import soon

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

TOKEN = "o" * 32


def busy(seconds):
    """Keep the loop, and the processor, at work."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def read(turns, name, body, work=0.0):
    """Read a body, and understand it for so many seconds."""

    async def from_the_wire(most):
        return body

    with turns.enter(name, from_the_wire) as reader:
        raw = await reader(2 * len(body))
        busy(work)
        return raw


async def rounds(n):
    """Let the loop go round."""
    for _ in range(n):
        await asyncio.sleep(0)


@pytest.mark.parametrize("work", [3 * SHORT, 5 * LONG], ids=["cheap", "dear"])
async def test_large_bodies_of_one_name_come_one_after_the_other_and_others_between_them(work):
    turns, seen = BodyQueues(), []

    async def one(name, body, seconds):
        await read(turns, name, body, seconds)
        seen.append((name, len(body)))

    large, small = b"x" * LARGE, b"x" * (LARGE - 1)
    first = [asyncio.create_task(one("a", large, work)) for _ in range(3)]
    await rounds(1)
    rest = [asyncio.create_task(one("a", small, 0)), asyncio.create_task(one("b", large, 0))]
    await asyncio.wait([*first, *rest], timeout=20)
    assert seen == [("a", LARGE), ("a", LARGE - 1), ("b", LARGE), ("a", LARGE), ("a", LARGE)]
    await soon(lambda: not turns._queues, "nothing is kept of names")


async def test_what_is_understood_in_no_time_keeps_nobody_waiting():
    """Of a fleet's bodies, large and plain, many are understood in one round."""
    turns, body = BodyQueues(), b"x" * LARGE
    many = [asyncio.create_task(read(turns, "a", body)) for _ in range(20)]
    await rounds(1)
    assert sum(task.done() for task in many) >= 10, "but for one that the machine kept from its processor"
    await asyncio.wait(many, timeout=20)


async def test_a_token_alone_on_the_server_does_not_wait():
    """After an hour's work, one need not wait for an hour, if nobody uses the processor."""
    line = BodyQueues()._queues.setdefault("a", queues._Queue())
    for took in (0.0, LONG / 2, 3600.0):
        await line.turn.acquire()
        line.leave(took)
        await soon(lambda: not line.turn.locked(), "the next one may go on")
    await line.turn.acquire()
    line.leave(LONG / 2)
    await rounds(2)
    assert not line.turn.locked(), "after a cheap body no timer stands in the way"


async def test_others_have_the_processor_while_they_use_it_and_no_longer_than_the_body_did(monkeypatch):
    looks, line = [], queues._Queue()

    def thread_time():
        looks.append(None)
        return len(looks) * queues.CHECK_SECONDS  # others are at work all the time

    monkeypatch.setattr(queues, "time", SimpleNamespace(thread_time=thread_time))
    await line.turn.acquire()
    line.leave(10.5 * queues.CHECK_SECONDS)
    await soon(lambda: not line.turn.locked(), "the next one may go on")
    assert len(looks) == 1 + 11


async def test_nobody_rests_for_what_another_name_took():
    turns, body = BodyQueues(), b"x" * LARGE
    light = asyncio.create_task(read(turns, "light", body, 3 * SHORT))
    heavy = asyncio.create_task(read(turns, "heavy", body, 5 * LONG))
    await rounds(1)
    assert (light.done(), heavy.done()) == (True, True), "side by side, in one round"
    lines = dict(turns._queues)
    await rounds(2)
    assert (lines["light"].turn.locked(), lines["heavy"].turn.locked()) == (False, True)


@pytest.mark.parametrize("limit", ["QUEUE_BYTES", "ALL_QUEUES_BYTES"])
async def test_no_more_waits_for_its_turn_than_may_and_nobody_for_ever(limit, monkeypatch):
    monkeypatch.setattr(queues, limit, 2 * LARGE)
    monkeypatch.setattr(queues, "QUEUE_SECONDS", 0.05)
    turns, body = BodyQueues(), b"x" * LARGE
    lines = [turns._queues.setdefault(name, queues._Queue()) for name in "abc"]
    for line in lines:
        await line.turn.acquire()  # somebody is at it, and stays
    names = "aaa" if limit == "QUEUE_BYTES" else "abc"
    ends = await asyncio.gather(*(read(turns, name, body) for name in names), return_exceptions=True)
    assert [type(end) for end in ends] == [Problem] * 3
    assert {end.slug for end in ends} == {"busy"}
    refusal = "of this token are waiting" if limit == "QUEUE_BYTES" else "bodies are waiting"
    assert [refusal in end.detail for end in ends] == [False, False, True]
    lines[0].turn.release()
    assert await read(turns, "a", body) == body
    assert (turns._waiting, [line.waiting for line in lines]) == (0, [0, 0, 0])


@pytest.mark.parametrize("left", [0, 1, 3])
async def test_cancelled_bodies_do_not_block_the_queue(left):
    """Whenever they are called off: the line is free, nothing counts as waiting, and who stays is read."""
    turns, body = BodyQueues(), b"x" * LARGE
    for when in range(12):
        crowd = [asyncio.create_task(read(turns, "a", body, LONG * (n == 0))) for n in range(50)]
        await rounds(when)
        for task in crowd[left:]:
            task.cancel()
        done, _ = await asyncio.wait(crowd, timeout=20)
        assert len(done) == 50
        assert [task.result() for task in crowd[:left]] == [body] * left
        assert turns._waiting == 0
        assert await asyncio.wait_for(read(turns, "a", body), 20) == body


async def test_what_fails_while_it_is_understood_leaves_its_turn():
    turns, body = BodyQueues(), b"x" * LARGE

    async def from_the_wire(most):
        return body

    async def misunderstood():
        with turns.enter("a", from_the_wire) as reader:
            await reader(LARGE)
            busy(3 * SHORT)
            raise Problem("not-json", "it is none")

    first, second = asyncio.create_task(misunderstood()), asyncio.create_task(read(turns, "a", body))
    await rounds(1)
    assert (isinstance(first.exception(), Problem), second.done()) == (True, False)
    assert await asyncio.wait_for(second, 20) == body


async def test_heartbeats_do_not_wait_behind_the_other_bodies_of_their_token(settings):
    store = Store(settings)
    api = Api(store, Tokens(f"fleet:work,submit:{TOKEN}"))
    line = api._queues._queues.setdefault("fleet", queues._Queue())
    await line.turn.acquire()  # a body of the same token is at it, and stays
    beats = {"lease": 30, "jobs": [{"id": f"0-{n:026d}", "token": "1." + "t" * 80} for n in range(100)]}
    raw = {
        "/jobs/heartbeat": beats,
        "/jobs/0-a/heartbeat": {"token": "1." + "t" * 20} | {"progress": "x" * LARGE},
    }
    late = asyncio.create_task(
        sent(api, "/jobs/batch", {"jobs": [{"task": "t", "payload": {"x": "y" * LARGE}}]})
    )
    assert {
        path: (await asyncio.wait_for(sent(api, path, body), 20)).status for path, body in raw.items()
    } == {
        "/jobs/heartbeat": 200,
        "/jobs/0-a/heartbeat": 422,
    }
    assert not late.done()
    line.turn.release()
    assert (await late).status == 200
    await store.aclose()


async def sent(api, path, body):
    raw = json.dumps(body).encode()

    async def from_the_wire(most):
        return raw

    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    assert len(raw) >= LARGE
    return await api.answer(Request("POST", path, headers=headers, read=from_the_wire))
