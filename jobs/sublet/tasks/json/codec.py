"""JSON of one type as pydantic writes it, but with `bytes` as base64url, and without NaN."""

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import PydanticSerializationError, SchemaSerializer, SchemaValidator

from sublet.errors import Invalid, fault_words

BASE64: Any = {"ser_json_bytes": "base64", "val_json_bytes": "base64"}
SHOWN: Any = {"ser_json_inf_nan": "constants"}
"""Makes pydantic write NaN and Infinity, not null, unless a model's config differs."""
_UNEXPECTED = re.compile(
    r"Expected `([^`]+)`[^\[]*\[(?:field_name='(\w+)', )?input_value=.*, input_type=(\w+)\]", re.DOTALL
)
SHOWN_ERRORS = 3
_NO_NUMBER = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?Infinity|NaN)')
_WITH_CONFIG = ("model", "dataclass", "typed-dict")
_OPAQUE = ("config", "cls", "default", "expected", "function", "members", "metadata")
_KINDS = dict.fromkeys(("int", "float", "bool"), "number")
_KINDS |= dict.fromkeys(("list", "tuple", "set", "frozenset"), "array")
_KINDS |= dict.fromkeys(("dict", *_WITH_CONFIG), "object")
_INSIDE = ("schema", "json_schema", "lax_schema", "items_schema", "keys_schema", "values_schema")


class JsonCodec:
    """Checks values of one type, writes them as JSON and reads them. Raises Invalid, with `subject` in the
    message, for a type that cannot be JSON.
    """

    def __init__(self, hint: Any, subject: str) -> None:
        self._subject = subject
        try:
            self.adapter: TypeAdapter[Any] = TypeAdapter(hint)
        except PydanticUserError as error:
            raise Invalid(f"{subject}: {_reason(error)}") from None
        if self.adapter.pydantic_complete:  # else an annotation names a class that is not defined yet
            _check(self.adapter.core_schema, subject)

    # Not TypeAdapter's methods, which cost as much as the work itself.
    @cached_property
    def check(self) -> Callable[[Any], Any]:
        """A function that checks and converts a value. It raises pydantic's ValidationError."""
        return self._ready().validator.validate_python

    @cached_property
    def load(self) -> Callable[[bytes], Any]:
        """A function that reads a value from JSON. It raises pydantic's ValidationError."""
        return SchemaValidator(self._schema, BASE64, _use_prebuilt=False).validate_json

    @cached_property
    def dump(self) -> Callable[..., bytes]:
        """Writes a value as JSON. Raises PydanticSerializationError, also for NaN and Infinity."""
        write = self.write

        def dump(value: Any, **how: Any) -> bytes:
            text = write(value, **how)
            if b"NaN" in text or b"Infinity" in text:
                refuse_constants(text)
            return text

        return dump

    @cached_property
    def write(self) -> Callable[..., bytes]:
        """Like `dump`, but allows NaN and Infinity."""
        return SchemaSerializer(self._schema, BASE64 | SHOWN, _use_prebuilt=False).to_json

    @cached_property
    def _schema(self) -> Any:
        schema = self._ready().core_schema
        _check(schema, self._subject)
        return _with_base64(schema)

    def json_schema(self, mode: JsonSchemaMode) -> dict[str, Any] | None:
        """Return the JSON Schema of the values that are read (`validation`) or written; None if none can be
        made.
        """
        try:
            return _Base64Schema().generate(self._schema, mode)
        except (PydanticUserError, Invalid):
            return None

    def _ready(self) -> TypeAdapter[Any]:
        try:
            self.adapter.rebuild()
        except (PydanticUserError, NameError) as error:
            raise Invalid(f"{self._subject}: {_reason(error)}") from None
        return self.adapter


class _Base64Schema(GenerateJsonSchema):
    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        """Return the schema of `bytes`: base64 text if read (in either alphabet), base64url if written."""
        found: dict[str, Any] = {
            "type": "string",
            "contentEncoding": "base64" if self.mode == "validation" else "base64url",
        }
        least, most = schema.get("min_length"), schema.get("max_length")
        if least is not None:
            found["minLength"] = -(-4 * least // 3)  # without padding
        if most is not None:
            found["maxLength"] = -(-most // 3) * 4
        return found


def _with_base64(node: Any) -> Any:
    if isinstance(node, dict):
        is_schema = isinstance(node.get("type"), str)
        copied = {
            key: value if is_schema and key in _OPAQUE else _with_base64(value) for key, value in node.items()
        }
        return (
            copied | {"config": SHOWN | node.get("config", {}) | BASE64}
            if node.get("type") in _WITH_CONFIG
            else copied
        )
    if isinstance(node, (list, tuple)):
        return type(node)(map(_with_base64, node))
    return node


def validation_faults(error: ValidationError) -> str:
    """Return the first faults of a failed validation, without the values."""
    found = error.errors(include_url=False, include_input=False)
    words = [
        ": ".join(filter(None, (".".join(map(str, each["loc"])), fault_words(each))))
        for each in found[:SHOWN_ERRORS]
    ]
    return "; ".join(words) + (
        f" (and {len(found) - SHOWN_ERRORS} more)" if len(found) > SHOWN_ERRORS else ""
    )


def mismatch(error: PydanticSerializationError) -> str:
    """Return what is wrong with a returned value, without the value."""
    found = _UNEXPECTED.search(str(error))
    if found is None:
        return f"that cannot be written as JSON: {error}"
    expected, field, kind = found.groups()
    where = f" in its field {field!r}" if field else ""
    encode = ": encode the text, as in text.encode()" if (expected, kind) == ("bytes", "str") else ""
    return f"that does not match its return annotation: {expected} is expected{where}, not {kind}{encode}"


def refuse_constants(text: bytes) -> None:
    """Raise PydanticSerializationError if a JSON text has NaN or Infinity outside of strings."""
    for found in _NO_NUMBER.finditer(text):
        if found[1]:
            raise PydanticSerializationError(f"{found[1].decode()} is not a JSON number: use None, or text")


def _check(schema: Any, subject: str) -> None:
    named = {node["ref"]: node for node in _nodes(schema) if "ref" in node}
    for node in _nodes(schema):
        if node["type"] == "union" and _is_ambiguous(node, named):
            raise Invalid(
                f"{subject}: bytes beside a type that looks the same in JSON (base64 is text): "
                "use one of them, or a dataclass with a field for each"
            )
        values = node.get("expected", ()) if node["type"] == "literal" else ()
        values = [one.value for one in node["members"]] if node["type"] == "enum" else values
        if any(isinstance(value, bytes) for value in values):
            raise Invalid(
                f"{subject}: a Literal or an Enum of bytes cannot be read from JSON: use text or numbers"
            )


def _nodes(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        is_schema = isinstance(node.get("type"), str)
        if is_schema:
            yield node
        for key, value in node.items():
            if not (is_schema and key in _OPAQUE):
                yield from _nodes(value)
    elif isinstance(node, (list, tuple)):
        for each in node:
            yield from _nodes(each)


def _is_ambiguous(union: dict[str, Any], named: dict[str, Any]) -> bool:
    choices = [choice[0] if isinstance(choice, tuple) else choice for choice in union["choices"]]
    kinds = [_kind(choice, named) for choice in choices]
    if union.get("mode") == "left_to_right":  # a number may be read from text, and goes first
        kinds = ["text" if kind == "number" else kind for kind in kinds]
    return any(
        kinds.count(kind) > 1 and _holds_bytes(choice, named, set())
        for choice, kind in zip(choices, kinds, strict=True)
    )


def _kind(schema: dict[str, Any], named: dict[str, Any]) -> str:
    for _ in range(50):  # wrappers, such as validators
        kind = schema["type"]
        inner = named.get(schema["schema_ref"]) if kind == "definition-ref" else schema.get("schema")
        if kind in _KINDS or kind == "none" or not isinstance(inner, dict):
            break
        schema = inner
    return "none" if kind == "none" else _KINDS.get(kind, "text")


def _holds_bytes(schema: Any, named: dict[str, Any], seen: set[str]) -> bool:
    if isinstance(schema, dict) and not isinstance(
        schema.get("type"), str
    ):  # the choices of a tagged union, by tag
        schema = list(schema.values())
    if isinstance(schema, (list, tuple)):
        return any(_holds_bytes(each, named, seen) for each in schema)
    if not isinstance(schema, dict) or schema["type"] in _WITH_CONFIG:
        return False
    if schema["type"] == "definition-ref":
        ref = schema["schema_ref"]
        return ref not in seen and _holds_bytes(named.get(ref), named, seen | {ref})
    inner = [schema.get(key) for key in (*_INSIDE, "choices", "steps")]
    return schema["type"] == "bytes" or any(_holds_bytes(each, named, seen) for each in inner)


def _reason(error: Exception) -> str:
    words = str(error).partition("\n")[0]
    if isinstance(error, NameError):
        return f"an annotation cannot be read: {words}: import or define the class in the task's module"
    if isinstance(error, PydanticSchemaGenerationError):
        unknown = (
            str(error).removeprefix("Unable to generate pydantic-core schema for ").partition(". Set ")[0]
        )
        return (
            f"{unknown} cannot be written as JSON: use built-in types (bytes, not bytearray), a dataclass "
            "or a pydantic model, or pass an id or a path"
        )
    return words
