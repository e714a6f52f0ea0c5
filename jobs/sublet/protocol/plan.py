"""Plans: operations of several calls, for the async and the sync transport."""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar, cast

from sublet.errors import JobsError
from sublet.protocol.scripts import Call

R = TypeVar("R")
T = TypeVar("T")

Plan = Generator[Call[Any], Any, T]
"""A generator that yields calls, receives their replies, and returns the operation's result."""


async def follow(run: Callable[[R], Awaitable[Any]], plan: Generator[R, Any, T]) -> T:
    """Run a plan to its end and return its result. `run` sends each request; its JobsError is raised inside
    the plan.
    """
    answer, failure = None, None
    while True:
        try:
            request = plan.throw(failure) if failure else plan.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        try:
            answer, failure = await run(request), None
        except JobsError as error:
            failure = error


def follow_sync(run: Callable[[R], Any], plan: Generator[R, Any, T]) -> T:
    """Run a plan without an event loop, as `follow` does."""
    answer, failure = None, None
    while True:
        try:
            request = plan.throw(failure) if failure else plan.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        try:
            answer, failure = run(request), None
        except JobsError as error:
            failure = error
