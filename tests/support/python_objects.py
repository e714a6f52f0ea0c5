"""Read public objects from the source: signatures, docstrings, fields with defaults and meanings."""

import ast
import dataclasses
import enum
import importlib
import inspect
import re
import textwrap
from functools import cache
from typing import NamedTuple

from pydantic import BaseModel

from tests.support.python_meanings import COMMON, MEANINGS, RANGES
from tests.support.python_pages import INTERNAL, NOT_CALLED, SHOWN_ONLY, SPECIAL, TYPES

SHARED = ("Context", "JobSummary", "Summary")
"""Base classes with an entry of their own: the entries of their subclasses do not repeat it."""
WIDTH = 88
"""Longest signature on one line."""


class Parameter(NamedTuple):
    """A parameter as the page shows it."""

    name: str
    meaning: str


class Callee(NamedTuple):
    """A function, method or constructor: its signature and docstring."""

    name: str
    names: tuple[str, ...]
    """All parameters."""
    signature: str
    doc: str
    parameters: tuple[Parameter, ...] = ()


class Field(NamedTuple):
    """A field, property or attribute of a class; an empty default: none."""

    name: str
    type: str
    default: str
    meaning: str


class Described(NamedTuple):
    """A public object."""

    name: str
    module: str
    kind: str
    bases: tuple[str, ...]
    doc: str
    constructor: Callee | None
    fields: tuple[Field, ...]
    methods: tuple[Callee, ...]


def load(path):
    """Return the object at `module:name`."""
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)


@cache
def describe(path):
    """Describe the object at `module:name`."""
    module, name = path.split(":")
    found = load(path)
    if inspect.isclass(found):
        return _class(found, module)
    if inspect.isroutine(found):
        callee = _callee(name, found)
        return Described(name, module, "function", (), callee.doc, callee, (), ())
    return Described(name, module, "object", (type(found).__name__,), "", None, (), ())


def _parsed(found):
    return ast.parse(textwrap.dedent(inspect.getsource(found))).body[0]


def _resolved(node):
    is_alias = isinstance(node, ast.Name) and node.id in TYPES
    return ast.parse(TYPES[node.id], mode="eval").body if is_alias else node


def type_text(node):
    """Return an annotation as a reader sees it: without quotes and validators."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    for part in ast.walk(node):
        for field, value in ast.iter_fields(part):
            if isinstance(value, ast.Subscript) and ast.unparse(value.value) == "Annotated":
                value = value.slice.elts[0]
                setattr(part, field, value)
            if isinstance(value, ast.Name) and value.id in TYPES:
                setattr(part, field, ast.parse(TYPES[value.id], mode="eval").body)
            if isinstance(value, list):
                value[:] = [_resolved(one) for one in value]
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
        node = node.slice.elts[0]
    if isinstance(node, ast.Name) and node.id in TYPES:
        return TYPES[node.id]
    return ast.unparse(node).replace("typing.", "")


def value_text(value):
    """Return a default as code that a reader can write."""
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, (str, int, float, bool, type(None), tuple, dict)) and not hasattr(value, "_fields"):
        return repr(value)
    if inspect.isfunction(value):
        return value.__name__ if value.__name__ != "<lambda>" else "…"
    return f"{type(value).__name__}()"


def _defaults(function):
    return {
        name: value_text(one.default)
        for name, one in inspect.signature(function).parameters.items()
        if one.default is not inspect.Parameter.empty
    }


def _arguments(node, defaults):
    args, shown = node.args, []
    positional = [*args.posonlyargs, *args.args]
    for number, arg in enumerate(positional):
        if arg.arg not in ("self", "cls"):
            shown.append(_argument(arg, defaults))
        if args.posonlyargs and number == len(args.posonlyargs) - 1:
            shown.append("/")
    if args.vararg:
        shown.append(f"*{_argument(args.vararg, {})}")
    elif args.kwonlyargs:
        shown.append("*")
    shown += [_argument(arg, defaults) for arg in args.kwonlyargs]
    if args.kwarg:
        shown.append(f"**{_argument(args.kwarg, {})}")
    return shown


def _argument(arg, defaults):
    kind = type_text(arg.annotation)
    typed = f": {kind}" if kind and not kind.startswith("P.") else ""
    default = f" = {defaults[arg.arg]}" if arg.arg in defaults else ""
    return arg.arg + typed + default


def _signature(name, function, is_constructor=False):
    node = _parsed(inspect.unwrap(function))
    shown = _arguments(node, _defaults(function))
    is_async = isinstance(node, ast.AsyncFunctionDef)
    is_awaited = is_async and not inspect.isasyncgenfunction(function)
    start = "async " if is_awaited or (is_async and _is_manager(node)) else ""
    start += "with " if _is_manager(node) else "def "
    result = "" if is_constructor else f" -> {type_text(node.returns)}"
    head = name if is_constructor else start + name
    line = f"{head}({', '.join(shown)}){result}"
    if len(line) <= WIDTH:
        return line
    return f"{head}(\n" + "".join(f"    {one},\n" for one in shown) + f"){result}"


def _is_manager(node):
    return any("contextmanager" in ast.unparse(one) for one in node.decorator_list)


def speaks_of(doc, name):
    """Whether a docstring speaks of a parameter, or refers to another one."""
    return bool(re.search(rf"\b{name}\b|^(As|Like|Submit a job as) `", doc))


def _parameters(full, function, doc):
    """Return the parameters with a meaning of their own; the docstring explains the others."""
    found = []
    for name in inspect.signature(function).parameters:
        meaning = MEANINGS.get(f"{full}.{name}") or ("" if speaks_of(doc, name) else COMMON.get(name))
        if meaning and name != "self":
            found.append(Parameter(name, meaning))
    return tuple(found)


def _callee(name, function, *, owner="", is_constructor=False, doc=None):
    doc = inspect.getdoc(function) or "" if doc is None else doc
    full = f"{owner}.{name}" if owner and not is_constructor else name
    names = tuple(one for one in inspect.signature(function).parameters if one not in ("self", "cls"))
    return Callee(
        name, names, _signature(name, function, is_constructor), doc, _parameters(full, function, doc)
    )


def _class(kind, module):
    name = kind.__name__
    fields, methods = {}, {}
    bases = [base for base in kind.__mro__[1:] if base.__name__ in SHARED]
    for part in reversed(kind.__mro__):
        if part.__module__.startswith("sublet") and part not in bases:
            _read_members(name, part, fields, methods)
    doc = inspect.getdoc(kind) or ""
    constructor = _constructor(kind, name, doc)
    names = tuple(base.__name__ for base in bases)
    return Described(
        name, module, "class", names, doc, constructor, tuple(fields.values()), tuple(methods.values())
    )


def _constructor(kind, name, doc):
    written = vars(kind).get("__init__")
    if name in NOT_CALLED or dataclasses.is_dataclass(kind) or not inspect.isfunction(written):
        return None
    own = inspect.getdoc(written) if written.__doc__ else ""
    callee = _callee(name, written, is_constructor=True, doc=f"{doc} {own}")
    return callee._replace(doc=own)


def _read_members(name, part, fields, methods):
    node = _parsed(part)
    for child, after in zip(node.body, [*node.body[1:], None], strict=True):
        _read_field(name, part, child, after, fields)
        if isinstance(child, ast.FunctionDef) and child.name == "__init__":
            for line, next_line in zip(child.body, [*child.body[1:], None], strict=True):
                _read_attribute(name, line, next_line, fields)
    for member, value in vars(part).items():
        if not is_public(name, member):
            continue
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        if isinstance(value, property):
            kind = type_text(_parsed(value.fget).returns)
            fields[member] = Field(member, kind, "", inspect.getdoc(value.fget) or "")
        elif inspect.isfunction(function):
            methods[member] = _callee(member, function, owner=name)


def is_public(name, member):
    """Whether a member of a class is for users."""
    shown = SHOWN_ONLY.get(name)
    return f"{name}.{member}" in SPECIAL or (
        not member.startswith("_")
        and f"{name}.{member}" not in INTERNAL
        and (shown is None or member in shown)
    )


def _doc_after(after):
    value = after.value if isinstance(after, ast.Expr) else None
    return (
        inspect.cleandoc(value.value)
        if isinstance(value, ast.Constant) and isinstance(value.value, str)
        else ""
    )


def _read_field(name, part, child, after, fields):
    if isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Name):
        member, doc = child.targets[0].id, _doc_after(after)
        value = child.value.value if isinstance(child.value, ast.Constant) else None
        if is_public(name, member) and (doc or issubclass(part, enum.Enum)):
            fields[member] = Field(
                member,
                repr(value) if issubclass(part, enum.Enum) else type(value).__name__,
                "",
                _meaning(name, member, doc),
            )
    if not isinstance(child, ast.AnnAssign) or not isinstance(child.target, ast.Name):
        return
    member = child.target.id
    if not is_public(name, member):
        return
    default, doc = "", _doc_after(after)
    if issubclass(part, BaseModel):
        info = part.model_fields[member]
        default = "" if info.is_required() else value_text(info.default)
        doc = f"{info.description or doc} {_range(part, member)}".strip()
    elif child.value is not None:
        default = value_text(_runtime_default(part, member))
    fields[member] = Field(member, type_text(child.annotation), default, _meaning(name, member, doc))


def _range(part, member):
    schema = part.model_json_schema()["properties"][member]
    for one in (schema, *schema.get("anyOf", ())):
        if "ge" in one:
            return range_text(one["ge"], one["le"])
    return ""


def range_text(low, high, unit=""):
    """Return a range as a sentence."""
    return f"From {low:,.10g} to {high:,.10g}{unit}."


def _runtime_default(part, member):
    if dataclasses.is_dataclass(part):
        one = next(field for field in dataclasses.fields(part) if field.name == member)
        return one.default
    return getattr(part, "_field_defaults", {}).get(member, getattr(part, member, None))


def _read_attribute(name, line, after, fields):
    doc = _doc_after(after)
    kind = type_text(line.annotation) if isinstance(line, ast.AnnAssign) else ""
    target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
    for one in target.elts if isinstance(target, ast.Tuple) else [target]:
        if isinstance(one, ast.Attribute) and is_public(name, one.attr):
            meaning = _meaning(name, one.attr, doc)
            if meaning:
                fields[one.attr] = Field(one.attr, kind, "", meaning)


def _meaning(name, member, doc):
    key = f"{name}.{member}"
    limits = range_text(*RANGES[key]) if key in RANGES else ""
    return " ".join(filter(None, (doc, MEANINGS.get(key, ""), limits)))
