"""Claims of one process that wait for jobs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sublet.protocol import keys
from sublet.store.waiting.claim_ahead import ClaimAhead
from sublet.store.waiting.ready_queues import Selection


class Waiter:
    """One waiting claim. `call` ends its wait; then it claims, for a wake-up or to poll for all claims."""

    def __init__(
        self,
        queues: Sequence[tuple[str, str]],
        selection: Selection | None = None,
        prepare: Callable[[], ClaimAhead] | None = None,
    ) -> None:
        self.prepare = prepare
        """Makes claims to send ahead; None: send none."""
        self.answered: ClaimAhead | None = None
        """A claim that was sent ahead and has its reply, until `take_answered`; else None."""
        self.until = 0.0
        self.queues = (
            selection.lists if selection else {keys.wake(base, name): (base, name) for base, name in queues}
        )
        self.bases = {base for base, _ in self.queues.values()}
        self.selection = selection
        self.patterns = set(selection.patterns if selection else ())
        self.called: asyncio.Future[None] | None = None
        self.wakeup: WakeUp | None = None
        """The wake-up that ended its wait, until it has claimed; else None."""
        self.polls = False
        """Whether it was called to poll, and has not claimed yet."""

    @property
    def idle(self) -> bool:
        """Whether this claim still waits: nothing has ended its wait."""
        return self.called is not None and not self.called.done()

    @property
    def named(self) -> tuple[str, str] | None:
        """Partition and name of the queue whose wake-up it got; None without one."""
        if not self.wakeup:
            return None
        base, queue = self.queues.get(self.wakeup.key, ("", ""))
        named = self.wakeup.element if queue.endswith("*") else queue
        return (base, named) if keys.is_name(named) else None

    def call(self, wakeup: "WakeUp | None" = None) -> None:
        """End the wait: for a wake-up or, without one, to poll."""
        assert self.called, "it is idle"
        self.wakeup = wakeup
        self.polls = not wakeup
        self.called.set_result(None)

    def take_answered(self) -> ClaimAhead | None:
        """Return `answered`, and set it to None."""
        answered, self.answered = self.answered, None
        return answered

    def claimed(self) -> None:
        """Record that it has claimed: its wake-up is used, its poll done."""
        self.wakeup = None
        self.polls = False


class WakeUp(NamedTuple):
    """An element of a wake-up list, read from Redis."""

    key: str
    element: str
    """In the list of a pattern: the queue's name; else `1`."""


@dataclass(slots=True)
class QueueWaiters:
    """The claims that wait for one queue."""

    base: str
    queue: str
    waiters: dict[Waiter, None] = field(default_factory=dict)

    def first(self) -> Waiter | None:
        """Return the idle claim that has waited longest; None without one."""
        return next((waiter for waiter in self.waiters if waiter.idle), None)

    @property
    def is_searched(self) -> bool:
        """Whether `Discovery` searches for all these claims, so that the queue needs no poll."""
        return all(waiter.selection for waiter in self.waiters)
