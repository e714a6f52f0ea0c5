"""`/schedules`: what is submitted by the clock. Put, looked at, paused, run once beside its occurrences, removed."""

import hashlib
from typing import Any

from sublet.options import PAYLOAD_MAX, Backoff, Options
from sublet.schedules import operations
from sublet.schedules.definition import new_schedule
from sublet.schedules.recurrence import Recurrence
from sublet_functions.api.cursor import opened, sealed
from sublet_functions.api.parsing import fault, telling, written
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import Problem, json_reply
from sublet_functions.handlers.submit import idempotency_key, is_the_same, keyed_id
from sublet_functions.schemas.query import Nothing, PageQuery
from sublet_functions.schemas.requests import Growing
from sublet_functions.schemas.schedules import NewSchedule, RunNow


async def list_schedules(call: Call[Nothing, PageQuery]) -> Reply:
    """The schedules, by name, without their payloads."""
    asked = call.query
    found = await call.store.follow(
        operations.page(call.store.operations, opened(asked.cursor) or "", asked.limit)
    )
    cursor = sealed(found.cursor)
    headers = {"Link": f'</schedules?limit={asked.limit}&cursor={cursor}>; rel="next"'} if cursor else {}
    return json_reply({"schedules": found.schedules, "cursor": cursor}, headers=headers)


async def get_schedule(call: Call[Nothing, Nothing]) -> Reply:
    """One schedule: what it runs and when, its next runs, and what became of its occurrences."""
    return await _as_it_stands(call)


async def put_schedule(call: Call[NewSchedule, Nothing]) -> Reply:
    """Have a schedule be so: 201 when it is new. One whose times change counts from now on; one that is paused stays so."""
    said = call.body
    payload = written(said.payload, PAYLOAD_MAX, "body", "payload")
    when = Recurrence.model_construct(
        **{field: getattr(said, field) for field in Recurrence.model_fields}
    )  # looked at already
    with telling("path", "name"):
        wanted = new_schedule(call.words["name"], when, said.task, payload, _options(said))
    with telling("body", "end"):  # all else was looked at above
        answer = await call.store.follow(operations.put(call.store.operations, wanted))
    return await _as_it_stands(call, 201 if answer == "created" else 200)


async def remove_schedule(call: Call[Nothing, Nothing]) -> Reply:
    """Have a schedule be no more. Jobs that it has made stay. The same again: nothing happens."""
    with telling("path", "name"):
        await call.store.follow(operations.remove(call.store.operations, call.words["name"]))
    return Reply(204)


async def pause_schedule(call: Call[Nothing, Nothing]) -> Reply:
    """Make no more jobs of a schedule until it is resumed."""
    with telling("path", "name"):
        await call.store.follow(operations.pause(call.store.operations, call.words["name"]))
    return await _as_it_stands(call)


async def resume_schedule(call: Call[Nothing, Nothing]) -> Reply:
    """Go on with a schedule, from now on: occurrences that came meanwhile are none."""
    with telling("path", "name"):
        await call.store.follow(operations.resume(call.store.operations, call.words["name"]))
    return await _as_it_stands(call)


async def run_schedule(call: Call[RunNow, Nothing]) -> Reply:
    """Submit one job of a schedule now, beside its occurrences. 200 with the job that is there, by its id or Idempotency-Key."""
    name, own, key = call.words["name"], call.body.id, idempotency_key(call)
    if key is not None and own is not None:
        raise Problem(
            "invalid",
            "give an id or an Idempotency-Key, not both",
            errors=[fault("beside an Idempotency-Key", "body", "id")],
        )
    digest = f"digest={hashlib.sha256(f'run {name}'.encode()).hexdigest()[:32]}" if key is not None else ""
    with telling("path", "name"):
        found = await call.store.follow(operations.find(call.store.operations, name))
    with telling("body", "id"):
        job = operations.job_of(
            call.store.operations, found, own if key is None else keyed_id(call, key), digest
        )
    (answer,) = await call.store.submit([job])
    replayed = key is not None and not answer.created and await is_the_same(call, job)
    headers = {"Location": f"/jobs/{answer.id}"} | ({"Idempotent-Replayed": "true"} if replayed else {})
    return json_reply({"id": answer.id}, 201 if answer.created else 200, headers)


async def _as_it_stands(call: Call[Any, Any], status: int = 200) -> Reply:
    with telling("path", "name"):
        return json_reply(
            await call.store.follow(operations.get(call.store.operations, call.words["name"])), status
        )


def _options(said: NewSchedule) -> Options:
    growing = said.backoff
    return Options(
        queue=said.queue,
        priority=said.priority,
        max_attempts=said.max_attempts,
        timeout=None if said.timeout == "none" else said.timeout,
        retention=said.retention,
        backoff=Backoff(growing.first, growing.factor, growing.cap)
        if isinstance(growing, Growing)
        else growing,
    )
