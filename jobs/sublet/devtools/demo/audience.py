"""Show and count the demo's events."""

import asyncio
import time

from rich.markup import escape

from sublet.devtools.demo import FOLDER
from sublet.devtools.demo.ledger import Ledger, Worker
from sublet.devtools.demo.screen import Screen, WorkerStatus
from sublet.devtools.platform.reports import PlatformEvent

LOGS = {"worker": FOLDER / "workers.log", "api": FOLDER / "api.log"}
UNSHOWN = ("app", "dev", "pool")
UNSHOWN_EVENTS = ("started", "log", "hint", "info")
LINES_MAX = 8


class Audience:
    """Logs and counts events. Until `end_show`, shows workers' starts and ends, and failures of other
    processes; then keeps events for `print_lines`.
    """

    def __init__(self, screen: Screen) -> None:
        self.screen, self.ledger = screen, Ledger()
        self.began = time.monotonic()
        """Monotonic time of the first submit (before it: of this object's creation)."""
        self.api_url = ""
        self.api_ready = asyncio.Event()
        self._lines: list[str] | None = None

    @property
    def seconds(self) -> float:
        """Seconds since `began`."""
        return time.monotonic() - self.began

    def report(self, sign: str, words: str) -> None:
        """Show an event, dated now."""
        self.screen.add_event(self.seconds, sign, words)

    def __call__(self, event: PlatformEvent) -> None:
        """Log and count an event of the platform; show or keep it."""
        worker = self.ledger.record(event)
        self._log(event)
        if (event.source, event.event) == ("api", "ready"):
            self.api_url = event.detail
            self.api_ready.set()
        if (event.source, event.event) == ("dev", "stopping"):
            self.end_show()
        if self._lines is None:
            self._report_during_show(event, worker)
        elif event.source not in UNSHOWN and event.event not in UNSHOWN_EVENTS:
            self._lines.append(f"  {time.strftime('%H:%M:%S')}  {event.source:<8}{event.detail}")

    def _report_during_show(self, event: PlatformEvent, worker: Worker | None) -> None:
        if (event.source, event.event) == ("server", "ready"):
            self._introduce(event.detail)
        elif worker is None:
            if event.event in ("died", "failed"):
                self.report("!", f"{event.source} {event.detail}")
        elif event.event == "ready":
            self.report("+", f"{worker} started, because jobs wait")
        elif event.event in ("gone", "died") and worker.fate in ("left", "died"):
            why = f"exit {worker.exit}" if worker.exit else "idle"
            self.report("!" if worker.exit else "·", f"{worker} ended by itself ({why})")

    def _introduce(self, server: str) -> None:
        self.screen.print(
            "  [bold]Sublet[/]: a job scheduler with no master. Any process may die at any moment; no job is lost."
        )
        self.screen.print()
        self.screen.fact("server", server)

    def _log(self, event: PlatformEvent) -> None:
        if event.source in LOGS:
            with LOGS[event.source].open("a", errors="replace") as log:
                log.write(f"{time.strftime('%F %T')}  {event.event}  {event.detail}\n")

    def end_show(self) -> None:
        """From now on, keep events for `print_lines` instead of showing them."""
        self._lines = []

    def print_lines(self) -> None:
        """Print up to 8 events since the last call, and how many others there were."""
        lines, self._lines = self._lines or [], []
        for line in lines[:LINES_MAX]:
            self.screen.print(escape(line))
        if len(lines) > LINES_MAX:
            self.screen.print(f"  {time.strftime('%H:%M:%S')}  … and {len(lines) - LINES_MAX:,} more")

    def statuses(self) -> list[WorkerStatus]:
        """Return how many jobs each worker so far completed, and its fate."""
        signs = {"": "●", "killed": "✗", "frozen": "‖", "died": "✗", "left": "·"}
        return [
            WorkerStatus(str(worker), signs[worker.fate], f"{worker.completed:,} {worker.fate or 'done'}")
            for worker in self.ledger.workers
        ]
