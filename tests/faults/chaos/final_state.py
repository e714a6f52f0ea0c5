"""Read the final state: the jobs, and the inconsistencies of the stored data."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from sublet.client.sync_client import SyncClient
from sublet.errors import NotFound
from sublet.model import Job
from sublet.operations.consistency.audit import audit
from sublet.operations.consistency.recount import recount
from sublet.protocol import keys, reads
from sublet.protocol.scripts import Call

CALL = 50
"""Jobs per round trip."""


def jobs_of(client: SyncClient, ids: Iterable[str]) -> dict[str, Job]:
    """The existing jobs of these ids."""
    by_base: dict[str, list[str]] = defaultdict(list)
    for job_id in ids:
        by_base[client.store.operations.base_of_job(job_id)].append(job_id)
    found: dict[str, Job] = {}
    for base, own in by_base.items():
        for i in range(0, len(own), CALL):
            some: dict[str, Job] = client.store.transport.run(_get_all(base, own[i : i + CALL]))
            found |= some
    return found


def _get_all(base: str, ids: Sequence[str]) -> Call[dict[str, Job]]:
    asked = {job_id: reads.get(base, job_id) for job_id in ids}

    def read(replies: Sequence[Any]) -> dict[str, Job]:
        found, left = dict[str, Job](), iter(replies)
        for job_id, call in asked.items():
            own = [next(left) for _ in call.commands]
            with suppress(NotFound):
                found[job_id] = call.read(own)
        return found

    return reads.together([command for call in asked.values() for command in call.commands], read)


def ended(base: str, workflow_id: str) -> Call[tuple[bool, int]]:
    """Whether a workflow has ended, and how many of its jobs were completed."""
    commands = [
        ("HEXISTS", keys.workflow(base, workflow_id), "ended_at"),
        ("ZCOUNT", keys.members(base, workflow_id), 1, 1),
    ]
    return reads.together(commands, lambda reply: (bool(reply[0]), int(reply[1])))


def inconsistencies(client: SyncClient) -> list[str]:
    """Describe the inconsistencies of the stored data, without repair."""
    seen = client.store.follow_existing(audit(client.store.operations.bases))
    wrong = [f"{fault.name}: {fault.found}" for fault in seen.faults]
    for base in client.store.operations.bases:
        counted = client.store.follow_existing(recount(base, "look"))
        wrong += [f"{name}: {words}" for name, words in counted.found]
    return wrong
