"""A request as Redis sees it, parsed by the script's header; and the exception for violations."""

from functools import cache, lru_cache
from typing import Any, NamedTuple

from sublet.protocol.scripts import NAMES, script


class Violation(AssertionError):
    """An invariant does not hold."""


def must(fine: object, words: str) -> None:
    """Raise Violation with this message if the condition is false."""
    if not fine:
        raise Violation(words)


def rules_of(spec: str) -> dict[str, str]:
    """The rules in the first line of a spec."""
    return _rules(spec.partition("\n")[0])


@lru_cache(10_000)
def _rules(header: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in header.split(" ")[3:] if word)


class Request(NamedTuple):
    """A script's arguments, parsed by its header."""

    verb: str
    one: dict[str, str]
    groups: list[tuple[str, ...]]

    @classmethod
    def of(cls, command: tuple[Any, ...]) -> "Request":
        """Parse a command. Commands other than our scripts are a `read`."""
        verb = _verbs().get(command[1]) if command[0] in ("EVALSHA", "EVAL") else None
        if verb is None:
            return cls("read", {}, [tuple(map(str, command))])
        words = [word.decode() if isinstance(word, bytes) else str(word) for word in command[4:]]
        header = script(verb)
        rest, size = words[len(header.fixed) :], len(header.repeated)
        groups = [tuple(rest[i : i + size]) for i in range(0, len(rest), size)] if size else []
        return cls(verb, dict(zip(header.fixed, words, strict=False)), groups)

    def parts(self) -> "tuple[Request, Request]":
        """A `proceed` as the two calls that it is equal to: the end of the job, and the workflow that follows."""
        one = self.one
        ended = Request("complete", {}, [(one["id"], one["token"], one["result"])])
        return ended, Request("workflow", {"workflow": one["workflow"], "how": "seal"}, self.groups)

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.one.items()]
        return f"{self.verb}({', '.join([*words, *(' '.join(word for word in group if word) for group in self.groups)])})"


@cache
def _verbs() -> dict[str, str]:
    return {key: name for name in NAMES for key in (script(name).sha, script(name).text)}
