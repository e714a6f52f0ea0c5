"""The small model: one job, two workers, a reaper and a producer, one fault, in every possible order. (`flow.orders` has two jobs
of a group, `workflows.orders` jobs that wait.)

Between two calls of one actor any call of any other may run, time may pass, and one fault may occur. Each
step runs the real Lua, and the invariants are checked after it. When nothing can happen any more, a healthy
worker starts, and the job must end.

Two orders that lead to the same point (the same stored bytes, clock and knowledge of all actors) have the
same future, as scripts and actors read nothing else. So each point is left once in each direction, and the
orders through it are counted, not walked again. Counters are not part of a point: they are checked after each
step, and nothing depends on them.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from sublet.model import Beat, Completion, Failure, Lease, Release, Submission
from sublet.protocol import keys, verbs
from sublet.protocol.reads import TOTALS
from sublet.protocol.scripts import NAMES, Call, script
from tests.faults.simulation.history import Settings
from tests.faults.simulation.invariants import FINISHED, Checker
from tests.faults.simulation.request import Request, Violation, must
from tests.faults.simulation.server import Clock, Redis
from tests.faults.simulation.story import answered, as_text

BASE, JOB, LEASE = "{exhaustive:0}", "0-job", 30.0
CLAIMS = keys.claim(BASE, "").encode()
COUNTS, COUNTED = keys.counts(BASE).encode(), frozenset(name.encode() for name in TOTALS)
"""The key of the counters, and the fields of the base that are counters."""
ENDINGS = {
    "complete": lambda lease, worker: verbs.complete(BASE, [Completion(lease, worker.encode())]),
    "fail": lambda lease, worker: verbs.fail(BASE, [Failure(lease, "Boom", "words", "more words")]),
    "release": lambda lease, worker: verbs.release(BASE, [Release(lease, 0, "later")]),
}


class Cast(NamedTuple):
    """The parameters: how the two workers end their attempts, how often time passes, and how often the reaper runs."""

    name: str
    one: str
    two: str
    times: int = 1
    reaps: int = 2
    replaced: bool = False
    """Whether a successor may consider the first worker dead, at any moment, also wrongly."""


CASTS = (
    Cast("complete complete", "complete", "complete"),
    Cast("complete fail", "complete", "fail"),
    Cast("complete release", "complete", "release"),
    Cast("complete complete, twice the time", "complete", "complete", times=2, reaps=0),
    Cast("complete complete, one considered dead", "complete", "complete", reaps=0, replaced=True),
)


class Actor(NamedTuple):
    """The position of an actor: a producer, a worker, a reaper, or time."""

    name: str
    next: str
    """The next call; empty after the last one."""
    left: int = 1
    """The remaining calls, if they have no effect."""
    ends: str = ""
    lease: Lease | None = None

    def call(self) -> Call[Any]:
        """The next request; always the same for this position."""
        if self.next == "submit":
            return verbs.submit(BASE, [Submission(JOB, "q", "t", "key=K backoff=1000:1:1000", b"{}")])
        if self.next == "claim":
            claim_id = f"{self.name}.{self.left:0>22}"
            return verbs.claim(BASE, claim_id=claim_id, worker=self.name, lease=LEASE, n=1, queues=["q"])
        if self.next == "reap":
            return verbs.reap(BASE, limit=100, by=self.name)
        if self.next == "reconcile":
            return verbs.reconcile(BASE, "one", "life", [(JOB, 1)])
        assert self.lease
        if self.next == "heartbeat":
            return verbs.heartbeat(BASE, [Beat(self.lease)], lease=LEASE)
        return ENDINGS[self.next](self.lease, self.name)

    def after(self, answer: Any) -> "Actor":
        """Its position after the answer."""
        if self.next == "claim" and answer.leases:
            return self._replace(next="heartbeat", lease=answer.leases[0])
        if self.next == "heartbeat" and not isinstance(answer[0], str):
            return self._replace(next=self.ends)
        if self.next in ("claim", "reap") and self.left > 1:
            return self._replace(left=self.left - 1)
        return self.dead()

    def dead(self) -> "Actor":
        """Its position after its death."""
        return self._replace(next="", left=0, lease=None)


class Point(NamedTuple):
    """All that determines the further orders."""

    world: int
    """The number of the stored data, the time, and the checker's knowledge (see `Search.worlds`)."""
    actors: tuple[Any, ...]
    """Each an `Actor`, or one that has the same methods."""
    late: tuple[Any, ...] = ()
    """The commands of a copy that is still in transit, and its sender."""
    faults: int = 1
    """How many faults may still occur."""


@dataclass
class Search:
    """Walks from a point in every direction."""

    redis: Redis
    checker: Checker
    worlds: list[tuple[Any, int, Any]] = field(default_factory=list)
    """Stored bytes, clock and checker's knowledge of each world."""
    numbers: dict[tuple[Any, int, Any], int] = field(default_factory=dict)
    ran: dict[tuple[int, Any], tuple[int, Any, str]] = field(default_factory=dict)
    """World and commands → the world after them, the reply, and a line of text."""
    orders: dict[Point, int] = field(default_factory=dict)
    """Point → the number of orders from there."""
    ended: set[int] = field(default_factory=set)
    steps: int = 0
    path: list[str] = field(default_factory=list)

    def explore(self, point: Point) -> int:
        """The number of orders from here; raises Violation if an invariant fails in any."""
        if point not in self.orders:
            found = 0
            for words, following in self.directions(point):
                self.path.append(words)
                found += self.explore(following)
                self.path.pop()
            if not found and point.world not in self.ended:
                self.see_it_end(point.world)
                self.ended.add(point.world)
            self.orders[point] = found or 1
        return self.orders[point]

    def directions(self, point: Point) -> Iterator[tuple[str, Point]]:
        """All next steps: each actor's next call, with and without a fault; a late copy; time."""
        for i, actor in enumerate(point.actors):
            if actor.next == "time":
                passed = self.with_actor(
                    point, i, actor._replace(next="time" if actor.left > 1 else "", left=actor.left - 1)
                )
                yield "time passes, more than a lease", passed._replace(world=self.later(point.world))
            elif actor.next:
                call = actor.call()
                run, reply, words = self.run(point, actor.name, call.commands)
                answer = None if isinstance(reply, ResponseError) else call.read(reply)
                done = self.with_actor(run, i, actor.after(answer))
                yield words, done
                if point.faults:
                    once: dict[str, Any] = {"faults": point.faults - 1}
                    copy: dict[str, Any] = {"late": (actor.name, call.commands), **once}
                    yield f"{words} (reply lost)", run._replace(**once)
                    yield f"{words} (and a copy is in transit)", done._replace(**copy)
                    yield f"{actor.name}'s {actor.next} is late, and considered lost", point._replace(**copy)
                    yield (
                        f"{actor.name} dies before its {actor.next}",
                        self.with_actor(point, i, actor.dead())._replace(**once),
                    )
                    yield (
                        f"{words} ({actor.name} has died)",
                        self.with_actor(run, i, actor.dead())._replace(**once),
                    )
        if point.late:
            run, _, words = self.run(point, *point.late)
            yield f"late: {words}", run._replace(late=())

    @staticmethod
    def with_actor(point: Point, i: int, actor: Any) -> Point:
        """The same point with one actor replaced."""
        return point._replace(actors=(*point.actors[:i], actor, *point.actors[i + 1 :]))

    def number(self) -> int:
        """The number of the present world."""
        world = (self.redis.save(), self.redis.clock.now, self.checker.save())
        decides = (
            tuple(_deciding(entry) for entry in world[0] if entry[0] != COUNTS),
            world[1],
            world[2][0],
            world[2][2:],
        )
        if decides not in self.numbers:
            self.numbers[decides] = len(self.worlds)
            self.worlds.append(world)
        return self.numbers[decides]

    def enter(self, number: int) -> None:
        """Restore a world."""
        stored, self.redis.clock.now, known = self.worlds[number]
        self.redis.restore(stored)
        self.checker.restore(known)

    def later(self, number: int) -> int:
        """The same world, when a lease's time has passed."""
        self.enter(number)
        self.redis.clock.now += 31_000
        return self.number()

    def run(self, point: Point, name: str, commands: Any) -> tuple[Point, Any, str]:
        """Let Redis run commands at a point. Returns the point after that, the reply, and a line of text."""
        if (point.world, commands) not in self.ran:
            self.enter(point.world)
            reply, words = self.send(name, commands)
            self.ran[point.world, commands] = (self.number(), reply, words)
        world, reply, words = self.ran[point.world, commands]
        return point._replace(world=world), reply, words

    def send(self, name: str, commands: Any) -> tuple[Any, str]:
        """Let Redis run commands now, and check the invariants."""
        self.steps += 1
        request = Request.of(commands[0])
        try:
            reply = self.redis.raw(commands)
        except ResponseError as error:
            reply = error
        words = f"{name}'s {as_text(request)} → {answered(request, reply)}"
        try:
            self.checker.executed(None, request, reply)
        except Violation:
            self.path.append(words)
            raise
        return reply, words

    def see_it_end(self, world: int) -> None:
        """Start a healthy worker after the last step: the job must end."""
        self.enter(world)
        self.send("last", verbs.reap(BASE, limit=100, by="last").commands)
        for n in range(1, 5):
            self.redis.clock.now += 40_000
            claim = Actor("last", "claim", n).call()
            reply, _ = self.send("last", claim.commands)
            for lease in claim.read(reply).leases:
                self.send("last", ENDINGS["complete"](lease, "last").commands)
        must(all(life.state in FINISHED for life in self.checker.lives.values()), "the job has not ended")


def _deciding(entry: Any) -> Any:
    """The data of a key that later calls depend on: without the totals, and without the flag of a repeated
    claim, as no actor here releases the jobs of a disconnected caller."""
    name, kind, value, expires = entry
    if name.startswith(CLAIMS):
        return name, kind, value.removesuffix(b" +"), expires
    return (
        name,
        kind,
        tuple(pair for pair in value if pair[0] not in COUNTED) if name == BASE.encode() else value,
        expires,
    )


class Count(NamedTuple):
    """The result of the enumeration of one cast."""

    name: str
    orders: int
    points: int
    steps: int


def enumerate_all(cast: Cast) -> Count:
    """Walk through every order. Raises Violation, with the path that led there."""
    actors = (Actor("producer", "submit"), Actor("one", "claim", 2, cast.one), Actor("two", "claim", 2, cast.two),
              Actor("reaper", "reap" if cast.reaps else "", cast.reaps), Actor("time", "time", cast.times),
              Actor("successor", "reconcile" if cast.replaced else ""))  # fmt: skip
    return walk(cast.name, actors)


def walk(
    name: str,
    actors: tuple[Any, ...],
    queues: Mapping[str, Settings] = MappingProxyType({}),
    faults: int = 1,
    search: "type[Search] | None" = None,
) -> Count:
    """Walk through every order of these actors' calls, with these settings of queues at the beginning."""
    clock = Clock()
    with clock.rules():
        redis = Redis(clock, BASE)
        for verb in NAMES:
            redis.command("SCRIPT", "LOAD", script(verb).text)
        redis.ask(verbs.init(BASE))
        for queue, settings in queues.items():
            redis.ask(verbs.configure(BASE, queue, 0, settings.limits))
        walker = (search or Search)(redis, Checker(redis))
        walker.checker.settings.update(queues)
        try:
            orders = walker.explore(Point(walker.number(), actors, faults=faults))
        except Violation as violation:
            raise Violation("\n".join([str(violation), "after:", *walker.path])) from violation
    return Count(name, orders, len(walker.orders), walker.steps)


def main(as_json: bool) -> int:
    """Enumerate all casts and print the counts; the exit code."""
    from tests.faults.simulation.flow import orders as flow  # which import this module
    from tests.faults.simulation.workflows import orders as workflows

    began, counts = time.monotonic(), []
    models: list[tuple[Callable[[Any], Count], Sequence[Any]]] = [
        (enumerate_all, CASTS),
        (flow.enumerate_all, flow.CASTS),
        (workflows.enumerate_all, workflows.CASTS),
    ]
    for walk_all, cast in [(walk_all, cast) for walk_all, casts in models for cast in casts]:
        try:
            counts.append(walk_all(cast))
        except Violation as violation:
            print(
                json.dumps({"cast": cast.name, "wrong": str(violation)})
                if as_json
                else f"{cast.name}: {violation}"
            )
            return 1
        if not as_json:
            print(line(counts[-1]), flush=True)
    seconds = time.monotonic() - began
    total = sum(count.orders for count in counts)
    if as_json:
        print(
            json.dumps(
                {
                    "orders": total,
                    "casts": [count._asdict() for count in counts],
                    "seconds": round(seconds, 3),
                }
            )
        )
    else:
        print(f"{total:,} orders, all invariants held · {seconds:.1f} s")
    return 0


def line(count: Count) -> str:
    """One cast's numbers on one line."""
    return (
        f"{count.name}: {count.orders:,} orders through {count.points:,} points, {count.steps:,} scripts run"
    )
