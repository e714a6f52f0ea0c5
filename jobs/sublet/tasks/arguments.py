"""Arguments and results of a task as JSON, validated by the function's annotations."""

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, NotRequired, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_jsonable_python
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from sublet.context import Context
from sublet.errors import Invalid, fault_words
from sublet.large_payloads.storage import WAYS_OUT
from sublet.options import PAYLOAD_MAX
from sublet.tasks.json.codec import JsonCodec, mismatch, refuse_constants, validation_faults
from sublet.tasks.json.schema import Misfit, Path
from sublet.then import Then

PLAIN = (int, str, bool, float, bytes)
"""Result types: a value of exactly this type is written without a check."""

UNTYPED = (Any, object)
BYTES = frozenset((bytes, bytearray, memoryview))


class InvalidResult(Invalid):
    """The result of a task or step does not match its annotation, or cannot be stored: the job is dead."""


class Arguments:
    """Converts a task's arguments and results to JSON and back, by its function's annotations. Raises Invalid
    for parameters or types that a job cannot have.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        hints = _hints(name, function)
        parameters = list(inspect.signature(function).parameters.values())
        self.takes_context = bool(parameters) and hints.get(parameters[0].name) is Context
        own = parameters[1:] if self.takes_context else parameters
        for parameter in own:
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise Invalid(
                    f"task {name}: parameter {parameter.name!r}: a job's arguments are passed by name: "
                    "use no `*args`, `**kwargs` or parameters before `/`"
                )
            if hints.get(parameter.name) is Context:
                raise Invalid(
                    f"task {name}: parameter {parameter.name!r} is the Context: make it the first parameter"
                )
        self._signature = inspect.Signature(own)
        self._names = {parameter.name for parameter in own}
        self._required = {parameter.name for parameter in own if parameter.default is parameter.empty}
        self._defaults = {
            parameter.name: parameter.default for parameter in own if parameter.name not in self._required
        }
        self._positional = [
            parameter.name for parameter in own if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        self._all_by_position = len(own) if len(own) == len(self._positional) else -1
        self._codec = self._codec_of(own, hints)
        self._untyped = [parameter.name for parameter in own if hints.get(parameter.name, Any) in UNTYPED]
        self._more: dict[str, Any] = getattr(function, "payload_schema", {})
        self._result_type = _result_type(hints.get("return", Any))
        self._result = JsonCodec(self._result_type, f"task {name}: the return annotation")
        self._may_be_none = _fits(self._result.adapter, None)

    def _codec_of(self, parameters: list[inspect.Parameter], hints: dict[str, Any]) -> JsonCodec:
        try:
            return JsonCodec(_typed_dict(self.name, parameters, hints), f"task {self.name}")
        except Invalid:
            for parameter in parameters:
                JsonCodec(hints.get(parameter.name, Any), f"task {self.name}: parameter {parameter.name!r}")
            raise

    def schemas(self) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return the JSON Schemas of the task's arguments and of its result; None instead of one that cannot
        be made.
        """
        payload = self._codec.json_schema("validation")
        properties = (payload or {}).get("properties", {})
        for name, default in self._defaults.items() if payload else ():
            with suppress(PydanticSerializationError):
                properties[name].setdefault("default", to_jsonable_python(default, bytes_mode="base64"))
        return payload and payload | self._more, self._result.json_schema("serialization")

    def dump(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Write the arguments of a call as JSON. Raises Invalid if they do not match, or cannot be JSON."""
        try:
            bound = self._bind(args, kwargs)
            if self._untyped and not BYTES.isdisjoint(map(type, bound.values())):
                self._refuse_bytes(bound)
            payload = self._codec.write(self._codec.check(bound))
            if b"NaN" in payload or b"Infinity" in payload:  # a submit passes through fewer files
                refuse_constants(payload)
            return payload
        except TypeError as error:
            raise Invalid(f"task {self.name}: {error}") from None
        except ValidationError as error:
            views = {name: bytes(value) for name, value in bound.items() if type(value) is memoryview}
            if views:
                return self.dump((), bound | views)
            raise Invalid(f"task {self.name}: {validation_faults(error)}") from None
        except PydanticSerializationError as error:
            where = next(filter(self._cannot_write, self._codec.check(bound).items()), ("an argument",))[0]
            raise Invalid(f"task {self.name}: {where} cannot be written as JSON ({error})") from None

    def _refuse_bytes(self, arguments: dict[str, Any]) -> None:
        for name in self._untyped:
            if type(arguments.get(name)) in BYTES:
                raise Invalid(
                    f"task {self.name}: {name}: without an annotation for them, bytes arrive as text: declare `{name}: bytes`"
                )

    def _cannot_write(self, argument: tuple[str, Any]) -> bool:
        try:
            self._codec.dump(dict([argument]), warnings=False)
        except PydanticSerializationError:
            return True
        return False

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if not kwargs and len(args) == self._all_by_position:
            return dict(zip(self._positional, args))  # noqa: B905  # as many
        bound = dict(zip(self._positional, args)) | kwargs  # noqa: B905  # with surplus or repeated arguments it is shorter
        if len(bound) == len(args) + len(kwargs) and self._required <= bound.keys() <= self._names:
            return bound
        return self._signature.bind(*args, **kwargs).arguments

    def named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, with defaults. Raises Invalid if they do not match."""
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise Invalid(f"task {self.name}: {error}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def load(self, payload: bytes) -> dict[str, Any]:
        """Read arguments, by name, from JSON, without defaults. Raises Invalid if they do not match."""
        try:
            arguments: dict[str, Any] = self._codec.load(payload or b"{}")
        except ValidationError as error:
            raise Invalid(validation_faults(error)) from None
        return arguments

    def misfits(self, payload: bytes) -> list[Misfit]:
        """Return the arguments in a payload that are missing, unknown or invalid; none at all if a type's own
        validator fails with an exception that is not pydantic's.
        """
        try:
            self._codec.load(payload or b"{}")
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            value = from_json(payload or b"{}")
            return [
                Misfit(path_in(value, each["loc"], is_missing=each["type"] == "missing"), fault_words(each))
                for each in found
            ]
        except Exception:  # noqa: BLE001  # a type's own validator may raise anything
            pass
        return []

    def dump_result(self, value: Any, most: float = PAYLOAD_MAX) -> bytes:
        """Write a task's result as JSON. Raises InvalidResult if it does not match the annotation, cannot be
        JSON, or has over `most` bytes.
        """
        # pydantic writes None for any type without a warning.
        if value is None and not self._may_be_none:
            raise InvalidResult(
                f"task {self.name} returned None (or a middleware swallowed its exception), which its return annotation does not allow: change one of them"
            )
        try:
            if type(value) is self._result_type and self._result_type in PLAIN:
                result = self._result.dump(value)
            else:
                if type(value) in BYTES and self._result_type in UNTYPED:
                    raise InvalidResult(
                        f"task {self.name} returned bytes without a return annotation for them, so they would arrive as text: "
                        "declare `-> bytes`"
                    )
                result = self._dump_checked(value)
        except PydanticSerializationError as error:
            raise InvalidResult(f"task {self.name} returned a value {mismatch(error)}") from None
        if len(result) > most:
            raise InvalidResult(
                f"task {self.name} returned {len(result):,} bytes (JSON): at most {PAYLOAD_MAX:,} are allowed: {WAYS_OUT}"
            )
        return result

    def _dump_checked(self, value: Any) -> bytes:
        try:
            return self._result.dump(value, warnings="error")
        except PydanticSerializationError:
            if type(value) not in (bytearray, memoryview):
                raise
        return self._result.dump(bytes(value), warnings="error")

    def load_result(self, result: bytes) -> Any:
        """Read a result from JSON. Raises Invalid if it does not match the annotation."""
        try:
            return self._result.load(result or b"null")
        except ValidationError as error:
            raise Invalid(
                f"the stored result of task {self.name} does not match its return annotation ({validation_faults(error)}): change the "
                "annotation, or read the JSON by client.result(job_id)"
            ) from None


def _result_type(hint: Any) -> Any:
    if hint is Then:
        return Any
    if get_origin(hint) is Then:
        return get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        return reduce(or_, map(_result_type, get_args(hint)))
    return hint


def _hints(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise Invalid(
            f"task {name}: an annotation cannot be read: {error}: import or define it before the task, "
            "and not only under TYPE_CHECKING"
        ) from None


def _typed_dict(name: str, parameters: list[inspect.Parameter], hints: dict[str, Any]) -> Any:
    fields = {}
    for parameter in parameters:
        hint = hints.get(parameter.name, Any)
        fields[parameter.name] = hint if parameter.default is parameter.empty else NotRequired[hint]
    shape = TypedDict(f"{name}_arguments", fields)  # type: ignore[misc]  # the fields are known at run time only
    shape.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]  # pydantic's own convention
    return shape


def _fits(adapter: TypeAdapter[Any], value: Any) -> bool:
    try:
        adapter.validate_python(value)
    except Exception:  # noqa: BLE001  # a type's own validator may raise anything
        return False
    return True


def path_in(value: Any, parts: tuple[str | int, ...], *, is_missing: bool) -> Path:
    """Convert the place of a pydantic error to the names and positions that lead to it in the value or, if it
    `is_missing`, to where it should be.
    """
    path: list[str | int] = []
    for part in parts:
        fits = part in value if isinstance(value, dict) else isinstance(value, list) and isinstance(part, int)
        if fits:
            path.append(part)
            value = value[part] if isinstance(value, dict) or part < len(value) else None  # type: ignore[operator]  # an index
    return (*path, parts[-1]) if is_missing else tuple(path)
