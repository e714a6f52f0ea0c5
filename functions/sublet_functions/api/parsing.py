"""What was sent, read: bodies and queries into their models, values into the JSON that is stored. Faults name their place."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, ValidationError

from sublet.errors import Invalid
from sublet_functions.api.request import Request
from sublet_functions.api.response import Problem, faults
from sublet_functions.schemas.query import Words

BODY_MAX = 1024 * 1024
"""Bytes of an ordinary body."""
BATCH_BODY_MAX = 8 * 1024 * 1024
"""Bytes of a body that carries many items."""
FIELDS_MAX = 64
"""Fields that a query may have."""

_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False)

M = TypeVar("M", bound=BaseModel)


async def raw_body(request: Request, most: int) -> bytes:
    """The bytes of a body. Raises Problem for one that is too large, or compressed."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem("unsupported-media-type", "send the body as it is, not compressed")
    raw = await request.read(most) if request.read else request.body
    if len(raw) > most:
        raise Problem("too-large", f"the body has {len(raw):,} bytes: at most {most:,}")
    return raw


async def body(request: Request, model: type[M], most: int) -> M:
    """The body as its model. Raises Problem for one that is too large, of another type, no JSON, or says what cannot be."""
    raw = await raw_body(request, most)
    if not raw and not any(field.is_required() for field in model.model_fields.values()):
        raw = b"{}"
    else:
        _check_type(request)
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise faults(error, "body") from None


def _check_type(request: Request) -> None:
    kind, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    charset = parameters.strip().removeprefix("charset=").strip('"')
    if kind.strip() not in ("application/json", "application/merge-patch+json") or charset not in (
        "",
        "utf-8",
    ):
        raise Problem(
            "unsupported-media-type", "send the body as JSON in UTF-8, with Content-Type: application/json"
        )


def query(request: Request, model: type[M]) -> M:
    """The query as its model. Raises Problem for a name that nobody knows, or a value that cannot be."""
    try:
        given = (
            parse_qs(request.query, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
            if request.query
            else {}
        )
        return model.model_validate({name: _value(model, name, values) for name, values in given.items()})
    except ValidationError as error:
        raise faults(error, "query") from None
    except ValueError:  # too many fields, or bytes that are no text
        raise Problem(
            "invalid", f"the query cannot be read: use at most {FIELDS_MAX} fields, percent-encoded UTF-8"
        ) from None


def check(words: Mapping[str, str]) -> None:
    """Look at the words of a path. Raises Problem for one that can name nothing."""
    try:
        Words.model_validate(words)
    except ValidationError as error:
        raise faults(error, "path") from None


def _value(model: type[BaseModel], name: str, values: list[str]) -> Any:
    field = model.model_fields.get(name)
    many = field is not None and getattr(field.annotation, "__origin__", None) is list
    return values[0] if len(values) == 1 and not many else values


def fault(msg: str, *where: str | int) -> dict[str, Any]:
    """One line of a problem's `errors`."""
    return {"loc": list(where), "msg": msg, "type": "value_error"}


@contextlib.contextmanager
def telling(*where: str | int) -> Iterator[None]:
    """Tell of what the library finds invalid here as a fault at this place."""
    try:
        yield
    except Invalid as error:
        raise Problem("invalid", str(error), errors=[fault(str(error), *where)]) from None


def written(value: Any, most: int, *where: str | int) -> bytes:
    """A value that was sent, as the JSON that is stored. Raises Problem for one that is too large, or for NaN and infinity."""
    try:
        text = _JSON.encode(value).encode()
    except (ValueError, RecursionError) as error:
        raise Problem(
            "invalid", f"{where[-1]} cannot be kept as JSON: {error}", errors=[fault(str(error), *where)]
        ) from None
    if len(text) > most:
        raise Problem(
            "invalid",
            f"{where[-1]} of {len(text):,} bytes: at most {most:,}; keep the data elsewhere and send its place",
            errors=[fault(f"{len(text):,} bytes as JSON, at most {most:,}", *where)],
        )
    return text
