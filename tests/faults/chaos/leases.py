"""Leases without heartbeats, and concurrent recovery."""

import secrets

from sublet.client.sync_client import SyncClient
from sublet.protocol import reads, server_info, verbs
from tests.faults.chaos.harness import Harness
from tests.faults.chaos.tasks import QUEUES, sleep_task

REAPS = 1000
"""The maximum number of calls per reaper."""


def hold_leases(harness: Harness, many: int, lease: float) -> int:
    """Submit and claim jobs without heartbeats. Return their number."""
    jobs = [sleep_task.job() for _ in range(many)]
    for job in harness.client.submit_all(jobs):
        harness.writer.write("acked", job.id)
    base, held = harness.client.store.operations.base_of_queue(jobs[0].queue), 0
    while held < many:
        claim = verbs.claim(
            base, claim_id=secrets.token_urlsafe(16), worker="chaos", lease=lease, n=100, queues=QUEUES
        )
        held += len(harness.client.store.transport.run(claim).leases)
    return held


def overdue(harness: Harness) -> int:
    """The number of expired leases not yet recovered."""
    now = round(harness.client.store.transport.run(server_info.clock()).timestamp() * 1000)
    return harness.client.store.transport.run(reads.overdue(harness.client.store.operations.bases[0], now))[0]


def reap_all(harness: Harness) -> int:
    """Reap until nothing is left, with an own client. Return the number of recovered leases."""
    total = 0
    with SyncClient(harness.settings) as client:
        for _ in range(REAPS):
            reaped = client.store.follow(client.store.operations.reap("chaos"))
            total += reaped.ended
            if not (reaped.more or reaped.ended):
                break
    return total
