"""`POST /events`: what a platform calls a function with that is no HTTP request. It stands for a tick, or for a worker.

Adapters for platforms that call with such events (AWS Lambda) bring them here as JSON, in the name of `PLATFORM`: who may
invoke a function is decided by the platform. Everybody else needs a token.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from sublet_functions.api.auth import Principal, Role
from sublet_functions.api.request import Call, Reply, Request
from sublet_functions.api.response import Problem, faults
from sublet_functions.handlers.work import WorkQuery, work
from sublet_functions.schemas.query import Nothing, TickQuery
from sublet_functions.schemas.summons import Summons
from sublet_functions.schemas.triggers import CLOCKS, Clock, PoolCall, TickEvent, Trigger, WorkEvent
from sublet_functions.tick import tick

PLATFORM = Principal("platform", frozenset({Role.TICK, Role.WORK}))
"""Whom a platform has let in: it invokes this function by its own rights."""
PASS_THROUGH = "AWS_LWA_PASS_THROUGH_PATH"
"""The variable that tells the Lambda Web Adapter where such events go; that it is set tells us that the adapter is there."""
FUNCTION = "AWS_LAMBDA_FUNCTION_NAME"
"""The variable that Lambda sets, and nobody else may: anywhere else the adapter is not there, whatever somebody has set."""
UNDERSTOOD = (
    'understood are {"sublet": "tick"} and {"sublet": "work"} with their options, the call of a pool\'s invoker (pool, queues, '
    "slots, linger, summons), and the scheduled events of EventBridge"
)
KEYS_SHOWN = 12
"""Keys of an event that nobody understands, of those that are told."""

M = TypeVar("M", bound=BaseModel)


def passed_on(request: Request) -> bool:
    """Does the Lambda Web Adapter pass on an invocation that was no HTTP request?

    It puts a header of its own in the place of any that a caller may have sent: `null` where there was no HTTP request. In a
    Lambda function nothing comes but by the adapter.
    """
    if FUNCTION not in os.environ:
        return False
    return (
        request.path == os.environ.get(PASS_THROUGH)
        and request.headers.get("x-amzn-request-context") == "null"
    )


async def trigger(call: Call[Trigger, Nothing]) -> Reply:
    """Do what an event of a platform stands for: a tick, or a worker. The answer is that of `/tick` or `/work`."""
    event = call.body.root
    if event.get("sublet") == "tick":
        asked = _read(TickEvent, event)
        return await _tick(
            call, TickQuery.model_validate(asked.model_dump(exclude={"sublet"}, by_alias=True))
        )
    if event.get("source") in CLOCKS and "detail-type" in event:
        _read(Clock, event)
        return await _tick(call, TickQuery.model_validate({}))
    if event.get("sublet") == "work":
        wish = _read(WorkEvent, event)
        told = Summons.model_validate(wish.model_dump(exclude={"sublet", "seconds"}))
        return await _work(call, told, WorkQuery.model_validate({"for": wish.seconds}))
    if "sublet" not in event and event.keys() >= {"pool", "summons"}:
        return await _work(call, _read(PoolCall, event), WorkQuery.model_validate({}))
    raise Problem("invalid", f"{_seen(event)}; {UNDERSTOOD}")


async def _tick(call: Call[Any, Any], query: TickQuery) -> Reply:
    _permit(call, Role.TICK)
    return await tick(replace(call, body=Nothing(), query=query))


async def _work(call: Call[Any, Any], wish: Summons, query: WorkQuery) -> Reply:
    _permit(call, Role.WORK)
    return await work(replace(call, body=wish, query=query))


def _permit(call: Call[Any, Any], role: Role) -> None:
    """Raises Problem for who may send one kind of event, but not this one."""
    if not call.who.roles & {role, Role.ADMIN}:
        raise Problem(
            "forbidden",
            f"the token of {call.who.name} is not for this event: it takes {role} or {Role.ADMIN}",
        )


def _read(model: type[M], event: Mapping[str, Any]) -> M:
    try:
        return model.model_validate(event)
    except ValidationError as error:
        raise faults(error, "body") from None


def _seen(event: Mapping[str, Any]) -> str:
    """What an event is that nobody understands: its keys, and of AWS's own what it calls itself. No other value is told."""
    keys = ", ".join(repr(key[:40]) for key in list(event)[:KEYS_SHOWN]) or "none"
    more = f" and {len(event) - KEYS_SHOWN} more" if len(event) > KEYS_SHOWN else ""
    named = [
        f"{key}={event[key][:60]!r}"
        for key in ("sublet", "source", "detail-type")
        if isinstance(event.get(key), str)
    ]
    hint = (
        ": a REST API's (payload 1.0) or a load balancer's; use an HTTP API or a function URL"
        if "httpMethod" in event
        else ""
    )
    return f"nobody knows what this event stands for{hint}: its keys are {keys}{more}" + "".join(
        f", {name}" for name in named
    )
