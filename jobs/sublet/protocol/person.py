"""The person for whom this thread or task gives orders. The audit records it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_person: ContextVar[str] = ContextVar("person", default="")


def person() -> str:
    """Return for whom orders are given; empty for a program, whose orders are not recorded."""
    return _person.get()


@contextmanager
def acting_for(name: str) -> Iterator[None]:
    """Record the orders of this block as those of a person."""
    token = _person.set(name)
    try:
        yield
    finally:
        _person.reset(token)
