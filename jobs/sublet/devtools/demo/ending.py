"""How the demo ends: the sums on the screen, and then, if wanted, a server, workers and the HTTP API to play with."""

import ast
import json
import os
import time
from collections.abc import Sequence

from rich.markup import escape

from sublet.devtools.demo import FOLDER
from sublet.devtools.demo.cast import Cast, Stuck
from sublet.devtools.demo.corpus import Corpus
from sublet.devtools.demo.screen import Screen
from sublet.devtools.demo.tally import Tally
from sublet.devtools.demo.tasks import Report
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.devtools.platform.api import ApiPiece

LARGEST = 5
"""Files in the table of the largest."""
GLANCE = 0.2
"""Seconds between two looks at the workers while somebody plays."""
SHOWN = ("ready", "completed", "failed", "released", "refused", "lost", "crashed")
"""What of that is shown."""
AT_ONCE = 8
"""Lines of the workers that are shown at one glance."""


def sums(screen: Screen, corpus: Corpus, tally: Tally, reports: Sequence[Report]) -> None:
    """What the work has found, what came of the jobs, and what went wrong."""
    largest = sorted(reports, key=lambda report: -report.lines)[:LARGEST]
    rows = [
        (corpus.name(r.path), f"{r.lines:,}", f"{r.functions:,}", f"{r.classes:,}", str(r.depth))
        for r in largest
    ]  # fmt: skip
    screen.say()
    screen.table(("largest files, from Redis", "lines", "functions", "classes", "depth"), rows)
    screen.say()
    screen.parts(_totals(corpus, reports))
    screen.parts(tally.words(), "bold red" if tally.complaints() else "bold green")
    for complaint in tally.complaints():
        screen.parts([complaint], "bold red")


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


def play(screen: Screen, server: EmbeddedServer, cast: Cast, api: ApiPiece, queue: str, call: str) -> None:
    """Leave everything up, say what to try, and show what the workers do; `call` is how to call this program.

    Ends by a signal alone. Raises Stuck when the server is gone.
    """
    api.start()
    screen.say()
    screen.say(
        "  The server and the HTTP API stay up; workers come when there is work, and go. Try, in another terminal:"
    )
    for line in _by_http(api.url, queue):
        screen.say(f"    [bold]{escape(line)}[/]")
    screen.say("  The same with the command:")
    for line in _by_command(server.url, queue, call):
        screen.say(f"    [bold]{escape(line)}[/]")
    screen.say("  Ctrl-C stops everything; the data stay.")
    while True:
        _glance(screen, cast)
        if not _is_alive(server.pid):
            raise Stuck(f"the server is gone; its log is {FOLDER / 'server.log'}")
        if api.exit is not None:
            screen.say(f"  {time.strftime('%H:%M:%S')}  the HTTP API died ({api.exit}); another one starts")
            api.start()
        time.sleep(GLANCE)


def _by_http(url: str, queue: str) -> list[str]:
    """Lines for a shell: submit a job, wait for its result, look around."""
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
    """The same, by the command of this program."""
    return [
        f"export SUBLET_REDIS_URL={url}",
        f"{call} submit analyse '{{\"path\": {_quoted(ast.__file__)}}}' --wait --queue {queue}",
        f"{call} stats",
        f"{call} list --state completed --limit 5",
        f"{call} doctor",
    ]


def _quoted(text: str) -> str:
    """A text as JSON, between the single quotes of a shell."""
    return json.dumps(text).replace("'", "'\\''")


def _glance(screen: Screen, cast: Cast) -> None:
    said = [(worker, line) for worker, line in cast.listen() if line.event in SHOWN]
    for worker, line in said[:AT_ONCE]:
        what = f"{line.event} {line.task} {line.job}, attempt {line.attempt}" if line.job else "is here"
        screen.say(escape(f"  {time.strftime('%H:%M:%S')}  {worker} {what}"))
    if len(said) > AT_ONCE:
        screen.say(f"  {time.strftime('%H:%M:%S')}  … and {len(said) - AT_ONCE:,} more")
    for worker in cast.gone():
        why = (
            f"died ({worker.exit}); another is summoned if one is owed"
            if worker.exit
            else "left: there is nothing to do"
        )
        screen.say(f"  {time.strftime('%H:%M:%S')}  {worker} {why}")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
