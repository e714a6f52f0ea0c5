"""Trouble with the server: it is killed, frozen, blocked, filled, emptied, and its clock jumps."""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import redis

from tests.faults.chaos.leases import hold_leases, overdue, reap_all
from tests.faults.chaos.scenario import scenario
from tests.faults.chaos.stage import LEASE, Stage

BACK = 5.0
"""Seconds in which work goes on after a server is back."""
UNFIT = 3
"""The exit code of a command whose server cannot be used."""
WRITTEN = {"appendfsync": "always"}
"""Whoever is killed must have written what it acknowledged: with `everysec` it answers first while its disk is busy."""
BLOCKED = 1.5
"""Seconds for which a server is blocked."""
SLOW = "local t = redis.call('TIME')[1] + ARGV[1] while redis.call('TIME')[1] + 0 < t do end"
"""Somebody else's script that holds the server for so many seconds."""


@scenario("server-killed", recovery=BACK, quick=8, whole=30, server=WRITTEN)
def server_killed(stage: Stage) -> None:
    """The server dies by SIGKILL and comes back on its append-only file."""
    stage.work()
    for _ in stage.rounds(every=4):
        with stage.trouble("SIGKILL"):
            stage.server_.kill()
            stage.wait(0.3)
            stage.server_.start()


@scenario("server-keeps-nothing", recovery=BACK, quick=6, whole=20, server={"appendonly": "no"}, promises=(),
          loses="what a server without persistence held when it died")  # fmt: skip
def server_keeps_nothing(stage: Stage) -> None:
    """The server dies and comes back empty: what was in it is gone, and all that comes after is done."""
    stage.work()
    for _ in stage.rounds(every=4):
        with stage.trouble("SIGKILL"):
            stage.server_.restart()


@scenario("server-frozen", recovery=BACK, quick=8, whole=25)
def server_frozen(stage: Stage) -> None:
    """The server stands still for longer than a lease, its connections open."""
    stage.work()
    for _ in stage.rounds(every=5):
        with stage.trouble("SIGSTOP"):
            stage.server_.freeze()
            stage.wait(1.25 * LEASE)
            stage.server_.thaw()


@scenario("scripts-flushed", recovery=0, quick=5, whole=20)
def scripts_flushed(stage: Stage) -> None:
    """The server forgets all scripts, twenty times a second."""
    stage.work(rate=150)
    for _ in stage.rounds(every=0.05):
        stage.redis.script_flush()
    stage.expect(not stage.ledger.of("unknown"), "a submit was left without an answer")


@scenario("clients-paused", recovery=BACK, quick=5, whole=20)
def clients_paused(stage: Stage) -> None:
    """The server lets all clients wait (CLIENT PAUSE)."""
    stage.work()
    for n in stage.rounds(every=2 * BLOCKED):
        with stage.trouble("CLIENT PAUSE"):
            stage.redis.client_pause(int(BLOCKED * 1000), all=bool(n % 2))
            stage.wait(BLOCKED)


@scenario("server-sleeps", recovery=BACK, quick=5, whole=20, server={"enable-debug-command": "local"})
def server_sleeps(stage: Stage) -> None:
    """The server does nothing for a while (DEBUG SLEEP)."""
    stage.work()
    for _ in stage.rounds(every=2 * BLOCKED):
        with stage.trouble("DEBUG SLEEP"):
            stage.redis.execute_command("DEBUG", "SLEEP", BLOCKED)


@scenario("foreign-script", recovery=BACK, quick=6, whole=20, server={"busy-reply-threshold": "200"})
def foreign_script(stage: Stage) -> None:
    """Somebody else's script holds the server, which tells everybody that it is BUSY."""
    stage.work()
    for _ in stage.rounds(every=4):
        with stage.trouble("BUSY"):
            stage.redis.execute_command("EVAL", SLOW, 0, 2)


@contextmanager
def _full(stage: Stage) -> Iterator[None]:
    """Within the block the server's memory is full, to the last byte that a write may take."""
    used = int(stage.redis.info("memory")["used_memory"])
    stage.redis.config_set("maxmemory", used + (2 << 20))
    size = 1 << 18
    while size > 16:
        try:
            stage.redis.append("foreign", b"x" * size)
        except redis.exceptions.OutOfMemoryError:
            size //= 2
    try:
        yield
    finally:
        stage.redis.delete("foreign")
        stage.redis.config_set("maxmemory", 0)


@scenario("memory-full", recovery=BACK, quick=8, whole=25)
def memory_full(stage: Stage) -> None:
    """The server's memory is full: new jobs are refused in words, and those that are there are done."""
    stage.work(workers=1, rate=50, seconds=0.5)
    for _ in stage.rounds(every=6):
        done, refused = len(stage.ledger.of("completed")), len(stage.ledger.of("refused-at-the-door"))
        with stage.trouble("full"), _full(stage):
            stage.wait(3)
            refused = len(stage.ledger.of("refused-at-the-door")) - refused
            done = len(stage.ledger.of("completed")) - done
        stage.expect(refused > 0, "no job was refused while the memory was full")
        stage.expect(done > 0, "no job was completed while the memory was full")
        stage.tell("refused_while_full", refused)


@scenario(
    "flushed",
    recovery=BACK,
    quick=6,
    whole=15,
    promises=(),
    shows=("lost",),
    loses="what was there when somebody called FLUSHALL",
)
def flushed(stage: Stage) -> None:
    """Somebody empties the server: workers drop what is gone, nothing rises again, and new jobs are done."""
    stage.work()
    for _ in stage.rounds(every=4):
        with stage.trouble("FLUSHALL"):
            stage.redis.flushall()


def _more_unknown(stage: Stage, before: int) -> bool:
    return len(stage.ledger.of("unknown")) > before


@scenario("evicted", recovery=0, quick=7, whole=20, promises=(), shows=("lost",),
          loses="what a server evicts that was set to do so while it ran; at the start it is refused")  # fmt: skip
def evicted(stage: Stage) -> None:
    """A server that evicts keys is refused at the start; one that does so later loses jobs, and a repair mends the rest."""
    stage.redis.config_set("maxmemory-policy", "allkeys-lru")
    refused = stage.crew.hire()
    stage.until(lambda: not refused.lives, "a worker refuses a server that evicts")
    stage.expect(
        refused.process.returncode == UNFIT,
        f"a worker on a server that evicts: exit {refused.process.returncode}",
    )
    stage.redis.config_set("maxmemory-policy", "noeviction")
    stage.crew.workers.remove(refused)
    stage.work(workers=1, rate=100, seconds=0.5)
    stage.wait(stage.seconds / 2)
    with stage.trouble("allkeys-lru"):
        stage.redis.config_set("maxmemory-policy", "allkeys-lru")
        before = stage.redis.dbsize()
        stage.redis.config_set("maxmemory", int(stage.redis.info("memory")["used_memory"]) - (100 << 10))
        stage.until(lambda: stage.redis.dbsize() < 0.9 * before, "keys are evicted")
        stage.redis.config_set("maxmemory", 0)
        stage.redis.config_set("maxmemory-policy", "noeviction")
    code, said = stage.crew.command("doctor", "--repair")
    stage.expect(code == 0, f"the repair left something: {said}")
    stage.tell("mended", sum(each["number"] for each in said["mended"]))
    for _ in range(2):
        stage.hire(slots=100)
    stage.wait(stage.seconds / 2)


@scenario("disk-full", recovery=BACK, quick=7, whole=20)
def disk_full(stage: Stage) -> None:
    """The disk is full, and the server refuses all writes (MISCONF) until there is room again."""
    stage.work()
    pid = stage.server_.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    for _ in stage.rounds(every=6):
        before = len(stage.ledger.of("unknown"))
        with stage.trouble("MISCONF"):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
            stage.until(partial(_more_unknown, stage, before), "a submit is told that the disk is full")
            stage.wait(1)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


@scenario("clock-jumps", recovery=0, quick=8, whole=25, clock=True, shows=("rerun",))
def clock_jumps(stage: Stage) -> None:
    """The server's clock jumps an hour ahead, and back: jobs whose leases this ends are run again, nothing is accepted twice."""
    assert stage.clock is not None
    stage.work(rate=25, seconds=0.5)
    for n in stage.rounds(every=3):
        stage.clock.set(3600 if n % 2 == 0 else 0)
    stage.clock.set(0)


@scenario("demoted", recovery=BACK, quick=6, whole=20)
def demoted(stage: Stage) -> None:
    """The primary becomes a replica, which takes no writes (READONLY), and a primary again."""
    stage.work()
    for _ in stage.rounds(every=4):
        with stage.trouble("READONLY"):
            stage.redis.replicaof("127.0.0.1", 1)
            stage.wait(BLOCKED)
            stage.redis.replicaof("NO", "ONE")


@scenario("reapers", recovery=0, quick=8, whole=20, own_server=False)
def reapers(stage: Stage) -> None:
    """32 reapers at once on 5,000 leases that have ended: each is given on once, and none holds the server for long."""
    held = hold_leases(stage, 5000, lease=4.0)
    stage.until(lambda: overdue(stage) == held, "all leases have ended")
    reaped: list[int] = []
    threads = [
        threading.Thread(target=lambda: reaped.append(reap_all(stage)), daemon=True) for _ in range(32)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    stage.expect(sum(reaped) == held, f"{sum(reaped)} of {held} leases were given on")
    stage.tell("reaped", sum(reaped))
    for _ in range(2):
        stage.hire(slots=100)
