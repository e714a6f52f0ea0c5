"""The platform's Redis: the embedded server, on a folder that keeps its data from one start to the next."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from sublet.connection.settings import Settings
from sublet.connection.transport import Transport
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import JobsError, Unavailable
from sublet.protocol import server_info

ANSWER_SECONDS = 1.5
"""How long it may take to answer a question."""
START_SECONDS, HURRY_SECONDS = 60.0, 1.0
"""How long to wait for a start that is under way, to end what it has started; and how long when there is no time."""


PREFIX, LOCKS = "sublet-dev-", ("platform.lock", "server.lock")
"""How temporary folders are called, and the files in them that are locked as long as a platform, and its server, live."""
FRESH = 60.0
"""Seconds for which a folder is left alone whatever its locks say: somebody may be about to take them."""


@contextlib.contextmanager
def temporary() -> Iterator[Path]:
    """A folder for this time alone, locked until the end. What platforms that were killed have left of theirs goes now."""
    sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    with open(folder / LOCKS[0], "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def sweep(among: Path) -> None:
    """Remove this user's temporary folders here of which no platform and no server lives any more."""
    for folder in among.glob(f"{PREFIX}*"):
        with (
            contextlib.suppress(OSError),
            contextlib.ExitStack() as locks,
        ):  # alive, or being removed by somebody else
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            for name in LOCKS:
                lock = locks.enter_context(open(folder / name, "rb"))
                if time.time() - os.fstat(lock.fileno()).st_mtime < FRESH:
                    break
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                shutil.rmtree(folder, ignore_errors=True)


class RedisService:
    """The embedded server on a folder. What it has acknowledged is there again when it is started anew, at the same URL."""

    name = "server"

    def __init__(self, folder: Path, temporary: bool) -> None:
        self.folder, self._temporary = folder, temporary
        self.url = ""
        """Where it is, once it is up."""
        self._server: EmbeddedServer | None = None
        self._lock = threading.Lock()
        self._over = False
        self._transport: Transport | None = None

    def start(self) -> str:
        """Start it on its data. Raises Unavailable."""
        began = time.monotonic()
        with self._lock:
            if self._over:
                raise Unavailable("the platform is on its way out")
            self._server = server = _start(self.folder)
        self.url = server.url
        kept = ", for this time alone (--data DIR keeps them)" if self._temporary else ""
        return f"{server.version} · {time.monotonic() - began:.1f} s · data in {self.folder}{kept}"

    @property
    def exit(self) -> int | None:
        """Its exit code; None while it lives."""
        return self._server.exit if self._server else 0

    @property
    def pid(self) -> int:
        """Its process."""
        return self._server.pid if self._server else 0

    async def answers(self) -> bool:
        """Does it tell the time?"""
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
        """Let go of the connection that asks."""
        if self._transport:
            await self._transport.aclose()

    def stop(self, at_once: bool = False) -> None:
        """End it: it closes its files first, unless `at_once`. One that is about to start dies with this process."""
        if self._lock.acquire(timeout=HURRY_SECONDS if at_once else START_SECONDS):
            try:
                if self._server:
                    self._server.stop(at_once)
            finally:
                self._lock.release()

    def close(self) -> None:
        """Start it no more."""
        self._over = True


def _start(folder: Path) -> EmbeddedServer:
    try:
        return EmbeddedServer.start(folder)
    except Unavailable as error:
        if " already " not in str(error):
            raise
        raise Unavailable(
            f"{error}: end it (another sublet dev, perhaps), or name another folder: --data DIR"
        ) from error
