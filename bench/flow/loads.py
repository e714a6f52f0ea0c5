"""A load of `bench/limits.py`: the jobs of one queue, and its limits."""

import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "BENCH_LOAD"
SHARE = 10
"""One job in so many is not of the heavy tenant."""


@dataclass(frozen=True)
class Load:
    """Jobs, and the limits of their queue; 0: no limit."""

    jobs: int
    ms: int = 0
    """How long a job takes; 0: one turn of the event loop."""
    concurrency: int = 0
    rate: int = 0
    per_ms: int = 1000
    burst: int = 0
    """Tokens that Sublet saves up; 0: its default."""
    tenants: int = 0
    heavy: bool = False
    """Does tenant 0 have nine jobs in ten?"""
    grouped: bool = False
    """Is a job's tenant its group? BullMQ without Pro has no groups."""
    slots: int = 100

    def variables(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self)), "BENCH_SLOTS": str(self.slots)}

    @classmethod
    def given(cls) -> "Load":
        """Return the load of this process's variables; without them, one job."""
        return cls(**json.loads(os.environ.get(VARIABLE, '{"jobs": 1}')))

    def tenant(self, n: int) -> int:
        """Return the tenant of job `n`. The jobs of all tenants arrive mixed."""
        if not self.heavy:
            return n % self.tenants if self.tenants else 0
        return 1 + n // SHARE % (self.tenants - 1) if n % SHARE == SHARE - 1 else 0
