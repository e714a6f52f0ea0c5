"""The person for whom this thread or asyncio task gives commands, as the audit records."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_person: ContextVar[str] = ContextVar("person", default="")


def person() -> str:
    """Return the person's name; if empty, commands are not recorded."""
    return _person.get()


@contextmanager
def acting_for(name: str) -> Iterator[None]:
    """In the `with` block, record commands in the audit as those of this person."""
    token = _person.set(name)
    try:
        yield
    finally:
        _person.reset(token)
