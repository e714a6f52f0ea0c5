"""`POST /jobs/{id}/note` and `POST /jobs/note`: store checkpoints, logs, costs."""

from sublet import model
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.leases import batch_response, job_state, lease
from sublet_functions.handlers.within import lease_answers
from sublet_functions.http.body import stored_json
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.requests import Note, NoteBatch

CHECKPOINT_MAX = 64 * 1024


async def note(call: Call[Note, Empty]) -> Response:
    """Store a running attempt's checkpoint, last log lines and cost; each, if given, replaces the earlier one."""
    job_id = call.path["id"]
    words = await call.store.note([_note(job_id, call.body, "body")])
    (word,) = await lease_answers(call, [job_id], words)
    return json_response(_state(job_id, word))


async def note_batch(call: Call[NoteBatch, Empty]) -> Response:
    """Store notes of many attempts independently; an invalid checkpoint refuses them all."""
    notes = [_note(item.id, item, "body", "jobs", at) for at, item in enumerate(call.body.jobs)]
    ids = [item.id for item in call.body.jobs]
    return batch_response(ids, await lease_answers(call, ids, await call.store.note(notes)), _state)


def _note(job_id: str, note: Note, *where: str | int) -> model.Note:
    given = "checkpoint" in note.model_fields_set  # null deletes the checkpoint
    checkpoint = stored_json(note.checkpoint, CHECKPOINT_MAX, *where, "checkpoint") if given else b""
    cost = b"" if note.cost is None else b"%d" % note.cost
    return model.Note(lease(job_id, note.token), checkpoint, note.log.encode("utf-8", "replace"), cost)


def _state(job_id: str, word: str) -> dict[str, object]:
    return job_state(job_id, "running" if word == "noted" else word)
