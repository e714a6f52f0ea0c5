"""Tokens limited to queues: each route keeps them within, or refuses them."""

import json

import pytest

from sublet.errors import Invalid
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.api.routes import ROUTES, WITHIN_QUEUES
from sublet_functions.http.auth import Principal, Role, Tokens
from sublet_functions.http.request import Request
from sublet_functions.http.scope import ENTRIES_MAX, Scope
from tests.support.route_samples import NOWHERE, asker, filled, named, prepared, sample

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

BOSS, OUT, IN = "the-secret-of-the-boss-0123", "the-secret-of-the-outsider", "the-secret-of-the-insider"
ROLES = ",".join(role for role in Role if role is not Role.TICK)
TOKENS = f"boss:admin:{BOSS} out:{ROLES}@elsewhere,else-*:{OUT} in:{ROLES}@held,ready,default,images:{IN}"

APPLIED = {
    "POST /jobs": "named",
    "POST /jobs/batch": "named",
    "GET /jobs": "listed",
    "GET /jobs/{id}": "job",
    "POST /jobs/claim": "named",
    "GET /jobs/next": "named",
    "POST /jobs/{id}/heartbeat": "job",
    "POST /jobs/{id}/complete": "job",
    "POST /jobs/{id}/fail": "job",
    "POST /jobs/{id}/release": "job",
    "POST /jobs/{id}/note": "job",
    "POST /jobs/{id}/emit": "job",
    "GET /jobs/{id}/stream": "job",
    "POST /jobs/{id}/step": "job",
    "POST /jobs/{id}/proceed": "named",
    "POST /jobs/{id}/call": "named",
    "POST /jobs/{id}/upstream": "job",
    "POST /jobs/{id}/suspend": "job",
    "POST /jobs/suspend": "jobs",
    "POST /jobs/{id}/signal": "job",
    "GET /jobs/{id}/upstream": "job",
    "POST /workflows": "named",
    "GET /workflows/{id}": "all queues",
    "POST /workflows/{id}/cancel": "all queues",
    "POST /workflows/{id}/retry": "all queues",
    "POST /jobs/heartbeat": "jobs",
    "POST /jobs/complete": "jobs",
    "POST /jobs/fail": "jobs",
    "POST /jobs/release": "jobs",
    "POST /jobs/note": "jobs",
    "POST /jobs/{id}/cancel": "job",
    "POST /jobs/{id}/retry": "job",
    "POST /jobs/{id}/promote": "job",
    "POST /jobs/{id}/reschedule": "job",
    "POST /jobs/{id}/erase": "job",
    "POST /jobs/retry": "listed",
    "POST /jobs/cancel": "listed",
    "POST /jobs/promote": "listed",
    "POST /jobs/erase": "listed",
    "GET /queues": "listed",
    "GET /queues/{queue}": "named",
    "PATCH /queues/{queue}": "named",
    "GET /queues/{queue}/groups": "named",
    "PUT /queues/{queue}/groups/{group}": "named",
    "DELETE /queues/{queue}/groups/{group}": "named",
    "GET /schedules": "listed",
    "GET /schedules/{schedule}": "schedule",
    "PUT /schedules/{schedule}": "named",
    "DELETE /schedules/{schedule}": "schedule",
    "POST /schedules/{schedule}/pause": "schedule",
    "POST /schedules/{schedule}/resume": "schedule",
    "POST /schedules/{schedule}/run": "schedule",
    "GET /tasks": "shared",
    "GET /tasks/{name}": "shared",
    "PUT /tasks": "all queues",
    "GET /workers": "listed",
    "PUT /workers/{name}": "own",
    "DELETE /workers/{name}": "own",
    "POST /workers/{name}/reconcile": "own",
    "POST /workers/{name}/retire": "named",
    "POST /workers/{name}/drain": "all queues",
    "GET /pools": "listed",
    "GET /pools/{name}": "pool",
    "PUT /pools/{name}": "all queues",
    "DELETE /pools/{name}": "all queues",
    "GET /events": "listed",
    "POST /events": "all queues",
    "POST /tick": "all queues",
    "GET /tick": "all queues",
    "POST /work": "all queues",
    "GET /audit": "listed",
    "GET /stats": "listed",
    "GET /history": "all queues",
    "GET /server": "all queues",
    "GET /metrics": "all queues",
    "GET /whoami": "shared",
    "GET /": "no token",
    "GET /ui": "no token",
    "GET /ui/static/{file}": "no token",
    "GET /healthz": "no token",
    "GET /readyz": "no token",
    "GET /openapi.json": "no token",
}
"""How each route applies the queues of a token: a new route must be added here.

named: 403 for a queue, or a pool's queues, named in the request. listed: others are left out. job, jobs, schedule,
pool: as if another did not exist. own: the worker of this token. shared: the same for all. all queues: 403 for each
limited token. no token: public.
"""
BY_PATH = {"schedule": ("yearly", "nothing"), "pool": ("images", "nothing")}
CANARIES = ("held", "ready", "yearly", "mill", "images", "boss")
"""Names of the samples' objects, all outside the token's queues."""


def test_every_route_says_how_it_applies_the_queues_of_a_token():
    assert {named(route) for route in ROUTES} == APPLIED.keys()
    unlimited = {named(route) for route in ROUTES if route.roles and route.handler not in WITHIN_QUEUES}
    closed = {name for name, how in APPLIED.items() if how == "all queues"}
    assert unlimited == closed
    assert {named(route) for route in ROUTES if not route.roles} == {
        name for name, how in APPLIED.items() if how == "no token"
    }
    assert {route.handler for route in ROUTES} > WITHIN_QUEUES


@pytest.fixture
async def api(settings):
    api = Api(Store(settings), Tokens(TOKENS))
    yield api
    await api.aclose()


@pytest.fixture
def core(api):
    return asker(api)


VOLATILE = {"seen_at", "sum"}


async def everything(core):
    """What an administrator sees of the namespace, without times and without workers of the token `out`."""
    found = {}
    for path in ("/jobs", "/queues", "/schedules", "/pools", "/workers", "/tasks"):
        (items,) = (
            value for value in (await core("GET", path, token=BOSS)).json().values() if type(value) is list
        )
        found[path] = [
            {name: value for name, value in item.items() if name not in VOLATILE}
            for item in items
            if not item.get("name", "").startswith("out:")
        ]
    return found


@pytest.mark.parametrize("route", [pytest.param(route, id=named(route)) for route in ROUTES if route.roles])
async def test_a_limited_token_reaches_nothing_outside_its_queues(core, route):
    words = await prepared(lambda *args, **more: core(*args, token=BOSS, **more))
    before, how, one = await everything(core), APPLIED[named(route)], sample(route)
    words["TOKEN"] = NOWHERE["TOKEN"]  # a lease's token comes from a claim, which is refused
    answer = await core(route.method, filled(one.path, words), filled(one.body, words), token=OUT)
    told = {*_texts(json.loads(answer.body or b"null")), *answer.headers.values()}
    if how in ("named", "all queues"):
        assert (answer.status, answer.problem) == (403, "forbidden")
    elif how in ("job", "schedule", "pool"):
        there, gone = BY_PATH.get(
            how, (words[place], NOWHERE[place]) if (place := _word(one.path)) else ("", "")
        )
        path = filled(one.path, words).replace(there, gone)
        nothing = await core(route.method, path, filled(one.body, words), token=OUT)
        assert answer.status in (404, 204)
        assert answer.body.decode().replace(there, gone) == nothing.body.decode()
    elif how == "jobs":
        (item,) = answer.json()["jobs"]
        assert (item["status"], item["type"]) == (404, "urn:sublet:problem:not-found")
    else:
        assert 200 <= answer.status < 300
        outside = [*CANARIES, *(words[name] for name in ("RUNNING", "SCHEDULED", "CANCELLED"))]
        assert how == "shared" or not told.intersection(outside)
    assert await everything(core) == before


def _texts(value):
    """All texts in a JSON value."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
    elif isinstance(value, str):
        yield value


def _word(path):
    return next((word for word in NOWHERE if word in path), "")


@pytest.mark.parametrize("route", [pytest.param(route, id=named(route)) for route in ROUTES if route.roles])
async def test_a_limited_token_does_within_its_queues_what_its_roles_allow(core, route):
    words = await prepared(lambda *args, **more: core(*args, token=BOSS, **more))
    one = sample(route)
    path, body = filled(one.path, words), filled(one.body, words)
    for status in (one.first, one.second) if APPLIED[named(route)] != "all queues" else (403,):
        assert (await core(route.method, path, body, token=IN)).status == status


async def test_lists_and_events_have_what_is_within_the_queues_and_no_more(core):
    ids = {}
    for at, queue in enumerate(("a", "else-1", "b", "elsewhere", "else-2", "c")):
        ids[queue] = (
            await core("POST", "/jobs", {"task": "t", "queue": queue, "priority": at}, token=BOSS)
        ).json()["id"]
        schedule = {"task": "t", "queue": queue, "every": 3600}
        await core("PUT", f"/schedules/s-{queue}", schedule, token=BOSS)
        await core("PUT", f"/pools/p-{queue}", {"queues": sorted({queue, "else-1"})}, token=BOSS)
    own = ["else-1", "else-2", "elsewhere"]

    async def pages(path, kind):
        found, cursor = [], ""
        while True:
            page = (await core("GET", f"{path}{cursor and f'&cursor={cursor}'}", token=OUT)).json()
            found += page[kind]
            cursor = page["cursor"]
            if not cursor:
                return found

    for limit in (1, 2, 50):
        assert sorted(job["id"] for job in await pages(f"/jobs?limit={limit}", "jobs")) == sorted(
            ids[queue] for queue in own
        )
        assert [queue["name"] for queue in await pages(f"/queues?limit={limit}", "queues")] == own
        assert [each["queue"] for each in await pages(f"/schedules?limit={limit}", "schedules")] == own
    pools = (await core("GET", "/pools", token=OUT)).json()["pools"]
    assert [pool["name"] for pool in pools] == ["p-else-1", "p-else-2", "p-elsewhere"]
    events = (await core("GET", "/events?after=0&limit=2", token=OUT)).json()
    rest = (await core("GET", f"/events?after={events['cursor']}", token=OUT)).json()
    assert [job for event in (*events["events"], *rest["events"]) for job in event["jobs"]] == [
        ids["else-1"],
        ids["elsewhere"],
        ids["else-2"],
    ]
    assert (await core("GET", f"/events?after=0&job={ids['a']}", token=OUT)).json()["events"] == []
    stats = (await core("GET", "/stats", token=OUT)).json()
    assert (stats["queued"], stats["submitted_total"], stats["maintenance_by"]) == (3, None, None)
    assert (await core("GET", "/stats?queue=a", token=OUT)).problem == "forbidden"
    assert (await core("GET", "/jobs?queue=a", token=OUT)).problem == "forbidden"


async def test_the_workers_of_others_are_hidden_in_lists_and_in_numbers(core):
    await core("PUT", "/workers/mill", {"life": "1", "about": {}}, token=BOSS)
    await core("GET", "/tick", token=BOSS)
    whole = (await core("GET", "/stats", token=BOSS)).json()
    assert (whole["workers"], whole["maintenance_by"]) == (1, "http:boss")
    found = (await core("GET", "/stats", token=OUT)).json()
    assert (found["workers"], found["maintenance_by"]) == (None, None)
    assert (await core("GET", "/workers", token=OUT)).json()["workers"] == []


async def test_a_stream_of_events_has_those_of_the_tokens_queues(settings, core, api):
    for queue in ("a", "elsewhere"):
        job = (await core("POST", "/jobs", {"task": "t", "queue": queue}, token=BOSS)).json()["id"]
    headers = {"accept": "text/event-stream", "host": "localhost", "authorization": f"Bearer {OUT}"}
    response = await api.answer(Request("GET", "/events", "after=0", headers, b"", streams=False))
    told = b"".join([part async for part in response.body]).decode()
    assert told.count("data:") == 1
    assert job in told


CLAIMS = ("POST", "/jobs/claim"), ("GET", "/jobs/next")


@pytest.mark.parametrize(
    ("entry", "may"),
    [("elsewhere", True), ("else-7", True), ("else-*", True), ("else-a-*", True), ("else*", False), ("*", False),
     ("elsewhere*", False), ("elsewher", False), ("default", False)],
)  # fmt: skip
async def test_a_claim_takes_from_the_tokens_queues_and_patterns_within_them(core, entry, may):
    for method, path in CLAIMS:
        if method == "GET":
            answer = await core(method, f"{path}?queue={entry}&queue=elsewhere", token=OUT)
        else:
            answer = await core(method, path, {"queues": ["elsewhere", entry]}, token=OUT)
        assert answer.status == (204 if may else 403)
    if not may:
        assert answer.json()["detail"] == (
            f"the token of out is limited to the queues else-*, elsewhere, which do not include {entry}: use one of these, or another token"
        )


async def test_a_claim_names_no_dead_job_of_another_queue(core):
    for queue in ("held", "elsewhere"):
        job = {"task": "t", "queue": queue, "max_attempts": 1}
        assert (await core("POST", "/jobs", job, token=BOSS)).status == 201
    taken = {"queues": ["held", "elsewhere"], "n": 2, "lease": 0.1}
    assert len((await core("POST", "/jobs/claim", taken, token=BOSS)).json()["jobs"]) == 2
    found = ""
    while " elsewhere " not in found:
        claimed = await core("POST", "/jobs/claim", {"queues": ["elsewhere"]}, token=OUT)
        found += claimed.headers.get("sublet-dead", "")
    assert " held " not in found


async def test_an_id_that_a_job_outside_the_queues_has_is_refused(core):
    """The answer of a submit names an id; for a limited token only one of a job that it may use."""
    for queue, job_id in (("held", "theirs"), ("elsewhere", "mine")):
        await core("POST", "/jobs", {"task": "t", "queue": queue, "id": job_id}, token=BOSS)
    theirs, mine = ({"task": "t", "queue": "elsewhere", "id": name} for name in ("theirs", "mine"))
    refused = await core("POST", "/jobs", theirs, token=OUT)
    assert (refused.status, refused.problem) == (409, "key-taken")
    assert (await core("POST", "/jobs", mine, token=OUT)).json() == {"id": "0-mine"}
    items = (await core("POST", "/jobs/batch", {"jobs": [mine, theirs]}, token=OUT)).json()["jobs"]
    assert [(item["id"], item["status"]) for item in items] == [("0-mine", 200), ("0-theirs", 409)]
    await core("PUT", "/schedules/s", {"task": "t", "queue": "elsewhere", "every": 60}, token=OUT)
    assert (await core("POST", "/schedules/s/run", {"id": "theirs"}, token=OUT)).problem == "key-taken"
    assert (await core("POST", "/schedules/s/run", {"id": "mine"}, token=OUT)).json() == {"id": "0-mine"}


async def test_a_schedule_outside_the_queues_is_not_replaced(core):
    settings = {"task": "t", "queue": "held", "every": 60}
    await core("PUT", "/schedules/s", settings, token=BOSS)
    taken = await core("PUT", "/schedules/s", settings | {"queue": "elsewhere"}, token=OUT)
    assert (taken.status, taken.problem) == (403, "forbidden")
    assert (await core("GET", "/schedules/s", token=BOSS)).json()["queue"] == "held"


async def test_deaths_are_reported_in_the_tokens_queues_only(core):
    for task, status in (("held/t", 403), ("else-7/t", 200), ("t", 200), (None, 200)):
        answer = await core("PATCH", "/queues/elsewhere", {"on_dead": task}, token=OUT)
        assert answer.status == status
        if status == 200:
            assert answer.json()["on_dead"] == task


async def test_a_registration_says_that_the_worker_serves_the_tokens_queues(core):
    """Otherwise it would count as a worker of other queues, or of all."""

    async def queues(about):
        answer = await core("PUT", "/workers/mill", {"life": "1", "about": about}, token=OUT)
        if answer.status != 200:
            return answer.problem
        (worker,) = (await core("GET", "/workers", token=BOSS)).json()["workers"]
        return worker["about"].get("queues"), worker["about"].get("queue_count")

    assert await queues({"queues": ["held"]}) == "forbidden"
    assert await queues({"queues": ["else-1"]}) == (["else-1"], None)
    assert await queues({"queues": ["else-1"], "queue_count": 40}) == (["else-*", "elsewhere"], None)
    assert await queues({}) == (["else-*", "elsewhere"], None)


async def test_a_member_of_a_pool_serves_the_pools_queues(core):
    await core("PUT", "/pools/mixed", {"queues": ["elsewhere", "held"]}, token=BOSS)
    await core("PUT", "/pools/own", {"queues": ["elsewhere"]}, token=BOSS)
    for pool, status in (("mixed", 403), ("own", 200), ("gone", 200)):
        member = {"life": "1", "pool": pool}
        assert (await core("PUT", "/workers/mill", member, token=OUT)).status == status
        assert (await core("POST", "/workers/mill/retire", member, token=OUT)).status == status


async def test_the_namespace_is_not_a_queue_of_a_token_for_every_queue(settings):
    api = Api(Store(settings), Tokens(f"all:admin@*:{OUT}"))
    core = asker(api)
    assert (await core("POST", "/jobs", {"task": "t", "queue": "any"}, token=OUT)).status == 201
    assert (await core("GET", "/queues/any", token=OUT)).status == 200
    for method, body in (("GET", None), ("PATCH", {"limits": {"dead": 1}})):
        assert (await core(method, "/queues/*", body, token=OUT)).problem == "forbidden"
    await api.aclose()


# ── the words of a token ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_token_may_be_limited_to_queues():
    tokens = Tokens(f"ci:submit,read@mail,tenant:7,else-*:{OUT} boss:admin:{BOSS}")
    scope = Scope(frozenset({"mail", "tenant:7"}), ("else-",))
    assert tokens.principal(f"Bearer {OUT}") == Principal("ci", frozenset({Role.SUBMIT, Role.READ}), scope)
    assert str(scope) == "else-*, mail, tenant:7"
    assert tokens.principal(f"Bearer {BOSS}").scope is None


@pytest.mark.parametrize(
    ("word", "why"),
    [
        (f"ci:submit@:{OUT}", "word 1: queues: use 1 to 100"),
        (f"ci:submit@mail,:{OUT}", "word 1: queues: use"),
        (f"ci:submit@ma*il:{OUT}", "word 1: queues: use"),
        (f"ci:submit@mail*,*s:{OUT}", "word 1: queues: use"),
        (f"ci:submit@m!:{OUT}", "word 1: queues: use"),
        (f"ci:submit@{'x' * 129}:{OUT}", "word 1: queues: use"),
        (f"ci:submit@{','.join(f'q{i}' for i in range(ENTRIES_MAX + 1))}:{OUT}", "word 1: queues: use"),
        (f"ci:tick@mail:{OUT}", "a tick is of all queues"),
        (f"ci:@mail:{OUT}", "word 1: roles: use"),
        ("ci:submit@mail:short", "secret: use 16"),
        (f"ci:submit@mail:{OUT} ci:submit@other:{OUT}", "different names, roles or queues"),
    ],
)
def test_invalid_queues_of_a_token_are_refused(word, why):
    with pytest.raises(Invalid) as error:
        Tokens(word)
    assert why in str(error.value)
    assert OUT not in str(error.value)


# ── the role metrics ─────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_role_metrics_reads_numbers_and_no_jobs(settings):
    api = Api(Store(settings), Tokens(f"boss:admin:{BOSS} m:metrics:{OUT}"))
    core = asker(api)
    words = await prepared(lambda *args, **more: core(*args, token=BOSS, **more))
    for path in ("/stats", "/metrics", "/queues", "/queues/held", "/healthz", "/readyz"):
        answer = await core("GET", path, token=OUT)
        assert answer.status == 200, path
        assert not [word for word in words.values() if word.encode() in answer.body], path
    for path in ("/jobs", f"/jobs/{words['RUNNING']}", "/events", "/workers", "/schedules", "/pools"):
        assert (await core("GET", path, token=OUT)).problem == "forbidden"
    await api.aclose()
