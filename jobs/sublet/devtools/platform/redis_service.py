"""The platform's Redis: an embedded server."""

import threading
import time
from dataclasses import replace
from pathlib import Path

from sublet.connection.settings import Settings
from sublet.connection.transport import Transport
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import JobsError, Unavailable
from sublet.protocol import server_info

ANSWER_SECONDS = 1.5
ORPHAN_SECONDS = 15.0
START_SECONDS, HURRY_SECONDS = 60.0, 1.0


class RedisService:
    """The server of one `sublet dev`. A restart keeps the URL and all acknowledged data."""

    name = "server"

    def __init__(self, folder: Path, temporary: bool, others: int = -1) -> None:
        self.folder, self._temporary, self._others = folder, temporary, others
        self.url = ""
        self._server: EmbeddedServer | None = None
        self._lock = threading.Lock()
        self._over = False
        self._transport: Transport | None = None

    def start(self) -> str:
        """Start the server on its data; return a description. Raises Unavailable."""
        began = time.monotonic()
        with self._lock:
            if self._over:
                raise Unavailable("the platform is stopping")
            self._server = server = _start(self.folder, self._others)
        self.url = server.url
        kept = ", deleted at the end (--data DIR keeps them)" if self._temporary else ""
        return f"{server.version}, started in {time.monotonic() - began:.1f} s · data in {self.folder}{kept}"

    @property
    def exit(self) -> int | None:
        """The server's exit code; None while it runs; 0 before the start."""
        return self._server.exit if self._server else 0

    @property
    def pid(self) -> int:
        """The server's process id, or 0."""
        return self._server.pid if self._server else 0

    async def is_healthy(self) -> bool:
        """Return within a few seconds whether the server answers."""
        if self._transport is None:
            settings = replace(
                Settings(redis_url=self.url), timeout=ANSWER_SECONDS, patience=ANSWER_SECONDS / 2
            )
            self._transport = Transport(settings)
        try:
            await self._transport.run(server_info.clock())
        except JobsError:
            return False
        return True

    async def aclose(self) -> None:
        """Close the connection of the health checks."""
        if self._transport:
            await self._transport.aclose()

    def stop(self, at_once: bool = False) -> None:
        """Stop the server, `at_once` with SIGKILL. First wait for a start under way; if it takes over 60 s
        (`at_once`: 1 s), stop nothing.
        """
        if self._lock.acquire(timeout=HURRY_SECONDS if at_once else START_SECONDS):
            try:
                if self._server:
                    self._server.stop(at_once)
            finally:
                self._lock.release()

    def close(self) -> None:
        """From now on, let `start` fail."""
        self._over = True


def _start(folder: Path, others: int) -> EmbeddedServer:
    try:
        return EmbeddedServer.start(folder, others=others, grace=ORPHAN_SECONDS if others >= 0 else 0.0)
    except Unavailable as error:
        if " already " not in str(error):
            raise
        raise Unavailable(
            f"another server already runs on {folder}: stop it (perhaps another sublet dev or demo), or use another "
            "folder: --data DIR, for the demo another current folder"
        ) from error
