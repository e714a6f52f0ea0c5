"""The routes of `/schedules`: list and change schedules."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from sublet.errors import NotFound
from sublet.options import PAYLOAD_MAX
from sublet.schedules import operations
from sublet.schedules.definition import Schedule, Stored, new_schedule
from sublet.schedules.operations import SchedulePage
from sublet.schedules.recurrence import Recurrence
from sublet.submission.submit import SubmitOperations
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.jobs import shown
from sublet_functions.handlers.submit import check_same_body, check_schedule, idempotency_key, keyed_id
from sublet_functions.handlers.within import check_taken
from sublet_functions.http.body import stored_json
from sublet_functions.http.cursor import decode_cursor, encode_cursor
from sublet_functions.http.problems import Problem, invalid_at, invalid_value
from sublet_functions.http.response import Response, json_response
from sublet_functions.http.scope import Scope
from sublet_functions.schemas.query import Empty, PageQuery
from sublet_functions.schemas.requests import NewJob
from sublet_functions.schemas.schedules import NewSchedule, ScheduleRun, StoredSchedule


async def list_schedules(call: Call[Empty, PageQuery]) -> Response:
    """List the schedules of the token's queues by name, without payloads; invalid ones are left out."""
    asked = call.query
    after = decode_cursor(asked.cursor) or ""
    if call.principal.scope is None:
        found = await call.store.follow(operations.page(call.store.operations, after, asked.limit))
    else:
        found = await _page_within(call, call.principal.scope, after, asked.limit)
    cursor = encode_cursor(found.cursor)
    link = f'<{call.request.prefix}/schedules?limit={asked.limit}&cursor={cursor}>; rel="next"'
    headers = {"Link": link} if cursor else {}
    return json_response(
        {"schedules": found.schedules, "cursor": cursor}, headers=headers, reads=len(found.schedules)
    )


async def get_schedule(call: Call[Empty, Empty]) -> Response:
    """Return one schedule: its settings, next occurrences, and jobs of past ones. The payload is null unless
    the token sees payloads (`GET /whoami`).
    """
    return json_response(shown(await _shown(call), call.principal))


async def put_schedule(call: Call[NewSchedule, Empty]) -> Response:
    """Create or replace a schedule; 201 if it is new. New times apply from now on; a paused schedule stays
    paused.
    """
    body = call.body
    payload = stored_json(body.payload, PAYLOAD_MAX, "body", "payload")
    given = body.model_fields_set & NewJob.model_fields.keys()
    job = NewJob.model_construct(given, **{name: getattr(body, name) for name in given})
    options, warning = await check_schedule(call, job, payload)
    # the fields were validated with the body
    when = Recurrence.model_construct(**{name: getattr(body, name) for name in Recurrence.model_fields})
    with invalid_at("path", "schedule"):
        wanted = new_schedule(call.path["schedule"], when, body.task, payload, options)
    with invalid_at("body", "end"):
        put = operations.put(call.store.operations, wanted, partial(_check_replaced, call))
        answer = await call.store.follow(put)
    found = StoredSchedule(**dict(await _shown(call)), warning=warning or None)
    return json_response(found, 201 if answer == "created" else 200)


async def remove_schedule(call: Call[Empty, Empty]) -> Response:
    """Delete a schedule, if it exists. Its jobs stay."""
    with (
        invalid_at("path", "schedule"),
        suppress(NotFound),
    ):  # one outside the token's queues: as if there were none
        await call.store.follow(operations.remove(*_changed(call)))
    return Response(204)


async def pause_schedule(call: Call[Empty, Empty]) -> Response:
    """Pause a schedule: its occurrences make no jobs until it is resumed."""
    with invalid_at("path", "schedule"):
        await call.store.follow(operations.pause(*_changed(call)))
    return await _current(call)


async def resume_schedule(call: Call[Empty, Empty]) -> Response:
    """Resume a paused schedule. Occurrences during the pause get no job."""
    with invalid_at("path", "schedule"):
        await call.store.follow(operations.resume(*_changed(call)))
    return await _current(call)


async def run_schedule(call: Call[ScheduleRun, Empty]) -> Response:
    """Submit one extra job of a schedule now: 201, or 200 if one of this id or Idempotency-Key exists."""
    name, own, key = call.path["schedule"], call.body.id, idempotency_key(call)
    if key is not None and own is not None:
        raise Problem(
            "invalid",
            "id: not together with an Idempotency-Key: send one of them",
            errors=[invalid_value("not together with an Idempotency-Key", "body", "id")],
        )
    digest = f"digest={hashlib.sha256(f'run {name}'.encode()).hexdigest()[:32]}" if key is not None else ""
    with invalid_at("path", "schedule"):
        found = await call.store.follow(operations.find(call.store.operations, name))
    _check_stored(call, found)
    with invalid_at("body", "id"):
        job_id = own if key is None else keyed_id(call, key)
        job = operations.job_of(call.store.operations, found, job_id, digest)
    await call.store.follow(operations.record_run(found, job))
    (answer,) = await call.store.submit([job])
    if not answer.created and call.principal.scope is not None:
        await check_taken(call, answer.id)
    replayed = key is not None and not answer.created and await check_same_body(call, job)
    headers = {"Location": f"{call.request.prefix}/jobs/{answer.id}"} | (
        {"Idempotent-Replayed": "true"} if replayed else {}
    )
    return json_response({"id": answer.id}, 201 if answer.created else 200, headers)


async def _current(call: Call[Any, Any]) -> Response:
    return json_response(await _shown(call))


async def _shown(call: Call[Any, Any]) -> Schedule:
    with invalid_at("path", "schedule"):
        found = await call.store.follow(operations.get(call.store.operations, call.path["schedule"]))
    _check(call, found.name, found.queue)
    return found


async def _page_within(call: Call[Any, Any], scope: Scope, after: str, limit: int) -> SchedulePage:
    found: list[Schedule] = []
    cursor: str | None = after
    while cursor is not None and len(found) <= limit:
        page = await call.store.follow(operations.page(call.store.operations, cursor, operations.PAGE))
        found += [schedule for schedule in page.schedules if schedule.queue in scope]
        cursor = page.cursor
    return SchedulePage(found[:limit], found[limit - 1].name if len(found) > limit else None)


def _changed(call: Call[Any, Any]) -> tuple[SubmitOperations, str, Callable[[Stored], None]]:
    return call.store.operations, call.path["schedule"], partial(_check_stored, call)


def _check_stored(call: Call[Any, Any], stored: Stored) -> None:
    _check(call, stored.name, stored.text("queue"))


def _check(call: Call[Any, Any], name: str, queue: str) -> None:
    if call.principal.scope is not None and queue not in call.principal.scope:
        raise NotFound(f"no schedule {name}")


def _check_replaced(call: Call[Any, Any], stored: Stored) -> None:
    if call.principal.scope is not None and stored.text("queue") not in call.principal.scope:
        raise Problem(
            "forbidden",
            f"schedule {stored.name}: the name is taken on a queue that the token of {call.principal.name} may not use: choose another",
        )
