"""HTTP responses, and values encoded as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from sublet.model import format_moment

log = logging.getLogger(__name__)

JSON = "application/json"
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}
DISCARD_SECONDS = 2.0
"""Most seconds to clean up after a response that was not delivered."""
DEPTH_MAX = 200
"""If the encoder refuses a value, parts nested deeper than so many levels become `…`."""


@dataclass(slots=True)
class Response:
    """One HTTP response; a body that is an iterator is streamed."""

    status: int
    body: bytes | AsyncIterator[bytes] = field(default=b"", repr=False)
    headers: dict[str, str] = field(default_factory=dict)
    on_unsent: Callable[[], Awaitable[None]] | None = None
    """Called if the response was not delivered; a claim then releases its jobs."""
    reads: int = 0
    """About how many Redis commands it took if their number grows with the data, else 0."""
    read_at: float = math.inf
    """When the data was read (monotonic clock) if before the request, else infinite."""
    finite: bool = False
    """Whether a stream ends by itself soon after the server begins to stop."""

    async def close(self) -> None:
        """Close the iterator of a streamed body."""
        if isinstance(self.body, AsyncGenerator):
            await self.body.aclose()

    async def discard(self) -> None:
        """Close the stream of an undelivered response, and call `on_unsent`, in at most DISCARD_SECONDS.
        Errors are logged, not raised.
        """
        try:
            async with asyncio.timeout(DISCARD_SECONDS):
                await self.close()
                if self.on_unsent:
                    await self.on_unsent()
        except Exception as error:  # noqa: BLE001  see above
            log.warning(
                "an undelivered response was not cleaned up: unexpected %s; leases in it end when they expire",
                type(error).__name__,
            )


class StreamShutdown:
    """A server's open streams, to be ended when it stops."""

    def __init__(self) -> None:
        self.open: set[asyncio.Timeout] = set()
        self.stopped = False

    def stop(self) -> None:
        """End all open streams; later ones end at once."""
        self.stopped = True
        for timeout in self.open:
            timeout.reschedule(asyncio.get_running_loop().time())


def encode(value: Any) -> bytes:
    """Encode a value as JSON: NaN and infinity as null, invalid Unicode escaped, deep parts as `…`."""
    try:
        return to_json(value, inf_nan_mode="null")
    except (PydanticSerializationError, ValueError):
        return json.dumps(_mended(value)).encode()


def _mended(value: Any, depth: int = 0) -> Any:
    if depth > DEPTH_MAX:
        return "…"
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, Mapping):
        return {str(name): _mended(item, depth + 1) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(item, depth + 1) for item in value]
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    return format_moment(value) if isinstance(value, datetime) else to_jsonable_python(value)


def json_response(
    value: Any, status: int = 200, headers: Mapping[str, str] | None = None, reads: int = 0
) -> Response:
    """Return a response with `value` as JSON. `reads`: about how many Redis commands it took."""
    return Response(status, encode(value) + b"\n", {"Content-Type": JSON, **(headers or {})}, reads=reads)


def timestamp(milliseconds: float) -> str:
    """Format ms since 1970 by RFC 3339, in UTC."""
    return format_moment(datetime.fromtimestamp(milliseconds / 1000, UTC))
