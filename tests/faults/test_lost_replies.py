"""Each verb over a connection that loses, cuts, delays and repeats data: a request has one effect, and its
sender gets the right reply.

The faults come from a proxy in front of a real server (`tests/faults/chaos/proxy.py`).
`tests/support/verb_scenes.py` has the effect of each verb and the reply to its copy. The data stored at the
end must be the same as after a run without faults.
"""

import asyncio
import random
import threading
import time
from typing import Any

import pytest
import redis

from sublet import SyncClient
from sublet.connection import transport as transports
from sublet.connection.settings import Settings, connect
from sublet.connection.transport import SyncTransport, Transport
from sublet.errors import JobsError, Unavailable
from sublet.model import Beat, Completion, Failure, Release, State, Submission, Submitted
from sublet.protocol import keys, reads, verbs
from sublet.protocol.scripts import NAMES, Call, refusal, script
from sublet.store.store import Store
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.faults.chaos.proxy import Fault, Proxy, Request, is_script, of
from tests.support import tasks
from tests.support.transports import sending
from tests.support.verb_scenes import claim_id, elsewhere, plain, reply_of, running, stage, stored, take

pytestmark = pytest.mark.real_server
SENDS = 3
"""The number of sends after which a call counts as an outage."""
QUICK = {
    Fault.LOSE_REQUEST: (2, 1, "first"),
    Fault.LOSE_REPLY: (2, 2, "again"),
    Fault.CUT: (2, 2, "again"),
    Fault.TWICE: (1, 2, "first"),
    Fault.TWICE_SECOND: (1, 2, "again"),
}
"""Faults that show at once → the number of sends, the number of runs, and the reply that the sender gets."""


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(transports, "PAUSES", (0.001,) * (SENDS - 1))


@pytest.fixture
def proxy(place, raw):
    """A proxy in front of a server that has every script: NOSCRIPT, and the EVAL after it, would count as
    calls.
    """
    for name in NAMES:
        raw.script_load(script(name).text)
    with Proxy(place.settings) as proxy:
        yield proxy


@pytest.fixture(params=["async", "sync"])
async def send(request, proxy):
    """Send a call through the proxy, over either transport."""
    async with sending(proxy.settings, request.param) as send:
        yield send


@pytest.fixture
def short_timeout(proxy):
    """Settings for a client with a short time-out."""
    return Settings(redis_url=proxy.settings.redis_url, namespace=proxy.settings.namespace, timeout=0.3)


def scripts_run(desk: Any) -> int:
    """The number of scripts that the server has run, by its own counter."""
    stats = desk.raw.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


async def without_faults(verb: str, desk: Any) -> tuple[dict[str, str], dict[str, str]]:
    """The data stored after one call of a verb without faults, and the replies as text: the first, and the one
    to a repeat.
    """
    calm = elsewhere(desk)
    await calm.run(verbs.init(calm.base))
    since, here = desk.now(), await stage(verb, calm)
    first = plain(await calm.run(here.call), calm, since)
    again = first if here.again is None else plain(here.again, calm, since)
    world = stored(calm, since)
    assert plain(await reply_of(calm.run(here.call)), calm, since) == again
    return world, {"first": first, "again": again}


async def bounded(work: Any) -> Any:
    """Wait for a reply, at most 30 s."""
    async with asyncio.timeout(30):
        return await work


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.name.lower())
@pytest.mark.parametrize("verb", NAMES)
async def test_a_request_has_one_effect_and_the_right_reply_under_each_fault(desk, proxy, send, verb, fault):
    world, answers = await without_faults(verb, desk)
    since, here = desk.now(), await stage(verb, desk)
    sent, ran, which = QUICK[fault]
    proxy.next(fault)
    before = scripts_run(desk)
    answer = await bounded(reply_of(send(here.call)))
    assert (proxy.sent(), proxy.ran(of(verb)), scripts_run(desk) - before) == (sent, ran, ran)
    assert plain(answer, desk, since) == answers[which]
    assert stored(desk, since) == world
    assert len({request.raw for request in proxy.requests if is_script(request)}) == 1, "the same bytes"


@pytest.mark.parametrize("verb", NAMES)
async def test_a_copy_that_arrives_after_a_later_change_has_no_effect(desk, proxy, send, verb):
    """The first copy is delayed; the second one is answered; then the job changes, and the first copy arrives."""
    world, answers = await without_faults(verb, desk)
    since, here = desk.now(), await stage(verb, desk)
    proxy.next(Fault.LATE)
    answer = await bounded(send(here.call))
    assert (proxy.sent(), proxy.ran()) == (2, 1)
    assert plain(answer, desk, since) == answers["first"]
    assert stored(desk, since) == world
    await here.moves(answer)
    before = desk.everything()
    (late,) = proxy.deliver()
    if isinstance(here.late, type):
        assert type(refusal(str(late))) is here.late
    else:
        assert plain(here.call.read(late), desk, since).replace("<1>", "<0>") == plain(here.late, desk, since)
    after = desk.everything()
    for everything in (before, after):
        if verb == "reap":  # it records the last maintenance
            everything[desk.base].pop("maintenance")
        if verb == "enlist":  # it records the last heartbeat
            everything.pop(keys.workers(desk.base))
        if verb == "summon":  # it records its observation
            everything.pop(keys.pool(desk.base, "p"))
    assert after == before


@pytest.mark.parametrize("verb", NAMES)
async def test_a_loss_of_every_reply_is_an_outage_with_one_effect(desk, proxy, send, verb):
    """redis-py would send eleven times by default; we send three times, and a later repeat gets the reply."""
    world, answers = await without_faults(verb, desk)
    since, here = desk.now(), await stage(verb, desk)
    proxy.next(Fault.LOSE_REPLY, times=100)
    before = scripts_run(desk)
    with pytest.raises(Unavailable, match="no answer from Redis"):
        await bounded(send(here.call))
    assert (proxy.sent(), proxy.ran(), scripts_run(desk) - before) == (SENDS, SENDS, SENDS)
    assert stored(desk, since) == world
    assert plain(await reply_of(desk.run(here.call)), desk, since) == answers["again"]


# silence, which only a clock can detect


@pytest.mark.parametrize("kind", [Transport, SyncTransport], ids=["async", "sync"])
@pytest.mark.parametrize("verb", ["claim", "complete"])
async def test_after_a_time_out_the_same_call_is_sent_again(desk, proxy, short_timeout, kind, verb):
    world, answers = await without_faults(verb, desk)
    since, here = desk.now(), await stage(verb, desk)
    proxy.next(Fault.SILENCE)
    transport = kind(short_timeout)
    begin = time.monotonic()
    answer = await bounded(
        transport.run(here.call) if kind is Transport else asyncio.to_thread(transport.run, here.call)
    )
    assert short_timeout.timeout <= time.monotonic() - begin < 10
    assert proxy.sent() == proxy.ran() == 2
    assert plain(answer, desk, since) == answers["again"]
    assert stored(desk, since) == world
    await transport.aclose() if kind is Transport else transport.close()


@pytest.mark.parametrize("kind", [Transport, SyncTransport], ids=["async", "sync"])
async def test_a_silent_connection_costs_three_time_outs(desk, proxy, short_timeout, kind):
    await desk.submit("a")
    proxy.next(Fault.SILENCE, times=100)
    transport = kind(short_timeout)
    call = verbs.cancel(desk.base, "a", 0)
    begin = time.monotonic()
    with pytest.raises(Unavailable):
        await bounded(transport.run(call) if kind is Transport else asyncio.to_thread(transport.run, call))
    assert SENDS * short_timeout.timeout <= time.monotonic() - begin < 15
    assert (proxy.sent(), proxy.ran()) == (SENDS, SENDS)
    assert (desk.state("a"), desk.counter("cancelled")) == ("cancelled", 1)
    await transport.aclose() if kind is Transport else transport.close()


async def test_a_claim_delayed_past_its_time_out_takes_no_second_job(desk, proxy, short_timeout):
    await desk.submit("a", "b")
    proxy.next(Fault.HOLD)
    transport = Transport(short_timeout)
    call = verbs.claim(desk.base, claim_id=claim_id("one"), worker="w", lease=30, n=1, queues=["q"])
    claimed = await bounded(transport.run(call))
    proxy.release()
    await asyncio.to_thread(tasks.eventually, lambda: proxy.ran() == 2)
    assert [lease.id for lease in claimed.leases] == desk.members("running") == ["a"]
    assert desk.members("queue:q") == ["b"]
    await transport.aclose()


async def test_a_claim_cancelled_before_its_reply_releases_its_jobs(desk, proxy, short_timeout):
    """By the claim id, which names the taken jobs, and before the store is closed."""
    await desk.ask(0)  # so that the server knows the script
    await desk.submit("0-a")
    store = Store(short_timeout)
    await store.prepare()
    proxy.next(Fault.SILENCE, of("claim"))
    claiming = asyncio.create_task(store.claim(worker="w", queues=["q"], n=1, lease=600))
    async with asyncio.timeout(20):
        while desk.members("running") != ["0-a"]:
            await asyncio.sleep(0.005)
    claiming.cancel()
    await asyncio.wait([claiming])
    assert claiming.cancelled()
    await store.aclose()
    assert (desk.members("queue:q"), desk.members("running"), desk.counter("released")) == (["0-a"], [], 1)


async def test_a_cancelled_claim_that_was_repeated_elsewhere_keeps_its_jobs(desk, proxy):
    """By the same claim id: otherwise the cancelled call would release jobs that the caller has received
    elsewhere.
    """
    await desk.ask(0)  # so that the server knows the script
    await desk.submit("0-a")
    store = Store(proxy.settings)
    await store.prepare()
    proxy.next(Fault.SILENCE, of("claim"))
    claiming = asyncio.create_task(
        store.claim(worker="w", queues=["q"], n=1, lease=600, claim_id=claim_id("a"))
    )
    async with asyncio.timeout(20):
        while desk.members("running") != ["0-a"]:
            await asyncio.sleep(0.005)
    (lease,) = await desk.claim(claim_id=claim_id("a"))
    claiming.cancel()
    await asyncio.wait([claiming])
    await store.aclose()
    assert (desk.members("running"), desk.counter("lease_lost"), desk.counter("released")) == (["0-a"], 1, 0)
    assert await desk.complete(lease) == "completed"


@pytest.mark.parametrize("kind", [Transport, SyncTransport], ids=["async", "sync"])
async def test_a_read_without_a_reply_is_sent_as_often_as_any_call(desk, proxy, kind):
    """redis-py would send eleven times by default."""
    await desk.submit("a")
    proxy.next(Fault.LOSE_REPLY, lambda request: request.words[0] == b"HMGET", times=100)
    transport, call = kind(proxy.settings), reads.summaries(desk.base, ["a"])
    with pytest.raises(Unavailable, match="no answer from Redis"):
        await bounded(transport.run(call) if kind is Transport else asyncio.to_thread(transport.run, call))
    assert sum(request.words[0] == b"HMGET" for request in proxy.requests) == SENDS
    await transport.aclose() if kind is Transport else transport.close()


async def test_a_memo_is_kept_longer_than_a_claim_is_repeated(desk):
    await desk.submit("a", "b")
    call = verbs.claim(desk.base, claim_id=claim_id("one"), worker="w", lease=30, n=1, queues=["q"])
    first = await desk.run(call)
    desk.elapse(len(transports.PAUSES) * (Settings().timeout + 1))
    assert [lease.token for lease in (await desk.run(call)).leases] == [lease.token for lease in first.leases]
    assert desk.members("queue:q") == ["b"]


async def test_a_copy_of_a_claim_after_its_memo_expired_holds_a_job_for_one_lease(desk, proxy):
    """A memo lives for 10 s, longer than any repetition. No caller waits for the reply to a copy that the
    network delays for longer.
    """
    await desk.submit("a", "b")
    transport = Transport(proxy.settings)
    proxy.next(Fault.LATE)
    call = verbs.claim(desk.base, claim_id=claim_id("one"), worker="w", lease=30, n=1, queues=["q"])
    (mine,) = (await transport.run(call)).leases
    desk.elapse(11)
    proxy.deliver()
    assert desk.members("running") == ["a", "b"]
    assert await desk.complete(mine) == "completed"
    desk.elapse(31)
    lease = await desk.take("b")
    assert (lease.attempt, lease.recovered) == (2, "lease_expired")
    await transport.aclose()


async def test_a_copy_of_an_empty_claim_holds_a_job_for_one_lease(desk, proxy):
    """A claim that takes nothing writes nothing, so it has no memo: the price of idle workers without writes."""
    transport = Transport(proxy.settings)
    proxy.next(Fault.LATE)
    call = verbs.claim(desk.base, claim_id=claim_id("any"), worker="w", lease=30, n=1, queues=["q"])
    assert (await transport.run(call)).leases == []
    await desk.submit("a")
    proxy.deliver()
    assert desk.members("running") == ["a"]
    desk.elapse(31)
    lease = await desk.take("a")
    assert (lease.attempt, lease.recovered) == (2, "lease_expired")
    await transport.aclose()


# several commands in one packet


@pytest.mark.parametrize(
    "fault", [Fault.LOSE_REPLY, Fault.LOSE_REQUEST, Fault.CUT], ids=lambda fault: fault.name.lower()
)
@pytest.mark.parametrize("hit", ["complete", "fail", "release", "heartbeat", "claim"])
async def test_each_call_of_a_packet_has_one_effect_and_its_own_reply(desk, proxy, hit, fault):
    await desk.submit("done", "failed", "back", "beats", "next")
    done, failed, back, beats = await desk.claim(4)
    calls: dict[str, Call[Any]] = {
        "complete": verbs.complete(desk.base, [Completion(done, b"1")]),
        "fail": verbs.fail(desk.base, [Failure(failed, "Boom", again=False)]),
        "release": verbs.release(desk.base, [Release(back, 1000)]),
        "heartbeat": verbs.heartbeat(desk.base, [Beat(beats)], lease=60),
        "claim": verbs.claim(desk.base, claim_id=claim_id("next"), worker="w", lease=30, n=1, queues=["q"]),
    }
    transport = Transport(proxy.settings)
    proxy.next(fault, of(hit))
    answers = dict(
        zip(calls, await bounded(asyncio.gather(*map(transport.run, calls.values()))), strict=True)
    )
    assert (answers["complete"], answers["fail"]) == (["completed"], ["dead"])
    assert answers["release"] == [f"scheduled {desk.score('scheduled', 'back')}"]
    assert answers["heartbeat"] == [desk.score("running", "beats")]
    assert [(lease.id, lease.attempt) for lease in answers["claim"].leases] == [("next", 1)]
    assert [desk.state(i) for i in ("done", "failed", "back", "beats", "next")] == (
        ["completed", "dead", "scheduled", "running", "running"]
    )
    assert [desk.counter(name) for name in ("completed", "failed", "dead", "released")] == [1, 1, 1, 1]
    assert [jobs for jobs, state, _ in desk.events() if state != "queued"] == [
        "done failed back beats",
        *desk_order(desk),
    ]
    await transport.aclose()


def desk_order(desk: Any) -> list[str]:
    """The jobs that changed after the first claim, in order; none may occur twice."""
    moved = [jobs for jobs, state, _ in desk.events() if state != "queued"][1:]
    assert sorted(moved) == sorted(["done", "failed", "back", "next"])
    return moved


# a repeat meets a state that would refuse it


async def test_a_repeated_submit_that_filled_its_queue_is_not_refused(desk, proxy, send):
    await desk.operate_queue("configure", "q", 0, "jobs=1 bytes=10")
    proxy.next(Fault.LOSE_REPLY)
    jobs = [Submission("a", "q", "t", "", b"x" * 10), Submission("b", "q", "t", "", b"x")]
    first, second = await send(verbs.submit(desk.base, jobs))
    assert (first, second.partition(" ")[0]) == (Submitted("a", False), "QUEUE_FULL")
    assert (desk.members("queue:q"), desk.backlog()) == (["a"], (1, 10))


async def test_a_repeated_claim_from_a_queue_paused_meanwhile_keeps_its_jobs(desk, proxy, send):
    await desk.submit("a", "b")
    call = verbs.claim(desk.base, claim_id=claim_id("one"), worker="w", lease=30, n=1, queues=["q"])
    proxy.next(Fault.LATE)
    (lease,) = (await send(call)).leases
    await desk.operate_queue("pause")
    assert (
        [again.id for again in call.read(proxy.deliver()[0]).leases] == [lease.id] == desk.members("running")
    )
    assert await desk.complete(lease) == "completed"
    assert desk.backlog() == (1, 2)


async def test_a_repeated_retry_that_took_its_key_is_not_refused(desk, proxy, send):
    await desk.fail(await running(desk, "a", "key=k"), again=False)
    proxy.next(Fault.LOSE_REPLY, times=SENDS - 1)
    assert await send(verbs.retry(desk.base, "a", 1)) == "queued"
    assert (desk.members("queue:q"), desk.revision("a")) == (["a"], 2)


# outcomes of running jobs


async def test_a_repeated_cancel_of_a_running_job_is_one_request(desk, proxy, send):
    lease = await running(desk, "a")
    proxy.next(Fault.LATE)
    assert await send(verbs.cancel(desk.base, "a", 1)) == "requested"
    assert await desk.heartbeat(lease) == "CANCEL_REQUESTED"
    assert await desk.fail(lease, code="cancelled", again=False) == "cancelled"
    before = desk.everything()
    assert proxy.deliver() == [b"requested"]
    assert desk.everything() == before
    assert (desk.revision("a"), desk.counter("cancelled")) == (2, 1)


async def test_a_late_completion_does_not_overwrite_the_result_of_another(desk, proxy):
    lease = await running(desk, "a")
    transport = Transport(proxy.settings)
    proxy.next(Fault.LATE, times=SENDS)
    with pytest.raises(Unavailable):
        await transport.run(verbs.complete(desk.base, [Completion(lease, b'"mine"')]))
    desk.elapse(180)
    other = await take(desk, "a")
    assert await desk.complete(other, b'"another"') == "completed"
    before = desk.everything()
    assert proxy.deliver() == [[b"LEASE_LOST"]] * SENDS
    assert desk.everything() == before
    await transport.aclose()


async def test_a_late_heartbeat_does_not_bring_a_lease_back(desk, proxy):
    lease = await running(desk, "a")
    transport = Transport(proxy.settings)
    proxy.next(Fault.LATE, times=SENDS)
    with pytest.raises(Unavailable):
        await transport.run(verbs.heartbeat(desk.base, [Beat(lease, b"1")], lease=100))
    assert await desk.complete(lease) == "completed"
    before = desk.everything()
    assert proxy.deliver() == [[b"LEASE_LOST"]] * SENDS
    assert desk.everything() == before
    await transport.aclose()


# clients, stores and workers


def test_a_sync_client_gets_the_right_replies(place, proxy, raw):
    with SyncClient(proxy.settings) as client:
        proxy.next(Fault.LOSE_REPLY, of("init"))
        proxy.next(Fault.LOSE_REPLY, of("submit"))
        handle = client.submit("t")
        assert handle.created
        for verb, answer in (("cancel", "cancelled"), ("retry", "queued"), ("cancel", "cancelled")):
            proxy.next(Fault.LOSE_REPLY, of(verb))
            assert getattr(client, verb)(handle.id) == answer
        proxy.next(Fault.CUT, of("watch"))
        with pytest.raises(JobsError, match="was cancelled"):
            client.result(handle.id, timeout=5)
        assert client.get(handle.id).revision == 3
        for verb, limits in (("pause", {}), ("resume", {}), ("configure", {"jobs": 5})):
            proxy.next(Fault.LOSE_REPLY, of(verb))
            assert getattr(client, verb)("q", **limits) in ("paused", "resumed", "jobs=5")
        assert client.stats()[0].totals | {"submitted": 1, "cancelled": 2} == client.stats()[0].totals
    assert {
        name: proxy.ran(of(name)) for name in ("init", "submit", "retry", "watch", "pause", "configure")
    } == ({"init": 2, "submit": 2, "retry": 2, "watch": 2, "pause": 2, "configure": 2})


async def test_a_store_gets_the_right_replies(desk, proxy):
    store = Store(
        proxy.settings, blocking=connect(Settings(redis_url=proxy.settings.redis_url), blocking=True)
    )
    proxy.next(Fault.LOSE_REPLY, of("submit"))
    jobs = [Submission(f"0-{i}", "q", "t", "", b"{}") for i in range(300)]
    assert [job.id for job in await store.submit(jobs)] == [job.id for job in jobs]
    proxy.next(Fault.LOSE_REPLY, of("claim"))
    claimed = await store.claim(worker="w", queues=["q"], n=100, lease=30)
    assert len(claimed.leases) == 100
    proxy.next(Fault.CUT, of("complete"))
    proxy.next(Fault.LOSE_REPLY, of("release"))
    endings = [Completion(x, b"1") if i % 2 else Release(x) for i, x in enumerate(claimed.leases)]
    assert await store.settle(endings) == ["queued", "completed"] * 50
    proxy.next(Fault.LOSE_REPLY, of("watch"))
    assert (await store.watch(claimed.leases[1].id, 5)).state is State.COMPLETED
    assert [desk.counter(name) for name in ("submitted", "completed", "released", "expired")] == [
        300,
        50,
        50,
        0,
    ]
    await store.aclose()


@pytest.mark.parametrize("seed", [1, 2])
async def test_workers_and_producers_with_connection_faults_run_each_job_once(desk, proxy, monkeypatch, seed):
    """One script in eight meets a fault. No job is lost or run twice, and no lease ends for it.

    A claim behind a blocking read whose reply is lost gives its job back: some jobs may be released.
    """
    monkeypatch.setattr(transports, "PAUSES", (0.001,) * 20)  # other calls of a packet meet the same faults
    dice, faults = random.Random(seed), [*QUICK, Fault.LATE]

    def decide(request: Request) -> Fault | None:
        fault = dice.choice(faults) if is_script(request) and dice.random() < 1 / 8 else None
        unanswered = fault is Fault.TWICE and of("claim")(
            request
        )  # the second copy of an empty claim may take a job: see above
        return None if unanswered else fault

    proxy.decide = decide
    store = Store(proxy.settings)
    worker = Worker(tasks.app, store, WorkerConfig(slots=8, name="w"))
    working = asyncio.create_task(worker.run())
    handles = await asyncio.to_thread(produce, proxy.settings, 150)
    async with asyncio.timeout(60):
        while desk.counter("completed") < len(handles):
            await asyncio.sleep(0.01)
        worker.stop()
        summary = await working
    proxy.decide = lambda _: None
    proxy.deliver()
    await store.aclose()
    assert (summary.completed, summary.refused) == (150, 0)
    totals = {name: desk.counter(name) for name in ("submitted", "completed", "failed", "expired")}
    assert totals == {"submitted": 150, "completed": 150, "failed": 0, "expired": 0}
    moves = [job for jobs, state, _ in desk.events() if state == "completed" for job in jobs.split()]
    assert sorted(moves) == sorted(handles)
    assert desk.members("running") == []


def produce(settings: Settings, n: int) -> list[str]:
    with SyncClient(settings) as client:
        return [client.submit("add", {"a": i}).id for i in range(n)]


# the proxy itself


def test_the_proxy_separates_the_commands_of_a_packet_and_leaves_no_thread(place, raw):
    with Proxy(place.settings) as proxy, redis.Redis.from_url(proxy.settings.redis_url, protocol=3) as client:
        proxy.next(Fault.TWICE, lambda request: request.words[1].endswith(b"b"))
        name = f"{{{place.settings.namespace}:0}}:"
        with client.pipeline(transaction=False) as pipe:
            pipe.incr(name + "a").incr(name + "b").incr(name + "c").hset(name + "h", "x", "1").hgetall(
                name + "h"
            )
            assert pipe.execute() == [1, 1, 1, 1, {b"x": b"1"}]
        assert raw.mget(name + "a", name + "b", name + "c") == ["1", "2", "1"]
        assert [len(request.replies) for request in list(proxy.requests)[-5:]] == [1, 2, 1, 1, 1]
    assert "proxy" not in {thread.name for thread in threading.enumerate()}
