"""`GET /stats`: flat numbers, for autoscalers (KEDA's `metrics-api` reads one by its name) and for people."""

from pydantic import Field

from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import json_reply
from sublet_functions.handlers.statistics import Numbers, look
from sublet_functions.schemas.fields import Name
from sublet_functions.schemas.query import Nothing, Query
from sublet_functions.schemas.responses import Answer


class StatsQuery(Query):
    """Of which queues."""

    queue: list[Name] = Field(
        [], max_length=32, description="Only of this queue; once for each, and the numbers are their sum."
    )


class Numbered(Answer):
    """The namespace, or some queues of it, in numbers. What is not known of a single queue is null."""

    scheduled: int = Field(
        description="Jobs that wait for a moment: a delay, or the backoff after a failure."
    )
    ready: int = Field(
        description="Jobs that a worker could take now: the queued ones of queues that are not paused."
    )
    queued: int = Field(description="Jobs that wait for a worker, those of paused queues among them.")
    running: int = Field(description="Jobs under a lease.")
    backlog: int = Field(description="All of these: scheduled, queued and running.")
    completed: int | None = Field(description="Completed jobs that are still kept. Null of a single queue.")
    dead: int | None = Field(description="Dead jobs that are still kept. Null of a single queue.")
    cancelled: int | None = Field(description="Cancelled jobs that are still kept. Null of a single queue.")
    oldest_queued_seconds: float = Field(
        description="For how long the job at the head of a queue has been due; the longest."
    )
    submitted_total: int | None = Field(
        description="Jobs taken in since the beginning. Null of a single queue."
    )
    completed_total: int = Field(description="Results accepted since the beginning.")
    failed_total: int = Field(
        description="Failures accepted since the beginning; most of them were tried again."
    )
    dead_total: int = Field(description="Jobs that became dead since the beginning.")
    cancelled_total: int = Field(description="Jobs that became cancelled since the beginning.")
    released_total: int | None = Field(
        description="Jobs given back since the beginning. Null of a single queue."
    )
    expired_total: int | None = Field(
        description="Leases that were lost since the beginning. Null of a single queue."
    )
    lease_lost_total: int | None = Field(
        description="Endings refused as the lease was lost. Null of a single queue."
    )
    queue_full_total: int | None = Field(
        description="Jobs refused as their queue was full. Null of a single queue."
    )
    forgotten_total: int | None = Field(
        description="Dead and cancelled jobs forgotten before their time, as there were too many. Null of a single queue."
    )
    workers: int = Field(
        description="Workers that were heard of in the last minute, whatever queues they serve."
    )
    upkeep_age_seconds: float | None = Field(
        description="Since what was due was last moved, or a tick looked. Null: never yet."
    )
    upkeep_by: str | None = Field(description="Who that was. Null: never yet.")
    queues_left_out: int = Field(
        description="Queues that are not in these sums: only the thousand busiest are looked at."
    )


async def stats(call: Call[Nothing, StatsQuery]) -> Reply:
    """Flat numbers of the namespace, or the sums of some queues. `ready` is what an autoscaler goes by.

    For KEDA: `metrics-api` with `valueLocation: ready`. It does a share of the upkeep first: who asks may be the only one left to
    see that a delay is over, or that a worker is dead.
    """
    await call.store.follow(call.store.operations.see_to("stats"))
    names = tuple(dict.fromkeys(call.query.queue))
    found = await look(call.store, names)
    return json_reply(numbered(found, whole=not names))


def numbered(found: Numbers, whole: bool) -> Numbered:
    """The sums over what was found; with `whole`, what is only known of all queues together, too."""
    queues, kept, totals = found.queues, found.sizes if whole else {}, found.totals if whole else {}
    scheduled, queued, running = (
        sum(getattr(queue, state) for queue in queues) for state in ("scheduled", "queued", "running")
    )
    scheduled, running = kept.get("scheduled", scheduled), kept.get("running", running)
    return Numbered(
        scheduled=scheduled,
        ready=sum(queue.queued for queue in queues if not queue.paused),
        queued=queued,
        running=running,
        backlog=scheduled + queued + running,
        completed=kept.get("completed"),
        dead=kept.get("dead"),
        cancelled=kept.get("cancelled"),
        oldest_queued_seconds=max(found.oldest.values(), default=0.0),
        submitted_total=totals.get("submitted"),
        completed_total=totals.get("completed", sum(queue.completed.count for queue in queues)),
        failed_total=totals.get("failed", sum(queue.failed.count for queue in queues)),
        dead_total=totals.get("dead", sum(queue.dead for queue in queues)),
        cancelled_total=totals.get("cancelled", sum(queue.cancelled for queue in queues)),
        released_total=totals.get("released"),
        expired_total=totals.get("expired"),
        lease_lost_total=totals.get("lease_lost"),
        queue_full_total=totals.get("queue_full"),
        forgotten_total=totals.get("forgotten"),
        workers=found.workers,
        upkeep_age_seconds=found.upkeep_age,
        upkeep_by=found.upkeep_by,
        queues_left_out=found.left_out,
    )
