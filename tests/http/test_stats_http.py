"""`/stats`: flat numbers for autoscalers."""

import json

import pytest
from pydantic import ValidationError

from sublet_functions.handlers.call import Call
from sublet_functions.handlers.stats import stats
from sublet_functions.http.auth import Principal
from sublet_functions.http.request import Request
from sublet_functions.schemas.query import StatsQuery
from sublet_functions.schemas.responses import Stats
from tests.http.test_metrics import populate


@pytest.fixture
def ask(store):
    """Read the statistics of some queues, or of all."""

    async def answer(*queues):
        query = StatsQuery(queue=list(queues))
        reply = await stats(
            Call(store, Principal("keda", frozenset()), Request("GET", "/stats"), None, query, {})
        )
        assert reply.status == 200
        found = json.loads(reply.body)
        Stats.model_validate(found)
        assert all(number is None or isinstance(number, int | float | str) for number in found.values()), (
            "the fields are flat"
        )
        return found

    return answer


async def test_the_statistics_of_a_namespace(desk, ask):
    await populate(desk)
    found = await ask()
    now = {
        name: found[name]
        for name in ("scheduled", "ready", "queued", "running", "backlog", "completed", "dead", "cancelled")
    }
    assert now == {
        "scheduled": 2,
        "ready": 2,
        "queued": 2,
        "running": 1,
        "backlog": 5,
        "completed": 2,
        "dead": 1,
        "cancelled": 1,
    }
    totals = {
        name.removesuffix("_total"): number for name, number in found.items() if name.endswith("_total")
    }
    assert totals == {
        "submitted": 9, "completed": 2, "failed": 1, "dead": 1, "cancelled": 1, "released": 0, "unknown_task": 0, "expired": 1, "lease_lost": 1,
        "queue_full": 1, "forgotten": 0, "forgotten_results": 0, "missing": 0,
    }  # fmt: skip
    assert (found["workers"], found["queues_left_out"]) == (1, 0)
    assert (found["unserved_jobs"], found["unserved_queues"], found["unserved_example"]) == (0, 0, None)
    assert (found["maintenance_age_seconds"] < 60, found["maintenance_by"]) == (True, "tick")
    assert found["oldest_queued_seconds"] < 60


async def test_the_statistics_of_a_queue_and_the_sums_of_several(desk, ask):
    await populate(desk)
    q, r, both = await ask("q"), await ask("r"), await ask("q", "r", "r")
    assert [
        q[name] for name in ("scheduled", "ready", "running", "completed_total", "failed_total", "dead_total")
    ] == [
        2,
        0,
        1,
        2,
        1,
        1,
    ]
    assert [r[name] for name in ("scheduled", "ready", "running", "backlog", "cancelled_total")] == [
        0,
        2,
        0,
        2,
        1,
    ]
    for name, number in both.items():
        if (
            name not in ("workers", "maintenance_age_seconds", "maintenance_by", "oldest_queued_seconds")
            and number is not None
        ):
            assert number == q[name] + r[name], name
    assert (q["submitted_total"], q["completed"]) == (None, None), "these are not counted by queue"
    assert (await ask("nothing-of-that-name"))["backlog"] == 0


async def test_jobs_of_a_paused_queue_are_queued_and_not_ready(desk, ask):
    await desk.submit("a", "b")
    await desk.submit("c", queue="r")
    await desk.operate_queue("pause", "q")
    found = await ask()
    assert (found["queued"], found["ready"]) == (3, 1)
    await desk.operate_queue("resume", "q")
    assert (await ask("q"))["ready"] == 2


async def test_a_namespace_without_due_jobs_has_no_maintenance(desk, ask):
    found = await ask()
    assert (found["maintenance_age_seconds"], found["maintenance_by"]) == (None, None)


def test_an_invalid_queue_name_is_refused_by_stats():
    for wrong in (["a b"], [""], ["q"] * 33):
        with pytest.raises(ValidationError):
            StatsQuery(queue=wrong)


def test_every_field_of_the_statistics_has_a_description():
    assert all(field.description for field in Stats.model_fields.values())


async def test_a_read_of_the_statistics_does_the_maintenance(desk, ask, elapse):
    await desk.submit("late", rules="delay=5000")
    await desk.submit("held")
    await desk.claim(lease=5)
    assert (await ask())["ready"] == 0
    elapse(6)
    assert (await ask())["ready"] == 2
