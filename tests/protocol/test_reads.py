"""Plain reads: a job with its attempts, lists in pages, statistics, and the event stream."""

from datetime import UTC, datetime, timedelta

import pytest

from sublet.errors import Invalid, NotFound
from sublet.model import LastError, State
from sublet.operations.job_list import EXAMINED
from sublet.protocol import keys, reads


@pytest.fixture
def follow(store):
    """Carries a plan of the store's layout out: `await follow("get", "a")`."""

    async def carry_out(plan, *words, **more):
        return await store.follow(getattr(store.operations, plan)(*words, **more))

    return carry_out


def recent(moment):
    return abs(moment - datetime.now(UTC)) < timedelta(seconds=10)


async def pages(follow, limit, **filters):
    """All pages of a list."""
    found, cursor = [], None
    while True:
        page = await follow("list_jobs", limit=limit, cursor=cursor, **filters)
        found.append([job.id for job in page.jobs])
        cursor = page.cursor
        if cursor is None:
            return found
        assert len(found) < 50, "the pages never end"


# one job


async def test_a_queued_job_reads_as_it_was_submitted(desk, follow):
    await desk.submit("a", task="resize", rules="priority=7 key=k tries=5", payload=b'{"x": [1, "\xc3\xa9"]}')
    job = await follow("get", "a")
    assert (job.id, job.task, job.queue, job.state) == ("a", "resize", "q", State.QUEUED)
    assert (job.priority, job.key, job.max_attempts, job.payload) == (7, "k", 5, {"x": [1, "é"]})
    assert (job.attempt, job.tries_left, job.revision, job.attempts) == (0, 5, 0, ())
    assert recent(job.submitted_at)
    assert (job.due_at, job.worker, job.lease_expires_at, job.finished_at, job.result) == (None,) * 5


@pytest.mark.parametrize("list_of", [False, True], ids=["get", "list"])
async def test_releases_use_no_try(desk, follow, list_of):
    async def read():
        return (await follow("list_jobs")).jobs[0] if list_of else await follow("get", "a")

    await desk.submit("a", rules="tries=2")
    for _ in range(5):
        await desk.release(await desk.take("a"))
    job = await read()
    assert (job.attempt, job.max_attempts, job.tries_left) == (5, 2, 2)
    lease = await desk.take("a")
    assert ((await read()).attempt, (await read()).tries_left) == (6, 1)
    await desk.complete(lease)
    assert ((await read()).attempt, (await read()).tries_left) == (6, 1)


async def test_a_completed_job_has_the_tries_that_it_did_not_use(desk, follow):
    await desk.submit("a", rules="tries=4 backoff=0:1:0")
    await desk.fail(await desk.take("a"))
    await desk.complete(await desk.take("a"))
    assert (await follow("get", "a")).tries_left == 2
    assert "tries_left" not in desk.job("a")


async def test_a_retried_job_has_all_its_tries(desk, follow):
    await desk.submit("a", rules="tries=1")
    await desk.fail(await desk.take("a"))
    assert (await follow("get", "a")).tries_left == 0
    await desk.operate("retry", "a")
    job = await follow("get", "a")
    assert (job.attempt, job.tries_left) == (1, 1)


async def test_a_scheduled_job_has_its_due_time(desk, follow):
    await desk.submit("a", rules="delay=60000")
    job = await follow("get", "a")
    assert job.due_at - job.submitted_at == timedelta(seconds=60)


async def test_a_running_job_has_its_owner_and_progress(desk, follow):
    lease = await desk.running("a", worker="host-1")
    await desk.heartbeat(lease, extend=60, progress=b'{"percent": 40}')
    await desk.operate("cancel", "a")
    job = await follow("get", "a")
    assert (job.state, job.worker, job.attempt, job.tries_left, job.revision) == (
        State.RUNNING,
        "host-1",
        1,
        2,
        2,
    )
    assert job.progress == {"percent": 40}
    assert job.lease_expires_at - job.heartbeat_at == timedelta(seconds=60)
    assert recent(job.claimed_at)
    assert recent(job.cancel_requested_at)


async def test_a_finished_job_has_its_attempts(desk, follow):
    await desk.fail(await desk.running("a", rules="backoff=0:1:0"), "ValueError", "no luck", "line 1\nline 2")
    await desk.complete(await desk.take("a", worker="host-2"), b'{"y": 2}')
    job = await follow("get", "a")
    assert (job.state, job.result, job.payload) == (State.COMPLETED, {"y": 2}, None)
    first, second = job.attempts
    assert (first.number, first.code, first.message, first.detail) == (
        1,
        "ValueError",
        "no luck",
        "line 1\nline 2",
    )
    assert (second.number, second.worker, second.code, second.message) == (2, "host-2", "completed", "")
    assert first.claimed_at <= first.ended_at <= second.ended_at == job.finished_at


async def test_a_large_payload_is_read_too(desk, follow):
    await desk.submit("a", payload=b'"' + b"x" * 3000 + b'"')
    assert (await follow("get", "a")).payload == "x" * 3000


@pytest.mark.parametrize("payload", [b"plain words", b"\xff\xfe", b"{"])
async def test_bytes_that_are_not_json_are_shown_as_text(desk, follow, payload):
    await desk.submit("a", payload=payload)
    assert (await follow("get", "a")).payload == payload.decode("utf-8", "replace")


async def test_an_unknown_job_is_not_found(desk, follow):
    with pytest.raises(NotFound, match="no job nobody"):
        await follow("get", "nobody")
    with pytest.raises(Invalid, match="id 'no good'"):
        await follow("get", "no good")


# lists


async def populate(desk):
    """Two jobs in each state."""
    for i in "12":
        await desk.submit(f"late{i}", rules=f"delay={i}0000")
        await desk.complete(await desk.running(f"done{i}"))
        await desk.fail(await desk.running(f"dead{i}"), again=False)
        await desk.submit(f"gone{i}")
        await desk.operate("cancel", f"gone{i}")
    for i in "12":
        await desk.running(f"busy{i}")
    for i in "12":
        await desk.submit(f"wait{i}", queue=f"q{i}", task=f"t{i}")


ALL = [
    "late1",
    "late2",
    "wait1",
    "wait2",
    "busy1",
    "busy2",
    "done2",
    "done1",
    "dead2",
    "dead1",
    "gone2",
    "gone1",
]


async def test_all_jobs_are_listed_state_by_state_and_the_finished_newest_first(desk, follow):
    await populate(desk)
    assert await pages(follow, 50) == [ALL]


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 11, 12])
async def test_pages_list_each_job_once(desk, follow, limit):
    await populate(desk)
    found = await pages(follow, limit)
    assert [job_id for page in found for job_id in page] == ALL
    assert all(len(page) == limit for page in found[: 12 // limit])


@pytest.mark.parametrize("state", list(State))
async def test_a_list_can_be_filtered_by_state(desk, follow, state):
    await populate(desk)
    (page,) = await pages(follow, 50, state=state)
    assert page == [job_id for job_id in ALL if (await follow("get", job_id)).state == state]
    assert len(page) == 2


async def test_a_list_can_be_filtered_by_queue_or_task(desk, follow):
    await populate(desk)
    assert await pages(follow, 50, queue="q1") == [["wait1"]]
    assert await pages(follow, 50, task="t2") == [["wait2"]]
    assert await pages(follow, 50, queue="q", state=State.QUEUED) == [[]]
    assert await pages(follow, 50, queue="q", state=State.DEAD) == [["dead2", "dead1"]]
    assert await pages(follow, 50, queue="q1", task="t2") == [[]]


async def test_a_list_can_be_filtered_by_the_code_of_the_last_error(desk, follow):
    await desk.submit("poor", "late", "done", rules="tries=1")
    poor, late, done = await desk.claim(3)
    await desk.fail(poor, "ValueError", "no")
    await desk.fail(late, "timed_out")
    await desk.complete(done)
    await desk.submit("again", rules="tries=2")
    await desk.fail((await desk.claim())[0], "ValueError", "no")
    assert await pages(follow, 50, code="ValueError") == [["again", "poor"]]
    assert await pages(follow, 50, code="ValueError", state=State.DEAD) == [["poor"]]
    assert await pages(follow, 50, code="KeyError") == [[]]


async def test_a_list_can_be_filtered_by_the_worker_of_the_last_attempt(desk, follow):
    await desk.submit("moved", "done", "held", "new")
    moved, done, _ = await desk.claim(3, worker="w1")
    await desk.complete(done)
    await desk.release(moved)
    assert await pages(follow, 50, worker="w1") == [["moved", "held", "done"]]
    await desk.claim(1, worker="w2")
    assert await pages(follow, 50, worker="w1") == [["held", "done"]]
    assert await pages(follow, 50, worker="w2") == [["moved"]]
    assert await pages(follow, 1, worker="w1", state=State.COMPLETED) == [["done"], []]


async def test_a_list_can_be_filtered_by_time_of_submission(desk, follow):
    await desk.submit("old")
    await desk.submit("new")
    desk.raw.hset(keys.job(desk.base, "old"), "spec", "q t 1000\n{}")
    noon = datetime.fromtimestamp(1, UTC)
    assert await pages(follow, 50, since=noon) == [["old", "new"]]
    assert await pages(follow, 50, since=noon + timedelta(milliseconds=1)) == [["new"]]
    assert await pages(follow, 50, until=noon) == [[]]
    assert await pages(follow, 50, until=noon + timedelta(milliseconds=1)) == [["old"]]


async def test_a_list_can_be_filtered_by_several_states(desk, follow):
    await populate(desk)
    assert await pages(follow, 50, state=("dead", State.QUEUED)) == [["wait1", "wait2", "dead2", "dead1"]]
    assert await pages(follow, 50, state="dead") == [["dead2", "dead1"]]


@pytest.mark.parametrize(
    "filters",
    [
        {"state": "lost"}, {"state": ["dead", "lost"]}, {"state": 7}, {"queue": "a b"}, {"task": ""}, {"code": "a b"},
        {"worker": "ä"}, {"worker": 7}, {"tag": "a,b"}, {"tag": "x" * 65}, {"since": "2026"}, {"until": datetime(2026, 1, 1)},
        {"since": datetime(2026, 1, 2, tzinfo=UTC), "until": datetime(2026, 1, 2, tzinfo=UTC)}, {"tags": "a"},
    ],
    ids=str,
)  # fmt: skip
async def test_a_value_that_no_job_can_match_is_invalid(follow, filters):
    with pytest.raises(Invalid, match=r": use |until must be later"):
        await follow("list_jobs", **filters)


async def test_a_page_examines_a_thousand_jobs_at_most_and_may_be_short(desk, follow):
    for i in range(0, 1200, 200):
        await desk.submit(*(f"j{n:04}" for n in range(i, i + 200)), task="common")
    await desk.submit("needle", task="rare")
    first = await follow("list_jobs", task="rare", limit=5)
    assert (first.jobs, first.cursor is not None) == ((), True)
    second = await follow("list_jobs", task="rare", limit=5, cursor=first.cursor)
    assert [job.id for job in second.jobs] == ["needle"]
    assert EXAMINED == 1000


async def test_a_list_omits_large_fields(desk, follow):
    await desk.submit("a", payload=b'"' + b"x" * 3000 + b'"')
    assert (await follow("list_jobs")).jobs[0].payload is None


async def test_a_list_shows_last_errors_and_sizes_of_results_in_two_round_trips(
    desk, store, follow, monkeypatch
):
    await desk.submit("good", "poor", "late", rules="tries=1")
    good, poor, late = await desk.claim(3)
    await desk.complete(good, b'"found"')
    await desk.fail(poor, "ValueError", "ValueError: no\nsuch " + "ä" * 300, "Traceback …")
    await desk.fail(late, "timed_out")
    assert (await store.follow(store.operations.get("poor"))).last_error.message.startswith("no such ää")
    trips, run = [], store._transport.run

    async def counted(call):
        trips.append(call)
        return await run(call)

    monkeypatch.setattr(store._transport, "run", counted)
    dead = {job.id: job.last_error for job in (await follow("list_jobs", state=State.DEAD, limit=2)).jobs}
    assert (dead["late"], len(trips)) == (LastError(code="timed_out"), 2)
    assert dead["poor"].code == "ValueError"
    assert 150 < len(dead["poor"].message.encode()) <= 200
    (done,) = (await follow("list_jobs", state=State.COMPLETED, limit=1)).jobs
    assert (done.result_bytes, done.last_error, len(trips)) == (7, None, 4)
    assert not hasattr(done, "result")
    assert not hasattr(done, "attempts")


async def test_a_released_attempt_is_no_last_error(desk, follow):
    for nth, (code, expected) in enumerate(
        (("released", None), ("unknown_task", "unknown_task"), ("released", "unknown_task"))
    ):
        lease = (await desk.claim())[0] if nth else await desk.running("a")
        await desk.release(lease, code=code)
        desk.elapse(100)
        await desk.reap()
        error = (await follow("list_jobs")).jobs[0].last_error
        assert (error and error.code) == expected


async def test_a_missing_job_is_omitted(desk, follow):
    await desk.submit("a", "b")
    desk.raw.delete(keys.job(desk.base, "a"))
    assert await pages(follow, 50) == [["b"]]


@pytest.mark.parametrize("cursor", ["nonsense", "a/b/c", "{x:0}/queued/5", "//", "{}/dead/-1"])
async def test_a_cursor_from_elsewhere_is_invalid(desk, follow, cursor):
    with pytest.raises(Invalid, match="cursor"):
        await follow("list_jobs", cursor=cursor)


# numbers


async def test_the_statistics_agree_with_the_jobs(desk, follow):
    await populate(desk)
    (stats,) = await follow("stats")
    assert stats.states == dict.fromkeys(State, 2)
    totals = {
        "submitted": 12,
        "completed": 2,
        "failed": 2,
        "dead": 2,
        "cancelled": 2,
        "released": 0,
        "expired": 0,
    }
    assert stats.totals == totals | {"unknown_task": 0, "lease_lost": 0, "queue_full": 0} | dict.fromkeys(
        ("forgotten", "forgotten_results", "missing"), 0
    )
    assert (stats.maintenance_at, stats.maintenance_by) == (None, None)
    desk.elapse(30)
    await desk.reap()
    (stats,) = await follow("stats")
    assert (stats.totals["expired"], stats.maintenance_by, recent(stats.maintenance_at)) == (2, "tick", True)


async def test_the_queues_are_listed_with_their_backlog(desk, follow):
    await populate(desk)
    assert [(queue.name, queue.queued) for queue in await follow("queues")] == [
        ("q", 0),
        ("q1", 1),
        ("q2", 1),
    ]


async def test_an_empty_namespace_has_no_jobs_and_no_queues(desk, follow):
    assert (await follow("list_jobs"), await follow("queues")) == (await follow("list_jobs", limit=1), [])
    assert await pages(follow, 50) == [[]]
    (stats,) = await follow("stats")
    assert set(stats.states.values()) == {0}


async def test_the_stream_is_read_from_a_given_position(desk):
    await desk.submit("a")
    (first,) = await desk.run(reads.events(desk.base, "0", 10))
    assert first[1] == {"jobs": "a", "state": "queued", "code": "submitted"}
    await desk.complete(await desk.take("a", worker="host-1"))
    rest = await desk.run(reads.events(desk.base, first[0], 10))
    assert [(e["state"], e["code"]) for _, e in rest] == [("running", "host-1"), ("completed", "completed")]
    assert await desk.run(reads.events(desk.base, rest[-1][0], 10)) == []
    assert len(await desk.run(reads.events(desk.base, "0", 2))) == 2
