"""Split jobs into calls of `submit`, each of which occupies Redis for a few milliseconds."""

from collections.abc import Iterator, Sequence

from sublet.model import Submission
from sublet.protocol.verbs import BATCH, BYTES

QUEUE, TAG, GROUP = 3.5, 0.5, 1.0
"""How many jobs take Redis as long as a further queue of a call, a tag, or a job's group."""


def batches(jobs: Sequence[Submission]) -> Iterator[list[Submission]]:
    """Split jobs, in order, into lists for one call each: up to 200 jobs and 512 KiB of payloads, fewer with
    several queues, tags or groups. A larger job gets its own list.
    """
    batch: list[Submission] = []
    queues: set[str] = set()
    size, room = 0, BATCH + QUEUE
    for job in jobs:
        _, queue, _, rules, payload, _ = job
        size += len(payload)
        cost = 1.0
        if rules and "tags=" in rules:
            cost += TAG * (1 + rules.partition("tags=")[2].partition(" ")[0].count(","))
        if rules and "group=" in rules:
            cost += GROUP
        room -= cost
        if queue not in queues:
            queues.add(queue)
            room -= QUEUE
        if (room < 0 or size > BYTES) and batch:
            yield batch
            batch, queues, size, room = [], {queue}, len(payload), BATCH - cost
        batch.append(job)
    if batch:
        yield batch
