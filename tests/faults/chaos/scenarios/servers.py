"""Faults of the server: killed, frozen, blocked, full, emptied, with a changed clock."""

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import redis

from tests.faults.chaos.harness import LEASE, Harness
from tests.faults.chaos.leases import hold_leases, overdue, reap_all
from tests.faults.chaos.scenario import scenario

BACK = 5.0
"""Seconds until work continues after the server is back."""
UNFIT = 3
"""The exit code of a command for an unusable server."""
WRITTEN = {"appendfsync": "always"}
"""For killed servers: with `everysec` a server with a busy disk replies before it writes."""
BLOCKED = 1.5
"""Seconds for which a server is blocked."""
SLOW = "local t = redis.call('TIME')[1] + ARGV[1] while redis.call('TIME')[1] + 0 < t do end"
"""A script of another program that blocks the server for so many seconds."""


@scenario("server-killed", recovery=BACK, quick=8, whole=30, server=WRITTEN)
def server_killed(harness: Harness) -> None:
    """The server is killed and restarts on its append-only file."""
    harness.work()
    for _ in harness.rounds(every=4):
        with harness.fault("SIGKILL"):
            harness.server_.kill()
            harness.wait(0.3)
            harness.server_.start()


@scenario("server-keeps-nothing", recovery=BACK, quick=6, whole=20, server={"appendonly": "no"}, promises=(),
          loses="all jobs of a server without persistence")  # fmt: skip
def server_keeps_nothing(harness: Harness) -> None:
    """The server is killed and restarts empty: its jobs are lost, later ones are completed."""
    harness.work()
    for _ in harness.rounds(every=4):
        with harness.fault("SIGKILL"):
            harness.server_.restart()


@scenario("server-frozen", recovery=BACK, quick=8, whole=25)
def server_frozen(harness: Harness) -> None:
    """The server is frozen for longer than a lease, with open connections."""
    harness.work()
    for _ in harness.rounds(every=5):
        with harness.fault("SIGSTOP"):
            harness.server_.freeze()
            harness.wait(1.25 * LEASE)
            harness.server_.thaw()


@scenario("scripts-flushed", recovery=0, quick=5, whole=20)
def scripts_flushed(harness: Harness) -> None:
    """The server's script cache is flushed twenty times a second."""
    harness.work(rate=150)
    for _ in harness.rounds(every=0.05):
        harness.redis.script_flush()
    harness.expect(not harness.ledger.of("unknown"), "a submit had no reply")


@scenario("clients-paused", recovery=BACK, quick=5, whole=20)
def clients_paused(harness: Harness) -> None:
    """The server delays all clients (CLIENT PAUSE)."""
    harness.work()
    for n in harness.rounds(every=2 * BLOCKED):
        with harness.fault("CLIENT PAUSE"):
            harness.redis.client_pause(int(BLOCKED * 1000), all=bool(n % 2))
            harness.wait(BLOCKED)


@scenario("server-sleeps", recovery=BACK, quick=5, whole=20, server={"enable-debug-command": "local"})
def server_sleeps(harness: Harness) -> None:
    """The server is blocked by DEBUG SLEEP."""
    harness.work()
    for _ in harness.rounds(every=2 * BLOCKED):
        with harness.fault("DEBUG SLEEP"):
            harness.redis.execute_command("DEBUG", "SLEEP", BLOCKED)


@scenario("foreign-script", recovery=BACK, quick=6, whole=20, server={"busy-reply-threshold": "200"})
def foreign_script(harness: Harness) -> None:
    """A script of another program blocks the server, which answers BUSY."""
    harness.work()
    for _ in harness.rounds(every=4):
        with harness.fault("BUSY"):
            harness.redis.execute_command("EVAL", SLOW, 0, 2)


@contextmanager
def _full(harness: Harness) -> Iterator[None]:
    """Fill the server's memory to the last byte during the block."""
    used = int(harness.redis.info("memory")["used_memory"])
    harness.redis.config_set("maxmemory", used + (2 << 20))
    size = 1 << 18
    while size > 16:
        try:
            harness.redis.append("foreign", b"x" * size)
        except redis.exceptions.OutOfMemoryError:
            size //= 2
    try:
        yield
    finally:
        harness.redis.delete("foreign")
        harness.redis.config_set("maxmemory", 0)


@scenario("memory-full", recovery=BACK, quick=8, whole=25)
def memory_full(harness: Harness) -> None:
    """The server's memory is full: new jobs are rejected, existing ones are completed."""
    harness.work(workers=1, rate=50, seconds=0.5)
    for _ in harness.rounds(every=6):
        done, refused = len(harness.ledger.of("completed")), len(harness.ledger.of("rejected"))
        with harness.fault("full"), _full(harness):
            harness.wait(3)
            refused = len(harness.ledger.of("rejected")) - refused
            done = len(harness.ledger.of("completed")) - done
        harness.expect(refused > 0, "no job was refused while the memory was full")
        harness.expect(done > 0, "no job was completed while the memory was full")
        harness.add_note("refused_while_full", refused)


@scenario(
    "flushed",
    recovery=BACK,
    quick=6,
    whole=15,
    promises=(),
    shows=("lost",),
    loses="all jobs before FLUSHALL",
)
def flushed(harness: Harness) -> None:
    """The server is emptied by FLUSHALL: workers drop lost jobs, and new jobs are completed."""
    harness.work()
    for _ in harness.rounds(every=4):
        with harness.fault("FLUSHALL"):
            harness.redis.flushall()


def _more_unknown(harness: Harness, before: int) -> bool:
    return len(harness.ledger.of("unknown")) > before


@scenario("evicted", recovery=0, quick=7, whole=20, promises=(), shows=("lost",),
          loses="evicted jobs, if eviction is enabled while workers run; at the start it is refused")  # fmt: skip
def evicted(harness: Harness) -> None:
    """A server that evicts keys is refused at start. Evicted jobs are lost; a repair fixes the rest."""
    harness.redis.config_set("maxmemory-policy", "allkeys-lru")
    refused = harness.processes.start_worker()
    harness.until(lambda: not refused.is_running, "a worker refuses a server that evicts")
    harness.expect(
        refused.popen.returncode == UNFIT,
        f"a worker on a server that evicts: exit {refused.popen.returncode}",
    )
    harness.redis.config_set("maxmemory-policy", "noeviction")
    harness.processes.workers.remove(refused)
    harness.work(workers=1, rate=100, seconds=0.5)
    harness.wait(harness.seconds / 2)
    with harness.fault("allkeys-lru"):
        harness.redis.config_set("maxmemory-policy", "allkeys-lru")
        before = harness.redis.dbsize()
        harness.redis.config_set("maxmemory", int(harness.redis.info("memory")["used_memory"]) - (100 << 10))
        harness.until(lambda: harness.redis.dbsize() < 0.9 * before, "keys are evicted")
        harness.redis.config_set("maxmemory", 0)
        harness.redis.config_set("maxmemory-policy", "noeviction")
    code, output = harness.processes.command("doctor", "--repair")
    harness.expect(code == 0, f"the repair was incomplete: {output}")
    harness.add_note("mended", sum(each["number"] for each in output["repaired"]))
    for _ in range(2):
        harness.add_worker(slots=100)
    harness.wait(harness.seconds / 2)


@scenario("disk-full", recovery=BACK, quick=7, whole=20)
def disk_full(harness: Harness) -> None:
    """The disk is full, and the server rejects all writes (MISCONF) until there is space."""
    harness.work()
    pid = harness.server_.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    for _ in harness.rounds(every=6):
        before = len(harness.ledger.of("unknown"))
        with harness.fault("MISCONF"):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
            harness.until(
                partial(_more_unknown, harness, before), "a submit is refused because the disk is full"
            )
            harness.wait(1)
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


@scenario("clock-jumps", recovery=0, quick=8, whole=25, clock=True, shows=("rerun",))
def clock_jumps(harness: Harness) -> None:
    """The server's clock jumps an hour ahead and back: jobs run again, and no outcome is accepted twice."""
    assert harness.clock is not None
    harness.work(rate=25, seconds=0.5)
    for n in harness.rounds(every=3):
        harness.clock.set(3600 if n % 2 == 0 else 0)
    harness.clock.set(0)


@scenario("demoted", recovery=BACK, quick=6, whole=20)
def demoted(harness: Harness) -> None:
    """The primary becomes a replica, which rejects writes (READONLY), and a primary again."""
    harness.work()
    for _ in harness.rounds(every=4):
        with harness.fault("READONLY"):
            harness.redis.replicaof("127.0.0.1", 1)
            harness.wait(BLOCKED)
            harness.redis.replicaof("NO", "ONE")


@scenario("reapers", recovery=0, quick=8, whole=20, own_server=False)
def reapers(harness: Harness) -> None:
    """32 clients reap 5,000 expired leases concurrently: each is recovered once, and no script runs long."""
    held = hold_leases(harness, 5000, lease=4.0)
    harness.until(lambda: overdue(harness) == held, "all leases have ended")
    reaped: list[int] = []
    threads = [
        threading.Thread(target=lambda: reaped.append(reap_all(harness)), daemon=True) for _ in range(32)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    harness.expect(sum(reaped) == held, f"{sum(reaped)} of {held} leases were recovered")
    harness.add_note("reaped", sum(reaped))
    for _ in range(2):
        harness.add_worker(slots=100)
