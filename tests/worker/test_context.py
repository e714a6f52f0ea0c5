"""The context of a task: its attempt, progress, checkpoints and logs."""

import asyncio
import json
import logging
from datetime import timedelta

import pytest

from sublet import Context
from sublet.context import current
from sublet.errors import Invalid
from sublet.job_log import JobLogHandler
from sublet.model import Lease, News


def lease(timeout_ms=60_000, checkpoint=b""):
    return Lease("0-1", "7.claim", 2, 0, "q", "t", timeout_ms, b"", "crashed", "00-ab-cd-01", checkpoint)


@pytest.fixture
def reports():
    return []


@pytest.fixture
def ctx(reports):
    return Context(lease(), lambda news, body: reports.append((news, body)))


def test_a_context_shows_its_attempt(ctx):
    assert (ctx.id, ctx.task, ctx.queue, ctx.attempt, ctx.fence, ctx.recovered) == (
        "0-1",
        "t",
        "q",
        2,
        7,
        "crashed",
    )
    assert (ctx.trace, ctx.restored, ctx.cancelled, ctx.ending) == ("00-ab-cd-01", None, False, "")
    assert 59 < ctx.remaining <= 60
    assert ctx.deadline.tzinfo


def test_an_attempt_without_a_timeout_has_no_deadline(reports):
    endless = Context(lease(timeout_ms=None), reports.append)
    assert (endless.remaining, endless.deadline) == (None, None)


def test_a_checkpoint_is_sent_at_once_and_read_by_the_next_attempt(ctx, reports):
    ctx.checkpoint({"done": [1, 2]})
    assert reports == [(News.CHECKPOINT, b'{"done":[1,2]}')]
    assert Context(lease(checkpoint=reports[0][1]), reports.append).restored == {"done": [1, 2]}


@pytest.mark.parametrize(
    "data", [{1, 2}, float("nan"), "x" * 70_000], ids=["no JSON", "no number", "too large"]
)
def test_an_invalid_checkpoint_is_refused_with_the_reason(ctx, reports, data):
    with pytest.raises(Invalid, match="checkpoint"):
        ctx.checkpoint(data)
    assert reports == []


def test_progress_is_sent_a_few_times_a_second_at_most_and_the_last_counts(ctx, reports):
    for i in range(1000):
        ctx.progress(i / 1000, stage="reading" if i < 500 else "")
    assert len(reports) < 100
    ctx.flush()
    assert json.loads(reports[-1][1]) == {"fraction": 0.999, "stage": "reading"}
    before = len(reports)
    ctx.flush()
    assert len(reports) == before


def test_a_new_stage_keeps_the_fraction(ctx, reports):
    ctx.progress(0.5, message="half")
    ctx.stage("writing")
    ctx.flush()
    assert json.loads(reports[-1][1]) == {"fraction": 0.5, "stage": "writing"}


def test_progress_is_limited_to_0_and_1(ctx, reports):
    ctx.progress(7)
    ctx.flush()
    assert json.loads(reports[-1][1]) == {"fraction": 1.0}


@pytest.mark.parametrize("fraction", [float("nan"), "half", None])
def test_progress_that_is_no_number_is_refused(ctx, fraction):
    with pytest.raises(Invalid, match="use a number from 0 to 1"):
        ctx.progress(fraction)


def test_the_last_lines_of_a_log_are_kept(ctx, reports):
    for i in range(10_000):
        ctx.log(f"line {i}")
    ctx.flush()
    lines = reports[-1][1].decode().splitlines()
    assert len(reports[-1][1]) <= 8192
    assert lines[-1].endswith("line 9999")
    assert lines[0].startswith("+")


def test_one_long_line_does_not_push_out_the_others(ctx, reports):
    ctx.log("first")
    ctx.log("x" * 100_000)
    ctx.flush()
    assert [line.partition(" ")[2][:5] for line in reports[-1][1].decode().splitlines()] == ["first", "xxxxx"]


def test_only_logs_of_the_task_are_kept_with_its_job(ctx, reports):
    logger, handler = logging.getLogger("test.context"), JobLogHandler()
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        logger.info("before")
        token = current.set(ctx)
        logger.warning("watch %s", "out")
        current.reset(token)
        logger.info("after")
    finally:
        logger.removeHandler(handler)
    ctx.flush()
    assert [line.partition(" ")[2] for line in reports[-1][1].decode().splitlines()] == ["warning watch out"]


async def test_a_task_may_log_from_a_thread_while_its_log_is_sent(ctx, reports):
    def chatter():
        for i in range(2000):
            ctx.log(f"line {i}")

    talking = asyncio.get_running_loop().run_in_executor(None, chatter)
    while not talking.done():
        ctx.flush()
        await asyncio.sleep(0)
    await talking
    ctx.flush()
    assert reports[-1][1].decode().endswith("line 1999")


def test_a_sleep_without_a_time_is_refused_and_a_computed_0_is_none(ctx):
    with pytest.raises(Invalid, match="sleep 'cool-off' has no time: give seconds, minutes, hours or days"):
        ctx.sleep("cool-off")
    for time in ({"seconds": 0}, {"days": 0}, {"minutes": 0.0}, {"seconds": timedelta(0)}):
        with pytest.raises(Invalid, match="this context has no steps"):
            ctx.sleep("cool-off", **time)
