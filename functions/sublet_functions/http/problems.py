"""Problem documents (RFC 9457): the bodies of error responses. Only this module maps errors to statuses."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from sublet.errors import (
    REFUSALS,
    Busy,
    Forbidden,
    Invalid,
    JobsError,
    Moved,
    NotDurable,
    Refused,
    Unavailable,
    Unconfirmed,
    Unfit,
    fault_words,
)
from sublet.tasks.arguments import path_in
from sublet.tasks.json.schema import Path
from sublet_functions.http.response import SECURITY_HEADERS, Response, encode

PREFIX = "urn:sublet:problem:"
PROBLEM_JSON = "application/problem+json"
ERRORS_SHOWN = 20
DIGITS_MAX = 4300
"""Most digits of an integer: the limit of Python, and of pydantic's parser."""
ERRORS_MAX = 1000
"""With more validation errors than this, only their number is reported."""


class ProblemType(NamedTuple):
    """A problem's HTTP status, title, and seconds for Retry-After (None: no such header)."""

    status: int
    title: str
    retry_after: int | None = None


PROBLEMS: dict[str, ProblemType] = {
    "bad-request": ProblemType(400, "The request is malformed"),
    "not-json": ProblemType(400, "The body is not JSON"),
    "unsupported-version": ProblemType(400, "The version of the API is not supported"),
    "unauthorized": ProblemType(401, "A valid token is required"),
    "forbidden": ProblemType(403, "Not allowed"),
    "not-found": ProblemType(404, "Not found"),
    "no-namespace": ProblemType(404, "The namespace does not exist"),
    "method-not-allowed": ProblemType(405, "The path does not support this method"),
    "timeout": ProblemType(408, "The request did not arrive in time"),
    "lease-lost": ProblemType(409, "The lease is lost"),
    "wrong-state": ProblemType(409, "The job is in another state"),
    "changed": ProblemType(409, "The revision has changed"),
    "key-taken": ProblemType(409, "Another job holds the key"),
    "precondition-failed": ProblemType(412, "The precondition cannot be met"),
    "too-large": ProblemType(413, "The body is too large"),
    "uri-too-long": ProblemType(414, "The URL is too long"),
    "unsupported-media-type": ProblemType(415, "The media type is not supported"),
    "invalid": ProblemType(422, "The request is invalid"),
    "unknown-task": ProblemType(422, "The task is unknown"),
    "too-many": ProblemType(422, "Too many items in one call"),
    "steps-full": ProblemType(422, "The job has as many steps as it may have"),
    "idempotency-mismatch": ProblemType(422, "The Idempotency-Key was used with another body"),
    "queue-full": ProblemType(429, "The queue is full", 5),
    "workers-full": ProblemType(429, "The limit of registered workers is reached", 60),
    "at-work": ProblemType(429, "This process runs as many workers as it may", 5),
    "too-many-headers": ProblemType(431, "The headers are too large"),
    "internal": ProblemType(500, "Internal server error"),
    "wrong-layout": ProblemType(503, "The data belongs to another version", 60),
    "unavailable": ProblemType(503, "Redis is not available", 1),
    "unconfirmed": ProblemType(503, "Stored, but not confirmed as durable", 1),
    "busy": ProblemType(503, "The server is overloaded", 1),
    "not-set-up": ProblemType(503, "The server is not configured", 60),
    "out-of-time": ProblemType(503, "The time for this request is over", 1),
    "oom": ProblemType(507, "Redis is out of memory", 30),
}
"""All problems by slug, the end of their `type`. The slug for `LEASE_LOST`, a script's refusal, is `lease-lost`."""


class Problem(Exception):
    """Raised to answer a request with a problem document. `slug`: a key of PROBLEMS. `errors`: made by
    `invalid_value`.
    """

    def __init__(
        self, slug: str, detail: str, *, headers: Mapping[str, str] | None = None, errors: Sequence[Any] = ()
    ) -> None:
        super().__init__(f"{slug}: {detail}")
        self.slug = slug
        self.detail = detail
        self.headers = dict(headers or {})
        self.errors = errors

    def response(self) -> Response:
        """Return the problem as a response."""
        kind = PROBLEMS[self.slug]
        headers = SECURITY_HEADERS | {"Content-Type": PROBLEM_JSON, **self.headers}
        if kind.retry_after is not None:
            headers.setdefault("Retry-After", str(kind.retry_after))
        return Response(kind.status, encode(self.document()) + b"\n", headers)

    def document(self) -> dict[str, Any]:
        """Return the response's body (RFC 9457)."""
        kind = PROBLEMS[self.slug]
        document: dict[str, Any] = {
            "type": PREFIX + self.slug,
            "title": kind.title,
            "status": kind.status,
            "detail": self.detail,
        }
        if self.errors:
            document["errors"] = list(self.errors)
        return document

    def as_item(self, job_id: str) -> dict[str, Any]:
        """Return the problem as one job's entry in a response for several."""
        document = self.document()
        return {"id": job_id} | {name: document[name] for name in ("status", "type", "detail")}


class MayBeStored(Unavailable):
    """No answer arrived, so jobs without ids or Idempotency-Key may be stored. `resend`: how to send them
    safely.
    """

    def __init__(self, message: str, resend: str) -> None:
        super().__init__(message)
        self.resend = resend


class NotCounted(Unavailable):
    """A request that would only have counted jobs got no answer."""


def internal_error() -> Problem:
    """Return the problem for an unexpected exception, without its text."""
    return Problem("internal", "unexpected error in the server: its operator finds the place in its log")


def cut_off_body() -> Problem:
    """Return the problem of a body that ended early, or whose chunked encoding is malformed."""
    return Problem(
        "bad-request",
        "the body was cut off, or its chunked encoding is malformed: send the whole request again",
    )


def slug_of(error: JobsError) -> str:
    """Return the slug for a refusal, an Unavailable or an Invalid of `sublet.errors`; `internal` for others."""
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


def problem_of(error: JobsError, is_read: bool = False) -> Problem:
    """Return the problem for an error of `sublet.errors`, without the address and messages of Redis.
    `is_read`: the request changes nothing.
    """
    if isinstance(error, Busy):
        return Problem("busy", "this process has too many calls to Redis in flight: send the request again")
    if isinstance(error, Unfit) and not isinstance(error, Moved | NotDurable):
        return Problem(
            "unavailable",
            "this server cannot use its Redis, or the data in it: the server's log has the reason",
        )
    if isinstance(error, Forbidden):
        return Problem(
            "unavailable",
            "this server's Redis user has no right to what the request needs: the server's log has the reason",
        )
    if isinstance(error, Unavailable) and not isinstance(error, Unconfirmed | NotDurable):
        if is_read or isinstance(error, NotCounted):
            return Problem(
                "unavailable", "Redis does not answer or cannot serve: send the request again later"
            )
        resend = error.resend if isinstance(error, MayBeStored) else "it is safe to send the request again"
        return Problem(
            "unavailable",
            f"Redis does not answer or cannot serve, so the outcome of this request is unknown: {resend}",
        )
    return Problem(slug_of(error), str(error))


def validation_problem(error: ValidationError, *where: str, value: Any = None) -> Problem:
    """Return a problem that lists at most 20 invalid fields (none above ERRORS_MAX), without values, which
    may be secrets; for a body that is no JSON, `not-json`. `where`: the place of `value`, e.g. `body`.
    """
    if error.error_count() > ERRORS_MAX:
        return Problem(
            "invalid",
            f"the {where[0]} has {error.error_count():,} validation errors, too many to list: check one item first",
        )
    found = error.errors(include_url=False, include_input=False)
    # pydantic's order differs between releases
    found.sort(key=lambda one: [str(part) for part in one["loc"]])
    if found[0]["type"] == "json_invalid":
        return unreadable(found[0]["msg"], f"{found[0]['msg']}: send one JSON object")
    faults = _faults(found, from_json(value) if isinstance(value, bytes) else value)
    errors = [
        invalid_value(text, *where, *place) for place, text in itertools.islice(faults.items(), ERRORS_SHOWN)
    ]
    place, text = next(iter(faults.items()))
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return Problem("invalid", f"{'.'.join(map(str, (*where, *place)))}: {text}{more}", errors=errors)


def unreadable(reason: str, text: str) -> Problem:
    """Return the problem `not-json` with the detail `text`, or `invalid` if a number is too long. `reason`:
    the parser's words.
    """
    _, is_number, place = reason.partition("number out of range at ")
    if not is_number:
        return Problem("not-json", text)
    words = f"the number that ends at {place} has over {DIGITS_MAX:,} digits: send it as a string"
    return Problem("invalid", f"body: {words}", errors=[invalid_value(words, "body")])


def _faults(found: Sequence[Any], value: Any) -> dict[Path, str]:
    faults: dict[Path, str] = {}
    for one in found:
        loc = one["loc"]
        is_left_out = len(loc) == 1 and isinstance(value, Mapping) and loc[0] not in value
        place = path_in(value, loc, is_missing=one["type"] == "missing" or is_left_out)
        text = fault_words(one)
        faults[place] = f"{faults[place]}; or: {text}" if place in faults else text
    parents = {place[:end] for place in faults for end in range(len(place))}
    return {place: text for place, text in faults.items() if place not in parents}


def invalid_value(message: str, *where: str | int) -> dict[str, Any]:
    """Return one entry of a problem's `errors`. `where`: `body` or `event` and the path in it, or `query`,
    `path` or `header` and a name.
    """
    kind, *path = where
    if kind in ("body", "event"):
        parts = (str(part).replace("~", "~0").replace("/", "~1") for part in path)
        return {"pointer": "#" + "".join(f"/{quote(part)}" for part in parts), "detail": message}
    return {"header" if kind == "header" else "parameter": path[0] if path else "", "detail": message}


def invalid_problem(error: Invalid, *where: str | int, model: type[BaseModel] | None = None) -> Problem:
    """Return the problem for an Invalid. `where`: the place in the request. `model`: of the value there; if
    the error's text begins with a field's name, that is appended to the place.
    """
    name = re.split(r"\W", str(error), maxsplit=1)[0]
    field = (name,) if model and name in model.model_fields else ()
    return Problem("invalid", str(error), errors=[invalid_value(str(error), *where, *field)])


@contextlib.contextmanager
def invalid_at(*where: str | int, model: type[BaseModel] | None = None) -> Iterator[None]:
    """In the `with` block, raise each Invalid as a problem with this place, as `invalid_problem` does."""
    try:
        yield
    except Invalid as error:
        raise invalid_problem(error, *where, model=model) from None
