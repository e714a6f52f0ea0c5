"""`work`: one worker in this process."""

import asyncio
import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Callable

from functions.work import work as run_worker
from jobs.cli.events import Events, log_to_stderr
from jobs.cli.load import load_app
from jobs.cli.session import client_of, settings_for
from jobs.errors import Invalid
from jobs.keys import is_name


def work(args: Namespace) -> int:
    """Run a worker until it is stopped, its queues are dry, or its time is up; then say what it did."""
    if not args.app:
        raise Invalid("MODULE:APP is missing: say where the tasks are, or set SUBLET_APP")
    for name in [*(args.queues or []), *([args.name] if args.name else [])]:
        if not is_name(name):
            raise Invalid(f"name {name[:130]!r}: use 1 to 128 of A-Z a-z 0-9 _ . : -")
    for flag, variable in (("redis_url", "SUBLET_REDIS_URL"), ("namespace", "SUBLET_NAMESPACE")):
        if getattr(args, flag):
            os.environ[variable] = getattr(args, flag)  # for the child processes, which load the app anew
    app = load_app(args.app)
    app.settings = settings_for(args, app)
    client_of(app.settings).close()  # a URL that cannot be is refused here
    log_to_stderr(args.json)
    events = Events(sys.stdout, args.json or not sys.stdout.isatty(), args.quiet)
    running = run_worker(
        app,
        queues=args.queues,
        slots=args.slots,
        lease=args.lease,
        drain=args.drain,
        seconds=args.seconds,
        name=args.name,
        report=events.hear,
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        summary = runner.run(running)
    events.sum_up(summary)
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """That of uvloop, where somebody has installed it."""
    try:
        found: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None
    return found
