"""State that the loops of one worker share."""

import asyncio

from sublet.execution.attempt import Attempt
from sublet.store.outage_log import OutageLog
from sublet.worker.capacity import Capacity
from sublet.worker.time_limits.time_budget import TimeBudget


class WorkerState:
    """A worker's attempts, capacity, time budget and outages."""

    def __init__(self, capacity: Capacity, budget: TimeBudget) -> None:
        self.capacity = capacity
        self.budget = budget
        self.attempts: set[Attempt] = set()
        """Running attempts, and ended ones that are not settled yet."""
        self.stopping = asyncio.Event()
        """Set when the worker must claim no more."""
        self.outage = OutageLog()

    @property
    def has_work(self) -> bool:
        """Whether an attempt runs or has an unreported outcome, or an open claim may bring a job."""
        return bool(self.attempts or self.capacity.reserved)
