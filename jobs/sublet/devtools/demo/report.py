"""The end of the demo: print the results; without `--once`, keep running."""

import ast
import asyncio
import json
from collections.abc import Sequence

from rich.markup import escape

from sublet.devtools.demo.audience import Audience
from sublet.devtools.demo.corpus import Corpus
from sublet.devtools.demo.screen import Screen
from sublet.devtools.demo.tally import Tally
from sublet.devtools.demo.tasks import Report

LARGEST = 5
POLL_SECONDS = 0.2


def print_report(screen: Screen, corpus: Corpus, tally: Tally, reports: Sequence[Report]) -> None:
    """Print the largest files, totals, tally and complaints."""
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


async def keep_running(audience: Audience, redis_url: str, queue: str, call: str) -> None:
    """Once the API runs, print commands to try, then events, until cancelled. `call`: this program's command
    line.
    """
    await audience.api_ready.wait()
    screen = audience.screen
    screen.print()
    screen.print(f"  The dashboard: [bold]{escape(audience.api_url)}/ui[/]")
    screen.print(
        "  The server and the HTTP API keep running; workers start when there is work, and leave when idle. Try, in another terminal:"
    )
    for line in _by_http(audience.api_url, queue):
        screen.print(f"    [bold]{escape(line)}[/]")
    screen.print("  The same with the command:")
    for line in _by_command(redis_url, queue, call):
        screen.print(f"    [bold]{escape(line)}[/]")
    screen.print("  Ctrl-C stops everything; the data are kept.")
    while True:
        audience.print_lines()
        await asyncio.sleep(POLL_SECONDS)


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
    return json.dumps(text).replace("'", "'\\''")
