"""The roles of each route, and the responses that may contain tokens."""

import pytest

from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.api.routes import ROUTES, UNSAFE_GETS
from sublet_functions.handlers.audit import list_audit
from sublet_functions.http.auth import Role, Tokens
from sublet_functions.schemas.query import Empty
from tests.support.route_samples import NOWHERE, asker, filled, named, prepared, sample

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]


SECRETS = {role: f"the-secret-of-{role}-0123456789" for role in Role}
TOKENS = " ".join(f"{role}-bot:{role}:{secret}" for role, secret in SECRETS.items())


MAY = {
    "POST /jobs": "submit",
    "POST /jobs/batch": "submit",
    "GET /jobs": "read",
    "GET /jobs/{id}": "read",
    "POST /jobs/claim": "work",
    "GET /jobs/next": "work",
    "POST /jobs/{id}/heartbeat": "work",
    "POST /jobs/{id}/complete": "work",
    "POST /jobs/{id}/fail": "work",
    "POST /jobs/{id}/release": "work",
    "POST /jobs/{id}/note": "work",
    "POST /jobs/{id}/emit": "work",
    "GET /jobs/{id}/stream": "read",
    "POST /jobs/{id}/step": "work",
    "POST /jobs/{id}/proceed": "work",
    "POST /jobs/{id}/call": "work",
    "POST /jobs/{id}/upstream": "work",
    "POST /jobs/{id}/suspend": "work",
    "POST /jobs/suspend": "work",
    "POST /jobs/{id}/signal": "submit",
    "GET /jobs/{id}/upstream": "read",
    "POST /workflows": "submit",
    "GET /workflows/{id}": "read",
    "POST /workflows/{id}/cancel": "",
    "POST /workflows/{id}/retry": "",
    "POST /jobs/heartbeat": "work",
    "POST /jobs/complete": "work",
    "POST /jobs/fail": "work",
    "POST /jobs/release": "work",
    "POST /jobs/note": "work",
    "POST /jobs/{id}/cancel": "",
    "POST /jobs/{id}/retry": "",
    "POST /jobs/{id}/promote": "",
    "POST /jobs/{id}/reschedule": "",
    "POST /jobs/{id}/erase": "",
    "POST /jobs/retry": "",
    "POST /jobs/cancel": "",
    "POST /jobs/promote": "",
    "POST /jobs/erase": "",
    "GET /queues": "read metrics",
    "GET /queues/{queue}": "read metrics",
    "PATCH /queues/{queue}": "",
    "GET /queues/{queue}/groups": "read",
    "PUT /queues/{queue}/groups/{group}": "",
    "DELETE /queues/{queue}/groups/{group}": "",
    "GET /schedules": "read",
    "GET /schedules/{schedule}": "read",
    "PUT /schedules/{schedule}": "",
    "DELETE /schedules/{schedule}": "",
    "POST /schedules/{schedule}/pause": "",
    "POST /schedules/{schedule}/resume": "",
    "POST /schedules/{schedule}/run": "",
    "GET /tasks": "submit work read",
    "GET /tasks/{name}": "submit work read",
    "PUT /tasks": "work",
    "GET /workers": "work read",
    "PUT /workers/{name}": "work",
    "DELETE /workers/{name}": "work",
    "POST /workers/{name}/reconcile": "work",
    "POST /workers/{name}/retire": "work",
    "POST /workers/{name}/drain": "",
    "GET /pools": "read",
    "GET /pools/{name}": "read",
    "PUT /pools/{name}": "",
    "DELETE /pools/{name}": "",
    "GET /events": "read",
    "POST /events": "work tick",
    "POST /tick": "tick",
    "GET /tick": "tick",
    "POST /work": "work",
    "GET /audit": "",
    "GET /stats": "read metrics",
    "GET /history": "read",
    "GET /server": "read",
    "GET /metrics": "read metrics",
    "GET /whoami": "submit work read payloads metrics tick",
    "GET /": "no token",
    "GET /ui": "no token",
    "GET /ui/static/{file}": "no token",
    "GET /healthz": "no token",
    "GET /readyz": "no token",
    "GET /openapi.json": "no token",
}
"""The roles of each route, written a second time: a new route, or a new role for a route, must be added here.

`admin` may use every route and is not listed; an empty entry means `admin` only.
"""


def test_every_route_allows_exactly_the_roles_of_the_table():
    found = {named(r): set(r.roles) - {Role.ADMIN} if r.roles else {"no token"} for r in ROUTES}
    assert found == {
        route: {roles} if roles == "no token" else set(roles.split()) for route, roles in MAY.items()
    }
    assert len(ROUTES) == len(found), "a duplicate route would hide the other"
    assert all(r.roles for r in ROUTES if r.body is not Empty), "a route with a body needs a token"
    assert [named(r) for r in ROUTES if r.signed] == ["POST /work"]
    assert [named(r) for r in ROUTES if r.events] == ["POST /jobs", "POST /tick"], (
        "the routes that a server may open"
    )
    assert [r.alias for r in ROUTES if r.alias] == ["/jobs/{id}/done"]


@pytest.mark.parametrize("caller", ["without a token", "with an unknown token", *Role])
async def test_each_role_may_use_its_routes_and_no_others(settings, caller):
    api = Api(Store(settings), Tokens(TOKENS))
    secret = (
        {"without a token": "", "with an unknown token": "an-unknown-secret-0123"}.get(caller)
        if caller not in SECRETS
        else SECRETS[caller]
    )
    for route in ROUTES:
        for path in filter(None, (route.path, route.alias)):
            one = sample(route)
            place = filled(one.path, NOWHERE) if path == route.path else path.format(id="0-no", view="jobs")
            answer = await asker(api)(route.method, place, filled(one.body, NOWHERE), token=secret)
            allowed = not route.roles or caller == Role.ADMIN or caller in route.roles
            if allowed and (path, caller) in [
                (place, Role.WORK) for place in ("/events", "/jobs/{id}/call", "/jobs/{id}/proceed")
            ]:
                assert answer.problem == "forbidden", (
                    "the sample is a tick: work may only send events that call a worker; a call needs submit, too"
                )
            elif allowed:
                assert answer.status not in (401, 403), (route.method, path)
            elif caller in SECRETS:
                assert (answer.status, answer.problem) == (403, "forbidden"), (route.method, path)
            else:
                assert (answer.status, answer.problem) == (401, "unauthorized"), (route.method, path)
                assert answer.headers["www-authenticate"] == "Bearer"
    await api.aclose()


def test_each_role_has_the_routes_of_the_design():
    may = {role: {named(r) for r in ROUTES if role in r.roles} for role in Role}
    submits = {
        "POST /jobs",
        "POST /jobs/batch",
        "POST /workflows",
        "GET /tasks",
        "GET /tasks/{name}",
        "GET /whoami",
    }
    assert may[Role.SUBMIT] == submits | {"POST /jobs/{id}/signal"}
    numbers = {"GET /stats", "GET /metrics", "GET /queues", "GET /queues/{queue}"}
    assert may[Role.METRICS] == {*numbers, "GET /whoami"}
    assert may[Role.PAYLOADS] == {"GET /whoami"}
    assert may[Role.TICK] == {"GET /tick", "POST /tick", "POST /events", "GET /whoami"}
    assert may[Role.READ] == {
        named(r)
        for r in ROUTES
        if r.method == "GET" and r.roles and r.handler not in (*UNSAFE_GETS, list_audit)
    }
    verbs = [
        f"/jobs{part}/{verb}"
        for part in ("", "/{id}")
        for verb in ("heartbeat", "complete", "fail", "release", "note", "suspend")
    ]
    verbs += [
        "/jobs/{id}/emit",
        "/jobs/{id}/proceed",
        "/jobs/{id}/step",
        "/jobs/{id}/call",
        "/jobs/{id}/upstream",
    ]
    assert may[Role.WORK] == {
        *(
            "GET /whoami",
            "GET /jobs/next",
            "POST /jobs/claim",
            "GET /workers",
            "GET /tasks",
            "GET /tasks/{name}",
            "PUT /tasks",
            *[f"POST {path}" for path in verbs],
        ),
        *(
            "PUT /workers/{name}",
            "DELETE /workers/{name}",
            "POST /workers/{name}/reconcile",
            "POST /workers/{name}/retire",
        ),
        *("POST /work", "POST /events"),
    }
    assert {named(r) for r in ROUTES if not r.roles} == {
        "GET /",
        "GET /ui",
        "GET /ui/static/{file}",
        "GET /healthz",
        "GET /readyz",
        "GET /openapi.json",
    }


async def test_a_call_needs_the_role_submit_and_a_queue_of_the_token(settings):
    boss, work, both, scoped = (f"the-secret-of-{name}-0123456789" for name in ("boss", "a", "b", "c"))
    words = f"boss:admin:{boss} a:work:{work} b:work,submit:{both} c:work,submit@held:{scoped}"
    api = Api(Store(settings), Tokens(words))
    core = asker(api)
    job_id = (await core("POST", "/jobs", {"task": "t", "queue": "held"}, token=boss)).json()["id"]
    (job,) = (await core("POST", "/jobs/claim", {"queues": ["held"]}, token=work)).json()["jobs"]
    body = {"token": job["token"], "step": "label", "job": {"task": "t", "queue": "labels"}}
    refused = await core("POST", f"/jobs/{job_id}/call", body, token=work)
    assert (refused.status, refused.problem) == (403, "forbidden")
    assert "has no role submit, which this request needs besides work" in refused.json()["detail"]
    assert (await core("POST", f"/jobs/{job_id}/call", body, token=scoped)).problem == "forbidden"
    first = await core("POST", f"/jobs/{job_id}/call", body, token=both)
    again = await core("POST", f"/jobs/{job_id}/call", body, token=both)
    assert (first.status, first.json()["step"]["kind"], again.json()) == (200, "call", first.json())
    ghost = await core("POST", f"/jobs/{job_id}/call", body | {"token": "1.of-a-ghost"}, token=both)
    assert (ghost.status, ghost.problem) == (409, "lease-lost")
    await api.aclose()


async def test_each_token_has_its_own_workers_of_a_name(settings):
    """The stored name begins with the token's. Tokens with the same name are one principal, so that a secret can be
    replaced.
    """
    one, two, boss = "secret-of-a-first-one", "secret-of-b-0123456", "secret-of-the-boss-0123456"
    again = "secret-of-a-second-one"
    api = Api(Store(settings), Tokens(f"a:work:{one} b:work:{two} a:work:{again} boss:admin:{boss}"))
    core, life = asker(api), {"life": "1", "worker_id": "pod-0"}
    job_id = (await core("POST", "/jobs", {"task": "t"}, token=boss)).json()["id"]
    await core("PUT", "/workers/mill", life, token=one)
    assert len((await core("POST", "/jobs/claim", {"worker": "mill"}, token=one)).json()["jobs"]) == 1
    assert (await core("GET", f"/jobs/{job_id}", token=boss)).json()["worker"] == "a:mill"

    await core("PUT", "/workers/mill", life, token=two)
    assert (await core("POST", "/jobs/claim", {"worker": "mill"}, token=two)).status == 204
    for name in ("mill", "a:mill"):
        ended = await core("POST", f"/workers/{name}/reconcile", {"life": "1"}, token=two)
        assert ended.json() == {"ended": 0}, "otherwise it would end a lease of the other token"
    retired = await core("POST", "/workers/a:mill/retire", {"life": "1", "pool": "p"}, token=two)
    assert retired.json() == {"leave": True}
    assert (await core("DELETE", "/workers/a:mill?life=1", token=two)).status == 204
    (left,) = (await core("GET", "/workers", token=boss)).json()["workers"]
    assert (left["name"], left["worker_id"], left["jobs"]) == ("a:mill", "a:pod-0", [job_id])
    ended = await core("POST", "/workers/mill/reconcile", {"life": "1"}, token=again)
    assert ended.json() == {"ended": 1}
    await api.aclose()


async def test_a_token_lists_its_workers_by_the_names_that_they_gave(settings):
    one, two, boss = "secret-of-one-0123456", "secret-of-two-0123456", "secret-of-the-boss-0123456"
    api = Api(Store(settings), Tokens(f"a:work:{one} b:work,read:{two} boss:admin:{boss}"))
    core = asker(api)
    for token in (one, two, boss):
        assert (
            await core("PUT", "/workers/mill", {"life": "1", "worker_id": "0"}, token=token)
        ).status == 200
    assert (await core("PUT", "/workers/a", {"life": "1"}, token=one)).status == 200

    async def listed(token, query=""):
        found = (await core("GET", f"/workers{query}", token=token)).json()["workers"]
        return sorted((worker["name"], worker["worker_id"]) for worker in found)

    all_of_them = [("a", ""), ("a:mill", "a:0"), ("b:mill", "b:0"), ("mill", "0")]
    assert await listed(one) == await listed(one, "?own=true") == [("a", ""), ("mill", "0")]
    assert await listed(two) == all_of_them
    assert await listed(two, "?own=true") == [("mill", "0")]
    assert await listed(boss) == await listed(boss, "?own=true") == all_of_them
    long = await core("PUT", f"/workers/{'x' * 127}", {"life": "1"}, token=one)
    assert (long.status, "use at most 126 characters" in long.json()["detail"]) == (422, True)
    await api.aclose()


CLAIMS = [("POST", "/jobs/claim", {}), ("GET", "/jobs/next", None)]


@pytest.mark.parametrize(("method", "path", "body"), CLAIMS)
async def test_a_claim_without_a_worker_name_uses_the_tokens_name(settings, method, path, body):
    tokens = Tokens("one:work:secret-of-one-0123456 boss:admin:secret-of-the-boss-0123456")
    api = Api(Store(settings), tokens)
    core, one, boss = asker(api), "secret-of-one-0123456", "secret-of-the-boss-0123456"
    await core("POST", "/jobs", {"task": "t"}, token=boss)
    claimed = (await core(method, path, body, token=one)).json()
    (lease,) = claimed.get("jobs", [claimed])
    assert (await core("GET", f"/jobs/{lease['id']}", token=boss)).json()["worker"] == "one"
    life = {"life": "x"}
    assert (await core("PUT", "/workers/one", life, token=one)).status == 200
    ended = await core("POST", "/workers/one/reconcile", life, token=boss)
    assert ended.json() == {"ended": 1}, "an admin may use any name"
    await api.aclose()


async def test_without_tokens_a_claim_without_a_name_is_by_the_worker_http(core):
    for method, path, body in CLAIMS:
        job_id = (await core("POST", "/jobs", {"task": "t"})).json()["id"]
        assert (await core(method, path, body)).status == 200
        assert (await core("GET", f"/jobs/{job_id}")).json()["worker"] == "http"


async def test_only_claims_contain_lease_tokens_and_no_response_contains_a_secret(settings):
    secret = "the-secret-of-the-boss-0123456789"
    api = Api(Store(settings), Tokens(f"boss:admin:{secret}"))
    answers = []

    async def core(*words, **how):
        answer = await asker(api)(*words, token=secret, **how)
        answers.append((words[:2], answer))
        return answer

    words = await prepared(core)
    for route in ROUTES:
        one = sample(route)
        await core(route.method, filled(one.path, words), filled(one.body, words))
        await core(
            route.method, filled(one.path, words), b'{"token": "' + words["TOKEN"].encode() + b'", "x": ['
        )
    for (_, path), answer in answers:
        assert secret.encode() not in answer.body + repr(answer.headers).encode()
        if not path.startswith(("/jobs/claim", "/jobs/next")):
            assert words["TOKEN"].encode() not in answer.body, path
    await api.aclose()


@pytest.mark.parametrize(
    ("secret", "name", "roles", "queues"),
    [
        ("secret-of-the-boss-0123456", "boss", ["admin"], None),
        ("secret-of-the-shop-0123456", "shop", ["read", "submit"], ["mail", "tenant-7-*"]),
    ],
)
async def test_a_token_can_be_asked_for_its_name_roles_and_queues(settings, secret, name, roles, queues):
    words = (
        "boss:admin:secret-of-the-boss-0123456 shop:submit,read@tenant-7-*,mail:secret-of-the-shop-0123456"
    )
    api = Api(Store(settings), Tokens(words))
    answer = await asker(api)("GET", "/whoami", token=secret)
    assert answer.json() == {"name": name, "roles": roles, "queues": queues, "payloads": True}
    await api.aclose()


async def test_without_tokens_whoami_names_anyone_with_all_rights(core):
    anyone = {"name": "anyone", "roles": ["admin"], "queues": None, "payloads": True}
    assert (await core("GET", "/whoami")).json() == anyone


HIDES = {"read": True, "read,payloads": False, "submit,read": False, "work,read": False, "admin": False}


async def test_payloads_and_results_are_hidden_from_the_role_read_alone(settings):
    words = {roles: f"the-secret-of-{roles.replace(',', '-')}-0123" for roles in HIDES}
    tokens = " ".join(f"t{i}:{roles}:{secret}" for i, (roles, secret) in enumerate(words.items()))
    api = Api(Store(settings), Tokens(tokens))
    ask, boss = asker(api), words["admin"]
    await ask("POST", "/jobs", {"task": "t", "payload": {"to": "ada"}, "keep_payload": True}, token=boss)
    (lease,) = (await ask("POST", "/jobs/claim", {"queues": ["default"]}, token=boss)).json()["jobs"]
    one, held = f"/jobs/{lease['id']}", {"token": lease["token"]}
    await ask("POST", f"{one}/note", held | {"checkpoint": {"page": 3}}, token=boss)
    await ask("PUT", "/schedules/s", {"task": "t", "every": 60, "payload": {"to": "bob"}}, token=boss)

    async def seen(roles, path):
        answer = (await ask("GET", path, token=words[roles], sublet_shared="60")).json()
        (found,) = answer["jobs"] if path == "/jobs" else [answer]
        return {name: found[name] for name in ("payload", "result", "checkpoint") if name in found}

    running = {
        "/jobs": {"payload": {"to": "ada"}},
        one: {"payload": {"to": "ada"}, "result": None, "checkpoint": {"page": 3}},
        "/schedules/s": {"payload": {"to": "bob"}},
    }
    for roles in ("admin", *HIDES):  # an answer for the one is not shared with the other
        for path, whole in running.items():
            assert await seen(roles, path) == (dict.fromkeys(whole) if HIDES[roles] else whole), (roles, path)
        identity = (await ask("GET", "/whoami", token=words[roles])).json()
        assert identity["payloads"] is not HIDES[roles]
    await ask("POST", f"{one}/complete", held | {"result": {"sent": 1}}, token=boss)
    results = {roles: (await ask("GET", one, token=words[roles])).json()["result"] for roles in HIDES}
    assert results == {roles: None if hides else {"sent": 1} for roles, hides in HIDES.items()}
    await api.aclose()
