"""One route of the API's table."""

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
    """Method and path, roles, and types of request and responses. The handler's docstring describes it."""

    method: str
    path: str
    roles: frozenset[Role]
    """One suffices, and `admin` always. Empty for public routes."""
    handler: Callable[[Call[B, Q]], Awaitable[Response]]
    body: type[B]
    query: type[Q]
    responses: Mapping[int, Any]
    """Status → the body's model or other media type; a tuple for alternatives; None for no body."""
    problems: tuple[str, ...] = ()
    """Besides those of all routes."""
    alias: str = ""
    """Another path of the same route."""
    most: int = BODY_MAX
    """Bytes of the body."""
    headers: tuple[str, ...] = ()
    """Special headers, described in `sublet_functions.api.openapi`."""
    signed: bool = False
    """A signature replaces a token."""
    events: bool = False
    """A CloudEvent is accepted as the body."""
