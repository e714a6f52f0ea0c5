"""Faults of workers: killed and frozen ones."""

from tests.faults.chaos.harness import LEASE, Harness
from tests.faults.chaos.scenario import scenario


@scenario("workers-killed", recovery=LEASE + 1, quick=6, whole=25, own_server=False, shows=("rerun",))
def workers_killed(harness: Harness) -> None:
    """Workers are killed one after another while they run jobs."""
    harness.work(workers=3, rate=60, seconds=0.2)
    for _ in harness.rounds(every=1.5):
        harness.kill_worker(harness.busiest())
        harness.add_note("workers_killed", 1)
        harness.add_worker()


@scenario(
    "workers-frozen", recovery=LEASE + 1, quick=7, whole=25, own_server=False, shows=("rerun", "late_refused")
)
def workers_frozen(harness: Harness) -> None:
    """Workers are frozen for longer than a lease, then resume and report late."""
    harness.work(workers=3, rate=60, seconds=0.2)
    for _ in harness.rounds(every=2 * LEASE):
        ghost = harness.busiest()
        harness.freeze_worker(ghost)
        harness.add_note("workers_frozen", 1)
        harness.wait(1.5 * LEASE)
        ghost.thaw()
