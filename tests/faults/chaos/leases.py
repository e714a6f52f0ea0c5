"""Leases that nobody extends, and reapers."""

import secrets

from sublet.client.client import SyncClient
from sublet.protocol import reads, server_info, verbs
from tests.faults.chaos.stage import Stage
from tests.faults.chaos.tasks import QUEUES, labour

REAPS = 1000
"""Calls that one reaper makes, at most."""


def hold_leases(stage: Stage, many: int, lease: float) -> int:
    """Submit jobs and claim them all, under leases that nobody extends; how many they are."""
    jobs = [labour.job() for _ in range(many)]
    for job in stage.client.submit_all(jobs):
        stage.pen.write("acked", job.id)
    base, held = stage.client.operations.base_of_queue(jobs[0].queue), 0
    while held < many:
        claim = verbs.claim(
            base, claim_id=secrets.token_urlsafe(16), worker="nobody", lease=lease, n=100, queues=QUEUES
        )
        held += len(stage.client.transport.run(claim).leases)
    return held


def overdue(stage: Stage) -> int:
    """How many leases have ended that nobody has given on."""
    now = round(stage.client.transport.run(server_info.clock()).timestamp() * 1000)
    return stage.client.transport.run(reads.overdue(stage.client.operations.bases[0], now))[0]


def reap_all(stage: Stage) -> int:
    """Reap as long as there is more, with a client of one's own: how many leases that had ended were given on."""
    total = 0
    with SyncClient(stage.settings) as client:
        for _ in range(REAPS):
            reaped = client.reap("chaos")
            total += reaped.ended
            if not (reaped.more or reaped.ended):
                break
    return total
