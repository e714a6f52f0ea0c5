"""Large bodies are parsed in sequence: one queue per token name, other work between two bodies, and no queue that a
client can block."""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest

from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http import body as queues
from sublet_functions.http.auth import Tokens
from sublet_functions.http.body import LARGE, LONG, SHORT, BodyQueues
from sublet_functions.http.limits import Limits
from sublet_functions.http.memory import available_memory, budget_of, share_of
from sublet_functions.http.problems import Problem
from sublet_functions.http.request import Request
from tests.support.http_server import serving, wire
from tests.support.program_runs import soon

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

TOKEN = "o" * 32


def busy(seconds):
    """Keep the event loop and the processor busy."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


async def read(bodies, name, body, work=0.0):
    """Read a body and parse it for some seconds of processor time."""

    async def from_the_wire(most, count=None):
        return body

    with bodies.enter(name, from_the_wire) as reader:
        raw = await reader(2 * len(body))
        busy(work)
        return raw


async def rounds(n):
    """Run the event loop for n iterations."""
    for _ in range(n):
        await asyncio.sleep(0)


@pytest.mark.parametrize("work", [3 * SHORT, 5 * LONG], ids=["cheap", "expensive"])
async def test_large_bodies_of_one_token_are_parsed_in_sequence_with_others_in_between(work):
    bodies, seen = BodyQueues(), []

    async def one(name, body, seconds):
        await read(bodies, name, body, seconds)
        seen.append((name, len(body)))

    large, small = b"x" * LARGE, b"x" * (LARGE - 1)
    first = [asyncio.create_task(one("a", large, work)) for _ in range(3)]
    await rounds(1)
    rest = [asyncio.create_task(one("a", small, 0)), asyncio.create_task(one("b", large, 0))]
    await asyncio.wait([*first, *rest], timeout=20)
    assert seen == [("a", LARGE), ("a", LARGE - 1), ("b", LARGE), ("a", LARGE), ("a", LARGE)]
    await soon(lambda: not bodies._queues, "empty queues are removed")


async def test_cheap_bodies_cause_no_delay():
    """Many large but cheap bodies are parsed in one iteration."""
    bodies, body = BodyQueues(), b"x" * LARGE
    many = [asyncio.create_task(read(bodies, "a", body)) for _ in range(20)]
    await rounds(1)
    assert sum(task.done() for task in many) >= 10, "except for one that was scheduled late"
    await asyncio.wait(many, timeout=20)


async def test_the_only_active_token_does_not_wait():
    """After an hour of work the next body does not wait for an hour if the processor is otherwise idle."""
    queue = BodyQueues()._queues.setdefault("a", queues._Queue())
    for took in (0.0, LONG / 2, 3600.0):
        await queue.turn.acquire()
        queue.leave(took)
        await soon(lambda: not queue.turn.locked(), "the next body may be parsed")
    await queue.turn.acquire()
    queue.leave(LONG / 2)
    await rounds(2)
    assert not queue.turn.locked(), "after a cheap body there is no delay"


async def test_other_tasks_get_the_processor_for_at_most_the_time_of_the_body(monkeypatch):
    looks, queue = [], queues._Queue()

    def thread_time():
        looks.append(None)
        return len(looks) * queues.CHECK_SECONDS  # other tasks use the processor all the time

    monkeypatch.setattr(queues, "time", SimpleNamespace(thread_time=thread_time))
    await queue.turn.acquire()
    queue.leave(10.5 * queues.CHECK_SECONDS)
    await soon(lambda: not queue.turn.locked(), "the next body may be parsed")
    assert len(looks) == 1 + 11


async def test_a_token_does_not_wait_for_the_bodies_of_another():
    bodies, body = BodyQueues(), b"x" * LARGE
    light = asyncio.create_task(read(bodies, "light", body, 3 * SHORT))
    heavy = asyncio.create_task(read(bodies, "heavy", body, 5 * LONG))
    await rounds(1)
    assert (light.done(), heavy.done()) == (True, True), "both in one iteration"
    all_queues = dict(bodies._queues)
    await rounds(2)
    assert (all_queues["light"].turn.locked(), all_queues["heavy"].turn.locked()) == (False, True)


@pytest.mark.parametrize("limit", ["share", "most"])
async def test_waiting_bodies_have_a_limit_and_a_timeout(limit, monkeypatch):
    monkeypatch.setattr(queues, "QUEUE_SECONDS", 0.05)
    bodies, body = BodyQueues(**{limit: 2 * LARGE}), b"x" * LARGE
    all_queues = [bodies._queues.setdefault(name, queues._Queue()) for name in "abc"]
    for queue in all_queues:
        await queue.turn.acquire()  # a body is being parsed and does not finish
    names = "aaa" if limit == "share" else "abc"
    ends = await asyncio.gather(*(read(bodies, name, body) for name in names), return_exceptions=True)
    assert [type(end) for end in ends] == [Problem] * 3
    assert {end.slug for end in ends} == {"busy"}
    refusal = "of this token are waiting" if limit == "share" else "bodies are waiting"
    assert [refusal in end.detail for end in ends] == [False, False, True]
    all_queues[0].turn.release()
    assert await read(bodies, "a", body) == body
    assert (bodies._waiting, [queue.waiting for queue in all_queues]) == (0, [0, 0, 0])


@pytest.mark.parametrize("memory", [64, 256, 2_048, 65_536])
def test_the_budgets_of_bodies_are_parts_of_the_memory(memory, tmp_path):
    (tmp_path / "memory.max").write_text(f"{memory << 20}\n")
    (tmp_path / "none").write_text("max\n")
    found = available_memory([tmp_path / name for name in ("missing", "none", "memory.max")])
    assert found == min(memory << 20, available_memory([]))
    budget = budget_of(memory << 20)
    assert (budget >> 20, share_of(budget) >> 20) == {
        64: (16, 16), 256: (32, 16), 2_048: (256, 64), 65_536: (256, 64)
    }[memory]  # fmt: skip
    assert share_of(budget) >= 2 * queues.BATCH_BODY_MAX


async def test_the_unfinished_bodies_of_one_token_have_a_limit(settings, monkeypatch):
    """One token's bodies that do not end are refused above its share; another token is served."""
    monkeypatch.setattr(queues, "share_of", lambda budget: 3 * 50_000)
    tokens = f"a:submit:{'a' * 32} b:submit:{'b' * 32}"
    async with (
        serving(settings, tokens=tokens, limits=Limits(linger_seconds=0.1)) as url,
        AsyncExitStack() as crowd,
    ):

        def begin(one, name):
            head = f"POST /jobs/batch HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {name * 32}\r\n"
            head += "Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
            one.write(head.encode() + b" " * 50_000)
            return asyncio.create_task(one.answer())

        wires = [await crowd.enter_async_context(wire(url)) for _ in range(8)]
        answers = [begin(one, "a") for one in wires[:7]]
        async with asyncio.timeout(20):
            while sum(one.done() for one in answers) < 4:
                await asyncio.sleep(0.01)
        assert {(one.result().status, one.result().problem) for one in answers if one.done()} == {
            (503, "busy")
        }
        other = begin(wires[7], "b")
        wires[7].write(b'{"jobs": []}'.rjust(50_000))
        assert (await other).status != 503
        for one in answers:
            one.cancel()


@pytest.mark.parametrize("left", [0, 1, 3])
async def test_cancelled_bodies_do_not_block_the_queue(left):
    """At whatever moment they are cancelled: the queue is free, no bytes count as waiting, and the
    remaining bodies are read.
    """
    bodies, body = BodyQueues(), b"x" * LARGE
    for when in range(12):
        reads = [asyncio.create_task(read(bodies, "a", body, LONG * (n == 0))) for n in range(50)]
        await rounds(when)
        for task in reads[left:]:
            task.cancel()
        done, _ = await asyncio.wait(reads, timeout=20)
        assert len(done) == 50
        assert [task.result() for task in reads[:left]] == [body] * left
        assert bodies._waiting == 0
        assert await asyncio.wait_for(read(bodies, "a", body), 20) == body


async def test_a_body_that_fails_to_parse_frees_the_queue():
    bodies, body = BodyQueues(), b"x" * LARGE

    async def from_the_wire(most, count=None):
        return body

    async def fail_to_parse():
        with bodies.enter("a", from_the_wire) as reader:
            await reader(LARGE)
            busy(3 * SHORT)
            raise Problem("not-json", "invalid")

    first, second = asyncio.create_task(fail_to_parse()), asyncio.create_task(read(bodies, "a", body))
    await rounds(1)
    assert (isinstance(first.exception(), Problem), second.done()) == (True, False)
    assert await asyncio.wait_for(second, 20) == body


async def test_heartbeats_do_not_wait_behind_the_other_bodies_of_their_token(settings):
    store = Store(settings)
    api = Api(store, Tokens(f"fleet:work,submit:{TOKEN}"))
    queue = api._queues._queues.setdefault("fleet", queues._Queue())
    await queue.turn.acquire()  # a body of the same token is being parsed and does not finish
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
    queue.turn.release()
    assert (await late).status == 200
    await store.aclose()


async def sent(api, path, body):
    raw = json.dumps(body).encode()

    async def from_the_wire(most, count=None):
        return raw

    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    assert len(raw) >= LARGE
    return await api.answer(Request("POST", path, headers=headers, read=from_the_wire))
