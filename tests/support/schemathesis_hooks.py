"""Hooks and a check for schemathesis, loaded by its own process: facts about the API that its description
cannot express.

A schema describes one request. It cannot express that a cursor comes from the page before, a token from a
claim, or which settings a queue of this name has. Requests that are meant to be valid are made valid here;
the others are sent as drawn.
"""

import contextlib
import itertools
import os
from pathlib import Path
from typing import Any

import requests
import schemathesis

URL, TOKEN, SEEN = (os.environ.get(f"DRAWN_{name}", "") for name in ("URL", "TOKEN", "SEEN"))
WAIT = 0.02
"""The longest wait of a request here, in seconds; drawn values reach a minute."""
WAITS = {"wait": 20.0, "for": 55.0}
TARGETS = {"http": "https://example.com/work", "lambda": "resize"}
SETTLING = tuple(f"/jobs/{verb}" for verb in ("heartbeat", "complete", "fail", "release", "note", "suspend"))
EVERYWHERE = {
    *("cache-control", "connection", "content-length", "content-security-policy", "content-type", "date"),
    *("referrer-policy", "transfer-encoding", "x-content-type-options"),
}
"""Headers that need no description."""

numbers = itertools.count()


def ask(method: str, path: str, body: Any = None) -> Any:
    """Send a request that prepares another."""
    headers = {"Authorization": f"Bearer {TOKEN}"} if TOKEN else {}
    answer = requests.request(method, URL + path, json=body, headers=headers, timeout=10)
    answer.raise_for_status()
    return answer.json()


def new_job(**options: Any) -> str:
    """The id of a new job."""
    return str(ask("POST", "/jobs", {"task": "t", **options})["id"])


def taken() -> dict[str, str]:
    """A new job under a lease: its id, and the lease's token."""
    queue = f"taken-{next(numbers)}"
    new_job(queue=queue)
    (job,) = ask("POST", "/jobs/claim", {"queues": [queue]})["jobs"]
    return {"id": job["id"], "token": job["token"]}


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Make a drawn request valid, if it is meant to be valid."""
    body = case.body if isinstance(case.body, dict) else {}
    for values in (case.query or {}, body):
        for name, most in WAITS.items():
            with contextlib.suppress(TypeError, ValueError):
                if WAIT < float(values.get(name, 0)) <= most:
                    values[name] = WAIT if isinstance(values[name], float | int) else str(WAIT)
    if (
        not (case.meta and case.meta.generation.mode.is_positive)
        or case.method != case.operation.method.upper()
    ):
        return
    if case.query:
        case.query.pop("cursor", None)
        case.query.pop("after", None)
    body.pop("cursor", None)
    (body.get("filter") or {}).pop("state", None)  # an order takes some states only
    for values in (case.query or {}, body.get("filter") or {}):
        if "since" in values:
            values.pop("until", None)  # which must be later
    trim(case.operation.path, body)
    if case.headers:
        case.headers.pop("Last-Event-ID", None)
        case.headers.pop("Sublet-Shared", None)  # its second number must not be less than its first
    if case.media_type == "application/cloudevents+json":
        tell(case, body)
        return
    if (case.method, case.operation.path) == ("POST", "/jobs") and case.query:
        case.query.clear()  # for events alone
    if case.headers and "Idempotency-Key" in case.headers:
        case.headers["Idempotency-Key"] = unused(case.headers["Idempotency-Key"])
        for job in (body, *body.get("jobs", [])):
            job.pop("id", None)
    if case.operation.path.startswith("/schedules/"):
        plan(case, body)
    elif case.operation.path == "/pools/{name}" and body:
        body |= {"min": min(body.get("min", 0), body.get("max", 10)), "revision": None}
        body |= {
            "queues": list(dict.fromkeys(body["queues"])),
            "target": TARGETS.get(body.get("invoker", "none"), ""),
        }
    elif case.operation.path == "/queues/{queue}" and body:
        fit(case, body)
    elif "/groups" in case.operation.path and case.path_parameters["queue"] in ("*", "%2A"):
        case.path_parameters["queue"] = "one"  # each queue has groups of its own
    elif case.operation.path == "/workflows" and body:
        link(body)
    elif next(numbers) % 3:
        aim(case, body)


def trim(path: str, body: dict[str, Any]) -> None:
    """Remove what a schema cannot exclude: a number of two fields that do not go together, names, whole floats."""
    for job in (body, *body.get("jobs", []), body.get("job") or {}):
        if isinstance(job, dict):
            if job.get("kind") == "call":
                job.pop("delay", None)
            job.pop("run_at", None)  # a year after 5138 is refused
    for name in ("before", "start"):
        if isinstance(body.get(name), float):
            body[name] = int(body[name])
    if path.endswith("/call"):
        for name in ("key", "window", "debounce", "at_most", "on_conflict"):
            body["job"].pop(name, None)
    if path.endswith("/step") and body.get("steps"):
        body["steps"] = {f"s{number}": value for number, value in enumerate(body["steps"].values())}
    if "/groups" in path and body:
        body |= {"rate": body.get("rate") or 5, "per": 60}


def link(workflow: dict[str, Any]) -> None:
    """Let each job of a workflow wait for the one before; without ids, and without the options of a key."""
    workflow.pop("id", None)
    for number, job in enumerate(workflow["jobs"]):
        for name in ("id", "key", "window", "debounce", "at_most", "on_conflict"):
            job.pop(name, None)
        job |= {"name": f"j{number}", "after": [f"j{number - 1}"] if number else [], "into": []}


def tell(case: Any, event: dict[str, Any]) -> None:
    """Give an event an id of its own, and attributes with the names and types that exist."""
    for name in [*event]:
        if (
            not name.isalnum()
            or not name.islower()
            or (isinstance(event[name], float | int | list | dict) and name != "data")
        ):
            del event[name]
    if case.headers:
        case.headers.pop("Idempotency-Key", None)
    if event:
        event["id"] = f"{next(numbers)}.{event['id']}"[:200]
    if case.operation.path == "/jobs":
        case.query |= {"task": "audit"}


def unused(key: str) -> str:
    """An Idempotency-Key of this form that no earlier request had."""
    begin = '"' if key[0] == '"' else ""
    return f"{begin}{next(numbers)}.{key.removeprefix(begin)[-240:]}"


def plan(case: Any, body: dict[str, Any]) -> None:
    """Give a schedule a short name and one kind of recurrence, and put it first."""
    case.path_parameters["schedule"] = name = case.path_parameters["schedule"][:40]
    if case.method == "PUT":
        body |= {"cron": "0 9 * * *", "every": None, "tz": "UTC", "start": None, "end": None}
        if next(numbers) % 2:
            body |= {"cron": None, "every": 604_800, "jitter": min(body.get("jitter", 0), 86_400)}
    elif next(numbers) % 3 and name not in (".", ".."):
        ask("PUT", f"/schedules/{name}", {"task": "t", "every": 3600})
    if "id" in body:
        body["id"] = f"{next(numbers)}.{body['id'] or ''}"[:58]


def fit(case: Any, body: dict[str, Any]) -> None:
    """Limit a queue's request to its own settings, and that of all queues to theirs."""
    everything = case.path_parameters["queue"] in ("*", "%2A")
    if everything:
        body.pop("paused", None)
    if "limits" in body:
        known = ("completed",) if everything else ("jobs", "bytes")
        body["limits"] = {name: most for name, most in body["limits"].items() if name in known}


def aim(case: Any, body: dict[str, Any]) -> None:
    """Let the request name a job, or a worker, that exists."""
    path, words = case.operation.path, case.path_parameters
    if "token" in body:
        held = taken()
        words["id"], body["token"] = held["id"], held["token"]
    elif path.startswith("/workflows/"):
        words["id"] = ask("POST", "/workflows", {"jobs": [{"task": "t", "delay": 60}]})["id"]
    elif "{id}" in path:
        words["id"] = new_job(delay=60)
        body.pop("revision", None)
        if path.endswith(("/retry", "/erase")):
            ask("POST", f"/jobs/{words['id']}/cancel")
    elif path in SETTLING:
        for job in body["jobs"][:2]:
            job |= taken()
    elif path.endswith("/drain"):
        ask("PUT", f"/workers/{words['name']}", {"life": "1"})


@schemathesis.check
def says_no_more_than_is_described(ctx: Any, response: Any, case: Any) -> None:
    """Check that every header of an answer is described, and record that this operation gave this answer."""
    if case.method != case.operation.method.upper():
        return
    with Path(SEEN).open("a") as seen:
        seen.write(f"{case.operation.definition.raw['operationId']} {response.status_code}\n")
    described = case.operation.definition.raw["responses"].get(str(response.status_code), {})
    if "$ref" in described:
        described = case.operation.schema.raw_schema["components"]["responses"][
            described["$ref"].rpartition("/")[2]
        ]
    known = EVERYWHERE | {name.lower() for name in described.get("headers", ())}
    others = {name.lower() for name in response.headers} - known
    assert not others, f"undocumented headers: {sorted(others)}"
