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
    """One route of the API. The handler's docstring is its description."""

    method: str
    path: str
    roles: frozenset[Role]
    """Roles of which one suffices; `admin` always does. Empty for public routes."""
    handler: Callable[[Call[B, Q]], Awaitable[Response]]
    body: type[B]
    query: type[Q]
    responses: Mapping[int, Any]
    """Status → the body's model or other media type; a tuple for alternatives; None for no body."""
    problems: tuple[str, ...] = ()
    """Slugs of problems besides those of all routes."""
    alias: str = ""
    """Another path of the same route, if any."""
    most: int = BODY_MAX
    """Most bytes of the body."""
    headers: tuple[str, ...] = ()
    """Headers of this route, described in `sublet_functions.api.openapi`."""
    signed: bool = False
    """Whether a signature is accepted instead of a token."""
    events: bool = False
    """Whether a CloudEvent is accepted as the body."""
