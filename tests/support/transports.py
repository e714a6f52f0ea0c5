"""Calls over both transports."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from sublet.connection.settings import Settings
from sublet.connection.transport import SyncTransport, Transport
from sublet.protocol.scripts import Call


@contextlib.asynccontextmanager
async def sending(settings: Settings, kind: str) -> AsyncIterator[Callable[[Call[Any]], Awaitable[Any]]]:
    """Send calls over the transport `async` or `sync`."""
    if kind == "async":
        transport = Transport(settings)
        yield transport.run
        await transport.aclose()
    else:
        sync = SyncTransport(settings)
        yield lambda call: asyncio.to_thread(sync.run, call)
        sync.close()
