"""Operation ids of the OpenAPI document: a verb and a noun, for generated clients."""

from typing import Any

from sublet_functions.api.route import Route

IDS = {
    "submit": "submitJob",
    "submit_batch": "submitJobs",
    "claim": "claimJobs",
    "claim_next": "claimNextJob",
    "heartbeat": "heartbeatJob",
    "heartbeat_batch": "heartbeatJobs",
    "complete": "completeJob",
    "complete_batch": "completeJobs",
    "fail": "failJob",
    "fail_batch": "failJobs",
    "release": "releaseJob",
    "release_batch": "releaseJobs",
    "note": "noteJob",
    "note_batch": "noteJobs",
    "emit": "emitChunks",
    "step": "keepSteps",
    "proceed": "proceedJob",
    "call_job": "callJob",
    "upstream_page": "getUpstreamJobs",
    "suspend": "suspendJob",
    "suspend_batch": "suspendJobs",
    "signal": "signalJob",
    "cancel": "cancelJob",
    "retry": "retryJob",
    "promote": "promoteJob",
    "reschedule": "rescheduleJob",
    "erase": "eraseJob",
    **{f"{order}_many": f"{order}Jobs" for order in ("cancel", "retry", "promote", "erase")},
    "change_queue": "updateQueue",
    "remove_schedule": "deleteSchedule",
    "enlist": "registerWorker",
    "leave": "deleteWorker",
    "reconcile": "reconcileWorker",
    "retire": "retireWorker",
    "drain": "drainWorker",
    "events": "listEvents",
    "trigger": "runEvent",
    "tick": "runTick",
    "work": "runWorker",
    "stats": "getStats",
    "metrics": "getMetrics",
    "whoami": "getIdentity",
    "index": "getIndex",
    "healthz": "getHealth",
    "readyz": "getReadiness",
    "openapi": "getDocument",
}
"""Operation ids of handlers that `operation_id` could not derive from their names."""
SECOND_IDS = {
    ("POST", "/jobs/{id}/done"): "finishJob",
    ("GET", "/tick"): "runTickByGet",
}


def operation_id(route: Route[Any, Any], path: str) -> str:
    """Return the operation id of a route at one of its paths."""
    handler = route.handler.__name__
    verb, *words = handler.split("_")
    return SECOND_IDS.get((route.method, path)) or IDS.get(handler) or verb + "".join(map(str.title, words))
