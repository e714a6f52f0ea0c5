"""The workers: they do with each answer what `jobs.worker` does; their attempts take some time and end somehow."""

from dataclasses import dataclass, field
from typing import Any

from jobs import verbs
from jobs.errors import Unavailable
from jobs.model import Beat, Completion, Ending, Failure, Lease, Release
from jobs.worker import REST
from tests.simulation.actors import BASE, QUEUES
from tests.simulation.request import must
from tests.simulation.world import Doze, Listen, Process, Sleep, Strand, World

FOREVER = 1e9
WAYS = ("completes", "fails", "fails for good", "gives back", "gives back for 3 s", "does not know the task")
TAKES = (0.01, 0.1, 1.0, 4.0, 12.0, 45.0)


@dataclass(eq=False)
class Attempt:
    """A lease that is being worked on."""

    lease: Lease
    why: str = ""
    """Why it is to be ended early: lost, cancelled, or stopping."""
    ends: Ending | None = field(default=None)


class Worker(Process):
    """Claims, beats, and settles, as `jobs.worker` does; `slots` jobs at a time."""

    endless = True

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.queues = self.pick("queues", (QUEUES, QUEUES[::-1], QUEUES[:1]), 0.4)
        self.slots = self.pick("slots", (1, 2, 3))
        self.lease = self.pick("lease", (9.0, 30.0), 0.2)
        self.busy, self.stopping = 0, False
        self.attempts: list[Attempt] = []
        self.endings: list[Attempt] = []
        for strand in (self.claim_forever(), self.settle_forever(), self.beat_forever(), self.stop()):
            self.start(strand)

    def claim_forever(self) -> Strand[None]:
        """Claim what fits; wait for a marker where there is nothing, and for a slot where there is no room."""
        while not self.stopping:
            room = self.slots - self.busy
            self.claims += 1
            claim_id = f"{self.name}.{self.claims:0>22}"
            call = verbs.claim(BASE, claim_id=claim_id, worker=self.name, lease=self.lease, n=room, queues=self.queues)
            try:
                claimed = yield from self.ask(call)
            except Unavailable:
                yield Sleep(REST)
                continue
            for lease in claimed.leases:
                self.take(lease)
            if room and len(claimed.leases) < room:
                yield Listen(self.queues, claimed.next_in)
            elif self.busy == self.slots:
                yield Doze("a slot", claimed.next_in)

    def stop(self) -> Strand[None]:
        """At some time, perhaps, take no more jobs and give back what is unfinished, as on SIGTERM."""
        yield Sleep(self.pick("is stopped after", (FOREVER, 1.0, 7.0, 20.0), 0.3))
        self.world.tell(f"{self.name} is told to stop")
        self.stopping = True
        for attempt in self.attempts:
            self.end(attempt, "stopping")

    def end(self, attempt: Attempt, why: str) -> None:
        """Stop a task that is not done yet."""
        if attempt.ends is None and not attempt.why:
            attempt.why = why
            self.nudge(f"attempt {attempt.lease.token} {attempt.lease.id}")

    def take(self, lease: Lease) -> None:
        """Begin to work on a lease."""
        attempt = Attempt(lease)
        self.busy += 1
        self.attempts.append(attempt)
        self.start(self.perform(attempt))
        if self.stopping:
            self.end(attempt, "stopping")

    def perform(self, attempt: Attempt) -> Strand[None]:
        """Work for some time, and end somehow."""
        lease, choices = attempt.lease, self.world.choices
        takes = choices.pick(f"{lease.id}, attempt {lease.attempt}, takes", TAKES, 0.7)
        way = choices.pick(f"{lease.id}, attempt {lease.attempt}", WAYS, 0.4)
        limit = (lease.timeout_ms or 1e12) / 1000
        if not attempt.why:
            yield Doze(f"attempt {lease.token} {lease.id}", min(takes, limit))
        self.busy -= 1
        self.nudge("a slot")
        if attempt.why == "lost":
            self.attempts.remove(attempt)
            return
        if attempt.why == "cancelled":
            attempt.ends = Failure(lease, "cancelled", "cancelled on request", again=False)
        elif attempt.why == "stopping":
            attempt.ends = Release(lease, 0, "the worker stopped")
        else:
            attempt.ends = ending(lease, self.name, way) if takes < limit else Failure(lease, "timed_out")
        self.endings.append(attempt)
        self.nudge("endings")

    def settle_forever(self) -> Strand[None]:
        """Tell Redis what has ended, until it has answered."""
        while True:
            if not self.endings:
                yield Doze("endings", FOREVER)
            batch, self.endings = self.endings, []
            if batch and not (yield from self.settle(batch)):
                self.endings += batch
                yield Sleep(REST)

    def settle(self, batch: list[Attempt]) -> Strand[bool]:
        """Send the endings by kind. False if any call got no answer: then all are sent again, as `Store.settle` does."""
        heard: list[tuple[Attempt, str]] = []
        for kind, verb in ((Completion, verbs.complete), (Failure, verbs.fail), (Release, verbs.release)):
            own = [attempt for attempt in batch if isinstance(attempt.ends, kind)]
            if own:
                try:
                    words = yield from self.ask(verb(BASE, [attempt.ends for attempt in own]))  # type: ignore[operator]  # by kind
                except Unavailable:
                    return False
                heard += zip(own, words, strict=True)
        for attempt, word in heard:
            self.attempts.remove(attempt)
            life = self.world.checker.lives.get(attempt.lease.id)
            if word in ("LEASE_LOST", "NOT_FOUND"):
                over = life is None or life.state != "running" or life.token != attempt.lease.token
                must(over, f"{self.name} was told {word} of {attempt.lease.id}, whose lease it holds")
        return True

    def beat_forever(self) -> Strand[None]:
        """Extend all leases, several times a lease; act on what is heard."""
        while True:
            yield Sleep(min(self.lease / 3, 5.0))
            attempts = list(self.attempts)
            if not attempts:
                continue
            try:
                answers: Any = yield from self.ask(verbs.heartbeat(BASE, [Beat(a.lease) for a in attempts], lease=self.lease))
            except Unavailable:
                continue
            for attempt, answer in zip(attempts, answers, strict=True):
                if isinstance(answer, str):
                    self.end(attempt, "cancelled" if answer == "CANCEL_REQUESTED" else "lost")


def ending(lease: Lease, worker: str, way: str) -> Ending:
    """What a worker says of an attempt that was let end in its way."""
    if way == "completes":
        return Completion(lease, f'"{worker}, attempt {lease.attempt}"'.encode())
    if way.startswith("fails"):
        return Failure(lease, "Boom", "words", "more words", again=way == "fails")
    if way.startswith("gives back"):
        return Release(lease, 3 if way.endswith("3 s") else 0, "later")
    return Release(lease, 0, "unknown_task: t")
