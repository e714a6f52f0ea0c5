"""CloudEvents 1.0 as HTTP carries them: read by hand, from both of their modes, into the one form that JSON has for them.

In binary mode the attributes are headers, and the body is the data; in structured mode the body is all of it. What is a fault
names the attribute, and never its value.
"""

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

from sublet_functions.api.parsing import fault, raw_body
from sublet_functions.api.request import Request
from sublet_functions.api.response import JSON, Problem

STRUCTURED = "application/cloudevents+json"
"""The media type of an event in structured mode."""
TAKEN = 202
"""How an event is answered that was taken in, with no body: Knative's contract keeps other statuses, and bodies, for replies."""
REQUIRED = ("specversion", "id", "source", "type")
VERSION = "1.0"
VALUE_MAX = 2048
"""Characters that one attribute may have."""
ATTRIBUTES_MAX = 64
MEDIA_TYPE = r"^([A-Za-z0-9!#$%&'*+.^_`|~-]+/[A-Za-z0-9!#$%&'*+.^_`|~-]+)( *;[ -~]*)?$"

SCHEMA: dict[str, Any] = {
    "description": "A CloudEvent 1.0 in structured mode; in binary mode its attributes are headers, `ce-id` and so on.",
    "type": "object",
    "required": list(REQUIRED),
    "properties": {
        "specversion": {"const": VERSION},
        **{
            name: {"type": "string", "pattern": rf"^[^\x00-\x1f\x7f-\x9f]{{1,{VALUE_MAX}}}$"}
            for name in REQUIRED[1:]
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
"""What the OpenAPI document says of one."""
EXAMPLE = {
    "specversion": VERSION,
    "id": "A234-1234-1234",
    "source": "/shop/orders",
    "type": "com.example.order.placed",
    "datacontenttype": JSON,
    "data": {"task": "bill", "payload": {"order": 1234}},
}

_FAMILY = "application/cloudevents"
_NAME = re.compile(r"[a-z0-9]{1,64}")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_INTEGERS = range(-(2**31), 2**31)
_MEDIA_TYPE = re.compile(MEDIA_TYPE)

Attribute = str | int | bool


@dataclass(frozen=True, slots=True)
class Event:
    """One CloudEvent."""

    form: Mapping[str, Any] = field(repr=False)
    """All of it, as the JSON format has it: the attributes, and `data` or `data_base64`."""

    def key(self, *more: str) -> str:
        """What is the same for the same event, and for no other: by the standard, its source and its id say which it is."""
        said = json.dumps([self.form["source"], self.form["id"], *more])
        return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:40]

    def json_data(self) -> bytes:
        """Its data, if that is JSON. Raises Problem if it has none, or other data."""
        said = self.form.get("datacontenttype", JSON)
        if not ({"data", "data_base64"} & self.form.keys()) or not _is_json(said):
            raise Problem(
                "invalid",
                "the event's data must be JSON, one job as POST /jobs takes it",
                errors=[_fault("data")],
            )
        if "data_base64" in self.form:
            return base64.b64decode(self.form["data_base64"])
        return json.dumps(self.form["data"]).encode()


def is_event(headers: Mapping[str, str]) -> bool:
    """Does a request with these headers carry an event, or is it meant to?"""
    return _kind(headers).startswith(_FAMILY) or any(f"ce-{name}" in headers for name in REQUIRED)


async def event_of(request: Request, most: int) -> Event | None:
    """The event that a request carries, of at most so many bytes; None for a request that carries none.

    Raises Problem for one that is no CloudEvent 1.0, or one of several in a batch.
    """
    if not is_event(request.headers):
        return None
    kind = _kind(request.headers)
    if kind.startswith(_FAMILY) and kind != STRUCTURED:
        raise Problem(
            "unsupported-media-type",
            f"send one event as {STRUCTURED}, or its attributes as ce- headers; no batches",
        )
    raw = await raw_body(request, most)
    return _structured(raw) if kind == STRUCTURED else _binary(request.headers, raw)


def _structured(raw: bytes) -> Event:
    said = _parsed(raw, "the event")
    if not isinstance(said, dict):
        raise Problem("invalid", "an event in structured mode is one JSON object")
    form = {
        name: value for name, value in said.items() if value is not None or name == "data"
    }  # null is as good as left out
    data = {name: form.pop(name) for name in ("data", "data_base64") if name in form}
    if {"data", "data_base64"} <= said.keys():
        raise Problem("invalid", "an event has data or data_base64, not both", errors=[_fault("data_base64")])
    if "data_base64" in data and not _is_base64(data["data_base64"]):
        raise Problem("invalid", "data_base64 is no base64", errors=[_fault("data_base64")])
    _check(form)
    return Event(form | data)


def _binary(headers: Mapping[str, str], raw: bytes) -> Event:
    form: dict[str, Any] = {
        name[3:]: _decoded(value) for name, value in headers.items() if name.startswith("ce-")
    }
    kind = headers.get("content-type")
    if kind:
        form["datacontenttype"] = kind
    _check(form)
    return Event(form | (_data(kind, raw) if raw else {}))


def _data(kind: str | None, raw: bytes) -> dict[str, Any]:
    """The data of an event in binary mode, as the JSON format has it: JSON, else text, else base64."""
    if kind is None or _is_json(kind):
        return {"data": _parsed(raw, "the event's data")}
    if kind.lower().startswith("text/"):
        try:
            return {"data": raw.decode()}
        except UnicodeDecodeError:  # in an encoding of its own
            pass
    return {"data_base64": base64.b64encode(raw).decode()}


def _check(attributes: Mapping[str, Any]) -> None:
    """Raises Problem for attributes that no CloudEvent 1.0 has, and for those that it lacks."""
    faults = [*_faults(attributes)]
    if faults:
        name, msg = faults[0]
        more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        raise Problem(
            "invalid",
            f"this is no CloudEvent: {name}: {msg}{more}",
            errors=[_fault(n, m) for n, m in faults[:20]],
        )


def _faults(attributes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in REQUIRED:
        if name not in attributes:
            yield name, "is required"
        elif not isinstance(attributes[name], str) or not attributes[name]:
            yield name, "must be text, and not empty"
        elif name == "specversion" and attributes[name] != VERSION:
            yield name, f'must be "{VERSION}"'
    if len(attributes) > ATTRIBUTES_MAX:
        yield "attributes", f"there may be {ATTRIBUTES_MAX} at most"
    for name, value in attributes.items():
        if not _NAME.fullmatch(name) or name == "data":
            yield name[:64], "the name of an attribute is 1 to 64 of a-z 0-9, and not data"
        elif not isinstance(value, Attribute) or (isinstance(value, int) and value not in _INTEGERS):
            yield name, "must be text, true or false, or a whole number of 32 bits"
        elif isinstance(value, str) and (len(value) > VALUE_MAX or _CONTROL.search(value)):
            yield name, f"may have {VALUE_MAX:,} characters, and none that controls a terminal"
        elif name == "datacontenttype" and not (isinstance(value, str) and _MEDIA_TYPE.fullmatch(value)):
            yield name, "must be a media type"


def _fault(name: str, msg: str = "cannot be") -> dict[str, Any]:
    return fault(msg, "event", name)


def _decoded(value: str) -> str:
    """A header's value as it was meant: out of its quotes, then without its percent signs."""
    try:
        value.encode()
    except UnicodeEncodeError:  # bytes that are no UTF-8, as aiohttp keeps them: as other servers read them
        value = value.encode("utf-8", "surrogateescape").decode("latin-1")
    value = value.strip()
    quoted = _QUOTED.fullmatch(value)
    try:
        return unquote(re.sub(r"\\(.)", r"\1", quoted[1]) if quoted else value, errors="strict")
    except UnicodeDecodeError:
        raise Problem("invalid", "an attribute's percent signs stand for bytes that are no UTF-8") from None


def _parsed(raw: bytes, what: str) -> Any:
    try:
        return from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise Problem("not-json", f"{what} is not JSON: {error}") from None


def _kind(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _is_json(kind: Any) -> bool:
    found = _MEDIA_TYPE.fullmatch(str(kind))
    return found is not None and found[1].lower().endswith(("/json", "+json"))


def _is_base64(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(base64.b64decode(value, validate=True) or not value)
    except (binascii.Error, ValueError):
        return False
