"""Each policy for missed occurrences with each for overlapping ones, end to end in a sandbox with a
controlled clock."""

from datetime import UTC, datetime, timedelta

import pytest

from sublet import App, Context
from sublet.testing import Sandbox

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def app_of(cron=None, **how):
    app = App(redis_url="redis://127.0.0.1:1")

    @app.schedule(*([cron] if cron else []), **how)
    @app.task
    async def report(ctx: Context) -> str:
        return ctx.occurrence.isoformat()

    return app


def fire(app):
    """Fire due occurrences; return the number of jobs."""
    return app.sync.store.follow(app.operations.fire("test"))


async def settle(sandbox):
    """Fire and work until nothing changes."""
    for _ in range(20):
        fired, done = fire(sandbox.app), await sandbox.drain()
        if not fired and not done.completed:
            return
    raise AssertionError("it never ended")


def minutes(sandbox):
    """The occurrences that got a job, in minutes since noon."""
    return sorted((job.run_at - NOON) // timedelta(minutes=1) for job in sandbox.jobs())


def counts(app):
    found = app.sync.schedules.get("report")
    return found.fired, found.occurrences_missed, found.occurrences_skipped


POLICIES = {
    ("latest", "allow"): ([1, 6], [1, 6], (2, 4, 0)),
    ("latest", "skip"): ([1], [1], (1, 4, 1)),
    ("latest", "queue"): ([1], [1, 6], (2, 4, 0)),
    ("skip", "allow"): ([1], [1], (1, 5, 0)),
    ("skip", "skip"): ([1], [1], (1, 5, 0)),
    ("skip", "queue"): ([1], [1], (1, 5, 0)),
    ("all", "allow"): ([1, 4, 5, 6], [1, 4, 5, 6], (4, 2, 0)),
    ("all", "skip"): ([1], [1], (1, 2, 3)),
    ("all", "queue"): ([1], [1, 4, 5, 6], (4, 2, 0)),
}
"""Occurrences 2 to 6 came without a tick, while the job of occurrence 1 was not over: the jobs right after,
the jobs in the end, and the numbers of fired, missed and skipped occurrences."""


@pytest.mark.parametrize(("missed", "overlap"), POLICIES, ids=["-".join(both) for both in POLICIES])
async def test_each_policy_for_missed_occurrences_with_each_for_overlapping_ones(missed, overlap):
    app = app_of(every=60, missed=missed, late=20, most=3, overlap=overlap)
    at_once, in_the_end, counted = POLICIES[missed, overlap]
    async with Sandbox(app, now=NOON) as sandbox:
        app.sync.sync(app)
        sandbox.travel(60)
        sandbox.travel(330)
        assert minutes(sandbox) == at_once
        held = app.sync.schedules.get("report")
        waits = len(at_once) < len(in_the_end)
        assert (held.state, held.held) == (
            ("held", f"job {held.last_job} is not over") if waits else ("active", None)
        )
        await settle(sandbox)
        assert minutes(sandbox) == in_the_end
        assert {job.state for job in sandbox.jobs()} == {"completed"}
        assert [job.result for job in sandbox.jobs()] == [job.run_at.isoformat() for job in sandbox.jobs()]
        assert counts(app) == counted
        assert app.sync.schedules.get("report").next_at == NOON + timedelta(minutes=7)


async def test_an_occurrence_that_is_not_too_late_is_fired_with_skip():
    app = app_of(every=60, missed="skip", late=45)
    async with Sandbox(app, now=NOON) as sandbox:
        app.sync.sync(app)
        sandbox.travel(330)
        assert (minutes(sandbox), counts(app)) == ([5], (1, 4, 0))


async def test_queued_occurrences_run_one_after_the_other():
    app = app_of(every=60, missed="all", overlap="queue")
    async with Sandbox(app, now=NOON) as sandbox:
        app.sync.sync(app)
        sandbox.travel(200)
        for n in (1, 2, 3):
            fire(app)
            open_jobs = [job for job in sandbox.jobs() if job.state == "queued"]
            assert len(open_jobs) <= 1
            await sandbox.drain()
            assert len(minutes(sandbox)) >= n
        await settle(sandbox)
        assert minutes(sandbox) == [1, 2, 3]


async def test_an_occurrence_waits_for_a_full_queue():
    app = app_of(every=60)
    async with Sandbox(app, now=NOON) as sandbox:
        app.sync.sync(app)
        app.sync.configure("default", jobs=0)
        sandbox.travel(61)
        found = app.sync.schedules.get("report")
        assert (found.state, found.held.startswith("its queue is full: ")) == ("held", True)
        app.sync.configure("default", jobs=None)
        sandbox.travel(6)
        await settle(sandbox)
        assert (minutes(sandbox), counts(app)[:2]) == ([1], (1, 0))


async def test_occurrences_are_between_start_and_end_both_included():
    app = app_of(every=60, start=NOON + timedelta(minutes=2), end=NOON + timedelta(minutes=4), missed="all")
    async with Sandbox(app, now=NOON) as sandbox:
        app.sync.sync(app)
        assert app.sync.schedules.get("report").next_at == NOON + timedelta(minutes=2)
        for _ in range(8):
            sandbox.travel(60)
        assert minutes(sandbox) == [2, 3, 4]
        assert app.sync.schedules.get("report").state == "ended"


async def test_a_job_with_jitter_is_due_later_and_keeps_its_occurrence():
    app = app_of(every=60, jitter=30)
    async with Sandbox(app, now=NOON) as sandbox:
        app.sync.sync(app)
        found = app.sync.schedules.get("report")
        late = found.due_at - found.next_at
        assert timedelta() < late <= timedelta(seconds=30)
        sandbox.travel(to=found.due_at - timedelta(milliseconds=1))
        assert minutes(sandbox) == []
        sandbox.travel(0.001)
        assert minutes(sandbox) == [1]
        assert app.sync.schedules.get("report").fired_at == found.due_at


@pytest.mark.parametrize(
    ("night", "hours"), [("2026-03-28", [1.0]), ("2026-10-24", [0.5])], ids=["spring", "autumn"]
)
async def test_a_schedule_at_half_past_two_runs_once_in_the_nights_when_clocks_change(night, hours):
    """In spring 02:30 is missing, and it runs at 03:00; in autumn it occurs twice, and it runs at the first."""
    begin = datetime.fromisoformat(f"{night}T23:00:00+00:00")
    app = app_of("30 2 * * *", tz="Europe/Berlin")
    async with Sandbox(app, now=begin) as sandbox:
        app.sync.sync(app)
        for _ in range(16):
            sandbox.travel(900)
        midnight = begin + timedelta(hours=1)
        assert [(job.run_at - midnight) / timedelta(hours=1) for job in sandbox.jobs()] == hours


async def test_a_plain_function_in_a_child_process_gets_its_occurrence():
    async with Sandbox(plain_app, plain="process", now=NOON) as sandbox:
        plain_app.sync.sync(plain_app)
        sandbox.travel(60)
        plain_app.sync.schedules.run("plain", "by-hand")
        await sandbox.drain()
        assert sorted(job.result for job in sandbox.jobs()) == ["2030-01-01 12:01:00+00:00", "None"]


plain_app = App(redis_url="redis://127.0.0.1:1")


@plain_app.schedule(every=60)
@plain_app.task
def plain(ctx: Context) -> str:
    return str(ctx.occurrence)
