"""Limits of one server process: how many connections, and how large and slow a request may be."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the server. A request beyond one of them is refused with a problem that names it."""

    connections: int = 4096
    """Open at a time. Each further one is answered 503 and closed."""
    line: int = 8192
    """Bytes of the target in the request line."""
    field: int = 8190
    """Bytes of each header. Differs from `line`: aiohttp reports both as LineTooLong, and only the number tells which."""
    headers: int = 100
    """Header lines of a request."""
    head_seconds: float = 10.0
    """From the first byte of a request to the end of its headers."""
    body_seconds: float = 10.0
    """For the whole body."""
    idle_seconds: float = 75.0
    """Between two requests on a connection: longer than the 60 s after which gateways drop theirs."""
    send_seconds: float = 30.0
    """For the client to take a response, or one piece of a stream."""
    linger_seconds: float = 1.0
    """How long a connection stays half-open after its last response: closing at once could discard the response."""
    held: int = 256 * 1024 * 1024
    """Bytes of unfinished bodies that all connections together may hold."""
