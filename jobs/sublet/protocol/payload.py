"""Payloads: a task's arguments by name, as a JSON object."""

import json
from base64 import urlsafe_b64encode
from typing import Any

from sublet.errors import Invalid

EXAMPLE = """use one JSON object, such as '{"to": "a@example.com"}'"""


def payload_of(value: Any) -> bytes:
    """Encode a job's arguments, a dict or the JSON text of an object, as JSON; inner bytes become base64.
    Raises Invalid otherwise.
    """
    if isinstance(value, (bytes, str)):
        try:
            value = json.loads(value, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise Invalid(_not_json(value, error)) from None
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise Invalid("payload: use one JSON object, the task's arguments by name")
    return encoded("payload", value, ensure_ascii=False, default=_text)


def encoded(subject: str, value: Any, **how: Any) -> bytes:
    """Encode a value as JSON, with options (`how`) of `json.dumps`. Raises Invalid, with `subject` in the
    message.
    """
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False, **how).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(
            f"{subject} cannot be written as JSON: {error}: use text, finite numbers, true, false, null, lists and objects"
        ) from None


def _not_json(text: bytes | str, error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "payload is not UTF-8: save the file as JSON in UTF-8"
    if isinstance(error, RecursionError):
        return "payload is nested too deeply: use fewer levels"
    if not text.strip():
        return f"payload is empty: {EXAMPLE}"
    return f"payload is not JSON: {error}: {EXAMPLE}"


def _text(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        return urlsafe_b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is not a JSON type")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a JSON number")
