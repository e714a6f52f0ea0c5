"""All kinds of trouble, mixed by chance: the same seed makes the same mix."""

from collections.abc import Callable

from tests.faults.chaos.on_servers import SLOW, WRITTEN
from tests.faults.chaos.scenario import scenario
from tests.faults.chaos.stage import LEASE, Stage
from tests.faults.chaos.wires import Wire


class Mix:
    """What may happen next."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.random = stage, stage.random
        self.wire = stage.closing(Wire(stage.server_.port))
        stage.crew.env |= {"SUBLET_REDIS_URL": self.wire.url}
        self.kinds: tuple[Callable[[], None], ...] = (
            self.kill_a_worker, self.freeze_a_worker, self.kill_the_server, self.freeze_the_server, self.flush_scripts,
            self.pause, self.block, self.cut, self.hang, self.shut,
        )  # fmt: skip

    def next(self) -> None:
        """Have one of them happen, and be over."""
        kind = self.random.choice(self.kinds)
        self.stage.tell(kind.__name__, 1)
        if kind in (self.kill_a_worker, self.freeze_a_worker, self.flush_scripts):
            kind()
        else:
            with self.stage.trouble(kind.__name__):
                kind()

    def kill_a_worker(self) -> None:
        """SIGKILL, and another worker comes."""
        self.stage.kill_worker(self.random.choice(self.stage.crew.alive))
        self.stage.hire()

    def freeze_a_worker(self) -> None:
        """SIGSTOP for up to two leases."""
        ghost = self.random.choice(self.stage.crew.alive)
        ghost.freeze()
        self.stage.wait(self.random.uniform(0.2, 2) * LEASE)
        ghost.thaw()

    def kill_the_server(self) -> None:
        """SIGKILL, and a start on its file."""
        self.stage.server_.restart()

    def freeze_the_server(self) -> None:
        """SIGSTOP for up to two leases."""
        self.stage.server_.freeze()
        self.stage.wait(self.random.uniform(0.2, 2) * LEASE)
        self.stage.server_.thaw()

    def flush_scripts(self) -> None:
        """SCRIPT FLUSH."""
        self.stage.redis.script_flush()

    def pause(self) -> None:
        """CLIENT PAUSE."""
        self.stage.redis.client_pause(1000, all=self.random.random() < 0.5)
        self.stage.wait(1)

    def block(self) -> None:
        """Somebody's slow script."""
        self.stage.redis.execute_command("EVAL", SLOW, 0, 1)

    def cut(self) -> None:
        """All connections are closed."""
        self.wire.cut()

    def hang(self) -> None:
        """Nothing passes for up to two leases."""
        self.wire.hang()
        self.stage.wait(self.random.uniform(0.2, 2) * LEASE)
        self.wire.heal()

    def shut(self) -> None:
        """Nobody comes through for up to a lease."""
        self.wire.shut()
        self.stage.wait(self.random.uniform(0.2, 1) * LEASE)
        self.wire.heal()


@scenario("everything", recovery=8, quick=15, whole=75, server={"busy-reply-threshold": "200", **WRITTEN})
def everything(stage: Stage) -> None:
    """Workers, server and connections are killed, frozen, cut and blocked, in an order that the seed decides."""
    mix = Mix(stage)
    stage.work(workers=3, rate=60, seconds=0.1)
    for _ in stage.rounds(every=0.5):
        mix.next()
