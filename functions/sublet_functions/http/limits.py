"""Limits of a server process."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of connections and requests."""

    connections: int = 4096
    """Most open connections. Each further one is answered 503 and closed."""
    line: int = 8192
    """Most bytes of the target in the request line."""
    field: int = 8190
    """Most bytes of each header. Must differ from `line`: in aiohttp's LineTooLong only the number differs.
    """
    headers: int = 100
    """Most header lines of a request."""
    head: int = 32 * 1024
    """Most bytes of the request line and headers together, about."""
    heads: int = 16 * 1024 * 1024
    """Most bytes of unfinished request lines and headers of all connections."""
    head_seconds: float = 10.0
    """Seconds from a request's first byte to the end of its headers."""
    body_seconds: float = 10.0
    """Seconds for the arrival of the whole body."""
    idle_seconds: float = 75.0
    """Seconds between two requests on a connection: longer than the 60 s after which gateways drop theirs."""
    send_seconds: float = 30.0
    """Seconds for the client to take a response, or a stream's piece."""
    linger_seconds: float = 1.0
    """Seconds that a connection stays half-open after its last response, which closing at once could discard.
    """
    held: int = 0
    """Most bytes of unfinished bodies of all connections; 0: `body_budget()`."""
