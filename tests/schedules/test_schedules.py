"""Schedules as declared and as stored: put, sync, partitions, pause, run, list."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
import redis

from sublet import App, Client, Context, Invalid, NotFound, Options, Recurrence, SyncClient
from sublet.cli.workers import start
from sublet.client.schedules import Schedules
from sublet.connection.settings import Settings
from sublet.errors import OutOfMemory, WrongState
from sublet.model import Submitted
from sublet.protocol import keys
from sublet.schedules import operations
from sublet.schedules.definition import new_schedule
from sublet.schedules.recurrence import first

pytest_plugins = ["tests.support.http_settings"]

HOURLY, DAILY = Recurrence(cron="0 * * * *"), Recurrence(cron="0 9 * * *", tz="Europe/Berlin")


@pytest.fixture
def app():
    return App()


@pytest.fixture
def raw(settings):
    with redis.Redis.from_url(settings.redis_url, decode_responses=True) as raw:
        yield raw


@pytest.fixture
def client(settings):
    with SyncClient(settings) as client:
        yield client


def declared(*lines):
    """An app that declares these schedules of one task: (name, cron)."""
    app = App()

    @app.task(queue="reports", priority=5, max_attempts=7, timeout=None, retention=7200, backoff=3)
    async def report(region: str = "all") -> str:
        return region

    for name, cron in lines:
        app.schedule(cron, name=name)(report)
    return app


def stored(raw, namespace):
    """All schedule data of a namespace."""
    found = {key: raw.hgetall(key) for key in raw.scan_iter(match=f"{{{namespace}:*:schedule:*")}
    return found | {
        key: raw.zrange(key, 0, -1, withscores=True)
        for key in raw.scan_iter(match=f"{{{namespace}:*:schedules")
    }


def come(raw, base, name, hours=0):
    """Set the next occurrence of a schedule to the last full hour, or some hours before."""
    now = raw.time()[0] * 1000
    occurrence = now - now % 3_600_000 - hours * 3_600_000
    raw.hset(keys.schedule(base, name), "occurrence", occurrence)
    raw.zadd(keys.schedules(base), {name: occurrence})
    return occurrence


# declaring


def test_a_schedule_decorator_is_placed_above_or_below_the_task(app):
    @app.schedule("0 9 * * MON-FRI", tz="Europe/Berlin", payload={"n": 1})
    @app.task
    async def above(n: int) -> int:
        return n

    @app.task(queue="slow")
    @app.schedule(every=timedelta(minutes=1), name="often")
    @app.schedule("@daily", name="seldom", payload={"n": 3})
    def below(n: int = 2) -> int:
        return n

    assert [type(task).__name__ for task in (above, below)] == ["Task", "Task"]
    assert below(5) == 5
    found = {one.name: one for one in app.schedules.all()}
    assert {name: (one.task, one.queue, one.payload) for name, one in found.items()} == {
        "above": ("above", "default", b'{"n":1}'),
        "often": ("below", "slow", b"{}"),
        "seldom": ("below", "slow", b'{"n":3}'),
    }
    assert found["often"].recurrence == Recurrence(every=60.0)


def test_a_command_is_scheduled_like_any_task(app):
    app.schedule("0 3 * * *", payload={"path": "/srv"})(app.command("gzip --keep -- {path}"))
    assert [(one.name, json.loads(one.payload)) for one in app.schedules.all()] == [
        ("gzip", {"path": "/srv"})
    ]


@pytest.mark.parametrize(
    ("words", "how", "why"),
    [
        (("61 * * * *",), {}, "schedule: cron.*minute 61"),
        (("0 9 * * *",), {"tz": "Mars/Olympus"}, "schedule: tz: .*Mars/Olympus"),
        ((), {}, "schedule: every: use cron.* or every"),
        (("0 9 * * *",), {"every": 30}, "not both"),
        ((), {"every": 0.5}, "schedule: every"),
        ((), {"every": 30, "missed": "some"}, "schedule: missed"),
        (
            (),
            {"every": 30, "start": datetime(2026, 1, 2, tzinfo=UTC), "end": datetime(2026, 1, 1, tzinfo=UTC)},
            "end is before",
        ),
        ((), {"every": 30, "name": "no blanks"}, "schedule 'no blanks'"),
        ((), {"every": 30, "name": "n" * 41}, "1 to 40"),
        ((), {"every": 30, "payload": [1]}, "payload must be a dictionary"),
        ((lambda: None,), {}, "@app.schedule is without its times: give them, as in"),
    ],
)
def test_an_invalid_schedule_is_refused_where_it_is_declared(app, words, how, why):
    with pytest.raises(Invalid, match=why):
        app.schedule(*words, **how)


def test_arguments_that_do_not_fit_the_task_are_refused_where_they_are_declared(app):
    @app.task
    async def report(region: str) -> str:
        return region

    late = report.options(delay=60)
    with pytest.raises(Invalid, match="schedule report: task report: missing a required argument: 'region'"):
        app.schedule(every=60)(report)
    with pytest.raises(Invalid, match="region: use text"):
        app.schedule(every=60, payload={"region": 7})(report)
    with pytest.raises(Invalid, match="delay is for single jobs"):
        app.schedule(every=60, payload={"region": "eu"})(late)
    with pytest.raises(Invalid, match="report belongs to another app"):
        App().schedule(every=60)(report)
    app.schedule(every=60, payload={"region": "eu"})(report)
    with pytest.raises(
        Invalid, match="schedule report: this app has another schedule of this name; give each"
    ):
        app.schedule(every=30, payload={"region": "us"})(report)
    app.task(name="t" * 41)(report.function)
    with pytest.raises(Invalid, match="at most 40 characters; give one with name="):
        app.schedule(every=30)(app.tasks["t" * 41])


def test_a_scheduled_function_that_never_becomes_a_task_is_an_error(app, client):
    @app.schedule(every=60)
    async def report() -> None: ...

    with pytest.raises(
        Invalid,
        match=r"report is not a task of this app; put @app.task directly above or below @app.schedule",
    ):
        client.sync(app)


# sync


def test_sync_stores_declared_schedules_once(client, raw, settings):
    app = declared(("hourly", "0 * * * *"), ("daily", "0 9 * * *"))
    assert [tuple(one) for one in client.sync(app, "tasks:app")] == [
        ("hourly", "created", None),
        ("daily", "created", None),
    ]
    before = stored(raw, settings.namespace)
    assert [one.answer for one in client.sync(app, "tasks:app")] == ["unchanged", "unchanged"]
    assert stored(raw, settings.namespace) == before
    found = client.schedules.get("hourly")
    assert (found.task, found.queue, found.priority, found.max_attempts, found.timeout) == (
        "report",
        "reports",
        5,
        7,
        None,
    )
    assert (found.retention, found.backoff, found.source) == (
        7200,
        {"first": 3, "factor": 1, "cap": 3},
        "tasks:app",
    )
    assert found.next_at == found.due_at == found.upcoming[0]
    assert [(b - a).total_seconds() for a, b in zip(found.upcoming, found.upcoming[1:], strict=False)] == [
        3600
    ] * 4


async def test_an_async_client_syncs(settings):
    async with Client(settings) as client:
        assert [one.answer for one in await client.sync(declared(("hourly", "0 * * * *")))] == ["created"]
        assert (await client.schedules.get("hourly")).source == "app"
        assert [one.name for one in await client.schedules.list()] == ["hourly"]


def test_a_changed_line_counts_from_now_and_a_pause_stays(client, raw, settings):
    base = client.store.operations.bases[0]
    client.sync(declared(("a", "0 * * * *"), ("b", "0 * * * *")))
    client.schedules.pause("b")
    come(raw, base, "a", 2)
    assert [one.answer for one in client.sync(declared(("a", "30 * * * *"), ("b", "30 * * * *")))] == [
        "changed",
        "changed",
    ]
    assert client.store.follow(client.store.operations.fire("me")) == 0, (
        "the old occurrence is not one of the new line"
    )
    now = datetime.fromtimestamp(raw.time()[0], UTC)
    a, b = client.schedules.get("a"), client.schedules.get("b")
    assert a.next_at > now
    assert (a.next_at.minute, a.state, b.state, b.next_at) == (30, "active", "paused", None)


def test_a_schedule_with_the_same_times_keeps_its_occurrence(client, raw):
    """A deploy in the minute of an unfired occurrence does not lose that occurrence."""
    base = client.store.operations.bases[0]
    client.schedules.put("a", Recurrence(every=3600.0), "report", {"region": "eu"})
    occurrence = come(raw, base, "a")
    assert client.schedules.put("a", Recurrence(every=3600.0), "report", {"region": "us"}) == "changed"
    assert client.store.follow(client.store.operations.fire("me")) == 1
    (job,) = client.list_jobs(queue="default").jobs
    assert (job.payload, job.schedule, job.run_at.timestamp() * 1000) == ({"region": "us"}, "a", occurrence)


def test_sync_removes_only_schedules_of_its_source(client):
    client.schedules.put("by-hand", HOURLY, "report")
    client.schedules.put("taken", HOURLY, "report")
    client.sync(declared(("theirs", "0 * * * *")), "other:app")
    done = client.sync(declared(("a", "0 * * * *"), ("b", "0 * * * *"), ("taken", "0 9 * * *")), "tasks:app")
    assert [tuple(one) for one in done] == [
        ("a", "created", None),
        ("b", "created", None),
        ("taken", "changed", ""),
    ]
    fewer = declared(("a", "0 * * * *"))
    assert [one.answer for one in client.sync(fewer, "tasks:app")] == ["unchanged"]
    assert [one.name for one in client.schedules.list()] == ["a", "b", "by-hand", "taken", "theirs"]
    assert [tuple(one) for one in client.sync(fewer, "tasks:app", remove=True)] == [
        ("a", "unchanged", None), ("b", "removed", None), ("taken", "removed", None),
    ]  # fmt: skip
    assert [one.name for one in client.schedules.list()] == ["a", "by-hand", "theirs"]
    with pytest.raises(Invalid, match="remove: give source"):
        client.sync(fewer, "", remove=True)


def test_a_change_by_hand_lasts_until_the_next_deploy(client):
    client.sync(declared(("a", "0 * * * *")), "tasks:app")
    assert client.schedules.put("a", DAILY, "report", {"region": "eu"}, Options(queue="reports")) == "changed"
    assert client.schedules.get("a").source == "tasks:app", (
        "its source is still the code, and it is removed with it"
    )
    assert [one.answer for one in client.sync(declared(("a", "0 * * * *")), "tasks:app")] == ["changed"]
    assert client.schedules.get("a").cron == "0 * * * *"


def test_sync_takes_over_an_equal_schedule_that_was_put_by_hand(client):
    app = declared(("a", "0 * * * *"))
    (wanted,) = app.schedules.all()
    client.store.follow(operations.put(client.store.operations, wanted))
    assert [tuple(one) for one in client.sync(app, "tasks:app")] == [("a", "changed", "")]
    assert client.schedules.get("a").source == "tasks:app", (
        "otherwise it would stay after its removal from the code"
    )
    assert [tuple(one) for one in client.sync(app, "tasks:app")] == [("a", "unchanged", None)]


def test_sync_takes_over_an_equal_schedule_of_another_source(client):
    """For example the same code under a new module name. The old source can no longer remove it."""
    app = declared(("a", "0 * * * *"))
    client.sync(app, "old:app")
    next_at = client.schedules.get("a").next_at
    assert [tuple(one) for one in client.sync(app, "new:app")] == [("a", "changed", "old:app")]
    found = client.schedules.get("a")
    assert (found.source, found.next_at) == ("new:app", next_at)
    assert client.sync(declared(), "old:app", remove=True) == []
    assert [tuple(one) for one in client.sync(app, "new:app")] == [("a", "unchanged", None)]


def test_jitter_depends_on_the_schedules_name(client):
    """The due moment by the rule of the firing code."""
    for name in ("a", "b"):
        client.schedules.put(name, Recurrence(every=3600.0, jitter=3000.0), "t")
        found = client.schedules.get(name)
        occurrence = first(
            Recurrence(every=3600.0, jitter=3000.0), name, round(found.next_at.timestamp() * 1000) - 1
        )
        assert found.due_at.timestamp() * 1000 == occurrence.due > occurrence.occurrence


async def test_simultaneous_deploys_end_as_one_of_them(settings):
    """Two versions of the code, four hosts each: in the end no schedule is a mixture of both."""
    versions = [
        declared(("a", "0 * * * *"), ("b", "1 * * * *")),
        declared(("a", "30 * * * *"), ("b", "31 * * * *")),
    ]
    clients = [Client(settings) for _ in range(8)]
    done = await asyncio.gather(
        *(client.sync(versions[i % 2], "tasks:app") for i, client in enumerate(clients))
    )
    assert {one.answer for each in done for one in each} <= {"created", "changed", "unchanged"}
    for name, (old, new) in {"a": ("0", "30"), "b": ("1", "31")}.items():
        found = await clients[0].schedules.get(name)
        assert found.cron in (f"{old} * * * *", f"{new} * * * *")
        assert found.next_at.minute == int(found.cron.split()[0])
    await clients[0].sync(versions[1], "tasks:app")
    assert [one.cron for one in await clients[0].schedules.list()] == ["30 * * * *", "31 * * * *"]
    await asyncio.gather(*(client.aclose() for client in clients))


# partitions


def test_a_schedule_does_not_move_to_another_partition(settings, raw):
    spread = Settings(settings.redis_url, settings.namespace, partitions=4)
    with SyncClient(spread) as client:
        home = client.store.operations.base_of_queue("q0")
        elsewhere = next(f"q{i}" for i in range(99) if client.store.operations.base_of_queue(f"q{i}") != home)
        beside = next(f"q{i}" for i in range(1, 99) if client.store.operations.base_of_queue(f"q{i}") == home)
        client.schedules.put("a", HOURLY, "t", options=Options(queue="q0"))
        before = stored(raw, settings.namespace)
        refusal = f"queue q0, and queue {elsewhere} is in another.*remove it and add it again"
        with pytest.raises(WrongState, match=refusal):
            client.schedules.put("a", HOURLY, "t", options=Options(queue=elsewhere))
        with pytest.raises(WrongState, match=refusal):
            client.schedules.sync(
                [new_schedule("new", HOURLY, "t", b"{}", Options()),
                 new_schedule("a", HOURLY, "t", b"{}", Options(queue=elsewhere))],
                "tasks:app",
            )  # fmt: skip
        assert stored(raw, settings.namespace) == before, (
            "nothing is written, not even the other schedule of the sync"
        )
        assert client.schedules.put("a", HOURLY, "t", options=Options(queue=beside)) == "changed"
        assert (client.schedules.remove("a"), client.schedules.remove("a")) == (True, False)
        assert client.schedules.put("a", HOURLY, "t", options=Options(queue=elsewhere)) == "created"
        assert client.schedules.get("a").queue == elsewhere


def test_the_list_is_by_name_over_all_partitions_in_pages_and_without_payloads(settings):
    with SyncClient(Settings(settings.redis_url, settings.namespace, partitions=3)) as client:
        for i in range(9):
            client.schedules.put(f"s{i}", HOURLY, "t", {"n": i}, Options(queue=f"q{i}"))
        first = client.schedules.list(most=5)
        assert [one.name for one in first] == [f"s{i}" for i in range(5)]
        assert [one.name for one in client.schedules.list(after="s4", most=5)] == [
            f"s{i}" for i in range(5, 9)
        ]
        assert {one.payload for one in first} == {None}
        assert client.schedules.get("s7").payload == {"n": 7}


# verbs of an operator


def test_a_paused_schedule_makes_no_jobs_and_goes_on_from_now(client, raw):
    base = client.store.operations.bases[0]
    client.schedules.put("a", Recurrence(every=3600.0, missed="all"), "t")
    come(raw, base, "a", 3)
    assert (client.schedules.pause("a"), client.schedules.pause("a")) == ("paused", "paused")
    assert client.store.follow(client.store.operations.fire("me")) == 0
    found = client.schedules.get("a")
    assert (found.state, found.next_at, len(found.upcoming)) == ("paused", None, 5)
    assert (client.schedules.resume("a"), client.schedules.resume("a")) == ("resumed", "resumed")
    assert client.store.follow(client.store.operations.fire("me")) == 0, (
        "moments during the pause are not occurrences"
    )
    assert client.schedules.get("a").next_at.timestamp() > raw.time()[0]
    assert client.schedules.get("a").revision == 3


def test_a_schedule_is_run_by_hand_beside_its_occurrences(client):
    client.schedules.put(
        "a", HOURLY, "report", {"region": "eu"}, Options(queue="q", priority=3, timeout=None)
    )
    before = client.schedules.get("a").next_at
    assert client.schedules.run("a", "mine") == Submitted("0-mine", True)
    assert client.schedules.run("a", "mine") == Submitted("0-mine", False)
    job = client.get("0-mine")
    assert (job.task, job.queue, job.priority, job.payload) == ("report", "q", 3, {"region": "eu"})
    assert (job.schedule, job.run_at) == ("a", None)
    assert client.schedules.get("a").next_at == before


def test_an_unknown_or_invalid_schedule_is_refused(client, raw, settings):
    client.submit("t")
    for verb in ("get", "pause", "resume", "run"):
        with pytest.raises(NotFound, match="no schedule nobody"):
            getattr(client.schedules, verb)("nobody")
        with pytest.raises(Invalid, match="1 to 40"):
            getattr(client.schedules, verb)("x" * 41)
    with pytest.raises(Invalid, match="at most 262,144"):
        client.schedules.put("a", HOURLY, "t", {"x": "x" * 262_144})
    with pytest.raises(Invalid, match="key is for single jobs"):
        client.schedules.put("a", HOURLY, "t", options=Options(key="k", window=5))
    assert stored(raw, settings.namespace) == {}


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ({"every": 5.0, "end": datetime(2020, 1, 1, tzinfo=UTC)}, "2020-01-01 00:00:00Z: the end has passed"),
        ({"every": 3.0e8, "end": datetime.now(UTC) + timedelta(hours=9)}, "Z: the next would be 20[2-9]\\d-"),
    ],
)
def test_a_schedule_without_an_occurrence_before_its_end_is_refused(client, raw, settings, when, why):
    with pytest.raises(Invalid, match=f"^end: there is no occurrence before its end, .*{why}"):
        client.schedules.put("a", Recurrence(**when), "t")
    assert stored(raw, settings.namespace) == {}


def test_an_ended_schedule_is_shown_as_ended_and_stops_no_deploy(client):
    """A sync must not fail one day because a declared schedule has ended, also on an empty Redis."""
    app, over = App(), datetime(2020, 1, 1, tzinfo=UTC)
    app.schedule(every=60, end=over, name="a")(app.task(lambda: None, name="t"))
    assert [one.answer for one in client.sync(app)] == ["created"]
    found = client.schedules.get("a")
    assert (found.state, found.next_at, found.upcoming) == ("ended", None, ())
    assert client.schedules.put("a", Recurrence(every=60.0, end=over), "t", {"x": 1}) == "changed", (
        "existing schedules may be changed"
    )


@pytest.mark.parametrize(
    "plan", ["{}", "no JSON", '{"when": {"cron": "61 * * * *"}}', '{"when": {"every": 60, "nth": 3}}']
)
def test_an_unreadable_plan_can_be_shown_paused_removed_and_replaced(client, raw, plan):
    """A newer version, or another client, may have stored it."""
    base = client.store.operations.bases[0]
    for name in ("a", "b"):
        client.schedules.put(name, HOURLY, "t")
    raw.hset(keys.schedule(base, "a"), "plan", plan)
    come(raw, base, "a")
    assert [one.state for one in client.schedules.list()] == ["broken", "active"]
    assert client.schedules.get("a").description.startswith(
        "this version of Sublet cannot read its recurrence: "
    )
    assert client.store.follow(client.store.operations.fire("me")) == 0
    assert client.schedules.pause("a") == "paused"
    with pytest.raises(Invalid):
        client.schedules.resume("a")
    assert client.schedules.put("a", HOURLY, "t") == "changed"
    assert client.schedules.resume("a") == "resumed"
    raw.hset(keys.schedule(base, "a"), "fired", "many")
    assert [one.name for one in client.schedules.list()] == ["b"], "an invalid schedule hides no other"
    assert client.schedules.remove("a")


def test_a_schedule_without_its_plan_is_neither_paused_nor_removed_by_a_pause(client, raw):
    client.schedules.put("a", HOURLY, "t")
    raw.hdel(keys.schedule(client.store.operations.bases[0], "a"), "plan")
    with pytest.raises(Invalid, match="schedule a has lost its recurrence: remove it, or put it again"):
        client.schedules.pause("a")
    assert [one.state for one in client.schedules.list()] == ["broken"]
    assert client.schedules.put("a", HOURLY, "t") == "changed"


async def test_a_worker_works_although_its_schedules_cannot_be_stored(monkeypatch, settings, store):
    """For example when Redis is full: only workers can empty it."""

    async def full(*_, **how):
        raise OutOfMemory("Redis is full")

    app = declared(("a", "0 * * * *"))
    app.settings = settings
    monkeypatch.setattr(Schedules, "sync", full)
    assert (
        await start.sync_schedules(store, app, "tasks:app")
        == "the app's schedules could not be stored: Redis is full"
    )


# the occurrence in a task


async def test_a_task_gets_its_occurrence(app, settings, raw):
    seen = []

    @app.schedule(every=3600)
    @app.task
    async def report(ctx: Context) -> None:
        seen.append(ctx.occurrence)

    app.settings = settings
    await app.client.sync(app)
    occurrence = come(raw, keys.base(settings.namespace), "report")
    await app.client.schedules.run("report")
    from sublet_functions.work import work

    await work(app, drain=True)
    moment = datetime.fromtimestamp(occurrence / 1000, UTC)
    assert sorted(seen, key=str) == [moment, None]
    found = await app.client.schedules.get("report")
    assert (found.last_at, found.fired, found.last_job) == (moment, 1, f"0-report:{occurrence}")
    job = await app.client.get(found.last_job)
    assert (job.schedule, job.run_at) == ("report", moment)
    await app.aclose()
