"""One run of the simulation, from the first step to the end of the last job, and on until nothing is stored."""

from collections import Counter
from dataclasses import dataclass, field

from sublet.protocol import verbs
from sublet.protocol.flow import words
from sublet.protocol.scripts import NAMES, script
from tests.faults.simulation.actors import (
    BASE,
    QUEUES,
    Mender,
    Opener,
    Operator,
    Planner,
    Producer,
    Tick,
    Trigger,
    Weather,
)
from tests.faults.simulation.choices import Choices, Deviations
from tests.faults.simulation.crew import Worker
from tests.faults.simulation.flow.drawn import LIMITS
from tests.faults.simulation.history import Settings
from tests.faults.simulation.invariants import FINISHED
from tests.faults.simulation.request import Request, Violation, must
from tests.faults.simulation.workflows.cast import Closer, Sender, Weaver
from tests.faults.simulation.world import Process, World

ACTIVE = (30.0, 12.0, 90.0)
"""Seconds with faults."""
RATES = (0.0, 0.03, 0.12, 0.3)
PATIENCE = 4000.0
"""Seconds without faults after which every job must have ended: an unfinished workflow is given up after an hour."""
FORGOTTEN = 15 * 86_400_000
"""The ms after which no finished job is stored."""


@dataclass
class Outcome:
    """The outcome of a run."""

    seed: int | None
    deviations: Deviations
    wrong: str = ""
    """The invariant that did not hold; empty if all did."""
    steps: int = 0
    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    """Jobs by the state in which they ended."""
    story: list[str] = field(default_factory=list)


def run(choices: Choices, with_story: bool = False) -> Outcome:
    """Simulate one world. The same choices give the same outcome, to the letter."""
    world = World(choices, BASE, with_story)
    outcome = Outcome(choices.seed, choices.taken)
    with world.clock.rules():
        try:
            _live(world, outcome)
        except Violation as violation:
            outcome.wrong = str(violation)
        except Exception as error:  # noqa: BLE001  # an exception of the library itself is a failure, too
            outcome.wrong = f"{type(error).__name__}: {error}"
        if outcome.wrong:
            world.note(f"WRONG: {outcome.wrong}")
    outcome.steps, outcome.calls, outcome.faults = world.steps, world.calls, world.faults
    outcome.story = world.story or []
    return outcome


def _live(world: World, outcome: Outcome) -> None:
    choices = world.choices
    world.redis.ask(verbs.init(BASE))
    for name in NAMES:
        world.redis.command("SCRIPT", "LOAD", script(name).text)
    on_dead = choices.pick("deaths are reported by", ("b/hook", "hook", ""), 0.7)
    if on_dead:
        world.redis.ask(verbs.configure(BASE, "*", 0, f"on_dead={on_dead}"))
        world.checker.settings["*"] = Settings(1, "configure", f"on_dead={on_dead}")
    world.by_turns = choices.pick("groups and limits", (False, True), 0.5)
    for queue in QUEUES if world.by_turns else ():
        limits = words(choices.pick(f"limits of {queue}", LIMITS, 0.8))
        world.redis.ask(verbs.configure(BASE, queue, 0, limits))
        world.checker.settings[queue] = Settings(1, "configure", limits)
    world.checker.look = world.redis.look()
    world.fault_rate = choices.pick("faults", RATES, 0.9)
    cast: list[Process] = [
        Producer(world, f"producer{n}") for n in range(1, 1 + choices.pick("producers", (1, 2, 3)))
    ]
    cast += [Operator(world, f"operator{n}") for n in range(1, 1 + choices.pick("operators", (0, 1, 2)))]
    cast += [Tick(world, f"tick{n}") for n in range(1, 1 + choices.pick("ticks", (0, 1, 2)))]
    cast += [Planner(world, f"planner{n}") for n in range(1, 1 + choices.pick("planners", (0, 1, 2)))]
    cast += [Trigger(world, f"trigger{n}") for n in range(1, 1 + choices.pick("triggers", (0, 1, 3)))]
    cast += [Mender(world, f"mender{n}") for n in range(1, 1 + choices.pick("menders", (0, 1, 2)))]
    if world.linked:
        cast += [Weaver(world, f"weaver{n}") for n in range(1, 1 + choices.pick("weavers", (1, 2)))]
        cast.append(Sender(world, "sender"))
    cast.append(Weather(world))
    crew = [Worker(world, f"worker{n}") for n in range(1, 1 + choices.pick("workers", (1, 2, 3)))]
    for worker in crew:
        world.at(
            choices.pick(f"{worker.name}: is replaced after", (8.0, 1.0, 25.0)),
            lambda w=worker: _replace(world, w),
        )
    world.run(choices.pick("active for", ACTIVE))
    choices.calm = True
    world.note("no faults from here on")
    Worker(world, "worker-last")
    Opener(world, "operator-last")
    Trigger(world, "trigger-last")
    if world.linked:
        Closer(world, "closer-last")
    world.run(world.now + PATIENCE, lambda: world.quiet() and _all_ended(world))
    late = [
        f"{life.id} ({life.state})"
        for life in world.checker.lives.values()
        if life.state and life.state not in FINISHED
    ]
    late += world.checker.edges.left()
    must(
        not late,
        f"{PATIENCE:g} s after the last fault {', '.join(late)} {'have' if len(late) > 1 else 'has'} not ended",
    )
    missing = [promise for i, promise in world.checker.promised.items() if i not in world.checker.lives]
    must(
        not missing,
        f"{PATIENCE:g} s after the last fault these occurrences were not fired: {', '.join(missing)}",
    )
    outcome.ends.update(life.state or "deleted" for life in world.checker.lives.values())
    _forget(world)


def _replace(world: World, worker: Worker) -> None:
    """Start another worker when one has died or stops."""
    if (not worker.alive or worker.stopping) and not world.choices.calm:
        name, _, number = worker.name.partition("-")
        worker = Worker(world, f"{name}-{int(number or 1) + 1}")
    world.at(8.0, lambda: _replace(world, worker))


def _all_ended(world: World) -> bool:
    ended = all(life.state in (*FINISHED, None) for life in world.checker.lives.values())
    ended = ended and not world.checker.edges.left()
    return ended and world.checker.promised.keys() <= world.checker.lives.keys()


def _forget(world: World) -> None:
    """After 14 days no job is stored."""
    world.clock.now += FORGOTTEN
    process = Process(world, "tick-last")
    for _ in range(2):
        call = verbs.prune(BASE, limit=200)
        world.checker.executed(process, Request.of(call.commands[0]), world.redis.raw((call.with_text(),)))
    look = world.checker.look
    left = {
        "hashes": look.jobs,
        "members": look.shelves,
        "keys": look.locks,
        "remembered claims": look.claims,
        "streams": look.streams,
        "edges": any(look.edges.values()) or look.unsettled,
    }
    must(
        not any(left.values()),
        f"after 15 days there are still {', '.join(name for name, of in left.items() if of)}",
    )
