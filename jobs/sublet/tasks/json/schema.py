"""Check JSON values against the part of JSON Schema that describes types.

No library is used: a schema may come from any worker, and libraries load remote references and run endless
patterns. This check ignores unknown keywords: the worker checks again.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

STEPS = 5_000
MISSING = "is missing"
SHOWN = 12

Path = tuple[str | int, ...]
_TYPES: dict[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value % 1 == 0,
    "number": lambda value: _is_number(value),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "minimum": (lambda value, bound: value >= bound, "at least"),
    "maximum": (lambda value, bound: value <= bound, "at most"),
    "exclusiveMinimum": (lambda value, bound: value > bound, "above"),
    "exclusiveMaximum": (lambda value, bound: value < bound, "below"),
}
_LENGTHS = (("minLength", "maxLength", str, "characters"), ("minItems", "maxItems", list, "items"))
_ENCODING = "contentEncoding"
_C = "[A-Za-z0-9+/]"
_BASE64 = re.compile(f"(?:{_C}{{4}})*(?:{_C}[AQgw]={{0,2}}|{_C}{{2}}[AEIMQUYcgkosw048]=?)?")
_TO_BASE64 = str.maketrans("-_", "+/")
_VALUES = frozenset({"const", "enum", _ENCODING, *_BOUNDS, *(word for one in _LENGTHS for word in one[:2])})
_CHOICES = frozenset({"allOf", "anyOf", "oneOf"})
_NUMBERS = (int, float)


class Misfit(NamedTuple):
    """A part of a value that does not fit."""

    path: Path
    """Names and positions that lead from the value to the part, or to where a missing part should be."""
    message: str


class _LimitReached(Exception):
    pass


def misfits(schema: Any, value: Any) -> list[Misfit]:
    """Return the parts of a value that do not fit a schema; empty if it fits, or if the check needs over
    5,000 steps.
    """
    try:
        return list(_Check(schema).of(schema, value, ()))
    except (_LimitReached, RecursionError):
        return []


class _Check:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = STEPS

    def of(self, schema: Any, value: Any, path: Path) -> Iterator[Misfit]:
        self._left -= 1
        if self._left < 0:
            raise _LimitReached
        if schema is False:
            yield Misfit(path, "is not allowed here")
        if not isinstance(schema, dict):
            return
        if "$ref" in schema:
            yield from self.of(self._target(schema["$ref"]), value, path)
        if wrong := _wrong_value(schema, value):
            yield Misfit(path, wrong)
            return
        if not _CHOICES.isdisjoint(schema):
            for part in _list(schema.get("allOf")):
                yield from self.of(part, value, path)
            for word in ("anyOf", "oneOf"):
                if choices := _list(schema.get(word)):
                    yield from self._any(choices, value, path)
        if isinstance(value, dict):
            yield from self._object(schema, value, path)
        elif isinstance(value, list):
            yield from self._array(schema, value, path)

    def _target(self, ref: Any) -> Any:
        parts = ref.split("/") if isinstance(ref, str) else [""]
        if parts[0] != "#":
            return True
        found = self._root
        for part in parts[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            found = found.get(name, True) if isinstance(found, dict) else True
        return found

    def _any(self, choices: Sequence[Any], value: Any, path: Path) -> Iterator[Misfit]:
        found = [list(self.of(choice, value, path)) for choice in choices]
        lacking = [
            [each.path[-1] for each in own if each.message == MISSING and each.path[:-1] == path]
            for own in found
        ]
        whole = [own for own, names in zip(found, lacking, strict=True) if not names]
        if all(lacking):
            yield Misfit(path, f"needs {' or '.join(dict.fromkeys(str(names[0]) for names in lacking))}")
        elif all(found) and len(whole) == 1 and isinstance(value, dict):
            yield from whole[0]
        elif all(found):
            inner = [each for each in found if each[0].path != path]
            rest = f", not {_kind(value)}"
            texts = [each[0].message.removeprefix("use ").removesuffix(rest) for each in found]
            message = f"use {' or '.join(dict.fromkeys(texts))}{rest}"
            if isinstance(value, dict) and len(inner) == len(found):
                message = "; or ".join(f"{each[0].path[len(path)]}: {each[0].message}" for each in inner)
            yield from inner[0] if len(inner) == 1 else [Misfit(path, message)]

    def _object(self, schema: dict[str, Any], value: dict[str, Any], path: Path) -> Iterator[Misfit]:
        properties = schema.get("properties")
        known: Mapping[str, Any] = properties if isinstance(properties, dict) else {}
        others = schema.get("additionalProperties", True)
        for name in _list(schema.get("required")):
            if isinstance(name, str) and name not in value:
                yield Misfit((*path, name), MISSING)
        for name, item in value.items():
            if name not in known and others is False and "patternProperties" not in schema:
                yield Misfit((*path, name), f"is unknown: use {_join(known)}" if known else "is unknown")
            else:
                yield from self.of(known.get(name, others), item, (*path, name))

    def _array(self, schema: dict[str, Any], value: list[Any], path: Path) -> Iterator[Misfit]:
        first = _list(schema.get("prefixItems"))
        for i, item in enumerate(value):
            part = first[i] if i < len(first) else schema.get("items", True)
            if part is not True:
                yield from self.of(part, item, (*path, i))


def _wrong_value(schema: dict[str, Any], value: Any) -> str:
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else _list(kinds)
    if kinds and not any(_TYPES.get(kind, _anything)(value) for kind in kinds if isinstance(kind, str)):
        return f"use {_join(kinds, ' or ')}, not {_kind(value)}"
    if _VALUES.isdisjoint(schema):
        return ""
    if "const" in schema and not _equal(value, schema["const"]):
        return f"use {schema['const']!r}"
    choices = _list(schema.get("enum"))
    if choices and not any(_equal(value, choice) for choice in choices):
        return f"use one of {_join(choices)}"
    if _is_number(value):
        for word, (fits, text) in _BOUNDS.items():
            bound: Any = schema.get(word)
            if _is_number(bound) and not fits(value, bound):
                return f"use a number {text} {bound}"
    if _ENCODING in schema and isinstance(value, str) and not _is_encoded(schema[_ENCODING], value):
        return f"use text in {schema[_ENCODING]}"
    for least, most, kind, unit in _LENGTHS:
        if isinstance(value, kind):
            if _is_number(schema.get(least)) and len(value) < schema[least]:
                return f"use {schema[least]} {unit} or more"
            if _is_number(schema.get(most)) and len(value) > schema[most]:
                return f"use at most {schema[most]} {unit}"
    return ""


def _is_encoded(encoding: Any, text: str) -> bool:
    if encoding not in ("base64", "base64url"):
        return True
    is_mixed = ("-" in text or "_" in text) and ("+" in text or "/" in text)
    return not is_mixed and _BASE64.fullmatch(text.translate(_TO_BASE64)) is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def _equal(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) is isinstance(other, bool)


def _anything(value: Any) -> bool:
    return True


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _kind(value: Any) -> str:
    return next(kind for kind, fits in _TYPES.items() if fits(value))


def _join(words: Any, mark: str = ", ") -> str:
    shown = [str(word)[:40] for word in words]
    return mark.join(shown[:SHOWN]) + (f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")
