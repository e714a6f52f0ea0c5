"""Send the chunks that a task emits, in batches."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any

from pydantic_core import PydanticSerializationError

from sublet.errors import Invalid, JobsError, Unavailable
from sublet.steps.chunks import CHUNK_MAX, EMIT_MAX, Emission
from sublet.tasks.json.codec import JsonCodec

EMIT_EVERY = 0.05
"""Most seconds for which a chunk waits for more."""
BATCH_BYTES = 256 * 1024
KEPT_BYTES, KEPT_CHUNKS = 4 * BATCH_BYTES, 10 * EMIT_MAX
"""With so many unsent bytes or chunks, the next emit waits until all of them are sent."""


class Emitter:
    """Sends the chunks of one attempt by `send`; `again` waits before a repeated call. For one event loop."""

    def __init__(
        self, send: Callable[[Emission], Awaitable[Any]], again: Callable[[], Awaitable[None]]
    ) -> None:
        self._send, self._again = send, again
        self._unsent: list[bytes] = []
        self._bytes = self._sent = 0
        self._sent_at, self._is_over = 0.0, False
        self._error: JobsError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None

    async def add(self, chunk: bytes) -> None:
        """Add a chunk; it is sent within about 50 ms. First sends the earlier ones if they are too many.
        Raises the error of an earlier send.
        """
        if self._bytes >= KEPT_BYTES or len(self._unsent) >= KEPT_CHUNKS:
            await self.flush()
        if self._error:
            raise self._error
        self._unsent.append(chunk)
        self._bytes += len(chunk)
        self._plan()

    def _plan(self) -> None:
        if len(self._unsent) >= EMIT_MAX or self._bytes >= BATCH_BYTES:
            self._start()
        elif self._timer is None and self._sending is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(loop.time(), self._sent_at + EMIT_EVERY), self._start)

    def _start(self) -> None:
        self._stop_timer()
        if self._sending is None and self._unsent:
            self._sending = asyncio.get_running_loop().create_task(self._send_all())
            self._sending.add_done_callback(self._ended)

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = None

    def _ended(self, sending: "asyncio.Task[None]") -> None:
        self._sending = None
        if self._unsent and not self._error and not self._is_over:
            self._plan()

    async def _send_all(self) -> None:
        until = self._sent + len(self._unsent)
        while self._sent < until and not self._error:
            try:
                await self._send_batch()
            except Unavailable as error:
                if error.lasting:
                    self._error = error
                elif self._is_over:
                    return
                else:
                    await self._again()
            except JobsError as error:
                self._error = error

    async def _send_batch(self) -> None:
        size, batch = 0, list[bytes]()
        for chunk in self._unsent[:EMIT_MAX]:
            size += len(chunk)
            if batch and size > BATCH_BYTES:
                break
            batch.append(chunk)
        self._sent_at = asyncio.get_running_loop().time()
        await self._send(Emission(self._sent, batch))
        self._sent += len(batch)
        self._bytes -= sum(map(len, batch))
        del self._unsent[: len(batch)]

    async def flush(self) -> None:
        """Send all chunks now, again until the server answers. After another error some are left; `add`
        raises it.
        """
        while self._unsent and not self._error:
            self._start()
            if self._sending:
                await asyncio.wait([self._sending])

    async def finish(self) -> None:
        """Send what is left, before the attempt's outcome; try once. Raises the error of this, or an earlier,
        send.
        """
        self._is_over = True
        self._stop_timer()
        if self._sending:
            await asyncio.wait([self._sending])
        while self._unsent and not self._error:
            await self._send_batch()
        if self._error:
            raise self._error


@cache
def _codec() -> JsonCodec:
    return JsonCodec(Any, "a chunk")


def encoded(chunk: Any) -> bytes:
    """Return a chunk as JSON. Raises Invalid, e.g. above 64 KiB."""
    try:
        value: bytes = _codec().dump(chunk, warnings="error")
    except (PydanticSerializationError, ValueError) as error:
        raise Invalid(f"emit: the chunk cannot be written as JSON: {error}") from None
    if len(value) > CHUNK_MAX:
        raise Invalid(
            f"emit: a chunk of {len(value):,} bytes (JSON): at most {CHUNK_MAX:,} fit: emit it in parts"
        )
    return value
