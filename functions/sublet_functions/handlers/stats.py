"""`GET /stats`: a flat object of numbers, for autoscalers and people."""

from dataclasses import replace

from sublet_functions.handlers.call import Call
from sublet_functions.handlers.statistics import (
    NamespaceStatistics,
    names_within,
    read_statistics,
    shared_statistics,
)
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty, StatsQuery
from sublet_functions.schemas.responses import Stats


async def stats(call: Call[Empty, StatsQuery]) -> Response:
    """Return statistics of the namespace, or their sums over the given or permitted queues. Autoscalers use
    `ready`.

    For KEDA: `metrics-api` with `valueLocation: ready`. Unless the answer is shared, some maintenance is done
    first: without a running worker, perhaps nothing else does it.
    """
    await call.store.follow(call.store.operations.maintain("stats"))
    names, scope = tuple(dict.fromkeys(call.query.queue)), call.principal.scope
    if scope is None and not names:
        found, read_at = await shared_statistics(call)
        answer = json_response(stats_of(found, whole=True), reads=found.reads)
        return replace(answer, read_at=read_at)
    if scope is None:
        found = await read_statistics(call.store, names)
        return json_response(stats_of(found, whole=False), reads=found.reads)
    call.principal.check(*names)
    names, left_out = (names, 0) if names else await names_within(call.store, scope)
    found = await read_statistics(call.store, names)
    sums = stats_of(replace(found, left_out=left_out), whole=False)
    hidden = {"workers": None, "maintenance_by": None}
    return json_response(sums.model_copy(update=hidden), reads=found.reads)


def stats_of(found: NamespaceStatistics, whole: bool) -> Stats:
    """Return the sums over some queues. `whole`: use the namespace's own numbers where it has them."""
    queues = found.queues
    sizes = found.sizes if whole else {}
    totals = found.totals if whole else {}
    scheduled = sizes.get("scheduled", sum(queue.scheduled for queue in queues))
    queued = sum(queue.queued for queue in queues)
    running = sizes.get("running", sum(queue.running for queue in queues))
    return Stats(
        scheduled=scheduled,
        ready=sum(queue.ready for queue in queues),
        queued=queued,
        running=running,
        backlog=scheduled + queued + running,
        completed=sizes.get("completed"),
        dead=sizes.get("dead"),
        cancelled=sizes.get("cancelled"),
        oldest_queued_seconds=max(found.oldest.values(), default=0.0),
        submitted_total=totals.get("submitted"),
        completed_total=totals.get("completed", sum(queue.completed.count for queue in queues)),
        failed_total=totals.get("failed", sum(queue.failed.count for queue in queues)),
        dead_total=totals.get("dead", sum(queue.dead for queue in queues)),
        cancelled_total=totals.get("cancelled", sum(queue.cancelled for queue in queues)),
        released_total=totals.get("released"),
        unknown_task_total=totals.get("unknown_task"),
        expired_total=totals.get("expired"),
        lease_lost_total=totals.get("lease_lost"),
        queue_full_total=totals.get("queue_full"),
        forgotten_total=totals.get("forgotten"),
        forgotten_results_total=totals.get("forgotten_results"),
        missing_total=totals.get("missing"),
        unserved_jobs=sum(found.unserved.values()),
        unserved_queues=len(found.unserved),
        unserved_example=next(iter(found.unserved), None),
        workers=found.workers,
        maintenance_age_seconds=found.maintenance_age,
        maintenance_by=found.maintenance_by,
        queues_left_out=found.left_out,
    )
