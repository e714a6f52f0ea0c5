"""A small file of secrets, which is read again when it has changed, so that they can be replaced without a restart."""

import stat
import time
from pathlib import Path

from sublet.errors import Invalid

LOOK_EVERY = 1.0
"""Seconds between two looks at a file."""

_Stamp = tuple[int, int, int]


class SecretsFile:
    """Where secrets are kept: `what` they are is for messages, `most` is how many characters the file may have."""

    def __init__(self, path: str | Path, what: str, most: int) -> None:
        self.path, self._what, self._most = Path(path), what, most
        self._stamp = self._look()
        self._looked_at = time.monotonic()

    def text(self) -> str:
        """What the file holds. Raises Invalid, with the place of what is wrong, and never with what stands there."""
        try:
            if not stat.S_ISREG(
                self.path.stat().st_mode
            ):  # to open a pipe or a device could mean to wait for ever
                raise Invalid(f"the file of {self._what} {self.path} cannot be read: it is no regular file")
            with self.path.open(encoding="utf-8-sig", errors="replace") as file:
                text = file.read(self._most + 1)
        except OSError as error:
            raise Invalid(f"the file of {self._what} {self.path} cannot be read: {error.strerror}") from None
        if len(text) > self._most:
            raise Invalid(f"the file of {self._what} {self.path} has more than {self._most:,} characters")
        return text

    def has_changed(self) -> bool:
        """Is it another one than when this was last asked? It is looked at once a second, at most."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY:
            return False
        self._looked_at = now
        before, self._stamp = self._stamp, self._look()
        return self._stamp != before

    def _look(self) -> _Stamp | None:
        """What changes when the file does, also when another takes its place; None where there is none."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino
