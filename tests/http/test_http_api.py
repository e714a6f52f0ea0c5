"""Responses of the API: statuses, problems, methods and links."""

import asyncio

import pytest
import redis

from sublet import errors
from sublet.connection.settings import Settings
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.api.routes import ROUTES, UNSAFE_GETS
from sublet_functions.http.auth import Tokens
from sublet_functions.http.problems import PROBLEMS, problem_of
from tests.support.route_samples import NOWHERE, asker, filled, named, prepared, sample

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

PATHS = {
    path: [r for r in ROUTES if path in (r.path, r.alias)]
    for r in ROUTES
    for path in (r.path, r.alias)
    if path
}


# statuses


async def test_a_new_job_is_201_and_a_repeat_is_200_with_the_same_location(asked):
    for status in (201, 200):
        made = await asked("POST", "/jobs", {"task": "t", "id": "mine", "payload": {"n": 1}})
        assert (made.status, made.headers["location"]) == (status, f"/jobs/{made.json()['id']}")
        assert "idempotent-replayed" not in made.headers
    job = await asked("GET", made.headers["location"])
    assert (job.status, job.json()["state"], job.json()["payload"]) == (200, "queued", {"n": 1})


async def test_a_list_shows_the_last_error_and_the_size_of_a_result(asked):
    for ending, body in (("done", {"result": [1, 2]}), ("fail", {"code": "Boom", "message": "no paper"})):
        await asked("POST", "/jobs", {"task": "t", "queue": "q", "max_attempts": 1})
        lease = (await asked("GET", "/jobs/next?queue=q&worker=w")).json()
        assert (
            await asked("POST", f"/jobs/{lease['id']}/{ending}", body | {"token": lease["token"]})
        ).status == 200
    (done,) = (await asked("GET", "/jobs?state=completed")).json()["jobs"]
    (dead,) = (await asked("GET", "/jobs?state=dead")).json()["jobs"]
    assert (done["result_bytes"], done["last_error"]) == (5, None)
    assert (dead["result_bytes"], dead["last_error"]) == (None, {"code": "Boom", "message": "no paper"})
    assert not {"result", "checkpoint", "log", "attempts"} & {*done, *dead}


async def test_tags_are_stored_with_the_job_and_shown_with_lease_job_and_list(asked):
    tags = ["tenant:acme", "import"]
    path = (await asked("POST", "/jobs", {"task": "t", "queue": "q", "tags": tags})).headers["location"]
    assert (await asked("GET", path)).json()["tags"] == tags
    assert [job["tags"] for job in (await asked("GET", "/jobs")).json()["jobs"]] == [tags]
    lease = (await asked("GET", "/jobs/next?queue=q&worker=w")).json()
    assert (lease["tags"], lease["max_attempts"], lease["tries_left"]) == (tags, 3, 2)


@pytest.mark.parametrize("tags", [["a", "a"], ["a b"], [""], list("abcdef"), "a", ["t" * 65]])
async def test_wrong_tags_are_refused(asked, tags):
    refused = await asked("POST", "/jobs", {"task": "t", "tags": tags})
    assert (refused.status, refused.places[0][:6]) == (422, "#/tags")


async def test_the_life_of_a_job(asked):
    """The worker's calls prove the lease with its token."""
    path = (await asked("POST", "/jobs", {"task": "t", "queue": "q", "payload": {"n": 1}})).headers[
        "location"
    ]
    lease = (await asked("GET", "/jobs/next?queue=q&worker=w")).json()
    assert (f"/jobs/{lease['id']}", lease["payload"], lease["attempt"], lease["timeout"]) == (
        path,
        {"n": 1},
        1,
        300,
    )
    proof = {"token": lease["token"]}
    beaten = (await asked("POST", f"{path}/heartbeat", proof | {"progress": {"fraction": 0.5}})).json()
    assert beaten["lease_expires_at"] >= lease["lease_expires_at"]
    assert not beaten["cancel_requested"]
    assert (await asked("POST", f"{path}/note", proof | {"checkpoint": [1], "log": "a line"})).json()[
        "state"
    ] == "running"
    assert (await asked("GET", path)).json()["progress"] == {"fraction": 0.5}
    assert (await asked("POST", f"{path}/done", proof | {"result": {"m": 2}})).json()["state"] == "completed"
    job = (await asked("GET", f"{path}?wait=20")).json()
    assert (job["state"], job["result"], job["attempts"][0]["worker"]) == ("completed", {"m": 2}, "w")
    assert [one["id"] for one in (await asked("GET", "/jobs?state=completed")).json()["jobs"]] == [
        lease["id"]
    ]


@pytest.mark.parametrize(
    ("method", "path", "body"), [("GET", "/jobs/next", None), ("POST", "/jobs/claim", {})]
)
async def test_a_claim_without_jobs_is_204_with_the_time_of_the_next_try(asked, method, path, body):
    nothing = await asked(method, path, body)
    assert (nothing.status, nothing.body) == (204, b"")
    assert 0 < float(nothing.headers["sublet-next-in"]) <= 2
    assert nothing.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("route", [r for r in ROUTES if "{id}" in r.path], ids=named)
async def test_a_missing_job_is_404(core, route):
    one = sample(route)
    answer = await core(route.method, filled(one.path, NOWHERE), filled(one.body, NOWHERE))
    assert (answer.status, answer.problem) == (404, "not-found")


@pytest.mark.parametrize("verb", ["heartbeat", "complete", "done", "fail", "release", "note"])
async def test_a_lost_lease_is_409_and_the_response_does_not_contain_its_token(asked, verb):
    path = (await asked("POST", "/jobs", {"task": "t"})).headers["location"]
    for _ in ("never claimed", "under another lease"):
        answer = await asked("POST", f"{path}/{verb}", {"token": "1.not-the-token"})
        assert (answer.status, answer.problem) == (409, "lease-lost")
        assert b"not-the-token" not in answer.body
        await asked("POST", "/jobs/claim", {})


async def test_operator_calls_that_conflict_with_the_state_are_409(asked):
    path = (await asked("POST", "/jobs", {"task": "t", "key": "k"})).headers["location"]
    for verb in ("retry", "promote"):
        assert (await asked("POST", f"{path}/{verb}")).problem == "wrong-state"
    assert (await asked("POST", f"{path}/cancel", {"revision": 7})).problem == "changed"
    assert (await asked("POST", f"{path}/cancel", {"revision": 0})).json()["state"] == "cancelled"
    await asked("POST", "/jobs", {"task": "t", "key": "k"})
    taken = await asked("POST", f"{path}/retry")
    assert (taken.status, taken.problem) == (409, "key-taken")


async def test_a_waiting_job_is_rescheduled(asked):
    path = (await asked("POST", "/jobs", {"task": "t", "priority": 3})).headers["location"]
    moved = await asked("POST", f"{path}/reschedule", {"run_at": "2030-01-31T10:00:00+01:00", "revision": 0})
    state = {"id": path.rpartition("/")[2], "state": "scheduled", "due_at": "2030-01-31T09:00:00.000Z"}
    assert (moved.status, moved.json()) == (200, state)
    assert (await asked("POST", f"{path}/reschedule", {"priority": -9})).json() == state
    assert (await asked("POST", f"{path}/reschedule", {"delay": 5, "revision": 1})).problem == "changed"
    now = await asked("POST", f"{path}/reschedule", {"run_at": "1969-07-20T20:17:40Z", "delay": None})
    assert now.json() == {"id": state["id"], "state": "queued"}
    job = (await asked("GET", path)).json()
    assert (job["state"], job["priority"], job["revision"], job["due_at"]) == ("queued", -9, 3, None)
    await asked("POST", "/jobs/claim", {})
    assert (await asked("POST", f"{path}/reschedule", {"priority": 1})).problem == "wrong-state"
    assert (await asked("POST", "/jobs/0-nobody/reschedule", {"priority": 1})).problem == "not-found"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, b"give run_at, delay or priority"),
        ({}, b"give run_at, delay or priority"),
        ({"revision": 0, "delay": None}, b"give run_at, delay or priority"),
        ({"delay": 1, "run_at": "2030-01-31T09:00:00Z"}, b"run_at and delay: use one of them"),
        ({"run_at": "2030-01-31T09:00:00"}, b"with a time zone"),
        ({"delay": -1}, b"use 0 or more"),
        ({"priority": 101}, b"use 100 or less"),
        ({"at": 5}, b"at"),
    ],
)
async def test_a_reschedule_without_sense_is_refused(asked, body, words):
    path = (await asked("POST", "/jobs", {"task": "t"})).headers["location"]
    refused = await asked("POST", f"{path}/reschedule", body)
    assert (refused.status, refused.problem) == (422, "invalid")
    assert words in refused.body
    assert (await asked("GET", path)).json()["revision"] == 0


async def test_cancelling_a_running_job_is_202_and_its_worker_gets_the_request(asked):
    ids = await prepared(asked)
    asked_to_stop = await asked("POST", f"/jobs/{ids['RUNNING']}/cancel")
    assert (asked_to_stop.status, asked_to_stop.json()["state"]) == (202, "running")
    beat = (await asked("POST", f"/jobs/{ids['RUNNING']}/heartbeat", {"token": ids["TOKEN"]})).json()
    assert (beat["cancel_requested"], beat["lease_expires_at"]) == (True, None)


@pytest.mark.parametrize("path", PATHS)
async def test_an_unsupported_method_is_405_with_the_allowed_methods(core, path):
    known = {route.method for route in PATHS[path]}
    known |= (
        {"HEAD"} if any(r.method == "GET" and r.handler not in UNSAFE_GETS for r in PATHS[path]) else set()
    )
    for method in {
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
        "OPTIONS",
        "TRACE",
        "NONSENSE",
        "get",
    } - known:
        answer = await core(
            method,
            path.format(id="0-a", queue="q", group="g", name="w", schedule="s", view="jobs", file="main.js"),
        )
        assert answer.status == 405
        assert set(answer.headers["allow"].split(", ")) == known
        assert answer.problem == "method-not-allowed"


async def test_each_get_supports_head_unless_it_changes_data(asked):
    await prepared(asked)
    for path in ("/", "/jobs", "/queues", "/workers", "/healthz", "/readyz", "/openapi.json"):
        full, bare = await asked("GET", path), await asked("HEAD", path)
        assert (bare.status, bare.body, bare.headers["content-type"]) == (
            200,
            b"",
            full.headers["content-type"],
        )
    for path in ("/jobs/next?queue=ready", "/tick"):
        assert (await asked("HEAD", path)).headers["allow"] in ("GET", "GET, POST")


@pytest.mark.parametrize(
    "path",
    [
        "/nope",
        "/jobs/",
        "//",
        "/jobs/a/b",
        "/jobs//cancel",
        "/jobs/a/cancel/",
        "/Jobs",
        "",
        "*",
        "/queues/%ff/x",
    ],
)
async def test_an_unknown_path_is_404(core, path):
    for method in ("GET", "POST"):
        assert (await core(method, path)).problem == "not-found"


async def test_a_full_queue_is_429_with_retry_after(asked):
    await asked("PATCH", "/queues/q", {"limits": {"jobs": 1}})
    assert (await asked("POST", "/jobs", {"task": "t", "queue": "q"})).status == 201
    full = await asked("POST", "/jobs", {"task": "t", "queue": "q"})
    assert (full.status, full.problem) == (429, "queue-full")
    assert int(full.headers["retry-after"]) >= 1
    (one, other) = (
        await asked("POST", "/jobs/batch", {"jobs": [{"task": "t", "queue": "q"}, {"task": "t"}]})
    ).json()["jobs"]
    assert (one["status"], one["type"], other["status"]) == (429, "urn:sublet:problem:queue-full", 201)


async def test_a_queue_names_the_task_that_reports_its_dead_jobs(asked):
    for patch, on_dead in (
        ({"on_dead": "ops/died"}, "ops/died"),
        ({"limits": {"jobs": 1}}, "ops/died"),
        ({"on_dead": None}, None),
    ):
        changed = (await asked("PATCH", "/queues/q", patch)).json()
        assert (changed["on_dead"], changed["limits"].keys() <= {"jobs"}) == (on_dead, True)
        assert (await asked("GET", "/queues/q")).json() == changed
    assert (await asked("PATCH", "/queues/*", {"on_dead": "ops/died"})).json()["on_dead"] == "ops/died"


async def test_without_redis_only_routes_that_need_it_are_503():
    api = Api(Store(Settings(redis_url="redis://127.0.0.1:1", timeout=0.5)), Tokens())

    async def ask(route):
        one = sample(route)
        return await asker(api)(route.method, filled(one.path, NOWHERE), filled(one.body, NOWHERE))

    async with asyncio.timeout(10):  # half a second; more on a busy machine
        answers = await asyncio.gather(*map(ask, ROUTES))
    for route, answer in zip(ROUTES, answers, strict=True):
        if route.path == "/work":  # without an app the route does not use Redis
            assert answer.status == 404
        elif route.path == "/whoami":
            assert answer.status == 200
        elif route.roles or route.path == "/readyz":
            assert (answer.status, answer.problem) == (503, "unavailable"), named(route)
            assert int(answer.headers["retry-after"]) >= 1
        else:
            assert answer.status == 200
    await api.aclose()


@pytest.mark.parametrize("route", [r for r in ROUTES if r.roles], ids=named)
async def test_after_a_flush_every_route_answers_and_the_next_job_is_accepted(core, settings, route):
    await core("POST", "/jobs", {"task": "t"})
    with redis.Redis.from_url(settings.redis_url) as raw:
        raw.delete(*raw.scan_iter(match=f"{{{settings.namespace}:*", count=1000))
    one = sample(route)
    answer = await core(route.method, filled(one.path, NOWHERE), filled(one.body, NOWHERE))
    assert answer.status in (*route.responses, 404, 409), answer.body
    assert (await core("POST", "/jobs", {"task": "t", "id": "after"})).status == 201


async def test_all_links_of_the_root_work(core):
    for path in (await core("GET", "/")).json()["links"].values():
        assert (await core("GET", path)).status == 200, path
    page = await core("GET", "/", accept="text/html,application/xhtml+xml")
    assert (page.status, page.headers["content-type"], page.headers["vary"]) == (
        200,
        "text/html; charset=utf-8",
        "Accept",
    )
    assert b'href="openapi.json"' in page.body


KNOWN = (errors.Refused, errors.Unavailable, errors.Invalid)
ERRORS = [error for error in vars(errors).values() if isinstance(error, type) and issubclass(error, KNOWN)]


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_of_the_store_has_its_own_problem_type(error):
    problem = problem_of(error("words"))
    away = dict.fromkeys(
        (errors.Unfit, errors.Moved, errors.Demoted, errors.Forbidden, errors.Denied), "unavailable"
    )
    expected = {errors.Refused: "internal", errors.NotDurable: "not-set-up"} | away
    assert problem.slug == expected.get(
        error, getattr(error, "code", error.__name__).lower().replace("_", "-")
    )
    status = PROBLEMS[problem.slug].status
    assert ("Retry-After" in problem.response().headers) == (status in (429, 503, 507))
    assert ("does not answer" in problem.detail) == (
        error in (errors.Unavailable, errors.Demoted, errors.Moved)
    )


async def test_a_worker_may_name_a_job_by_its_own_id(asked):
    assert (await asked("POST", "/jobs", {"task": "t", "queue": "q", "id": "own-1"})).status == 201
    (lease,) = (await asked("POST", "/jobs/claim", {"queues": ["q"], "worker": "w"})).json()["jobs"]
    for verb, body in (("heartbeat", {}), ("note", {"log": "x"}), ("complete", {})):
        answer = await asked("POST", f"/jobs/own-1/{verb}", {"token": lease["token"], **body})
        assert (answer.status, answer.json()["id"]) == (200, "0-own-1")
    assert (await asked("POST", "/jobs/own-2/complete", {"token": lease["token"]})).status == 404
