"""Who may do what over HTTP: the table's roles, and what is told to nobody but its owner."""

import pytest

from functions.api import Api
from functions.app import ACTS, ROUTES
from functions.tokens import Role, Tokens
from jobs.store import Store
from tests.samples import NOWHERE, asker, filled, named, prepared, sample

pytest_plugins = ["tests.served", "tests.asking"]


SECRETS = {role: f"the-secret-of-{role}-0123456789" for role in Role}
TOKENS = " ".join(f"{role}-bot:{role}:{secret}" for role, secret in SECRETS.items())


@pytest.mark.parametrize("who", ["nobody", "stranger", *Role])
async def test_each_role_may_do_what_the_table_says_and_nothing_else(settings, who):
    api = Api(Store(settings), Tokens(TOKENS))
    secret = {"nobody": "", "stranger": "no-secret-of-anybody-here"}.get(who) if who not in SECRETS else SECRETS[who]
    for route in ROUTES:
        for path in filter(None, (route.path, route.alias)):
            one = sample(route)
            place = filled(one.path, NOWHERE) if path == route.path else path.format(id="0-no")
            answer = await asker(api)(route.method, place, filled(one.body, NOWHERE), token=secret)
            allowed = not route.roles or who == Role.ADMIN or who in route.roles
            if allowed and (path, who) == ("/events", Role.WORK):
                assert answer.problem == "forbidden", "the sample is a tick: work may only send events that call a worker"
            elif allowed:
                assert answer.status not in (401, 403), (route.method, path)
            elif who in SECRETS:
                assert (answer.status, answer.problem) == (403, "forbidden"), (route.method, path)
            else:
                assert (answer.status, answer.problem) == (401, "unauthorized"), (route.method, path)
                assert answer.headers["www-authenticate"] == "Bearer"
    await api.aclose()


def test_the_table_gives_the_roles_that_the_design_has():
    may = {role: {named(r) for r in ROUTES if role in r.roles} for role in Role}
    assert may[Role.SUBMIT] == {"POST /jobs", "POST /jobs/batch", "GET /jobs/{id}"}
    assert may[Role.TICK] == {"GET /tick", "POST /tick", "POST /events"}
    assert may[Role.READ] == {named(r) for r in ROUTES if r.method == "GET" and r.roles and r.handler not in ACTS}
    verbs = [f"/jobs{part}/{verb}" for part in ("", "/{id}") for verb in ("heartbeat", "complete", "fail", "release", "note")]
    assert may[Role.WORK] == {
        *("GET /jobs/next", "POST /jobs/claim", "GET /jobs/{id}", "GET /workers", *[f"POST {path}" for path in verbs]),
        *("PUT /workers/{name}", "DELETE /workers/{name}", "POST /workers/{name}/reconcile", "POST /workers/{name}/retire"),
        *("POST /work", "POST /events"),
    }
    assert {named(r) for r in ROUTES if not r.roles} == {"GET /", "GET /healthz", "GET /readyz", "GET /openapi.json"}


async def test_only_its_own_token_speaks_for_a_worker(settings):
    """Tokens of one name are one principal, so that a secret can be changed."""
    api = Api(Store(settings), Tokens("a:work:secret-of-a-first-one b:work:secret-of-b-0123456 a:work:secret-of-a-second-one"))
    core = asker(api)
    await core("PUT", "/workers/mill", {"life": "1"}, token="secret-of-a-first-one")
    for method, path, body in (("DELETE", "/workers/mill?life=1", None), ("POST", "/workers/mill/reconcile", {"life": "1"})):
        assert (await core(method, path, body, token="secret-of-b-0123456")).problem == "forbidden"
    taken = await core("PUT", "/workers/mill", {"life": "evil"}, token="secret-of-b-0123456")
    assert taken.problem == "forbidden", "or else it could have the leases ended under its own life"
    assert (await core("POST", "/workers/mill/reconcile", {"life": "1"}, token="secret-of-a-second-one")).json() == {"ended": 0}
    await api.aclose()


async def test_lease_tokens_are_in_claims_alone_and_secrets_nowhere(settings):
    secret = "the-secret-of-the-boss-0123456789"
    api = Api(Store(settings), Tokens(f"boss:admin:{secret}"))
    said = []

    async def core(*words, **how):
        answer = await asker(api)(*words, token=secret, **how)
        said.append((words[:2], answer))
        return answer

    words = await prepared(core)
    for route in ROUTES:
        one = sample(route)
        await core(route.method, filled(one.path, words), filled(one.body, words))
        await core(route.method, filled(one.path, words), b'{"token": "' + words["TOKEN"].encode() + b'", "x": [')
    for (_, path), answer in said:
        assert secret.encode() not in answer.body + repr(answer.headers).encode()
        if not path.startswith(("/jobs/claim", "/jobs/next")):
            assert words["TOKEN"].encode() not in answer.body, path
    await api.aclose()
