"""`POST /jobs/{id}/note`, `POST /jobs/note`: what a running attempt leaves with its job: a checkpoint, the last of its log."""

from functions.bodies import Note, Notes
from functions.call import Call, Reply
from functions.held import lease, lines
from functions.queries import Nothing
from functions.reading import written
from functions.reply import json_reply, moved
from jobs import model

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
