"""Split jobs into calls of `submit`, each of which holds Redis for a few milliseconds."""

from collections.abc import Iterator, Sequence

from sublet.model import Submission
from sublet.protocol.verbs import BATCH, BYTES

QUEUE, TAG = 3.5, 0.5
"""How long Redis takes for each further queue of a call, and for a tag: as long as for so many jobs."""


def batches(jobs: Sequence[Submission]) -> Iterator[list[Submission]]:
    """Yield lists of up to 200 jobs and 512 KiB, in order; fewer jobs of several queues, or with tags. A larger job gets
    its own list.
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
