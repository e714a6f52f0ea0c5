"""`POST /events`: events of platforms that are not HTTP requests, and their actions."""

import json

import pytest

from sublet import App
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.handlers.triggers import FUNCTION, PASS_THROUGH, PLATFORM
from sublet_functions.handlers.worker_host import WorkerHost
from sublet_functions.http.auth import Tokens
from sublet_functions.http.request import Request
from tests.support.http_server import ask, serving

pytest_plugins = ["tests.support.http_settings"]

TICK, WORK = "the-secret-of-the-tick", "the-secret-of-the-fleet"
RULE = {
    "version": "0",
    "id": "a",
    "source": "aws.events",
    "detail-type": "Scheduled Event",
    "detail": {},
    "resources": [],
}
CALL = {"pool": "", "queues": ["q"], "slots": 2, "linger": 0.0, "summons": ""}


@pytest.fixture
async def app(settings):
    app = App(settings=settings)

    @app.task(queue="q")
    async def double(n: int) -> int:
        return n * 2

    yield app
    await app.client.aclose()


@pytest.fixture
async def url(settings, app):
    worker_host = WorkerHost(app, seconds=20)
    async with serving(
        settings, tokens=f"cron:tick:{TICK} fleet:work:{WORK}", worker_host=worker_host
    ) as url:
        yield url


@pytest.mark.parametrize(
    "event", [{"sublet": "tick"}, RULE, RULE | {"source": "aws.scheduler"}], ids=["ours", "rule", "scheduler"]
)
async def test_a_scheduled_event_is_a_tick(url, event):
    answer = await ask(url, "POST", "/events", event, token=TICK)
    assert (answer.status, answer.json()["rounds"]) == (200, 1)


async def test_a_tick_runs_for_the_duration_of_its_event(url):
    answer = await ask(url, "POST", "/events", {"sublet": "tick", "for": 0.25, "every": 0.1}, token=TICK)
    assert answer.json()["rounds"] == 3


@pytest.mark.parametrize(
    "event",
    [CALL, {"sublet": "work", "queues": ["q"]}, {"sublet": "work", "for": 5}],
    ids=["call", "ours", "short"],
)
async def test_a_work_event_runs_a_worker(app, url, event):
    handle = await app.tasks["double"].submit(21)
    done = await ask(url, "POST", "/events", event, token=WORK)
    assert (done.status, done.json()["completed"], await handle.result(timeout=5)) == (200, 1, 42)


@pytest.mark.parametrize(
    ("event", "token", "role"), [({"sublet": "tick"}, WORK, "tick"), (CALL, TICK, "work")]
)
async def test_an_event_needs_the_role_of_its_action(url, event, token, role):
    answer = await ask(url, "POST", "/events", event, token=token)
    assert (answer.status, answer.problem) == (403, "forbidden")
    assert f"use one with role {role} or admin" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({}, "its keys are none; supported are"),
        ({"Records": [{"s3": "SECRET"}]}, "its keys are 'Records'; supported are"),
        (
            {"source": "aws.s3", "detail-type": "Object Created", "detail": "SECRET"},
            "source='aws.s3', detail-type='Object Created';",
        ),
        ({"sublet": "dance"}, "sublet='dance';"),
        (
            {"httpMethod": "GET", "path": "/SECRET"},
            "(of a REST API with payload 1.0, or of a load balancer: use an HTTP API",
        ),
        ({str(n): "SECRET" for n in range(20)}, "and 8 more;"),
        ({"sublet": "tick", "for": 99}, "body.for"),
        ({"sublet": "tick", "fro": 9}, "body.fro"),
        ({"sublet": "work", "slots": 0}, "body.slots"),
        ({"sublet": "work", "for": 0}, "body.for"),
        ({"sublet": "work", "for": "SECRET"}, "body.for"),
        ({"sublet": ["tick"]}, "its keys are 'sublet';"),
        ({"pool": "p"}, "its keys are 'pool';"),
        (
            {"source": ["aws.events"], "detail-type": "x"},
            "its keys are 'source', 'detail-type', detail-type='x';",
        ),
    ],
    ids=lambda value: json.dumps(value)[:30] if isinstance(value, dict) else "",
)
async def test_an_unsupported_event_is_reported_by_its_keys_without_values(settings, event, words):
    api, body = Api(Store(settings), Tokens(f"cron:tick:{TICK}")), json.dumps(event).encode()
    reply = await api.answer(
        Request("POST", "/events", headers={"content-type": "application/json"}, body=body), PLATFORM
    )
    await api.aclose()
    assert reply.status == 422
    detail = json.loads(reply.body)["detail"]
    assert words in detail
    assert "SECRET" not in detail


@pytest.mark.parametrize("body", [b"[]", b'"tick"', b"null", b"{", b""])
async def test_an_event_that_is_not_an_object_is_refused(url, body):
    answer = await ask(url, "POST", "/events", body, token=TICK, content_type="application/json")
    assert answer.problem in ("invalid", "not-json")


async def test_an_event_passed_through_by_the_lambda_web_adapter_needs_no_token(url, monkeypatch):
    """The adapter sets the header itself and overrides the caller's: `null` without an HTTP request."""
    http = {"x_amzn_request_context": '{"http":{"method":"POST"}}'}
    assert (await ask(url, "POST", "/events", RULE, x_amzn_request_context="null")).problem == "unauthorized"
    monkeypatch.setenv(PASS_THROUGH, "/events")
    assert (
        await ask(url, "POST", "/events", RULE, x_amzn_request_context="null")
    ).problem == "unauthorized", "this process is not a Lambda function"
    monkeypatch.setenv(FUNCTION, "tick")
    assert (await ask(url, "POST", "/events", RULE, x_amzn_request_context="null")).status == 200
    assert (await ask(url, "POST", "/events", RULE, **http)).problem == "unauthorized"
    assert (await ask(url, "POST", "/events", RULE)).problem == "unauthorized"
    assert (await ask(url, "POST", "/tick", x_amzn_request_context="null")).problem == "unauthorized"
    monkeypatch.setenv(PASS_THROUGH, "/elsewhere")
    assert (await ask(url, "POST", "/events", RULE, x_amzn_request_context="null")).problem == "unauthorized"
