"""The platform's temporary folder: the same path, and server URL, at each start in a project."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from sublet.errors import Unavailable

PREFIX, LOCKS = "sublet-dev-", ("platform.lock", "server.lock")
FRESH = 60.0
LOCK_SECONDS = 1.0
FOLDERS_MAX = 100
_POLL = 0.02


class TemporaryFolder(NamedTuple):
    """A locked folder, and the reason if it is not the usual one of the project (else empty)."""

    path: Path
    reason: str


class _Taken(Exception):
    pass


@contextlib.contextmanager
def temporary(project: Path) -> Iterator[TemporaryFolder]:
    """Yield the temporary folder of `project`, locked and empty; remove it afterwards. If it
    cannot be used, yield another, whose path ends with a number. Raises Unavailable if all numbers are taken.
    """
    among = Path(tempfile.gettempdir())
    sweep(among)
    name = hashlib.sha256(os.fsencode(project.resolve())).hexdigest()[:8]
    reason = ""
    for number in range(1, FOLDERS_MAX + 1):
        folder = among / f"{PREFIX}{os.getuid()}-{name}{'' if number == 1 else f'-{number}'}"
        try:
            lock = _take(folder)
        except _Taken as taken:
            reason = reason or str(taken)
            continue
        with lock:
            try:
                yield TemporaryFolder(folder, reason)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return
    raise Unavailable(f"no temporary folder can be used: {reason}; use --data DIR")


def sweep(among: Path) -> None:
    """Remove from `among` this user's temporary folders that are unlocked, and unused for a minute."""
    for folder in among.glob(f"{PREFIX}*"):
        # OSError: in use, or being removed
        with contextlib.suppress(OSError), contextlib.ExitStack() as locks:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            there = [folder / name for name in LOCKS if (folder / name).exists()]
            if time.time() - max(path.stat().st_mtime for path in there or [folder]) < FRESH:
                continue
            for name in LOCKS:  # a platform killed at its start may not have made them
                fcntl.flock(locks.enter_context(open(folder / name, "ab")), fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


def _take(folder: Path) -> IO[bytes]:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        try:
            status = folder.lstat()
            if folder.is_symlink() or status.st_uid != os.getuid() or status.st_mode & 0o077:
                raise _Taken(
                    f"{folder} is a link, or belongs or is open to others: remove it, or use --data DIR"
                )
            lock = open(folder / LOCKS[0], "ab")  # noqa: SIM115  # held until the process ends
        except FileNotFoundError:
            continue  # its platform has just ended
        except OSError as error:
            raise _Taken(f"{folder} cannot be used: {error.strerror}") from None
        if _lock(lock, folder):
            return lock
        lock.close()
        if time.monotonic() > deadline:
            raise _Taken(f"another `sublet dev` of this project, or its server, uses {folder}")
        time.sleep(_POLL)


def _lock(lock: IO[bytes], folder: Path) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(lock.fileno()), os.stat(folder / LOCKS[0])):
            return False
        with open(folder / LOCKS[1], "ab") as server:
            fcntl.flock(server, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for path in folder.iterdir():
                if path.name in LOCKS:
                    os.utime(path)
                elif path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink()
    except OSError:
        return False
    return True
