"""How many jobs a worker claims, and from which queue first."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sublet.app import Task
from sublet.errors import Invalid
from sublet.execution.attempt import Attempt
from sublet.protocol import verbs

WEIGHT_MAX = 1000
STARVED_SECONDS = 2.0
"""Seconds in which all slots or child processes, lent ones too, wait for other jobs: then the worker warns."""
ADVICE = (
    "if these jobs wait in a queue of this worker, none can run until one of the waits ends: submit them with a higher "
    "priority, give them a queue and a worker of their own, allow more --processes or --slots, or do not wait for them"
)


class QueueSet:
    """Queues of a worker; whether their jobs may need one of its `processes`, and whether all do."""

    def __init__(self, queues: Sequence[str], may_need_child: bool, all_need_child: bool = False) -> None:
        self.queues = list(queues)
        self.may_need_child = may_need_child
        self.all_need_child = all_need_child


def queue_sets(queues: Sequence[str], tasks: Iterable[Task[..., Any]]) -> list[QueueSet]:
    """Return up to two sets: the queues whose jobs may need one of `processes`, and the others; no empty
    set. A queue that is no task's default is taken to have jobs of any task.
    """
    kinds: dict[str, set[bool]] = {}
    for task in tasks:
        kinds.setdefault(task.defaults.queue, set()).add(task.takes_process)
    any_kind = set().union(*kinds.values())
    with_child = [queue for queue in queues if True in kinds.get(queue, any_kind)]
    all_need_child = all(kinds.get(queue, any_kind) == {True} for queue in with_child)
    on_loop = [queue for queue in queues if True not in kinds.get(queue, any_kind)]
    found = [QueueSet(with_child, True, all_need_child)] if with_child else []
    return found + ([QueueSet(on_loop, False)] if on_loop else [])


class Capacity:
    """A worker's slots and child processes: how many are in use, or reserved by open claims. `changed` is set
    when some may be free.

    `ahead` returns how many short jobs may wait for a child process.
    """

    def __init__(self, slots: int, processes: int, ahead: Callable[[], int] = lambda: 0) -> None:
        self.slots, self.processes = slots, processes
        self.ahead = ahead
        self.max_jobs: int | None = None
        """Most jobs to start in this run; None: no limit."""
        self.running = self.running_in_children = self.started = 0
        self.reserved = self.reserved_children = 0
        self.waiting = self.waiting_in_children = 0
        """How many running jobs wait for other jobs: all, and those in child processes."""
        self.changed = asyncio.Event()

    def free(self, queue_set: QueueSet) -> int:
        """Return how many more jobs of these queues may be claimed, within `max_jobs`: those that can start
        at once and, if all need a child process, some that wait for one. 0 or less: none.
        """
        children = self.running_in_children + self.reserved_children
        others = self.running + self.reserved - children
        if queue_set.may_need_child:
            ahead = self.ahead() if queue_set.all_need_child else 0
            at_once = min(self.processes + self.lent_children, self.slots + self.lent - others)
            free = at_once + ahead - children if at_once > 0 else 0
            if 2 * free < ahead:
                return 0
        else:
            free = self.slots + self.lent - others - min(children, self.processes + self.lent_children)
        return free if self.max_jobs is None else min(free, self.max_jobs - self.started - self.reserved)

    def claim_size(self, queue_set: QueueSet) -> int:
        """Return for how many jobs the next claim asks: as many as `free`, but at most half of the slots (or
        `ahead`, if that is more and all jobs of these queues need a child process), so that a second claim can run beside it.
        """
        half = -(-self.slots // 2)
        return min(self.free(queue_set), max(half, self.ahead() if queue_set.all_need_child else 0))

    @property
    def has_free_child(self) -> bool:
        """Whether one of `processes` and `lent_children` is neither in use nor reserved."""
        return self.processes + self.lent_children > self.running_in_children + self.reserved_children

    @property
    def lent(self) -> int:
        """How many jobs more than `slots` may run: as many as wait for other jobs, but at most `slots`."""
        return min(self.waiting, self.slots)

    @property
    def lent_children(self) -> int:
        """How many child processes more than `processes` may run: as many as have a job that waits for
        others, but at most `processes`.
        """
        return min(self.waiting_in_children, self.processes)

    @property
    def starved(self) -> str:
        """`8 slots (4 of them lent)`, or child processes, if a job in each waits for others; else empty."""
        if self.waiting_in_children >= 2 * self.processes:
            return f"{2 * self.processes} child processes ({self.processes} of them lent)"
        if self.waiting >= 2 * self.slots:
            return f"{2 * self.slots} slots ({self.slots} of them lent)"
        return ""

    @contextlib.contextmanager
    def reserve(self, n: int, may_need_child: bool) -> Iterator[None]:
        """In the `with` block, reserve `n` slots, and child processes if needed, for an open claim."""
        self.reserved += n
        self.reserved_children += n * may_need_child
        try:
            yield
        finally:
            self.reserved -= n
            self.reserved_children -= n * may_need_child
            self.changed.set()

    @property
    def exhausted(self) -> bool:
        """Whether the worker has started `max_jobs` jobs."""
        return self.max_jobs is not None and self.started >= self.max_jobs

    def job_started(self, in_child: bool) -> None:
        """Count a job that starts."""
        self.running += 1
        self.started += 1
        self.running_in_children += in_child

    def job_was_unknown(self) -> None:
        """Take a job of an unknown task out of `started`, so that it does not use up `max_jobs`."""
        self.started -= 1

    def job_ended(self, in_child: bool) -> None:
        """Count a job that has ended."""
        self.running -= 1
        self.running_in_children -= in_child
        self.changed.set()

    async def wait_until(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Return True once `condition` is true (checked whenever `changed` is set), False after `seconds`
        (None: no limit).
        """
        end = None if seconds is None else time.monotonic() + seconds
        while not condition():
            if end is not None and time.monotonic() >= end:
                return False
            await self.wait_for_change(None if end is None else end - time.monotonic())
        return True

    async def wait_for_change(self, seconds: float | None) -> None:
        """Wait until `changed` is set anew, for `seconds` at most (None: no limit)."""
        self.changed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if seconds == float("inf") else seconds):
                await self.changed.wait()


class Lending:
    """Counts the running attempts that wait for other jobs. It calls `lend` with the slots and child
    processes that may be used in addition, and `starved` with a warning once all slots, or all child
    processes, even lent ones, have waited for 2 s.
    """

    def __init__(
        self,
        attempts: Iterable[Attempt],
        capacity: Capacity,
        tasks: Mapping[str, Task[..., Any]],
        lend: Callable[[int, int], None],
        starved: Callable[[str], None],
    ) -> None:
        self._attempts, self._capacity = attempts, capacity
        self._tasks, self._lend, self._starved = tasks, lend, starved
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._notified = False

    def start(self) -> None:
        """Let `notify` count, on the running event loop; before, it does nothing."""
        self._loop = asyncio.get_running_loop()

    def stop(self) -> None:
        """Cancel a planned warning."""
        if self._timer:
            self._timer.cancel()

    def notify(self) -> None:
        """Make the event loop `count` soon. Safe from any thread."""
        if self._loop and not self._notified:
            self._notified = True
            self._loop.call_soon_threadsafe(self.count)

    def count(self) -> None:
        """Count the waiting attempts, and lend slots and child processes for them."""
        self._notified = False
        capacity = self._capacity
        waiting = [attempt for attempt in self._attempts if attempt.reports.waiting and attempt.running]
        capacity.waiting = len(waiting)
        capacity.waiting_in_children = sum(
            self._tasks[attempt.lease.task].takes_process for attempt in waiting
        )
        self._lend(capacity.lent, capacity.lent_children)
        capacity.changed.set()
        if not capacity.starved:
            self.stop()
            self._timer = None
        elif self._timer is None and self._loop:
            self._timer = self._loop.call_later(STARVED_SECONDS, self._warn)

    def _warn(self) -> None:
        self._starved(f"all {self._capacity.starved} wait for the results of other jobs: {ADVICE}")


class QueueTurns:
    """Which of a worker's queues the next claim asks first: the one with the fewest claimed jobs in relation
    to its weight (default 1).

    A queue that was empty has no advantage later. With `strict`, the given order holds; with a pattern, or
    more than 32 queues, they take turns without weights (`Selection`). Raises Invalid for weights not allowed.
    """

    def __init__(self, queues: Sequence[str] | Mapping[str, int], strict: bool = False) -> None:
        self._weights = dict(queues) if isinstance(queues, Mapping) else dict.fromkeys(queues, 1)
        _check(self._weights, strict)
        self._strict = strict or len(self._weights) == 1
        # Shuffled: the first claims of many workers must not all ask the same queue
        names = random.sample(list(self._weights), len(self._weights))
        self._taken = dict.fromkeys(names, 0.0)
        self._place = {name: i for i, name in enumerate(names)}

    def order(self, queues: Sequence[str]) -> Sequence[str]:
        """Return these queues in their order for the next claim."""
        if self._strict or verbs.is_wide(queues):
            return queues
        return sorted(queues, key=lambda queue: (self._taken[queue], self._place[queue]))

    def record(self, asked: Sequence[str], claimed: Iterable[str]) -> None:
        """Count the jobs of a claim. `asked`: its queues in their order; `claimed`: the queue of each job."""
        taken = Counter(() if self._strict or verbs.is_wide(asked) else claimed)
        if not taken:
            return
        level = min(self._taken[queue] for queue in taken)
        last = max(asked.index(queue) for queue in taken)  # those before it were empty
        for queue in asked[: last + 1]:
            before = max(self._taken[queue], level)
            self._taken[queue] = before + taken[queue] / self._weights[queue]


def _check(weights: Mapping[str, int], strict: bool) -> None:
    for queue, weight in weights.items():
        if not isinstance(weight, int) or not 1 <= weight <= WEIGHT_MAX:
            raise Invalid(f"queue {queue}: its weight {weight}: use a whole number from 1 to {WEIGHT_MAX}")
    if verbs.is_wide(list(weights)) and any(weight != 1 for weight in weights.values()):
        raise Invalid(
            f"weights need at most {verbs.QUEUES_MAX} queues and no pattern: leave out the weights, for equal turns"
        )
    if strict and any(weight != 1 for weight in weights.values()):
        raise Invalid("strict order has no weights: leave out the weights, or strict")
