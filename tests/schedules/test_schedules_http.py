"""Schedules over HTTP: put, get, list, pause, run and remove, and the errors for invalid ones."""

from datetime import UTC, datetime

import pytest
import redis

from sublet import App, Context, Recurrence, SyncClient
from sublet.connection.settings import Settings
from sublet.protocol import keys
from sublet.store.http import HttpSource
from sublet.store.store import Store
from sublet.tasks.catalogue import describe, description
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from sublet_functions.work import work
from tests.support.http_server import serving
from tests.support.route_samples import asker

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

DAILY = {
    "task": "report",
    "payload": {"region": "eu"},
    "queue": "reports",
    "cron": "0 9 * * MON-FRI",
    "tz": "Europe/Berlin",
}


async def test_the_tags_of_a_schedule_are_those_of_its_jobs(asked):
    tags = ["tenant:acme", "import"]
    made = await asked("PUT", "/schedules/daily", DAILY | {"tags": tags})
    assert (made.json()["tags"], (await asked("GET", "/schedules/daily")).json()["tags"]) == (tags, tags)
    run = await asked("POST", "/schedules/daily/run")
    assert (await asked("GET", f"/jobs/{run.json()['id']}")).json()["tags"] == tags


async def test_the_life_of_a_schedule(asked):
    made = await asked("PUT", "/schedules/daily", DAILY | {"priority": 5, "timeout": None, "backoff": 3})
    assert (made.status, made.json()["state"], made.json()["revision"]) == (201, "active", 1)
    again = await asked("PUT", "/schedules/daily", DAILY | {"priority": 5, "timeout": None, "backoff": 3})
    assert (again.status, again.json()) == (200, made.json())
    seen = (await asked("GET", "/schedules/daily")).json()
    assert (seen["task"], seen["queue"], seen["priority"], seen["timeout"], seen["backoff"]) == (
        "report", "reports", 5, None, {"first": 3, "factor": 1, "cap": 3},
    )  # fmt: skip
    assert (seen["payload"], seen["description"].startswith("At 09:00"), seen["source"]) == (
        {"region": "eu"},
        True,
        "",
    )
    assert len(seen["upcoming"]) == 5
    assert datetime.fromisoformat(seen["upcoming"][0]) == datetime.fromisoformat(seen["next_at"])
    (listed,) = (await asked("GET", "/schedules")).json()["schedules"]
    assert (listed["name"], listed["payload"], listed["upcoming"]) == ("daily", None, [])
    paused = (await asked("POST", "/schedules/daily/pause")).json()
    assert (paused["state"], paused["next_at"]) == ("paused", None)
    changed = await asked("PUT", "/schedules/daily", DAILY | {"cron": None, "every": 60})
    assert (changed.status, changed.json()["state"], changed.json()["every"]) == (200, "paused", 60)
    assert (await asked("POST", "/schedules/daily/resume")).json()["state"] == "active"
    assert [(await asked("DELETE", "/schedules/daily")).status for _ in range(2)] == [204, 204]
    assert (await asked("GET", "/schedules/daily")).problem == "not-found"


async def test_the_last_runs_have_the_states_of_their_jobs(asked, settings, own):
    await asked("PUT", "/schedules/daily", DAILY)
    assert (await asked("GET", "/schedules/daily")).json()["last_runs"] == []
    base, now = keys.base(settings.namespace), own.time()[0] * 1000
    occurrences = [now - 2000, now - 1000]
    for occurrence in occurrences:
        own.hset(keys.schedule(base, "daily"), "occurrence", occurrence)
        own.zadd(keys.schedules(base), {"daily": occurrence})
        assert (await asked("POST", "/tick")).json()["fired"] == 1
    first, second = (f"0-daily:{occurrence}" for occurrence in occurrences)
    claim = {"queues": ["reports"], "worker": "mill"}
    (lease,) = (await asked("POST", "/jobs/claim", claim)).json()["jobs"]
    await asked("POST", f"/jobs/{first}/complete", {"token": lease["token"]})
    found = (await asked("GET", "/schedules/daily")).json()["last_runs"]
    assert [(run["job"], run["state"]) for run in found] == [(second, "queued"), (first, "completed")]
    moments = [datetime.fromisoformat(run["occurrence"]).timestamp() * 1000 for run in found]
    assert [round(moment) for moment in moments] == occurrences[::-1]
    await asked("POST", f"/jobs/{first}/erase")
    states = [run["state"] for run in (await asked("GET", "/schedules/daily")).json()["last_runs"]]
    assert states == ["queued", None]
    (listed,) = (await asked("GET", "/schedules")).json()["schedules"]
    assert listed["last_runs"] == []
    own.hset(keys.schedule(base, "daily"), "runs", f"x 0-daily:{10**17} {second} \x00 " + "y" * 100_000)
    (run,) = (await asked("GET", "/schedules/daily")).json()["last_runs"]
    assert run["job"] == second


async def test_the_last_runs_are_read_in_one_round_trip(settings, own):
    store = Store(settings)
    core = asker(Api(store, Tokens()))
    await core("PUT", "/schedules/daily", DAILY)
    calls = []
    run = store._transport.run

    async def count(call):
        calls.append(call)
        return await run(call)

    store._transport.run = count
    await core("GET", "/schedules/daily")
    without = len(calls)
    base, now = keys.base(settings.namespace), own.time()[0] * 1000
    own.hset(keys.schedule(base, "daily"), "runs", " ".join(f"0-daily:{now - n}" for n in range(10)))
    calls.clear()
    assert len((await core("GET", "/schedules/daily")).json()["last_runs"]) == 10
    assert len(calls) == without
    await store.aclose()


async def test_a_queue_in_another_partition_is_refused(settings):
    spread = Settings(settings.redis_url, settings.namespace, partitions=4)
    store = Store(spread)
    ask = asker(Api(store, Tokens()))
    home = store.operations.base_of_queue("q0")
    elsewhere = next(f"q{i}" for i in range(99) if store.operations.base_of_queue(f"q{i}") != home)
    hourly = {"task": "report", "every": 3600}
    assert (await ask("PUT", "/schedules/a", hourly | {"queue": "q0"})).status == 201
    answer = await ask("PUT", "/schedules/a", hourly | {"queue": elsewhere})
    assert (answer.status, answer.problem) == (409, "wrong-state")
    assert answer.json()["detail"].endswith("remove it and add it again")
    assert (await ask("GET", "/schedules/a")).json()["queue"] == "q0"
    await store.aclose()


async def test_a_page_of_the_list_begins_after_the_one_before(asked):
    for name in ("c", "a", "b"):
        await asked("PUT", f"/schedules/{name}", {"task": "t", "every": 3600})
    page = await asked("GET", "/schedules?limit=2")
    assert [one["name"] for one in page.json()["schedules"]] == ["a", "b"]
    assert page.headers["link"] == f'</schedules?limit=2&cursor={page.json()["cursor"]}>; rel="next"'
    rest = (await asked("GET", f"/schedules?limit=2&cursor={page.json()['cursor']}")).json()
    assert ([one["name"] for one in rest["schedules"]], rest["cursor"]) == (["c"], None)


async def test_a_repeated_run_by_hand_is_the_same_job(asked):
    await asked("PUT", "/schedules/daily", DAILY)
    first, second = [await asked("POST", "/schedules/daily/run") for _ in range(2)]
    assert (first.status, second.status, first.json() != second.json()) == (201, 201, True)
    job = (await asked("GET", first.headers["location"])).json()
    assert (job["task"], job["queue"], job["payload"], job["schedule"], job["run_at"]) == (
        "report", "reports", {"region": "eu"}, "daily", None,
    )  # fmt: skip
    own = [await asked("POST", "/schedules/daily/run", {"id": "mine"}) for _ in range(2)]
    assert [(one.status, one.json()["id"]) for one in own] == [(201, "0-mine"), (200, "0-mine")]
    keyed = [await asked("POST", "/schedules/daily/run", idempotency_key='"8e03978e"') for _ in range(2)]
    assert [(one.status, one.headers.get("idempotent-replayed")) for one in keyed] == [
        (201, None),
        (200, "true"),
    ]
    assert keyed[0].json() == keyed[1].json()
    await asked("PUT", "/schedules/other", DAILY)
    other = await asked("POST", "/schedules/other/run", idempotency_key='"8e03978e"')
    assert (other.status, other.problem) == (422, "idempotency-mismatch")
    both = await asked("POST", "/schedules/daily/run", {"id": "mine"}, idempotency_key='"8e03978e"')
    assert both.places[0] == "#/id"
    await asked("PATCH", "/queues/reports", {"limits": {"jobs": 1}})
    assert (await asked("POST", "/schedules/daily/run")).problem == "queue-full"


@pytest.mark.parametrize("verb", ["", "/pause", "/resume", "/run"])
async def test_an_unknown_schedule_is_404(core, verb):
    await core("POST", "/jobs", {"task": "t"})
    answer = await core("POST" if verb else "GET", f"/schedules/nobody{verb}")
    assert (answer.status, answer.problem, "no schedule nobody" in answer.json()["detail"]) == (
        404,
        "not-found",
        True,
    )
    long = await core("POST" if verb else "GET", f"/schedules/{'x' * 41}{verb}")
    assert (long.status, long.places[0]) == (422, "schedule")


@pytest.mark.parametrize(
    ("change", "where", "why"),
    [
        ({"cron": "61 * * * *"}, "cron", "minute 61"),
        ({"cron": "0 0 30 2 *"}, "cron", "30"),
        ({"cron": 5}, "cron", "use text"),
        ({"tz": "Europe/Berlim"}, "tz", "Europe/Berlim"),
        ({"every": 60}, "every", "not both"),
        ({"cron": None}, "every", "use cron"),
        ({"cron": None, "every": 0.5}, "every", "use 1 or more"),
        ({"start": "2030-01-02T00:00:00Z", "end": "2030-01-01T00:00:00Z"}, "end", "before start"),
        ({"cron": None, "every": 5, "end": "2020-01-01T00:00:00Z"}, "end", "no occurrence before its end"),
        ({"start": 7}, "start", "RFC 3339"),
        ({"jitter": -1}, "jitter", "use 0 or more"),
        ({"missed": "never"}, "missed", "'latest', 'skip' or 'all'"),
        ({"most": 101}, "most", "100"),
        ({"overlap": "x"}, "overlap", "'allow', 'skip' or 'queue'"),
        ({"queue": "no blanks"}, "queue", "use 1 to 128 of"),
        ({"payload": [1]}, "payload", "object"),
        ({"payload": {"x": "x" * 262_144}}, "payload", "262,144"),
        ({"max_attempts": 0}, "max_attempts", "use 1 or more"),
        ({"delay": 5}, "delay", "unknown: leave it out"),
        ({"task": None}, "task", "use text"),
    ],
)
async def test_an_invalid_schedule_is_422_with_the_field_and_the_reason(core, change, where, why):
    answer = await core("PUT", "/schedules/x", DAILY | change)
    assert (answer.status, answer.problem) == (422, "invalid")
    (fault,) = answer.json()["errors"]
    assert (fault["pointer"], why in fault["detail"]) == (f"#/{where}", True), fault
    assert (await core("GET", "/schedules/x")).status == 404


@pytest.fixture
def occurrence(settings):
    """A fired occurrence of the schedule `often`."""
    base = keys.base(settings.namespace)
    with redis.Redis.from_url(settings.redis_url) as raw, SyncClient(settings) as client:
        client.schedules.put("often", Recurrence(every=3600.0), "t")
        occurrence = raw.time()[0] // 3600 * 3_600_000
        raw.hset(keys.schedule(base, "often"), "occurrence", occurrence)
        raw.zadd(keys.schedules(base), {"often": occurrence})
        assert client.store.follow(client.store.operations.fire("me")) == 1
    return datetime.fromtimestamp(occurrence / 1000, UTC)


async def test_a_lease_and_a_job_contain_the_occurrence(core, occurrence):
    lease = (await core("GET", "/jobs/next")).json()
    assert datetime.fromisoformat(lease["occurrence"]) == occurrence
    job = (await core("GET", f"/jobs/{lease['id']}")).json()
    assert (job["schedule"], datetime.fromisoformat(job["run_at"])) == ("often", occurrence)
    await core("POST", "/jobs", {"task": "t"})
    assert "occurrence" not in (await core("GET", "/jobs/next")).json()


async def test_a_task_over_http_gets_its_occurrence(settings, occurrence):
    app, seen = App(), []

    @app.task
    async def t(ctx: Context) -> None:
        seen.append(ctx.occurrence)

    async with serving(settings) as url:
        source = HttpSource.read(url, 5.0)
        await work(app, source, drain=True)
        await source.aclose()
    assert seen == [occurrence]


async def test_a_schedule_is_checked_as_a_job_is(asked, settings):
    store, app = Store(settings), App()

    @app.task(queue="images", max_attempts=5, delay=60)
    def resize(path: str) -> None: ...

    await store.publish([description(describe("resize", resize))], starting=True)
    hourly = {"task": "resize", "payload": {"path": "a"}, "every": 3600}
    made = (await asked("PUT", "/schedules/a", hourly)).json()
    assert (made["queue"], made["max_attempts"], made["warning"]) == ("images", 5, None)
    own = (await asked("PUT", "/schedules/a", hourly | {"queue": "vip", "max_attempts": 2})).json()
    assert (own["queue"], own["max_attempts"]) == ("vip", 2)
    warned = (await asked("PUT", "/schedules/b", hourly | {"task": "resise"})).json()
    assert warned["warning"] == "task 'resise': no worker has published it, did you mean resize?"
    strict = asker(Api(store, Tokens(), check_tasks="refuse"))
    assert (await strict("PUT", "/schedules/c", hourly | {"task": "resise"})).problem == "unknown-task"
    unfit = await strict("PUT", "/schedules/c", hourly | {"payload": {"path": 5}})
    assert (unfit.status, unfit.places) == (422, ["#/payload/path"])
    assert (await asked("GET", "/schedules/c")).status == 404
    await store.aclose()
