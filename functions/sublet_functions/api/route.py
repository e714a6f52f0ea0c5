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
    """One route: its method, path, handler, roles, and the types of its request and responses. The handler's
    docstring is its description in the OpenAPI document.
    """

    method: str
    path: str
    roles: frozenset[Role]
    """A client needs one of these roles, or `admin`. Empty: public, no token is needed."""
    handler: Callable[[Call[B, Q]], Awaitable[Response]]
    body: type[B]
    query: type[Q]
    responses: Mapping[int, Any]
    """Status → the body's model, or its media type; a tuple for alternatives; None for no body."""
    problems: tuple[str, ...] = ()
    """Slugs of the problems that this route can return besides those of all routes."""
    alias: str = ""
    """Another path of the same route; empty for none."""
    most: int = BODY_MAX
    """Most bytes of the request's body."""
    headers: tuple[str, ...] = ()
    """Names of headers that only some routes have (see `sublet_functions.api.openapi`)."""
    signed: bool = False
    """Whether a signature is accepted instead of a token."""
    events: bool = False
    """Whether a CloudEvent is accepted as the body."""
