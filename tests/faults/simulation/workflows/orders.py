"""The small worlds of workflows and steps: two parents and their child, or a job that waits for a signal, in every order.

They are walked as those of `exhaustive`, with the same checks after each script. Where nothing can happen any more, what
holds the child is retried, and the signal is sent: everything must end.
"""

from typing import Any, NamedTuple

from sublet.model import Lease, Submission, Suspension
from sublet.protocol import verbs
from sublet.protocol.scripts import Call
from sublet.steps import calls
from sublet.workflows import storing
from sublet.workflows.storing import Linked
from tests.faults.simulation.exhaustive import BASE, ENDINGS, JOB, LEASE, Actor, Count, Search, walk
from tests.faults.simulation.invariants import FINISHED
from tests.faults.simulation.request import must

PARENTS, CHILD = ("0-a", "0-b"), "0-c"
RULES = "tries=1"
ROUNDS = 8
"""How often a healthy worker claims at the end."""


class Cast(NamedTuple):
    """The parameters: what happens if a parent of the child fails, how the workers end their attempts, and the other actors."""

    name: str
    policy: str
    one: tuple[str, ...] = ("complete",)
    two: tuple[str, ...] = ("fail",)
    others: tuple[str, ...] = ("retry", "cancel")
    times: int = 0
    wait: float | None = None
    """The seconds after which the wait for the signal is given up."""


CASTS = (
    Cast("two parents, a child that is cancelled", "cancel"),
    Cast("two parents, a child that is held", "hold"),
    Cast("two parents, a child that runs in any case", "run"),
    Cast(
        "an event before, at and after the wait",
        "",
        ("step", "wait"),
        ("read", "complete"),
        ("signal",),
        times=1,
        wait=20,
    ),
    Cast(
        "an event, a cancel, and a wait without a limit",
        "",
        ("wait",),
        ("read", "complete"),
        ("signal", "cancel"),
    ),
)


class Player(NamedTuple):
    """The position of an actor: a producer, a worker, an operator, a sender, or time."""

    name: str
    next: str
    """The next call; empty after the last one."""
    cast: Cast
    left: int = 1
    """The remaining claims, if they take nothing."""
    then: tuple[str, ...] = ()
    """A worker's calls once it has a job."""
    lease: Lease | None = None

    def call(self) -> Call[Any]:
        """The next request; always the same for this position."""
        if self.next == "claim":
            return Actor(self.name, self.next, self.left).call()
        if self.lease:
            return self.of_a_lease(self.lease)
        if self.next == "submit" and self.cast.policy:
            parents = [Linked(Submission(i, "q", "t", RULES, b"{}")) for i in PARENTS]
            child = Submission(CHILD, "q", "t", f"{RULES} on_failure={self.cast.policy}", b"{}")
            return storing.workflow(BASE, "0-flow", "seal", [*parents, Linked(child, PARENTS)])
        if self.next == "submit":
            return verbs.submit(BASE, [Submission(JOB, "q", "t", "backoff=1000:1:1000", b"{}")])
        if self.next == "retry":
            return verbs.retry(BASE, PARENTS[0], 1)
        if self.next == "cancel":
            return verbs.cancel(BASE, PARENTS[1] if self.cast.policy else JOB, 0 if self.cast.policy else 1)
        return calls.signal(BASE, JOB, "go", b"1")

    def of_a_lease(self, lease: Lease) -> Call[Any]:
        """The next request of a worker that has a job."""
        if self.next in ("step", "read"):
            return calls.step(BASE, lease, {"charge": self.name.encode()} if self.next == "step" else {})
        if self.next == "wait":
            return calls.suspend(BASE, [Suspension(lease, "signal", "go", self.cast.wait)])
        return ENDINGS[self.next](lease, self.name)

    def after(self, answer: Any) -> "Player":
        """Its position after the answer; None for a refusal."""
        if self.next == "claim" and answer.leases:
            return self._replace(next=self.then[0], then=self.then[1:], lease=answer.leases[0])
        if self.next in ("step", "read") and answer is not None:
            return self._replace(next=self.then[0], then=self.then[1:])
        if self.next == "claim" and self.left > 1:
            return self._replace(left=self.left - 1)
        return self.dead()

    def dead(self) -> "Player":
        """Its position after its death."""
        return self._replace(next="", left=0, then=(), lease=None)


class Until(Search):
    """A search at whose ends all signals are sent, and all causes of holds retried."""

    def see_it_end(self, world: int) -> None:
        """Start a healthy worker after the last step: all jobs must end, and the workflow."""
        self.enter(world)
        known = self.checker
        self.send("last", verbs.reap(BASE, limit=100, by="last").commands)
        for n in range(1, 1 + ROUNDS):
            for job_id, (_, name) in [*known.steps.awaits.items()]:
                self.send("last", calls.signal(BASE, job_id, name, b"2").commands)
            for life in [known.lives[cause] for cause in known.edges.holders()]:
                self.send("last", verbs.retry(BASE, life.id, life.attempt + life.ops).commands)
            self.redis.clock.now += 40_000
            claim = verbs.claim(
                BASE, claim_id=f"last.{n:0>22}", worker="last", lease=LEASE, n=4, queues=["q"]
            )
            reply, _ = self.send("last", claim.commands)
            for lease in claim.read(reply).leases:
                self.send("last", ENDINGS["complete"](lease, "last").commands)
        late = [life.id for life in known.lives.values() if life.state not in FINISHED] + known.edges.left()
        must(not late, f"{', '.join(late)} did not end")


def enumerate_all(cast: Cast) -> Count:
    """Walk through every order. Raises Violation, with the path that led there."""
    players = (
        Player("producer", "submit", cast), Player("one", "claim", cast, 2, cast.one), Player("two", "claim", cast, 2, cast.two),
        *(Player(f"{name}er", name, cast) for name in cast.others),
        Player("time", "time" if cast.times else "", cast, cast.times),
    )  # fmt: skip
    return walk(cast.name, players, search=Until)
