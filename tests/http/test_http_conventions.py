"""Conventions that hold for all routes: times, durations, errors, ids, preconditions, versions and links."""

import re
from dataclasses import replace

import pytest

from sublet.errors import Invalid
from sublet.store.http import HEADERS
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.api.routes import ROUTES
from sublet_functions.http.auth import Tokens
from sublet_functions.http.problems import validation_problem
from sublet_functions.schemas.requests import NewJob
from tests.support.http_server import ask, serve_process
from tests.support.route_samples import asker, filled, named, prepared, sample

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|[+-]\d\d:\d\d)")
BEGINS = re.compile(r'"\d{4}-\d\d-\d\d[T ][^"]*"')


@pytest.fixture
async def words(core):
    return await prepared(core)


@pytest.mark.parametrize("route", ROUTES, ids=named)
async def test_all_times_are_rfc_3339_with_milliseconds(core, words, route):
    one = sample(route)
    answer = await core(route.method, filled(one.path, words), filled(one.body, words))
    found = BEGINS.findall(answer.body.decode())
    assert [text for text in found if not MOMENT.fullmatch(text[1:-1])] == []


async def test_a_job_and_a_schedule_show_many_times(core, words):
    """The test above finds them: whole seconds have milliseconds, too."""
    running = (await core("GET", f"/jobs/{words['RUNNING']}")).body.decode()
    schedule = (await core("GET", "/schedules/yearly")).body.decode()
    assert (len(BEGINS.findall(running)), len(BEGINS.findall(schedule))) == (4, 9)
    assert "-01-01T00:00:00.000+01:00" in schedule


async def test_the_claim_is_the_first_heartbeat(core, words):
    for path in (f"/jobs/{words['RUNNING']}", "/jobs?state=running"):
        answer = (await core("GET", path)).json()
        job = answer["jobs"][0] if "jobs" in answer else answer
        assert job["heartbeat_at"] == job["claimed_at"] is not None
    beat = {"token": words["TOKEN"]}
    await core("POST", f"/jobs/{words['RUNNING']}/heartbeat", beat)
    job = (await core("GET", f"/jobs/{words['RUNNING']}")).json()
    assert job["heartbeat_at"] >= job["claimed_at"]
    await core("POST", f"/jobs/{words['RUNNING']}/complete", beat)
    job = (await core("GET", f"/jobs/{words['RUNNING']}")).json()
    assert (job["heartbeat_at"], job["claimed_at"]) == (None, None)


async def test_no_time_limit_is_null_in_requests_and_responses(core):
    await core("POST", "/jobs", {"task": "t", "timeout": None})
    assert (await core("GET", "/jobs/next")).json()["timeout"] is None
    await core("PUT", "/schedules/s", {"task": "t", "every": 60, "timeout": None})
    assert (await core("GET", "/schedules/s")).json()["timeout"] is None
    await core("PUT", "/tasks", {"tasks": [{"name": "t", "options": {"timeout": None}}]})
    assert (await core("GET", "/tasks/t")).json()["options"]["timeout"] is None
    wrong = await core("POST", "/jobs", {"task": "t", "timeout": "none"})
    assert wrong.json()["detail"] == "body.timeout: use a number of seconds, or null for no limit"


@pytest.mark.parametrize(
    ("body", "errors"),
    [
        (b'{"task": "t", "backoff": {"first": 1, "factor": 0.5}}', ["#/backoff/factor"]),
        (b'{"task": "t", "backoff": "x"}', ["#/backoff"]),
        (b'{"task": "t", "a/b~c d": 1}', ["#/a~1b~0c%20d"]),
        (b"[]", ["#"]),
        (b"{}", ["#/task"]),
    ],
    ids=str,
)
async def test_an_error_has_a_pointer_into_the_body_and_nothing_of_pydantic(core, body, errors):
    answer = await core("POST", "/jobs", body, content_type="application/json")
    assert (answer.status, answer.places) == (422, errors)
    assert not re.search("Backoff|float|Value error", answer.body.decode())


FIRST, LAST = "2030-01-31T09:00:00Z", "9999-01-31T09:00:00Z"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"run_at": FIRST, "delay": 5}, "run_at"),
        ({"run_at": LAST}, "run_at"),
        ({"window": 5}, "window"),
        ({"debounce": 5}, "debounce"),
        ({"key": "k", "debounce": 5, "delay": 5}, "debounce"),
        ({"key": "k", "debounce": 5, "run_at": FIRST}, "debounce"),
        ({"key": "k", "debounce": 5, "window": 5}, "debounce"),
        ({"key": "k", "debounce": 5, "on_conflict": "replace"}, "debounce"),
        ({"key": "k", "debounce": 5, "at_most": 4}, "at_most"),
        ({"at_most": 5}, "at_most"),
        ({"on_conflict": "replace"}, "on_conflict"),
        ({"key": "k", "on_conflict": "replace", "window": 5}, "on_conflict"),
        ({"tags": ["a", "a"]}, "tags"),
    ],
    ids=str,
)
async def test_options_that_do_not_go_together_are_an_error_of_one_of_them(core, options, field):
    job = {"task": "t", **options}
    for path, body, where in (
        ("/jobs", job, f"#/{field}"),
        ("/jobs/batch", {"jobs": [{"task": "t"}, job]}, f"#/jobs/1/{field}"),
    ):
        answer = await core("POST", path, body)
        assert (answer.status, answer.problem, answer.places) == (422, "invalid", [where])


@pytest.mark.parametrize(
    ("changes", "where"),
    [({}, "#"), ({"run_at": FIRST, "delay": 5}, "#/run_at"), ({"run_at": LAST}, "#/run_at")],
    ids=["nothing", "two times", "too late"],
)
async def test_a_reschedule_that_is_refused_names_its_field(core, changes, where):
    job = (await core("POST", "/jobs", {"task": "t", "delay": 60})).json()["id"]
    answer = await core("POST", f"/jobs/{job}/reschedule", changes)
    assert (answer.status, answer.problem, answer.places) == (422, "invalid", [where])


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("/pools/p", {"queues": ["a"], "min": 5, "max": 2}, "#/min"),
        ("/pools/p", {"queues": ["a", "a"]}, "#/queues"),
    ],
)
async def test_settings_of_a_pool_that_are_refused_name_their_field(core, path, body, where):
    answer = await core("PUT", path, body)
    assert (answer.status, answer.problem, answer.places) == (422, "invalid", [where])


@pytest.mark.parametrize(
    "value", ["1" * 6000, "-" + "9" * 4301, "[{}, " + "1" * 6000 + "]"], ids=["long", "negative", "inside"]
)
@pytest.mark.parametrize(
    "place", ['"payload": {"n": VALUE}', '"max_attempts": VALUE'], ids=["payload", "field"]
)
async def test_a_number_of_too_many_digits_is_named_and_not_malformed_json(core, place, value):
    body = ('{"task": "t", ' + place.replace("VALUE", value) + "}").encode()
    answer = await core("POST", "/jobs", body, content_type="application/json")
    assert (answer.status, answer.problem, answer.places) == (422, "invalid", ["#"])
    column = body.index(value.lstrip("-").encode()[-4300:]) if value[0] != "[" else 0
    said = re.fullmatch(
        r"body: the number that ends at line 1 column (\d+) has over 4,300 digits: send it as a string",
        answer.json()["detail"],
    )
    assert said
    assert int(said[1]) > column


async def test_a_number_of_4300_digits_is_taken(core):
    body = ('{"task": "t", "payload": {"n": ' + "9" * 4300 + "}}").encode()
    assert (await core("POST", "/jobs", body, content_type="application/json")).status == 201


def test_a_pointer_follows_the_value_and_not_the_types():
    raw = b'{"task": "t", "backoff": {"ExponentialBackoff": 1}}'
    with pytest.raises(ValueError, match="ExponentialBackoff") as found:
        NewJob.model_validate_json(raw)
    errors = validation_problem(found.value, "body", value=raw).document()["errors"]
    assert [error["pointer"] for error in errors] == ["#/backoff/ExponentialBackoff"]


@pytest.mark.parametrize("verb", ["done", "complete", "heartbeat", "fail", "release", "note"])
async def test_a_request_without_a_body_names_the_missing_field(asked, verb):
    """It has no media type either, so 415 would be wrong."""
    answer = await asked("POST", f"/jobs/0-a/{verb}")
    assert (answer.status, answer.places) == (422, ["#/token"])


async def test_a_job_is_found_by_the_id_that_its_submitter_chose(asked):
    made = await asked("POST", "/jobs", {"task": "t", "id": "order-7", "delay": 60})
    assert made.json() == {"id": "0-order-7"}
    for job_id in ("order-7", "0-order-7"):
        assert (await asked("GET", f"/jobs/{job_id}")).json()["id"] == "0-order-7"
        assert (await asked("GET", f"/jobs/{job_id}?wait=0.01")).json()["id"] == "0-order-7"
    assert (await asked("POST", "/jobs/order-7/cancel", {"revision": 0})).json() == {
        "id": "0-order-7",
        "state": "cancelled",
    }
    assert (await asked("POST", "/jobs", {"task": "t", "id": "7-x"})).json() == {"id": "0-7-x"}
    assert (await asked("GET", "/jobs/7-x")).json()["id"] == "0-7-x"
    unknown = await asked("GET", "/jobs/order-8")
    assert (unknown.status, unknown.problem) == (404, "not-found")
    assert (await asked("GET", f"/jobs/{'x' * 64}")).problem == "not-found"


async def test_with_several_partitions_the_404_says_how_an_id_begins(settings):
    api = Api(Store(replace(settings, partitions=4)), Tokens())
    asked = asker(api)
    made = (await asked("POST", "/jobs", {"task": "t", "id": "order-7"})).json()["id"]
    assert (await asked("GET", f"/jobs/{made}")).json()["id"] == made
    answer = await asked("GET", "/jobs/order-7")
    assert answer.problem == "not-found"
    assert "begins with the number of its partition, e.g. 0-order-7" in answer.json()["detail"]
    assert "begins with" not in (await asked("GET", "/jobs/3-order-8")).json()["detail"]
    await api.aclose()


@pytest.mark.parametrize("name", ["If-Match", "If-None-Match", "If-Unmodified-Since"])
async def test_a_precondition_is_refused_and_nothing_changes(asked, name):
    job = (await asked("POST", "/jobs", {"task": "t", "delay": 60})).json()["id"]
    header = {name.lower().replace("-", "_"): '"1"'}
    refused = await asked("POST", f"/jobs/{job}/cancel", **header)
    assert (refused.status, refused.problem) == (412, "precondition-failed")
    assert refused.json()["detail"].startswith(
        f"{name}: not supported, so nothing was changed: send the `revision`"
    )
    assert (await asked("GET", f"/jobs/{job}", **header)).json()["state"] == "scheduled"


async def test_a_request_may_name_the_version_of_the_api(asked):
    version = (await asked("GET", "/")).json()["version"]
    assert HEADERS["Sublet-Version"] == version, "workers over HTTP send it"
    assert (await asked("GET", "/jobs", sublet_version=version)).status == 200
    refused = await asked("POST", "/jobs", {"task": "t"}, sublet_version="2")
    assert (refused.status, refused.problem) == (400, "unsupported-version")
    assert (await asked("GET", "/jobs")).json()["jobs"] == []


@pytest.mark.parametrize("path", ["/background", ""], ids=["kept by the gateway", "removed by it"])
async def test_links_begin_with_the_base_path_of_the_server(settings, monkeypatch, path):
    monkeypatch.setenv("SUBLET_BASE_PATH", "/background/")
    api = Api(Store(settings), Tokens())
    asked = asker(api)
    made = await asked("POST", f"{path}/jobs", {"task": "t", "id": "mine"})
    assert made.headers["location"] == "/background/jobs/0-mine"
    for name in ("s", "t"):
        await asked("PUT", f"{path}/schedules/{name}", {"task": "t", "every": 60})
    run = await asked("POST", f"{path}/schedules/s/run", {"id": "run"})
    assert run.headers["location"] == "/background/jobs/0-run"
    await asked("PUT", f"{path}/tasks", {"tasks": [{"name": "a"}, {"name": "b"}]})
    await asked("POST", f"{path}/jobs", {"task": "t", "queue": "second"})
    for page in ("jobs", "queues", "schedules", "tasks"):
        link = (await asked("GET", f"{path}/{page}?limit=1")).headers["link"]
        assert link.startswith(f"</background/{page}?limit=1&cursor="), link
        assert (await asked("GET", re.findall("<(.*)>", link)[0])).status == 200
    assert (await asked("GET", path or "/")).json()["links"]["jobs"] == "/background/jobs"
    assert (
        '<a href="/background/jobs">' in (await asked("GET", path or "/", accept="text/html")).body.decode()
    )
    assert (await asked("GET", "/backgrounds")).status == 404
    await api.aclose()


@pytest.mark.parametrize("base", ["background", "/a b", "/a\r\nb", "//a", "https://a.example"])
def test_an_invalid_base_path_is_refused(settings, base):
    with pytest.raises(Invalid, match=r"SUBLET_BASE_PATH=.*use a path that begins with /"):
        Api(Store(settings), Tokens(), base_path=base)


async def test_serve_reads_the_base_path(settings):
    with serve_process(settings, SUBLET_BASE_PATH="/background") as server:
        made = await ask(server.url, "POST", "/background/jobs", {"task": "t", "id": "mine"})
        assert made.headers["location"] == "/background/jobs/0-mine"
