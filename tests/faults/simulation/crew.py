"""The workers: they handle replies as `sublet.worker.worker` does. Their attempts have drawn durations and outcomes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sublet.errors import LeaseLost, NotFound, Unavailable
from sublet.model import Beat, Card, Completion, Ending, Failure, Lease, Note, Release, Suspension
from sublet.operations import workers
from sublet.protocol import flow, verbs
from sublet.protocol.scripts import Call
from sublet.steps import calls
from sublet.steps.chunks import Emission, emit
from sublet.worker.settle_loop import RETRY_AFTER
from tests.faults.simulation.actors import BASE, QUEUES
from tests.faults.simulation.flow.drawn import SPENT
from tests.faults.simulation.request import must
from tests.faults.simulation.streams import BATCHES, PAUSES, chunks
from tests.faults.simulation.workflows.tasks import carry_out, followed, proceed
from tests.faults.simulation.world import Doze, Listen, Process, Sleep, Strand, World

FOREVER = 1e9
WAYS = ("completes", "fails", "fails for good", "gives back", "gives back for 3 s", "does not know the task")
MAYBE = ((False, True), 0.3)
TAKES = (0.01, 0.1, 1.0, 4.0, 12.0, 45.0)


VERBS: dict[type[Any], Callable[[str, Any], Call[Any]]] = {
    Completion: verbs.complete, Failure: verbs.fail, Release: verbs.release, Suspension: calls.suspend,
}  # fmt: skip
"""Which verb reports an outcome."""


@dataclass(eq=False)
class Attempt:
    """A lease that is being worked on."""

    lease: Lease
    why: str = ""
    """Why it is to be ended early: lost, cancelled, or stopping."""
    ends: Ending | None = field(default=None)


class Worker(Process):
    """Claims, sends heartbeats and settles, as `sublet.worker.worker` does; `slots` jobs at a time."""

    endless = True

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.queues = self.pick("queues", (QUEUES, QUEUES[::-1], QUEUES[:1]), 0.4)
        self.slots = self.pick("slots", (1, 2, 3))
        self.lease = self.pick("lease", (9.0, 30.0), 0.2)
        self.busy, self.looks = 0, 0
        self.stopping = self.enlisted = False
        self.card = Card(name, f"life-of-{name}", "", b"{}")
        self.attempts: list[Attempt] = []
        self.endings: list[Attempt] = []
        for strand in (self.work(), self.settle_forever(), self.beat_forever(), self.stop()):
            self.start(strand)

    def work(self) -> Strand[None]:
        """Reconcile dead workers, enlist, and only then claim."""
        while True:
            try:
                yield from self.take_over()
                yield from self.ask(verbs.enlist(BASE, self.card))
                break
            except Unavailable:
                yield Sleep(RETRY_AFTER)
        self.enlisted = True
        yield from self.claim_forever()

    def take_over(self) -> Strand[None]:
        """End the leases of dead workers, and sometimes of a live one that is wrongly considered dead."""
        known = yield from self.follow(workers.workers([BASE], jobs=False))
        self.looks += 1
        dead = [
            other
            for other in known
            if other.name in self.world.dead or self.pick(f"{self.looks}: {other.name} is gone", *MAYBE)
        ]
        if dead:
            yield from self.follow(workers.reconcile([BASE], {other.name: other.life for other in dead}))

    def claim_forever(self) -> Strand[None]:
        """Claim as many jobs as fit; without jobs wait for a wake-up, without free slots wait for one."""
        while not self.stopping:
            room = self.slots - self.busy
            self.claims += 1
            claim_id = f"{self.name}.{self.claims:0>22}"
            call = verbs.claim(
                BASE, claim_id=claim_id, worker=self.name, lease=self.lease, n=room, queues=self.queues
            )
            try:
                claimed = yield from self.ask(call)
            except Unavailable:
                yield Sleep(RETRY_AFTER)
                continue
            for lease in claimed.leases:
                self.take(lease)
            if room and len(claimed.leases) < room:
                yield Listen(self.queues, claimed.next_in)
            elif self.busy == self.slots:
                yield Doze("a slot", claimed.next_in)

    def stop(self) -> Strand[None]:
        """In some runs stop at a drawn moment, as on SIGTERM: claim no more, and release unfinished jobs."""
        yield Sleep(self.pick("is stopped after", (FOREVER, 1.0, 7.0, 20.0), 0.3))
        self.world.note(f"{self.name} gets SIGTERM")
        self.stopping = True
        for attempt in self.attempts:
            self.end(attempt, "stopping")
        yield from self.leave()

    def leave(self) -> Strand[None]:
        """When the last attempt has ended, delete the registration."""
        while self.attempts:
            yield Sleep(RETRY_AFTER)
        self.enlisted = False
        try:
            yield from self.ask(verbs.reconcile(BASE, self.card.worker, self.card.life, []))
        except Unavailable:
            return

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
        if self.pick(f"{lease.id}, attempt {lease.attempt}, notes", *MAYBE):
            self.start(self.note(attempt))
        if self.pick(f"{lease.id}, attempt {lease.attempt}, emits", *MAYBE):
            pause = self.pick(f"{lease.id}, attempt {lease.attempt}, pauses", PAUSES, 0.5)
            self.start(self.emit(attempt, pause))
        if self.world.by_turns:
            cost = self.pick(f"{lease.id}, attempt {lease.attempt}, spends", SPENT, 0.3)
            if cost is not None:
                self.start(self.spend(attempt, cost))
        if self.stopping:
            self.end(attempt, "stopping")

    def spend(self, attempt: Attempt, cost: int) -> Strand[None]:
        """Report the real cost, and then a higher one."""
        for n in range(2):
            yield Sleep(0.3)
            try:
                (answer,) = yield from self.ask(flow.spend(BASE, [(attempt.lease, cost + n)]))
            except Unavailable:
                return
            if answer != "spent":
                return self.end(attempt, "lost")

    def perform(self, attempt: Attempt) -> Strand[None]:
        """Work for a drawn time, and end with a drawn outcome."""
        lease, choices = attempt.lease, self.world.choices
        takes = choices.pick(f"{lease.id}, attempt {lease.attempt}, takes", TAKES, 0.7)
        way = choices.pick(f"{lease.id}, attempt {lease.attempt}", WAYS, 0.4)
        limit = (lease.timeout_ms or 1e12) / 1000
        early = (yield from carry_out(self, lease)) if self.world.linked else None
        attempt.why = attempt.why or (early if isinstance(early, str) else "")
        if not attempt.why and not early:
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
            by_itself = ending(lease, self.name, way) if takes < limit else Failure(lease, "timed_out")
            attempt.ends = by_itself if early is None or isinstance(early, str) else early
            if self.world.linked:
                attempt.ends = followed(self, attempt.ends)
        self.endings.append(attempt)
        self.nudge("endings")

    def note(self, attempt: Attempt) -> Strand[None]:
        """Store a checkpoint and a log, twice."""
        for n in range(2):
            words = f"{n} of {self.name}, attempt {attempt.lease.attempt}".encode()
            try:
                (answer,) = yield from self.ask(verbs.note(BASE, [Note(attempt.lease, words, words)]))
            except Unavailable:
                return
            if answer != "noted":
                return self.end(attempt, "lost")
            yield Sleep(0.5)

    def emit(self, attempt: Attempt, pause: float) -> Strand[None]:
        """Emit chunks until a refusal, also after the lease is lost."""
        sent = 0
        for size in BATCHES:
            batch = Emission(sent, chunks(attempt.lease.attempt, sent, size))
            while sent == batch.before:
                try:
                    yield from self.ask(emit(BASE, attempt.lease, batch))
                    sent += size
                except Unavailable:
                    yield Sleep(RETRY_AFTER)
                except (LeaseLost, NotFound):
                    return self.end(attempt, "lost")
            yield Sleep(pause)

    def settle_forever(self) -> Strand[None]:
        """Report outcomes until they are answered."""
        while True:
            if not self.endings:
                yield Doze("endings", FOREVER)
            batch, self.endings = self.endings, []
            if batch and not (yield from self.settle(batch)):
                self.endings += batch
            if self.endings:
                yield Sleep(RETRY_AFTER)

    def settle(self, batch: list[Attempt]) -> Strand[bool]:
        """Send the outcomes by kind. False if a call got no reply: then all are sent again, as `Store.settle` does."""
        answers: list[tuple[Attempt, str]] = []
        for kind, verb in VERBS.items():
            own = [attempt for attempt in batch if isinstance(attempt.ends, kind) and not _follows(attempt)]
            if own:
                try:
                    words = yield from self.ask(verb(BASE, [attempt.ends for attempt in own]))
                except Unavailable:
                    return False
                answers += zip(own, words, strict=True)
        for attempt in filter(_follows, batch):
            try:
                answers.append((attempt, (yield from proceed(self, attempt.ends))))
            except Unavailable:
                return False
        for attempt, word in answers:
            if " " in word and _follows(attempt):  # a refusal
                if not word.startswith("QUEUE_FULL"):
                    attempt.ends = Failure(attempt.lease, "invalid_result", word, again=False)
                self.endings.append(attempt)
                continue
            self.attempts.remove(attempt)
            life = self.world.checker.lives.get(attempt.lease.id)
            if word in ("LEASE_LOST", "NOT_FOUND"):
                over = life is None or life.state != "running" or life.token != attempt.lease.token
                must(over, f"{self.name} got {word} for {attempt.lease.id}, whose lease it holds")
        return True

    def beat_forever(self) -> Strand[None]:
        """Extend all leases, several times per lease, and act on the replies."""
        while True:
            yield Sleep(min(self.lease / 3, 5.0))
            attempts = list(self.attempts)
            try:
                yield from self.be_seen()
                if not attempts:
                    continue
                answers: Any = yield from self.ask(
                    verbs.heartbeat(BASE, [Beat(a.lease) for a in attempts], lease=self.lease)
                )
            except Unavailable:
                continue
            for attempt, answer in zip(attempts, answers, strict=True):
                if isinstance(answer, str):
                    self.end(attempt, "cancelled" if answer == "CANCEL_REQUESTED" else "lost")

    def be_seen(self) -> Strand[None]:
        """Enlist again; when asked to drain, claim no more, finish and exit."""
        if (
            self.enlisted
            and (yield from self.ask(verbs.enlist(BASE, self.card))) == "drain"
            and not self.stopping
        ):
            self.world.note(f"{self.name} is asked to drain")
            self.stopping = True
            self.start(self.leave())


def _follows(attempt: Attempt) -> bool:
    """Whether other jobs follow this end."""
    return isinstance(attempt.ends, Completion) and attempt.ends.following is not None


def ending(lease: Lease, worker: str, way: str) -> Ending:
    """The outcome of an attempt that was not interrupted."""
    if way == "completes":
        return Completion(lease, f'"{worker}, attempt {lease.attempt}"'.encode())
    if way.startswith("fails"):
        return Failure(lease, "Boom", "words", "more words", again=way == "fails")
    if way.startswith("gives back"):
        return Release(lease, 3 if way.endswith("3 s") else 0, "later")
    return Release(lease, 0, "t", "unknown_task")
