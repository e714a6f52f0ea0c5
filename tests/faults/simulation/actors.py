"""The actors besides the workers: producers, operators, ticks, and faults of the server.

They use `sublet.protocol.verbs` and `sublet.operations.operations` for their requests and replies, as the library does.
"""

import contextlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sublet.connection.settings import Settings
from sublet.errors import Refused, Unavailable
from sublet.model import Submission
from sublet.operations import workers
from sublet.operations.consistency.recount import recount
from sublet.operations.consistency.repair import repair
from sublet.operations.operations import Operations
from sublet.protocol import verbs
from sublet.schedules.durations import EPOCH
from sublet.schedules.firing import fire_due, schedule
from sublet.worker.settle_loop import RETRY_AFTER
from tests.faults.simulation.flow.drawn import GROUPS, LIMITS, TENANTS, TUNED
from tests.faults.simulation.history import answer_to_order
from tests.faults.simulation.invariants import ORDERS
from tests.faults.simulation.request import must
from tests.faults.simulation.world import Process, Sleep, Strand, World

SETTINGS = Settings(namespace="simulation")
LAYOUT = Operations(SETTINGS)
BASE = LAYOUT.bases[0]
QUEUES = ("a", "b")

RULES = ("", "delay=1500", "delay=20000", "tries=1", "tries=5", "timeout=8000", "priority=50", "key=K", "key=K",
         "key=K window=5000", "key=L delay=3000", "key=K debounce=2000 at_most=5000", "key=K on_conflict=replace",
         "key=L on_conflict=cancel_running", "key=L debounce=9000", "backoff=200:1:200", "backoff=200:1:200 tries=5")  # fmt: skip

CHANGES: tuple[dict[str, Any], ...] = ({"priority": 80}, {"delay": 4}, {"delay": 0}, {"priority": -20, "delay": 9},
                                       {"run_at": EPOCH}, {"priority": 0})  # fmt: skip
"""The changes of a reschedule."""


class Producer(Process):
    """Submits jobs, sometimes stops repeating a submit, sometimes reads their states."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.start(self.produce())

    def produce(self) -> Strand[None]:
        """The whole life of a producer."""
        for n in range(1, 1 + self.pick("submissions", (0, 1, 2, 3, 4, 6))):
            yield Sleep(self.pick(f"pause before {n}", (0.0, 0.01, 0.5, 3.0, 11.0), 0.8))
            batch = self.batch(n)
            for again in range(1 + self.pick(f"gives {n} up after", (2, 1, 0), 0.3)):
                if again:
                    yield Sleep(RETRY_AFTER)
                try:
                    answers = yield from self.ask(verbs.submit(BASE, batch))
                except Unavailable:
                    continue
                self.acknowledged([answer.id for answer in answers if not isinstance(answer, str)])
                break
            if self.pick(f"asks after {n}", (False, True), 0.4):
                yield from self.wait_for([job.id for job in batch])

    def batch(self, n: int) -> list[Submission]:
        """Some jobs to submit in one call."""
        queue = self.pick(f"queue of {n}", QUEUES)
        found = []
        for i in range(1, 1 + self.pick(f"jobs in {n}", (1, 2, 3), 0.3)):
            rules = self.pick(f"rules of {n}.{i}", RULES, 0.6)
            if self.world.by_turns:
                rules = f"{rules} {self.pick(f'group of {n}.{i}', GROUPS, 0.6)}".strip()
            found.append(
                LAYOUT.submission("t", b"{}", queue, rules, f"{self.name[0]}{self.name[-1]}.{n}.{i}")
            )
        return found

    def acknowledged(self, ids: Sequence[str]) -> None:
        """Acknowledged jobs are recorded; the invariants check that they stay."""
        for i in ids:
            must(i in self.world.checker.lives, f"{i} was acknowledged to {self.name}, but does not exist")

    def wait_for(self, ids: Sequence[str]) -> Strand[None]:
        """Read the states of some jobs a few times."""
        for _ in range(3):
            try:
                standings = yield from self.ask(verbs.watch(BASE, ids))
            except Unavailable:
                return
            for i, standing in zip(ids, standings, strict=True):
                life = self.world.checker.lives.get(i)
                if standing.state == "completed" and life and life.state == "completed":
                    must(standing.result == life.result.encode(), f"{i}: {self.name} got another result")
            yield Sleep(1.0)


class Planner(Process):
    """Puts a schedule of a few occurrences, each of which must have its job in the end; sometimes twice, as every deploy does."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.start(self.plan())

    def plan(self) -> Strand[None]:
        """Put it until it is acknowledged."""
        every = self.pick("every", (3, 1, 8))
        first = (self.world.clock.now // 1000 + self.pick("first in", (2, 1, 6))) * 1000
        occurrences = [first + every * 1000 * n for n in range(self.pick("occurrences", (4, 1, 10)))]
        overlap, queue = (
            self.pick("overlap", ("allow", "queue", "skip"), 0.6),
            self.pick("queue", QUEUES[::-1], 0.3),
        )
        when = {
            "every": every, "missed": "all", "most": 100, "overlap": overlap,
            "start": datetime.fromtimestamp(first / 1000, UTC).isoformat(),
            "end": datetime.fromtimestamp(occurrences[-1] / 1000, UTC).isoformat(),
        }  # fmt: skip
        call = schedule(
            BASE, self.name, 0, plan=json.dumps({"when": when}).encode(), queue=queue, task="t", rules="backoff=200:1:200",
            overlap=overlap, paused=False, occurrence=first, due=first, payload=b"{}",
        )  # fmt: skip
        for again in range(1 + self.pick("puts it again", (0, 2), 0.3)):
            while True:
                try:
                    yield from self.ask(call)
                    break
                except Unavailable:
                    yield Sleep(RETRY_AFTER)
            if overlap != "skip" and queue != QUEUES[0]:  # which may be full
                self.world.checker.promised.update(
                    {
                        f"0-{self.name}:{occurrence}": f"occurrence {occurrence} of {self.name}"
                        for occurrence in occurrences
                    }
                )
            if again == 0:
                yield Sleep(self.pick("pause before it is put again", (1.0, 9.0)))


class Trigger(Process):
    """Fires due occurrences at intervals, as claims and ticks do, by the same plan."""

    endless = True

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.start(self.trigger(self.pick("every", (1.0, 0.3, 5.0))))

    def trigger(self, every: float) -> Strand[None]:
        """Fire until the end of the run."""
        while True:
            with contextlib.suppress(Unavailable):
                yield from self.follow(fire_due([BASE], self.name))
            yield Sleep(every)


class Operator(Process):
    """Operates on jobs and queues, by an earlier read."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.start(self.operate())

    def operate(self) -> Strand[None]:
        """The whole life of an operator."""
        for n in range(1, 1 + self.pick("orders", (0, 1, 2, 4, 8))):
            yield Sleep(self.pick(f"pause before {n}", (0.02, 0.5, 2.0, 9.0), 0.8))
            try:
                if self.pick(f"drains a worker before {n}", (False, True), 0.1):
                    yield from self.drain(n)
                if self.world.by_turns and self.pick(f"order {n} is a limit", (False, True), 0.5):
                    yield from self.limit(n)
                elif self.pick(f"order {n} is for", ("a job", "a queue"), 0.3) == "a job":
                    yield from self.steer(n)
                else:
                    yield from self.arrange(n)
            except (Refused, Unavailable):
                continue

    def drain(self, n: int) -> Strand[None]:
        """Ask one of the registered workers to drain."""
        names = sorted(self.world.checker.register)
        if names:
            yield from self.follow(
                workers.drain([BASE], names[self.pick(f"drains before {n}", range(6)) % len(names)])
            )

    def steer(self, n: int) -> Strand[None]:
        """An operator's verb on a job: mostly one that its state allows."""
        lives = self.world.checker.lives.values()
        orders = [(verb, life) for life in lives for verb in ORDERS]
        fit = [
            (verb, life)
            for verb, life in orders
            if not answer_to_order(life, verb, str(life.attempt + life.ops))
        ]
        if not orders:
            return
        if not fit or self.pick(f"order {n} fits", (True, False), 0.2) is False:
            fit = orders
        verb, life = fit[self.pick(f"order {n}", range(24)) % len(fit)]
        changes = self.pick(f"changes of order {n}", CHANGES) if verb == "reschedule" else {}
        yield from self.follow(getattr(LAYOUT, verb)(life.id, **changes))

    def limit(self, n: int) -> Strand[None]:
        """Change the limits of a queue, or of one of its groups."""
        queue = (
            QUEUES[n % 2] if self.pick(f"order {n} is for the other queue", (False, True), 0.3) else QUEUES[0]
        )
        if self.pick(f"order {n} is for a group", (False, True), 0.4):
            settings = self.pick(f"settings of order {n}", TUNED)
            yield from self.follow(
                LAYOUT.change_group(queue, self.pick(f"group of order {n}", TENANTS), **settings)
            )
        else:
            yield from self.follow(LAYOUT.configure(queue, **self.pick(f"limits of order {n}", LIMITS)))

    def arrange(self, n: int) -> Strand[None]:
        """An operator's verb on a queue."""
        verb = self.pick(f"order {n}", ("pause", "resume", "configure"))
        if verb == "configure":
            reports = self.pick(f"reports of order {n}", ("hook", "b/hook", None))
            if self.pick(f"order {n} is for the namespace", (False, True), 0.3):
                yield from self.follow(LAYOUT.configure("*", on_dead=reports))
            else:
                limit = self.pick(f"limit of order {n}", (2, 0, 5, None))
                yield from self.follow(LAYOUT.configure(QUEUES[0], jobs=limit, on_dead=reports))
        else:
            yield from self.follow(getattr(LAYOUT, verb)(QUEUES[n % 2]))


class Opener(Process):
    """Starts last, and resumes all queues, as an earlier operator may still pause some."""

    endless = True

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.start(self.open())

    def open(self) -> Strand[None]:
        """Resume paused queues at intervals."""
        while True:
            for queue in QUEUES:
                if self.world.checker.paused(queue):
                    yield from self.follow(LAYOUT.resume(queue))
            yield Sleep(5.0)


class Tick(Process):
    """Does maintenance at intervals."""

    endless = True

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.start(self.tick(self.pick("every", (5.0, 0.7, 2.0, 15.0))))

    def tick(self, every: float) -> Strand[None]:
        """Reap and prune until the end of the run."""
        while True:
            for call in (verbs.reap(BASE, limit=100, by=self.name), verbs.prune(BASE, limit=200)):
                try:
                    yield from self.ask(call)
                except Unavailable:
                    break
            yield Sleep(every)


class Mender(Process):
    """Repairs consistent data while all others continue: it must find no fault at any moment."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.start(self.mend())

    def mend(self) -> Strand[None]:
        """Some repairs."""
        for n in range(1, 1 + self.pick("repairs", (1, 4))):
            yield Sleep(self.pick(f"pause before {n}", (0.5, 0.02, 6.0, 15.0)))
            with contextlib.suppress(Unavailable):
                seen, mended = yield from self.follow(repair([BASE]))
                must(
                    not (seen.faults or mended),
                    f"{self.name} reported faults in consistent data: {[*seen.faults, *mended][:3]}",
                )
            self.count()

    def count(self) -> None:
        """Count the backlog again. It is done at once: what a recount does when jobs move, it learns from events, and
        `Redis.events` takes these away.
        """
        counted = self.world.at_once(self, recount(BASE))
        must(not counted.found, f"{self.name} counted another backlog: {counted.found}")


class Weather(Process):
    """Faults of the server: scripts are flushed, the clock is set wrong."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "weather")
        self.start(self.blow())

    def blow(self) -> Strand[None]:
        """One change after the other."""
        for n in range(1, 1 + self.pick("changes", (0, 1, 3, 6), 0.5)):
            yield Sleep(self.pick(f"pause before {n}", (0.5, 0.05, 4.0, 15.0)))
            jump = self.pick(f"change {n}", (0.0, 0.3, 40.0, 3600.0, -0.3, -20.0), 0.5)
            self.world.faults["clock set wrong" if jump else "scripts flushed"] += 1
            if jump:
                self.world.note(f"the server's clock jumps by {jump:+g} s")
                self.world.clock.skew += round(jump * 1000)
            else:
                self.world.note("the server loses all scripts (SCRIPT FLUSH)")
                self.world.redis.command("SCRIPT", "FLUSH")
