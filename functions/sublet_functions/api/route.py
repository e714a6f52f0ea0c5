"""The type of the API's routes."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from sublet_functions.handlers.call import Call
from sublet_functions.http.auth import Role
from sublet_functions.http.body import BODY_MAX
from sublet_functions.http.response import Response

B = TypeVar("B", bound=BaseModel)
Q = TypeVar("Q", bound=BaseModel)


@dataclass(frozen=True)
class Route(Generic[B, Q]):
    """One route of the API: method, path, handler and what the handler needs. The handler's docstring
    describes it.
    """

    method: str
    path: str
    roles: frozenset[Role]
    """Roles that may use it: one of them, or `admin`, is enough. Empty: no token is needed."""
    handler: Callable[[Call[B, Q]], Awaitable[Response]]
    body: type[B]
    query: type[Q]
    responses: Mapping[int, Any]
    """What the body is for each status: a model, a media type, a tuple of these, or None."""
    problems: tuple[str, ...] = ()
    """Slugs of problems that it may answer with, besides those of all routes, and of its roles, method and body."""
    alias: str = ""
    """A second path for it; empty: none."""
    most: int = BODY_MAX
    """Most bytes of a request's body."""
    headers: tuple[str, ...] = ()
    """Names of its special headers, which `sublet_functions.api.openapi` describes."""
    signed: bool = False
    """Whether a signature is accepted instead of a token."""
    events: bool = False
    """Whether a CloudEvent is accepted as the body."""
