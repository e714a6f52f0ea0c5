"""What a handler is given and gives back, free of any framework: adapters turn their platform's requests into these."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from sublet.store.store import Store
    from sublet_functions.api.auth import Principal
    from sublet_functions.handlers.work import Workshop

B = TypeVar("B")
Q = TypeVar("Q")

Read = Callable[[int], Awaitable[bytes]]
"""Reads a request's body, at most so many bytes. Raises Problem for one that is longer, or does not come."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. The body is here already, or is read when somebody who may send it one is known to be there."""

    method: str
    path: str
    """As it was sent, without the query; still percent-encoded."""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""
    body: bytes = field(default=b"", repr=False)
    read: Read | None = field(default=None, repr=False)
    """Reads the body, where the adapter lets it wait on the wire."""
    streams: bool = True
    """Can the pieces of an answer be sent as they come? Otherwise it is sent when it is complete, and must not take long."""


@dataclass(slots=True)
class Reply:
    """One HTTP answer: its body is there, or comes piece by piece."""

    status: int
    body: bytes | AsyncIterator[bytes] = field(default=b"", repr=False)
    headers: dict[str, str] = field(default_factory=dict)
    unsent: Callable[[], Awaitable[None]] | None = None
    """What to do when the caller had hung up before this could be sent: a claim gives back what it took."""
    finishes: bool = False
    """Do the pieces come to an end by themselves when the server stops? Others are cut short at once."""


@dataclass(frozen=True, slots=True)
class Call(Generic[B, Q]):
    """A request that was let in, and read: what a handler gets."""

    store: Store
    who: Principal
    request: Request
    body: B = field(repr=False)
    query: Q
    words: Mapping[str, str]
    """The parts of the path that its template names."""
    workshop: Workshop | None = None
    """Where jobs are run, if this server has an app."""
    is_token: Callable[[str], bool] = field(default=lambda name: False, repr=False)
    """Is this the name of a token? Then a worker of that name is that token's alone."""


def as_text(value: str) -> str:
    """A header's value that was read as Latin-1, byte by byte, as the UTF-8 that it is meant to be; as it is, if it is none."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def folded(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by lower-case name; what came several times, with commas between."""
    found: dict[str, str] = {}
    for name, value in pairs:
        name, value = name.lower(), as_text(value)
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
