"""Steps, sleeps and signals in a sandbox: a month passes at once, wherever a plain function runs."""

from datetime import UTC, datetime, timedelta

import pytest

from sublet import App, Context, Invalid
from sublet.testing import Sandbox, StandIn

app = App(redis_url="redis://127.0.0.1:1")
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
DONE: list[str] = []


def charge() -> int:
    DONE.append("charge")
    return 7


@app.task
def plain(ctx: Context) -> list[object]:
    paid = ctx.step("charge", charge)
    ctx.sleep("cool-off", days=30)
    return [paid, ctx.wait_for("approval", timeout=timedelta(days=7))]


@app.task
async def on_loop(ctx: Context) -> list[object]:
    paid = await ctx.step("charge", charge)
    await ctx.sleep("cool-off", days=30)
    return [paid, await ctx.wait_for("approval", timeout=timedelta(days=7))]


@app.task
def plain_words(ctx: Context) -> None:
    for word in ("a", "b"):
        ctx.emit(word)


@app.task
async def words(ctx: Context) -> None:
    for word in ("a", "b"):
        await ctx.emit(word)


@pytest.mark.parametrize(
    ("task", "how"), [(words, "thread"), (plain_words, "thread"), (plain_words, "inline")]
)
def test_the_chunks_of_a_task_are_read_in_a_sandbox(task, how):
    with Sandbox(app, plain=how) as sandbox:
        handle = task.submit_sync()
        assert sandbox.drain_sync().completed == 1
        assert [chunk.value for chunk in handle.stream()] == ["a", "b"]


@pytest.mark.parametrize(("task", "how"), [(on_loop, "thread"), (plain, "thread"), (plain, "inline")])
def test_a_job_sleeps_for_a_month_and_is_approved(task, how):
    DONE.clear()
    with Sandbox(app, plain=how, now=NOW) as sandbox:
        handle = task.submit_sync()
        done = sandbox.drain_sync(through=timedelta(days=31))
        assert (done.suspended, done.next_at) == (2, sandbox.now + timedelta(days=7))
        assert sandbox.job(handle).awaits == "signal approval"
        app.sync.signal(handle.id, "approval", "ada")
        assert sandbox.drain_sync().completed == 1
        assert (sandbox.job(handle).result, DONE) == ([7, "ada"], ["charge"])


@app.task
def number(n: int) -> int:
    return n


@app.task
def summed(ctx: Context) -> int:
    return sum(one.value for one in ctx.upstream)


@pytest.mark.parametrize("how", ["thread", "inline"])
def test_a_plain_function_reads_what_it_waited_for(how):
    with Sandbox(app, plain=how, now=NOW) as sandbox:
        with app.sync.workflow() as flow:
            last = flow.add(summed.job(), after=[flow.add(number.job(n)) for n in range(5)])
        assert sandbox.drain_sync().completed == 6
        assert sandbox.job(last).result == 10


@app.task
def calls(ctx: Context) -> int:
    return ctx.call("number", number.job(8)) + 1


@pytest.mark.parametrize("how", ["thread", "inline"])
def test_a_plain_function_calls_a_job(how):
    with Sandbox(app, plain=how, now=NOW) as sandbox:
        handle = calls.submit_sync()
        done = sandbox.drain_sync()
        assert (done.completed, done.suspended) == (2, 1)
        assert sandbox.job(handle).result == 9


def test_an_approval_that_does_not_come_fails_the_attempt():
    with Sandbox(app, now=NOW) as sandbox:
        handle = on_loop.submit_sync()
        sandbox.drain_sync(through=timedelta(days=40))
        codes = [attempt.code for attempt in sandbox.job(handle).attempts]
        assert codes[:3] == ["suspended", "suspended", "TimeoutError"]


@app.task
async def without_limit(ctx: Context) -> object:
    return await ctx.wait_for("approval")


def test_a_wait_without_a_limit_has_no_moment():
    with Sandbox(app, now=NOW) as sandbox:
        without_limit.submit_sync()
        done = sandbox.drain_sync()
        assert (done.suspended, done.scheduled, done.next_at) == (1, 1, None)


async def test_a_stand_in_has_no_steps():
    with pytest.raises(
        Invalid, match="this context has no steps, stream or upstream jobs: run the task with a worker, or in"
    ):
        await on_loop(StandIn())
