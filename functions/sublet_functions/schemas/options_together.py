"""JSON Schema of which options of a job go together: the checks of `sublet.options`, except those that
compare two numbers (`debounce` and `at_most`).
"""

from typing import Any

_GIVEN: dict[str, Any] = {"not": {"type": "null"}}


def _given(name: str) -> dict[str, Any]:
    return {"required": [name], "properties": {name: _GIVEN}}


def _not(*names: str) -> dict[str, Any]:
    return {"properties": {name: {"type": "null"} for name in names}}


_DELAY_AND_RUN_AT: dict[str, Any] = {
    "required": ["delay", "run_at"],
    "properties": {"delay": {"exclusiveMinimum": 0}, "run_at": _GIVEN},
}
_NO_DELAY: dict[str, Any] = {"properties": {"delay": {"maximum": 0}}}
OPTIONS_TOGETHER: dict[str, Any] = {
    "allOf": [
        {"not": _DELAY_AND_RUN_AT},
        {"if": _given("window"), "then": _given("key")},
        {
            "if": _given("debounce"),
            "then": {"allOf": [_given("key"), _not("window", "on_conflict", "run_at"), _NO_DELAY]},
        },
        {"if": _given("at_most"), "then": _given("debounce")},
        {"if": _given("on_conflict"), "then": {"allOf": [_given("key"), _not("window")]}},
    ]
}
