"""A server that knows the tasks checks jobs, and uses the tasks' own options: from its app, or from the catalogue."""

import json
import time
from typing import Annotated

import pytest
from pydantic import BaseModel, Field

from sublet import App, Backoff, Context
from sublet.app import builtin
from sublet.connection.settings import Settings
from sublet.errors import Invalid
from sublet.model import State
from sublet.options import Options
from sublet.protocol import keys
from sublet.protocol.scripts import Call
from sublet.store import http_codec
from sublet.store.store import Store
from sublet.tasks import catalogue
from sublet.tasks.catalogue import TaskOptions
from sublet_functions.adapters.hosted import Hosted
from sublet_functions.api.dispatch import Api
from sublet_functions.handlers import known_tasks
from sublet_functions.handlers.known_tasks import KnownTasks
from sublet_functions.http.auth import Tokens
from sublet_functions.schemas.requests import OwnOptions
from tests.support.route_samples import asker

pytest_plugins = ["tests.support.http_settings"]

SUBMIT, ADMIN = "the-secret-of-submit-0123456789", "the-secret-of-admin-0123456789"
TOKENS = f"web:submit:{SUBMIT} boss:admin:{ADMIN}"

app = App()


class Item(BaseModel):
    sku: str
    count: int = 1


@app.task(
    queue="images", timeout=30, max_attempts=5, backoff=Backoff(2, 2, 60), retention=7200, priority=7, tags=("image",), keep_payload=True,
)  # fmt: skip
async def resize(ctx: Context, path: str, width: Annotated[int, Field(ge=1)] = 100) -> dict[str, int]:
    """Resize an image.

    And store it.
    """
    return {"width": width}


@app.task
def pack(items: list[Item], note: str | None = None) -> None:
    """Pack items."""


@app.task
def reverse(data: bytes) -> bytes:
    """Reverse bytes."""
    return data[::-1]


@pytest.fixture
async def store(settings):
    store = Store(settings)
    yield store
    await store.aclose()


@pytest.fixture
def of_app(store):
    """Asks a server that has the app."""
    return asker(Api(store, Tokens(TOKENS), app=app))


@pytest.fixture
async def published(store):
    """The catalogue, as a worker of the app has published it."""
    found = [catalogue.description(catalogue.describe(name, task)) for name, task in app.tasks.items()]
    await store.publish(found, starting=True)


def of_catalogue(store, policy=""):
    """Asks a server that has no app."""
    return asker(Api(store, Tokens(TOKENS), check_tasks=policy))


@pytest.fixture(params=["app", "catalogue"])
async def strict(request, store, published):
    """Asks a server that refuses jobs that do not fit."""
    known = {"app": app} if request.param == "app" else {"check_tasks": "refuse"}
    return asker(Api(store, Tokens(TOKENS), **known))


def pointers(answer):
    return [error["pointer"] for error in answer.json()["errors"]]


async def submitted(asked, store, **body):
    answer = await asked("POST", "/jobs", body, token=SUBMIT)
    assert answer.status == 201, answer.body
    return await store.follow(store.operations.get(answer.json()["id"])), answer.json()


RESIZE = {"task": "resize", "payload": {"path": "a.png"}}


async def test_an_unknown_task_is_refused_with_a_near_name(strict, store):
    answer = await strict("POST", "/jobs", {"task": "resise"}, token=SUBMIT)
    assert (answer.status, answer.problem, pointers(answer)) == (422, "unknown-task", ["#/task"])
    assert "'resise'" in answer.json()["detail"]
    assert "did you mean resize?" in answer.json()["detail"]
    assert (await store.follow(store.operations.list_jobs())).jobs == ()


@pytest.mark.parametrize(
    ("task", "payload", "where"),
    [
        ("resize", {}, ["#/payload/path"]),
        ("resize", {"path": 7}, ["#/payload/path"]),
        ("resize", {"path": "a", "width": 0}, ["#/payload/width"]),
        ("resize", {"path": "a", "a/b ~": 1}, ["#/payload/a~1b%20~0"]),
        ("pack", {"items": [{"sku": "a"}, {"count": 2}]}, ["#/payload/items/1/sku"]),
        ("pack", {"items": [], "note": [1]}, ["#/payload/note"]),
        ("pack", {"items": [{"sku": 1, "count": "x"}]}, ["#/payload/items/0/count", "#/payload/items/0/sku"]),
        ("reverse", {"data": "not base64!"}, ["#/payload/data"]),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_with_pointers(strict, task, payload, where):
    answer = await strict("POST", "/jobs", {"task": task, "payload": payload}, token=SUBMIT)
    assert (answer.status, answer.problem) == (422, "invalid")
    assert sorted(pointers(answer)) == where
    assert f"task {task}" in answer.json()["detail"]


async def test_a_job_that_follows_or_is_called_is_named_with_its_place(strict):
    wrong = {"task": "resize", "payload": {"path": 7}}
    lease = {"token": "1.a"}
    for path, body, where in (
        ("call", {"step": "s", "job": wrong}, "#/job/payload/path"),
        ("proceed", {"workflow": "0-w", "jobs": [RESIZE, wrong]}, "#/jobs/1/payload/path"),
        ("proceed", {"workflow": "0-w", "jobs": [RESIZE], "callback": wrong}, "#/callback/payload/path"),
    ):
        answer = await strict("POST", f"/jobs/0-a/{path}", lease | body, token=ADMIN)
        assert (answer.status, pointers(answer)) == (422, [where]), answer.body


async def test_a_batch_names_the_job_that_does_not_fit(strict, store):
    jobs = [RESIZE, {"task": "resize", "payload": {"path": "b", "width": -1}}]
    answer = await strict("POST", "/jobs/batch", {"jobs": jobs}, token=SUBMIT)
    assert (answer.status, pointers(answer)) == (422, ["#/jobs/1/payload/width"])
    assert (await store.follow(store.operations.list_jobs())).jobs == ()


@pytest.mark.parametrize("policy", ["app", "warn", "refuse"])
async def test_a_job_gets_the_options_of_its_task(policy, store, published, of_app):
    asked = of_app if policy == "app" else of_catalogue(store, policy)
    job, _ = await submitted(asked, store, **RESIZE)
    assert (job.queue, job.max_attempts, job.priority) == ("images", 5, 7)
    header = (await store.run(_spec(store, job.id))).decode()
    assert header.endswith(
        "priority=7 tries=5 timeout=30000 retention=7200000 backoff=2000:2:60000 tags=image keep=1"
    )


def _spec(store, job_id):
    base = store.operations.base_of_job(job_id)
    return Call((("HGET", keys.job(base, job_id), "spec"),), lambda spec: spec.partition(b"\n")[0])


def test_the_catalogue_has_all_options_that_a_task_may_have():
    """Retried and discarded exceptions are not among them: only the worker has their classes."""
    named = set(Options.__slots__) - {"run_at"}
    assert TaskOptions.model_fields.keys() == OwnOptions.model_fields.keys() == named
    assert http_codec.DEFAULTS.keys() == named - {"queue", "durability"}, "the submission has these by itself"
    own = dict(key="k", window=5, tags=("a",), keep_payload=True, timeout=None, durability="none", delay=2)
    declaring = App()
    declaring.task(name="t", **own)(pack.function)
    assert catalogue.describe("t", declaring.tasks["t"]).options.options() == Options(**own)


async def test_options_of_the_request_go_before_those_of_the_task(strict, store):
    job, _ = await submitted(
        strict, store, **RESIZE, queue="other", max_attempts=2, timeout=10, priority=0, backoff=5, delay=60
    )
    assert (job.queue, job.max_attempts, job.priority, job.state) == ("other", 2, 0, State.SCHEDULED)
    header = (await store.run(_spec(store, job.id))).decode()
    assert header.endswith(
        "delay=60000 tries=2 timeout=10000 retention=7200000 backoff=5000:1:5000 tags=image keep=1"
    )


async def test_a_time_replaces_the_delay_of_a_task(store):
    own = App()
    own.task(delay=3600)(resize.function)
    asked = asker(Api(store, Tokens(TOKENS), app=own))
    body = {**RESIZE, "run_at": "2031-01-01T00:00:00Z"}
    assert (await asked("POST", "/jobs", body, token=SUBMIT)).status == 201


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"max_attempts": 6}, ["#/max_attempts"]),
        ({"timeout": 31}, ["#/timeout"]),
        ({"timeout": None}, ["#/timeout"]),
        ({"backoff": 0}, ["#/backoff"]),
        ({"backoff": {"first": 5, "cap": 1}}, ["#/backoff"]),
        ({"max_attempts": 6, "timeout": 31, "backoff": 1.9}, ["#/max_attempts", "#/timeout", "#/backoff"]),
    ],
)
async def test_a_submitter_cannot_exceed_the_tasks_own_limits(strict, more, where):
    answer = await strict("POST", "/jobs", {**RESIZE, **more}, token=SUBMIT)
    assert (answer.status, answer.problem, pointers(answer)) == (422, "invalid", where)
    assert (await strict("POST", "/jobs", {**RESIZE, **more}, token=ADMIN)).status == 201


async def test_a_submitter_may_ask_for_less_than_the_task_allows(strict, store):
    await submitted(strict, store, **RESIZE, max_attempts=5, timeout=30, backoff=2)


@pytest.mark.parametrize("policy", ["warn", "off"])
async def test_no_submitter_without_the_role_admin_can_loop_attempts_without_a_delay(store, policy):
    asked = of_catalogue(store, policy)
    for backoff in (0, {"first": 1, "cap": 0}, {"first": 0.9}):
        body = {"task": "t", "max_attempts": 101, "backoff": backoff}
        answer = await asked("POST", "/jobs", body, token=SUBMIT)
        assert (answer.status, pointers(answer)) == (422, ["#/max_attempts"]), backoff
        assert (await asked("POST", "/jobs", body, token=ADMIN)).status == 201
        assert (await asked("POST", "/jobs", body | {"max_attempts": 100}, token=SUBMIT)).status == 201
    assert (await asked("POST", "/jobs", {"task": "t", "max_attempts": 101}, token=SUBMIT)).status == 201


async def test_a_server_without_an_app_warns_by_default(store, published):
    asked = of_catalogue(store)
    _, fits = await submitted(asked, store, **RESIZE)
    assert "warning" not in fits
    _, unknown = await submitted(asked, store, task="resise")
    assert unknown["warning"] == "task 'resise': no worker has published it, did you mean resize?"
    _, unfit = await submitted(asked, store, task="resize", payload={"path": 1, "width": 0})
    assert unfit["warning"] == "task resize: payload.path: use string, not integer, and 1 more"
    jobs = [RESIZE, {"task": "resise"}]
    answer = await asked("POST", "/jobs/batch", {"jobs": jobs}, token=SUBMIT)
    assert ["warning" in item for item in answer.json()["jobs"]] == [False, True]


async def test_a_strict_request_is_refused_where_others_are_warned(store, published):
    asked = of_catalogue(store)
    body = {"task": "resize", "payload": {"path": 1, "width": 0}}
    answer = await asked("POST", "/jobs", body, token=SUBMIT, prefer="handling=strict")
    assert (answer.status, pointers(answer)) == (422, ["#/payload/path", "#/payload/width"])
    unknown = await asked("POST", "/jobs", {"task": "resise"}, token=SUBMIT, prefer="handling=strict")
    assert unknown.status == 201, "workers in other languages need not publish their tasks"


async def test_an_empty_catalogue_refuses_and_warns_of_nothing(store):
    for policy in ("refuse", "warn"):
        _, answer = await submitted(of_catalogue(store, policy), store, task="anything")
        assert answer.keys() == {"id"}


async def test_a_server_that_checks_nothing_uses_no_options(store, published):
    for asked in (of_catalogue(store, "off"), asker(Api(store, Tokens(TOKENS), app=app, check_tasks="off"))):
        job, answer = await submitted(asked, store, task="resize", payload={"path": 1})
        assert (job.queue, job.max_attempts, answer.keys()) == ("default", 3, {"id"})


async def test_a_server_with_an_app_knows_the_tasks_of_other_workers(store, of_app):
    other = App()
    other.task(queue="mail", name="mail")(pack.function)
    found = [catalogue.description(catalogue.describe(name, task)) for name, task in other.tasks.items()]
    await store.publish(found, starting=True)
    job, _ = await submitted(of_app, store, task="mail", payload={"items": []})
    assert job.queue == "mail"


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        ({}, "#/payload"),
        ({"argv": []}, "#/payload/argv"),
        ({"argv": [""]}, "#/payload/argv/0"),
        ({"shell": ""}, "#/payload/shell"),
        ({"argv": ["true"], "shell": "true"}, "#/payload"),
    ],
)
async def test_an_empty_command_is_refused(strict, store, payload, where):
    found = [catalogue.description(catalogue.describe(name, task)) for name, task in builtin(app).items()]
    await store.publish(found, starting=True)
    answer = await strict("POST", "/jobs", {"task": "command", "payload": payload}, token=SUBMIT)
    assert (answer.status, pointers(answer)) == (422, [where]), answer.body
    for fits in ({"argv": ["true"], "env": {}}, {"shell": "true", "argv": None}):
        await submitted(strict, store, task="command", payload=fits)


async def test_a_newly_published_task_is_known_within_a_second(store, published, monkeypatch):
    asked = of_catalogue(store, "refuse")
    assert (await asked("POST", "/jobs", {"task": "new"}, token=SUBMIT)).status == 422
    await store.publish([catalogue.description(catalogue.TaskInfo(name="new"))], starting=True)
    later = time.monotonic() + known_tasks.AGE_UNKNOWN
    monkeypatch.setattr(known_tasks.time, "monotonic", lambda: later)
    assert (await asked("POST", "/jobs", {"task": "new"}, token=SUBMIT)).status == 201


async def test_the_catalogue_is_not_read_for_each_job(store, published, monkeypatch):
    calls = []
    monkeypatch.setattr(
        catalogue, "revision", lambda base, own=catalogue.revision: calls.append(1) or own(base)
    )
    asked, begin = of_catalogue(store, "refuse"), time.monotonic()
    for _ in range(20):
        assert (await asked("POST", "/jobs", RESIZE, token=SUBMIT)).status == 201
        assert (await asked("POST", "/jobs", {"task": "unknown"}, token=SUBMIT)).status == 422
    assert len(calls) <= 2 + (time.monotonic() - begin) / known_tasks.AGE_UNKNOWN


async def test_a_server_with_an_app_does_not_read_the_catalogue_for_its_own_tasks(store, of_app, monkeypatch):
    monkeypatch.setattr(catalogue, "revision", None)
    await submitted(of_app, store, **RESIZE)


async def test_descriptions_that_another_program_wrote_are_passed_over(store, published):
    base = store.operations.bases[0]
    for name, text in (
        ("no-json", "0 {"),
        ("no-object", "0 []"),
        ("odd-options", '0 {"options": {"queue": "a b", "max_attempts": -1}}'),
        ("odd-schema", '0 {"arguments": {"$ref": "#", "type": 5}}'),
        ("odd-ref", '0 {"arguments": {"$ref": "https://127.0.0.1:1/x"}}'),
    ):
        await store.run(_write(base, name, text))
    await store.run(_changed(base))
    asked = of_catalogue(store, "refuse")
    for name, status in {
        "no-json": 422, "no-object": 422, "odd-options": 201, "odd-schema": 201, "odd-ref": 201,
    }.items():  # fmt: skip
        answer = await asked("POST", "/jobs", {"task": name}, token=SUBMIT)
        assert answer.status == status, (name, answer.body)
    assert (await asked("GET", "/tasks", token=SUBMIT)).status == 200


def _write(base, name, text):
    return Call((("HSET", keys.tasks(base), name, text),), int)


def _changed(base):
    return Call((("HINCRBY", base, "published", 1),), int)


# GET and PUT /tasks


async def test_tasks_are_listed_with_options_and_schemas(store, published):
    asked = of_catalogue(store)
    answer = await asked("GET", "/tasks", token=SUBMIT)
    pack_info, resize_info, reverse_info = answer.json()["tasks"]
    assert (pack_info["name"], pack_info["summary"]) == ("pack", "Pack items.")
    assert resize_info["summary"] == "Resize an image."
    assert resize_info["options"] == {
        "queue": "images", "priority": 7, "delay": 0.0, "max_attempts": 5, "timeout": 30.0, "stall": None, "retention": 7200.0,
        "backoff": {"first": 2.0, "factor": 2.0, "cap": 60.0}, "durability": None,
        "key": None, "window": None, "debounce": None, "at_most": None, "on_conflict": None, "tags": ["image"],
        "group": None, "cost": 1, "keep_payload": True,
    }  # fmt: skip
    assert resize_info["arguments"]["required"] == ["path"]
    assert resize_info["arguments"]["properties"]["width"]["default"] == 100
    assert resize_info["result"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert reverse_info["arguments"]["properties"]["data"]["contentEncoding"] == "base64"
    first = await asked("GET", "/tasks?limit=1", token=SUBMIT)
    assert [task["name"] for task in first.json()["tasks"]] == ["pack"]
    rest = await asked("GET", f"/tasks?limit=1&cursor={first.json()['cursor']}", token=SUBMIT)
    assert [task["name"] for task in rest.json()["tasks"]] == ["resize"]
    assert (await asked("GET", "/tasks/resize", token=SUBMIT)).json() == resize_info
    missing = await asked("GET", "/tasks/resise", token=SUBMIT)
    assert (missing.status, "did you mean resize?" in missing.json()["detail"]) == (404, True)


async def test_a_server_lists_the_tasks_of_its_app_without_a_worker(of_app, store, published):
    assert (await of_app("GET", "/tasks", token=SUBMIT)).json() == (
        await of_catalogue(store)("GET", "/tasks", token=SUBMIT)
    ).json()


async def test_options_of_a_listed_task_are_fields_of_a_job(store, published):
    """A form or a client may send them back."""
    asked = of_catalogue(store, "refuse")
    (info,) = [
        task
        for task in (await asked("GET", "/tasks", token=SUBMIT)).json()["tasks"]
        if task["name"] == "resize"
    ]
    answer = await asked("POST", "/jobs", {**RESIZE, **info["options"]}, token=SUBMIT)
    assert answer.status == 201, answer.body


async def test_a_worker_publishes_over_http_what_it_would_publish_to_redis(store, published):
    asked = asker(Api(store, Tokens()))
    before = await store.follow(catalogue.published(store.operations.bases[0]))
    body = {"tasks": [json.loads(info.model_dump_json()) for info in before.values()], "starting": True}
    answer = await asked("PUT", "/tasks", body)
    assert (answer.status, answer.json()) == (200, {"written": 0, "kept": 3, "full": 0})


async def test_a_platforms_adapter_checks_jobs_with_its_app(settings, monkeypatch):
    monkeypatch.setenv("SUBLET_APP", "tests.support.tasks:app")
    monkeypatch.setenv("SUBLET_TOKENS", TOKENS)
    monkeypatch.setenv("SUBLET_REDIS_URL", settings.redis_url)
    hosted = Hosted()
    answer = await asker(hosted)("POST", "/jobs", {"task": "ad", "payload": {}}, token=SUBMIT)
    assert (answer.status, answer.problem) == (422, "unknown-task")
    await hosted.aclose()


async def test_without_redis_a_job_is_answered_503_and_the_catalogue_is_not_asked_again(monkeypatch):
    store = Store(Settings(redis_url="redis://127.0.0.1:1", timeout=0.5))
    known, calls = KnownTasks(store), []
    monkeypatch.setattr(
        catalogue, "revision", lambda base, own=catalogue.revision: calls.append(1) or own(base)
    )
    for _ in range(3):
        await known.refresh(["t"])
        await known.refresh(["u"])
    assert calls == [1]
    assert known.unknown("t") == ""
    await store.aclose()


@pytest.mark.parametrize("word", ["yes", "Refuse", "strict"])
def test_an_unknown_policy_is_refused(word, monkeypatch):
    monkeypatch.setenv(known_tasks.SETTING, word)
    with pytest.raises(Invalid, match="use refuse, warn or off"):
        KnownTasks(None)
