"""watch: have the ends of jobs published."""

import asyncio

import pytest

from sublet.model import Completion, Standing, State, Submission
from sublet.protocol import keys


@pytest.fixture
def published(desk):
    """The ids published so far on the channel."""
    with desk.raw.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe(keys.ended(desk.base))
        pubsub.get_message(timeout=1)

        def messages():
            found = []
            while message := pubsub.get_message(timeout=0.02):
                found.append(message["data"])
            return found

        yield messages


async def test_the_completion_of_a_watched_job_is_published(desk, published):
    lease = await desk.running("a")
    assert await desk.watch("a") == [Standing(State.RUNNING, b"", "")]
    assert published() == []
    await desk.complete(lease, b"42")
    assert published() == ["a"]
    (standing,) = await desk.watch("a")
    assert (standing.state, standing.result) == (State.COMPLETED, b"42")
    assert standing.story == desk.job("a")["attempt:1"]


async def test_the_death_of_a_watched_job_is_published_with_its_code(desk, published):
    lease = await desk.running("a", rules="backoff=0:1:0")
    await desk.watch("a")
    await desk.fail(lease, "First")
    assert published() == []
    await desk.fail(await desk.take("a"), "ValueError", "no luck", "a trace", again=False)
    assert published() == ["a"]
    (standing,) = await desk.watch("a")
    assert (standing.state, standing.result) == (State.DEAD, b"")
    assert standing.story == desk.job("a")["attempt:2"]
    assert standing.story.split("\n")[1:] == ["no luck", "a trace"]


async def test_the_cancellation_of_a_watched_job_is_published(desk, published):
    await desk.submit("a")
    await desk.watch("a")
    await desk.operate("cancel", "a")
    assert published() == ["a"]
    assert await desk.watch("a") == [Standing(State.CANCELLED, b"", "")]


async def test_the_death_of_a_watched_job_by_a_lost_lease_is_published(desk, published):
    await desk.running("a", rules="tries=1")
    await desk.watch("a")
    desk.elapse(30)
    await desk.reap()
    assert published() == ["a"]


async def test_a_job_without_watchers_publishes_nothing(desk, published):
    await desk.complete(await desk.running("a"))
    assert published() == []


async def test_a_job_settled_twice_is_published_once(desk, published):
    lease = await desk.running("a")
    await desk.watch("a")
    await desk.complete(lease)
    await desk.complete(lease)
    assert published() == ["a"]


async def test_a_watch_of_a_finished_job_writes_nothing(desk):
    await desk.complete(await desk.running("a"), b"1")
    before = desk.everything()
    assert (await desk.watch("a"))[0].state == State.COMPLETED
    assert desk.everything() == before


async def test_a_watch_of_an_unknown_job_creates_nothing(desk):
    before = desk.everything()
    assert await desk.watch("nobody") == [Standing(None, b"", "")]
    assert desk.everything() == before


async def test_each_job_of_a_call_has_its_own_reply(desk):
    await desk.submit("a", "b")
    (a,) = await desk.claim(1)
    await desk.submit("late", rules="delay=1000")
    states = [standing.state for standing in await desk.watch("a", "b", "nobody", "late", "a")]
    assert states == [State.RUNNING, State.QUEUED, None, State.SCHEDULED, State.RUNNING]
    await desk.complete(a)
    assert (await desk.watch("a"))[0].state == State.COMPLETED


async def test_a_repeated_watch_has_one_effect(desk):
    await desk.submit("a")
    await desk.watch("a")
    before = desk.everything()
    await desk.watch("a")
    assert desk.everything() == before


async def test_a_watch_of_a_revived_job_omits_its_earlier_end(desk):
    await desk.fail(await desk.running("a"), again=False)
    await desk.operate("retry", "a")
    assert await desk.watch("a") == [Standing(State.QUEUED, b"", "")]


# the store


async def test_a_store_is_notified_of_the_end_while_it_waits(store):
    await store.submit([Submission("0-a", "q", "t", "", b"{}")])
    waiting = asyncio.create_task(store.watch("0-a", wait=20))
    (lease,) = (await store.claim(worker="w", queues=["q"], n=1, lease=30)).leases
    await store.settle([Completion(lease, b"42")])
    standing = await asyncio.wait_for(waiting, 5)
    assert (standing.state, standing.result) == (State.COMPLETED, b"42")


async def test_a_store_does_not_wait_for_a_finished_or_unknown_job(store):
    assert (await asyncio.wait_for(store.watch("0-nobody", wait=20), 5)).state is None


async def test_a_store_returns_the_state_of_the_job_at_the_timeout(store):
    await store.submit([Submission("0-a", "q", "t", "", b"{}")])
    assert (await store.watch("0-a", wait=0.01)).state == State.QUEUED


async def test_a_waiting_claim_is_woken_by_a_submit(store):
    waiting = asyncio.create_task(store.claim(worker="w", queues=["q"], n=1, lease=30, wait=20))
    await store.claim(worker="other", queues=["q"], n=0, lease=30)
    await store.submit([Submission("0-a", "q", "t", "", b"{}")])
    claimed = await asyncio.wait_for(waiting, 1.5)
    assert [lease.id for lease in claimed.leases] == ["0-a"]
