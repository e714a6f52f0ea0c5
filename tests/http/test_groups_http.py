"""Groups over HTTP: fields of jobs, limits of queues, groups, and the reason why a job waits."""

import pytest

from sublet import App
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from tests.support.route_samples import asker

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]


async def ok(core, *request, status=200):
    answer = await core(*request)
    assert answer.status == status, answer.body
    return answer.json() if answer.body else None


async def test_a_job_has_a_group_a_cost_and_the_reason_why_it_waits(core):
    await ok(core, "PATCH", "/queues/llm", {"limits": {"group_concurrency": 1, "rate": 60, "per": 60}})
    for name in ("a", "b"):
        job = {"task": "ask", "queue": "llm", "group": "acme", "cost": 3, "id": name}
        await ok(core, "POST", "/jobs", job, status=201)
    lease = (await ok(core, "POST", "/jobs/claim", {"queues": ["llm"], "worker": "w"}))["jobs"][0]
    found = await ok(core, "GET", "/jobs/0-b")
    assert (found["group"], found["cost"], found["waits_for"]) == ("acme", 3, "group acme: 1 of 1 running")
    held = {"token": lease["token"], "cost": 9}
    assert (await ok(core, "POST", f"/jobs/{lease['id']}/note", held))["state"] == "running"


async def test_groups_are_listed_set_and_reset(core):
    await ok(core, "PATCH", "/queues/llm", {"limits": {"group_concurrency": 2}})
    await ok(core, "POST", "/jobs", {"task": "ask", "queue": "llm", "group": "acme"}, status=201)
    stored = await ok(
        core, "PUT", "/queues/llm/groups/acme", {"concurrency": 50, "share": 3, "rate": 5, "per": 0.5}
    )
    assert stored == {"settings": "concurrency=50 rate=5 per=500 share=3"}
    (group,) = (await ok(core, "GET", "/queues/llm/groups"))["groups"]
    assert (group["name"], group["waiting"], group["share"]) == ("acme", 1, 3)
    assert group["limits"] == {"concurrency": 50, "rate": 5, "per": 0.5}
    assert (await ok(core, "GET", "/queues/llm/groups?group=acme"))["groups"] == [group]
    assert len((await ok(core, "GET", "/jobs?group=acme"))["jobs"]) == 1
    assert (await ok(core, "GET", "/jobs?group=other"))["jobs"] == []
    await ok(core, "DELETE", "/queues/llm/groups/acme", status=204)
    (group,) = (await ok(core, "GET", "/queues/llm/groups?limit=5"))["groups"]
    assert (group["share"], group["limits"], group["own"]) == (1, {"concurrency": 2}, [])


async def test_autoscalers_count_only_jobs_that_may_start(core):
    """100 jobs of one group that is limited to 5 are 5 ready ones, and none while 5 run."""
    await ok(core, "PATCH", "/queues/llm", {"limits": {"group_concurrency": 5}})
    for _ in range(30):
        await ok(core, "POST", "/jobs", {"task": "ask", "queue": "llm", "group": "acme"}, status=201)
    found = await ok(core, "GET", "/stats?queue=llm")
    assert (found["queued"], found["ready"]) == (30, 5)
    text = (await core("GET", "/metrics")).body.decode()
    assert 'sublet_jobs_held{queue="llm"} 25.0' in text
    await ok(core, "POST", "/jobs/claim", {"queues": ["llm"], "worker": "w", "n": 30})
    assert (await ok(core, "GET", "/stats?queue=llm"))["ready"] == 0
    await ok(core, "PATCH", "/queues/llm", {"limits": {"concurrency": 7, "group_concurrency": 20}})
    assert (await ok(core, "GET", "/stats?queue=llm"))["ready"] == 2
    await ok(core, "PATCH", "/queues/llm", {"limits": {"concurrency": None, "rate": 1, "per": 60}})
    assert (await ok(core, "GET", "/stats?queue=llm"))["ready"] == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        (
            "PATCH",
            "/queues/llm",
            {"limits": {"concurrency": 0}},
            "concurrency=0: use 1 or more; to start no jobs, pause",
        ),
        ("PATCH", "/queues/llm", {"limits": {"rate": 60}}, "rate=60: say for how many ms"),
        ("PUT", "/queues/llm/groups/acme", {"share": 101}, "use 100 or less"),
        ("PUT", "/queues/llm/groups/acme", {"burst": 5}, "burst=5: it belongs to a rate"),
        ("POST", "/jobs", {"task": "t", "group": "a b"}, "group"),
        ("POST", "/jobs", {"task": "t", "cost": 0}, "cost"),
        ("GET", "/queues/llm/groups?limit=0", None, "limit"),
        ("GET", "/queues/llm/groups?group=a%20b", None, "group"),
        ("GET", "/jobs?group=a%20b", None, "group"),
    ],
)
async def test_bad_input_names_the_field_and_the_rule(core, method, path, body, words):
    answer = await core(method, path, body)
    assert answer.status == 422
    assert words in answer.body.decode()


async def test_a_server_with_the_app_computes_the_group_of_each_job(settings):
    app = App()

    @app.task(queue="llm", group=lambda tenant: tenant, cost=lambda prompt: len(prompt))
    async def ask(prompt: str, tenant: str) -> None: ...

    api = Api(Store(settings), Tokens(), app=app)
    core = asker(api)
    job = {"task": "ask", "payload": {"prompt": "hello", "tenant": "acme"}}
    made = await ok(core, "POST", "/jobs", job, status=201)
    found = await ok(core, "GET", f"/jobs/{made['id']}")
    assert (found["queue"], found["group"], found["cost"]) == ("llm", "acme", 5)
    made = await ok(core, "POST", "/jobs", {**job, "group": "other"}, status=201)
    assert (await ok(core, "GET", f"/jobs/{made['id']}"))["group"] == "other"
    await api.aclose()
