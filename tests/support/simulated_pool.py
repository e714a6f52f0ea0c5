"""A pool's workers in virtual time: the real scripts on fakeredis, under a clock that jumps from one event to
the next.

Producers, ticks, the invoker and its workers are simulated; the loads are those of
`tests/support/pool_loads.py`. The same runs are checked by `tests/scaling/test_scaling.py` and drawn by
`bench/scaling.py`.

An invoked worker arrives after a cold start, or not at all. It sends a heartbeat every 5 s, and may be killed at
any moment. A producer summons at most every 50 ms, as `Summoner.nudge` does.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from sublet.model import Beat, Card, Completion, Lease, Submission
from sublet.operations import pools
from sublet.protocol import keys, verbs
from tests.faults.simulation.server import Clock, Redis
from tests.support.pool_loads import Pool, Scenario

BASE = "{scaling:0}"
LEASE = 30.0
LIFE, NUDGE, SAMPLE = 5000, 50, 250
"""ms between two heartbeats; between two summons of one producer; between two observations."""


class Row(NamedTuple):
    """One observation."""

    at: int
    ready: int
    running: int
    wanted: int
    crew: int
    summoned: int
    living: int
    """Workers that run; the crew are those that Redis counts."""


@dataclass
class Trace:
    """The events of a run; all times in ms since its start."""

    scenario: Scenario
    rows: list[Row] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    lives: list[tuple[int, int]] = field(default_factory=list)
    """When each worker arrived and left."""
    given: list[int] = field(default_factory=list)
    """When invocations were handed out, one entry each."""
    left: list[int] = field(default_factory=list)
    """When workers were allowed to leave."""
    sent_home: int = 0
    """Invoked workers that arrived after they were given up."""
    completed: int = 0
    beyond: int = 0
    """The most workers, running or on their way, above the wanted number."""
    miscounted: int = 0
    """The largest error of Redis's count of workers on their way."""

    @property
    def cost(self) -> float:
        """Worker-seconds."""
        return sum(gone - came for came, gone in self.lives) / 1000

    @property
    def ideal(self) -> float:
        """Worker-seconds of an ideal: each job starts at once (or as soon as `max` workers can), on workers
        that come and go at once.
        """
        pool, busy, edges = self.scenario.pool, list[int](), list[tuple[int, int]]()
        for job in sorted(self.scenario.jobs):
            begin = job.at if len(busy) < pool.max * pool.slots else max(job.at, heapq.heappop(busy))
            heapq.heappush(busy, begin + job.takes)
            edges += [(begin, 1), (begin + job.takes, -1)]
        running, sums = 0, 0
        for (at, change), (then, _) in pairwise([*sorted(edges), (self.scenario.seconds * 1000, 0)]):
            running += change
            sums += max(pool.min, math.ceil(running / pool.slots)) * (then - at)
        return sums / 1000

    def wait(self, share: float) -> int:
        """The wait that all but this share of the jobs did not exceed."""
        ordered = sorted(self.waits)
        return ordered[min(len(ordered) - 1, int(len(ordered) * (1 - share)))]

    @property
    def most(self) -> int:
        """The most workers at one time."""
        return max(row.living for row in self.rows)

    def flaps(self, within: int = 5000) -> int:
        """How often a worker was allowed to leave, and another one invoked soon after."""
        return sum(any(left < given <= left + within for given in self.given) for left in self.left)

    def turns(self) -> int:
        """How often the number of workers changed its direction."""
        steps = [b.living - a.living for a, b in pairwise(self.rows) if a.living != b.living]
        return sum((a > 0) != (b > 0) for a, b in pairwise(steps))

    def forsaken(self) -> int:
        """The longest time with work and without a worker."""
        longest = since = 0
        for row in self.rows:
            since = since if row.ready and not row.living else row.at
            longest = max(longest, row.at - since)
        return longest


class Desk:
    """The calls of producers and workers to Redis."""

    def __init__(self, clock: Clock, pool: Pool) -> None:
        self._redis = Redis(clock, BASE)
        self._asked = 0
        self.ask = self._redis.ask
        self.ask(verbs.init(BASE))
        self.ask(pools.pool(BASE, "p", 0, pool.settings, ""))

    def submit(self, ids: Sequence[int]) -> None:
        """Submit jobs, in as many calls as needed."""
        for i in range(0, len(ids), verbs.BATCH):
            self.ask(
                verbs.submit(
                    BASE,
                    [Submission(f"j{n}", "q", "t", "tries=100", b"{}") for n in ids[i : i + verbs.BATCH]],
                )
            )

    def claim(self, worker: str, n: int) -> tuple[list[Lease], int]:
        """Claim; returns jobs, and the ms until the worker should claim again."""
        self._asked += 1
        claimed = self.ask(
            verbs.claim(
                BASE,
                claim_id=f"claim-{self._asked:022}",
                worker=worker,
                lease=LEASE,
                n=min(n, 100),
                queues=["q"],
            )
        )
        return claimed.leases, round(claimed.next_in * 1000)

    def has_wake_up(self) -> bool:
        """Take a wake-up, if there is one."""
        return self._redis.command("LPOP", keys.wake(BASE, "q")) is not None

    def summon(self, n: int = 100, leaver: str = "") -> tuple[list[str], pools.Summoning]:
        """Summon; returns the invocations handed out, and the pool's numbers."""
        self._asked += 1
        summons = f"summons-{self._asked:022}"
        found = self.ask(pools.summon(BASE, "p", summons=summons, n=n, leaver=leaver))
        return [f"{summons}.{i}" for i in range(1, found.given + 1)], found

    def complain(self, ids: Sequence[str]) -> None:
        """Report invocations that failed."""
        if ids:
            self.ask(
                pools.complain(
                    BASE, "p", summons=ids[0], n=len(ids), reason="the function's URL answered 500"
                )
            )


@dataclass
class Worker:
    """An invoked worker."""

    name: str
    came: int
    held: dict[str, Lease] = field(default_factory=dict)
    ended: list[Lease] = field(default_factory=list)
    """Jobs that have ended and are not settled yet."""
    waits: bool = False
    asked: int = 0
    """When it last asked to leave, or arrived."""
    turn: int = 0
    """Grows with each action, so that earlier plans are out of date."""


class Fleet:
    """One run of a scenario. The same seed gives the same run."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario, self.pool, self.trace = scenario, scenario.pool, Trace(scenario)
        self._random, self._clock, self._now = random.Random(seed), Clock(), 0
        self._start = self._clock.now
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._turn = self._named = 0
        self._workers: dict[str, Worker] = {}
        self._waiting: deque[Worker] = deque()
        self._seen: set[str] = set()
        self._owed: dict[str, int] = {}
        self._asked, self._planned = [-NUDGE] * scenario.callers, [False] * scenario.callers

    def run(self) -> Trace:
        """Run the scenario."""
        by_moment: dict[int, list[int]] = {}
        for n, job in enumerate(self.scenario.jobs):
            by_moment.setdefault(job.at, []).append(n)
        for i, (at, ids) in enumerate(by_moment.items()):
            self._at(at, self._submit, ids, i % self.scenario.callers)
        self._at(self.scenario.tick, self._tick)
        self._at(0, self._sample)
        if self.scenario.killed:
            self._at(self._drawn(1000 / self.scenario.killed), self._kill)
        with self._clock.rules():
            self._desk = Desk(self._clock, self.pool)
            while self._events and self._events[0][0] <= self.scenario.seconds * 1000:
                self._now, _, event, words = heapq.heappop(self._events)
                self._clock.now = self._start + self._now
                event(*words)
        for worker in list(self._workers.values()):
            self._gone(worker)
        return self.trace

    def _at(self, when: int, event: Callable[..., None], *words: Any) -> None:
        self._turn += 1
        heapq.heappush(self._events, (when, self._turn, event, words))

    def _drawn(self, mean: float) -> int:
        return max(1, round(self._random.expovariate(1 / mean)))

    # producers

    def _submit(self, ids: list[int], caller: int) -> None:
        self._desk.submit(ids)
        self._wake()
        if not self._planned[caller]:
            self._planned[caller] = True
            self._at(max(self._now, self._asked[caller] + NUDGE), self._nudge, caller)

    def _nudge(self, caller: int) -> None:
        self._planned[caller], self._asked[caller] = False, self._now
        self._summon()

    def _tick(self) -> None:
        self._desk.ask(verbs.reap(BASE, limit=100, by="tick"))
        self._wake()
        self._summon()
        self._at(self._now + self.scenario.tick, self._tick)

    def _summon(self) -> None:
        ids, found = self._desk.summon()
        failed = [one for one in ids if self._random.random() < self.scenario.refused]
        for one in ids:
            self._owed[one] = self._now + self.pool.arrive
            if one not in failed and self._random.random() >= self.scenario.lost:
                self._at(self._now + self._random.randint(*self.scenario.cold), self._arrive, one)
        self.trace.given += [self._now] * len(ids)
        self._desk.complain(failed)
        if ids:
            self.trace.beyond = max(
                self.trace.beyond, found.sum["crew"] + self._on_their_way - found.sum["wanted"]
            )

    @property
    def _on_their_way(self) -> int:
        return sum(until > self._now for until in self._owed.values())

    def _sample(self) -> None:
        _, found = self._desk.summon(n=0)
        ready, running, wanted, crew, summoned = (found.sum[name] for name in Row._fields[1:-1])
        self.trace.rows.append(Row(self._now, ready, running, wanted, crew, summoned, len(self._workers)))
        self.trace.miscounted = max(self.trace.miscounted, abs(summoned - self._on_their_way))
        self._at(self._now + SAMPLE, self._sample)

    # workers

    def _arrive(self, summons: str) -> None:
        self._named += 1
        worker = Worker(f"w{self._named}", self._now, asked=self._now)
        in_time = self._owed.pop(summons, 0) > self._now
        if self._desk.ask(verbs.enlist(BASE, Card(worker.name, "1", "", b"{}", "p", summons))) == "drain":
            self.trace.sent_home += 1
            self._leave(worker)
            return
        if not in_time and self._on_their_way:  # it replaces another one, which will then be late
            self._owed.pop(max(self._owed, key=lambda one: self._owed[one]))
        self._workers[worker.name] = worker
        self._at(self._now + LIFE, self._live, worker, summons)
        self._claim(worker)

    def _live(self, worker: Worker, summons: str) -> None:
        """Send a heartbeat of the registration and of the leases."""
        if worker.name in self._workers:
            self._desk.ask(verbs.enlist(BASE, Card(worker.name, "1", "", b"{}", "p", summons)))
            if worker.held:
                self._desk.ask(
                    verbs.heartbeat(BASE, [Beat(lease) for lease in worker.held.values()], lease=LEASE)
                )
            self._at(self._now + LIFE, self._live, worker, summons)

    def _claim(self, worker: Worker, turn: int = -1) -> None:
        """Claim as much as its capacity; then wait for a wake-up, or until the next claim is due."""
        if worker.name not in self._workers or turn not in (-1, worker.turn):
            return
        worker.turn += 1
        free = self.pool.slots - len(worker.held)
        leases, again = self._desk.claim(worker.name, free) if free else ([], 2000)
        for lease in leases:
            self._begin(worker, lease)
        if len(leases) < free and not worker.waits:
            worker.waits = True
            self._waiting.append(worker)
        self._at(self._now + max(1, again), self._claim, worker, worker.turn)
        if not worker.held:
            self._at(
                max(self._now + 1, worker.asked + self.pool.linger), self._ask_to_go, worker, worker.turn
            )
        self._wake()

    def _begin(self, worker: Worker, lease: Lease) -> None:
        job = self.scenario.jobs[int(lease.id[1:])]
        worker.held[lease.id] = lease
        if lease.id not in self._seen:
            self._seen.add(lease.id)
            self.trace.waits.append(self._now - job.at)
        self._at(self._now + job.takes, self._end, worker, lease)

    def _end(self, worker: Worker, lease: Lease) -> None:
        if worker.held.get(lease.id) is lease and worker.name in self._workers:
            worker.ended.append(lease)
            if (
                len(worker.ended) == 1
            ):  # jobs that end in the same ms are settled together, with the next claim
                self._at(self._now, self._complete, worker)

    def _complete(self, worker: Worker) -> None:
        if worker.name not in self._workers:
            return
        answers = self._desk.ask(verbs.complete(BASE, [Completion(lease, b"1") for lease in worker.ended]))
        self.trace.completed += answers.count("completed")
        for lease in worker.ended:
            del worker.held[lease.id]
        worker.ended = []
        self._claim(worker)

    def _ask_to_go(self, worker: Worker, turn: int) -> None:
        """Idle at this moment, and not asked for a while."""
        if worker.name not in self._workers or turn != worker.turn:
            return
        worker.asked = self._now
        _, found = self._desk.summon(n=0, leaver=worker.name)
        if found.word == "leave":
            self.trace.left.append(self._now)
            self._leave(worker)
        else:
            self._at(self._now + self.pool.linger, self._ask_to_go, worker, turn)

    def _leave(self, worker: Worker) -> None:
        self._desk.ask(verbs.reconcile(BASE, worker.name, "1", []))
        self._gone(worker)

    def _gone(self, worker: Worker) -> None:
        self._workers.pop(worker.name, None)
        self.trace.lives.append((worker.came, self._now))

    def _kill(self) -> None:
        if self._workers:
            self._gone(self._random.choice(list(self._workers.values())))
        if self._now < self.scenario.last:
            self._at(self._now + self._drawn(1000 / self.scenario.killed), self._kill)

    def _wake(self) -> None:
        """Redis serves the longest-waiting client."""
        while self._waiting:
            worker = self._waiting[0]
            ready = worker.name in self._workers and len(worker.held) < self.pool.slots
            if ready and not self._desk.has_wake_up():
                return
            self._waiting.popleft()
            worker.waits = False
            if ready:
                self._at(self._now + 1, self._claim, worker)
