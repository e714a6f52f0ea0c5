"""`POST /events`: run a tick or a worker for an event that a platform passes on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sublet_functions.handlers.call import Call
from sublet_functions.handlers.tick import tick
from sublet_functions.handlers.work import work
from sublet_functions.http.auth import Principal, Role
from sublet_functions.http.problems import Problem, validation_problem
from sublet_functions.http.request import Request
from sublet_functions.http.response import Response
from sublet_functions.schemas.query import Empty, TickQuery, WorkQuery
from sublet_functions.schemas.triggers import CLOCKS, Clock, PoolCall, Summons, TickEvent, Trigger, WorkEvent

PLATFORM = Principal("platform", frozenset({Role.TICK, Role.WORK}))
"""The client that stands for a platform which has authorized an event's sender."""
PASS_THROUGH = "AWS_LWA_PASS_THROUGH_PATH"
"""The environment variable with the path to which the Lambda Web Adapter sends events that are no HTTP requests."""
FUNCTION = "AWS_LAMBDA_FUNCTION_NAME"
"""An environment variable that Lambda sets. Without it the adapter's header is not trusted."""
SUPPORTED = (
    'supported are {"sublet": "tick"} and {"sublet": "work"} with their options, the call of a pool\'s invoker (pool, queues, '
    "slots, linger, summons), and the scheduled events of EventBridge"
)
KEYS_SHOWN = 12

M = TypeVar("M", bound=BaseModel)


def is_passed_on(request: Request) -> bool:
    """Whether the Lambda Web Adapter sent this request for an event that is not an HTTP request.

    The adapter sets the header `x-amzn-request-context`, which is `null` then; clients cannot set it.
    """
    if FUNCTION not in os.environ or request.path != os.environ.get(PASS_THROUGH):
        return False
    return request.headers.get("x-amzn-request-context") == "null"


async def trigger(call: Call[Trigger, Empty]) -> Response:
    """Run the tick or worker that a platform's event asks for. The response is that of `/tick` or `/work`."""
    event = call.body.root
    if event.get("sublet") == "tick":
        options = _parse(TickEvent, event).model_dump(exclude={"sublet"}, by_alias=True)
        return await _tick(call, TickQuery.model_validate(options))
    if event.get("source") in CLOCKS and "detail-type" in event:
        _parse(Clock, event)
        return await _tick(call, TickQuery.model_validate({}))
    if event.get("sublet") == "work":
        work_event = _parse(WorkEvent, event)
        summons = Summons.model_validate(work_event.model_dump(exclude={"sublet", "seconds"}))
        return await _work(call, summons, WorkQuery.model_validate({"for": work_event.seconds}))
    if "sublet" not in event and event.keys() >= {"pool", "summons"}:
        return await _work(call, _parse(PoolCall, event), WorkQuery.model_validate({}))
    raise Problem("invalid", f"{_describe(event)}; {SUPPORTED}")


async def _tick(call: Call[Any, Any], query: TickQuery) -> Response:
    _require(call, Role.TICK)
    return await tick(replace(call, body=Empty(), query=query))


async def _work(call: Call[Any, Any], summons: Summons, query: WorkQuery) -> Response:
    _require(call, Role.WORK)
    return await work(replace(call, body=summons, query=query))


def _require(call: Call[Any, Any], role: Role) -> None:
    if not call.principal.roles & {role, Role.ADMIN}:
        raise Problem(
            "forbidden",
            f"the token of {call.principal.name} does not allow this event: use one with role {role} or {Role.ADMIN}",
        )


def _parse(model: type[M], event: Mapping[str, Any]) -> M:
    try:
        return model.model_validate(event)
    except ValidationError as error:
        raise validation_problem(error, "body", value=event) from None


def _describe(event: Mapping[str, Any]) -> str:
    keys = ", ".join(repr(key[:40]) for key in list(event)[:KEYS_SHOWN]) or "none"
    more = f" and {len(event) - KEYS_SHOWN} more" if len(event) > KEYS_SHOWN else ""
    named = "".join(
        f", {key}={event[key][:60]!r}"
        for key in ("sublet", "source", "detail-type")
        if isinstance(event.get(key), str)
    )
    hint = ""
    if "httpMethod" in event:
        hint = " (of a REST API with payload 1.0, or of a load balancer: use an HTTP API or a function URL)"
    return f"the event is not supported{hint}: its keys are {keys}{more}{named}"
