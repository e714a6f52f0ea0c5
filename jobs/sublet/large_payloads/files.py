"""Large payloads as files in a directory that all processes share."""

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from uuid import uuid4

from sublet.errors import Invalid

NAME = re.compile(r"([A-Za-z0-9_.:-]{1,128})/([A-Za-z0-9_.:-]{2,200})")
TEMPORARY = ".new-"
"""How the name of an unfinished file begins."""
UNFINISHED_SECONDS = 86_400.0
"""The age at which `scan` deletes an unfinished file: its writer has died."""


class Files:
    """Files in a directory: `DIRECTORY/NAMESPACE/xx/NAME`, where `xx` are the name's first two characters.

    A write creates missing directories. Only the owner can read these and the files (modes 0700 and 0600).
    Raises Invalid for a relative directory.
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)
        if not self.directory.is_absolute():
            raise Invalid(f"large_payloads: directory {str(directory)!r}: use an absolute path")
        self.address = str(self.directory)

    def __repr__(self) -> str:
        return f"Files({self.address!r})"

    def put(self, name: str, data: bytes) -> None:
        """Write an object to a new file, sync it to disk, and rename it. Raises OSError."""
        path = self._path(name)
        for folder in reversed((path.parent, *path.parents[1:])):
            with contextlib.suppress(FileExistsError):
                folder.mkdir(0o700)
                _sync(folder.parent)
        new = path.with_name(f"{TEMPORARY}{uuid4().hex}")
        try:
            with open(new, "xb", opener=_private) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        _sync(path.parent)

    def get(self, name: str) -> bytes:
        """Return an object's bytes. Raises KeyError if it does not exist, OSError if the
        directory does not.
        """
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            if not self.directory.is_dir():
                raise
            raise KeyError(name) from None

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; ignore missing ones. Raises OSError."""
        for name in names:
            self._path(name).unlink(missing_ok=True)

    def scan(self, prefix: str, after: str, limit: int) -> Sequence[tuple[str, float]]:
        """Return up to `limit` names that begin with `prefix` and sort behind `after`, in order, each with its
        age in seconds. Deletes day-old unfinished files.
        """
        found: list[tuple[str, float]] = []
        root, last = self.directory / prefix.rstrip("/"), after.removeprefix(prefix)
        for folder in sorted(_names(root)):
            for name in sorted(_names(root / folder)) if folder >= last[:2] else ():
                with contextlib.suppress(FileNotFoundError):  # another process has deleted it
                    age = time.time() - (root / folder / name).stat().st_mtime
                    if name.startswith(TEMPORARY):
                        if age > UNFINISHED_SECONDS:
                            (root / folder / name).unlink()
                    elif name > last:
                        found.append((f"{prefix}{name}", age))
                        if len(found) >= limit:
                            return found
        return found

    def _path(self, name: str) -> Path:
        parts = NAME.fullmatch(name)
        if not parts or parts[1] in (".", "..") or parts[2].startswith("."):
            raise ValueError(
                f"name {name[:250]!r}: use NAMESPACE/NAME of A-Z a-z 0-9 _ . : -, where NAME has 2 to 200 characters and "
                "does not begin with a dot, and NAMESPACE has 1 to 128 and is not . or .."
            )
        return self.directory / parts[1] / parts[2][:2] / parts[2]


def _names(folder: Path) -> Iterator[str]:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            yield entry.name


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
