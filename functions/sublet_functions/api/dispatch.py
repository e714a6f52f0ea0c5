"""Answer requests: find the route, authenticate, parse, call the handler."""

import logging
import os
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sublet.errors import Busy, Invalid, JobsError, NotFound, Unavailable
from sublet.protocol.person import acting_for
from sublet.scaling.signing import Secrets
from sublet.store.outage_log import QUIET, OutageLog
from sublet.store.store import Store
from sublet_functions.api.route import Route
from sublet_functions.api.routes import (
    ADMIN,
    BY_TOKEN,
    ERASING,
    ROUTES,
    SHARED,
    UNSAFE_GETS,
    WITH_PAYLOADS,
    WITHIN_QUEUES,
)
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.heartbeat import heartbeat, heartbeat_batch
from sublet_functions.handlers.known_tasks import KnownTasks
from sublet_functions.handlers.triggers import PLATFORM, is_passed_on, trigger
from sublet_functions.handlers.work import verify_signature
from sublet_functions.handlers.worker_host import WorkerHost
from sublet_functions.http.auth import Principal, Role, Tokens
from sublet_functions.http.body import BodyQueues, is_event, parse_body
from sublet_functions.http.cloudevents import read_event
from sublet_functions.http.problems import Problem, internal_error, problem_of
from sublet_functions.http.query import check_path, parse_query
from sublet_functions.http.request import VERSION, Request
from sublet_functions.http.response import SECURITY_HEADERS, Response
from sublet_functions.http.shared_reads import (
    HEADER,
    PAYLOAD_SECONDS,
    SECONDS_MAX,
    Patience,
    SharedReads,
    Sharing,
)
from sublet_functions.schemas.query import AnyQuery, Empty

if TYPE_CHECKING:
    from sublet.app import App

log = logging.getLogger(__name__)

BASE_PATH = "SUBLET_BASE_PATH"
_PATH = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*")
PAGES, FILES = "/ui/", "/ui/static/"
HEARTBEATS = frozenset({heartbeat, heartbeat_batch})
"""Handlers whose large bodies wait only behind other heartbeats: a late heartbeat loses the lease."""
CONDITIONS = ("if-match", "if-none-match", "if-unmodified-since")
"""Headers with preconditions (RFC 9110, 13.1), refused except for GET and HEAD."""
PUBLIC = Principal("", frozenset())

AnyRoute = Route[Any, Any]
Handler = Callable[[Call[Any, Any]], Awaitable[Response]]


@dataclass
class Api:
    """The HTTP API: answers requests. It keeps only connections and cached answers, so that any number of
    servers may run.
    """

    store: Store
    tokens: Tokens
    routes: tuple[AnyRoute, ...] = ROUTES
    worker_host: WorkerHost | None = None
    secrets: Secrets = field(default_factory=Secrets)
    """Secrets for signatures, with which `POST /work` needs no token."""
    app: "App | None" = None
    """The app whose tasks this server knows, besides the catalogue's."""
    check_tasks: str = ""
    """For a job whose task or arguments are wrong: `refuse`, `warn` or `off`; empty: by SUBLET_CHECK_TASKS."""
    base_path: str = field(default_factory=lambda: os.environ.get(BASE_PATH, ""))
    """The path below which a gateway serves the API (default: SUBLET_BASE_PATH); links begin with it. A
    malformed one raises Invalid.
    """
    _outage: OutageLog = field(default_factory=OutageLog, init=False)
    _failed_at: float = field(default=0.0, init=False)
    _queues: BodyQueues = field(default_factory=BodyQueues, init=False)
    _shared: SharedReads = field(default_factory=SharedReads, init=False)
    _shared_statistics: SharedReads = field(default_factory=SharedReads, init=False)
    _by_path: dict[str, dict[str, AnyRoute]] = field(default_factory=dict, init=False)
    _by_length: dict[int, list[tuple[tuple[str, ...], AnyRoute]]] = field(default_factory=dict, init=False)
    _known: KnownTasks = field(init=False)
    _no_query: dict[type, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.base_path = self.base_path.rstrip("/")
        if not _PATH.fullmatch(self.base_path):
            raise Invalid(
                f"{BASE_PATH}={self.base_path[:80]!r}: use a path that begins with /, percent-encoded"
            )
        self._known = KnownTasks(self.store, self.app, self.check_tasks)
        for route in self.routes:
            if not any(one.is_required() for one in route.query.model_fields.values()):
                self._no_query[route.query] = route.query()
            for path in filter(None, (route.path, route.alias)):
                if "{" in path:
                    parts = tuple(path.split("/"))
                    self._by_length.setdefault(len(parts), []).append((parts, route))
                else:
                    self._by_path.setdefault(path, {})[route.method] = route

    async def answer(self, request: Request, principal: Principal | None = None) -> Response:
        """Answer one request. Each error becomes a problem document; only CancelledError is raised.

        `principal`: a client that the platform has authenticated.
        """
        try:
            response = await self._answer(request, principal)
        except Problem as problem:
            response = problem.response()
        except JobsError as error:
            if isinstance(error, Busy):
                self._outage.hindered("answer everything", error)
            elif isinstance(error, Unavailable):
                self._outage.failed("answer", error)
                self._failed_at = time.monotonic()
            response = problem_of(error, request.method in ("GET", "HEAD")).response()
        except Exception as error:  # noqa: BLE001  one request must not end the server
            # the error's text may contain client data
            places = "".join(traceback.format_tb(error.__traceback__))
            name = type(error).__name__
            log.error("%s %s: unexpected %s at\n%s", request.method, request.path[:200], name, places)
            response = internal_error().response()
        response.headers = SECURITY_HEADERS | response.headers
        return response

    async def _answer(self, request: Request, principal: Principal | None) -> Response:
        if self.base_path:
            request = self._below(request)
        route, path = self.find(request)
        if route.handler is trigger and is_passed_on(request):
            principal = PLATFORM
        if principal is None and route.signed and "webhook-signature" in request.headers:
            request, principal = await verify_signature(request, self.tokens, self.secrets)
        principal = self.authorize(request, route, principal)
        _check_headers(request)
        if path:
            check_path(path)
        ignored = not request.query or route.query is AnyQuery
        query = self._no_query.get(route.query) if ignored else None
        if query is None:
            query = parse_query(request.query, route.query)
        body = await self._body(request, route, principal)
        call = Call(
            self.store,
            principal,
            request,
            body,
            query,
            path,
            self.worker_host,
            self._known,
        )
        response = await self._respond(route, call)
        if request.method == "HEAD":
            response.body = b""
        return response

    async def _respond(self, route: AnyRoute, call: Call[Any, Any]) -> Response:
        request = call.request
        shared = request.headers.get(HEADER.lower()) if route.handler in SHARED else None
        if route.handler in ERASING:
            try:
                return await self._handle(route, call)
            finally:
                self._shared.clear()
        if shared is None or getattr(call.query, "wait", False):
            return await self._handle(route, call)
        key = (request.path, request.query, request.prefix, seen_by(route, call.principal))
        life = PAYLOAD_SECONDS if route.handler in WITH_PAYLOADS else SECONDS_MAX
        patience = Patience.parse(shared)
        sharing = replace(call, sharing=Sharing(self._shared_statistics, patience))
        return await self._shared.answer(key, patience, lambda: self._handle(route, sharing), life)

    async def _handle(self, route: AnyRoute, call: Call[Any, Any]) -> Response:
        is_order = route.roles >= ADMIN and call.principal.roles >= ADMIN  # others are programs
        handler = _recorded(route.handler) if is_order else route.handler
        try:
            response = await handler(call)
        except (NotFound, Problem) as error:
            if isinstance(error, Problem) and error.slug != "not-found":
                raise
            response = await handler(replace(call, path=self._with_full_id(call.path, error)))
        if self._failed_at and route.roles:  # public routes do not ask Redis
            self._outage.over()
            if time.monotonic() - self._failed_at >= QUIET:
                self._failed_at = 0.0
        return response

    def _with_full_id(self, path: Mapping[str, str], error: Exception) -> dict[str, str]:
        given = path.get("id", "")
        full = given and self.store.operations.full_id(given)
        if full == given:
            raise error
        return {**path, "id": full}

    def _below(self, request: Request) -> Request:
        base, path = self.base_path, request.path
        if path == base or path.startswith(f"{base}/"):
            path = path[len(base) :] or "/"
        return replace(request, path=path, prefix=base + request.prefix)

    async def _body(self, request: Request, route: AnyRoute, principal: Principal) -> Any:
        if not request.read:
            return await _parse(request, route)
        name = principal.name
        if route.handler in HEARTBEATS:
            name += " heartbeats"
        with self._queues.enter(name, request.read) as read:
            return await _parse(replace(request, read=read), route)

    def authorize(self, request: Request, route: AnyRoute, principal: Principal | None = None) -> Principal:
        """Return the client: PUBLIC if the route needs no token; else `principal`; else that of the token or,
        if the request has none and the route takes CloudEvents, of SUBLET_OPEN. A server with neither tokens nor
        SUBLET_OPEN gives all roles. Raises Problem if the client may not use the route.
        """
        untrusted = self.tokens.untrusted_reason(request.headers) if principal is None else ""
        if untrusted:
            raise Problem("forbidden", untrusted)
        roles = route.roles
        if not roles:
            return PUBLIC
        authorization = request.headers.get("authorization")
        principal = principal or self.tokens.principal(authorization)
        if principal is None and route.events and authorization is None:
            principal = self.tokens.open_principal(roles)
        if principal is None:
            reason = "this request needs a token: send the header `Authorization: Bearer TOKEN`"
            if authorization is not None:
                reason = "the header Authorization has no token that is valid on this server: check the token, and send it as `Bearer TOKEN`"
            raise Problem("unauthorized", reason, headers={"WWW-Authenticate": "Bearer"})
        sufficient = roles | {Role.ADMIN}
        if not principal.roles & sufficient:
            raise Problem(
                "forbidden",
                f"the token of {principal.name} does not allow this request: use one with role {' or '.join(sorted(sufficient))}",
            )
        if principal.scope is not None and route.handler not in WITHIN_QUEUES:
            raise Problem(
                "forbidden",
                f"the token of {principal.name} is limited to the queues {principal.scope}: this request needs a token for all queues",
            )
        return principal

    def find(self, request: Request) -> tuple[AnyRoute, dict[str, str]]:
        """Return a request's route and path parameters; for HEAD the route of GET, unless that changes
        something. Raises Problem for an unknown path or method.
        """
        by_method = self._by_path.get(request.path, {})
        route = by_method.get(request.method)
        if route:
            return route, {}
        if by_method:  # an exact path has precedence
            return self._find_head(request, by_method)
        parts = request.path.split("/")
        found: dict[str, AnyRoute] = {}
        for shape, route in self._by_length.get(len(parts), ()):
            if all(a == b or a[:1] == "{" for a, b in zip(shape, parts, strict=True)) and all(parts[1:]):
                found.setdefault(route.method, route)
                if route.method == request.method:
                    pairs = zip(shape, parts, strict=True)
                    return route, {a[1:-1]: _decode(b) for a, b in pairs if a[:1] == "{"}
        if not found and request.path.startswith(PAGES) and not request.path.startswith(FILES):
            found = self._by_path[PAGES.rstrip("/")]
            route = found.get(request.method)
            if route:
                return route, {}
        return self._find_head(request, found)

    def _find_head(self, request: Request, found: dict[str, AnyRoute]) -> tuple[AnyRoute, dict[str, str]]:
        if not found:
            raise Problem("not-found", "no such path: GET / lists the main paths, GET /openapi.json all")
        readable = found.get("GET")
        has_head = readable is not None and readable.handler not in UNSAFE_GETS
        if request.method == "HEAD" and has_head:
            return self.find(Request("GET", request.path))
        allowed = sorted({*found, *(["HEAD"] if has_head else [])})
        raise Problem(
            "method-not-allowed",
            f"this path does not support {request.method[:20]}: use {' or '.join(allowed)}",
            headers={"Allow": ", ".join(allowed)},
        )

    async def aclose(self) -> None:
        """Close the connections to Redis."""
        await self.store.aclose()


def seen_by(route: AnyRoute, principal: Principal) -> object:
    """Return a value that is equal for clients that see the same in a route's answer."""
    if principal.scope is not None or route.handler in BY_TOKEN:
        return principal
    return principal.roles


def _check_headers(request: Request) -> None:
    headers = request.headers
    version = headers.get("sublet-version", VERSION)
    if version != VERSION:
        raise Problem(
            "unsupported-version",
            f"Sublet-Version: this server has version {VERSION} of the API: send {VERSION}, or leave the header out",
        )
    given = [name for name in CONDITIONS if name in headers]
    if given and request.method not in ("GET", "HEAD"):
        raise Problem(
            "precondition-failed",
            f"{given[0].title()}: not supported, so nothing was changed: send the `revision` that you read as a field of the body, where the "
            "route has one",
        )


def _recorded(handler: Handler) -> Handler:
    async def handle(call: Call[Any, Any]) -> Response:
        with acting_for(call.principal.name):
            return await handler(call)

    return handle


async def _parse(request: Request, route: AnyRoute) -> Any:
    if route.events and is_event(request.headers):
        return await read_event(request, route.most)
    if route.body is Empty:
        return Empty()
    return await parse_body(request, route.body, route.most)


def _decode(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise Problem(
            "not-found", "no such path: its percent-encoded bytes are not valid UTF-8: encode it again"
        ) from None
