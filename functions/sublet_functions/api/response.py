"""What handlers say, as HTTP: models to JSON, errors to statuses. Nothing else knows both.

Every error is a problem document (RFC 9457). Its `type` is stable: programs go by it, people read `title` and `detail`.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from sublet.errors import (
    REFUSALS,
    Busy,
    Invalid,
    JobsError,
    Moved,
    NotDurable,
    Refused,
    Unavailable,
    Unconfirmed,
    Unfit,
)
from sublet_functions.api.request import Reply

PREFIX = "urn:sublet:problem:"
"""What every problem's type begins with."""
JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
DEPTH_MAX = 200
"""Lists in lists, or objects, beyond which an answer shows three dots."""
ERRORS_SHOWN = 20
"""Faults of one body that are told at once."""
FAULTS_MAX = 1000
"""Faults of one body that are looked at one by one."""


class Kind(NamedTuple):
    """One kind of problem: its status, its title, and the seconds after which trying again makes sense."""

    status: int
    title: str
    retry_after: int | None = None


KINDS: dict[str, Kind] = {
    "bad-request": Kind(400, "This is no request that can be understood"),
    "not-json": Kind(400, "The body is not JSON"),
    "unauthorized": Kind(401, "A token is needed"),
    "forbidden": Kind(403, "You may not do this"),
    "not-found": Kind(404, "There is no such thing"),
    "no-namespace": Kind(404, "Nothing is stored here"),
    "method-not-allowed": Kind(405, "This path knows other methods"),
    "timeout": Kind(408, "The request did not come in time"),
    "lease-lost": Kind(409, "The lease is lost"),
    "wrong-state": Kind(409, "The job is in another state"),
    "changed": Kind(409, "It changed since you looked"),
    "key-taken": Kind(409, "Another job holds the key"),
    "too-large": Kind(413, "The body is too large"),
    "uri-too-long": Kind(414, "The address is too long"),
    "unsupported-media-type": Kind(415, "The body must be plain JSON"),
    "invalid": Kind(422, "The request says something that cannot be"),
    "too-many": Kind(422, "More items than one call takes"),
    "idempotency-mismatch": Kind(422, "This Idempotency-Key was used with another body"),
    "queue-full": Kind(429, "The queue is full", 5),
    "at-work": Kind(429, "This process works already", 5),
    "too-many-headers": Kind(431, "The headers are too large"),
    "internal": Kind(500, "This is a defect of the server"),
    "wrong-layout": Kind(503, "The data belongs to another version", 60),
    "unavailable": Kind(503, "Redis does not answer", 1),
    "unconfirmed": Kind(503, "Redis has it, and not all who were asked for", 1),
    "busy": Kind(503, "This process has no room for more", 1),
    "not-set-up": Kind(503, "This server is not set up", 60),
    "out-of-time": Kind(503, "The time for this request is over", 1),
    "oom": Kind(507, "Redis is full, or nearly", 30),
}
"""All problems, by the last word of their type. A refusal of the scripts has its own code here, in small letters."""


class Problem(Exception):
    """Raised by whoever finds that a request cannot be answered otherwise."""

    def __init__(
        self, slug: str, detail: str, *, headers: Mapping[str, str] | None = None, errors: Sequence[Any] = ()
    ) -> None:
        super().__init__(f"{slug}: {detail}")
        self.slug, self.detail, self.headers, self.errors = slug, detail, dict(headers or {}), errors

    def reply(self) -> Reply:
        """The problem as an answer."""
        kind = KINDS[self.slug]
        headers = {"Content-Type": PROBLEM_JSON, **self.headers}
        if kind.retry_after is not None:
            headers.setdefault("Retry-After", str(kind.retry_after))
        return Reply(kind.status, encode(self.document()) + b"\n", headers)

    def document(self) -> dict[str, Any]:
        """The problem as RFC 9457 has it."""
        kind = KINDS[self.slug]
        said = {"type": PREFIX + self.slug, "title": kind.title, "status": kind.status, "detail": self.detail}
        return said | ({"errors": list(self.errors)} if self.errors else {})


class Unnamed(Unavailable):
    """It is unknown whether jobs without ids of their own are stored. `again`: how the same may be sent again."""

    def __init__(self, words: str, again: str) -> None:
        super().__init__(words)
        self.again = again


def slug_of(error: JobsError) -> str:
    """Which problem an error of the library is."""
    if isinstance(error, Busy):
        return "busy"
    if isinstance(error, Unconfirmed):
        return "unconfirmed"
    if isinstance(error, NotDurable):
        return "not-set-up"
    if isinstance(error, Unavailable):
        return "unavailable"
    if isinstance(error, Refused) and error.code in REFUSALS:
        return error.code.lower().replace("_", "-")
    return "invalid" if isinstance(error, Invalid) else "internal"


def problem_of(error: JobsError) -> Problem:
    """An error of the library as a problem. Where Redis is, and what it said, is for the server's log, not for callers."""
    if isinstance(error, Busy):
        return Problem(
            "busy", "this process has more to do at once than it has room for: send the same again"
        )
    if isinstance(error, Unfit) and not isinstance(error, Moved | NotDurable):
        return Problem(
            "unavailable",
            "this server can do nothing with what its Redis is, or holds: its log says what is wrong",
        )
    if isinstance(error, Unavailable) and not isinstance(error, Unconfirmed | NotDurable):
        again = error.again if isinstance(error, Unnamed) else "sending the same again is safe"
        return Problem(
            "unavailable",
            f"Redis does not answer, or cannot serve now: what became of this is unknown, and {again}",
        )
    return Problem(slug_of(error), str(error))


def faults(error: ValidationError, *where: str) -> Problem:
    """What pydantic found wrong, each with its place; never the value itself, which may be a secret."""
    if error.error_count() > FAULTS_MAX:  # to tell them all would keep others waiting
        return Problem("invalid", f"the {where[0]} has {error.error_count():,} faults")
    found = error.errors(include_url=False, include_context=False, include_input=False)
    found.sort(
        key=lambda fault: [str(part) for part in fault["loc"]]
    )  # pydantic's own order is another one in each release
    if found[0]["type"] == "json_invalid":
        return Problem("not-json", f"{found[0]['msg']}: send one JSON object")
    told = [
        {"loc": [*where, *fault["loc"]], "msg": fault["msg"], "type": fault["type"]}
        for fault in found[:ERRORS_SHOWN]
    ]
    first = ".".join(map(str, told[0]["loc"]))
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return Problem("invalid", f"{first}: {told[0]['msg']}{more}", errors=told)


def encode(value: Any) -> bytes:
    """The value as JSON, whatever a foreign client may have stored in it."""
    try:
        return to_json(value, inf_nan_mode="null")
    except (
        PydanticSerializationError,
        ValueError,
    ):  # half of a surrogate pair, or lists in lists in lists
        return json.dumps(_mended(value)).encode()


def _mended(value: Any, depth: int = 0) -> Any:
    """The same, of what JSON knows, and no deeper than others can read."""
    if depth > DEPTH_MAX:
        return "…"
    if isinstance(value, BaseModel):
        value = dict(value)
    if isinstance(value, Mapping):
        return {str(name): _mended(one, depth + 1) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(one, depth + 1) for one in value]
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    return to_jsonable_python(value)


def json_reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    """An answer that is JSON."""
    return Reply(status, encode(value) + b"\n", {"Content-Type": JSON, **(headers or {})})


def moment(milliseconds: float) -> str:
    """A moment of Redis's clock as RFC 3339 has it, to the millisecond."""
    return (
        datetime.fromtimestamp(milliseconds / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def moved(job_id: str, word: str) -> dict[str, Any]:
    """What became of a lease's job, from the word that a script said. Raises Problem for a refusal."""
    state, _, due = word.partition(" ")
    if state in REFUSALS:
        raise refused(job_id, state)
    return {"id": job_id, "state": state} | ({"due_at": moment(float(due))} if due else {})


def refused(job_id: str, code: str) -> Problem:
    """Why a lease's verb was refused."""
    if code == "NOT_FOUND":
        return Problem("not-found", f"no job {job_id}: it never was, or its retention has passed")
    return Problem(
        "lease-lost",
        f"job {job_id} is over, or under another lease: stop, nothing more you do with it counts",
    )


def item(job_id: str, answer: dict[str, Any] | Problem, status: int = 200) -> dict[str, Any]:
    """One line of a batch's answer: as the single route would have answered, with its status."""
    if isinstance(answer, Problem):
        said = answer.document()
        return {"id": job_id, "status": said["status"], "type": said["type"], "detail": said["detail"]}
    return {"id": job_id, "status": status} | answer
