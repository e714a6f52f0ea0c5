"""Encode requests to the HTTP API and decode its answers, without I/O.

In its JSON, moments are RFC 3339, durations seconds, payloads and results JSON values.
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
    Description,
    Ending,
    Failure,
    Following,
    Lease,
    LostJob,
    Note,
    Release,
    Standing,
    State,
    Submission,
    Submitted,
    Suspension,
)
from sublet.protocol.keys import check_name, is_name
from sublet.steps.calls import Called, CalledJob, Kept
from sublet.steps.chunks import Emission
from sublet.workflows.upstream import UpstreamPage

log = logging.getLogger(__name__)

BATCH = 1000
ROUTES: dict[type, str] = {
    Completion: "/jobs/complete",
    Failure: "/jobs/fail",
    Release: "/jobs/release",
    Suspension: "/jobs/suspend",
}
ABOUT_MAX = 3800
DEFAULTS: dict[str, Any] = {
    "priority": 0,
    "delay": 0,
    "max_attempts": 3,
    "timeout": 300,
    "stall": None,
    "retention": 86_400,
    "backoff": {"first": 1, "factor": 2, "cap": 300},
    "key": None,
    "window": None,
    "debounce": None,
    "at_most": None,
    "on_conflict": None,
    "tags": [],
    "group": None,
    "cost": 1,
    "keep_payload": False,
}
"""Sent for options that a job does not set: without them, the server would use its own task's options."""
ANSWERS = {404: "NOT_FOUND", 409: "LEASE_LOST"}
"""HTTP status of one item of an answer → its code."""


class Answer(NamedTuple):
    """An HTTP answer of the API."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Parse the body. Raises ValueError if it is not JSON."""
        try:
            return from_json(self.body)
        except ValueError:  # Python accepts unpaired surrogates
            return json.loads(self.body)


def write(value: Any) -> bytes:
    """Encode a request's body as JSON."""
    return to_json(value)


def _value_of(raw: bytes, what: str, lease_or_job: Lease | Submission) -> Any:
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise Invalid(
            f"the {what} of job {lease_or_job.id} is not valid JSON ({error}), so it was not sent: use JSON without NaN and Infinity"
        ) from None


def _bytes_of(value: Any) -> bytes:
    try:
        return to_json(value)
    except (PydanticSerializationError, ValueError):
        return json.dumps(value, separators=(",", ":")).encode()


def _text(text: str, most: int) -> str:
    return text[:most].encode("utf-8", "replace").decode()


def part(name: str) -> str:
    """Check a name or id for the path of a URL, and return it. Raises Invalid."""
    return check_name("name or id", name)


def moment_ms(text: str) -> int:
    """Parse an RFC 3339 time to ms since 1970."""
    return math.floor(datetime.fromisoformat(text).timestamp() * 1000 + 0.5)


def task(description: Description) -> dict[str, Any]:
    """Encode a task for the catalogue."""
    return {"name": description.task, **from_json(description.text)}


def new_job(job: Submission) -> dict[str, Any]:
    """Encode a job to submit; its options in `rules` (`priority=5`) become fields. Raises Invalid for
    malformed JSON or rules.
    """
    payload = _value_of(job.payload or b"{}", "payload", job)
    fields = {"id": job.id, "task": job.task, "queue": job.queue, "payload": payload, **DEFAULTS}
    fields |= {"durability": job.durability} if job.durability else {}
    for word in job.rules.split():
        name, _, value = word.partition("=")
        try:
            field, decoded = _rule(name, value)
        except (KeyError, ValueError, OverflowError):
            raise Invalid(
                f"job {job.id}: the option {word[:80]!r} cannot be sent over HTTP: use key, window, trace, priority, tries, at, "
                "delay, debounce, at_most, on_conflict, timeout, stall, retention, backoff, tags, group, cost or keep, with a valid value"
            ) from None
        fields[field] = decoded
    return fields


def _rule(name: str, value: str) -> tuple[str, Any]:
    if name in ("key", "group", "trace", "on_conflict"):
        return name, value
    if name == "tags":
        return name, value.split(",")
    if name in ("priority", "cost", "tries"):
        return {"tries": "max_attempts"}.get(name, name), int(value)
    if name == "at":
        return "run_at", datetime.fromtimestamp(int(value) / 1000, UTC).isoformat(timespec="milliseconds")
    if name == "backoff":
        first, factor, cap = value.split(":")
        return name, {"first": int(first) / 1000, "factor": float(factor), "cap": int(cap) / 1000}
    if (name, value) == ("timeout", "none"):
        return name, None
    if (name, value) == ("keep", "1"):
        return "keep_payload", True
    if name not in ("delay", "window", "debounce", "at_most", "timeout", "stall", "retention"):
        raise KeyError(name)
    return name, int(value) / 1000


class Rejected(NamedTuple):
    """Why the API refused one job of several: the problem's type and detail."""

    type: str
    detail: str


def submitted(line: Any) -> Submitted | Rejected:
    """Decode the answer for one job of a batch."""
    if line["status"] in (200, 201):
        return Submitted(line["id"], line["status"] == 201, line.get("replaced") is True)
    return Rejected(line["type"], line["detail"])


def claimed(answer: Answer) -> Claimed:
    """Decode the answer to a claim: leases, seconds until the next claim, jobs that became dead."""
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
            job["max_attempts"], job["tries_left"], tuple(job.get("tags", ())), job.get("lost", False),
            round(job["stall"] * 1000) if job.get("stall") else None,
        )  # fmt: skip
        leases.append(lease)
    dead = [line.split(" ") for line in answer.headers.get("Sublet-Dead", "").split(", ") if line]
    return Claimed(
        leases,
        float(answer.headers["Sublet-Next-In"]),
        dead=tuple(LostJob(line[0], int(line[1]), *line[2:]) for line in dead),
    )


def beat(beat: Beat) -> dict[str, Any]:
    """Encode a heartbeat for one lease. A progress that is not JSON is logged and left out."""
    fields = _held(beat.lease)
    if beat.progress:
        try:
            fields["progress"] = _value_of(beat.progress, "progress", beat.lease)
        except Invalid as error:
            log.warning("%s", error)
    return fields


def ending(ending: Ending) -> dict[str, Any]:
    """Encode an attempt's outcome; cut long texts; a failure's invalid code becomes `failed`. Raises Invalid for a
    result that is not JSON.
    """
    fields = _held(ending.lease)
    if isinstance(ending, Completion):
        fields["result"] = _value_of(ending.result or b"null", "result", ending.lease)
    elif isinstance(ending, Failure):
        fields["code"] = ending.code if is_name(ending.code) else "failed"
        fields["message"], fields["detail"] = _text(ending.message, 1024), _text(ending.detail, 4096)
        fields["again"] = ending.again
    elif isinstance(ending, Suspension):
        fields |= {"kind": ending.kind, "name": ending.name, "delay": ending.seconds}
    else:
        fields["delay"], fields["reason"] = min(max(ending.delay, 0.0), 1e9), _text(ending.reason, 1024)
        fields["code"] = ending.code
    return fields


def continuation(ending: Completion, following: Following) -> dict[str, Any]:
    """Encode a completion, and the jobs that follow. Raises Invalid for malformed JSON."""
    return {
        "token": ending.lease.token,
        "result": _value_of(ending.result or b"null", "result", ending.lease),
        "workflow": following.workflow,
        "jobs": [new_job(job) for job in following.jobs],
        "callback": following.callback and new_job(following.callback),
        "on_failure": following.on_failure,
    }


def continued(answer: Answer) -> str:
    """Decode the answer to a `continuation`: the job's state, and after `dead` the reason."""
    found = answer.json()
    return f"{found['state']} {found.get('reason') or ''}".rstrip()


def note(note: Note) -> dict[str, Any]:
    """Encode a checkpoint, log lines and cost, if not empty. Raises Invalid for a checkpoint that is not
    JSON.
    """
    fields = _held(note.lease)
    if note.checkpoint:
        fields["checkpoint"] = _value_of(note.checkpoint, "checkpoint", note.lease)
    if note.log:
        fields["log"] = note.log.decode("utf-8", "replace")[-8192:]
    if note.cost:
        fields["cost"] = int(note.cost)
    return fields


def steps(lease: Lease, steps: Mapping[str, bytes]) -> dict[str, Any]:
    """Encode the steps to keep. Raises Invalid for one that is not JSON."""
    values = {name: _value_of(value, f"step {name}", lease) for name, value in steps.items()}
    return {"token": lease.token, "steps": values}


def emission(lease: Lease, emission: Emission) -> dict[str, Any]:
    """Encode the chunks to emit. Raises Invalid for one that is not JSON."""
    chunks = [_value_of(chunk, "chunk", lease) for chunk in emission.chunks]
    return {"token": lease.token, "before": emission.before, "chunks": chunks}


def kept_steps(answer: Answer) -> dict[str, Kept]:
    """Decode the steps of the answer."""
    return {name: _kept(one) for name, one in answer.json()["steps"].items()}


def _kept(step: Any) -> Kept:
    kind, value = step["kind"], step["value"]
    if kind in ("timeout", "call"):
        stored = (value or "").encode()
    elif kind == "called":
        body = _bytes_of(value["result"]) if value["state"] == "completed" else value["error"].encode()
        stored = Called(value["id"], value["state"], body).value
    else:
        stored = _bytes_of(value)
    return Kept(moment_ms(step["kept_at"]), kind, stored)


def called_job(lease: Lease, called: CalledJob) -> dict[str, Any]:
    """Encode a job that a step calls, without its id. Raises Invalid as `new_job`."""
    job = new_job(called.job)
    del job["id"]
    return {"token": lease.token, "step": called.step, "job": job}


def kept_call(answer: Answer) -> Kept:
    """Decode the step of a called job."""
    return _kept(answer.json()["step"])


def upstream(answer: Answer) -> UpstreamPage:
    """Decode the outcomes of jobs that a running job waited for."""
    page = answer.json()
    return UpstreamPage([(job["id"], _outcome(job)) for job in page["jobs"]], page["following"])


def _outcome(job: Any) -> Standing:
    state, error = job["state"] and State(job["state"]), job["error"]
    story = f"0 - 0 {error['code']}\n{error['message']}\n{error['detail']}" if error else ""
    return Standing(state, _bytes_of(job["result"]) if state is State.COMPLETED else b"", story)


def _held(lease: Lease) -> dict[str, Any]:
    return {"id": lease.id, "token": lease.token}


def beaten(line: Any) -> int | str:
    """Decode the answer for one lease: its new end (ms since 1970), or CANCEL_REQUESTED, LEASE_LOST or
    NOT_FOUND.
    """
    if line["status"] != 200:
        return ANSWERS[line["status"]]
    return "CANCEL_REQUESTED" if line["cancel_requested"] else moment_ms(line["lease_expires_at"])


def settled(line: Any) -> str:
    """Decode the answer for one outcome: the job's new state (`scheduled <ms>`: when it is due), LEASE_LOST
    or NOT_FOUND.
    """
    if line["status"] != 200:
        return ANSWERS[line["status"]]
    due = line.get("due_at")
    return f"{line['state']} {moment_ms(due)}" if due else str(line["state"])


def noted(line: Any) -> str:
    """Decode the answer for one checkpoint or log: `noted`, LEASE_LOST or NOT_FOUND."""
    return "noted" if line["status"] == 200 else ANSWERS[line["status"]]


def card(card: Card) -> dict[str, Any]:
    """Encode a worker's registration, without its queues if it would be too long."""
    about = json.loads(card.about or b"{}")
    if len(card.about) > ABOUT_MAX:
        about.pop("queues", None)
    of_pool = {name: text for name, text in (("pool", card.pool), ("summons", card.summons)) if text}
    return {"life": card.life, "worker_id": card.worker_id, "about": about, **of_pool}


def standing(job: Any) -> Standing:
    """Decode a job's state and, if it is finished, its last attempt; its result if it is completed."""
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
