"""An HTTP request as adapters hand it to the API: no server or platform is visible in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

Read = Callable[[int], Awaitable[bytes]]
"""Reads a request's body, at most so many bytes. Raises Problem if it is longer, too slow or cut off."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. Its body is in `body`, or `read` fetches it after the caller was authenticated."""

    method: str
    path: str
    """As sent, without the query; still percent-encoded."""
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""
    body: bytes = field(default=b"", repr=False)
    read: Read | None = field(default=None, repr=False)
    """Set by adapters that can leave the body on the socket."""
    streams: bool = True
    """Whether the adapter can send a response piece by piece. If not, a stream must end soon."""


def decode_header(value: str) -> str:
    """Decode a header that was read as Latin-1 as the UTF-8 it is meant to be; unchanged if it is not UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def fold_headers(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return headers by lower-case name; repeated ones are joined with commas (RFC 9110, 5.3)."""
    found: dict[str, str] = {}
    for name, value in pairs:
        name, value = name.lower(), decode_header(value)
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
