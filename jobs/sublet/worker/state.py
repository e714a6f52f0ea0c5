"""State that the loops of one worker share while it runs."""

import asyncio

from sublet.execution.attempt import Attempt
from sublet.store.outage_log import OutageLog
from sublet.worker.capacity import Capacity
from sublet.worker.time_budget import TimeBudget


class WorkerState:
    """The attempts of a worker, its capacity, its time budget, the outages that it sees, and whether it stops."""

    def __init__(self, capacity: Capacity, budget: TimeBudget) -> None:
        self.capacity = capacity
        self.budget = budget
        self.attempts: set[Attempt] = set()
        """Leases that the worker holds, also those whose outcome is not settled yet."""
        self.stopping = asyncio.Event()
        """Set when the worker must claim no more."""
        self.outage = OutageLog()

    @property
    def has_work(self) -> bool:
        """Does an attempt run or wait to be settled, or may an open claim bring one?"""
        return bool(self.attempts or self.capacity.reserved)
