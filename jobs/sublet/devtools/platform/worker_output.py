"""Pass on workers' events and tasks' output; count excess lines."""

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any

from sublet.devtools.platform.reports import Reporter
from sublet.scaling.invokers.process import Spawned
from sublet.worker.summary import COUNTERS

LINES_MAX = 12
INTERVAL = 0.5
STARTS_MAX = 1000
ENDS = (*COUNTERS, "lost", "crashed")
OMITTED = ("summary", "stopping", "draining", "leaving", "reconciled")


class WorkerOutput:
    """Turns workers' lines into events of `sublet dev`."""

    def __init__(self, report: Reporter, call: str = "sublet", lines_max: float = LINES_MAX) -> None:
        self._report, self._call, self._lines_max = report, call, lines_max
        self._hinted: set[str] = set()
        self._left, self._omitted = lines_max, 0
        self._began: dict[tuple[str, int], float] = {}

    async def run(self) -> None:
        """Every 0.5 s, report the number of omitted lines, and allow `lines_max` again."""
        while True:
            await asyncio.sleep(INTERVAL)
            if self._omitted:
                self._report("job", "more", f"… and {self._omitted:,} more", lines=self._omitted)
            self._left, self._omitted = self._lines_max, 0

    def read_line(self, worker: Spawned, line: str) -> None:
        """Report a worker's line as an event. Omits excess lines, which it counts, and events in OMITTED."""
        if not line.startswith('{"event":"'):
            self._pass_on("worker", "log", f"{worker.pid} │ {line}", pid=worker.pid)
        elif self._left <= 0 and line.startswith(('{"event":"completed"', '{"event":"started"')):
            self._omitted += line.startswith('{"event":"completed"')
        else:
            self._read_event(worker, line)

    def _pass_on(self, source: str, event: str, detail: str, **more: Any) -> None:
        if self._left <= 0:
            self._omitted += 1
            return
        self._left -= 1
        self._report(source, event, detail, **more)

    def _read_event(self, worker: Spawned, line: str) -> None:
        try:
            said = json.loads(line)
            event, detail = said["event"], said.get("detail", "")
            facts = {name: said[name] for name in ("id", "task", "queue", "attempt", "state") if name in said}
        except (ValueError, KeyError, TypeError):  # a task's output
            self._pass_on("worker", "log", f"{worker.pid} │ {line}", pid=worker.pid)
            return
        facts["pid"] = worker.pid
        if event == "ready":
            self._report("worker", "ready", f"{worker.pid} started", name=detail.split(" ")[0], **facts)
        elif "id" in facts:
            self._report_job(event, detail, facts, said.get("due_at", ""))
        elif event not in OMITTED:
            self._pass_on("worker", event, f"{worker.pid} {event}: {detail}", **facts)

    def _report_job(self, event: str, detail: str, facts: dict[str, Any], due: str) -> None:
        attempt = (facts["id"], facts["attempt"])
        took = ""
        if event == "started":
            if len(self._began) >= STARTS_MAX:  # a flood: no durations
                self._began.clear()
            self._began[attempt] = time.monotonic()
        elif event in ENDS and attempt in self._began:
            took = f" · {(time.monotonic() - self._began.pop(attempt)) * 1000:,.0f} ms"
        which = f"attempt {facts['attempt']}" if facts["attempt"] > 1 else ""
        more = "" if event in ("started", "completed") else detail
        then = (
            f" · {_retry_delay(due) or facts['state']}" if event != "completed" and facts.get("state") else ""
        )
        shown = "  ".join(filter(None, [event, facts["task"], facts["id"], which, more]))
        if event != "started":
            self._pass_on("job", event, shown + took + then, **facts)
            if event == "failed":
                self._hint(facts)
        elif self._left > 0:  # for programs, not limited
            self._report("job", event, shown, **facts)

    def _hint(self, facts: dict[str, Any]) -> None:
        if facts["task"] not in self._hinted and len(self._hinted) < STARTS_MAX:
            self._hinted.add(facts["task"])
            self._report("job", "hint", f"  → {self._call} get {facts['id']} --detail shows where", **facts)


def _retry_delay(due: str) -> str:
    try:
        seconds = (datetime.fromisoformat(due) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return ""
    if seconds < 1:
        return "again within 1 s"
    return f"again in {round(seconds):,} s" if seconds < 120 else f"again in {seconds / 60:,.0f} min"
