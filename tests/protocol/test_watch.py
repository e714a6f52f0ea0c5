"""watch: have the ends of jobs published."""

import asyncio

import pytest

from sublet.model import Completion, Standing, State, Submission
from sublet.protocol import keys


@pytest.fixture
def heard(desk):
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


async def test_a_watched_job_says_when_it_is_completed(desk, heard):
    lease = await desk.running("a")
    assert await desk.watch("a") == [Standing(State.RUNNING, b"", "")]
    assert heard() == []
    await desk.complete(lease, b"42")
    assert heard() == ["a"]
    (standing,) = await desk.watch("a")
    assert (standing.state, standing.result) == (State.COMPLETED, b"42")
    assert standing.story == desk.job("a")["attempt:1"]


async def test_a_watched_job_says_when_it_dies_and_why(desk, heard):
    lease = await desk.running("a", rules="backoff=0:1:0")
    await desk.watch("a")
    await desk.fail(lease, "First")
    assert heard() == []
    await desk.fail(await desk.take("a"), "ValueError", "no luck", "a trace", again=False)
    assert heard() == ["a"]
    (standing,) = await desk.watch("a")
    assert (standing.state, standing.result) == (State.DEAD, b"")
    assert standing.story == desk.job("a")["attempt:2"]
    assert standing.story.split("\n")[1:] == ["no luck", "a trace"]


async def test_a_watched_job_says_when_it_is_cancelled(desk, heard):
    await desk.submit("a")
    await desk.watch("a")
    await desk.order("cancel", "a")
    assert heard() == ["a"]
    assert await desk.watch("a") == [Standing(State.CANCELLED, b"", "")]


async def test_a_watched_job_says_when_a_lost_lease_was_its_last(desk, heard):
    await desk.running("a", rules="tries=1")
    await desk.watch("a")
    desk.elapse(30)
    await desk.reap()
    assert heard() == ["a"]


async def test_a_job_without_watchers_publishes_nothing(desk, heard):
    await desk.complete(await desk.running("a"))
    assert heard() == []


async def test_a_settled_job_that_is_settled_again_says_so_once(desk, heard):
    lease = await desk.running("a")
    await desk.watch("a")
    await desk.complete(lease)
    await desk.complete(lease)
    assert heard() == ["a"]


async def test_a_job_that_has_ended_is_answered_and_not_written_to(desk):
    await desk.complete(await desk.running("a"), b"1")
    before = desk.everything()
    assert (await desk.watch("a"))[0].state == State.COMPLETED
    assert desk.everything() == before


async def test_an_unknown_job_is_answered_and_not_made(desk):
    before = desk.everything()
    assert await desk.watch("nobody") == [Standing(None, b"", "")]
    assert desk.everything() == before


async def test_many_jobs_are_answered_one_by_one(desk):
    await desk.submit("a", "b")
    (a,) = await desk.claim(1)
    await desk.submit("late", rules="delay=1000")
    states = [standing.state for standing in await desk.watch("a", "b", "nobody", "late", "a")]
    assert states == [State.RUNNING, State.QUEUED, None, State.SCHEDULED, State.RUNNING]
    await desk.complete(a)
    assert (await desk.watch("a"))[0].state == State.COMPLETED


async def test_watching_twice_is_watching_once(desk):
    await desk.submit("a")
    await desk.watch("a")
    before = desk.everything()
    await desk.watch("a")
    assert desk.everything() == before


async def test_the_pending_story_of_a_revived_job_is_not_told(desk):
    await desk.fail(await desk.running("a"), again=False)
    await desk.order("retry", "a")
    assert await desk.watch("a") == [Standing(State.QUEUED, b"", "")]


# the store


async def test_a_store_is_notified_of_the_end_while_it_waits(store):
    await store.submit([Submission("0-a", "q", "t", "", b"{}")])
    waiting = asyncio.create_task(store.watch("0-a", wait=20))
    (lease,) = (await store.claim(worker="w", queues=["q"], n=1, lease=30)).leases
    await store.settle([Completion(lease, b"42")])
    standing = await asyncio.wait_for(waiting, 5)
    assert (standing.state, standing.result) == (State.COMPLETED, b"42")


async def test_a_store_does_not_wait_for_what_has_ended_or_is_unknown(store):
    assert (await asyncio.wait_for(store.watch("0-nobody", wait=20), 5)).state is None


async def test_a_store_answers_where_the_job_stands_when_the_time_is_up(store):
    await store.submit([Submission("0-a", "q", "t", "", b"{}")])
    assert (await store.watch("0-a", wait=0.01)).state == State.QUEUED


async def test_a_waiting_claim_is_woken_by_a_submit(store):
    waiting = asyncio.create_task(store.claim(worker="w", queues=["q"], n=1, lease=30, wait=20))
    await store.claim(worker="other", queues=["q"], n=0, lease=30)
    await store.submit([Submission("0-a", "q", "t", "", b"{}")])
    claimed = await asyncio.wait_for(waiting, 1.5)
    assert [lease.id for lease in claimed.leases] == ["0-a"]
