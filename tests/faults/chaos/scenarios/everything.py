"""A random mix of faults. The seed determines it."""

from collections.abc import Callable

from tests.faults.chaos.harness import LEASE, Harness
from tests.faults.chaos.link import Link
from tests.faults.chaos.scenario import scenario
from tests.faults.chaos.scenarios.servers import SLOW, WRITTEN


class Mix:
    """A source of random faults."""

    def __init__(self, harness: Harness) -> None:
        self.harness, self.random = harness, harness.random
        self.link = harness.closing(Link(harness.server_.port))
        harness.processes.env |= {"SUBLET_REDIS_URL": self.link.url}
        self.kinds: tuple[Callable[[], None], ...] = (
            self.kill_a_worker, self.freeze_a_worker, self.kill_the_server, self.freeze_the_server, self.flush_scripts,
            self.pause, self.block, self.cut, self.hang, self.refuse,
        )  # fmt: skip

    def next(self) -> None:
        """Inject one fault and wait for its end."""
        kind = self.random.choice(self.kinds)
        self.harness.add_note(kind.__name__, 1)
        if kind in (self.kill_a_worker, self.freeze_a_worker, self.flush_scripts):
            kind()
        else:
            with self.harness.fault(kind.__name__):
                kind()

    def kill_a_worker(self) -> None:
        """Kill a worker and start another one."""
        self.harness.kill_worker(self.random.choice(self.harness.processes.running))
        self.harness.add_worker()

    def freeze_a_worker(self) -> None:
        """Freeze a worker for up to two leases."""
        ghost = self.random.choice(self.harness.processes.running)
        ghost.freeze()
        self.harness.wait(self.random.uniform(0.2, 2) * LEASE)
        ghost.thaw()

    def kill_the_server(self) -> None:
        """Kill the server and restart it on its data."""
        self.harness.server_.restart()

    def freeze_the_server(self) -> None:
        """Freeze the server for up to two leases."""
        self.harness.server_.freeze()
        self.harness.wait(self.random.uniform(0.2, 2) * LEASE)
        self.harness.server_.thaw()

    def flush_scripts(self) -> None:
        """SCRIPT FLUSH."""
        self.harness.redis.script_flush()

    def pause(self) -> None:
        """CLIENT PAUSE."""
        self.harness.redis.client_pause(1000, all=self.random.random() < 0.5)
        self.harness.wait(1)

    def block(self) -> None:
        """Run a slow script of another program."""
        self.harness.redis.execute_command("EVAL", SLOW, 0, 1)

    def cut(self) -> None:
        """Close all connections."""
        self.link.cut()

    def hang(self) -> None:
        """Stall all connections for up to two leases."""
        self.link.hang()
        self.harness.wait(self.random.uniform(0.2, 2) * LEASE)
        self.link.heal()

    def refuse(self) -> None:
        """Refuse all connections for up to a lease."""
        self.link.refuse()
        self.harness.wait(self.random.uniform(0.2, 1) * LEASE)
        self.link.heal()


@scenario("everything", recovery=8, quick=15, whole=75, server={"busy-reply-threshold": "200", **WRITTEN})
def everything(harness: Harness) -> None:
    """Workers, server and connections are killed, frozen, cut and blocked in a random order."""
    mix = Mix(harness)
    harness.work(workers=3, rate=60, seconds=0.1)
    for _ in harness.rounds(every=0.5):
        mix.next()
