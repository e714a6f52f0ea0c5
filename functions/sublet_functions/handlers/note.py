"""`POST /jobs/{id}/note`, `POST /jobs/note`: what a running attempt leaves with its job: a checkpoint, the last of its log."""

from sublet import model
from sublet_functions.api.parsing import written
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import json_reply, moved
from sublet_functions.handlers.leases import lease, lines
from sublet_functions.schemas.query import Nothing
from sublet_functions.schemas.requests import Note, Notes

CHECKPOINT_MAX = 64 * 1024
"""Bytes of a checkpoint as JSON."""


async def note(call: Call[Note, Nothing]) -> Reply:
    """Keep a checkpoint, or log lines, with the job."""
    job_id = call.words["id"]
    (word,) = await call.store.note([_note(job_id, call.body, "body")])
    return json_reply(_said(job_id, word))


async def note_batch(call: Call[Notes, Nothing]) -> Reply:
    """Keep many notes, each on its own."""
    notes = [_note(one.id, one, "body", "jobs", at) for at, one in enumerate(call.body.jobs)]
    return lines([one.id for one in call.body.jobs], await call.store.note(notes), _said)


def _note(job_id: str, said: Note, *where: str | int) -> model.Note:
    given = "checkpoint" in said.model_fields_set  # null takes back what was left before
    checkpoint = written(said.checkpoint, CHECKPOINT_MAX, *where, "checkpoint") if given else b""
    return model.Note(lease(job_id, said.token), checkpoint, said.log.encode("utf-8", "replace"))


def _said(job_id: str, word: str) -> dict[str, object]:
    return moved(job_id, "running" if word == "noted" else word)
