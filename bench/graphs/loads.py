"""A load of `bench/workflows.py`, which a contestant's program gets as a variable."""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

VARIABLE = "BENCH_GRAPH"
ENTRY_BYTES = 16
"""Of a note in the tally."""
POLL, PAUSE, PATIENCE = 0.001, 0.005, 60.0


@dataclass(frozen=True)
class Load:
    """Workflows, each a fan of `size` jobs with one callback, or a chain of `size` jobs.

    Job `k` of workflow `w` has the number `w * jobs_each + k`. The callback is the last one.
    """

    shape: str = "fan"
    size: int = 2
    workflows: int = 1
    paced: bool = False
    """Is each workflow submitted when the one before has ended?"""
    slots: int = 100

    @property
    def jobs_each(self) -> int:
        return self.size + 1 if self.shape == "fan" else self.size

    @property
    def jobs(self) -> int:
        return self.workflows * self.jobs_each

    def numbers(self, workflow: int) -> range:
        return range(workflow * self.jobs_each, (workflow + 1) * self.jobs_each)

    def followers(self) -> Iterator[tuple[range, int]]:
        """Yield each job that waits, after those that it waits for."""
        for numbers in map(self.numbers, range(self.workflows)):
            if self.shape == "fan":
                yield numbers[:-1], numbers[-1]
            else:
                yield from ((numbers[k : k + 1], numbers[k + 1]) for k in range(self.size - 1))

    def variables(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self)), "BENCH_SLOTS": str(self.slots)}

    @classmethod
    def given(cls) -> "Load":
        return cls(**json.loads(os.environ.get(VARIABLE, "{}")))

    def is_over(self, workflow: int) -> bool:
        try:
            size = os.stat(os.environ["BENCH_FINISHED"]).st_size
        except FileNotFoundError:
            size = 0
        return size >= (workflow + 1) * self.jobs_each * ENTRY_BYTES

    def await_end(self, workflow: int) -> None:
        until = time.monotonic() + PATIENCE
        while not self.is_over(workflow) and time.monotonic() < until:
            time.sleep(POLL)
        time.sleep(PAUSE)
