"""Trouble on the way: connections are cut, hang, are slow, and what they carry is lost or arrives twice."""

import random
import threading
from collections.abc import Callable

from tests.faults.chaos.proxy import Fault, Proxy, Request, is_script
from tests.faults.chaos.scenario import scenario
from tests.faults.chaos.stage import LEASE, Stage
from tests.faults.chaos.wires import Wire

BACK = 5.0
"""Seconds in which work goes on after a connection is well again."""
FAULTS = (Fault.LOSE_REQUEST, Fault.LOSE_REPLY, Fault.CUT, Fault.TWICE, Fault.TWICE_SECOND)
"""What may happen to a request at any time; the kinds that never end by themselves are the wire's."""


def _through(stage: Stage, port: int) -> None:
    """Lead everybody but the one who makes the trouble through a port."""
    stage.crew.env |= {"SUBLET_REDIS_URL": f"redis://127.0.0.1:{port}"}


@scenario("connections-cut", recovery=BACK, quick=6, whole=20)
def connections_cut(stage: Stage) -> None:
    """All connections are closed at once, twice a second."""
    wire = stage.closing(Wire(stage.server_.port))
    _through(stage, wire.port)
    stage.work()
    for _ in stage.rounds(every=0.5):
        with stage.trouble("cut"):
            wire.cut()


def _without_the_wire(stage: Stage, take: Callable[[Wire], None]) -> None:
    """Take the wire away for longer than a lease, again and again."""
    wire = stage.closing(Wire(stage.server_.port))
    _through(stage, wire.port)
    stage.work()
    for _ in stage.rounds(every=6):
        with stage.trouble(take.__name__):
            take(wire)
            stage.wait(1.5 * LEASE)
            wire.heal()


@scenario("half-open", recovery=BACK, quick=9, whole=30)
def half_open(stage: Stage) -> None:
    """Connections stay open and carry nothing, for longer than a lease; what was sent arrives late."""
    _without_the_wire(stage, Wire.hang)


@scenario("unreachable", recovery=BACK, quick=8, whole=25)
def unreachable(stage: Stage) -> None:
    """Nobody reaches the server for longer than a lease: each connection is closed at once."""
    _without_the_wire(stage, Wire.shut)


@scenario("slow-connections", recovery=0, quick=5, whole=20)
def slow_connections(stage: Stage) -> None:
    """Everything takes a fifth of a second longer, each way."""
    wire = stage.closing(Wire(stage.server_.port))
    _through(stage, wire.port)
    stage.work(rate=40)
    wire.delay = 0.2
    stage.wait(stage.seconds)
    wire.heal()


@scenario("requests-lost-and-doubled", recovery=0, quick=8, whole=25)
def requests_lost_and_doubled(stage: Stage) -> None:
    """One request in twenty is lost, its reply is, or it arrives twice."""
    proxy = stage.closing(Proxy(stage.settings))
    chance, lock = random.Random(stage.random.random()), threading.Lock()

    def decide(request: Request) -> Fault | None:
        with lock:
            return chance.choice(FAULTS) if is_script(request) and chance.random() < 0.05 else None

    proxy.decide = decide
    stage.crew.env |= {"SUBLET_REDIS_URL": proxy.settings.redis_url}
    stage.work(workers=2, rate=60, seconds=0.02)
    stage.wait(stage.seconds)
    stage.tell("requests", proxy.sent())
    proxy.decide = lambda request: None
