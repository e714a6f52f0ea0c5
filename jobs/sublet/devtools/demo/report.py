"""The end of the demo: print the results; without `--once`, keep all processes running."""

import ast
import json
import os
import time
from collections.abc import Sequence

from rich.markup import escape

from sublet.devtools.demo import FOLDER
from sublet.devtools.demo.corpus import Corpus
from sublet.devtools.demo.screen import Screen
from sublet.devtools.demo.tally import Tally
from sublet.devtools.demo.tasks import Report
from sublet.devtools.demo.worker_group import DemoFailed, WorkerGroup
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.devtools.platform.api_service import ApiService

LARGEST = 5
POLL_SECONDS = 0.2
SHOWN = ("ready", "completed", "failed", "released", "refused", "lost", "crashed")
LINES_MAX = 8
"""Lines printed per read; the rest is counted."""


def print_report(screen: Screen, corpus: Corpus, tally: Tally, reports: Sequence[Report]) -> None:
    """Print the results, the outcomes and the failures."""
    largest = sorted(reports, key=lambda report: -report.lines)[:LARGEST]
    rows = [
        (corpus.name(r.path), f"{r.lines:,}", f"{r.functions:,}", f"{r.classes:,}", str(r.depth))
        for r in largest
    ]  # fmt: skip
    screen.print()
    screen.table(("largest files, from Redis", "lines", "functions", "classes", "depth"), rows)
    screen.print()
    screen.phrases(_totals(corpus, reports))
    screen.phrases(tally.words(), "bold red" if tally.complaints() else "bold green")
    for complaint in tally.complaints():
        screen.phrases([complaint], "bold red")


def _totals(corpus: Corpus, reports: Sequence[Report]) -> list[str]:
    kinds = {"lines": "lines of code", "functions": "functions", "classes": "classes"}
    words = [
        f"{len(reports):,} files",
        *(f"{sum(getattr(r, kind) for r in reports):,} {name}" for kind, name in kinds.items()),
    ]
    deepest = max(reports, key=lambda report: report.depth, default=None)
    if deepest:
        words.append(f"{deepest.depth} blocks deep at {corpus.name(deepest.path)}:{deepest.deepest}")
    unread = sum(report.problem is not None for report in reports)
    return [*words, f"{unread} not valid Python"] if unread else words


def keep_running(
    screen: Screen, server: EmbeddedServer, group: WorkerGroup, api: ApiService, queue: str, call: str
) -> None:
    """Keep all processes running, and print the workers' events, until a signal.

    `call` is this program's command line. Raises DemoFailed when the server has ended.
    """
    api.start()
    screen.print()
    screen.print(
        "  The server and the HTTP API keep running; workers start when there is work, and leave when idle. Try, in another terminal:"
    )
    for line in _by_http(api.url, queue):
        screen.print(f"    [bold]{escape(line)}[/]")
    screen.print("  The same with the command:")
    for line in _by_command(server.url, queue, call):
        screen.print(f"    [bold]{escape(line)}[/]")
    screen.print("  Ctrl-C stops everything; the data are kept.")
    while True:
        _print_events(screen, group)
        if not _is_alive(server.pid):
            raise DemoFailed(f"the server has ended: see its log, {FOLDER / 'server.log'}")
        if api.exit is not None:
            screen.print(f"  {time.strftime('%H:%M:%S')}  the HTTP API died ({api.exit}); it is restarted")
            api.start()
        time.sleep(POLL_SECONDS)


def _by_http(url: str, queue: str) -> list[str]:
    return [
        f"SUBLET={url}",
        "ID=$(curl -s $SUBLET/jobs -H content-type:application/json -d '",
        f'  {{"task": "analyse", "queue": "{queue}", "payload":',
        f'  {{"path": {_quoted(ast.__file__)}}}}}\' | cut -d\\" -f4)',
        'curl -s "$SUBLET/jobs/$ID?wait=20"',
        "curl -s $SUBLET/stats",
        'curl -s "$SUBLET/jobs?state=completed&limit=2"',
    ]


def _by_command(url: str, queue: str, call: str) -> list[str]:
    return [
        f"export SUBLET_REDIS_URL={url}",
        f"{call} submit analyse '{{\"path\": {_quoted(ast.__file__)}}}' --wait --queue {queue}",
        f"{call} stats",
        f"{call} list --state completed --limit 5",
        f"{call} doctor",
    ]


def _quoted(text: str) -> str:
    """Return JSON for use between single quotes in a shell."""
    return json.dumps(text).replace("'", "'\\''")


def _print_events(screen: Screen, group: WorkerGroup) -> None:
    events = [(worker, event) for worker, event in group.read_events() if event.event in SHOWN]
    for worker, event in events[:LINES_MAX]:
        what = f"{event.event} {event.task} {event.job}, attempt {event.attempt}" if event.job else "started"
        screen.print(escape(f"  {time.strftime('%H:%M:%S')}  {worker} {what}"))
    if len(events) > LINES_MAX:
        screen.print(f"  {time.strftime('%H:%M:%S')}  … and {len(events) - LINES_MAX:,} more")
    for worker in group.take_ended():
        why = (
            f"died ({worker.exit}); another is summoned if the pool owes one"
            if worker.exit
            else "left: it was idle"
        )
        screen.print(f"  {time.strftime('%H:%M:%S')}  {worker} {why}")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
