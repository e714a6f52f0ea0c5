"""`/schedules`."""

import hashlib
from typing import Any

from sublet.options import PAYLOAD_MAX, Options
from sublet.schedules import operations
from sublet.schedules.definition import new_schedule
from sublet.schedules.recurrence import Recurrence
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.submit import backoff_of, check_same_body, idempotency_key, keyed_id
from sublet_functions.http.body import stored_json
from sublet_functions.http.cursor import decode_cursor, encode_cursor
from sublet_functions.http.problems import Problem, invalid_at, invalid_value
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty, PageQuery
from sublet_functions.schemas.schedules import NewSchedule, ScheduleRun


async def list_schedules(call: Call[Empty, PageQuery]) -> Response:
    """List schedules ordered by name, without their payloads."""
    asked = call.query
    found = await call.store.follow(
        operations.page(call.store.operations, decode_cursor(asked.cursor) or "", asked.limit)
    )
    cursor = encode_cursor(found.cursor)
    link = f'<{call.request.prefix}/schedules?limit={asked.limit}&cursor={cursor}>; rel="next"'
    headers = {"Link": link} if cursor else {}
    return json_response({"schedules": found.schedules, "cursor": cursor}, headers=headers)


async def get_schedule(call: Call[Empty, Empty]) -> Response:
    """Return one schedule: its settings, next occurrences, and jobs of past ones."""
    return await _current(call)


async def put_schedule(call: Call[NewSchedule, Empty]) -> Response:
    """Create or replace a schedule; 201 if it is new. New times apply from now on; a paused schedule stays
    paused.
    """
    body = call.body
    payload = stored_json(body.payload, PAYLOAD_MAX, "body", "payload")
    # the fields were validated with the body
    when = Recurrence.model_construct(**{name: getattr(body, name) for name in Recurrence.model_fields})
    with invalid_at("path", "name"):
        wanted = new_schedule(call.path["name"], when, body.task, payload, _options(body))
    with invalid_at("body", "end"):
        answer = await call.store.follow(operations.put(call.store.operations, wanted))
    return await _current(call, 201 if answer == "created" else 200)


async def remove_schedule(call: Call[Empty, Empty]) -> Response:
    """Delete a schedule, if it exists. Its jobs stay."""
    with invalid_at("path", "name"):
        await call.store.follow(operations.remove(call.store.operations, call.path["name"]))
    return Response(204)


async def pause_schedule(call: Call[Empty, Empty]) -> Response:
    """Pause a schedule: it makes no jobs until it is resumed."""
    with invalid_at("path", "name"):
        await call.store.follow(operations.pause(call.store.operations, call.path["name"]))
    return await _current(call)


async def resume_schedule(call: Call[Empty, Empty]) -> Response:
    """Resume a paused schedule. Occurrences during the pause get no job."""
    with invalid_at("path", "name"):
        await call.store.follow(operations.resume(call.store.operations, call.path["name"]))
    return await _current(call)


async def run_schedule(call: Call[ScheduleRun, Empty]) -> Response:
    """Submit one extra job of a schedule now. 200 with the existing job of the same id or Idempotency-Key."""
    name, own, key = call.path["name"], call.body.id, idempotency_key(call)
    if key is not None and own is not None:
        raise Problem(
            "invalid",
            "id: not together with an Idempotency-Key: send one of them",
            errors=[invalid_value("not together with an Idempotency-Key", "body", "id")],
        )
    digest = f"digest={hashlib.sha256(f'run {name}'.encode()).hexdigest()[:32]}" if key is not None else ""
    with invalid_at("path", "name"):
        found = await call.store.follow(operations.find(call.store.operations, name))
    with invalid_at("body", "id"):
        job_id = own if key is None else keyed_id(call, key)
        job = operations.job_of(call.store.operations, found, job_id, digest)
    (answer,) = await call.store.submit([job])
    replayed = key is not None and not answer.created and await check_same_body(call, job)
    headers = {"Location": f"{call.request.prefix}/jobs/{answer.id}"} | (
        {"Idempotent-Replayed": "true"} if replayed else {}
    )
    return json_response({"id": answer.id}, 201 if answer.created else 200, headers)


async def _current(call: Call[Any, Any], status: int = 200) -> Response:
    with invalid_at("path", "name"):
        found = await call.store.follow(operations.get(call.store.operations, call.path["name"]))
    return json_response(found, status)


def _options(schedule: NewSchedule) -> Options:
    return Options(
        queue=schedule.queue,
        priority=schedule.priority,
        max_attempts=schedule.max_attempts,
        timeout=schedule.timeout,
        retention=schedule.retention,
        backoff=backoff_of(schedule.backoff),
        tags=schedule.tags,
        keep_payload=schedule.keep_payload,
    )
