"""Read CloudEvents 1.0 from HTTP requests, structured or binary. Messages quote no values."""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pydantic_core import from_json

from sublet_functions.http.body import EVENT_ATTRIBUTES, EVENT_MEDIA_TYPE, media_type, read_body
from sublet_functions.http.problems import Problem, invalid_value, unreadable
from sublet_functions.http.request import Request
from sublet_functions.http.response import JSON

STRUCTURED = "application/cloudevents+json"
ACCEPTED = 202
"""The status for an accepted event. Knative treats others, and bodies, as replies."""
VERSION = "1.0"
VALUE_MAX = 2048
ATTRIBUTES_MAX = 64
MEDIA_TYPE = r"^([A-Za-z0-9!#$%&'*+.^_`|~-]+/[A-Za-z0-9!#$%&'*+.^_`|~-]+)( *;[ -~]*)?$"

SCHEMA: dict[str, Any] = {
    "description": "A CloudEvent 1.0 in structured mode. In binary mode its attributes are headers: `ce-id` and so on.",
    "type": "object",
    "required": list(EVENT_ATTRIBUTES),
    "properties": {
        "specversion": {"const": VERSION},
        **{
            name: {"type": "string", "pattern": rf"^[^\x00-\x1f\x7f-\x9f]{{1,{VALUE_MAX}}}$"}
            for name in EVENT_ATTRIBUTES[1:]
        },
        "datacontenttype": {"type": ["string", "null"], "pattern": MEDIA_TYPE, "maxLength": VALUE_MAX},
        "data": {"description": "Any JSON; text, if `datacontenttype` says so."},
        "data_base64": {"type": ["string", "null"], "contentEncoding": "base64"},
    },
    "not": {"required": ["data", "data_base64"]},
    "propertyNames": {"pattern": "^([a-z0-9]{1,64}|data_base64)$"},
    "additionalProperties": {
        "type": ["string", "boolean", "integer", "null"],
        "pattern": rf"^[^\x00-\x1f\x7f-\x9f]{{0,{VALUE_MAX}}}$",
        "minimum": -(2**31),
        "maximum": 2**31 - 1,
    },
}
EXAMPLE = {
    "specversion": VERSION,
    "id": "A234-1234-1234",
    "source": "/shop/orders",
    "type": "com.example.order.placed",
    "datacontenttype": JSON,
    "data": {"task": "bill", "payload": {"order": 1234}},
}

_NAME = re.compile(r"[a-z0-9]{1,64}")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_INTEGERS = range(-(2**31), 2**31)
_MEDIA_TYPE = re.compile(MEDIA_TYPE)

Attribute = str | int | bool


@dataclass(frozen=True, slots=True)
class Event:
    """A valid CloudEvent. `form`: its attributes and, if given, `data` or `data_base64`."""

    form: Mapping[str, Any] = field(repr=False)

    def key(self, *more: str) -> str:
        """Return a hash (40 hex digits) of the event's source and id, and of `more`."""
        identity = json.dumps([self.form["source"], self.form["id"], *more])
        return hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()[:40]

    def json_data(self) -> bytes:
        """Return the event's data as JSON (decoded base64 is not checked). Raises Problem without data or if
        its media type is not JSON.
        """
        kind = self.form.get("datacontenttype", JSON)
        if not ({"data", "data_base64"} & self.form.keys()) or not _is_json(kind):
            raise Problem(
                "invalid",
                "the event's data is not a job: send a job as JSON, or name the event's task in the query (?task=)",
                errors=[_error("data")],
            )
        if "data_base64" in self.form:
            return base64.b64decode(self.form["data_base64"])
        return json.dumps(self.form["data"]).encode()


async def read_event(request: Request, most: int) -> Event:
    """Read a structured or binary CloudEvent. Raises Problem if invalid or a batch, and as `read_body`."""
    kind = media_type(request.headers)
    if kind.startswith(EVENT_MEDIA_TYPE) and kind != STRUCTURED:
        raise Problem(
            "unsupported-media-type",
            f"send one event as {STRUCTURED}, or its attributes as ce- headers; batches are not supported",
        )
    raw = await read_body(request, most)
    return _structured(raw) if kind == STRUCTURED else _binary(request.headers, raw)


def _structured(raw: bytes) -> Event:
    parsed = _parsed(raw, "the event")
    if not isinstance(parsed, dict):
        raise Problem("invalid", "the event is not a JSON object: send one, as structured mode requires")
    # null means missing
    form = {name: value for name, value in parsed.items() if value is not None or name == "data"}
    data = {name: form.pop(name) for name in ("data", "data_base64") if name in form}
    if {"data", "data_base64"} <= parsed.keys():
        raise Problem(
            "invalid", "the event has both data and data_base64: send one", errors=[_error("data_base64")]
        )
    if "data_base64" in data and not _is_base64(data["data_base64"]):
        raise Problem(
            "invalid",
            "data_base64 is not valid base64: encode the data again, without line breaks",
            errors=[_error("data_base64")],
        )
    _check(form)
    return Event(form | data)


def _binary(headers: Mapping[str, str], raw: bytes) -> Event:
    form: dict[str, Any] = {
        name[3:]: _decoded(name[3:], value) for name, value in headers.items() if name.startswith("ce-")
    }
    kind = headers.get("content-type")
    if kind:
        form["datacontenttype"] = kind
    _check(form)
    return Event(form | (_data(kind, raw) if raw else {}))


def _data(kind: str | None, raw: bytes) -> dict[str, Any]:
    if kind is None or _is_json(kind):
        return {"data": _parsed(raw, "the event's data")}
    if kind.lower().startswith("text/"):
        try:
            return {"data": raw.decode()}
        except UnicodeDecodeError:
            pass
    return {"data_base64": base64.b64encode(raw).decode()}


def _check(attributes: Mapping[str, Any]) -> None:
    errors = [*_errors(attributes)]
    if errors:
        name, msg = errors[0]
        more = f", and {len(errors) - 1} more" if len(errors) > 1 else ""
        raise Problem(
            "invalid",
            f"not a valid CloudEvent: {name}: {msg}{more}",
            errors=[_error(name, msg) for name, msg in errors[:20]],
        )


def _errors(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in EVENT_ATTRIBUTES:
        if name not in attributes:
            yield name, "is required"
        elif not isinstance(attributes[name], str) or not attributes[name]:
            yield name, "must be a string, and not empty"
        elif name == "specversion" and attributes[name] != VERSION:
            yield name, f'must be "{VERSION}"'
    if len(attributes) > ATTRIBUTES_MAX:
        yield "attributes", f"send at most {ATTRIBUTES_MAX} attributes"
    for name, value in attributes.items():
        if not _NAME.fullmatch(name) or name == "data":
            yield name[:64], "attribute name: use 1 to 64 of a-z 0-9, and not data"
        elif not isinstance(value, Attribute) or (isinstance(value, int) and value not in _INTEGERS):
            yield name, "must be a string, a boolean, or an integer of 32 bits"
        elif isinstance(value, str) and (len(value) > VALUE_MAX or _CONTROL.search(value)):
            yield name, f"use at most {VALUE_MAX:,} characters, and no control characters"
        elif name == "datacontenttype" and not (isinstance(value, str) and _MEDIA_TYPE.fullmatch(value)):
            yield name, "must be a media type, e.g. application/json"


def _error(name: str, msg: str = "is invalid") -> dict[str, Any]:
    return invalid_value(msg, "event", name)


def _decoded(name: str, value: str) -> str:
    try:
        value.encode()
    except (
        UnicodeEncodeError
    ):  # aiohttp keeps other bytes than UTF-8 as surrogates; other servers decode Latin-1
        value = value.encode("utf-8", "surrogateescape").decode("latin-1")
    value = value.strip()
    quoted = _QUOTED.fullmatch(value)
    try:
        return unquote(re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else value, errors="strict")
    except UnicodeDecodeError:
        msg = "its percent-encoded bytes are not valid UTF-8"
        raise Problem(
            "invalid", f"not a valid CloudEvent: {name[:64]}: {msg}", errors=[_error(name[:64], msg)]
        ) from None


def _parsed(raw: bytes, what: str) -> Any:
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise unreadable(str(error), f"{what} is not JSON: {error}") from None


def _is_json(kind: Any) -> bool:
    found = _MEDIA_TYPE.fullmatch(str(kind))
    return found is not None and found[1].lower().endswith(("/json", "+json"))


def _is_base64(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(base64.b64decode(value, validate=True) or not value)
    except (binascii.Error, ValueError):
        return False
