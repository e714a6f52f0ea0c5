"""Waiting without polling: for a result, and for work."""

import asyncio
import threading

import pytest

from sublet import JobCancelled, JobFailed, NotFound, SyncClient
from sublet.client.client import Client
from sublet.connection.transport import SyncTransport
from sublet.model import Completion, Failure
from sublet.protocol import keys
from sublet.store import results
from sublet.store.store import Store
from sublet.store.sync_store import SyncStore


@pytest.fixture
def no_polling(monkeypatch):
    """No polling: a missed message is missed for a minute."""
    monkeypatch.setattr(results, "REREAD", 60.0)


async def finish(store, result=b"42"):
    (lease,) = (await store.claim(worker="w", queues=["default"], n=1, lease=30)).leases
    assert await store.settle([Completion(lease, result)]) == ["completed"]


async def test_a_result_is_returned_at_once(no_polling, client, store):
    handle = await client.submit("t")
    waiting = asyncio.create_task(handle.result(30))
    await until_watched(client, handle.id)
    await finish(store)
    assert await asyncio.wait_for(waiting, 10) == 42


async def until_watched(client, job_id):
    fields = ()
    while b"watched" not in fields:
        fields = await client.store._transport.client.hkeys(
            f"{client.store.operations.bases[0]}:job:{job_id}"
        )
        await asyncio.sleep(0.001)


async def test_an_end_between_the_read_and_the_wait_is_not_missed(no_polling, client, store, monkeypatch):
    """The job ends, with its message, after it was read as running and before the waiter waits."""
    handle = await client.submit("t")
    run, ended = store.run, asyncio.Event()

    async def run_slowly(call):
        answer = await run(call)
        if call.commands[0][-1] == handle.id and not ended.is_set():
            ended.set()
            other = Store(store.settings, store._transport.client, store._blocking)
            await finish(other)
            expected = store._results._expected
            while not any(watch.woken.is_set() for watch in expected.get(handle.id, ())):
                await asyncio.sleep(0.001)
        return answer

    monkeypatch.setattr(store, "run", run_slowly)
    assert await asyncio.wait_for(handle.result(30), 10) == 42


async def test_many_may_wait_for_one_job(no_polling, client, store):
    handle = await client.submit("t")
    waiting = [asyncio.create_task(handle.result(30)) for _ in range(20)]
    await until_watched(client, handle.id)
    await asyncio.sleep(0.05)
    await finish(store)
    assert await asyncio.wait_for(asyncio.gather(*waiting), 10) == [42] * 20


async def test_a_lost_message_delays_a_result_by_a_second(client, store, monkeypatch):
    """No message arrives: the waiter reads the state itself."""
    monkeypatch.setattr(results, "REREAD", 0.05)
    handle = await client.submit("t")
    waiting = asyncio.create_task(handle.result(30))
    await until_watched(client, handle.id)
    store._results._listening.cancel()
    await finish(store)
    assert await asyncio.wait_for(waiting, 10) == 42


async def test_a_waiter_gets_each_outcome_of_a_job(client, store):
    dead, cancelled, slow = await client.submit("t"), await client.submit("t"), await client.submit("t")
    (lease,) = (await store.claim(worker="w", queues=["default"], n=1, lease=30)).leases
    await store.settle([Failure(lease, "Boom", "it broke", "here", again=False)])
    with pytest.raises(JobFailed, match=r"is dead \(Boom\): it broke") as failed:
        await dead.result(10)
    assert (failed.value.code, failed.value.detail) == ("Boom", "here")
    await cancelled.cancel()
    with pytest.raises(JobCancelled, match="was cancelled"):
        await cancelled.result(10)
    with pytest.raises(TimeoutError, match=r"is still queued after 0\.05 s; it goes on"):
        await slow.result(0.05)
    with pytest.raises(NotFound, match="no job 0-unknown"):
        await client.result("0-unknown", 10)


@pytest.mark.parametrize("ends", ["before", "while"])
def test_waiting_works_without_an_event_loop(place, raw, no_polling, ends):
    fake = place.raw() if place.fake else None
    if fake:
        fake.connection_pool.connection_kwargs["decode_responses"] = False
        fake = type(fake)(server=place.fake, protocol=2)
    with SyncClient(store=SyncStore(place.settings, SyncTransport(place.settings, fake))) as client:
        handle = client.submit("t")

        def work():
            async def run():
                store = Store(place.settings, place.client(), place.client())
                await finish(store)
                await store.aclose()

            asyncio.run(run())

        worker = threading.Thread(target=work)
        if ends == "before":
            worker.start()
            worker.join()
            assert handle.result(10) == 42
        else:
            timer = threading.Timer(0.1, worker.start)
            timer.start()
            assert handle.result(10) == 42
            timer.join()
            worker.join()


async def test_one_submit_wakes_one_of_many_claims(place, raw, client):
    """Fifty idle workers, one job: one of them claims, the others stay asleep."""
    stores = [Store(place.settings, place.client(), place.client()) for _ in range(50)]
    claims = {"n": 0}
    for one in stores:
        once = one._claims._claim_once

        async def counted(*words, once=once):
            claims["n"] += 1
            return await once(*words)

        one._claims._claim_once = counted
    waiting = [
        asyncio.create_task(s.claim(worker=f"w{i}", queues=["default"], n=1, lease=30, wait=60))
        for i, s in enumerate(stores)
    ]
    while claims["n"] < 50:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    await client.submit("t")
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=1)
    assert [len(task.result().leases) for task in done] == [1]
    assert claims["n"] < 60, "the other waiters were not woken"
    await client.submit_all(
        [client.store.operations.submission("t", b"{}", "default", "") for _ in range(49)]
    )
    await asyncio.wait(waiting, timeout=20)
    assert sorted(len(task.result().leases) for task in waiting) == [1] * 50
    for one in stores:
        await one.aclose()


async def test_an_unused_wake_up_is_put_back(store, raw, base):
    """A busy worker's read is still open: its wake-up is for another."""
    wake = keys.wake(base, "q")
    assert (await store.claim(worker="w", queues=["q"], n=1, lease=30, wait=0.01)).leases == []
    raw.lpush(wake, "1")
    async with asyncio.timeout(20):
        while store._claims._wakeups._reading or not raw.llen(wake):
            await asyncio.sleep(0.005)
    assert raw.llen(wake) == 1


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 12, 20, 40])
async def test_a_cancelled_wait_returns_at_once(client, store, turns):
    """redis-py waits by asyncio.wait_for, which may swallow its caller's cancellation before Python 3.12."""
    handle = await client.submit("t")
    waiting = asyncio.create_task(handle.result(60))
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    done, _ = await asyncio.wait([waiting], timeout=10)
    assert done, "the cancelled wait continues"
    assert waiting.cancelled()


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 12])
async def test_a_cancelled_read_returns_at_once(client, store, turns):
    await client.submit("t")
    looking = asyncio.create_task(client.stats())
    for _ in range(turns):
        await asyncio.sleep(0)
    if looking.cancel():
        await asyncio.wait([looking], timeout=10)
        assert looking.cancelled()


async def test_a_claim_that_waits_during_a_rest_gets_wake_ups(store):
    """The first one handles the rest of its claims, and stops waiting for wake-ups: for itself alone."""
    await store.prepare()
    left = asyncio.get_running_loop().create_future()
    await store.claim(worker="a", queues=["default"], n=1, lease=30, wait=0.05)  # it has waited for wake-ups
    store._claims._unclaimed.add(left)
    resting = asyncio.create_task(store.rest())
    await asyncio.sleep(0)
    waiting = asyncio.create_task(store.claim(worker="b", queues=["default"], n=1, lease=30, wait=30))
    while not (store._claims._wakeups and store._claims._wakeups._waiters):
        await asyncio.sleep(0.001)
    left.set_result(None)
    await resting
    await Client(store=store).submit("t")
    assert len((await asyncio.wait_for(waiting, 10)).leases) == 1
