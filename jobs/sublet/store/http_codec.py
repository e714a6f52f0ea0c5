"""What a worker and a producer say to the HTTP API and hear from it, without I/O: models to JSON and back.

Times travel as RFC 3339, durations as seconds, payloads and results as the JSON that they are.
"""

import json
import logging
import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic_core import PydanticSerializationError, from_json, to_json

from sublet.errors import Invalid
from sublet.model import (
    FINISHED,
    Beat,
    Card,
    Claimed,
    Completion,
    Ending,
    Failure,
    Lease,
    Note,
    Release,
    Standing,
    State,
    Submission,
    Submitted,
)
from sublet.protocol.keys import is_name

log = logging.getLogger(__name__)

BATCH = 1000
"""Items that one request carries."""
ROUTES: dict[type, str] = {Completion: "/jobs/complete", Failure: "/jobs/fail", Release: "/jobs/release"}
"""Where endings of a kind go."""
ABOUT_MAX = 3800
"""Bytes that a worker may say of itself, so that there is room for what the server adds: it keeps 4,096."""
ANSWERS = {404: "NOT_FOUND", 409: "LEASE_LOST"}
"""What the scripts say, by the status of an item."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """What it says. Raises ValueError for what is no JSON."""
        try:
            return from_json(self.body)
        except (
            ValueError
        ):  # half of a surrogate pair is JSON, too, and one odd payload must not cost the others
            return json.loads(self.body)


def write(value: Any) -> bytes:
    """A body."""
    return to_json(value)


def _value_of(raw: bytes, what: str, lease_or_job: Lease | Submission) -> Any:
    """Somebody's own JSON, to be part of a body. Raises Invalid for what cannot be."""
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise Invalid(
            f"{what} of job {lease_or_job.id}: it is no JSON that can be sent over HTTP ({error})"
        ) from None


def _bytes_of(value: Any) -> bytes:
    """The other way round."""
    try:
        return to_json(value)
    except (PydanticSerializationError, ValueError):
        return json.dumps(value, separators=(",", ":")).encode()


def _text(text: str, most: int) -> str:
    """Text that can travel: as much of it as is kept, and without halves of surrogate pairs."""
    return text[:most].encode("utf-8", "replace").decode()


def part(name: str) -> str:
    """A name or an id as a part of a path. Raises Invalid for what can be none."""
    if not is_name(name) or name in (".", ".."):
        raise Invalid(f"{name[:80]!r}: use 1 to 128 of A-Z a-z 0-9 _ . : -")
    return name


def moment_ms(text: str) -> int:
    """Milliseconds since 1970."""
    return math.floor(datetime.fromisoformat(text).timestamp() * 1000 + 0.5)


# submit


def new_job(job: Submission) -> dict[str, Any]:
    """A job to be; the rules, which are the protocol's words, become fields. Raises Invalid for what cannot be sent."""
    payload = _value_of(job.payload or b"{}", "payload", job)
    fields = {"id": job.id, "task": job.task, "queue": job.queue, "payload": payload}
    fields |= {"durability": job.durability} if job.durability else {}
    for word in job.rules.split():
        name, _, value = word.partition("=")
        try:
            field, said = _rule(name, value)
        except (KeyError, ValueError, OverflowError):
            raise Invalid(f"rule {word[:80]} of job {job.id}: it cannot be sent over HTTP") from None
        fields[field] = said
    return fields


def _rule(name: str, value: str) -> tuple[str, Any]:
    if name in ("key", "trace"):
        return name, value
    if name in ("priority", "tries"):
        return {"priority": "priority", "tries": "max_attempts"}[name], int(value)
    if name == "at":
        return "run_at", datetime.fromtimestamp(int(value) / 1000, UTC).isoformat(timespec="milliseconds")
    if name == "backoff":
        first, factor, cap = value.split(":")
        return name, {"first": int(first) / 1000, "factor": float(factor), "cap": int(cap) / 1000}
    if (name, value) == ("timeout", "none"):
        return name, value
    return {"delay": "delay", "window": "window", "timeout": "timeout", "retention": "retention"}[name], int(
        value
    ) / 1000


class Not(NamedTuple):
    """Why a job of a batch was not taken in: its problem's type, and words."""

    type: str
    detail: str


def submitted(line: Any) -> Submitted | Not:
    """What became of a job of a batch."""
    if line["status"] in (200, 201):
        return Submitted(line["id"], line["status"] == 201)
    return Not(line["type"], line["detail"])


# claim


def claimed(answer: Answer) -> Claimed:
    """The leases of a claim, and when to come again."""
    ends: dict[str, int] = {}
    leases = []
    for job in answer.json()["jobs"] if answer.status != 204 else ():
        end, seconds, kept = job["lease_expires_at"], job["timeout"], job.get("checkpoint")
        if end not in ends:
            ends[end] = moment_ms(end)
        lease = Lease(
            job["id"], job["token"], job["attempt"], ends[end], job["queue"], job["task"],
            None if seconds is None else round(seconds * 1000), _bytes_of(job["payload"]), job["recovered"],
            job.get("trace") or "", b"" if kept is None else _bytes_of(kept), moment_ms(job["occurrence"]) if job.get("occurrence") else None,
        )  # fmt: skip
        leases.append(lease)
    return Claimed(leases, float(answer.headers["Sublet-Next-In"]))


# heartbeat, settle, note


def beat(beat: Beat) -> dict[str, Any]:
    """A sign of life."""
    said = _held(beat.lease)
    if beat.progress:
        try:
            said["progress"] = _value_of(beat.progress, "progress", beat.lease)
        except Invalid as error:  # it is only good to know
            log.warning("%s", error)
    return said


def ending(ending: Ending) -> dict[str, Any]:
    """The ending of an attempt. Raises Invalid for a result that cannot be sent."""
    said = _held(ending.lease)
    if isinstance(ending, Completion):
        said["result"] = _value_of(ending.result or b"null", "result", ending.lease)
    elif isinstance(ending, Failure):
        said["code"] = ending.code if is_name(ending.code) else "failed"
        said["message"], said["detail"] = _text(ending.message, 1024), _text(ending.detail, 4096)
        said["again"] = ending.again
    else:
        said["delay"], said["reason"] = min(max(ending.delay, 0.0), 1e9), _text(ending.reason, 1024)
    return said


def note(note: Note) -> dict[str, Any]:
    """What a task leaves with its job. Raises Invalid for a checkpoint that cannot be sent."""
    said = _held(note.lease)
    if note.checkpoint:
        said["checkpoint"] = _value_of(note.checkpoint, "checkpoint", note.lease)
    if note.log:
        said["log"] = note.log.decode("utf-8", "replace")[-8192:]
    return said


def _held(lease: Lease) -> dict[str, Any]:
    return {"id": lease.id, "token": lease.token}


def beaten(line: Any) -> int | str:
    """The lease's new end in ms, or why not."""
    if line["status"] != 200:
        return ANSWERS[line["status"]]
    return "CANCEL_REQUESTED" if line["cancel_requested"] else moment_ms(line["lease_expires_at"])


def settled(line: Any) -> str:
    """The job's new state, and when it is due, or why not."""
    if line["status"] != 200:
        return ANSWERS[line["status"]]
    due = line.get("due_at")
    return f"{line['state']} {moment_ms(due)}" if due else str(line["state"])


def noted(line: Any) -> str:
    """Whether it was kept."""
    return "noted" if line["status"] == 200 else ANSWERS[line["status"]]


# the register


def card(card: Card) -> dict[str, Any]:
    """What a worker says of itself; the server adds whose token it came with."""
    about = json.loads(card.about or b"{}")
    if len(card.about) > ABOUT_MAX:
        about.pop("queues", None)
    of_pool = {name: said for name, said in (("pool", card.pool), ("summons", card.summons)) if said}
    return {"life": card.life, "worker_id": card.worker_id, "about": about, **of_pool}


# watch


def standing(job: Any) -> Standing:
    """Where a job stands, from all that is said of it."""
    state = State(job["state"])
    if state not in FINISHED:
        return Standing(state, b"", "")
    last = next((attempt for attempt in job["attempts"] if attempt["number"] == job["attempt"]), None)
    story = ""
    if last:
        began, ended = moment_ms(last["claimed_at"]), moment_ms(last["ended_at"])
        story = f"{began} {last['worker']} {ended} {last['code']}"
        if last["message"] or last["detail"] or state is not State.COMPLETED:
            story += f"\n{last['message']}\n{last['detail']}"
    return Standing(state, _bytes_of(job["result"]) if state is State.COMPLETED else b"", story)
