"""Arguments that several commands share. Each function adds some to a command's parser; `about` is their
help text, `example` a value in it.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from sublet.cli import argument_types as types
from sublet.cli.parser import CommandParser

SLOTS = types.integer_up_to(10_000, "one process must keep the lease of each job alive; start more workers")


class _StoreOnce(argparse.Action):
    def __call__(self, parser: Any, args: Any, value: Any, flag: str | None = None) -> None:
        given: dict[str, Any] = vars(args).setdefault("given", {})
        if given.setdefault(self.dest, value) != value:
            parser.error(f"{self.metavar} is given twice, as {given[self.dest]} and {value}: leave one out")
        setattr(args, self.dest, value)


class _Collect(argparse.Action):
    def __call__(self, parser: Any, args: Any, value: Any, flag: str | None = None) -> None:
        given: list[str] = vars(args).setdefault("given", [])
        given += [value] if isinstance(value, str) else value
        setattr(args, self.dest, tuple(dict.fromkeys(given)))


def app(parser: CommandParser, about: str = "where the tasks are, e.g. tasks:app") -> None:
    """Add MODULE:APP, as an argument or by --app, by default SUBLET_APP. `about` begins its help text."""
    parser.positional(
        "app", metavar="MODULE:APP", nargs="?", action=_StoreOnce, help=f"{about}; or --app (SUBLET_APP)"
    )
    parser.option(
        "--app",
        metavar="MODULE:APP",
        action=_StoreOnce,
        default=os.environ.get("SUBLET_APP"),
        help=types.HIDDEN,
    )


def apps(parser: CommandParser) -> None:
    """Add one or more MODULE:APP, as arguments or by --app, by default SUBLET_APP. The value is a sequence."""
    about = "where the tasks are, e.g. tasks:app; or --app (SUBLET_APP)"
    parser.positional("app", metavar="MODULE:APP", nargs="*", action=_Collect, help=about)
    usual = os.environ.get("SUBLET_APP")
    default = (usual,) if usual else ()  # argparse warns of an empty list
    parser.option("--app", metavar="MODULE:APP", action=_Collect, default=default, help=types.HIDDEN)


def seconds(parser: CommandParser, example: str, about: str) -> None:
    """Add the option --for, a duration of 1 ms or more, as `seconds` (None if absent)."""
    parser.option(
        "--for",
        metavar=example,
        type=types.positive_duration,
        default=None,
        dest="seconds",
        help=about,
    )


def payload(parser: CommandParser) -> None:
    """Add the positional JSON, a job's payload, by default {}."""
    parser.positional(
        "payload",
        metavar="JSON",
        nargs="?",
        default="{}",
        help="arguments by name, one object; - is stdin, @FILE a file",
    )


def check_tasks(parser: CommandParser, about: str) -> None:
    """Add --check-tasks: refuse, warn, off (None if absent)."""
    parser.option(
        "--check-tasks",
        metavar="HOW",
        choices=("refuse", "warn", "off"),
        default=None,
        help=about,
    )


def attempts(parser: CommandParser) -> None:
    """Add --max-attempts, --timeout, --stall, --retention and --keep-payload of a job."""
    option = parser.option
    option("--max-attempts", metavar="N", type=types.positive_integer, help="tries before a job is dead (3)")
    option(
        "--timeout",
        metavar="5m",
        type=types.optional_duration,
        help="of an attempt, or none (5m); --stall 1m: of no progress",
    )
    option("--stall", metavar="1m", type=types.positive_duration, help=types.HIDDEN)
    option(
        "--retention",
        metavar="1d",
        type=types.duration,
        help="keep completed jobs (1d); --keep-payload keeps arguments",
    )
    option("--keep-payload", action="store_true", help=types.HIDDEN)


def tags(parser: CommandParser, about: str) -> None:
    """Add --tag, which may be repeated, as the list `tags`."""
    parser.option("--tag", metavar="TAG", action="append", dest="tags", help=about)


def lease(parser: CommandParser) -> None:
    """Add --lease; the value is in seconds, by default 30."""
    parser.option(
        "--lease",
        metavar="30s",
        type=types.lease,
        default=30.0,
        help="time without a heartbeat after which jobs restart (30s)",
    )


def seed(parser: CommandParser, about: str) -> None:
    """Add --seed, a whole number (None if absent)."""
    parser.option("--seed", metavar="N", type=types.seed, default=None, help=about)


def several(parser: CommandParser, name: str, metavar: str, about: str) -> None:
    """Add a positional argument for one or more values, which become a list."""
    parser.positional(name, metavar=metavar, nargs="+", help=about)
