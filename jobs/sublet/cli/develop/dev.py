"""`dev`: run a function platform in this terminal."""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from argparse import Namespace
from pathlib import Path

from sublet.cli.output import clean, document, escaped, paint, put, write
from sublet.cli.parser import program
from sublet.cli.session import client_of, settings_of
from sublet.cli.workers.event_loop import loop_factory
from sublet.cli.workers.worker_events import log_to_stderr, rfc3339
from sublet.devtools.bootstrap import missing
from sublet.devtools.platform.reports import PlatformEvent
from sublet.errors import Invalid
from sublet.execution.app_loader import load_app
from sublet.source_tree import install_command

NEEDED = ("aiohttp>=3.14.1", "prometheus-client>=0.22")
COLOURS = {"died": "red", "failed": "red", "broken": "red", "frozen": "yellow", "killed": "yellow", "stopping": "yellow",
           "warning": "yellow", "error": "red", "ready": "green", "completed": "green", "reloaded": "cyan", "released": "yellow",
           "refused": "yellow", "lost": "yellow", "crashed": "red", "try": "bold", "load": "dim", "started": "dim",
           "hint": "dim"}  # fmt: skip
HIDDEN = ("started",)
WIDE = 8


def dev(args: Namespace) -> int:
    """Run the platform until Ctrl-C or SIGTERM; return its exit code. With --check only describe the app."""
    if not args.app:
        raise Invalid("MODULE:APP is missing: say where the tasks are, or set SUBLET_APP")
    if args.check:
        return _check(args)
    lacking = missing(NEEDED)
    if lacking:
        raise Invalid(f"dev needs {' and '.join(lacking)}: {install_command('dev')}")
    if args.redis_url and args.data:
        raise Invalid(
            "--data is for the server that dev starts; with --redis-url it starts none: leave one of them out"
        )
    from sublet.devtools.platform.platform import (
        STOPPED_AT_ONCE,
        Platform,
        PlatformConfig,
    )

    settings = settings_of(args)
    with client_of(settings):  # refuses an invalid URL
        pass
    wishes = PlatformConfig(
        app=args.app, settings=settings, embedded=not args.redis_url, data=Path(args.data).absolute() if args.data else None,
        port=args.port, workers=args.workers, slots=args.slots, linger=args.linger, lease=args.lease, reload=not args.no_reload,
        call=program(),
    )  # fmt: skip
    log_to_stderr(args.json, args.debug)
    logging.getLogger().setLevel(logging.DEBUG if args.debug else logging.WARNING)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        code = runner.run(Platform(wishes, EventPrinter(args.json)).run())
        if code == STOPPED_AT_ONCE:
            sys.stdout.flush()
            os._exit(code)
    return code


def _check(args: Namespace) -> int:
    from sublet.devtools.platform.app_info import describe

    found = describe(args.app, load_app(args.app))
    if args.json:
        document(found.model_dump())
    else:
        timed = f" · schedules {', '.join(found.schedules)}" if found.schedules else ""
        write(
            f"{found.app}: tasks {', '.join(found.tasks) or 'none'} · queues {', '.join(found.queues)}{timed}"
        )
    return 0


class EventPrinter:
    """Prints the platform's events, as text or JSON."""

    def __init__(self, as_json: bool) -> None:
        self._json, self._unread = as_json, False

    def __call__(self, entry: PlatformEvent) -> None:
        """Print an event, a HIDDEN one only as JSON. If stdout has no reader any more, stop this process."""
        if self._unread or (entry.event in HIDDEN and not self._json):
            return
        try:
            put(self._as_json(entry) if self._json else self._as_text(entry))
            sys.stdout.flush()
        except BrokenPipeError:
            self._unread = True
            signal.raise_signal(signal.SIGTERM)

    def _as_json(self, entry: PlatformEvent) -> str:
        line = {
            "at": rfc3339(time.time()),
            "source": entry.source,
            "event": entry.event,
            "detail": entry.detail,
        }
        return escaped(json.dumps({**line, **entry.more}, ensure_ascii=False))

    def _as_text(self, entry: PlatformEvent) -> str:
        if entry.event == "try":
            return f"          {paint(clean(entry.detail), 'bold')}"
        text = clean(entry.detail)
        return f"{time.strftime('%H:%M:%S')}  {entry.source.ljust(WIDE)}{paint(text, COLOURS.get(entry.event, ''))}".rstrip()
