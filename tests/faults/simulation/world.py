"""The world of a simulation: processes made of strands, a clock that jumps from event to event, a faulty network.

A strand is a generator. It yields a request to wait (`Sleep`, `Doze`, `Send`, `Listen`) and receives the
result. Only one runs at a time, and only the clock and `Choices` decide which is next, so a run is
reproducible.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from redis.exceptions import NoScriptError, RedisError, ResponseError

from sublet.connection.transport import PAUSES, refused
from sublet.errors import JobsError, Unavailable
from sublet.protocol import keys
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call
from tests.faults.simulation.choices import Choices
from tests.faults.simulation.invariants import Checker
from tests.faults.simulation.request import Request, must
from tests.faults.simulation.server import START, Clock, Redis
from tests.faults.simulation.story import answered, as_text

T = TypeVar("T")
TIMEOUT = 2.0
"""Seconds after which a caller considers a call lost."""
STEPS = 100_000
"""Steps of a run at most."""
LATENCIES = (0.001, 0.002, 0.004, 0.02, 0.2)
GAPS = (0.05, 0.5, 1.5, 2.5, 6.0, 11.0, 35.0, 90.0)
"""Seconds by which a request is late, a copy follows, or a process is suspended."""
FATES = ("arrives", "request lost", "reply lost", "arrives twice", "arrives late", "caller dies before it is sent",
         "caller dies once it is sent", "caller stands still")  # fmt: skip
LOST = object()
"""The result of a call without an answer."""


class Sleep(NamedTuple):
    """Wait some seconds."""

    seconds: float


class Doze(NamedTuple):
    """Wait for a nudge from another strand of the process, at most some seconds."""

    name: str
    seconds: float


class Send(NamedTuple):
    """Send commands and wait for the reply. Answers it, an error of Redis's, or LOST."""

    name: str
    commands: tuple[tuple[Any, ...], ...]


class Listen(NamedTuple):
    """Wait for a wake-up of these queues, at most some seconds. Returns whether there was one."""

    queues: tuple[str, ...]
    seconds: float


Strand = Generator[Any, Any, T]


class Process:
    """A process: it makes calls, and may die or be suspended. Its code runs in strands."""

    endless = False
    """Whether it runs until the end of the run."""

    def __init__(self, world: "World", name: str) -> None:
        self.world, self.name = world, name
        self.alive, self.frozen_until = True, 0
        self.made: Counter[str] = Counter()
        self.claims = 0

    def start(self, strand: Strand[None]) -> None:
        """Let another strand run in this process."""
        self.world.begin(_Running(self, strand))

    def nudge(self, name: str) -> None:
        """Wake the strand of this process that dozes under this name."""
        self.world.nudge(self, name)

    def pick(self, name: str, options: Sequence[T], chance: float = 1.0) -> T:
        """A decision about this process."""
        return self.world.choices.pick(f"{self.name}: {name}", options, chance)

    def ask(self, call: Call[T]) -> Strand[T]:
        """Make a call as `sublet.connection.transport` does: without a reply the same bytes are repeated, then it fails."""
        verb = Request.of(call.commands[0]).verb
        self.made[verb] += 1
        name = f"{verb} {self.made[verb]}"
        for n, pause in enumerate((*PAUSES, None)):
            again = f"{name}, sent again" if n else name
            reply = yield Send(f"{again} ({n})" if n else again, call.commands)
            if isinstance(reply, NoScriptError):
                reply = yield Send(f"{again}, as text ({n})", (call.with_text(),))
            if isinstance(reply, ResponseError):
                raise refused(reply)
            if reply is not LOST:
                return call.read(reply)
            if pause is not None:
                yield Sleep(pause)
        raise Unavailable(f"no answer to {name}")

    def follow(self, plan: Plan[T]) -> Strand[T]:
        """Carry out a plan of `sublet.operations.operations`."""
        answer, failure = None, None
        while True:
            try:
                call = plan.throw(failure) if failure else plan.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # the plan's own answer
            try:
                answer, failure = (yield from self.ask(call)), None
            except JobsError as error:
                failure = error


@dataclass(eq=False)
class _Running:
    """A started strand. `turn` increases whenever it runs, so that earlier wake-ups are ignored."""

    process: Process
    body: Strand[None]
    turn: int = 0
    dozes: str = ""
    listens: tuple[str, ...] = ()


class World:
    """One run: its events in their order."""

    def __init__(self, choices: Choices, base: str, with_story: bool = False) -> None:
        self.choices, self.clock = choices, Clock()
        self.linked = choices.pick("workflows and steps", (False, True), 0.5)
        """Whether jobs wait for others, and have steps."""
        room = choices.pick("edges that a call settles", (50, 2, 1), 0.6) if self.linked else 50
        self.redis = Redis(self.clock, base, room)
        self.checker = Checker(self.redis)
        self.faults: Counter[str] = Counter()
        self.fault_rate = 0.0
        self.by_turns = False
        """Whether jobs have groups, and queues have limits."""
        self.dead: set[str] = set()
        """The names of dead processes."""
        self.calls = self.steps = self.under_way = 0
        self.story: list[str] | None = [] if with_story else None
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = 0
        self._strands: list[_Running] = []

    @property
    def now(self) -> float:
        """Seconds since the run began. This clock is always right; the server's may be wrong."""
        return (self.clock.now - START) / 1000

    def note(self, words: str) -> None:
        """Add a line to the story."""
        if self.story is not None:
            self.story.append(f"{self.now:9.3f}  {words}")

    def at(self, seconds: float, what: Callable[[], None]) -> None:
        """Call a function after some seconds."""
        self._numbers += 1
        heapq.heappush(self._events, (self.clock.now + round(seconds * 1000), self._numbers, what))

    def run(self, until: float, over: Callable[[], bool] = lambda: False) -> None:
        """Process events until a moment, or the end. Raises Violation."""
        while self._events and self._events[0][0] <= START + until * 1000 and not over():
            moment, _, what = heapq.heappop(self._events)
            self.clock.now = max(self.clock.now, moment)
            self.steps += 1
            must(self.steps < STEPS, f"the run has not ended after {STEPS} steps")
            what()

    def quiet(self) -> bool:
        """Whether all processes are done, and no request is in transit."""
        return not self.under_way and all(strand.process.endless for strand in self._strands)

    # strands

    def begin(self, strand: _Running) -> None:
        """Let a strand run from now on."""
        self._strands.append(strand)
        self.at(0, lambda: self._resume(strand, 0, None))

    def _resume(self, strand: _Running, turn: int, value: Any) -> None:
        process = strand.process
        if not process.alive or turn != strand.turn:
            return
        if process.frozen_until > self.clock.now:
            self.at((process.frozen_until - self.clock.now) / 1000, lambda: self._resume(strand, turn, value))
            return
        strand.turn, strand.dozes, strand.listens = turn + 1, "", ()
        try:
            wanted = strand.body.send(value)
        except StopIteration:
            self._strands.remove(strand)
            return
        self._wait_for(strand, wanted)

    def _later(self, strand: _Running, seconds: float, value: Any = None) -> None:
        turn = strand.turn
        self.at(seconds, lambda: self._resume(strand, turn, value))

    def _wait_for(self, strand: _Running, wanted: Any) -> None:
        if isinstance(wanted, Send):
            self._send(strand, wanted)
        elif isinstance(wanted, Listen):
            strand.listens = wanted.queues
            self._later(strand, wanted.seconds, False)
            self._hand_out_wake_ups()
        else:
            strand.dozes = wanted.name if isinstance(wanted, Doze) else ""
            self._later(strand, wanted.seconds)

    def nudge(self, process: Process, name: str) -> None:
        """Wake the strands of a process that doze under this name."""
        for strand in self._strands:
            if strand.process is process and strand.dozes == name:
                self._later(strand, 0)

    def kill(self, process: Process) -> None:
        """End a process with all its strands."""
        process.alive = False
        self.dead.add(process.name)
        self._strands = [strand for strand in self._strands if strand.process is not process]

    # the network

    def _send(self, strand: _Running, sent: Send) -> None:
        process, commands, turn = strand.process, sent.commands, strand.turn
        self.calls += 1
        fate = process.pick(sent.name, FATES, self.fault_rate)
        there = process.pick(f"{sent.name} takes", LATENCIES, 0.7)
        words = (
            f"{process.name} sends {sent.name}"
            if self.story is None
            else f"{process.name} sends {as_text(Request.of(commands[0]))}"
        )
        if fate == "arrives":
            self._arrive(there, process, commands, lambda reply: self._resume(strand, turn, reply))
            return
        self.faults[fate] += 1
        gap = (
            process.pick(f"{sent.name}: {fate} by", GAPS)
            if fate in ("arrives twice", "arrives late", "caller stands still")
            else 0
        )
        self.note(f"{words} — {fate}{f' by {gap:g} s' * bool(gap)}")
        lost = lambda reply: None  # noqa: E731  # this reply is lost
        if fate == "arrives twice":
            self._arrive(there, process, commands, lambda reply: self._resume(strand, turn, reply))
            self._arrive(there + gap, process, commands, lost, "the copy of ")
        elif fate == "arrives late":
            self._arrive(gap, process, commands, lambda reply: self._resume(strand, turn, reply), "late: ")
        elif fate == "reply lost" or fate == "caller dies once it is sent":
            self._arrive(there, process, commands, lost)
        elif fate == "caller stands still":
            self._arrive(there, process, commands, lambda reply: self._resume(strand, turn, reply))
            process.frozen_until = self.clock.now + round(gap * 1000)
        if fate.startswith("caller dies"):
            self.kill(process)
        elif fate != "arrives twice":
            self._later(strand, TIMEOUT + (gap if fate == "caller stands still" else 0), LOST)

    def _arrive(
        self, seconds: float, process: Process, commands: Any, receive: Callable[[Any], None], words: str = ""
    ) -> None:
        self.under_way += 1

        def arrive() -> None:
            self.under_way -= 1
            reply = self.execute(process, commands, words)
            self.at(0.001, lambda: receive(reply))

        self.at(seconds, arrive)

    def at_once(self, process: Process, plan: Plan[T]) -> T:
        """Carry out a plan, without faults and before anything else happens."""
        answer = None
        while True:
            try:
                call = plan.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # the plan's own answer
            answer = call.read(self.execute(process, (call.with_text(),) if call.text else call.commands))

    def execute(self, process: Process, commands: tuple[tuple[Any, ...], ...], words: str = "") -> Any:
        """Let Redis run a call's commands now, and check the invariants."""
        try:
            reply = self.redis.raw(commands)
        except RedisError as error:
            reply = error
        request = Request.of(commands[0])
        if request.verb != "read":
            if self.story is not None:
                self.note(f"    {words}{process.name}'s {as_text(request)} → {answered(request, reply)}")
            self.checker.executed(process, request, reply)
            self._hand_out_wake_ups()
        return reply

    def _hand_out_wake_ups(self) -> None:
        """Give each wake-up to the first listener, as BLPOP does."""
        for strand in list(self._strands):
            for queue in strand.listens:
                if strand.listens and self.checker.look.wake_ups.get(queue):
                    self.redis.command("LPOP", keys.wake(self.redis.base, queue))
                    process = strand.process
                    process.made["marker"] += 1
                    fate = process.pick(
                        f"marker {process.made['marker']}", ("arrives", "wake-up lost"), self.fault_rate
                    )
                    self.note(
                        f"  {process.name} gets the wake-up of {queue}{' — lost' * (fate != 'arrives')}"
                    )
                    self.checker.took_wake_up(process, queue)
                    strand.listens = ()
                    if fate == "arrives":
                        self._later(strand, 0.001, True)
                    else:
                        self.faults[fate] += 1
