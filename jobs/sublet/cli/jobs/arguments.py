"""The arguments of each command on jobs or queues."""

import os

from sublet.cli import argument_types as types
from sublet.cli import common_arguments
from sublet.cli.parser import CommandParser


def _submit(parser: CommandParser) -> None:
    parser.positional("task", metavar="TASK", help="the task's name")
    common_arguments.payload(parser)
    parser.option(
        "--wait",
        metavar="SECONDS",
        nargs="?",
        const="30s",
        type=types.duration,
        help="wait for the result, print it (30s); exit 1 on failure",
    )
    _deduplication(parser)
    _start_time(parser)
    _job_options(parser)
    parser.option(
        "--app",
        metavar="MODULE:APP",
        default=os.environ.get("SUBLET_APP"),
        help="check against this app, use its options (SUBLET_APP)",
    )
    common_arguments.check_tasks(parser, "a job that no published task fits: refuse, warn, off")


def _deduplication(parser: CommandParser) -> None:
    option = parser.option
    option("--id", metavar="ID", help="your own job id; repeating it returns the same job")
    option(
        "--key",
        metavar="KEY",
        type=types.key,
        help="deduplication key: return the unfinished job that has it",
    )
    option(
        "--window",
        metavar="5m",
        type=types.positive_duration,
        help="keep the key this long, instead of until the job ends",
    )
    option(
        "--debounce",
        metavar="30s",
        type=types.positive_duration,
        help="run this long after the last submit; --at-most 5m in all",
    )
    option(
        "--at-most",
        metavar="5m",
        type=types.positive_duration,
        help=types.HIDDEN,
    )
    option(
        "--on-conflict",
        metavar="HOW",
        help="replace the key's waiting job; or cancel_running, too",
    )


def _start_time(parser: CommandParser) -> None:
    option = parser.option
    option(
        "--delay",
        metavar="10s",
        type=types.duration,
        help="wait before the first attempt; --at 2030-01-31T09:00:00Z",
    )
    option(
        "--at",
        metavar="TIME",
        type=types.timestamp,
        dest="run_at",
        help=types.HIDDEN,
    )


def _job_options(parser: CommandParser) -> None:
    option = parser.option
    option("--queue", metavar="NAME", help="the queue (default); --priority N: -100 to 100, high first")
    option("--priority", metavar="N", type=types.integer, help=types.HIDDEN)
    common_arguments.attempts(parser)
    common_arguments.tags(parser, "a label, up to 5 times; --group G: its tenant, --cost N")
    option("--group", metavar="GROUP", help=types.HIDDEN)
    option("--cost", metavar="N", type=types.positive_integer, help=types.HIDDEN)
    option("--durability", metavar="HOW", help="wait for: none, replicated, fsync (none)")


def _get(parser: CommandParser) -> None:
    parser.positional("id", metavar="ID", help="the job, or the unique end of its id")
    parser.switch("--detail", "also print stack traces, the whole log of each attempt, and long values")


def _list(parser: CommandParser) -> None:
    option = parser.option
    option(
        "--state",
        metavar="STATE",
        type=types.states,
        default=None,
        help=f"{' '.join(types.STATES)}: a,b",
    )
    option("--queue", metavar="NAME", default=None, help="only this queue, or a pattern ('tenant-*')")
    option(
        "--key",
        metavar="KEY",
        type=types.key,
        default=None,
        help="the job that holds it in --queue (default)",
    )
    option("--task", metavar="NAME", default=None, help="only this task")
    option("--tag", metavar="TAG", default=None, help="only jobs with this tag")
    option("--group", metavar="GROUP", default=None, help="only jobs of this group")
    option("--workflow", metavar="ID", default=None, help="only jobs of this workflow")
    option("--code", metavar="CODE", default=None, help="only those with this last error: ValueError, …")
    option("--worker", metavar="NAME", default=None, help="only those whose last attempt is this worker's")
    option(
        "--since",
        metavar="TIME",
        type=types.moment_or_age,
        default=None,
        help="submitted at TIME or later; or 2h: that long ago",
    )
    option("--until", metavar="TIME", type=types.moment_or_age, default=None, help="submitted before TIME")
    option("--limit", metavar="N", type=types.positive_integer, default=20, help="jobs per page (20)")
    option("--cursor", metavar="CURSOR", default=None, help="continue after the previous page")


def _workflow(parser: CommandParser) -> None:
    parser.positional("id", metavar="ID", help="the workflow")
    option = parser.option
    option(
        "--state",
        metavar="STATE",
        type=types.states,
        default=None,
        help=f"only jobs that are {' '.join(types.STATES)}: a,b",
    )
    option("--limit", metavar="N", type=types.positive_integer, default=20, help="jobs per page (20)")
    option("--cursor", metavar="CURSOR", default=None, help="continue after the previous page")


def _events(parser: CommandParser) -> None:
    option = parser.option
    option("--state", metavar="STATE", type=types.state, default=None, help="only changes to this state")
    option("--queue", metavar="NAME", default=None, help="only jobs of this queue; reads each job's queue")
    option("--after", metavar="ID", default=None, help="begin after this event; 0: the oldest kept (now)")
    common_arguments.seconds(parser, "30s", "end after this time, with exit code 0")


def _stream(parser: CommandParser) -> None:
    parser.positional("id", metavar="ID", help="the job, or the unique end of its id")
    parser.option(
        "--after", metavar="N", type=types.integer, default=0, help="begin after the chunk with this id (0)"
    )
    common_arguments.seconds(parser, "30s", "end after this time, with exit code 0")


def _ids(parser: CommandParser) -> None:
    option = parser.option
    parser.positional(
        "ids", metavar="ID…", nargs="*", default=[], help="the jobs, or the unique ends of their ids"
    )
    option(
        "--state", metavar="STATE", type=types.state, default=None, help="instead of ids: all in this state"
    )
    option("--queue", metavar="NAME", default=None, help="instead of ids: all of this queue")
    option("--task", metavar="NAME", default=None, help="instead of ids: all of this task")
    option("--tag", metavar="TAG", default=None, help="instead of ids: all with this tag")
    option("--workflow", metavar="ID", default=None, help="instead of ids: all of this workflow")
    option(
        "--code", metavar="CODE", default=None, help="instead of ids: all with this last error, as ValueError"
    )
    option("--worker", metavar="NAME", default=None, help="… whose last attempt is this worker's")
    option(
        "--since",
        metavar="TIME",
        type=types.moment_or_age,
        default=None,
        help="… submitted then or later; or 2h",
    )
    option("--until", metavar="TIME", type=types.moment_or_age, default=None, help="… submitted before")
    option(
        "--message",
        metavar="TEXT",
        default=None,
        help="as --code: the error's message, but for numbers and quotes",
    )
    parser.switch("--dry-run", "with a filter: only count the jobs")
    parser.switch("--yes", "with a filter: do not ask for confirmation")


def _retry(parser: CommandParser) -> None:
    _ids(parser)
    parser.switch("--anew", "with ids: forget the kept steps; else a job goes on after them")


def _signal(parser: CommandParser) -> None:
    parser.positional("id", metavar="ID", help="the job, or the unique end of its id")
    parser.positional("name", metavar="NAME", help="the name for which its task waits: ctx.wait_for(NAME)")
    parser.positional(
        "value",
        metavar="JSON",
        nargs="?",
        type=types.json_value,
        default=None,
        help="the value (default: null), - for stdin, @FILE for a file",
    )


def _reschedule(parser: CommandParser) -> None:
    option = parser.option
    common_arguments.several(parser, "ids", "ID…", "the waiting jobs, or the unique ends of their ids")
    option(
        "--at",
        metavar="TIME",
        type=types.timestamp,
        dest="run_at",
        help="new time, e.g. 2030-01-31T09:00:00Z; one that has passed: now",
    )
    option(
        "--in", metavar="10m", type=types.duration, dest="delay", help="instead of a time: so long from now"
    )
    option("--priority", metavar="N", type=types.integer, help="-100 to 100, higher runs first")


def _queues(parser: CommandParser) -> None:
    common_arguments.several(parser, "queues", "QUEUE…", "the queues; a new name creates its queue")


def _purge(parser: CommandParser) -> None:
    parser.positional("queue", metavar="QUEUE", help="the queue")
    parser.switch("--scheduled", "also cancel its jobs that are due later")
    parser.switch("--yes", "do not ask for confirmation")


def _configure(parser: CommandParser) -> None:
    parser.positional(
        "queue", metavar="QUEUE", nargs="?", default="*", help="the queue; without one, the namespace"
    )
    option, count = parser.option, types.optional_count
    option("--jobs", metavar="N", type=count, help="waiting and running jobs at most; none: no limit")
    option(
        "--bytes", metavar="10MiB", type=types.optional_bytes, help="bytes of their payloads; none: no limit"
    )
    _flow(parser, "", "of the queue")
    _flow(parser, "group-", "of each group")
    option(
        "--on-dead",
        metavar="TASK",
        help="a job of this task reports each dead job; QUEUE/TASK; none: no report",
    )
    option("--completed", metavar="N", type=count, help="completed jobs kept per partition (100,000)")
    option("--dead", metavar="N", type=count, help="dead jobs kept per partition (100,000)")
    option("--cancelled", metavar="N", type=count, help="cancelled jobs kept per partition (100,000)")
    option("--queues", metavar="N", type=count, help="queues per partition at most (100,000)")


def _flow(parser: CommandParser, kind: str, of: str) -> None:
    option = parser.option
    option(f"--{kind}concurrency", metavar="N", type=types.optional_count, help=f"jobs {of} that run at once")
    option(
        f"--{kind}rate", metavar="60/1m", type=types.optional_rate, help=f"tokens {of}; a job takes its cost"
    )
    option(f"--{kind}burst", metavar="N", type=types.optional_count, help="tokens that may be saved up")


def _groups(parser: CommandParser) -> None:
    parser.positional("queue", metavar="QUEUE", help="the queue")
    parser.option(
        "--limit",
        metavar="N",
        type=types.positive_integer,
        default=100,
        help="groups at most (100, up to 1,000)",
    )


def _set_group(parser: CommandParser) -> None:
    parser.positional("queue", metavar="QUEUE", help="the queue")
    parser.positional("group", metavar="GROUP", help="the group; it need not have had a job yet")
    _flow(parser, "", "of the group")
    parser.option(
        "--share",
        metavar="N",
        type=types.optional_count,
        help="turns for each one of another group, 1 to 100",
    )


ARGUMENTS = {
    "groups list": _groups,
    "groups set": _set_group,
    "submit": _submit,
    "get": _get,
    "list": _list,
    "workflow": _workflow,
    "events": _events,
    "stream": _stream,
    "cancel": _ids,
    "retry": _retry,
    "signal": _signal,
    "promote": _ids,
    "reschedule": _reschedule,
    "erase": _ids,
    "pause": _queues,
    "resume": _queues,
    "purge": _purge,
    "configure": _configure,
}
