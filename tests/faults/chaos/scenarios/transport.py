"""Faults of connections: cut, stalled and slow ones, lost and repeated requests."""

import random
import threading
from collections.abc import Callable

from tests.faults.chaos.harness import LEASE, Harness
from tests.faults.chaos.link import Link
from tests.faults.chaos.proxy import Fault, Proxy, Request, is_script
from tests.faults.chaos.scenario import scenario

BACK = 5.0
"""Seconds until work continues after a connection is restored."""
FAULTS = (Fault.LOSE_REQUEST, Fault.LOSE_REPLY, Fault.CUT, Fault.TWICE, Fault.TWICE_SECOND)
"""Faults of single requests. Endless ones are left to `Link`."""


def _through(harness: Harness, port: int) -> None:
    """Connect all processes through a port."""
    harness.processes.env |= {"SUBLET_REDIS_URL": f"redis://127.0.0.1:{port}"}


@scenario("connections-cut", recovery=BACK, quick=6, whole=20)
def connections_cut(harness: Harness) -> None:
    """All connections are closed at once, twice a second."""
    link = harness.closing(Link(harness.server_.port))
    _through(harness, link.port)
    harness.work()
    for _ in harness.rounds(every=0.5):
        with harness.fault("cut"):
            link.cut()


def _interrupt(harness: Harness, take: Callable[[Link], None]) -> None:
    """Repeatedly interrupt the link for longer than a lease."""
    link = harness.closing(Link(harness.server_.port))
    _through(harness, link.port)
    harness.work()
    for _ in harness.rounds(every=6):
        with harness.fault(take.__name__):
            take(link)
            harness.wait(1.5 * LEASE)
            link.heal()


@scenario("half-open", recovery=BACK, quick=9, whole=30)
def half_open(harness: Harness) -> None:
    """Connections stay open without passing data for longer than a lease, then deliver it late."""
    _interrupt(harness, Link.hang)


@scenario("unreachable", recovery=BACK, quick=8, whole=25)
def unreachable(harness: Harness) -> None:
    """Each connection is closed at once for longer than a lease."""
    _interrupt(harness, Link.refuse)


@scenario("slow-connections", recovery=0, quick=5, whole=20)
def slow_connections(harness: Harness) -> None:
    """All data is delayed by 0.2 s in each direction."""
    link = harness.closing(Link(harness.server_.port))
    _through(harness, link.port)
    harness.work(rate=40)
    link.delay = 0.2
    harness.wait(harness.seconds)
    link.heal()


@scenario("requests-lost-and-doubled", recovery=0, quick=8, whole=25)
def requests_lost_and_doubled(harness: Harness) -> None:
    """One request in twenty is lost, loses its reply, or arrives twice."""
    proxy = harness.closing(Proxy(harness.settings))
    chance, lock = random.Random(harness.random.random()), threading.Lock()

    def decide(request: Request) -> Fault | None:
        with lock:
            return chance.choice(FAULTS) if is_script(request) and chance.random() < 0.05 else None

    proxy.decide = decide
    harness.processes.env |= {"SUBLET_REDIS_URL": proxy.settings.redis_url}
    harness.work(workers=2, rate=60, seconds=0.02)
    harness.wait(harness.seconds)
    harness.add_note("requests", proxy.sent())
    proxy.decide = lambda request: None
