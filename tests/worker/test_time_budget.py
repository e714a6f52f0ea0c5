"""The jobs that a worker starts when its platform will end it."""

from types import SimpleNamespace

import pytest

from sublet import App
from sublet.connection.settings import Settings
from sublet.model import Lease
from sublet.worker.time_limits import time_budget
from sublet.worker.time_limits.time_budget import TimeBudget

app = App(settings=Settings())


@app.task(queue="short", timeout=10)
async def short() -> None: ...


@app.task(queue="long", timeout=40)
async def long() -> None: ...


@app.task(queue="endless", timeout=None)
async def endless() -> None: ...


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: clock.now)
    return clock


def lease(queue, seconds):
    return Lease("0-1", "1.c", 1, 0, queue, "t", None if seconds is None else round(seconds * 1000), b"", "")


QUEUES = ["short", "long", "endless", "foreign"]


def test_without_a_budget_every_job_may_start():
    free = TimeBudget(None, 8, app.tasks)
    assert (free.left, free.to_claim, free.open(QUEUES)) == (float("inf"), None, QUEUES)
    assert free.suffices(lease("long", 1e6))


def test_a_queue_closes_when_all_of_its_tasks_would_take_too_long(clock):
    minute = TimeBudget(60, 8, app.tasks)
    assert minute.open(QUEUES) == QUEUES
    clock.now += 21
    assert minute.open(QUEUES) == ["short", "endless", "foreign"]
    clock.now += 30
    assert minute.open(QUEUES) == ["endless", "foreign"]


def test_no_job_starts_in_the_last_seconds(clock):
    assert TimeBudget(60, 8, app.tasks).to_claim == 52
    assert TimeBudget(10, 8, app.tasks).to_claim == 8
    clock.now += 5
    late = TimeBudget(60, 8, app.tasks)
    clock.now += 55
    assert (late.left, late.to_claim) == (5, 0)


def test_a_job_that_would_take_too_long_closes_its_queue(clock):
    minute = TimeBudget(60, 8, app.tasks)
    clock.now += 30
    assert minute.suffices(lease("foreign", 29))
    assert not minute.suffices(lease("foreign", 31))
    assert minute.open(QUEUES) == ["short", "endless"]


def test_a_timeout_longer_than_the_whole_budget_is_ignored(clock):
    minute = TimeBudget(60, 8, app.tasks)
    clock.now += 30
    assert minute.suffices(lease("short", 300))
    assert minute.suffices(lease("short", None))
    assert TimeBudget(30, 8, app.tasks).open(["long"]) == ["long"]
