"""Registered workers, by plans: the list, the leases of each, the end of leases of dead workers."""

import itertools
import json

import pytest
import redis

from sublet.connection.settings import Settings
from sublet.connection.transport import SyncTransport, follow_sync
from sublet.errors import Changed, NotFound
from sublet.model import Card, Release, Submission
from sublet.operations import workers
from sublet.operations.operations import Operations
from sublet.protocol import keys, verbs
from sublet.store.store import Store
from sublet.worker import host_identity
from sublet.worker.registration import Registration

GONE = {"gone": "1"}


def card(worker, life="1", **about):
    return Card(worker, life, "", json.dumps(about).encode())


async def put(store, n, queue="q"):
    await store.submit([store.operations.submission("t", b"{}", queue, "") for _ in range(n)])


async def hold(store, worker, n, queue="q"):
    """Let a worker hold n leases."""
    await put(store, n, queue)
    leases = []
    while len(leases) < n:
        leases += (
            await store.claim(worker=worker, queues=[queue], n=min(100, n - len(leases)), lease=60)
        ).leases
    return leases


async def test_workers_are_listed_with_their_leases_the_latest_first(store, desk):
    await store.enlist(Card("one", "1", "pod-0", b'{"host": "h", "pid": 7, "slots": 2}'))
    await store.enlist(card("two"))
    held = await hold(store, "one", 2)
    desk.elapse(60)
    await store.enlist(card("two", completed=3))
    await desk.drain("one")
    two, one = await store.follow(store.operations.workers())
    assert (one.name, one.life, one.worker_id, one.draining, two.draining) == (
        "one",
        "1",
        "pod-0",
        True,
        False,
    )
    assert (one.about, two.about) == ({"host": "h", "pid": 7, "slots": 2}, {"completed": 3})
    assert (one.leases, sorted(one.jobs)) == (2, sorted(lease.id for lease in held))
    assert (two.leases, two.jobs) == (0, ())
    assert 59 < (two.seen_at - one.seen_at).total_seconds() < 65
    assert one.enlisted_at == one.seen_at
    assert [(w.name, w.leases) for w in await store.workers()] == [("two", 0), ("one", 0)], (
        "without reading the jobs"
    )


async def test_the_time_of_a_workers_last_job_is_listed(store):
    words = {"one": 90.5, "two": 0, "three": -1, "four": "soon", "five": True, "six": 1e300}
    await store.enlist(card("none"))
    for name, last_job in words.items():
        await store.enlist(card(name, last_job=last_job))
    found = {worker.name: worker for worker in await store.workers()}
    assert {name for name, worker in found.items() if worker.last_job_at} == {"one", "two"}
    assert (found["one"].seen_at - found["one"].last_job_at).total_seconds() == 90.5
    assert found["two"].last_job_at == found["two"].seen_at


@pytest.mark.parametrize("score", ["inf", "-inf", "1e17"])
async def test_an_invalid_registration_hides_no_worker(store, desk, score):
    """An invalid time, a name that is not text, an attempt that is not a number: they are skipped."""
    for name in ("w", "spoiled"):
        await store.enlist(card(name))
    (held, _) = await hold(store, "w", 2)
    desk.raw.zadd(keys.workers(desk.base), {"spoiled": float(score), b"\xff": desk.now()})
    desk.raw.zadd(keys.workers(desk.base), {f"many{n}": float(score) for n in range(workers.MOST)})
    desk.raw.zadd(keys.workers(desk.base), {"a b": desk.now()})
    desk.raw.hset(keys.worker(desk.base, "a b"), mapping=desk.registration("w"))
    desk.raw.hset(keys.worker(desk.base, "w"), b"\xff", "")
    desk.raw.hset(keys.job(desk.base, held.id), "attempt", "spoiled")
    desk.raw.zadd(keys.structure(desk.base, "running"), {b"\xff": desk.now()})
    assert [(worker.name, worker.leases) for worker in await store.follow(store.operations.workers())] == [
        ("w", 1)
    ]


async def test_a_predecessor_beyond_the_thousand_seen_last_is_taken_over(store, desk):
    """A dead worker is the one that was seen first."""
    me = host_identity.identity()
    await store.enlist(card("dead", **me | {"pid": 2**22 + 1}))
    (lease,) = await hold(store, "dead", 1)
    desk.elapse(1)
    await store.enlist(card("w"))
    about, at = desk.raw.hgetall(keys.worker(desk.base, "w")), desk.raw.zscore(keys.workers(desk.base), "w")
    with desk.raw.pipeline(transaction=False) as pipe:
        for n in range(workers.MOST):
            pipe.hset(keys.worker(desk.base, f"w-{n}"), mapping=about)
            pipe.zadd(keys.workers(desk.base), {f"w-{n}": at})
        pipe.execute()
    assert len(await store.follow(store.operations.workers())) == workers.MOST
    assert len(await store.workers()) == workers.MOST + 2
    assert await Registration(store, "me", dict).enlist() == 1
    assert (await store.follow(store.operations.get(lease.id))).state == "queued"


async def test_a_worker_in_another_language_may_have_any_description(store):
    await store.enlist(Card("text", "1", "", b"not JSON, \xff"))
    await store.enlist(Card("list", "1", "", b"[1]"))
    await store.enlist(Card("none", "1", "", b""))
    assert {worker.name: worker.about for worker in await store.workers()} == {
        "text": {},
        "list": {},
        "none": {},
    }


async def test_an_empty_namespace_lists_no_workers(store):
    await store.prepare()
    assert await store.follow(store.operations.workers()) == []
    assert await store.reconcile({}) == 0
    assert await store.reconcile(GONE) == 0


async def test_a_worker_that_leaves_between_two_reads_is_left_out(store, raw, base):
    await store.enlist(card("w"))
    raw.zadd(keys.workers(base), {"gone": raw.zscore(keys.workers(base), "w")})
    assert [worker.name for worker in await store.follow(store.operations.workers())] == ["w"]


@pytest.mark.parametrize(
    "spoiled",
    [
        {"enlisted_at": None},
        {"enlisted_at": "soon"},
        {"enlisted_at": "9" * 15},
        {"enlisted_at": ""},
        {"life": None},
        {"life": b"\xff"},
    ],
)
async def test_an_incomplete_registration_is_left_out_and_hides_no_other(store, desk, raw, base, spoiled):
    """The rest of a call that was denied half-way, or of a DEL: `doctor` reports it."""
    for name in ("half", "whole"):
        await store.enlist(card(name))
    for field, value in spoiled.items():
        raw.hdel(keys.worker(base, "half"), field)
        if value is not None:
            raw.hset(keys.worker(base, "half"), field, value)
    assert [worker.name for worker in await store.workers()] == ["whole"]
    assert [worker.name for worker in await store.follow(store.operations.workers())] == ["whole"]
    with pytest.raises(NotFound):
        await store.follow(store.operations.drain("half"))
    assert await store.reconcile({"half": "1"}) == 0
    await store.enlist(card("half", "2"))
    assert sorted(worker.name for worker in await store.workers()) == ["half", "whole"]


async def test_at_most_a_hundred_jobs_of_a_worker_are_named(store):
    await store.enlist(card("w"))
    await hold(store, "w", 130)
    (worker,) = await store.follow(store.operations.workers())
    assert (worker.leases, len(worker.jobs)) == (130, 100)


async def test_the_leases_of_a_dead_worker_end_and_those_of_others_stay(store, desk):
    await store.enlist(card("gone"))
    await store.enlist(card("alive"))
    await hold(store, "gone", 3)
    kept = await hold(store, "alive", 3)
    assert await store.reconcile(GONE) == 3
    assert sorted(desk.members("running")) == sorted(lease.id for lease in kept)
    assert desk.enlisted() == ["alive"]
    assert await store.reconcile(GONE) == 0


async def test_the_leases_of_two_dead_workers_end_in_one_operation(store, desk):
    for name in ("one", "two", "alive"):
        await store.enlist(card(name, life=name))
        await hold(store, name, 4)
    assert await store.reconcile({"one": "one", "two": "two"}) == 8
    assert (desk.enlisted(), len(desk.members("running")), len(desk.members("queue:q"))) == (["alive"], 4, 8)


class Watched:
    """Follows a plan, with an action between every two of its calls."""

    def __init__(self, store, between):
        self.store, self.between, self.calls = store, between, 0

    async def follow(self, plan):
        answer = None
        while True:
            try:
                call = plan.send(answer)
            except StopIteration as end:
                return end.value
            answer = await self.store.run(call)
            self.calls += 1
            await self.between(self.calls)


async def test_no_lease_is_missed_while_many_begin_and_end(store, desk):
    """More than one page of running jobs, and in every pause some others end and new ones begin."""
    await store.enlist(card("gone"))
    await store.enlist(card("alive"))
    others = await hold(store, "alive", 700)
    lost = await hold(store, "gone", 250)
    others += await hold(store, "alive", 700)

    async def between(calls):
        await store.settle([Release(lease) for lease in others[:40]])
        del others[:40]
        others.extend((await store.claim(worker="alive", queues=["q"], n=60, lease=60)).leases)

    watched = Watched(store, between)
    assert await watched.follow(workers.reconcile(store.operations.bases, GONE)) == 250
    assert watched.calls > 6
    holders = {desk.raw.hget(keys.job(desk.base, job_id), "worker") for job_id in desk.members("running")}
    assert holders == {"alive"}
    moved = {job_id for jobs, _, code in desk.events() if code == "crashed" for job_id in jobs.split()}
    assert moved == {lease.id for lease in lost}


async def test_a_new_life_of_the_name_keeps_its_leases(two_partitions, raw):
    """At any moment between two calls of a reconcile of its earlier life, and in any partition."""
    store = two_partitions
    one, two = store.operations.bases
    for moment in itertools.count(1):
        await store.enlist(card("gone", "1"))
        await hold(store, "gone", 2, queue_in(store, one))
        await hold(store, "gone", 2, queue_in(store, two))
        taken = []

        async def between(calls, moment=moment, taken=taken):
            if calls == moment:
                await store.enlist(card("gone", "2"))
                for base in (one, two):
                    taken += [
                        keys.job(base, lease.id)
                        for lease in await hold(store, "gone", 2, queue_in(store, base, moment))
                    ]

        watched = Watched(store, between)
        ended = await watched.follow(workers.reconcile(store.operations.bases, GONE))
        if watched.calls < moment:
            assert ended == 4
            break
        assert {raw.hget(job, "state") for job in taken} == {"running"}, (
            f"the worker registered after call {moment}"
        )
        assert raw.hget(keys.worker(one, "gone"), "life") == "2"
        raw.delete(*raw.scan_iter(match=f"{one[:-2]}*", count=1000))
        await store.follow(store.operations.prepare())
    assert moment > 6


async def test_a_worker_restarted_before_is_left_alone(store, desk):
    await store.enlist(card("gone", "2"))
    held = await hold(store, "gone", 2)
    assert await store.reconcile(GONE) == 0
    assert sorted(desk.members("running")) == sorted(lease.id for lease in held)
    assert desk.enlisted() == ["gone"]


@pytest.fixture
async def two_partitions(place, raw):
    settings = Settings(redis_url=place.settings.redis_url, namespace=place.settings.namespace, partitions=2)
    store = Store(settings, client=place.client(), blocking=place.client())
    await store.prepare()
    yield store
    await store.aclose()


def queue_in(store, base, n=0):
    """A queue in that partition."""
    return next(
        name for name in (f"q{n}-{i}" for i in range(100)) if store.operations.base_of_queue(name) == base
    )


async def test_leases_in_every_partition_end(place, raw):
    settings = Settings(redis_url=place.settings.redis_url, namespace=place.settings.namespace, partitions=4)
    store = Store(settings, client=place.client(), blocking=place.client())
    await store.prepare()
    await store.enlist(card("gone"))
    queues = [f"q{n}" for n in range(12)]
    assert {store.operations.base_of_queue(queue) for queue in queues} == set(store.operations.bases)
    for queue in queues:
        await hold(store, "gone", 2, queue)
        await hold(store, "alive", 1, queue)
    (worker,) = await store.follow(store.operations.workers())
    assert (worker.name, worker.leases) == ("gone", 24)
    assert await store.reconcile(GONE) == 24
    assert sum(raw.zcard(keys.structure(base, "running")) for base in store.operations.bases) == 12
    assert await store.workers() == []
    assert [raw.exists(keys.workers(base)) for base in store.operations.bases] == [0, 0, 0, 0], (
        "registrations are in partition 0"
    )
    await store.aclose()


async def test_a_life_that_was_reconciled_claims_no_more_in_any_partition(two_partitions):
    """The exclusive identity has another holder. A worker without one claims on: it cannot be recognized."""
    store = two_partitions
    queues = [queue_in(store, base) for base in store.operations.bases]
    for name, worker_id in (("old", "pod-0"), ("plain", "")):
        await store.enlist(Card(name, f"life-{name}", worker_id, b"{}"))
    for queue in queues:
        await put(store, 2, queue)
        assert len(await claimed(store, queue, "old", n=1)) == 1
    assert await store.reconcile({"old": "life-old", "plain": "life-plain"}) == 2
    for queue in queues:
        with pytest.raises(Changed, match="worker old: another worker has taken over: claim no more"):
            await claimed(store, queue, "old")
        with pytest.raises(Changed):
            await claimed(store, queue, "old", n=0)
        assert len(await claimed(store, queue, "new")) == 2
    await put(store, 1, queues[0])
    assert len(await claimed(store, queues[0], "plain", life="")) == 1


async def test_the_last_ten_lives_are_refused_for_ten_minutes(store, desk, elapse):
    await store.enlist(card("x"))  # the namespace exists
    for i in range(12):
        await store.enlist(Card(f"w{i}", f"life-{i}", "pod-0", b"{}"))
        assert await store.reconcile({f"w{i}": f"life-{i}"}) == 0

    async def refused():
        found = []
        for i in range(12):
            try:
                await claimed(store, "q", f"w{i}", life=f"life-{i}")
            except Changed:
                found.append(i)
        return found

    assert await refused() == [*range(2, 12)]
    elapse(601)
    assert await refused() == []


async def claimed(store, queue, worker, n=9, life=None):
    life = f"life-{worker}" if life is None else life
    return (await store.claim(worker=worker, queues=[queue], n=n, lease=60, life=life)).leases


async def test_an_interrupted_reconcile_is_completed_by_the_next(store, desk):
    await store.enlist(card("gone"))
    await hold(store, "gone", 250)

    class Died(Exception):
        pass

    async def between(calls):
        if len(desk.members("running")) == 50:
            raise Died

    with pytest.raises(Died):
        await Watched(store, between).follow(workers.reconcile(store.operations.bases, GONE))
    assert desk.enlisted() == ["gone"]
    assert await store.reconcile(GONE) == 50
    assert (desk.enlisted(), desk.members("running")) == ([], [])


async def test_leaving_removes_a_worker_but_not_another_life_of_it(store, desk):
    await store.enlist(card("w", "2"))
    await store.leave(card("w", "1"))
    assert desk.enlisted() == ["w"]
    await store.leave(card("w", "2"))
    assert (desk.enlisted(), desk.registration("w")) == ([], {})


@pytest.mark.real_server
@pytest.mark.parametrize("protocol", [2, 3])
def test_resp2_and_resp3_list_the_same_workers(place, raw, protocol):
    client = redis.Redis.from_url(place.settings.redis_url, protocol=protocol)
    transport, operations = SyncTransport(place.settings, client), Operations(place.settings)
    base = operations.bases[0]
    transport.run(verbs.init(base))
    transport.run(verbs.submit(base, [Submission(f"0-{n}", "q", "t", "", b"{}") for n in range(150)]))
    for n in range(2):
        transport.run(verbs.claim(base, claim_id=f"{n:022}", worker=f"w{n}", lease=30, n=75, queues=["q"]))
        transport.run(verbs.enlist(base, card(f"w{n}", pid=n)))
    found = follow_sync(transport.run, operations.workers())
    assert sorted((worker.name, worker.leases, worker.about["pid"]) for worker in found) == [
        ("w0", 75, 0),
        ("w1", 75, 1),
    ]
    transport.close()
