"""Arguments that several commands share. Each function adds some to a command's parser."""

from __future__ import annotations

import os

from sublet.cli import argument_types as types
from sublet.cli.parser import CommandParser

SLOTS = types.integer_up_to(10_000, "one process must keep the lease of each job alive; start more workers")


def app(parser: CommandParser) -> None:
    """Add the positional MODULE:APP, by default SUBLET_APP."""
    parser.positional(
        "app",
        metavar="MODULE:APP",
        nargs="?",
        default=os.environ.get("SUBLET_APP"),
        help="where the tasks are, e.g. tasks:app (SUBLET_APP)",
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


def attempts(parser: CommandParser) -> None:
    """Add --max-attempts, --timeout and --retention of a job."""
    option = parser.option
    option("--max-attempts", metavar="N", type=types.positive_integer, help="tries before a job is dead (3)")
    option("--timeout", metavar="5m", type=types.optional_duration, help="limit of one attempt, or none (5m)")
    option("--retention", metavar="1d", type=types.duration, help="how long to keep completed jobs (1d)")


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
    """Add --seed, a whole number (None if absent). `about` is its help text."""
    parser.option("--seed", metavar="N", type=types.seed, default=None, help=about)


def several(parser: CommandParser, name: str, metavar: str, about: str) -> None:
    """Add a positional argument for one or more values, which become a list."""
    parser.positional(name, metavar=metavar, nargs="+", help=about)
