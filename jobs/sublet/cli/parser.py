"""A parser for one command, with help that a person can read at a glance, and errors of one line."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

from sublet.cli.argument_types import is_duration
from sublet.errors import Invalid, did_you_mean

SHARED = "everywhere:   --redis-url URL   --namespace NAME   --json   --debug"
VALUED = ("--redis-url", "--namespace")
"""The shared options that take a value; they may also stand before the command."""


def program() -> str:
    """How this program was called, so that what we print can be typed."""
    return "sublet" if os.path.basename(sys.argv[0]) == "sublet" else "python3 -m jobs"


def read_more(words: str, command: str = "") -> str:
    """The words of an error, and where to read how it is done."""
    return f"{words}{' See' if words.endswith('?') else '; see'} {' '.join(filter(None, [program(), command]))} --help"


class Parser(argparse.ArgumentParser):
    """What one command takes. Options may stand anywhere, negative numbers are values, and nothing is abbreviated."""

    def __init__(self, name: str, usage: str, summary: str) -> None:
        super().__init__(prog=name, add_help=False, allow_abbrev=False)
        self.name, self.shown_usage, self.summary = name, usage, summary
        self._words: list[tuple[str, str]] = []
        self._options: list[tuple[str, str]] = []
        self._by_flag: dict[str, argparse.Action] = {}
        for flag, dest in zip(VALUED, ("redis_url", "namespace"), strict=True):
            self._by_flag[flag] = self.add_argument(flag, dest=dest)
        for flag in ("--json", "--debug"):
            self._by_flag[flag] = self.add_argument(flag, action="store_true")

    def word(self, dest: str, shown: str, text: str, **how: Any) -> None:
        """Take a word by its place. `shown` and `text` are for the help; without a `text` it has no line there."""
        if text:
            self._words.append((shown, text))
        self.add_argument(dest, metavar=shown, **how)

    def option(self, flag: str, shown: str, text: str, beside: str = "", **how: Any) -> None:
        """Take an option, with a value unless `shown` is empty. Absent, it leaves no trace unless it has a `default`.

        Without a `text` it has no line of its own in the help: that of another one tells of it, or names it `beside` itself.
        """
        if text:
            self._options.append((f"{', '.join(filter(None, [flag, beside]))} {shown}".rstrip(), text))
        how.setdefault("default", argparse.SUPPRESS)
        if not shown:
            how["action"] = "store_true"
        self._by_flag[flag] = self.add_argument(flag, **how)

    def read(self, argv: list[str]) -> argparse.Namespace:
        """The arguments as values. Raises Invalid with one line that says what to write instead."""
        args, rest = self.parse_known_intermixed_args(list(self._joined(argv)))
        if rest:
            unknown = rest[0].split("=")[0]
            if unknown.startswith("-") and unknown != "-":
                self.error(f"there is no option {unknown}{did_you_mean(unknown, self._by_flag)}")
            self.error(f"{rest[0][:60]!r} is one word too many")
        return args

    def _joined(self, argv: list[str]) -> Iterator[str]:
        """Say plainly what a value is, where argparse would guess wrong: `--delay -5s`, `--wait TASK`."""
        words = iter(range(len(argv)))
        for i in words:
            word, after = argv[i], argv[i + 1] if i + 1 < len(argv) else ""
            action = self._by_flag.get(word)
            if word == "--":
                yield from argv[i:]
                return
            if action and action.nargs == "?" and not is_duration(after):
                yield f"{word}={action.const}"
            elif action and action.nargs is None and re.match(r"-[\d.]", after):
                yield f"{word}={after}"
                next(words)
            else:
                yield word

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and where to read more."""
        lacking = re.fullmatch(
            r"the following arguments are required: (\S+?)(?:, .+)?|argument (\S+): expected .+", message
        )
        words = (
            f"{lacking[1] or f'the value of {lacking[2]}'} is missing"
            if lacking
            else message.removeprefix("argument ")
        )
        raise Invalid(read_more(words, self.name))

    def format_help(self) -> str:
        """One screen: how to call it, what it does, what it takes."""
        width = max([len(left) for left, _ in self._words + self._options], default=0) + 3
        parts = [f"usage: {program()} {self.name} {self.shown_usage}".rstrip(), self.summary]
        for lines in (self._words, self._options):
            parts.append("\n".join(f"  {left:<{width}}{text}" for left, text in lines))
        return "\n\n".join([part for part in [*parts, SHARED] if part]) + "\n"
