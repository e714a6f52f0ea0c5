"""Trouble on the way: connections are cut, hang, are slow, and what they carry is lost or arrives twice."""

import random
import threading
from collections.abc import Callable

from tests.faults.chaos.harness import LEASE, Harness
from tests.faults.chaos.link import Link
from tests.faults.chaos.proxy import Fault, Proxy, Request, is_script
from tests.faults.chaos.scenario import scenario

BACK = 5.0
"""Seconds in which work goes on after a connection is well again."""
FAULTS = (Fault.LOSE_REQUEST, Fault.LOSE_REPLY, Fault.CUT, Fault.TWICE, Fault.TWICE_SECOND)
"""What may happen to a request at any time; the kinds that never end by themselves are the link's."""


def _through(harness: Harness, port: int) -> None:
    """Lead everybody but the one who makes the trouble through a port."""
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
    """Take the link away for longer than a lease, again and again."""
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
    """Connections stay open and carry nothing, for longer than a lease; what was sent arrives late."""
    _interrupt(harness, Link.hang)


@scenario("unreachable", recovery=BACK, quick=8, whole=25)
def unreachable(harness: Harness) -> None:
    """Nobody reaches the server for longer than a lease: each connection is closed at once."""
    _interrupt(harness, Link.refuse)


@scenario("slow-connections", recovery=0, quick=5, whole=20)
def slow_connections(harness: Harness) -> None:
    """Everything takes a fifth of a second longer, each way."""
    link = harness.closing(Link(harness.server_.port))
    _through(harness, link.port)
    harness.work(rate=40)
    link.delay = 0.2
    harness.wait(harness.seconds)
    link.heal()


@scenario("requests-lost-and-doubled", recovery=0, quick=8, whole=25)
def requests_lost_and_doubled(harness: Harness) -> None:
    """One request in twenty is lost, its reply is, or it arrives twice."""
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
