"""The contract of job sources, method by method: the same checks over Redis and over HTTP."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from sublet.errors import Invalid, QueueFull
from sublet.model import Beat, Card, Completion, Failure, Lease, Note, Release, State, Submission
from sublet.options import Backoff, Options
from sublet.protocol import keys

pytest_plugins = ["tests.support.job_sources"]
ONE_BACKEND = True
UNKNOWN = Lease("0-unknown", "1.none", 1, 0, "q", "t", None, b"", "")


def job(store, task="t", payload=b"{}", queue="q", rules="", job_id=None):
    return store.operations.submission(task, payload, queue, rules, job_id)


async def leases(source, store, n=1, **how):
    """Submit equal jobs, and claim them."""
    await source.submit([job(store, **how) for _ in range(n)])
    return (await source.claim(worker="w", queues=["q"], n=n, lease=30)).leases


def stale(lease):
    return lease._replace(token="1.stolen")


# submit


async def test_a_repeated_submit_returns_the_existing_job(source, store):
    first, second = job(store, rules="key=k"), job(store, rules="key=k")
    assert await source.submit([first]) == [(first.id, True, False)]
    assert await source.submit([first, second, job(store)])  # all three are answered
    assert (await source.submit([first, second])) == [(first.id, False, False)] * 2
    assert await source.submit([]) == []


async def test_all_options_of_a_submit_are_stored(source, store, raw, base):
    options = Options(
        priority=-7,
        key="a=b",
        window=60,
        max_attempts=9,
        timeout=1.5,
        retention=timedelta(days=2),
        backoff=Backoff(0.1, 1.5, 7),
    )
    plain = [
        options,
        Options(timeout=None, delay=90.25),
        Options(run_at=datetime(2031, 1, 2, 3, 4, 5, 678000, UTC)),
        Options(),
    ]
    jobs = [job(store, rules=f"{one.rules()} trace=00-ab-cd-01".strip()) for one in plain]
    await source.submit(jobs)
    for one in jobs:
        _, _, _, *words = raw.hget(keys.job(base, one.id), "spec").partition("\n")[0].split(" ")
        assert sorted(words) == sorted(one.rules.split())
    assert [raw.zscore(keys.structure(base, "scheduled"), jobs[2].id)] == [1925089445678]


@pytest.mark.parametrize("rules", ["key=k debounce=30000 at_most=60000", "key=k on_conflict=replace"])
async def test_a_submit_that_replaces_the_arguments_of_a_waiting_job_says_so(source, store, rules):
    first, second = job(store, rules=rules), job(store, rules=rules)
    assert await source.submit([first]) == [(first.id, True, False)]
    assert await source.submit([second, first]) == [(first.id, False, True), (first.id, False, False)]
    assert await source.submit([second]) == [(first.id, False, True)]


async def test_cancel_running_is_sent_by_either_source(source, store):
    first, second = (job(store, rules="key=k on_conflict=cancel_running") for _ in range(2))
    await source.submit([first])
    (lease,) = (await source.claim(worker="w", queues=["q"], n=1, lease=30)).leases
    assert await source.submit([second]) == [(second.id, True, False)]
    assert (await store.follow(store.operations.get(lease.id))).cancel_requested_at is not None
    assert (await store.follow(store.operations.get(second.id))).after == first.id


async def test_a_full_queue_has_the_same_message(source, store):
    await store.follow(store.operations.configure("q", jobs=2))
    with pytest.raises(QueueFull, match=r"queue q .*: add workers, or raise the limit"):
        await source.submit([job(store) for _ in range(3)])


@pytest.mark.parametrize("rule", ["colour=red", "priority=many", "delay=-1", "delay="])
async def test_an_unknown_rule_is_refused(source, store, rule):
    with pytest.raises(Invalid, match=r"rule|delay"):
        await source.submit([job(store, rules=rule)])


async def test_many_large_jobs_are_submitted_and_claimed(source, store):
    """More than one call takes, and 3 MB of payloads and of results; each its own."""
    heavy = [job(store, payload=json.dumps({"n": i, "x": "é" * 10_000}).encode()) for i in range(150)]
    light = [job(store, payload=b'{"n":%d}' % i, queue="light") for i in range(1050)]
    assert len(await source.submit(heavy + light)) == 1200
    taken = {}
    while found := (await source.claim(worker="w", queues=["q"], n=100, lease=30)).leases:
        taken |= {lease.id: lease for lease in found}
    payloads = {one.id: json.loads(one.payload) for one in heavy}
    assert {lease.id: json.loads(lease.payload) for lease in taken.values()} == payloads
    results = [Completion(lease, b'"%s"' % (lease.id.encode() * 800)) for lease in taken.values()]
    assert await source.settle(results) == ["completed"] * 150
    for one in results[::50]:
        assert (await source.watch(one.lease.id, 0)).result == one.result


# claim


async def test_a_lease_contains_everything_for_a_worker(source, store):
    payload = b'{"a":[1,2.5,"\xc3\xa9",null,12345678901234567890]}'
    (first,) = await leases(source, store, payload=payload, rules="timeout=1500 trace=00-ab")
    assert (first.queue, first.task, first.attempt, first.timeout_ms, first.trace) == (
        "q",
        "t",
        1,
        1500,
        "00-ab",
    )
    assert json.loads(first.payload) == {"a": [1, 2.5, "é", None, 12345678901234567890]}
    assert (first.recovered, first.checkpoint, first.fence > 10**15) == ("", b"", True)
    until = (await store.heartbeat([Beat(first)], lease=30))[0]
    assert first.expires_ms == until  # the timeout and its grace, not the lease, is the end of both
    await source.note([Note(first, b'{"at":1}')])
    await source.settle([Release(first)])
    (again,) = (await source.claim(worker="w", queues=["q"], n=1, lease=30)).leases
    assert (again.attempt, again.recovered, again.checkpoint) == (2, "released", b'{"at":1}')
    (endless,) = await leases(source, store, rules="timeout=none")
    assert endless.timeout_ms is None


async def test_jobs_are_claimed_in_the_order_of_the_queues_and_at_most_n(source, store):
    await source.submit([job(store, queue=queue) for queue in "aabb"])
    claimed = await source.claim(worker="w", queues=["b", "a"], n=3, lease=30)
    assert [lease.queue for lease in claimed.leases] == ["b", "b", "a"]
    assert 0 <= claimed.next_in <= 2
    assert (await source.claim(worker="w", queues=["a"], n=0, lease=30)).leases == []
    assert len((await source.claim(worker="w", queues=["a"], n=1000, lease=30)).leases) == 1
    assert (await source.claim(worker="w", queues=["a", "b"], n=5, lease=30)).leases == []


async def test_a_waiting_claim_gets_the_first_job(source, store):
    waiting = asyncio.create_task(source.claim(worker="w", queues=["q"], n=5, lease=30, wait=20))
    await asyncio.sleep(0.2)  # not inside a condition: it may wait, or not yet
    (submitted,) = await store.submit([job(store)])
    async with asyncio.timeout(10):
        assert [lease.id for lease in (await waiting).leases] == [submitted.id]


async def test_a_claim_without_jobs_ends_after_its_wait(source):
    async with asyncio.timeout(10):
        assert (await source.claim(worker="w", queues=["q"], n=5, lease=30, wait=0.1)).leases == []


@pytest.mark.parametrize("how", [{"worker": "no name"}, {"queues": ["no name"]}, {"lease": -1}])
async def test_an_invalid_claim_is_refused(source, how):
    with pytest.raises(Invalid):
        await source.claim(**{"worker": "w", "queues": ["q"], "n": 1, "lease": 30, **how})


# heartbeat


async def test_heartbeats_are_answered_one_by_one(source, store, raw, base):
    first, second, third = await leases(source, store, 3)
    await store.follow(store.operations.cancel(second.id))
    beats = [Beat(first, b'{"fraction":0.5}'), Beat(second), Beat(stale(third)), Beat(UNKNOWN)]
    until, *others = await source.heartbeat(beats, lease=60)
    assert until == raw.zscore(keys.structure(base, "running"), first.id)
    assert until > first.expires_ms
    assert others == ["CANCEL_REQUESTED", "LEASE_LOST", "NOT_FOUND"]
    assert json.loads(raw.hget(keys.job(base, first.id), "progress")) == {"fraction": 0.5}
    assert await source.heartbeat([], lease=60) == []


async def test_any_number_of_heartbeats_is_sent(source, store):
    (one,) = await leases(source, store)
    answers = await source.heartbeat([Beat(one), *[Beat(UNKNOWN)] * 1100, Beat(one)], lease=60)
    assert answers[1:-1] == ["NOT_FOUND"] * 1100
    assert isinstance(answers[0], int)
    assert isinstance(answers[-1], int)


# settle


async def test_outcomes_of_all_kinds_are_answered_in_their_order(source, store):
    a, b, c, d, e, f = await leases(source, store, 6)
    endings = [
        Release(a), Completion(b, b'{"x":1}'), Failure(c, "Boom", "words", "more"), Failure(d, "Boom", again=False),
        Completion(stale(e), b"1"), Release(f, 60), Completion(UNKNOWN, b"1"),
    ]  # fmt: skip
    answers = await source.settle(endings)
    words = [answer.split()[0] for answer in answers]
    assert words == ["queued", "completed", "scheduled", "dead", "LEASE_LOST", "scheduled", "NOT_FOUND"]
    assert await source.settle(endings) == answers
    assert await source.settle([Release(b), Completion(c, b"1")]) == ["LEASE_LOST"] * 2
    assert await source.settle([]) == []
    due = {one: int(answers[i].split()[1]) for one, i in ((c.id, 2), (f.id, 5))}
    for job_id, at in due.items():
        assert (await store.follow(store.operations.get(job_id))).due_at == datetime.fromtimestamp(
            at / 1000, UTC
        )


async def test_a_failure_is_stored_as_it_was_reported(source, store):
    awkward, long, foreign = await leases(source, store, 3)
    await source.settle([
        Failure(awkward, "KeyError", "two\nlines \u2028 and “quotes”\x00", "trace\n  back\n"),
        Failure(long, "E", "x" * 5000, "y" * 9000, again=False),
        Failure(foreign, "Ошибка", "wörds"),
    ])  # fmt: skip
    attempts = [
        (await store.follow(store.operations.get(lease.id))).attempts[0] for lease in (awkward, long, foreign)
    ]
    assert (attempts[0].code, attempts[0].message, attempts[0].detail) == (
        "KeyError", "two lines \u2028 and “quotes”\x00", "trace\n  back\n",
    )  # fmt: skip
    assert (attempts[1].message, attempts[1].detail) == ("x" * 1024, "y" * 4096)
    assert (attempts[2].code, attempts[2].message) == ("failed", "wörds")


async def test_a_job_of_an_unknown_task_waits_longer_each_time(source, store):
    (lease,) = await leases(source, store)
    (answer,) = await source.settle([Release(lease, 0, "this worker has no task t", "unknown_task")])
    assert answer.startswith("scheduled ")
    assert (await store.follow(store.operations.get(lease.id))).attempts[0].code == "unknown_task"


@pytest.mark.parametrize(
    "result",
    [
        b"null",
        b"0",
        b'""',
        b"[]",
        b'{"a":{"b":[1.5,-2,"\xc3\xa9"]}}',
        b"123456789012345678901234567890",
        b"1e300",
    ],
)
async def test_a_result_is_returned_unchanged(source, store, result):
    (lease,) = await leases(source, store)
    await source.settle([Completion(lease, result)])
    found = await source.watch(lease.id, 0)
    assert (found.state, json.loads(found.result)) == (State.COMPLETED, json.loads(result))


# note


async def test_notes_are_stored_with_their_jobs(source, store, raw, base):
    first, second = await leases(source, store, 2)
    notes = [
        Note(first, b'{"k":[1]}', "+0.1 líne\n+0.2 \x1b[0m".encode()),
        Note(stale(second), b"1"),
        Note(UNKNOWN, b"", b"x"),
    ]
    assert await source.note(notes) == ["noted", "LEASE_LOST", "NOT_FOUND"]
    kept = raw.hgetall(keys.job(base, first.id))
    assert (json.loads(kept["checkpoint"]), kept["log:1"]) == ({"k": [1]}, "+0.1 líne\n+0.2 \x1b[0m")
    assert await source.note([Note(first, b"", b"more")]) == ["noted"]
    assert json.loads(raw.hget(keys.job(base, first.id), "checkpoint")) == {"k": [1]}
    assert await source.note([]) == []


async def test_a_checkpoint_may_be_removed(source, store, raw, base):
    (lease,) = await leases(source, store)
    await source.note([Note(lease, b'{"k":1}')])
    await source.note([Note(lease, b"null")])
    assert raw.hget(keys.job(base, lease.id), "checkpoint") == "null"


# registration


async def test_a_worker_registers_is_listed_drains_and_leaves(source, store):
    card = Card("w1", "life", "pod-0", json.dumps({"host": "h", "pid": 7, "queues": ["q"]}).encode())
    assert await source.enlist(card) is False
    (seen,) = await source.workers()
    assert (seen.name, seen.life, seen.worker_id, seen.draining) == ("w1", "life", "pod-0", False)
    assert {"host": "h", "pid": 7, "queues": ["q"]}.items() <= seen.about.items()
    await store.follow(store.operations.drain("w1"))
    assert await source.enlist(card) is True
    assert (await source.workers())[0].draining
    await source.leave(card._replace(life="another"))
    assert len(await source.workers()) == 1
    await source.leave(card)
    await source.leave(card)
    assert await source.workers() == []


async def test_leases_of_a_dead_worker_end_and_those_of_its_successor_stay(source, store):
    for name, life in (("w", "1"), ("x", "1"), ("y", "2")):
        await source.enlist(Card(name, life, "", b"{}"))
    held = await leases(source, store, 3)
    assert await source.reconcile({"w": "1", "y": "1", "unknown": "1"}) == 3
    assert {worker.name for worker in await source.workers()} == {"x", "y"}
    assert await source.heartbeat([Beat(held[0])], lease=30) == ["LEASE_LOST"]
    assert await source.reconcile({"w": "1"}) == 0
    assert await source.reconcile({}) == 0


async def test_a_long_description_of_a_worker_is_accepted(source):
    """4 KiB of it are stored, and over HTTP the server's own addition must fit."""
    about = json.dumps({"host": "h", "queues": ["x" * 2000, "y" * 2050]}).encode()
    assert 4080 < len(about) <= 4096
    await source.enlist(Card("w", "1", "", about))
    assert (await source.workers())[0].about["host"] == "h"


# watch


async def test_a_watch_returns_the_state_at_once_or_the_end_of_the_job(source, store):
    assert await source.watch("0-unknown", 0) == (None, b"", "")
    first, second, third = await leases(source, store, 3)
    assert await source.watch(first.id, 0) == (State.RUNNING, b"", "")
    watching = [asyncio.create_task(source.watch(lease.id, 20)) for lease in (first, second, third)]
    await asyncio.sleep(0.2)  # not inside a condition: they may be waiting, or not yet
    await store.settle(
        [Completion(first, b'{"x":1}'), Failure(second, "Boom", "words", "more\nlines", again=False)]
    )
    await store.follow(store.operations.cancel(third.id))
    await store.settle([Failure(third, "cancelled", "on request", again=False)])
    async with asyncio.timeout(15):
        found = await asyncio.gather(*watching)
    assert found == [await store.watch(lease.id, 0) for lease in (first, second, third)]
    assert [one.state for one in found] == [State.COMPLETED, State.DEAD, State.CANCELLED]


async def test_a_job_cancelled_before_it_ran_has_no_result(source, store):
    (submitted,) = await source.submit([job(store)])
    await store.follow(store.operations.cancel(submitted.id))
    assert await source.watch(submitted.id, 0) == (State.CANCELLED, b"", "")


@pytest.mark.parametrize("job_id", ["no id", "../queues", "", "é", "x" * 200])
async def test_an_invalid_id_is_refused(source, job_id):
    with pytest.raises(Invalid, match="use 1 to"):
        await source.watch(job_id, 0)


# data of other programs


ODD = {
    "half a pair": b'{"a":"\\ud800"}',
    "deep": b"[" * 400 + b"]" * 400,
    "very deep": b"[" * 600 + b"]" * 600,
    "no JSON": b"no json",
    "NaN": b'{"a":NaN}',
    "nothing": b"",
    "bytes": b"\xff\xfe",
    "huge": b'{"a":1e999}',
}


@pytest.mark.parametrize("payload", ODD.values(), ids=ODD)
async def test_an_undecodable_payload_does_not_affect_others(source, store, payload):
    odd = Submission("0-odd", "q", "t", "", payload)
    fine = [job(store, payload=b'{"n":%d}' % i) for i in range(3)]
    await store.submit([odd, *fine])
    claimed = (await source.claim(worker="w", queues=["q"], n=10, lease=30)).leases
    assert [lease.id for lease in claimed] == ["0-odd", *(one.id for one in fine)]
    assert [lease.payload for lease in claimed[1:]] == [one.payload for one in fine]
    assert await source.settle([Completion(lease, b"1") for lease in claimed]) == ["completed"] * 4
