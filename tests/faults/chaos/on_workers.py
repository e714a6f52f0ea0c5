"""Trouble with workers: they are killed, and they stand still."""

from tests.faults.chaos.scenario import scenario
from tests.faults.chaos.stage import LEASE, Stage


@scenario("workers-killed", recovery=LEASE + 1, quick=6, whole=25, own_server=False, shows=("rerun",))
def workers_killed(stage: Stage) -> None:
    """Workers die by SIGKILL in the middle of their jobs, one after the other."""
    stage.work(workers=3, rate=60, seconds=0.2)
    for _ in stage.rounds(every=1.5):
        stage.kill_worker(stage.busiest())
        stage.tell("workers_killed", 1)
        stage.hire()


@scenario(
    "workers-frozen", recovery=LEASE + 1, quick=7, whole=25, own_server=False, shows=("rerun", "turned_away")
)
def workers_frozen(stage: Stage) -> None:
    """Workers stand still for longer than a lease, and come back as ghosts."""
    stage.work(workers=3, rate=60, seconds=0.2)
    for _ in stage.rounds(every=2 * LEASE):
        ghost = stage.busiest()
        stage.freeze_worker(ghost)
        stage.tell("workers_frozen", 1)
        stage.wait(1.5 * LEASE)
        ghost.thaw()
