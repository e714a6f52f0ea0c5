"""A sandbox's time, the outcomes of its jobs, and its drains (see also test_testing.py). No server, and no
sleeping."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest

from sublet import App, Context, Discard, Invalid, JobCancelled, JobFailed, NotFound, Snooze
from sublet.protocol import keys
from sublet.testing import Endless, Sandbox, WorkerDied, fixture
from sublet_functions.work import work

NOWHERE = "redis://127.0.0.1:1"
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)

app = App(redis_url=NOWHERE)
sandbox = fixture(app, now=NOW)


@app.task
async def double(n: int) -> int:
    return 2 * n


@app.task(max_attempts=3, backoff=3600)
async def flaky(ctx: Context, works_at: int = 99) -> str:
    if ctx.attempt < works_at:
        raise ConnectionError("the other side hung up")
    return f"attempt {ctx.attempt}, after {ctx.recovered}"


@app.task
async def steered(ctx: Context, how: str) -> str:
    if how == "snooze" and ctx.attempt < 3:
        raise Snooze(600, "not yet")
    if how == "discard":
        raise Discard("no use")
    return how


@app.task
async def mortal(ctx: Context, deaths: int = 1) -> str:
    ctx.log(f"attempt {ctx.attempt}")
    if ctx.attempt <= deaths:
        ctx.checkpoint({"seen": ctx.attempt})
        raise WorkerDied
    return f"restored {ctx.restored}, {ctx.recovered}"


@app.task(key="again")
async def again() -> None:
    await again.options(key=None).submit()


def codes(sandbox, handle):
    return [attempt.code for attempt in sandbox.job(handle).attempts]


# time


async def test_a_drain_skips_hours_of_backoff(sandbox):
    handle = await flaky.submit(3)
    done = await sandbox.drain(through=timedelta(days=1))
    assert (done.failed, done.completed, done.scheduled, done.next_at) == (2, 1, 0, None)
    assert await handle.result() == "attempt 3, after ConnectionError"
    first, second, third = sandbox.job(handle).attempts
    assert timedelta(minutes=30) <= second.claimed_at - first.ended_at <= timedelta(hours=1)
    assert third.ended_at == sandbox.now


async def test_a_drain_ends_at_its_time_limit(sandbox):
    await flaky.submit()
    done = await sandbox.drain(through=60)
    assert (done.failed, done.scheduled, sandbox.now) == (1, 1, NOW)
    assert NOW + timedelta(minutes=30) <= done.next_at <= NOW + timedelta(hours=1)
    assert (await sandbox.drain(through=done.next_at - NOW)).failed == 1


async def test_a_delay_ends_when_it_is_due_and_not_before(sandbox):
    handle = await double.options(delay=60).submit(4)
    sandbox.travel(59.999)
    assert (await sandbox.drain()).next_at == NOW + timedelta(seconds=60)
    assert sandbox.travel(0.001) == NOW + timedelta(seconds=60)
    assert sandbox.job(handle).state == "queued"
    assert (await sandbox.drain()).completed == 1
    other = await double.options(run_at=NOW + timedelta(days=2)).submit(4)
    sandbox.travel(to=NOW + timedelta(days=2))
    assert sandbox.job(other).state == "queued"


async def test_a_drain_runs_the_jobs_of_a_schedule_that_became_due():
    """Its next occurrence has waited for a job that was cancelled."""
    own = App(redis_url=NOWHERE)

    @own.schedule(every=60, missed="all", overlap="queue")
    @own.task
    async def often() -> None: ...

    async with Sandbox(own, now=NOW) as sandbox:
        await own.client.sync(own)
        sandbox.travel(120)
        (first,) = sandbox.jobs()
        await own.client.cancel(first.id)
        assert (await sandbox.drain()).completed == 1
        assert [job.state for job in sandbox.jobs()] == ["cancelled", "completed"]


def test_travel_into_the_past_is_refused(sandbox):
    for wrong in ({"by": -1}, {"to": NOW - timedelta(seconds=1)}):
        with pytest.raises(Invalid, match="not before"):
            sandbox.travel(**wrong)
    with pytest.raises(Invalid, match="time zone"):
        sandbox.travel(to=datetime(2040, 1, 1))  # without a time zone, on purpose
    assert sandbox.now == NOW


async def test_a_finished_job_is_deleted_after_its_retention(sandbox):
    handle = await double.options(retention=3600).submit(4)
    await sandbox.drain()
    sandbox.travel(3599)
    assert sandbox.job(handle).result == 8
    sandbox.travel(2)
    with pytest.raises(NotFound):
        sandbox.job(handle)


async def test_a_deduplication_key_lasts_until_the_end_or_for_its_window(sandbox):
    first = await double.options(key="k").submit(1)
    assert (await double.options(key="k").submit(2)).id == first.id
    await sandbox.drain()
    assert (await double.options(key="k").submit(3)).created
    await double.options(key="w", window=60).submit(1)
    sandbox.travel(59)
    assert not (await double.options(key="w", window=60).submit(1)).created
    sandbox.travel(2)
    assert (await double.options(key="w", window=60).submit(1)).created


# outcomes


async def test_a_snoozed_job_runs_again(sandbox):
    handle = await steered.submit("snooze")
    assert (await sandbox.drain()).released == 1
    assert (await sandbox.drain(through=3600)).completed == 1
    assert codes(sandbox, handle) == ["released", "released", "completed"]
    assert sandbox.now == NOW + timedelta(minutes=20)


async def test_a_discarded_job_is_dead_at_once(sandbox):
    handle = await steered.submit("discard")
    assert (await sandbox.drain()).failed == 1
    with pytest.raises(JobFailed, match="no use"):
        await handle.result()


async def test_a_cancelled_job_does_not_run(sandbox):
    handle = await double.submit(4)
    assert await handle.cancel() == "cancelled"
    assert (await sandbox.drain()).completed == 0
    with pytest.raises(JobCancelled):
        await handle.result()


async def test_a_dead_workers_job_stays_leased_until_the_lease_ends(sandbox):
    handle = await mortal.submit()
    done = await sandbox.drain()
    assert (done.died, done.refused, done.failed, done.running) == (1, 0, 0, 1)
    assert done.next_at == NOW + timedelta(seconds=30)
    assert (await sandbox.drain()).completed == 0
    assert (await sandbox.drain(through=30)).completed == 1
    assert await handle.result() == "restored {'seen': 1}, lease_expired"
    assert codes(sandbox, handle) == ["lease_expired", "completed"]
    assert "attempt 2" in sandbox.job(handle).attempts[-1].log[0]


async def test_a_job_that_kills_its_workers_becomes_dead(sandbox):
    handle = await mortal.submit(99)
    done = await sandbox.drain(through=timedelta(hours=1))
    assert done.died == 3
    assert sandbox.job(handle).state == "dead"


async def test_a_job_of_an_unknown_task_is_reported_and_released(sandbox, caplog):
    await app.client.submit("nobody")
    with caplog.at_level(logging.WARNING):
        assert (await sandbox.drain()).released == 1
    assert "unknown_task" in caplog.text
    with pytest.raises(JobFailed, match="no task nobody"):
        await sandbox.drain(through=60, raising=True)


# drains


async def test_a_drain_raises_the_tasks_exception(sandbox):
    await flaky.submit()
    with pytest.raises(ConnectionError, match="hung up") as caught:
        await sandbox.drain(raising=True)
    assert any(entry.name == "flaky" for entry in caught.traceback)
    assert "attempt 1 of job" in caught.value.__notes__[0]
    await double.submit(1)
    assert (await sandbox.drain(raising=True)).completed == 1  # the earlier failure was reported already


async def test_jobs_running_at_a_failure_are_released():
    own = App(redis_url=NOWHERE)
    begun = asyncio.Event()

    @own.task
    async def slow() -> None:
        begun.set()
        await asyncio.sleep(60)

    @own.task
    async def wrong() -> None:
        await begun.wait()
        raise ZeroDivisionError

    async with Sandbox(own, slots=2) as sandbox:
        handle = await slow.submit()
        await wrong.submit()
        with pytest.raises(ZeroDivisionError):
            await sandbox.drain(raising=True)
        assert sandbox.job(handle).state == "queued"


async def test_an_endless_drain_raises_at_its_limit(sandbox):
    await again.submit()
    with pytest.raises(Endless, match="whether a task submits itself"):
        await sandbox.drain(limit=10)
    assert len(sandbox.jobs(task="again", state="completed")) == 10


async def test_a_drain_may_use_its_whole_limit(sandbox):
    for n in range(10):
        await double.submit(n)
    assert (await sandbox.drain(limit=10)).completed == 10


async def test_all_queues_except_paused_ones_are_drained(sandbox):
    for n in range(40):
        await double.options(queue=f"q{n}").submit(n)
    await app.client.pause("q7")
    done = await sandbox.drain()
    assert (done.completed, done.queued) == (39, 1)
    assert [job.queue for job in sandbox.jobs(state="queued")] == ["q7"]


async def test_jobs_run_in_the_order_of_priority_and_submission():
    own, ran = App(redis_url=NOWHERE), []

    @own.task
    async def note(word: str) -> None:
        ran.append(word)

    with Sandbox(own) as sandbox:
        for word, priority in (("a", 0), ("b", 0), ("urgent", 9), ("c", 0)):
            await note.options(priority=priority).submit(word)
        await sandbox.drain()
    assert ran == ["urgent", "a", "b", "c"]


def test_drain_sync_is_refused_inside_an_event_loop(sandbox):
    handle = double.submit_sync(4)
    assert sandbox.drain_sync().completed == 1
    assert handle.result() == 8

    async def inside():
        sandbox.drain_sync()

    with pytest.raises(Invalid, match="await sandbox"):
        asyncio.run(inside())


async def test_a_concurrent_worker_runs_submitted_and_due_jobs(sandbox):
    async with sandbox.working():
        assert await (await double.submit(4)).result() == 8
        later = await double.options(delay=3600).submit(5)
        sandbox.travel(3600)
        assert await later.result() == 10


async def test_a_concurrent_worker_is_woken_without_polling(sandbox):
    async with sandbox.working(), asyncio.timeout(15):  # polling every 2 s would take 40 s
        for n in range(20):
            assert await (await double.submit(n)).result() == 2 * n


async def test_a_program_with_its_own_worker_runs_in_the_sandbox(sandbox):
    handle = await double.submit(4)
    assert (await work(app, drain=True)).completed == 1
    assert await handle.result() == 8


async def test_a_queue_with_missing_jobs_does_not_block_a_drain(sandbox):
    handle = await double.submit(4)
    with sandbox._entered().sync_client() as raw:
        raw.delete(keys.job(app.operations.bases[0], handle.id))
    assert (await sandbox.drain()).completed == 0
