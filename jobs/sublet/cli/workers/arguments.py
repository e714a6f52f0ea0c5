"""Arguments of `work`, `serve`, `workers`, `pools` and `scale`."""

from sublet.cli import argument_types as types
from sublet.cli import common_arguments
from sublet.cli.parser import CommandParser

PROCESSES = types.integer_up_to(1_000, "each is a Python process")


def _work(parser: CommandParser) -> None:
    common_arguments.apps(parser)
    _work_sources(parser)
    _work_until(parser)
    _work_capacity(parser)
    _work_timeouts(parser)
    _work_identity(parser)
    parser.switch("--quiet", "no events, only the summary; --log-level info: of job logs")
    parser.option("--log-level", metavar="LEVEL", type=types.log_level, default=None, help=types.HIDDEN)


def _work_sources(parser: CommandParser) -> None:
    option = parser.option
    option(
        "--queues",
        metavar="A:3,B",
        type=types.weighted_names,
        default=None,
        help="in turns (3 to 1), or --strict; a-*: all that begin so",
    )
    parser.switch("--strict", types.HIDDEN)
    option("--source", metavar="URL", default=None, help="claim over HTTP (SUBLET_SOURCE, SUBLET_TOKEN)")
    parser.switch("--commands", "also run `command`: any program that a submitter names")


def _work_until(parser: CommandParser) -> None:
    option = parser.option
    parser.switch("--drain", "stop when the queues are empty; --linger 5s: for so long")
    option("--linger", metavar="5s", type=types.duration, default=0.0, help=types.HIDDEN)
    common_arguments.seconds(parser, "50s", "stop by then; jobs that cannot finish in time are released")
    option(
        "--max-jobs",
        metavar="N",
        type=types.positive_integer,
        default=None,
        help="stop after N jobs; --wait 0: exit 3 if Redis is away",
    )
    option("--wait", metavar="30s", type=types.duration, default=None, help=types.HIDDEN)


def _work_capacity(parser: CommandParser) -> None:
    option = parser.option
    option(
        "--slots",
        metavar="N",
        type=common_arguments.SLOTS,
        default=None,
        help="jobs at a time (100; for plain functions, --processes)",
    )
    option(
        "--processes",
        metavar="N",
        type=PROCESSES,
        default=None,
        help="child processes for plain functions (one per core)",
    )
    option(
        "--jobs-per-child",
        metavar="N",
        type=types.positive_integer,
        default=None,
        help="replace a child process after N jobs",
    )
    option(
        "--memory",
        metavar="512MiB",
        type=types.child_memory,
        default=None,
        help="limit of a child process; --cpu 60s: CPU time of a job",
    )
    option("--cpu", metavar="60s", type=types.positive_duration, default=None, help=types.HIDDEN)


def _work_timeouts(parser: CommandParser) -> None:
    option = parser.option
    common_arguments.lease(parser)
    option(
        "--grace",
        metavar="8s",
        type=types.duration,
        default=8.0,
        help="time for running jobs after a signal (8s)",
    )
    option(
        "--stall",
        metavar="5m",
        type=types.positive_duration,
        default=None,
        help="exit 1 if no running job ends for so long",
    )


def _work_identity(parser: CommandParser) -> None:
    option = parser.option
    option("--name", metavar="NAME", default=None, help="display name (host, pid, random)")
    option("--pool", metavar="NAME", default="", help="its pool; --summons ID: the summons that started it")
    option("--summons", metavar="ID", default="", help=types.HIDDEN)


def _serve(parser: CommandParser) -> None:
    option = parser.option
    option(
        "--host", metavar="ADDRESS", default=None, help="listen here (SUBLET_HOST, 127.0.0.1); all: 0.0.0.0"
    )
    option(
        "--port",
        metavar="PORT",
        type=types.port,
        default=None,
        help="the port (SUBLET_PORT, PORT, 8377); 0: any free port",
    )
    option(
        "--app", metavar="MODULE:APP", default=None, help="worker function: POST /work runs jobs of this app"
    )
    option(
        "--check-tasks",
        metavar="HOW",
        choices=("refuse", "warn", "off"),
        default=None,
        help="jobs that no task fits: refuse (with --app), warn, off",
    )
    option("--tokens-file", metavar="FILE", default=None, help="lines NAME:ROLES:SECRET (SUBLET_TOKENS_FILE)")


def _drain(parser: CommandParser) -> None:
    common_arguments.several(parser, "names", "NAME…", "names, or unique beginnings or ends of names")


def _pool(parser: CommandParser) -> None:
    parser.positional("name", metavar="NAME", help="the pool")


def _pools(parser: CommandParser) -> None:
    common_arguments.several(parser, "names", "NAME…", "the pools")


def _set_pool(parser: CommandParser) -> None:
    _pool(parser)
    option = parser.option
    option("--queues", metavar="A,B", type=types.names, help="queues whose jobs its workers run")
    option("--invoker", metavar="KIND", help="how workers are started: http, lambda, process, none (none)")
    option("--target", metavar="TARGET", help="its address: a URL (http), a function's name (lambda)")
    option("--min", metavar="N", type=types.integer, help="workers to keep, even without jobs (0)")
    option("--max", metavar="N", type=types.integer, help="workers at most (10)")
    option("--wait", metavar="5s", type=types.positive_duration, help="longest time a job should wait (5s)")
    option("--slots", metavar="N", type=types.positive_integer, help="jobs that a worker runs at a time (10)")
    option("--linger", metavar="5s", type=types.duration, help="how long an idle worker stays (5s)")
    option(
        "--arrive",
        metavar="15s",
        type=types.positive_duration,
        help="start-up time of a worker at most (15s)",
    )


def _scale(parser: CommandParser) -> None:
    parser.positional("pool", metavar="POOL", nargs="?", default="", help="only this pool")


ARGUMENTS = {
    "work": _work,
    "serve": _serve,
    "workers drain": _drain,
    "pools show": _pool,
    "pools set": _set_pool,
    "pools remove": _pools,
    "scale": _scale,
}
