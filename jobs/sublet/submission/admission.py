"""Admission control: refuse new jobs before a server's memory is full, so that claims and results
have some.
"""

import math
import threading
import time
from collections.abc import Sequence

from sublet.errors import Forbidden, OutOfMemory, Refused, Unfit
from sublet.model import Submission
from sublet.protocol import server_info
from sublet.protocol.plan import Plan
from sublet.protocol.server_info import Memory

REPORT_SECONDS = 1.0
SILENT_SECONDS = 60.0
"""Seconds until a server that hides its memory from this user is asked again; until then, any size fits."""
PART = 16
"""A process asks again after filling a 16th of the free memory (divided by the partitions), or after 1 s."""
JOB_BYTES = 1024
"""Estimated bytes of memory of a job, besides its payload."""
FIRING_BYTES = 1 << 20
"""Most payload bytes that one firing of schedules stores."""
SCRIPT_BYTES = 1 << 20
"""`check` admits so many estimated bytes, enough for any submit's script, while memory use is below the share."""


def estimated_bytes(jobs: Sequence[Submission]) -> int:
    """Estimate the Redis memory (bytes) for these jobs."""
    return len(jobs) * JOB_BYTES + sum([len(job.payload) for job in jobs]) * 5 // 4


class Admission:
    """The free memory of each partition's server, as this process knows it. `share`: how much of maxmemory
    may be used (0 to 1).
    """

    def __init__(self, share: float, partitions: int = 1) -> None:
        self._share, self._partitions = share, partitions
        self._valid_until: dict[str, float] = {}
        self._free: dict[str, float] = {}
        self._in_flight: dict[int, int] = {}  # by thread: no thread writes to another's entry

    def begin(self, size: int) -> None:
        """Count `size` bytes of this thread's jobs as being submitted, until `end`."""
        thread = threading.get_ident()
        self._in_flight[thread] = self._in_flight.get(thread, 0) + size

    def end(self, size: int) -> None:
        """Stop counting these `size` bytes: the submit is over."""
        self._in_flight[threading.get_ident()] -= size

    def admit(self, base: str, size: int) -> bool:
        """Whether `size` bytes fit into the memory that may be filled before the server is asked again. If
        so, subtract them, and `begin`.
        """
        free = self._free.get(base, 0) if time.monotonic() < self._valid_until.get(base, -math.inf) else 0
        if size > free:
            return False
        if free != math.inf:
            self._free[base] = free - size
        self.begin(size)
        return True

    def check(self, base: str, size: int) -> Plan[OutOfMemory | None]:
        """Ask the server for its free memory, for `admit`. Return (not raise) OutOfMemory if `size` bytes do
        not fit; else, or if it does not let this user ask, None. While any is free, 1 MiB fits.
        """
        now = time.monotonic()
        self._valid_until[base] = now + REPORT_SECONDS  # others use the last report
        seen = yield from read_memory(base)
        if seen is None or not seen.used:
            self._valid_until[base], self._free[base] = now + SILENT_SECONDS, math.inf
            return None
        in_flight = sum([*self._in_flight.values()])
        free = seen.most * self._share - seen.used - in_flight if seen.most else math.inf
        self._free[base] = free / PART / self._partitions - size
        if free >= (size if size > SCRIPT_BYTES else 0):
            return None
        more = ", with more jobs on their way," if seen.used < seen.most * self._share else ""
        return OutOfMemory(
            f"Redis has used {seen.used / seen.most:.0%} of its memory{more} and takes no new job from {self._share:.0%} on "
            "(SUBLET_MEMORY); workers still empty it: add workers, or raise maxmemory"
        )


def read_memory(base: str) -> Plan[Memory | None]:
    """Return memory use, limit and eviction policy of a partition's server; None if it does not
    show them.
    """
    try:
        seen: Memory | None = yield server_info.memory(base)
    except (
        Refused,
        Forbidden,
        Unfit,
    ):
        return None
    return seen
