"""State that the loops of one worker share."""

import asyncio

from sublet.execution.attempt import Attempt
from sublet.store.outage_log import OutageLog
from sublet.worker.capacity import Capacity
from sublet.worker.time_budget import TimeBudget


class WorkerState:
    """A worker's attempts, capacity, time budget and outages."""

    def __init__(self, capacity: Capacity, budget: TimeBudget) -> None:
        self.capacity = capacity
        self.budget = budget
        self.attempts: set[Attempt] = set()
        """Includes unsettled outcomes."""
        self.stopping = asyncio.Event()
        """The worker must claim no more."""
        self.outage = OutageLog()

    @property
    def has_work(self) -> bool:
        """May an attempt run, wait to be settled, or come from an open claim?"""
        return bool(self.attempts or self.capacity.reserved)
