"""Plans: operations of several calls, without I/O, for the async and the sync transport."""

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar, cast

from sublet.errors import JobsError
from sublet.protocol.scripts import Call

T = TypeVar("T")

Plan = Generator[Call[Any], Any, T]
"""A generator that yields calls, receives their replies, and returns the result of the operation."""


async def follow(run: Callable[[Call[Any]], Awaitable[Any]], plan: Plan[T]) -> T:
    """Run a plan to its end, sending calls with `run`. An error of a call is raised inside the plan."""
    answer, failure = None, None
    while True:
        try:
            call = plan.throw(failure) if failure else plan.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        try:
            answer, failure = await run(call), None
        except JobsError as error:
            failure = error


def follow_sync(run: Callable[[Call[Any]], Any], plan: Plan[T]) -> T:
    """Run a plan without an event loop, as `follow` does."""
    answer, failure = None, None
    while True:
        try:
            call = plan.throw(failure) if failure else plan.send(answer)
        except StopIteration as end:
            return cast(T, end.value)
        try:
            answer, failure = run(call), None
        except JobsError as error:
            failure = error
