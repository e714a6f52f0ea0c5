"""Claims of one process that wait for jobs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sublet.protocol import keys
from sublet.store.waiting.claim_ahead import ClaimAhead
from sublet.store.waiting.ready_queues import Selection


class Waiter:
    """One waiting claim. `call` ends its wait, and it claims: for a wake-up, or as the one that polls for all."""

    def __init__(
        self,
        queues: Sequence[tuple[str, str]],
        selection: Selection | None = None,
        prepare: Callable[[], ClaimAhead] | None = None,
    ) -> None:
        self.prepare = prepare
        """Makes its claims to send ahead; None: it sends none."""
        self.answered: ClaimAhead | None = None
        """One that has its reply; the owner takes it."""
        self.until = 0.0
        self.queues = (
            selection.lists if selection else {keys.wake(base, name): (base, name) for base, name in queues}
        )
        self.bases = {base for base, _ in self.queues.values()}
        self.selection = selection
        self.patterns = set(selection.patterns if selection else ())
        self.called: asyncio.Future[None] | None = None
        self.wakeup: WakeUp | None = None
        """The wake-up for which it was called, until it has claimed."""
        self.polls = False
        """Whether it was called to poll, and has not claimed yet."""

    @property
    def idle(self) -> bool:
        """Whether this claim still waits: nothing has ended its wait."""
        return self.called is not None and not self.called.done()

    @property
    def named(self) -> tuple[str, str] | None:
        """Partition and name of the queue whose wake-up it got; None if it polls."""
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
        """Return, once, the claim that was sent ahead for it and has its reply; None without one."""
        answered, self.answered = self.answered, None
        return answered

    def claimed(self) -> None:
        """Record that it has claimed, which uses its wake-up."""
        self.wakeup = None
        self.polls = False


class WakeUp(NamedTuple):
    """An element of a wake-up list, read from Redis."""

    key: str
    element: str
    """In the list of a pattern: the queue's name."""


@dataclass(slots=True)
class QueueWaiters:
    """The claims that wait for one queue."""

    base: str
    queue: str
    waiters: dict[Waiter, None] = field(default_factory=dict)

    def first(self) -> Waiter | None:
        """Return the claim that has waited longest, if one is idle."""
        return next((waiter for waiter in self.waiters if waiter.idle), None)

    @property
    def is_searched(self) -> bool:
        """Whether all its claims also look at their queues regularly, so that it needs no poll."""
        return all(waiter.selection for waiter in self.waiters)
