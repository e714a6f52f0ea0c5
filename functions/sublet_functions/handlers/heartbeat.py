"""`POST /jobs/{id}/heartbeat`, `POST /jobs/heartbeat`: the worker is alive; push the ends of its leases forward."""

from typing import Any

from sublet import model
from sublet_functions.api.parsing import written
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import json_reply, moment, moved
from sublet_functions.handlers.leases import lease, lines
from sublet_functions.schemas.query import Nothing
from sublet_functions.schemas.requests import Beat, Beats

PROGRESS_MAX = 1024
"""Bytes of a progress as JSON."""


async def heartbeat(call: Call[Beat, Nothing]) -> Reply:
    """Extend a lease, and hear whether the job is to be stopped. 404 for an unknown job, 409 when the lease is lost."""
    job_id, said = call.words["id"], call.body
    beat = model.Beat(lease(job_id, said.token), _progress(said.progress, "body"))
    (word,) = await call.store.heartbeat([beat], lease=said.lease)
    return json_reply({"id": job_id} | _said(job_id, word))


async def heartbeat_batch(call: Call[Beats, Nothing]) -> Reply:
    """Extend many leases, each on its own."""
    beats = [
        model.Beat(lease(one.id, one.token), _progress(one.progress, "body", "jobs", at))
        for at, one in enumerate(call.body.jobs)
    ]
    words = await call.store.heartbeat(beats, lease=call.body.lease)
    return lines([one.id for one in call.body.jobs], words, _said)


def _progress(progress: Any, *where: str | int) -> bytes:
    return b"" if progress is None else written(progress, PROGRESS_MAX, *where, "progress")


def _said(job_id: str, word: int | str) -> dict[str, Any]:
    if isinstance(word, int):
        return {"lease_expires_at": moment(word), "cancel_requested": False}
    if word == "CANCEL_REQUESTED":
        return {"lease_expires_at": None, "cancel_requested": True}
    return moved(job_id, word)
