"""A job of a pool with no minimum sleeps for 30 days: the real scripts in virtual time. No worker runs meanwhile."""

from sublet.model import Card, Completion, Suspension
from sublet.protocol import verbs
from sublet.steps import calls
from tests.faults.simulation.server import Clock
from tests.support.pool_loads import Pool
from tests.support.simulated_pool import BASE, Desk

DAY = 86_400_000
"""ms."""


def test_a_sleep_of_30_days_needs_no_worker_and_repeats_no_step():
    clock = Clock()
    with clock.rules():
        desk = Desk(clock, Pool())
        desk.submit([1])
        (summons,), _ = desk.summon()
        desk.ask(verbs.enlist(BASE, Card("w1", "1", "", b"{}", "p", summons)))
        (lease,), _ = desk.claim("w1", 1)
        desk.ask(calls.step(BASE, lease, {"charge": b'"paid"'}))
        slept = clock.now
        desk.ask(calls.suspend(BASE, [Suspension(lease, "sleep", "cool-off", 30 * DAY / 1000)]))
        desk.ask(verbs.reconcile(BASE, "w1", "1", []))

        for day in range(30):
            clock.now = slept + day * DAY
            for _ in range(3):  # a day's ticks are alike: a minute apart, three show it
                clock.now += 60_000
                desk.ask(verbs.reap(BASE, limit=100, by="tick"))
                given, found = desk.summon()
                numbers = {
                    name: found.sum[name] for name in ("ready", "running", "wanted", "crew", "summoned")
                }
                assert (given, set(numbers.values())) == ([], {0}), f"day {day}: {numbers}"
        clock.now = slept + 30 * DAY - 1
        desk.ask(verbs.reap(BASE, limit=100, by="tick"))
        assert desk.summon()[0] == [], "the sleep is over a ms later"

        clock.now += 1
        desk.ask(verbs.reap(BASE, limit=100, by="tick"))
        (summons,), _ = desk.summon()
        desk.ask(verbs.enlist(BASE, Card("w2", "1", "", b"{}", "p", summons)))
        (lease,), _ = desk.claim("w2", 1)
        kept = desk.ask(calls.step(BASE, lease, {}))
        assert (lease.attempt, {name: (one.kind, one.value) for name, one in kept.items()}) == (
            2,
            {"charge": ("step", b'"paid"'), "cool-off": ("sleep", b"null")},
        )
        assert desk.ask(verbs.complete(BASE, [Completion(lease, b"1")])) == ["completed"]
