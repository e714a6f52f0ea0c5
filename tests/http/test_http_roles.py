"""The roles of each route, and the responses that may contain tokens."""

import pytest

from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.api.routes import ROUTES, UNSAFE_GETS
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
    "GET /jobs/{id}": "submit work read",
    "POST /jobs/claim": "work",
    "GET /jobs/next": "work",
    "POST /jobs/{id}/heartbeat": "work",
    "POST /jobs/{id}/complete": "work",
    "POST /jobs/{id}/fail": "work",
    "POST /jobs/{id}/release": "work",
    "POST /jobs/{id}/note": "work",
    "POST /jobs/heartbeat": "work",
    "POST /jobs/complete": "work",
    "POST /jobs/fail": "work",
    "POST /jobs/release": "work",
    "POST /jobs/note": "work",
    "POST /jobs/{id}/cancel": "",
    "POST /jobs/{id}/retry": "",
    "POST /jobs/{id}/promote": "",
    "GET /queues": "read",
    "GET /queues/{queue}": "read",
    "PATCH /queues/{queue}": "",
    "GET /schedules": "read",
    "GET /schedules/{name}": "read",
    "PUT /schedules/{name}": "",
    "DELETE /schedules/{name}": "",
    "POST /schedules/{name}/pause": "",
    "POST /schedules/{name}/resume": "",
    "POST /schedules/{name}/run": "",
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
    "GET /stats": "read",
    "GET /metrics": "read",
    "GET /": "no token",
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
            place = filled(one.path, NOWHERE) if path == route.path else path.format(id="0-no")
            answer = await asker(api)(route.method, place, filled(one.body, NOWHERE), token=secret)
            allowed = not route.roles or caller == Role.ADMIN or caller in route.roles
            if allowed and (path, caller) == ("/events", Role.WORK):
                assert answer.problem == "forbidden", (
                    "the sample is a tick: work may only send events that call a worker"
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
    submits = {"POST /jobs", "POST /jobs/batch", "GET /jobs/{id}", "GET /tasks", "GET /tasks/{name}"}
    assert may[Role.SUBMIT] == submits
    assert may[Role.TICK] == {"GET /tick", "POST /tick", "POST /events"}
    assert may[Role.READ] == {
        named(r) for r in ROUTES if r.method == "GET" and r.roles and r.handler not in UNSAFE_GETS
    }
    verbs = [
        f"/jobs{part}/{verb}"
        for part in ("", "/{id}")
        for verb in ("heartbeat", "complete", "fail", "release", "note")
    ]
    assert may[Role.WORK] == {
        *(
            "GET /jobs/next",
            "POST /jobs/claim",
            "GET /jobs/{id}",
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
        "GET /healthz",
        "GET /readyz",
        "GET /openapi.json",
    }


async def test_a_worker_is_managed_only_with_the_token_that_registered_it(settings):
    """Tokens with the same name are one principal, so that a secret can be replaced."""
    api = Api(
        Store(settings),
        Tokens("a:work:secret-of-a-first-one b:work:secret-of-b-0123456 a:work:secret-of-a-second-one"),
    )
    core = asker(api)
    await core("PUT", "/workers/mill", {"life": "1"}, token="secret-of-a-first-one")
    for method, path, body in (
        ("DELETE", "/workers/mill?life=1", None),
        ("POST", "/workers/mill/reconcile", {"life": "1"}),
    ):
        assert (await core(method, path, body, token="secret-of-b-0123456")).problem == "forbidden"
    taken = await core("PUT", "/workers/mill", {"life": "evil"}, token="secret-of-b-0123456")
    assert taken.problem == "forbidden", "otherwise it could end the leases under its own life"
    assert (
        await core("POST", "/workers/mill/reconcile", {"life": "1"}, token="secret-of-a-second-one")
    ).json() == {"ended": 0}
    await api.aclose()


CLAIMS = [("POST", "/jobs/claim", {}), ("GET", "/jobs/next", None)]


@pytest.mark.parametrize(("method", "path", "body"), CLAIMS)
async def test_a_claim_without_a_worker_name_uses_the_tokens_name_and_other_tokens_are_refused(
    settings, method, path, body
):
    tokens = Tokens(
        "one:work:secret-of-one-0123456 two:work:secret-of-two-0123456 boss:admin:secret-of-the-boss-0123456"
    )
    api = Api(Store(settings), tokens)
    core, one, two, boss = (
        asker(api),
        "secret-of-one-0123456",
        "secret-of-two-0123456",
        "secret-of-the-boss-0123456",
    )
    await core("POST", "/jobs", {"task": "t"}, token=boss)
    claimed = (await core(method, path, body, token=one)).json()
    (lease,) = claimed.get("jobs", [claimed])
    assert (await core("GET", f"/jobs/{lease['id']}", token=boss)).json()["worker"] == "one"
    life = {"life": "x"}
    retiring = ("POST", "one/retire", life | {"pool": "p"})
    for verb, at, sent in (
        ("PUT", "one", life),
        ("POST", "one/reconcile", life),
        retiring,
        ("DELETE", "one?life=x", None),
    ):
        answer = await core(verb, f"/workers/{at}", sent, token=two)
        assert (answer.problem, "one has the name of another token" in answer.json()["detail"]) == (
            "forbidden",
            True,
        )
    assert (await core("PUT", "/workers/http", life, token=two)).status == 200, (
        "the first token to register a name that is not a token's gets it"
    )
    assert (await core("POST", "/workers/http/reconcile", life, token=two)).json() == {"ended": 0}
    assert (await core("PUT", "/workers/one", life, token=one)).status == 200
    assert (await core("POST", "/workers/one/reconcile", life, token=boss)).json() == {"ended": 1}, (
        "an admin may do it"
    )
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
