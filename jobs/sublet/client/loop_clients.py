"""The clients of an app: one for each event loop, closed when its loop ends."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sublet.client.client import Client

Loop = asyncio.AbstractEventLoop


class LoopClients:
    """Clients by event loop. Safe from threads with a loop each."""

    def __init__(self, make: "Callable[[], Client]") -> None:
        self._make = make
        self._latest: tuple[Loop | None, Client | None] = (None, None)
        self._clients: dict[Loop, tuple[Client, AsyncGenerator[None, None]]] = {}

    def get(self) -> "Client":
        """Return the running loop's client, made at first use."""
        loop = asyncio.get_running_loop()
        latest, client = self._latest
        if client is None or latest is not loop:
            client = self._of(loop)
            self._latest = loop, client
        return client

    def _of(self, loop: Loop) -> "Client":
        if loop not in self._clients:
            for ended in [one for one in tuple(self._clients) if one.is_closed()]:
                self._clients.pop(ended, None)  # a loop that ended without `shutdown_asyncgens`
            client = self._make()
            self._clients[loop] = client, self._closing(loop, client)
        return self._clients[loop][0]

    def _closing(self, loop: Loop, client: "Client") -> AsyncGenerator[None, None]:
        """Return a generator that closes the client at its `aclose`, which a loop calls before it ends."""
        closing = self._close_at_end(loop, client)
        with contextlib.suppress(StopIteration):
            closing.__anext__().send(None)  # to its `yield`; the loop now knows it
        return closing

    async def _close_at_end(self, loop: Loop, client: "Client") -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._clients.pop(loop, None)
            if self._latest[0] is loop:
                self._latest = None, None
            await client.aclose()

    async def aclose(self) -> None:
        """Close the running loop's client, if it has one. A later `get` makes another."""
        found = self._clients.get(asyncio.get_running_loop())
        if found:
            await found[1].aclose()
