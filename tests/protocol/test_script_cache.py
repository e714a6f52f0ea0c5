"""A server may lose scripts at any moment (SCRIPT FLUSH, a restart, a failover): calls work nevertheless, and have one effect."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sublet import SyncClient
from sublet.connection.settings import Settings
from sublet.connection.transport import SyncTransport, Transport
from sublet.model import Beat, Completion, Submission, Submitted
from sublet.protocol import verbs
from sublet.protocol.scripts import NAMES, script
from sublet.store.store import Store
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.faults.chaos.proxy import Fault, Proxy, of
from tests.support import tasks
from tests.support.transports import sending
from tests.support.verb_scenes import claim_id, elsewhere, plain, stage, stored

pytestmark = pytest.mark.real_server


@contextmanager
def forgetful(place: Any) -> Iterator[list[int]]:
    """While entered, the scripts of the server are flushed as fast as possible; the list has the number of times."""
    times, over, client = [0], threading.Event(), place.raw()

    def forget() -> None:
        while not over.is_set():
            client.script_flush()
            times[0] += 1

    thread = threading.Thread(target=forget, name="forgetting")
    thread.start()
    try:
        yield times
    finally:
        over.set()
        thread.join(10)
        client.close()


def calls(raw: Any) -> dict[str, int]:
    """How often a script was called by its SHA, and how often it was sent as text."""
    stats = raw.info("commandstats")
    return {name: stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval")}


def since(before: dict[str, int], raw: Any) -> dict[str, int]:
    return {name: n - before[name] for name, n in calls(raw).items()}


@pytest.fixture(params=["async", "sync"])
async def send(request, place):
    """Sends a call over either transport."""
    async with sending(place.settings, request.param) as send:
        yield send


def produce(settings: Settings, n: int) -> list[str]:
    with SyncClient(settings) as client:
        return [client.submit("add", {"a": i}).id for i in range(n)]


async def test_workers_and_producers_work_on_a_server_that_keeps_losing_scripts(desk, place):
    store = Store(place.settings)
    worker = Worker(tasks.app, store, WorkerConfig(slots=10, name="w"))
    before = calls(desk.raw)
    with forgetful(place) as times:
        working = asyncio.create_task(worker.run())
        batch = [Submission(f"0-{i}", "default", "add", "", b'{"a":1}') for i in range(200)]
        ids, stored = await asyncio.gather(
            asyncio.to_thread(produce, place.settings, 100), store.submit(batch)
        )
        handles = [*ids, *(job.id for job in stored)]
        async with asyncio.timeout(60):
            while desk.counter("completed") < len(handles):
                await asyncio.sleep(0.01)
            worker.stop()
            summary = await working
    await store.aclose()
    assert times[0] > 0
    assert since(before, desk.raw)["eval"] > 0, (
        "the server never lost a script during a call: the test showed nothing"
    )
    assert (summary.completed, summary.refused) == (300, 0)
    totals = {
        name: desk.counter(name) for name in ("submitted", "completed", "failed", "released", "expired")
    }
    assert totals == {"submitted": 300, "completed": 300, "failed": 0, "released": 0, "expired": 0}
    assert sorted(
        i for jobs, state, _ in desk.events() if state == "completed" for i in jobs.split()
    ) == sorted(handles)


@pytest.mark.parametrize("verb", NAMES)
async def test_a_script_missing_on_the_server_is_sent_as_text_and_runs_once(desk, send, verb):
    calm = elsewhere(desk)
    await calm.run(verbs.init(calm.base))
    begin, other = desk.now(), await stage(verb, calm)
    expected, world = plain(await calm.run(other.call), calm, begin), stored(calm, begin)
    begin, here = desk.now(), await stage(verb, desk)
    desk.raw.script_flush()
    before = calls(desk.raw)
    assert plain(await send(here.call), desk, begin) == expected
    assert since(before, desk.raw) == {"evalsha": 1, "eval": 1}
    assert stored(desk, begin) == world


PAIR = ("complete", "claim")


@pytest.mark.parametrize(
    "known", [(), ("claim",), ("complete",), PAIR], ids=lambda known: "+".join(known) or "none"
)
async def test_each_of_two_calls_in_a_packet_runs_once_if_one_script_is_missing(desk, place, known):
    """A worker's completions and its next claim are sent in one turn; the one that gets NOSCRIPT is sent again alone."""
    await desk.submit("a", "b", "c")
    held = await desk.take("a")
    desk.raw.script_flush()
    for name in known:
        desk.raw.script_load(script(name).text)
    before, transport = calls(desk.raw), Transport(place.settings)
    ended, claimed = await asyncio.gather(
        transport.run(verbs.complete(desk.base, [Completion(held, b"1")])),
        transport.run(
            verbs.claim(desk.base, claim_id=claim_id("next"), worker="w", lease=30, n=1, queues=["q"])
        ),
    )
    await transport.aclose()
    assert since(before, desk.raw) == {"evalsha": 2, "eval": 2 - len(known)}
    assert (ended, [(lease.id, lease.attempt) for lease in claimed.leases]) == (["completed"], [("b", 1)])
    assert (desk.counter("completed"), desk.members("running"), desk.members("queue:q")) == (1, ["b"], ["c"])
    moves = [event for event in desk.events() if event[1] != "queued"]
    assert sorted(moves) == [("a", "completed", "completed"), ("a", "running", "w"), ("b", "running", "w")]


async def test_the_replies_of_a_packet_have_the_order_of_its_calls(desk, place):
    """Every other verb is unknown; each caller gets the answer to its own call."""
    await desk.submit(*(f"j{i}" for i in range(40)))
    leases = await desk.claim(40)
    desk.raw.script_flush()
    desk.raw.script_load(script("heartbeat").text)
    transport, before = Transport(place.settings), calls(desk.raw)
    work = []
    for i, lease in enumerate(leases):
        ends = verbs.complete(desk.base, [Completion(lease, b"1")])
        work.append(
            transport.run(ends if i % 2 else verbs.heartbeat(desk.base, [Beat(lease)], lease=100 + i))
        )
    answers = await asyncio.gather(*work)
    await transport.aclose()
    for i, (lease, answer) in enumerate(zip(leases, answers, strict=True)):
        assert answer == (["completed"] if i % 2 else [desk.score("running", lease.id)])
    assert since(before, desk.raw) == {"evalsha": 40, "eval": 20}


@pytest.mark.parametrize("kind", [Transport, SyncTransport], ids=["async", "sync"])
async def test_a_missing_script_with_a_lost_reply_has_one_effect(desk, place, kind):
    """EVALSHA gets NOSCRIPT, EVAL runs, its reply is lost; by then the server has the script, and the memo the answer."""
    await desk.submit("a", "b")
    desk.raw.script_flush()
    call = verbs.claim(desk.base, claim_id=claim_id("one"), worker="w", lease=30, n=1, queues=["q"])
    with Proxy(place.settings) as proxy:
        proxy.next(Fault.LOSE_REPLY, lambda request: request.words[0] == b"EVAL")
        transport = kind(proxy.settings)
        claimed = await (transport.run(call) if kind is Transport else asyncio.to_thread(transport.run, call))
        assert [request.words[0] for request in proxy.requests if of("claim")(request)] == [
            b"EVALSHA",
            b"EVAL",
            b"EVALSHA",
        ]
        await transport.aclose() if kind is Transport else transport.close()
    assert [lease.id for lease in claimed.leases] == desk.members("running") == ["a"]
    assert desk.members("queue:q") == ["b"]


async def test_a_script_lost_between_two_sends_is_sent_again(desk, place):
    """The first send runs as text and its reply is lost; then the scripts are flushed: the second send is text, too."""
    desk.raw.script_flush()
    with Proxy(place.settings) as proxy:

        def decide(request: Any) -> Fault | None:
            if not of("submit")(request) or request.words[0] != b"EVAL" or desk.counter("submitted"):
                return None
            return Fault.LOSE_REPLY

        proxy.decide = decide
        transport = Transport(proxy.settings)
        sending = asyncio.create_task(
            transport.run(verbs.submit(desk.base, [Submission("a", "q", "t", "", b"{}")]))
        )
        await asyncio.to_thread(tasks.eventually, lambda: desk.counter("submitted") == 1)
        desk.raw.script_flush()
        assert await sending == [Submitted("a", False)]
        await transport.aclose()
    assert desk.counter("submitted") == 1
