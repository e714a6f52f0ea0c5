"""Limits of a server process."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of connections and requests."""

    connections: int = 4096
    """Most open connections. Further ones are answered 503, or only closed."""
    line: int = 8192
    """Most bytes of the URL in a request line."""
    field: int = 8190
    """Most bytes of one header. It must differ from `line`, which tells aiohttp's errors apart."""
    headers: int = 100
    """Most header lines of a request."""
    head: int = 32 * 1024
    """Most bytes of the request line and headers together, about."""
    heads: int = 16 * 1024 * 1024
    """Most bytes of incomplete request lines and headers of all connections."""
    head_seconds: float = 10.0
    """Most seconds from a request's first byte to the end of its headers."""
    body_seconds: float = 10.0
    """Most seconds for reading one body."""
    idle_seconds: float = 75.0
    """Most seconds that a connection waits for a request, more than the 60 s of common gateways."""
    send_seconds: float = 30.0
    """Most seconds until the client has read most of a response, or of a stream's piece."""
    linger_seconds: float = 1.0
    """Seconds that a closing connection stays half open, so that its client reads the last response."""
    held: int = 0
    """Most bytes of all arriving bodies; more are refused. 0: an eighth of the memory, 16 to 256 MiB."""
