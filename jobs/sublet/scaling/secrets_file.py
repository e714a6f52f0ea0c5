"""A file of secrets, which may change while the process runs."""

import stat
import time
from pathlib import Path

from sublet.errors import Invalid

CHECK_EVERY = 1.0

_Stamp = tuple[int, int, int]


class SecretsFile:
    """A file with secrets. `what` names the secrets in messages; `most`: the largest size in characters."""

    def __init__(self, path: str | Path, what: str, most: int) -> None:
        self.path, self._what, self._most = Path(path), what, most
        self._stamp = self._read_stamp()
        self._checked_at = time.monotonic()

    def text(self) -> str:
        """Read the file; return its text. Raises Invalid if it cannot be read or is too large."""
        try:
            # Opening a pipe or a device could block without end.
            if not stat.S_ISREG(self.path.stat().st_mode):
                raise Invalid(
                    f"the file of {self._what} {self.path} cannot be read: it is not a regular file"
                )
            with self.path.open(encoding="utf-8-sig", errors="replace") as file:
                text = file.read(self._most + 1)
        except OSError as error:
            raise Invalid(f"the file of {self._what} {self.path} cannot be read: {error.strerror}") from None
        if len(text) > self._most:
            raise Invalid(
                f"the file of {self._what} {self.path} has more than {self._most:,} characters: shorten it"
            )
        return text

    def has_changed(self) -> bool:
        """Whether the file's time, size or inode has changed since the last check; False within 1 s of it."""
        now = time.monotonic()
        if now - self._checked_at < CHECK_EVERY:
            return False
        self._checked_at = now
        before, self._stamp = self._stamp, self._read_stamp()
        return self._stamp != before

    def _read_stamp(self) -> _Stamp | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
