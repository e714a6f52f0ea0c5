"""AWS Lambda: `sublet_functions.aws.handler` is the API behind an HTTP API or a function URL, and what EventBridge and pools invoke.

HTTP requests are told by what the platform itself puts into an event, where nothing gets that a caller sends. So whoever comes by
HTTP needs a token, and cannot pass for a clock or a pool, which are let in because AWS has let them invoke this function.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
from collections.abc import Mapping
from typing import Any, Protocol

from sublet_functions.adapters.hosted import Hosted
from sublet_functions.api.auth import Principal
from sublet_functions.api.request import Reply, Request, folded
from sublet_functions.api.response import Problem
from sublet_functions.api.routes import SECURITY
from sublet_functions.handlers.triggers import PLATFORM, UNDERSTOOD
from sublet_functions.server.writer import undo

LAST = 1.0
"""Seconds before the invocation's end by which a worker has gone, and an answer is there, be it a refusal: what was cut short for
it has so long to give back what it took."""
TEXT_MAX = 1_000_000
"""Bytes of a body that is sent as text, which may grow to six times that in JSON; larger ones are sent as base64."""
BODY_MAX = 4_700_000
"""Bytes of a body that as base64 fit into the 6 MB that an answer of a function may have."""
ADAPTERS = "x-amzn-request-context"
"""The header in which the Lambda Web Adapter says what it passes on. It is not here: this is the handler in its place."""
HTTP_KEYS = ("requestContext", "httpMethod", "rawPath", "routeKey", "multiValueHeaders")
"""Of these at least one is in every event that stands for an HTTP request."""


class EventFailed(Exception):
    """Raised for AWS to see: this invocation has failed, and why."""


class Context(Protocol):
    """What is used of what Lambda says about an invocation."""

    def get_remaining_time_in_millis(self) -> int:
        """Until it is ended by force."""
        ...


def handler(event: Any, context: Context) -> Any:
    """Answer an HTTP request, or do what an event stands for: a tick, or a worker until its time is up.

    Raises EventFailed for an event that is no HTTP request and could not be done, or that nobody understands.
    """
    global _kept
    if _kept is None or _kept.process != os.getpid():
        _kept = _Function(_kept)
    return _kept.runner.run(_kept.handle(event, context.get_remaining_time_in_millis() / 1000))


class _Function:
    """What a process keeps from one invocation to the next: an event loop, and the API on it with its connections."""

    def __init__(self, before: _Function | None) -> None:
        self.process, self.runner = os.getpid(), asyncio.Runner()
        self._parent = before  # of whom this process was forked: to close what it uses would take it from the parent, too
        self._hosted = Hosted(prompt=True)

    async def handle(self, event: Any, left: float) -> Any:
        """Do what an event asks for, in so many seconds."""
        if not isinstance(event, dict):
            raise EventFailed(
                f"an event must be a JSON object, and this is {type(event).__name__}; {UNDERSTOOD}"
            )
        seconds = left - LAST
        self._hosted.limit_work(seconds)
        request = _request(event)
        if request:
            return await self._http(request, seconds)
        sent = json.dumps(_shortened(event, seconds - LAST)).encode()
        passed = Request(
            "POST", "/events", headers={"content-type": "application/json"}, body=sent, streams=False
        )
        try:
            reply = await self._ask(passed, seconds, PLATFORM)
        except TimeoutError:
            raise EventFailed(
                f"not done {LAST:g} s before the end of the invocation: give the function more time"
            ) from None
        said = json.loads(await _collected(reply) or b"null")
        if reply.status >= 400:
            raise EventFailed(f"{said['detail']} ({said['type']})")
        return said

    async def _http(self, request: Request, seconds: float) -> dict[str, Any]:
        try:
            reply = await self._ask(request, seconds)
            body = await _collected(reply)
            if len(body) <= BODY_MAX:
                return _result(reply, body)
            await undo(reply)
            problem = Problem(
                "too-large",
                f"the answer has {len(body):,} bytes: Lambda passes on {BODY_MAX:,}, so ask for less",
            )
        except TimeoutError:
            problem = Problem(
                "out-of-time",
                f"no answer {LAST:g} s before this invocation's end: ask for less, or wait less",
            )
        refusal = problem.reply()
        refusal.headers = SECURITY | refusal.headers
        return _result(refusal, await _collected(refusal))

    async def _ask(self, request: Request, seconds: float, who: Principal | None = None) -> Reply:
        """An answer in time. (A worker that has begun is gone in time, or it is stuck: then only an end by force helps.)"""
        async with asyncio.timeout(seconds):
            return await self._hosted.answer(request, who)


_kept: _Function | None = None
"""Made by the first invocation, never by an import: what is imported may be forked, or frozen and copied."""


def _request(event: Mapping[str, Any]) -> Request | None:
    """The HTTP request that an event is; None if it is none. Raises EventFailed for one in a form that is not understood."""
    context = event.get("requestContext")
    http = context.get("http") if isinstance(context, dict) else None
    if not isinstance(context, dict) or not isinstance(http, dict):
        if any(key in event for key in HTTP_KEYS):
            raise EventFailed(
                f"{_other(event)}; {UNDERSTOOD}, and HTTP requests of an HTTP API (payload 2.0) or a function URL"
            )
        return None
    try:
        headers = folded((event.get("headers") or {}).items())
        headers.pop(ADAPTERS, None)  # in its place, a caller's word would pass for the adapter's
        if event.get("cookies"):
            headers["cookie"] = "; ".join(event["cookies"])
        sent = event.get("body") or ""
        body = (
            base64.b64decode(sent, validate=True)
            if event.get("isBase64Encoded")
            else sent.encode("utf-8", "surrogatepass")
        )
        path = _path(event["rawPath"], context.get("stage", "$default"))
        return Request(http["method"], path, event.get("rawQueryString") or "", headers, body, streams=False)
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise EventFailed(
            f"an HTTP event of payload 2.0 that cannot be read ({type(error).__name__})"
        ) from None


def _path(raw: str, stage: str) -> str:
    """The path without the name of a stage, which stands before it at the API's own address."""
    if stage != "$default" and (raw == f"/{stage}" or raw.startswith(f"/{stage}/")):
        return raw[len(stage) + 1 :] or "/"
    return raw


def _other(event: Mapping[str, Any]) -> str:
    """What kind of HTTP event this is that is not understood. Nothing is told of what the request itself says."""
    context = event.get("requestContext")
    about = context if isinstance(context, dict) else {}
    if "elb" in about:
        return "this is a request of a load balancer (ALB)"
    if "connectionId" in about:
        return "this is an event of a WebSocket API"
    if "httpMethod" in event:
        return "this is a request of a REST API, or of payload 1.0"
    return f"this is an HTTP request of an unknown kind, with {', '.join(key for key in HTTP_KEYS if key in event)}"


def _shortened(event: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The event, which may ask for no more time than there is: a tick's last round may begin at its last moment."""
    asked = event.get("for")
    if isinstance(asked, int | float) and asked > max(seconds, 0):
        return event | {"for": max(seconds, 0)}
    return event


async def _collected(reply: Reply) -> bytes:
    return reply.body if isinstance(reply.body, bytes) else b"".join([piece async for piece in reply.body])


def _result(reply: Reply, body: bytes) -> dict[str, Any]:
    """An answer as Lambda takes it: text, or base64 for what is none or would grow too much."""
    said: dict[str, Any] = {
        "statusCode": reply.status,
        "headers": reply.headers,
        "body": "",
        "isBase64Encoded": False,
    }
    try:
        if len(body) > TEXT_MAX:
            raise ValueError
        return said | {"body": body.decode()}
    except ValueError:
        return said | {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
