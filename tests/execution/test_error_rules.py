"""`retry_on` and `discard_on`: the exceptions after which a job is tried again, for each kind of task."""

import asyncio
import sys
from contextlib import suppress

import pytest

from sublet import Context, Discard, Invalid, JobFailed, Snooze
from tests.support import error_rule_tasks as tasks
from tests.support.pages import blocks
from tests.support.paths import ROOT
from tests.support.workers_beside import beside

GUIDE = (ROOT / "docs" / "guides" / "failures.md").read_text()


@pytest.fixture
async def codes(store, client):
    """Submit a job, run it to its end, and give its state and the codes of its attempts."""

    async def codes(app, job):
        (submitted,) = await client.submit_all([job])
        async with beside(app, store, processes=1):
            with suppress(JobFailed):
                await client.result(submitted.id, 30)
        job = await client.get(submitted.id)
        return job.state, [attempt.code for attempt in job.attempts]

    return codes


KINDS = ("on_loop", "in_a_thread", "in_a_child")


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize("error", ["Away", "TimeoutError"])
async def test_a_subclass_of_retry_on_is_tried_again(codes, task, error):
    assert await codes(tasks.app, tasks.app.tasks[task].job(error)) == ("dead", [error, error])


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize("error", ["LookupError", "SystemExit", "MemoryError"])
async def test_with_retry_on_any_other_exception_ends_the_job(codes, task, error):
    assert await codes(tasks.app, tasks.app.tasks[task].job(error)) == ("dead", [error])


@pytest.mark.parametrize("task", KINDS)
async def test_the_nearest_base_class_decides(codes, task):
    """FileNotFoundError is an OSError, which is tried again, and is discarded itself."""
    assert await codes(tasks.app, tasks.app.tasks[task].job("FileNotFoundError")) == (
        "dead",
        ["FileNotFoundError"],
    )


async def test_without_retry_on_an_exception_that_is_not_discarded_is_tried_again(codes):
    job = tasks.lenient.tasks["only_discards"].job
    assert await codes(tasks.lenient, job("OSError")) == ("dead", ["OSError", "OSError"])
    assert await codes(tasks.lenient, job("LookupError")) == ("dead", ["LookupError"])


async def test_the_rules_of_a_command_are_about_program_failed(codes):
    assert await codes(tasks.app, tasks.exits.job()) == ("dead", ["exit_3", "exit_3"])
    assert await codes(tasks.app, tasks.exits_for_good.job()) == ("dead", ["exit_3"])


async def test_a_timeout_is_tried_again_whatever_the_rules(codes):
    assert await codes(tasks.app, tasks.app.tasks["stuck"].job()) == ("completed", ["timed_out", "completed"])


async def test_an_async_task_that_cancels_itself_follows_the_rules(app, codes):
    @app.task(retry_on=(ConnectionError,), backoff=0.01)
    async def work():
        raise asyncio.CancelledError

    assert await codes(app, work.job()) == ("dead", ["CancelledError"])


async def test_an_exception_that_cannot_be_read_follows_the_rules(app, codes):
    class Unreadable(Exception):
        @property
        def __class__(self):
            raise RuntimeError

    @app.task(retry_on=(), backoff=0.01)
    async def work():
        raise Unreadable

    assert (await codes(app, work.job()))[1] == ["Unreadable"]


async def test_snooze_and_discard_decide_themselves(app, codes):
    @app.task(retry_on=(), discard_on=(Exception,), max_attempts=1)
    async def snoozes(ctx: Context):
        if ctx.attempt == 1:
            raise Snooze(0)

    @app.task(retry_on=(Exception,))
    async def discards():
        raise Discard("no use")

    assert await codes(app, snoozes.job()) == ("completed", ["released", "completed"])
    assert await codes(app, discards.job()) == ("dead", ["discarded"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"retry_on": "ConnectionError"},
            "retry_on: 'ConnectionError' is not an exception class: use classes",
        ),
        ({"retry_on": (ValueError("x"),)}, "is not an exception class"),
        ({"discard_on": (int,)}, "discard_on: \"<class 'int'>\" is not an exception class"),
        ({"retry_on": (Snooze,)}, "retry_on: Snooze decides itself what happens to the job: leave it out"),
        (
            {"retry_on": (OSError, KeyError), "discard_on": [KeyError]},
            "task work: KeyError is in retry_on and in discard_on: remove it from one",
        ),
    ],
)
def test_wrong_rules_are_refused_when_the_task_is_declared(app, options, words):
    with pytest.raises(Invalid) as refused:

        @app.task(**options)
        async def work(): ...

    assert words in str(refused.value)
    assert app.tasks == {}


def test_options_takes_no_rules(app):
    @app.task
    async def work(): ...

    with pytest.raises(Invalid, match=r"task work: retry_on: exception classes are not stored with a job"):
        work.options(retry_on=(OSError,))


# Invalid, raised by a task


@pytest.mark.parametrize("run", ["loop", "thread"])
async def test_invalid_raised_by_a_task_is_an_error_like_any_other(app, codes, run):
    """A task that submits a job with wrong arguments is tried again: its result is not the fault."""

    @app.task(max_attempts=2, backoff=0.01)
    async def on_loop():
        on_loop.job("too many")

    @app.task(max_attempts=2, backoff=0.01, run="thread")
    def in_thread():
        in_thread.job("too many")

    task = {"loop": on_loop, "thread": in_thread}[run]
    assert await codes(app, task.job()) == ("dead", ["Invalid", "Invalid"])


async def test_a_wrong_result_ends_the_job_at_once(app, codes):
    @app.task
    async def work() -> int:
        return None

    assert await codes(app, work.job()) == ("dead", ["invalid_result"])


async def test_the_snippet_of_the_guide(codes, tmp_path, monkeypatch):
    (tmp_path / "bank.py").write_text(blocks("python", GUIDE)[0][1])
    monkeypatch.syspath_prepend(tmp_path)
    import bank

    try:
        fetch = bank.fetch.options(backoff=0.01)
        assert await codes(bank.app, fetch.job("a")) == ("dead", ["ConnectionResetError"] * 3)
        assert await codes(bank.app, bank.charge.job(-1)) == ("dead", ["CardDeclined"])
        assert await codes(bank.app, bank.charge.job(1)) == ("completed", ["completed"])
    finally:
        del sys.modules["bank"]
