"""Split jobs into calls of `submit`, each of which holds Redis for a few milliseconds."""

from collections.abc import Iterator, Sequence

from sublet.model import Submission
from sublet.protocol.verbs import BATCH, BYTES

QUEUE, TAG = 2.5, 0.35
"""How long Redis takes for each further queue of a call, and for a tag: as long as for so many jobs."""


def batches(jobs: Sequence[Submission]) -> Iterator[list[Submission]]:
    """Yield lists of up to 200 jobs and 512 KiB, in order; fewer jobs of several queues, or with tags. A larger job gets
    its own list.
    """
    batch: list[Submission] = []
    queues: set[str] = set()
    size, work = 0, 0.0
    for job in jobs:
        own = 1.0
        if "tags=" in job.rules:
            own += TAG * (1 + job.rules.partition("tags=")[2].partition(" ")[0].count(","))
        cost = own + QUEUE if queues and job.queue not in queues else own
        if batch and (work + cost > BATCH or size + len(job.payload) > BYTES):
            yield batch
            batch, queues, size, work, cost = [], set(), 0, 0.0, own
        batch.append(job)
        queues.add(job.queue)
        size, work = size + len(job.payload), work + cost
    if batch:
        yield batch
