"""AWS Lambda: `sublet_functions.aws.handler` is the API, a tick and a worker.

Fields that no client can set mark HTTP requests, which need a token. Other events need none: AWS allowed
their senders to invoke.
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
from sublet_functions.handlers.triggers import PLATFORM, SUPPORTED
from sublet_functions.http.auth import Principal
from sublet_functions.http.problems import Problem
from sublet_functions.http.request import Request, fold_headers
from sublet_functions.http.response import Response

RESERVE = 1.0
"""So many seconds before an invocation's time limit, an unfinished request, tick or worker is given up."""
TEXT_MAX = 1_000_000
"""Most bytes of a body that is returned as text. A larger one, or one not in UTF-8, becomes base64."""
BODY_MAX = 4_700_000
"""Most bytes of a response's body: as base64 they fit into Lambda's 6 MB. A larger one becomes a 413."""
ADAPTER_HEADER = "x-amzn-request-context"
"""A header of the Lambda Web Adapter, which the handler removes from clients' requests."""
HTTP_KEYS = ("requestContext", "httpMethod", "rawPath", "routeKey", "multiValueHeaders")
"""An event with any of these keys is an HTTP request: refused, unless `requestContext` has `http`."""


class EventFailed(Exception):
    """An invocation has failed. AWS shows the message."""


class Context(Protocol):
    """The method of Lambda's context that the handler calls."""

    def get_remaining_time_in_millis(self) -> int:
        """Return the ms until Lambda ends the invocation."""
        ...


def handler(event: Any, context: Context) -> Any:
    """Answer an HTTP request in Lambda's format, errors too; for another event run the tick or worker that it
    asks for, and return the totals.

    Raises EventFailed if that fails or takes too long, or the event is malformed or not supported.
    """
    global _kept
    if _kept is None or _kept.process != os.getpid():
        _kept = _Function(_kept)
    return _kept.runner.run(_kept.handle(event, context.get_remaining_time_in_millis() / 1000))


class _Function:
    def __init__(self, before: _Function | None) -> None:
        self.process = os.getpid()
        self.runner = asyncio.Runner()
        self._parent = before  # closing it would close the parent process's sockets
        self._hosted = Hosted(freezes=True)

    async def handle(self, event: Any, left: float) -> Any:
        if not isinstance(event, dict):
            raise EventFailed(f"the event is a {type(event).__name__}, not a JSON object; {SUPPORTED}")
        seconds = left - RESERVE
        self._hosted.limit_work(seconds)
        request = _request(event)
        if request:
            return await self._answer_http(request, seconds)
        sent = json.dumps(_shortened(event, seconds - RESERVE)).encode()
        headers = {"content-type": "application/json"}
        passed_on = Request("POST", "/events", headers=headers, body=sent, streams=False)
        try:
            response = await self._ask(passed_on, seconds, PLATFORM)
        except TimeoutError:
            raise EventFailed(
                f"the tick or worker had not ended {RESERVE:g} s before the invocation's time limit: give the function more time"
            ) from None
        result = json.loads(await _collect(response) or b"null")
        if response.status >= 400:
            raise EventFailed(f"{result['detail']} ({result['type']})")
        return result

    async def _answer_http(self, request: Request, seconds: float) -> dict[str, Any]:
        try:
            response = await self._ask(request, seconds)
            body = await _collect(response)
            if len(body) <= BODY_MAX:
                return _result(response, body)
            await response.discard()
            problem = Problem(
                "too-large",
                f"the response has {len(body):,} bytes: Lambda allows {BODY_MAX:,}: request fewer items, or a shorter stream",
            )
        except TimeoutError:
            problem = Problem(
                "out-of-time",
                f"no response {RESERVE:g} s before the invocation's time limit: request less, or a shorter wait",
            )
        refusal = problem.response()
        return _result(refusal, await _collect(refusal))

    async def _ask(self, request: Request, seconds: float, principal: Principal | None = None) -> Response:
        async with asyncio.timeout(seconds):
            return await self._hosted.answer(request, principal)


_kept: _Function | None = None
"""Made by the first invocation: the process may be forked, or copied, after imports."""


def _request(event: Mapping[str, Any]) -> Request | None:
    context = event.get("requestContext")
    http = context.get("http") if isinstance(context, dict) else None
    if not isinstance(context, dict) or not isinstance(http, dict):
        if any(key in event for key in HTTP_KEYS):
            raise EventFailed(
                f"{_http_kind(event)}; {SUPPORTED}, and HTTP requests of an HTTP API (payload 2.0) or a function URL"
            )
        return None
    try:
        headers = fold_headers((event.get("headers") or {}).items())
        headers.pop(ADAPTER_HEADER, None)  # a client could imitate the adapter
        if event.get("cookies"):
            headers["cookie"] = "; ".join(event["cookies"])
        text = event.get("body") or ""
        if event.get("isBase64Encoded"):
            body = base64.b64decode(text, validate=True)
        else:
            body = text.encode("utf-8", "surrogatepass")
        prefix, path = _path(event["rawPath"], context.get("stage", "$default"))
        query = event.get("rawQueryString") or ""
        return Request(http["method"], path, query, headers, body, streams=False, prefix=prefix)
    except (KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise EventFailed(
            f"an HTTP event of payload 2.0 is malformed ({type(error).__name__}): a field is missing or invalid: send it as AWS does"
        ) from None


def _path(raw: str, stage: str) -> tuple[str, str]:
    if stage != "$default" and (raw == f"/{stage}" or raw.startswith(f"/{stage}/")):
        return f"/{stage}", raw[len(stage) + 1 :] or "/"
    return "", raw


def _http_kind(event: Mapping[str, Any]) -> str:
    context = event.get("requestContext")
    about = context if isinstance(context, dict) else {}
    if "elb" in about:
        return "requests of a load balancer (ALB) are not supported"
    if "connectionId" in about:
        return "events of a WebSocket API are not supported"
    if "httpMethod" in event:
        return "requests of a REST API, or of payload 1.0, are not supported"
    keys = ", ".join(key for key in HTTP_KEYS if key in event)
    return f"an HTTP request of an unknown kind, with {keys}, is not supported"


def _shortened(event: dict[str, Any], seconds: float) -> dict[str, Any]:
    asked = event.get("for")
    if isinstance(asked, int | float) and asked > max(seconds, 0):
        return event | {"for": max(seconds, 0)}
    return event


async def _collect(response: Response) -> bytes:
    if isinstance(response.body, bytes):
        return response.body
    return b"".join([piece async for piece in response.body])


def _result(response: Response, body: bytes) -> dict[str, Any]:
    result = {"statusCode": response.status, "headers": response.headers}
    if len(body) <= TEXT_MAX:
        try:
            return result | {"body": body.decode(), "isBase64Encoded": False}
        except UnicodeDecodeError:
            pass
    return result | {"body": base64.b64encode(body).decode(), "isBase64Encoded": True}
