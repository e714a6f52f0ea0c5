"""The check of JSON Schemas agrees with a complete implementation on the schemas of types, and ends on hostile ones."""

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from sublet.tasks.arguments import Arguments
from sublet.tasks.json import schema as json_schema
from sublet.tasks.json.schema import misfits
from sublet.tasks.programs.command import NEEDS


class Colour(Enum):
    RED = "red"
    FOUR = 4


class Item(BaseModel):
    sku: Annotated[str, Field(min_length=2, max_length=4)]
    count: Annotated[int, Field(ge=1, lt=10)] = 1


class Node(BaseModel):
    value: float
    children: list["Node"] = []


@dataclass
class Order:
    id: int
    items: list[Item]
    note: str | None = None


def typed(a: int, b: str = "", c: bool = False, d: float = 0.0) -> None: ...
def nested(order: Order, colour: Colour = Colour.RED, kind: Literal["a", 1, None] = None) -> None: ...
def mapped(m: dict[str, int], s: set[int] = set(), t: tuple[int, str] = (1, "")) -> None: ...  # noqa: B006  # only declared
def recursive(node: Node, at: datetime | None = None, price: Decimal = Decimal(1)) -> None: ...
def free(x, y: Any = None) -> None: ...


SCHEMAS = [Arguments("t", function).schemas()[0] for function in (typed, nested, mapped, recursive, free)]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 12)
    | st.floats(-3, 12)
    | st.sampled_from(["", "a", "ab", "red", "abcde"])
)
NAMES = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "d",
        "order",
        "colour",
        "kind",
        "m",
        "s",
        "t",
        "node",
        "x",
        "id",
        "items",
        "note",
        "sku",
        "count",
        "value",
        "children",
    ]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
EXAMPLES = [
    {"a": 1},
    {"a": 1.0, "b": "x", "c": True, "d": 3},
    {"order": {"id": 1, "items": [{"sku": "ab", "count": 9}], "note": None}, "colour": 4, "kind": "a"},
    {"m": {"x": 1}, "s": [1, 2], "t": [1, "x"]},
    {"node": {"value": 1, "children": [{"value": 2.5}]}, "at": None, "price": "1.5"},
    {"x": [1, {"a": None}], "y": "z"},
]


def spoiled(value):
    """Copies of a value, each with one part changed, added or removed."""
    if isinstance(value, dict):
        for name in value:
            yield {other: part for other, part in value.items() if other != name}
            yield from ({**value, name: part} for part in spoiled(value[name]))
        yield {**value, "surplus": 1}
    elif isinstance(value, list):
        yield [*value, None]
        yield value[:-1]
        yield from (
            [*value[:i], part, *value[i + 1 :]] for i in range(len(value)) for part in spoiled(value[i])
        )
    yield from (
        part
        for part in (None, True, 0, 10, 1.5, "a", "abcdef", [], {})
        if type(part) is not type(value) or part != value
    )


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema["title"])
def test_the_verdict_is_that_of_a_complete_implementation(schema):
    complete = Draft202012Validator(schema)
    for example in EXAMPLES:
        for value in (example, *spoiled(example)):
            assert (not misfits(schema, value)) == complete.is_valid(value), value


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema["title"])
@settings(max_examples=100, deadline=None)
@given(value=st.dictionaries(NAMES, VALUES, max_size=4))
def test_the_verdict_on_any_value_is_that_of_a_complete_implementation(schema, value):
    assert (not misfits(schema, value)) == Draft202012Validator(schema).is_valid(value)


def packed(data: bytes, short: Annotated[bytes, Field(min_length=2, max_length=4)] = b"ab") -> bytes: ...


BYTES = Arguments("packed", packed)


def test_bytes_are_described_as_base64():
    payload, result = BYTES.schemas()
    assert payload["properties"]["data"] == {"title": "Data", "type": "string", "contentEncoding": "base64"}
    assert result == {"type": "string", "contentEncoding": "base64url"}  # the alphabet that is written


def test_the_message_on_text_that_is_not_base64():
    assert misfits(BYTES.schemas()[0], {"data": "not base64!"}) == [(("data",), "use text in base64")]
    assert misfits({"contentEncoding": "quoted-printable"}, "=") == []


@settings(max_examples=500, deadline=None)
@given(
    text=st.text("AQIEgw/+-_=Zz", max_size=9)
    | st.binary(max_size=9).map(lambda raw: base64.b64encode(raw).decode())
)
def test_the_verdict_on_bytes_is_that_of_the_worker(text):
    schema = BYTES.schemas()[0]
    assert (not misfits(schema, {"data": text})) == (not BYTES.misfits(json.dumps({"data": text}).encode()))


@pytest.mark.parametrize("size", range(7))
def test_the_size_of_bytes_is_not_that_of_their_text(size):
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        text = encode(b"\xff" * size).decode()
        for written in (text, text.rstrip("=")):
            if 2 <= size <= 4:
                assert not misfits(BYTES.schemas()[0], {"data": "", "short": written})
    assert misfits(BYTES.schemas()[0], {"data": "", "short": base64.b64encode(b"1234567").decode()})


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ({}, ("order",), "is missing"),
        ({"order": {"id": "1", "items": []}}, ("order", "id"), "use integer, not string"),
        ({"order": {"id": 1, "items": [{"sku": "a"}]}}, ("order", "items", 0, "sku"), "use 2 characters or more"),
        ({"order": {"id": 1, "items": [{"sku": "ab", "count": 10}]}}, ("order", "items", 0, "count"), "use a number below 10"),
        ({"order": {"id": 1, "items": [], "note": 1}}, ("order", "note"), "use string or null, not integer"),
        ({"order": {"id": 1, "items": []}, "ordr": 1}, ("ordr",), "is unknown: use order, colour, kind"),
        ({"order": {"id": 1, "items": []}, "colour": "blue"}, ("colour",), "use one of red, 4"),
    ],
)  # fmt: skip
def test_a_misfit_has_its_place_and_the_rule(value, path, message):
    assert misfits(SCHEMAS[1], value) == [(path, message)]


COMMANDS = [
    ({}, (), "needs argv or shell"),
    ({"argv": None}, ("argv",), "use array, not null"),
    ({"argv": []}, ("argv",), "use 1 items or more"),
    ({"argv": [""]}, ("argv", 0), "use 1 characters or more"),
    ({"shell": ""}, ("shell",), "use 1 characters or more"),
    ({"argv": ["true"], "shell": "true"}, (), "shell: use null, not string; or argv: use null, not array"),
]


@pytest.mark.parametrize(("value", "path", "message"), COMMANDS)
def test_a_misfit_names_what_every_choice_lacks_or_the_choice_that_is_meant(value, path, message):
    assert misfits(NEEDS, value) == [(path, message)]


HOSTILE = [
    '{"$ref": "#"}', '{"allOf": [{"$ref": "#"}, {"$ref": "#"}]}', '{"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}',
    '{"$ref": "https://127.0.0.1:1/schema"}', '{"$ref": "#/a/b"}', '{"$ref": 5}', '{"type": [[]]}', '{"type": {}}', '{"type": "other"}',
    '{"required": [[1], 2]}', '{"required": 5}', '{"properties": {"a": []}}', '{"properties": 5}', '{"enum": {"a": 1}}', '{"enum": [{}]}',
    '{"minLength": "x", "maxItems": null, "minimum": "y"}', '{"pattern": "(a+)+$"}', '{"prefixItems": 5, "items": 5}',
    '{"minimum": 1e400, "maximum": -1e400}', '{"additionalProperties": 5}', '{"anyOf": [5, null]}', "[]", "5", "null", '"text"',
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("value", [{"a": "a" * 60 + "!", "b": [1, [2]]}, [1], "a" * 60, 1e308, None])
def test_a_hostile_schema_neither_raises_nor_runs_for_long(text, value, monkeypatch):
    schema, steps = json.loads(text), []
    of = json_schema._Check.of
    monkeypatch.setattr(json_schema._Check, "of", lambda self, *args: steps.append(1) or of(self, *args))
    misfits(schema, value)
    assert len(steps) <= json_schema.STEPS + 1


def test_a_value_beyond_the_limit_is_not_refused():
    schema = {"type": "array", "items": {"type": "integer"}}
    assert misfits(schema, [1, "x"])
    assert misfits(schema, [1] * json_schema.STEPS + ["x"]) == []
