"""The life of a job, in order. Read this first: each test is one path through the states."""

import pytest

from sublet import Options, State
from sublet.client.client import Client
from sublet.model import Beat, Completion, Failure, Release


@pytest.fixture
def client(store):
    return Client(store=store)


@pytest.fixture
def claim(store):
    async def claim(worker="ada"):
        (lease,) = (await store.claim(worker=worker, queues=["default"], n=1, lease=30)).leases
        return lease

    return claim


async def states(client, job_id):
    """The job's state, and the codes of its attempts so far."""
    job = await client.get(job_id)
    return job.state, [attempt.code for attempt in job.attempts]


async def test_a_job_is_submitted_claimed_and_completed(client, store, claim):
    """submit → queued → claim → running → heartbeat → complete → completed."""
    handle = await client.submit("greet", {"name": "Ada"})
    assert await states(client, handle.id) == (State.QUEUED, [])

    lease = await claim()
    assert (lease.id, lease.task, lease.payload, lease.attempt) == (handle.id, "greet", b'{"name":"Ada"}', 1)
    assert await states(client, handle.id) == (State.RUNNING, [])

    (end,) = await store.heartbeat([Beat(lease, b'{"fraction":0.5}')], lease=60)
    assert end > lease.expires_ms
    job = await handle.get()
    assert (job.worker, job.progress) == ("ada", {"fraction": 0.5})

    assert await store.settle([Completion(lease, b'"hello Ada"')]) == ["completed"]
    assert await handle.result() == "hello Ada"
    assert await states(client, handle.id) == (State.COMPLETED, ["completed"])


async def test_the_job_of_a_dead_worker_is_claimed_again(client, store, claim, elapse):
    """Its lease expires; the next claim takes the job over; the first worker's outcome is refused."""
    handle = await client.submit("greet")
    ghost = await claim("ada")
    elapse(31)

    lease = await claim("bob")
    assert (lease.id, lease.attempt, lease.recovered) == (handle.id, 2, "lease_expired")
    assert lease.fence > ghost.fence

    assert await store.settle([Completion(ghost, b'"too late"')]) == ["LEASE_LOST"]
    assert await store.heartbeat([Beat(ghost)], lease=30) == ["LEASE_LOST"]
    assert await store.settle([Completion(lease, b'"in time"')]) == ["completed"]
    assert await handle.result() == "in time"
    assert await states(client, handle.id) == (State.COMPLETED, ["lease_expired", "completed"])


async def test_a_late_result_of_a_lease_that_was_not_taken_back_is_accepted(client, store, claim, elapse):
    """An expired lease is valid until another worker gets the job: the token is the proof."""
    handle = await client.submit("greet")
    lease = await claim()
    elapse(3600)
    assert await store.settle([Completion(lease, b"1")]) == ["completed"]
    assert await states(client, handle.id) == (State.COMPLETED, ["completed"])


async def test_a_failed_job_is_completed_at_the_second_try(client, store, claim, elapse):
    """fail → scheduled, after a backoff → due → queued → running → completed."""
    handle = await client.submit("greet")
    (answer,) = await store.settle([Failure(await claim(), "ValueError", "no such name")])
    assert answer.startswith("scheduled ")
    assert await states(client, handle.id) == (State.SCHEDULED, ["ValueError"])
    elapse(1)
    lease = await claim()
    assert lease.recovered == "ValueError"
    await store.settle([Completion(lease, b"1")])
    assert await states(client, handle.id) == (State.COMPLETED, ["ValueError", "completed"])


async def test_a_job_that_always_fails_is_dead_and_can_be_retried(client, store, claim, elapse):
    """Three tries by default, then dead: stored, listed, and queued again by an operator's retry."""
    handle = await client.submit("greet")
    for _ in range(3):
        await store.settle([Failure(await claim(), "ValueError", "no")])
        elapse(300)
    assert await states(client, handle.id) == (State.DEAD, ["ValueError"] * 3)
    assert await client.retry(handle.id) == "queued"
    lease = await claim()
    assert (lease.attempt, (await handle.get()).tries_left) == (4, 2)
    await store.settle([Completion(lease, b"1")])
    assert (await handle.get()).state is State.COMPLETED


async def test_a_job_that_kills_every_worker_is_dead(client, claim, elapse):
    """A try is counted at the claim, so a job that kills its workers ends, too."""
    handle = await client.submit("greet")
    for _ in range(3):
        await claim()
        elapse(40)
        await client.store.claim(worker="maintenance", queues=["default"], n=0, lease=30)
        elapse(300)
        await client.store.claim(worker="maintenance", queues=["default"], n=0, lease=30)
    assert await states(client, handle.id) == (State.DEAD, ["lease_expired"] * 3)


async def test_a_stopping_worker_releases_its_job(client, store, claim):
    """release → queued, at its old position, and the try is returned."""
    first, second = await client.submit("greet"), await client.submit("greet")
    lease = await claim()
    assert await store.settle([Release(lease, 0, "the worker stopped")]) == ["queued"]
    again = await claim()
    assert (again.id, (await first.get()).tries_left) == (first.id, 2)
    assert (await claim()).id == second.id


async def test_a_delayed_job_is_queued_when_it_is_due_or_promoted(client, store, claim, elapse):
    """submit(delay) → scheduled → due → queued; promote does not wait."""
    later = await client.submit("greet", {}, Options(delay=3600))
    now = await client.submit("greet", {}, Options(delay=3600))
    assert await states(client, later.id) == (State.SCHEDULED, [])
    await client.promote(now.id)
    lease = await claim()
    assert lease.id == now.id
    await store.settle([Completion(lease, b"1")])
    elapse(3600)
    assert (await claim()).id == later.id


async def test_a_waiting_or_running_job_is_cancelled(client, store, claim):
    """cancel → a waiting job is cancelled at once; a running job gets a request, which its worker carries out."""
    waiting, running = await client.submit("greet"), None
    assert await client.cancel(waiting.id) == "cancelled"
    running = await client.submit("greet")
    lease = await claim()
    assert await client.cancel(running.id) == "requested"
    assert await store.heartbeat([Beat(lease)], lease=30) == ["CANCEL_REQUESTED"]
    assert await store.settle([Failure(lease, "cancelled", "stopped", again=False)]) == ["cancelled"]
    assert await states(client, running.id) == (State.CANCELLED, ["cancelled"])


async def test_a_completed_job_is_deleted_after_a_day(client, store, claim, elapse):
    """A day after its completion, maintenance deletes it."""
    handle = await client.submit("greet")
    await store.settle([Completion(await claim(), b"1")])
    elapse(86_400)
    assert await store.follow(store.operations.prune()) == (1, False)
    assert (await client.list_jobs()).jobs == ()
    with pytest.raises(Exception, match=r"was deleted \(retention, erase\)"):
        await handle.get()
