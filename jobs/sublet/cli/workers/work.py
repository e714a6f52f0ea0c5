"""`work`: run one worker in this process."""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from sublet.app import App
from sublet.cli.session import settings_for
from sublet.cli.workers.event_loop import calm_collector, loop_factory
from sublet.cli.workers.start import Start
from sublet.cli.workers.worker_events import EventPrinter, log_to_stderr
from sublet.connection.held_secrets import hold_secrets
from sublet.connection.settings import check
from sublet.devtools.bootstrap import ensure
from sublet.errors import Invalid
from sublet.execution.app_loader import check_same_namespace, load_apps, merged
from sublet.execution.runner import Limits
from sublet.model import Lease
from sublet.protocol.keys import check_name
from sublet.source_tree import install_command
from sublet.store.source import JobSource
from sublet.store.waiting.ready_queues import check_entries
from sublet.worker.summary import Summary
from sublet_functions.work import work as run_worker

log = logging.getLogger(__name__)

WORKER_ID = "SUBLET_WORKER_ID"
THREADS = ("sublet-task", "asyncio")
"""Prefixes of names of threads that run tasks: `run="thread"`, and `asyncio.to_thread`."""
EXIT_GRACE = 3.0
"""Seconds for Python's exit before it is forced."""
STOP_SECONDS = 0.3
BLOCKED_LEASES = 10
THREAD_GRACE = 0.25
"""Seconds that the threads of tasks get to end after the worker."""


def work(args: Namespace) -> int:
    """Store the apps' schedules (not over HTTP); run a worker until a signal, `workers drain`, empty queues
    (--drain), a time or a number of jobs. Print a summary. Return 1 if the worker stalled, else 0.
    """
    _check_arguments(args)
    _export_flags(args)
    url = _source_url(args)
    hold_secrets()
    printer = EventPrinter(sys.stdout, args.json or not sys.stdout.isatty(), args.quiet)
    with contextlib.redirect_stdout(sys.stderr):  # what tasks print
        return _run_apps(args, url, printer)


def _run_apps(args: Namespace, url: str | None, printer: EventPrinter) -> int:
    apps = load_apps(args.app)
    app = _one_app(args, apps, url)
    if not url:
        check(app.settings)
    log_to_stderr(args.json)
    logging.captureWarnings(True)
    source = _http_source(url, app) if url else None
    start = Start(apps, args, url or app.settings.shown_url)
    start.warnings += _without_tasks(apps, args.commands)
    threads = ThreadPoolExecutor(thread_name_prefix="asyncio")
    calm_collector()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.get_loop().set_default_executor(threads)
        summary = runner.run(_run_or_stop(args, app, _Events(printer, start), source))
        printer.print_summary(summary)
        threads.shutdown(wait=False, cancel_futures=True)
        exit_despite_running_tasks(summary.stuck, int(summary.stalled))
    return int(summary.stalled)


def _one_app(args: Namespace, apps: Mapping[str, App], url: str | None) -> App:
    for app in apps.values():
        app.settings = settings_for(args, app)
    if not url:
        check_same_namespace(apps)
    return merged(apps)


def _without_tasks(apps: Mapping[str, App], commands: bool) -> list[str]:
    alone = ": this worker releases every job" if len(apps) == 1 else ""
    return [
        f'{place} has no task{alone}; list the modules that declare tasks, as in App(include=["shop.mail"])'
        for place, app in apps.items()
        if not (app.tasks or commands)
    ]


class _Events(NamedTuple):
    printer: EventPrinter
    start: Start

    def report(self, event: str, lease: Lease | None, detail: str) -> None:
        if event == "leaving" and not self.start.pool_exists:
            detail = detail.partition(", and pool ")[0]
        self.printer.print_event(event, lease, detail)
        for warning in self.start.warnings if event == "ready" else ():
            self.printer.print_event("warning", None, warning)


async def _run_or_stop(args: Namespace, app: App, events: _Events, source: JobSource | None) -> Summary:
    began = time.monotonic()
    running = asyncio.create_task(_run(args, app, events, source))
    stopped = asyncio.create_task(events.start.stopped.wait())
    await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
    if not stopped.cancel():
        running.cancel()
        await asyncio.wait([running], timeout=STOP_SECONDS)
        return Summary(seconds=round(time.monotonic() - began, 3))
    return await running


async def _run(args: Namespace, app: App, events: _Events, source: JobSource | None) -> Summary:
    try:
        return await run_worker(
            app,
            source,
            queues=args.queues,
            strict=args.strict,
            slots=args.slots,
            processes=args.processes,
            lease=args.lease,
            grace=args.grace,
            stall=args.stall,
            blocked=BLOCKED_LEASES * args.lease,
            limits=Limits(args.memory, args.jobs_per_child, args.cpu),
            commands=args.commands,
            drain=args.drain,
            seconds=args.seconds,
            max_jobs=args.max_jobs,
            name=args.name,
            worker_id=os.environ.get(WORKER_ID, ""),
            pool=args.pool,
            summons=args.summons,
            linger=args.linger,
            report=events.report,
            connect=events.start.connect,
        )
    finally:
        if source:
            await source.aclose()


def _check_arguments(args: Namespace) -> None:
    if not args.app:
        raise Invalid("MODULE:APP is missing: say where the tasks are, or set SUBLET_APP")
    check_entries(args.queues or [])
    _check_names("name", *filter(None, (args.name, args.pool, args.summons)))
    if args.summons and not args.pool:
        raise Invalid("--summons needs --pool: name the pool")
    if args.linger and not args.drain:
        raise Invalid("--linger needs --drain: add --drain, or leave --linger out")
    _check_names(WORKER_ID, *filter(None, [os.environ.get(WORKER_ID)]))


def _check_names(kind: str, *names: str) -> None:
    for name in names:
        check_name(kind, name)


def _export_flags(args: Namespace) -> None:
    for flag, variable in (
        ("redis_url", "SUBLET_REDIS_URL"),
        ("namespace", "SUBLET_NAMESPACE"),
        ("log_level", "SUBLET_LOG_LEVEL"),
    ):
        if getattr(args, flag):
            os.environ[variable] = getattr(args, flag)


def _source_url(args: Namespace) -> str | None:
    given, redis = args.source, bool(args.redis_url or args.namespace)
    if given and redis:
        raise Invalid(
            "--source: that API has its own Redis and namespace; leave --redis-url and --namespace out"
        )
    return given or (None if redis else os.environ.get("SUBLET_SOURCE"))


def _http_source(url: str, app: App) -> JobSource:
    ensure(("http",))
    try:
        from sublet.store.http import HttpSource
    except ImportError as error:
        raise Invalid(
            f"a worker over HTTP (--source, SUBLET_SOURCE) needs sublet[http] ({error}): {install_command('http')}"
        ) from None
    return HttpSource.read(url, app.settings.timeout)


def exit_despite_running_tasks(stuck: int, code: int) -> None:
    """Exit with `code` if `stuck` (tasks that ignored their cancellation) is above 0, or threads of tasks do
    not end in 0.25 s: Python would wait for them. Else return, and force the exit 3 s later.
    """
    until = time.monotonic() + THREAD_GRACE
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(THREADS)]
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    left = max(stuck, sum(thread.is_alive() for thread in threads))
    if left:
        what = "a task has" if left == 1 else f"{left:,} tasks have"
        log.warning(
            "exit although %s not ended: a task in a child process can be killed, one in a thread cannot",
            what,
        )
        _exit(code)
    threading.Thread(target=_exit_later, args=(code,), name="sublet-last-resort", daemon=True).start()


def _exit_later(code: int) -> None:
    time.sleep(EXIT_GRACE)
    log.warning("exit although tasks left threads or asyncio tasks that did not end in %g s", EXIT_GRACE)
    _exit(code)


def _exit(code: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
