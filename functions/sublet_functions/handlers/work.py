"""`POST /work`: run a worker in this server for a while, if the server has an app."""

from __future__ import annotations

from dataclasses import replace

from sublet.scaling.signing import Secrets, Unsigned
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.worker_host import log_refusal
from sublet_functions.http.auth import Principal, Role, Tokens
from sublet_functions.http.body import read_body
from sublet_functions.http.problems import Problem
from sublet_functions.http.request import Request
from sublet_functions.http.response import JSON, Response
from sublet_functions.schemas.query import WorkQuery
from sublet_functions.schemas.triggers import Summons

SIGNED_BODY_MAX = 16 * 1024
"""Most bytes of a signed body, which is read before the client is known."""
SUMMONER = Principal("summons", frozenset({Role.WORK}))


async def work(call: Call[Summons, WorkQuery]) -> Response:
    """Run a worker until its queues are empty or its time (`for`) is over. A signature (Standard Webhooks) is
    accepted instead of a token.

    Status and headers are sent when the worker can claim, the summary when it has ended. Disconnecting does
    not end it.
    """
    if call.worker_host is None:
        raise Problem(
            "not-found",
            "this server has no app whose jobs a worker could run: set SUBLET_APP, or use sublet serve --app",
        )
    run = await call.worker_host.start(call.body, call.query.seconds)
    return Response(200, run.response_body(), {"Content-Type": JSON}, finite=True)


async def verify_signature(request: Request, tokens: Tokens, secrets: Secrets) -> tuple[Request, Principal]:
    """Check the signature of a request; return the request with its body, and the client, always SUMMONER.
    Raises Problem unless it is valid, or if a server without `tokens` must not trust the request.
    """
    untrusted = tokens.untrusted_reason(request.headers)
    if untrusted:
        raise Problem("forbidden", untrusted)
    reason = "this server has no signing secret: set SUBLET_SIGNING_SECRETS, or send a token instead of a signature"
    if secrets:
        raw = await read_body(request, SIGNED_BODY_MAX)
        try:
            secrets.verify(request.headers, raw)
            return replace(request, body=raw, read=None), SUMMONER
        except Unsigned as error:
            reason = str(error)
    log_refusal(401, reason)
    raise Problem("unauthorized", reason, headers={"WWW-Authenticate": "Bearer"})
