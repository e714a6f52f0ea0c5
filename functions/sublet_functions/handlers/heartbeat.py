"""`POST /jobs/{id}/heartbeat` and `POST /jobs/heartbeat`: extend leases."""

from typing import Any

from sublet import model
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.leases import batch_response, job_state, lease
from sublet_functions.handlers.within import lease_answers
from sublet_functions.http.body import stored_json
from sublet_functions.http.response import Response, json_response, timestamp
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.requests import Heartbeat, HeartbeatBatch

PROGRESS_MAX = 1024


async def heartbeat(call: Call[Heartbeat, Empty]) -> Response:
    """Extend a lease, and store progress. Returns the lease's end, or that a cancel was requested; 404 for an
    unknown job, 409 for a lost lease.
    """
    job_id, body = call.path["id"], call.body
    beat = model.Beat(lease(job_id, body.token), _progress(body.progress, "body"))
    words = await call.store.heartbeat([beat], lease=body.lease)
    (word,) = await lease_answers(call, [job_id], words)
    return json_response({"id": job_id} | _extension(job_id, word))


async def heartbeat_batch(call: Call[HeartbeatBatch, Empty]) -> Response:
    """Extend many leases independently; invalid progress refuses them all."""
    jobs = call.body.jobs
    beats = [
        model.Beat(lease(item.id, item.token), _progress(item.progress, "body", "jobs", at))
        for at, item in enumerate(jobs)
    ]
    ids = [item.id for item in jobs]
    words = await lease_answers(call, ids, await call.store.heartbeat(beats, lease=call.body.lease))
    return batch_response(ids, words, _extension)


def _progress(progress: Any, *where: str | int) -> bytes:
    return b"" if progress is None else stored_json(progress, PROGRESS_MAX, *where, "progress")


def _extension(job_id: str, word: int | str) -> dict[str, Any]:
    if isinstance(word, int):
        return {"lease_expires_at": timestamp(word), "cancel_requested": False}
    if word == "CANCEL_REQUESTED":
        return {"lease_expires_at": None, "cancel_requested": True}
    return job_state(job_id, word)
