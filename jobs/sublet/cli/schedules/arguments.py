"""Arguments of the commands on schedules."""

from sublet.cli import argument_types as types
from sublet.cli import common_arguments
from sublet.cli.parser import CommandParser


def _list(parser: CommandParser) -> None:
    parser.option("--limit", metavar="N", type=types.positive_integer, default=None, help="per page (100)")
    parser.option("--cursor", metavar="NAME", default="", help="continue after this schedule")


def _name(parser: CommandParser) -> None:
    parser.positional("name", metavar="NAME", help="the schedule")


def _names(parser: CommandParser) -> None:
    common_arguments.several(parser, "names", "NAME…", "the schedules")


def _run(parser: CommandParser) -> None:
    _names(parser)
    parser.option("--id", metavar="ID", default=None, help="your own job id; only with one schedule")


def _add(parser: CommandParser) -> None:
    parser.positional("name", metavar="NAME", help="the schedule")
    parser.positional("task", metavar="TASK", help="the task that it runs")
    common_arguments.payload(parser)
    option = parser.option
    option("--cron", metavar="LINE", help="minute hour day month weekday: '0 9 * * MON-FRI'")
    option("--tz", metavar="ZONE", help="time zone of --cron (UTC)")
    option("--every", metavar="30s", type=types.interval, help="fixed interval, instead of --cron")
    option(
        "--start",
        metavar="TIME",
        type=types.timestamp,
        help="no occurrence before TIME; --end TIME: none after",
    )
    option("--end", metavar="TIME", type=types.timestamp, help=types.HIDDEN)
    option("--jitter", metavar="30s", type=types.duration, help="random delay of each job, up to this long")
    option("--missed", metavar="HOW", help="missed occurrences: fire the latest, all, or skip late ones")
    option("--late", metavar="5m", type=types.duration, help="with --missed skip: how late it may fire (5m)")
    option(
        "--most", metavar="N", type=types.positive_integer, help="with --missed all: at most this many (24)"
    )
    option("--overlap", metavar="HOW", help="if its last job is unfinished: allow, skip, queue")
    option("--queue", metavar="NAME", help="queue of its jobs; also --priority N, --tag TAG")
    option("--priority", metavar="N", type=types.integer, help=types.HIDDEN)
    common_arguments.attempts(parser)
    common_arguments.tags(parser, types.HIDDEN)
    option("--app", metavar="MODULE:APP", help="use this app's tasks (SUBLET_APP); or --check-tasks HOW")
    common_arguments.check_tasks(parser, types.HIDDEN)


def _sync(parser: CommandParser) -> None:
    common_arguments.app(parser, "where they are declared")
    parser.switch("--remove", "also remove those that the app declares no more")


def _tick(parser: CommandParser) -> None:
    parser.option(
        "--for",
        metavar="55s",
        type=types.duration,
        default=None,
        dest="seconds",
        help="repeat for this long (one round)",
    )
    parser.option(
        "--every",
        metavar="5s",
        type=types.positive_duration,
        default=None,
        help="with --for: time between rounds (5s)",
    )
    parser.option(
        "--app",
        metavar="MODULE:APP",
        default=None,
        help="start workers of pools with the invoker process (SUBLET_APP)",
    )


ARGUMENTS = {
    "schedules list": _list,
    "schedules show": _name,
    "schedules add": _add,
    "schedules remove": _names,
    "schedules pause": _names,
    "schedules resume": _names,
    "schedules run": _run,
    "schedules sync": _sync,
    "tick": _tick,
}
