"""Steps, sleeps and signals of tasks, with real workers, on Redis and over HTTP."""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

import pytest

from sublet import App, Client, Context, State, WrongState
from sublet.connection.settings import Settings
from sublet.errors import Unavailable
from sublet.execution import attempt
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker

pytest_plugins = ["tests.support.job_sources"]
app = App(settings=Settings())
DONE: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done():
    DONE.clear()


@dataclass
class Receipt:
    number: int
    paid: timedelta


async def charge(number: int) -> Receipt:
    DONE.append(f"charge {number}")
    return Receipt(number, timedelta(seconds=5))


async def fails(times: int) -> str:
    DONE.append("fails")
    if DONE.count("fails") <= times:
        raise ConnectionError("away")
    return "there"


@app.task(max_attempts=2, backoff=0.0)
async def orders(ctx: Context, number: int) -> list[object]:
    """Charges, fails once, sleeps, and waits for an approval."""
    receipt = await ctx.step("charge", charge, number)
    word = await ctx.step("call", fails, 1)
    await ctx.sleep("cool-off", 0.01)
    approval = await ctx.wait_for("approval", timeout=timedelta(days=7))
    DONE.append("end")
    return [receipt.number, receipt.paid.total_seconds(), word, approval, ctx.step_key("charge")]


@app.task
async def approved(ctx: Context) -> int:
    """Charges after a signal."""
    await ctx.wait_for("go")
    return (await ctx.step("charge", charge, 3)).number


@app.task
async def cleans(ctx: Context) -> str:
    """Catches all exceptions, and cleans up under its lease."""
    try:
        await ctx.wait_for("go")
    except Exception:
        DONE.append("caught")
        raise
    finally:
        await ctx.step("clean", charge, 1)
    return "went"


@app.task
async def limited(ctx: Context) -> str:
    try:
        await ctx.wait_for("go", timeout=0.01)
    except TimeoutError as error:
        return str(error)
    return "no timeout"


@app.task(max_attempts=1)
async def twice(ctx: Context) -> None:
    await ctx.step("same", charge, 1)
    await ctx.step("same", charge, 2)


@app.task(max_attempts=3, backoff=0.0)
async def tries_again(ctx: Context) -> str:
    """A step that raised may be tried again in the same attempt."""
    try:
        await ctx.step("call", fails, 1)
    except ConnectionError:
        return await ctx.step("call", fails, 1)
    return "too soon"


@app.task(max_attempts=2)
async def counts_tries(ctx: Context) -> list[int]:
    before = ctx.tries_left
    await ctx.step("one", asyncio.to_thread, sum, [1, 2])
    return [before, ctx.tries_left]


@app.task
async def groups(ctx: Context) -> str:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.wait_for("left"))
        group.create_task(asyncio.sleep(0))
    return "both"


@app.task(run="thread", max_attempts=2, backoff=0.0)
def plain(ctx: Context, number: int) -> list[object]:
    """As `orders`, in a thread."""
    paid = ctx.step("charge", lambda: DONE.append("charge") or number)
    if ctx.attempt == 1:
        raise ConnectionError("after the step")
    ctx.sleep("cool-off", 0.01)
    return [paid, ctx.wait_for("approval")]


@app.task(max_attempts=1)
async def too_large(ctx: Context) -> None:
    await ctx.step("big", asyncio.to_thread, lambda: "x" * 70_000)


async def drain(source):
    async with asyncio.timeout(30):
        return await Worker(app, source, WorkerConfig(slots=1, lease=60)).run(drain=True)


async def until(source, client, job_id, state):
    """Run workers until the job is in this state; due jobs need a moment."""
    async with asyncio.timeout(30):
        while True:
            await drain(source)
            job = await client.get(job_id)
            if job.state is state:
                return job
            await asyncio.sleep(0.01)


async def scheduled_for_long(source, client, job_id):
    """Run workers until the job waits for a signal."""
    async with asyncio.timeout(30):
        while True:
            await drain(source)
            job = await client.get(job_id)
            if job.state is State.SCHEDULED and job.attempts[-1].message.startswith("signal"):
                return job
            await asyncio.sleep(0.01)


async def test_the_steps_of_a_job_are_done_once(source, store):
    client = Client(store=store)
    (submitted,) = await source.submit([orders.job(7)])
    job = await scheduled_for_long(source, client, submitted.id)
    assert [one.code for one in job.attempts] == ["ConnectionError", "suspended", "suspended"]
    assert DONE == ["charge 7", "fails", "fails"]
    assert await client.signal(job.id, "approval", {"by": "ada"}) == "kept"
    job = await until(source, client, job.id, State.COMPLETED)
    assert job.result == [7, 5.0, "there", {"by": "ada"}, f"{job.id}:charge"]
    assert DONE == ["charge 7", "fails", "fails", "end"]


async def test_a_plain_function_in_a_thread_has_steps(source, store):
    client = Client(store=store)
    (submitted,) = await source.submit([plain.job(3)])
    job = await scheduled_for_long(source, client, submitted.id)
    await client.signal(job.id, "approval", "yes")
    job = await until(source, client, job.id, State.COMPLETED)
    assert (job.result, DONE) == ([3, "yes"], ["charge"])


async def test_a_signal_before_the_wait_is_found_in_the_same_attempt(source, store):
    client = Client(store=store)
    (submitted,) = await source.submit([limited.job()])
    await client.signal(submitted.id, "go", 1)
    job = await until(source, client, submitted.id, State.COMPLETED)
    assert (job.result, job.attempt) == ("no timeout", 1)


async def test_a_signal_cannot_do_a_step(source, store):
    client = Client(store=store)
    (submitted,) = await source.submit([approved.job()])
    await client.signal(submitted.id, "charge", {"number": 9, "paid": "PT0S"})
    await client.signal(submitted.id, "go", "yes")
    job = await until(source, client, submitted.id, State.COMPLETED)
    assert (job.result, DONE) == (3, ["charge 3"])


async def test_a_wait_that_reaches_its_limit_raises(source, store):
    client = Client(store=store)
    (submitted,) = await source.submit([limited.job()])
    job = await until(source, client, submitted.id, State.COMPLETED)
    assert (job.result, job.attempt) == ("the signal go did not come in time", 2)
    with pytest.raises(WrongState):
        await client.signal(job.id, "go")


async def test_a_suspension_is_not_caught_and_cleans_up_under_its_lease(source, store):
    client = Client(store=store)
    (submitted,) = await source.submit([cleans.job()])
    job = await scheduled_for_long(source, client, submitted.id)
    assert DONE == ["charge 1"]
    await client.signal(job.id, "go")
    job = await until(source, client, job.id, State.COMPLETED)
    assert (job.result, DONE) == ("went", ["charge 1"])


async def test_a_suspended_job_counts_as_suspended_and_frees_its_slot(store):
    client = Client(store=store)
    jobs = [cleans.job() for _ in range(3)]
    await store.submit(jobs)
    summary = await drain(store)
    assert (summary.suspended, summary.completed, summary.failed, summary.released) == (3, 0, 0, 0)
    for job in jobs:
        await client.signal(job.id, "go")
    assert (await drain(store)).completed == 3


async def test_a_name_used_twice_is_refused(store):
    (submitted,) = await store.submit([twice.job()])
    await drain(store)
    job = await Client(store=store).get(submitted.id)
    assert (job.state, job.attempts[0].code) == (State.DEAD, "Invalid")
    assert "step 'same' is used twice in this attempt: give each step its own name" in job.attempts[0].message
    assert DONE == ["charge 1"]


async def test_a_failed_step_may_be_tried_again_in_its_attempt(store):
    (submitted,) = await store.submit([tries_again.job()])
    await drain(store)
    job = await Client(store=store).get(submitted.id)
    assert (job.result, job.attempt) == ("there", 1)


async def test_a_kept_step_shows_the_tries_that_are_left_now(store):
    (submitted,) = await store.submit([counts_tries.job()])
    await store.run(attempt_of_nobody(store, submitted.id))
    await drain(store)
    assert (await Client(store=store).get(submitted.id)).result == [0, 1]


def attempt_of_nobody(store, job_id):
    """A read that also takes a try from the job."""
    from sublet.protocol import keys
    from sublet.protocol.scripts import Call

    hash_ = keys.job(store.operations.base_of_job(job_id), job_id)
    return Call((("HSET", hash_, "tries_left", 1, "attempt", 1),), int)


async def test_a_suspension_in_a_task_group_suspends(source, store):
    client = Client(store=store)
    (submitted,) = await source.submit([groups.job()])
    job = await scheduled_for_long(source, client, submitted.id)
    await client.signal(job.id, "left")
    assert (await until(source, client, job.id, State.COMPLETED)).result == "both"


async def test_a_result_that_is_too_large_for_a_step_kills_the_job(store):
    """Another try would do the step again, and fail again."""
    (submitted,) = await store.submit([too_large.job()])
    await drain(store)
    job = await Client(store=store).get(submitted.id)
    assert (job.state, job.attempts[0].code) == (State.DEAD, "invalid_result")
    assert "step big returned 70,002 bytes (JSON): at most 65,536 are kept" in job.attempts[0].message


async def test_a_result_is_kept_however_long_the_server_is_away(store, monkeypatch):
    calls, real = [], store.step

    async def away(lease, steps):
        calls.append(dict(steps))
        if len(calls) < 4:
            raise Unavailable("Redis is away")
        return await real(lease, steps)

    monkeypatch.setattr(store, "step", away)
    monkeypatch.setattr(attempt, "KEEP_AGAIN", 0.001)
    (submitted,) = await store.submit([counts_tries.job()])
    await drain(store)
    assert (await Client(store=store).get(submitted.id)).state is State.COMPLETED
    assert calls == [{"one": b"3"}] * 4


async def test_a_retry_anew_forgets_the_steps(store):
    client = Client(store=store)
    (submitted,) = await store.submit([cleans.job()])
    await drain(store)
    await client.cancel(submitted.id)
    await client.retry(submitted.id, anew=True)
    await drain(store)
    assert DONE == ["charge 1", "charge 1"]


@pytest.mark.parametrize(
    "value", [{1}, float("nan"), "x" * 70_000], ids=["no JSON", "no number", "too large"]
)
async def test_an_invalid_signal_is_refused(store, value):
    from sublet import Invalid

    with pytest.raises(Invalid, match="signal"):
        await Client(store=store).signal("0-a", "go", value)
