"""An app's settings, its sync client, and a client per event loop, which closes when its loop ends."""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sublet.errors import Invalid
from sublet.large_payloads.backend import LargePayloads
from sublet.large_payloads.storage import Storage

if TYPE_CHECKING:
    from sublet.client.client import Client
    from sublet.client.sync_client import SyncClient
    from sublet.client.workflow import Workflow
    from sublet.connection.settings import Settings
    from sublet.operations.operations import Operations

Loop = asyncio.AbstractEventLoop


class LoopClients:
    """One client for each event loop. Threads, each with its own loop, may share this object."""

    def __init__(self, make: "Callable[[], Client]") -> None:
        self._make = make
        self.latest: tuple[Loop | None, Client | None] = (None, None)
        self._clients: dict[Loop, tuple[Client, AsyncGenerator[None, None]]] = {}

    def get(self) -> "Client":
        """Return the running loop's client, made at first use."""
        loop = asyncio.get_running_loop()
        latest, client = self.latest
        if client is None or latest is not loop:
            client = self._of(loop)
            self.latest = loop, client
        return client

    def _of(self, loop: Loop) -> "Client":
        if loop not in self._clients:
            for ended in [one for one in tuple(self._clients) if one.is_closed()]:
                self._clients.pop(ended, None)  # a loop that ended without `shutdown_asyncgens`
            client = self._make()
            self._clients[loop] = client, self._closing(loop, client)
        return self._clients[loop][0]

    def _closing(self, loop: Loop, client: "Client") -> AsyncGenerator[None, None]:
        closing = self._close_at_end(loop, client)
        with contextlib.suppress(StopIteration):
            closing.__anext__().send(None)  # to its `yield`
        return closing

    async def _close_at_end(self, loop: Loop, client: "Client") -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._clients.pop(loop, None)
            if self.latest[0] is loop:
                self.latest = None, None
            await client.aclose()

    async def aclose(self) -> None:
        """Close the running loop's client, if it has one. A later `get` makes another."""
        found = self._clients.get(asyncio.get_running_loop())
        if found:
            await found[1].aclose()


class Connections:
    """An app's settings, and the clients made from them at first use. `given`: its Redis URL and namespace
    (None: the environment's); `large`: its options for large payloads.
    """

    def __init__(
        self, given: "tuple[str | None, str | None]", settings: "Settings | None", large: Mapping[str, Any]
    ) -> None:
        self._given, self._large = given, large
        self._settings = settings and self._with_large(settings)
        self._is_explicit = settings is not None
        self._operations: Operations | None = None
        self._clients = LoopClients(self._new_client)
        self._sync: SyncClient | None = None

    @property
    def settings(self) -> "Settings":
        """The app's settings, given or read from the environment at first use. Raises Invalid."""
        if self._settings is None:
            from sublet.connection.settings import Settings

            self._settings = self._with_large(Settings.read(*self._given))
        return self._settings

    @settings.setter
    def settings(self, settings: "Settings") -> None:
        """Replace the app's settings. Clients made before keep the old ones."""
        self._settings, self._is_explicit, self._operations = self._with_large(settings), True, None

    def _with_large(self, settings: "Settings") -> "Settings":
        given = self._large
        if given and settings.client_factory and settings.large_payloads:  # a sandbox has its own backend
            given = {name: value for name, value in given.items() if name != "large_payloads"}
        return replace(settings, **given) if given else settings

    @property
    def large_payloads(self) -> LargePayloads | None:
        """The backend given to the app, also by `settings`; else None, even if the environment names one."""
        backend: LargePayloads | None = self._large.get("large_payloads")
        if backend is None and self._is_explicit and self._settings is not None:
            return self._settings.large_payloads
        return backend

    def storage(self, settings: "Settings | None" = None) -> Storage | None:
        """Return the storage for large payloads in the namespace of these settings, or of the app's; None
        without a backend. Raises Invalid.
        """
        if not (settings or self._settings or self._large or os.environ.get("SUBLET_LARGE_PAYLOADS")):
            return None
        return self._with_large(settings or self.settings).storage

    @contextlib.contextmanager
    def using(self, settings: "Settings") -> Iterator[None]:
        """In the `with` block, use these settings and new clients. The block's end closes the new sync client
        and restores the old ones; before that, await `App.aclose` for the async one. Raises Invalid if the
        app is in a sandbox.
        """
        if self._settings is not None and self._settings.client_factory is not None:
            raise Invalid(
                "this app is in a sandbox already: leave that sandbox first (was it entered and never left?)"
            )
        before = self._settings, self._operations, self._clients, self._sync
        self._settings, self._operations, self._sync = self._with_large(settings), None, None
        self._clients = LoopClients(self._new_client)
        try:
            yield
        finally:
            if self._sync is not None:
                self._sync.close()
            self._settings, self._operations, self._clients, self._sync = before

    @property
    def operations(self) -> "Operations":
        """Functions that plan Redis calls, one per operation; the clients run them."""
        if self._operations is None:
            from sublet.operations.operations import Operations

            self._operations = Operations(self.settings)
        return self._operations

    def _new_client(self) -> "Client":
        from sublet.client.client import Client

        return Client(self.settings, operations=self.operations)

    @property
    def sync(self) -> "SyncClient":
        """The client for code without an event loop, made at first use."""
        if self._sync is None:
            from sublet.client.sync_client import SyncClient

            self._sync = SyncClient(self.settings, operations=self.operations)
        return self._sync

    def workflow(self, workflow_id: str = "") -> "Workflow":
        """Make a workflow, or return a stored one, as `Client.workflow` of the running loop's client."""
        return self._clients.get().workflow(workflow_id)

    async def aclose(self) -> None:
        """Close `sync` and the running loop's client; a later use connects again."""
        await self._clients.aclose()
        if self._sync:
            self._sync.close()
