"""Commands and their argparse parsers. Standard library only."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from sublet.cli.argument_types import is_duration
from sublet.errors import Invalid, did_you_mean

SHARED = "everywhere:   --redis-url URL   --namespace NAME   --json   --debug"
SHARED_WITH_VALUE = ("--redis-url", "--namespace")
HELP_FLAGS = {"-h", "--help"}
_FORMATTER = functools.partial(argparse.RawDescriptionHelpFormatter, max_help_position=32, width=82)


def program() -> str:
    """Return `sublet` or `python3 -m jobs`, as typed by the user, for commands to paste."""
    return "python3 -m jobs" if sys.argv[0].endswith(os.path.join("jobs", "__main__.py")) else "sublet"


def with_help_hint(message: str, command: str = "") -> str:
    """Return the message, followed by `see sublet COMMAND --help`."""
    page = " ".join(filter(None, [program(), command, "--help"]))
    return f"{message}{' See' if message.endswith('?') else '; see'} {page}"


class _Once(argparse.Action):
    def __call__(self, parser: Any, args: Any, value: Any, flag: str | None = None) -> None:
        given: set[str] = parser.given
        if flag in given:
            parser.error(f"{flag} is given twice: give it once")
        given |= {flag} if flag else set()
        setattr(args, self.dest, value)


class CommandParser(argparse.ArgumentParser):
    """A command's parser. Options may stand anywhere, unabbreviated; an absent one without default sets no
    attribute.
    """

    def __init__(self, command: Command) -> None:
        super().__init__(
            prog=command.name,
            usage=f"{program()} {command.name} {command.usage}".rstrip(),
            description=command.description,
            epilog=SHARED,
            formatter_class=_FORMATTER,
            argument_default=argparse.SUPPRESS,
            add_help=False,
            allow_abbrev=False,
        )
        self.given: set[str] = set()
        self.register("action", None, _Once)
        for flag in SHARED_WITH_VALUE:
            self.add_argument(flag, default=None, help=argparse.SUPPRESS)
        for flag in ("--json", "--debug"):
            self.add_argument(flag, action="store_true", default=False, help=argparse.SUPPRESS)
        self.positional = self.add_argument_group().add_argument
        self.option = self.add_argument_group().add_argument

    def switch(self, flag: str, about: str) -> None:
        """Add an option without a value, False if absent. `about` is its help text."""
        self.option(flag, action="store_true", default=False, help=about)

    def flags(self) -> dict[str, argparse.Action]:
        """Return the options by flag, such as `--json`."""
        return {flag: action for action in self._actions for flag in action.option_strings}

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse a command's arguments. Raises Invalid, with a pointer to the help."""
        args, rest = self.parse_known_intermixed_args(list(self._attach_values(words)))
        if rest:
            flag = rest[0].split("=")[0]
            if flag.startswith("-") and flag != "-":
                self.error(f"there is no option {flag}{did_you_mean(flag, self.flags())}")
            self.error(f"unexpected argument {rest[0][:60]!r}")
        return args

    def _attach_values(self, words: Sequence[str]) -> Iterator[str]:
        """Yield the words, as `--flag=value` where argparse guesses wrong: `--delay -5s` has a value, `--wait
        TASK` does not.
        """
        flags, positions = self.flags(), iter(range(len(words)))
        for i in positions:
            word, following = words[i], words[i + 1] if i + 1 < len(words) else ""
            action = flags.get(word)
            if word == "--":
                yield from words[i:]
                return
            if action and action.nargs == "?" and not is_duration(following):
                yield f"{word}={action.const}"
            elif action and action.nargs is None and re.match(r"-[\d.]", following):
                yield f"{word}={following}"
                next(positions)
            else:
                yield word

    def error(self, message: str) -> NoReturn:
        """Raise Invalid with argparse's message, shortened, and a pointer to the help."""
        missing = re.fullmatch(
            r"the following arguments are required: (\S+?)(?:, .+)?|argument (\S+): expected .+", message
        )
        if missing:
            name = missing[1].rstrip("…") if missing[1] else f"the value of {missing[2]}"
            message = f"{name} is missing"
        raise Invalid(with_help_hint(message.removeprefix("argument "), self.prog))


class Command(NamedTuple):
    """A command, or a verb of one (`schedules add`): its help texts and the function that runs it."""

    name: str
    usage: str
    summary: str
    handler: str = ""
    """The function to run, as GROUP.MODULE:FUNCTION in `sublet.cli`; empty for a command with verbs."""
    details: str = ""
    extras: tuple[str, ...] = ()
    """The extras of the package that the command needs."""
    passes_arguments: bool = False
    """Whether the arguments are for another program (pytest) and not parsed here."""
    verbs: tuple[Any, ...] = ()
    """The command's verbs; the first one runs if the user names none."""

    @property
    def description(self) -> str:
        """The help page between usage and arguments: summary, verbs, details."""
        width = max((len(f"{verb.verb} {verb.usage}") for verb in self.verbs), default=0)
        lines = [f"  {f'{verb.verb} {verb.usage}':<{width}}  {verb.summary}" for verb in self.verbs]
        return "\n\n".join(filter(None, [self.summary, "\n".join(lines), self.details]))

    @property
    def verb(self) -> str:
        """The last word of the command's name, such as `add`."""
        return self.name.rpartition(" ")[2]

    def parser(self) -> CommandParser:
        """Return a new parser for this command's arguments."""
        parser = CommandParser(self)
        group = self.handler.partition(".")[0]
        arguments = importlib.import_module(f"sublet.cli.{group}.arguments").ARGUMENTS if group else {}
        if self.name in arguments:
            arguments[self.name](parser)
        return parser

    def help(self) -> str:
        """Return the command's help page."""
        return self.parser().format_help()

    def resolve(self, words: Sequence[str]) -> tuple[Command, list[str]]:
        """Return the `Command` to run, and the other words. It is the verb among the words, else the first
        verb; but this command itself if it has no verbs, or for --help without a verb. Raises Invalid for an
        unknown verb.
        """
        known = {verb.verb: verb for verb in self.verbs}
        position = next((i for i, word in enumerate(words) if word in known), None)
        if position is not None:
            return known[words[position]], [*words[:position], *words[position + 1 :]]
        if not self.verbs or HELP_FLAGS & set(words):
            return self, list(words)
        if words and not words[0].startswith("-"):
            near = did_you_mean(words[0], known) or f"; use {', '.join(known)}"
            raise Invalid(with_help_hint(f"{self.name} has no verb {words[0][:60]!r}{near}", self.name))
        return self.verbs[0], list(words)

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the words after the command's name. Raises Invalid."""
        command, rest = self.resolve(words)
        parser = command.parser()
        for word in rest:
            flag = word.split("=")[0]
            if self.verbs and flag.startswith("--") and flag not in parser.flags():
                owner = next((verb for verb in self.verbs if flag in verb.parser().flags()), None)
                if owner:
                    raise Invalid(
                        with_help_hint(f"{flag} is an option of {program()} {owner.name}", owner.name)
                    )
        return parser.read(rest)
