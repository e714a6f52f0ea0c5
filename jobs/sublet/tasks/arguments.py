"""How a function's arguments and result become JSON and come back, checked against its own annotations."""

import inspect
from collections.abc import Callable
from functools import cached_property
from typing import Any, NotRequired, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from sublet.context import Context
from sublet.errors import Invalid
from sublet.options import PAYLOAD_MAX

PLAIN = (int, str, bool, float)
"""Types whose values are written as they are. To have pydantic watch out for others takes ten times as long as to write one."""

TOLD = 3
"""Complaints about arguments that are told in words; there may be as many as the payload has fields."""


class Arguments:
    """The signature of one task. Adapters are built once, when the task is declared."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        hints = get_type_hints(function, include_extras=True)
        parameters = list(inspect.signature(function).parameters.values())
        self.takes_context = bool(parameters) and hints.get(parameters[0].name) is Context
        own = parameters[1:] if self.takes_context else parameters
        for parameter in own:
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise Invalid(
                    f"task {name}: parameter {parameter.name!r} has no name of its own; a job's arguments go by name"
                )
        self._signature = inspect.Signature(own)
        self._names = {parameter.name for parameter in own}
        self._required = {parameter.name for parameter in own if parameter.default is parameter.empty}
        self._positional = [
            parameter.name for parameter in own if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        self._adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(_typed_dict(name, own, hints))
        self._result: TypeAdapter[Any] = TypeAdapter(hints.get("return", Any))
        self._may_be_none = _fits(self._result, None)
        self._sure = hints.get("return", Any)

    # What a worker does for each job goes past the adapters, whose own methods cost as much as the work. They are asked at first
    # use, and not before: an annotation may name a class that comes later in its module.
    @cached_property
    def _load(self) -> Callable[[bytes], dict[str, Any]]:
        return self._adapter.validator.validate_json

    @cached_property
    def _dump_result(self) -> Callable[..., bytes]:
        return self._result.serializer.to_json

    def dump(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The payload for a call with these arguments. Raises Invalid when they do not fit."""
        try:
            return self._adapter.serializer.to_json(
                self._adapter.validator.validate_python(self._bind(args, kwargs))
            )
        except TypeError as error:
            raise Invalid(f"task {self.name}: {error}") from None
        except ValidationError as error:
            raise Invalid(f"task {self.name}: {_complaints(error)}") from None
        except PydanticSerializationError as error:
            raise Invalid(f"task {self.name}: an argument cannot be written as JSON ({error})") from None

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name. What does not fit is left to `inspect`, for its words: to bind by it takes a µs or more."""
        bound = dict(zip(self._positional, args)) | kwargs  # noqa: B905  # one too many, or given twice: then it is shorter
        if len(bound) == len(args) + len(kwargs) and self._required <= bound.keys() <= self._names:
            return bound
        return self._signature.bind(*args, **kwargs).arguments

    def load(self, payload: bytes) -> dict[str, Any]:
        """The arguments by name. Raises Invalid when the payload does not fit."""
        try:
            return self._load(payload or b"{}")
        except ValidationError as error:
            raise Invalid(_complaints(error)) from None

    def dump_result(self, value: Any) -> bytes:
        """The result as JSON. Raises Invalid when it is not what the task is annotated to return, or is too large."""
        if value is None and not self._may_be_none:  # pydantic writes None for any type, and says nothing
            raise Invalid(f"task {self.name} returned None, which is not what it is annotated to return")
        try:
            if type(value) is self._sure and self._sure in PLAIN:
                result = self._dump_result(value)
            else:
                result = self._dump_result(value, warnings="error")
        except PydanticSerializationError as error:
            raise Invalid(f"task {self.name} returned what cannot be written as JSON: {error}") from None
        if len(result) > PAYLOAD_MAX:
            raise Invalid(
                f"task {self.name} returned {len(result):,} bytes: at most {PAYLOAD_MAX:,}; keep them elsewhere"
            )
        return result

    def load_result(self, result: bytes) -> Any:
        """The result as the task's annotation has it. Raises Invalid when it does not fit."""
        try:
            return self._result.validate_json(result or b"null")
        except ValidationError as error:
            raise Invalid(f"result of task {self.name}: {_complaints(error)}") from None


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
    except Exception:  # noqa: BLE001  # a type's own validator may raise what it likes; then the value does not fit
        return False
    return True


def _complaints(error: ValidationError) -> str:
    """The first complaints on one line; the values themselves stay out of it."""
    found = error.errors(include_url=False, include_input=False, include_context=False)
    words = [": ".join(filter(None, (".".join(map(str, each["loc"])), each["msg"]))) for each in found[:TOLD]]
    return "; ".join(words) + (f" (and {len(found) - TOLD} more)" if len(found) > TOLD else "")
