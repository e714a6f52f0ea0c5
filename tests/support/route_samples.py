"""Requests to the core of the API, and one sample of each route, for the tests that go through the route
table."""

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from sublet_functions.api.dispatch import Api
from sublet_functions.api.route import Route
from sublet_functions.http.request import Request
from tests.support.http_server import Answer

Ask = Callable[..., Awaitable[Answer]]
"""`await asked(method, path, body, token=…, **headers)`; a body that is not bytes is sent as JSON."""


def asker(api: Api) -> Ask:
    """Send requests to a core."""

    async def asked(method: str, path: str, body: Any = None, *, token: str = "", **headers: str) -> Answer:
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"host": "localhost"} | {name.replace("_", "-"): value for name, value in headers.items()}
        sent |= {"authorization": f"Bearer {token}"} if token else {}
        sent |= (
            {"content-type": "application/json"} if body is not None and "content-type" not in sent else {}
        )
        place, _, query = path.partition("?")
        reply = await api.answer(Request(method, place, query, sent, data))
        assert isinstance(reply.body, bytes)
        return Answer(
            reply.status, {name.lower(): value for name, value in reply.headers.items()}, reply.body
        )

    return asked


@dataclass(frozen=True)
class Sample:
    """A request to a route, with words in capitals for objects that must exist first; and its statuses when
    sent twice.
    """

    path: str
    body: Any = None
    first: int = 200
    second: int = 200


HELD = {"token": "TOKEN"}
BATCH = {"jobs": [{"id": "RUNNING", "token": "TOKEN"}]}
CLAIM_ID = "a-claim-of-the-tests-0001"
SAMPLES: dict[tuple[str, str], Sample] = {
    ("POST", "/jobs"): Sample("/jobs", {"task": "t", "id": "mine"}, 201),
    ("POST", "/jobs/batch"): Sample("/jobs/batch", {"jobs": [{"task": "t", "id": "mine"}]}),
    ("GET", "/jobs"): Sample("/jobs?limit=5"),
    ("GET", "/jobs/{id}"): Sample("/jobs/RUNNING"),
    ("POST", "/jobs/claim"): Sample("/jobs/claim", {"queues": ["ready"], "claim_id": CLAIM_ID}),
    ("GET", "/jobs/next"): Sample(f"/jobs/next?queue=ready&claim_id={CLAIM_ID}"),
    ("POST", "/jobs/{id}/heartbeat"): Sample("/jobs/RUNNING/heartbeat", HELD | {"progress": 1}),
    ("POST", "/jobs/{id}/complete"): Sample("/jobs/RUNNING/complete", HELD | {"result": 1}),
    ("POST", "/jobs/{id}/fail"): Sample("/jobs/RUNNING/fail", HELD),
    ("POST", "/jobs/{id}/release"): Sample("/jobs/RUNNING/release", HELD),
    ("POST", "/jobs/{id}/note"): Sample("/jobs/RUNNING/note", HELD | {"checkpoint": 1}),
    ("POST", "/jobs/{id}/emit"): Sample("/jobs/RUNNING/emit", HELD | {"before": 0, "chunks": ["Hel", "lo"]}),
    ("GET", "/jobs/{id}/stream"): Sample("/jobs/RUNNING/stream"),
    ("POST", "/jobs/{id}/proceed"): Sample(
        "/jobs/RUNNING/proceed",
        HELD | {"result": 1, "workflow": "0-flow", "jobs": [{"task": "t", "id": "0-part"}]},
    ),
    ("POST", "/jobs/{id}/call"): Sample("/jobs/RUNNING/call", HELD | {"step": "label", "job": {"task": "t"}}),
    ("POST", "/jobs/{id}/upstream"): Sample("/jobs/RUNNING/upstream", HELD),
    ("POST", "/jobs/{id}/step"): Sample("/jobs/RUNNING/step", HELD | {"steps": {"paid": 1}}),
    ("POST", "/jobs/{id}/suspend"): Sample("/jobs/RUNNING/suspend", HELD | {"kind": "signal", "name": "go"}),
    ("POST", "/jobs/suspend"): Sample(
        "/jobs/suspend",
        {"jobs": [{"id": "RUNNING", "token": "TOKEN", "kind": "sleep", "name": "nap", "delay": 60}]},
    ),
    ("POST", "/jobs/{id}/signal"): Sample("/jobs/SCHEDULED/signal", {"name": "go", "value": True}),
    ("GET", "/jobs/{id}/upstream"): Sample("/jobs/RUNNING/upstream"),
    ("POST", "/workflows"): Sample(
        "/workflows", {"id": "mine", "jobs": [{"name": "a", "task": "t"}, {"task": "t", "after": ["a"]}]}, 201
    ),
    ("GET", "/workflows/{id}"): Sample("/workflows/FLOW"),
    ("POST", "/workflows/{id}/cancel"): Sample("/workflows/FLOW/cancel"),
    ("POST", "/workflows/{id}/retry"): Sample("/workflows/FLOW/retry"),
    ("POST", "/jobs/heartbeat"): Sample("/jobs/heartbeat", BATCH),
    ("POST", "/jobs/complete"): Sample("/jobs/complete", BATCH),
    ("POST", "/jobs/fail"): Sample("/jobs/fail", BATCH),
    ("POST", "/jobs/release"): Sample("/jobs/release", BATCH),
    ("POST", "/jobs/note"): Sample("/jobs/note", BATCH),
    ("POST", "/jobs/{id}/cancel"): Sample("/jobs/SCHEDULED/cancel", {"revision": 0}),
    ("POST", "/jobs/{id}/retry"): Sample("/jobs/CANCELLED/retry", {"revision": 1}),
    ("POST", "/jobs/{id}/promote"): Sample("/jobs/SCHEDULED/promote", {"revision": 0}),
    ("POST", "/jobs/{id}/reschedule"): Sample(
        "/jobs/SCHEDULED/reschedule", {"revision": 0, "delay": 5, "priority": 7}
    ),
    ("POST", "/jobs/{id}/erase"): Sample("/jobs/CANCELLED/erase", {"revision": 1}, 200, 404),
    ("POST", "/jobs/retry"): Sample("/jobs/retry", {"filter": {"task": "t"}}),
    ("POST", "/jobs/cancel"): Sample("/jobs/cancel", {"filter": {"task": "t"}}),
    ("POST", "/jobs/promote"): Sample("/jobs/promote", {"filter": {"task": "t"}}),
    ("POST", "/jobs/erase"): Sample("/jobs/erase", {"filter": {"task": "t"}}),
    ("GET", "/queues"): Sample("/queues"),
    ("GET", "/queues/{queue}"): Sample("/queues/ready"),
    ("PATCH", "/queues/{queue}"): Sample("/queues/ready", {"paused": True, "limits": {"jobs": 5}}),
    ("GET", "/queues/{queue}/groups"): Sample("/queues/ready/groups"),
    ("PUT", "/queues/{queue}/groups/{group}"): Sample(
        "/queues/ready/groups/acme", {"concurrency": 5, "share": 3}
    ),
    ("DELETE", "/queues/{queue}/groups/{group}"): Sample("/queues/ready/groups/acme", None, 204, 204),
    ("GET", "/schedules"): Sample("/schedules"),
    ("GET", "/schedules/{schedule}"): Sample("/schedules/yearly"),
    ("PUT", "/schedules/{schedule}"): Sample("/schedules/fresh", {"task": "t", "cron": "0 0 1 1 *"}, 201),
    ("DELETE", "/schedules/{schedule}"): Sample("/schedules/yearly", None, 204, 204),
    ("POST", "/schedules/{schedule}/pause"): Sample("/schedules/yearly/pause"),
    ("POST", "/schedules/{schedule}/resume"): Sample("/schedules/yearly/resume"),
    ("POST", "/schedules/{schedule}/run"): Sample("/schedules/yearly/run", {"id": "mine"}, 201),
    ("GET", "/tasks"): Sample("/tasks?limit=5"),
    ("GET", "/tasks/{name}"): Sample("/tasks/resize"),
    ("PUT", "/tasks"): Sample("/tasks", {"tasks": [{"name": "t", "arguments": {"type": "object"}}]}),
    ("GET", "/workers"): Sample("/workers"),
    ("PUT", "/workers/{name}"): Sample("/workers/mill", {"life": "1"}),
    ("DELETE", "/workers/{name}"): Sample("/workers/mill?life=1", None, 204, 204),
    ("POST", "/workers/{name}/reconcile"): Sample("/workers/mill/reconcile", {"life": "1"}),
    ("POST", "/workers/{name}/retire"): Sample("/workers/mill/retire", {"life": "1", "pool": "images"}),
    ("GET", "/pools"): Sample("/pools"),
    ("GET", "/pools/{name}"): Sample("/pools/images"),
    ("PUT", "/pools/{name}"): Sample("/pools/mail", {"queues": ["mail"], "max": 3}, 201),
    ("DELETE", "/pools/{name}"): Sample("/pools/images", None, 204, 204),
    ("POST", "/workers/{name}/drain"): Sample("/workers/mill/drain", None, 202, 202),
    ("POST", "/events"): Sample("/events", {"sublet": "tick"}),
    ("POST", "/tick"): Sample("/tick"),
    ("GET", "/tick"): Sample("/tick"),
    ("POST", "/work"): Sample("/work", {"queues": ["ready"]}, 404, 404),
    ("GET", "/audit"): Sample("/audit"),
    ("GET", "/stats"): Sample("/stats"),
    ("GET", "/history"): Sample("/history?span=day"),
    ("GET", "/server"): Sample("/server"),
    ("GET", "/metrics"): Sample("/metrics"),
    ("GET", "/whoami"): Sample("/whoami"),
    ("GET", "/events"): Sample("/events?after=0"),
    ("GET", "/"): Sample("/"),
    ("GET", "/ui"): Sample("/ui?state=dead"),
    ("GET", "/ui/static/{file}"): Sample("/ui/static/main.js"),
    ("GET", "/healthz"): Sample("/healthz"),
    ("GET", "/readyz"): Sample("/readyz"),
    ("GET", "/openapi.json"): Sample("/openapi.json"),
}


def sample(route: Route[Any, Any]) -> Sample:
    """The sample of a route; a route without one fails its tests."""
    return SAMPLES[route.method, route.path]


def named(route: Route[Any, Any]) -> str:
    """A route's name, as the id of a test."""
    return f"{route.method} {route.path}"


def filled(value: Any, words: dict[str, str]) -> Any:
    """A sample's path or body, with its words in capitals replaced."""
    if isinstance(value, dict):
        return {name: filled(one, words) for name, one in value.items()}
    if isinstance(value, list):
        return [filled(one, words) for one in value]
    return re.sub(r"\b[A-Z]{4,}\b", lambda word: words[word[0]], value) if isinstance(value, str) else value


async def prepared(asked: Ask) -> dict[str, str]:
    """The values of the samples' words, in a namespace where all of it exists."""

    async def new(**options: Any) -> str:
        return str((await asked("POST", "/jobs", {"task": "t", **options})).json()["id"])

    running, scheduled, cancelled = await new(queue="held"), await new(delay=60), await new()
    for queue in ("ready", "ready"):
        await new(queue=queue)
    (lease,) = (await asked("POST", "/jobs/claim", {"queues": ["held"], "worker": "mill"})).json()["jobs"]
    assert lease["id"] == running
    await asked("POST", f"/jobs/{cancelled}/cancel")
    await asked("PUT", "/pools/images", {"queues": ["images"], "min": 1})
    await asked("PUT", "/tasks", {"tasks": [{"name": "resize"}, {"name": "t"}]})
    await asked("PUT", "/workers/mill", {"life": "1", "pool": "images"})
    await asked("PUT", "/schedules/yearly", {"task": "t", "cron": "0 0 1 1 *", "tz": "Europe/Berlin"})
    jobs = [
        {"name": "a", "task": "t", "queue": "held", "delay": 60},
        {"task": "t", "queue": "held", "after": ["a"]},
    ]
    flow = (await asked("POST", "/workflows", {"jobs": jobs})).json()["id"]
    return {
        "RUNNING": running,
        "TOKEN": lease["token"],
        "SCHEDULED": scheduled,
        "CANCELLED": cancelled,
        "FLOW": flow,
    }


NOWHERE = {"RUNNING": "0-no", "TOKEN": "1.no", "SCHEDULED": "0-no", "CANCELLED": "0-no", "FLOW": "0-no"}
"""The values where nothing exists."""
