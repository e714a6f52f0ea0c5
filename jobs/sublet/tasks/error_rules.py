"""`retry_on` and `discard_on`: whether an exception of a task is worth another try."""

from typing import Any

from sublet.context import Discard, Snooze
from sublet.errors import Invalid

ErrorClasses = type[BaseException] | tuple[type[BaseException], ...]
"""One exception class, or a tuple of them."""


class ErrorRules:
    """Decides by an exception's class whether its job may be tried again."""

    def __init__(self, retry_on: ErrorClasses | None, discard_on: ErrorClasses) -> None:
        self._again = {kind: False for kind in _classes("discard_on", discard_on)}
        for kind in _classes("retry_on", () if retry_on is None else retry_on):
            if kind in self._again:
                raise Invalid(f"{kind.__name__} is in retry_on and in discard_on: remove it from one")
            self._again[kind] = True
        self._otherwise = retry_on is None

    def again(self, kind: type[BaseException]) -> bool:
        """Whether to try again after an exception of this class. The rule for the class, or its nearest base,
        decides; without one, True unless `retry_on` was given.
        """
        return next((self._again[base] for base in kind.__mro__ if base in self._again), self._otherwise)


def error_rules(task: str, retry_on: ErrorClasses | None, discard_on: ErrorClasses) -> ErrorRules | None:
    """Check a task's `retry_on` and `discard_on`; return their rules, or None if neither was given. Raises
    Invalid.
    """
    if retry_on is None and discard_on == ():
        return None
    try:
        return ErrorRules(retry_on, discard_on)
    except Invalid as error:
        raise Invalid(f"task {task}: {error}") from None


def _classes(option: str, given: Any) -> tuple[type[BaseException], ...]:
    kinds = given if isinstance(given, tuple | list) else (given,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            raise Invalid(
                f"{option}: {str(kind)[:80]!r} is not an exception class: use classes, as in {option}=(ConnectionError, TimeoutError)"
            )
        if issubclass(kind, Snooze | Discard):
            raise Invalid(f"{option}: {kind.__name__} decides itself what happens to the job: leave it out")
    return tuple(kinds)
