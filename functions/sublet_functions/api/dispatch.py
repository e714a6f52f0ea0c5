"""Answers requests by the table of `sublet_functions.api.routes`. Adapters bring them here, from whatever server or platform."""

import logging
import traceback
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

from sublet.errors import Busy, JobsError, Unavailable
from sublet.scaling.signing import Secrets
from sublet.store.outage_log import OutageLog
from sublet.store.store import Store
from sublet_functions.adapters.cloudevents import event_of
from sublet_functions.api.auth import Principal, Role, Tokens
from sublet_functions.api.parsing import body, check, query
from sublet_functions.api.request import Call, Reply, Request
from sublet_functions.api.response import Problem, problem_of
from sublet_functions.api.routes import ACTS, NOBODY, ROUTES, SECURITY, Route
from sublet_functions.handlers.heartbeat import heartbeat, heartbeat_batch
from sublet_functions.handlers.triggers import PLATFORM, passed_on, trigger
from sublet_functions.handlers.work import Workshop, recognise
from sublet_functions.schemas import query as q
from sublet_functions.server.limits import Turns

log = logging.getLogger(__name__)

BEATS = frozenset({heartbeat, heartbeat_batch})
"""What must not wait behind the other bodies of its token: a heartbeat that is late costs a lease."""


@dataclass
class Api:
    """Answers requests. It keeps nothing between two of them but connections to Redis: run as many as you like."""

    store: Store
    tokens: Tokens
    routes: tuple[Route[Any, Any], ...] = ROUTES
    workshop: Workshop | None = None
    """Where jobs are run, if this server has an app."""
    secrets: Secrets = field(default_factory=Secrets)
    """What summonses are signed with."""
    _outage: OutageLog = field(default_factory=OutageLog, init=False)
    _turns: Turns = field(default_factory=Turns, init=False)
    _exact: dict[str, dict[str, Route[Any, Any]]] = field(default_factory=dict, init=False)
    _shaped: dict[int, list[tuple[tuple[str, ...], Route[Any, Any]]]] = field(
        default_factory=dict, init=False
    )

    def __post_init__(self) -> None:
        for route in self.routes:
            for path in filter(None, (route.path, route.alias)):
                if "{" in path:
                    parts = tuple(path.split("/"))
                    self._shaped.setdefault(len(parts), []).append((parts, route))
                else:
                    self._exact.setdefault(path, {})[route.method] = route

    async def answer(self, request: Request, who: Principal | None = None) -> Reply:
        """Answer one request. Every error becomes a problem document; only a cancellation gets through.

        `who` is somebody whom the platform has let in already, and who therefore needs no token.
        """
        try:
            reply = await self._answer(request, who)
        except Problem as problem:
            reply = problem.reply()
        except JobsError as error:
            if isinstance(error, Busy):
                self._outage.hindered("answer everything", error)
            elif isinstance(error, Unavailable):
                self._outage.failed("answer", error)
            reply = problem_of(error).reply()
        except Exception as error:  # noqa: BLE001  others must not suffer
            places = "".join(
                traceback.format_tb(error.__traceback__)
            )  # no words of the error: they may hold what was sent
            log.error(
                "%s %s: a defect, %s at\n%s", request.method, request.path[:200], type(error).__name__, places
            )
            reply = Problem("internal", "this is our fault, and the server's log says more").reply()
        reply.headers = SECURITY | reply.headers
        return reply

    async def _answer(self, request: Request, who: Principal | None) -> Reply:
        route, words = self.find(request)
        if route.handler is trigger and passed_on(request):
            who = PLATFORM
        if who is None and route.signed and "webhook-signature" in request.headers:
            request, who = await recognise(request, self.tokens, self.secrets)
        who = self.admit(request, route, who)
        check(words)
        asked = query(request, route.query)
        sent = await self._sent(request, route, who)
        reply = await route.handler(
            Call(self.store, who, request, sent, asked, words, self.workshop, self.tokens.is_name)
        )
        if route.roles:  # the others say nothing about Redis
            self._outage.over()
        if request.method == "HEAD":
            reply.body = b""
        return reply

    async def _sent(self, request: Request, route: Route[Any, Any], who: Principal) -> Any:
        """What the body says: an event, or the route's model. Raises Problem."""
        if not request.read:
            return await _understood(request, route)
        line = f"{who.name} beats" if route.handler in BEATS else who.name  # no name has a blank in it
        with self._turns.of(line, request.read) as read:
            return await _understood(replace(request, read=read), route)

    def admit(self, request: Request, route: Route[Any, Any], who: Principal | None = None) -> Principal:
        """Who sends a request: whoever is known already, or has a token for it, or none where this is open. Raises Problem."""
        roles = route.roles
        stranger = self.tokens.stranger(request.headers) if who is None else ""
        if stranger:
            raise Problem("forbidden", stranger)
        if not roles:
            return NOBODY
        who = who or self.tokens.principal(request.headers.get("authorization"))
        if who is None and route.events and "authorization" not in request.headers:
            who = self.tokens.stray(roles)
        if who is None:
            sent = "authorization" in request.headers
            why = (
                "this token is none of this server's"
                if sent
                else "send the header `Authorization: Bearer TOKEN`"
            )
            raise Problem("unauthorized", why, headers={"WWW-Authenticate": "Bearer"})
        if not who.roles & (roles | {Role.ADMIN}):
            raise Problem(
                "forbidden",
                f"the token of {who.name} is not for this: it takes {' or '.join(sorted(roles | {Role.ADMIN}))}",
            )
        return who

    def find(self, request: Request) -> tuple[Route[Any, Any], dict[str, str]]:
        """The line of the table that a request is about, and the words in its path. Raises Problem: there is none."""
        found = dict(self._exact.get(request.path, {}))
        at_once = found.get(request.method)
        if at_once:
            return at_once, {}
        if found:  # a path that has a name of its own is none of a template's
            return self._otherwise(request, found)
        parts = request.path.split("/")
        for shape, route in self._shaped.get(len(parts), ()):
            if all(a == b or a[:1] == "{" for a, b in zip(shape, parts, strict=True)) and all(parts[1:]):
                found.setdefault(route.method, route)
                if route.method == request.method:
                    return route, {
                        a[1:-1]: _plain(b) for a, b in zip(shape, parts, strict=True) if a[:1] == "{"
                    }
        return self._otherwise(request, found)

    def _otherwise(
        self, request: Request, found: dict[str, Route[Any, Any]]
    ) -> tuple[Route[Any, Any], dict[str, str]]:
        if not found:
            raise Problem(
                "not-found", "no such path: GET / says where things are, GET /openapi.json all of it"
            )
        readable = found.get("GET")
        if request.method == "HEAD" and readable and readable.handler not in ACTS:
            return self.find(Request("GET", request.path))
        allowed = sorted({*found, *(["HEAD"] if readable and readable.handler not in ACTS else [])})
        raise Problem(
            "method-not-allowed", f"use {' or '.join(allowed)} here", headers={"Allow": ", ".join(allowed)}
        )

    async def aclose(self) -> None:
        """Let go of all connections."""
        await self.store.aclose()


async def _understood(request: Request, route: Route[Any, Any]) -> Any:
    event = await event_of(request, route.most) if route.events else None
    if event is None and route.body is not q.Nothing:
        return await body(request, route.body, route.most)
    return event or q.Nothing()


def _plain(part: str) -> str:
    """A part of a path without its percent signs. Raises Problem for bytes that are no text."""
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise Problem("not-found", "no such path: it is not UTF-8") from None
