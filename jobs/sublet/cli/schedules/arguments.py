"""Arguments of the commands on schedules."""

from sublet.cli import argument_types as types
from sublet.cli.parser import Command, CommandParser


def _list(parser: CommandParser) -> None:
    parser.option("--limit", metavar="N", type=types.positive_integer, default=None, help="per page (100)")
    parser.option("--cursor", metavar="NAME", default="", help="continue after this schedule")


def _name(parser: CommandParser) -> None:
    parser.positional("name", metavar="NAME", help="the schedule")


def _names(parser: CommandParser) -> None:
    parser.positional("names", metavar="NAME…", nargs="+", help="the schedules")


def _run(parser: CommandParser) -> None:
    _names(parser)
    parser.option("--id", metavar="ID", default=None, help="your own job id; only with one schedule")


def _add(parser: CommandParser) -> None:
    parser.positional("name", metavar="NAME", help="the schedule")
    parser.positional("task", metavar="TASK", help="the task that it runs")
    parser.positional(
        "payload",
        metavar="JSON",
        nargs="?",
        default="{}",
        help="arguments by name, one object; - is stdin, @FILE a file",
    )
    option = parser.option
    option("--cron", metavar="LINE", help="minute hour day month weekday: '0 9 * * MON-FRI'")
    option("--tz", metavar="ZONE", help="time zone of --cron (UTC)")
    option("--every", metavar="30s", type=types.positive_duration, help="fixed interval, instead of --cron")
    option(
        "--start",
        metavar="TIME",
        type=types.timestamp,
        help="first occurrence at the earliest; --end TIME: last",
    )
    option("--end", metavar="TIME", type=types.timestamp, help=types.HIDDEN)
    option("--jitter", metavar="30s", type=types.duration, help="random delay of each job, up to this long")
    option("--missed", metavar="HOW", help="missed occurrences: fire the latest, all, or skip late ones")
    option("--late", metavar="5m", type=types.duration, help="with --missed skip: how late it may fire (5m)")
    option(
        "--most", metavar="N", type=types.positive_integer, help="with --missed all: at most this many (24)"
    )
    option("--overlap", metavar="HOW", help="if its last job is unfinished: allow, skip, queue")
    option("--queue", metavar="NAME", help="queue of its jobs; --priority N: their priority")
    option("--priority", metavar="N", type=types.integer, help=types.HIDDEN)
    option("--max-attempts", metavar="N", type=types.positive_integer, help="tries before a job is dead (3)")
    option("--timeout", metavar="5m", type=types.optional_duration, help="limit of one attempt, or none (5m)")
    option("--retention", metavar="1d", type=types.duration, help="how long to keep completed jobs (1d)")
    option("--app", metavar="MODULE:APP", help="check against this app, use its options (SUBLET_APP)")


def _sync(parser: CommandParser) -> None:
    parser.positional(
        "app", metavar="MODULE:APP", nargs="?", default=None, help="where they are declared (SUBLET_APP)"
    )
    parser.option(
        "--remove", action="store_true", default=False, help="also remove those that the app declares no more"
    )


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


_MODULE = "schedules.schedules"

COMMANDS = (
    Command(
        "schedules",
        "[VERB …] [options]",
        "Manage schedules, which submit jobs at given times. Without a verb: list.",
        verbs=(
            Command(
                "schedules list",
                "",
                "List all: next occurrence and state.",
                f"{_MODULE}:list_schedules",
                _list,
            ),
            Command("schedules show", "NAME", "Show one in full.", f"{_MODULE}:show", _name),
            Command(
                "schedules add",
                "NAME TASK [JSON]",
                "Create one or replace it as a whole.",
                f"{_MODULE}:add",
                _add,
            ),
            Command("schedules remove", "NAME…", "Delete schedules.", f"{_MODULE}:remove", _names),
            Command("schedules pause", "NAME…", "Submit no jobs until resumed.", f"{_MODULE}:pause", _names),
            Command("schedules resume", "NAME…", "Continue paused schedules.", f"{_MODULE}:resume", _names),
            Command("schedules run", "NAME…", "Submit one job of each now.", f"{_MODULE}:run", _run),
            Command(
                "schedules sync",
                "MODULE:APP",
                "Store what the app's code declares.",
                f"{_MODULE}:sync",
                _sync,
            ),
        ),
    ),
    Command(
        "tick",
        "[options]",
        "Run maintenance once: return expired leases, queue due jobs, fire due\n"
        "schedules, summon workers for pools, forget old data. Call it from any cron.",
        "schedules.tick:tick",
        _tick,
    ),
)
