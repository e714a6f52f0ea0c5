"""An HTTP request, independent of server and platform."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

VERSION = "1"
"""Version of the API; it changes when clients must change."""
Count = Callable[[int], None]
"""Called with the size of each piece of a body, and at the end with minus their sum. May raise Problem."""


class Read(Protocol):
    """A function that reads the body of one request."""

    def __call__(self, most: int, count: Count | None = None, /) -> Awaitable[bytes]:
        """Return the whole body. Raises Problem for over `most` bytes, a slow or cut off body, or too many
        bodies at once.
        """
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    """The path as sent, percent-encoded, without the query."""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers by lower-case name."""
    body: bytes = field(default=b"", repr=False)
    read: Read | None = field(default=None, repr=False)
    """Reads the body after authentication, if the adapter has left it on the socket; None: it is in `body`."""
    streams: bool = True
    """Whether the response can be sent in pieces. If not, a stream has one page."""
    prefix: str = ""
    """The percent-encoded path at which the client finds the API; links begin with it."""


def quote_path(path: bytes) -> str:
    """Percent-encode a path, as URLs show it."""
    return quote(path, safe="/:@!$&'()*+,;=~")


def decode_header(value: str) -> str:
    """Decode a header as UTF-8 if a server has decoded it as Latin-1; else return `value`."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def fold_headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by lower-case name, repeated ones joined with commas (RFC 9110, 5.3)."""
    found: dict[str, str] = {}
    for name, value in pairs:
        name, value = name.lower(), decode_header(value)
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
