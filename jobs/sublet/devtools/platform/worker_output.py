"""What the workers say, passed on: their events, and what tasks print. A flood is counted, not shown."""

import asyncio
import json
import time
from datetime import UTC, datetime
from typing import Any

from sublet.devtools.platform.reports import Reporter
from sublet.scaling.invokers.process import Spawned

AT_ONCE = 12
"""Lines about jobs that are passed on in one glance."""
GLANCE = 0.5
"""Seconds."""
REMEMBERED = 1000
"""Attempts whose beginning is remembered."""
ENDS = ("completed", "failed", "released", "refused", "lost", "crashed")
QUIET = ("summary", "stopping", "draining", "leaving", "reconciled")
"""Events of which nobody needs to hear here."""


class WorkerOutput:
    """Hears the workers."""

    def __init__(self, report: Reporter, call: str = "sublet") -> None:
        self._report, self._call = report, call
        self._pointed: set[str] = set()
        self._left, self._missed = AT_ONCE, 0
        self._began: dict[tuple[str, int], float] = {}

    async def run(self) -> None:
        """Say now and then how many lines were not passed on."""
        while True:
            await asyncio.sleep(GLANCE)
            if self._missed:
                self._report("job", "more", f"… and {self._missed:,} more", lines=self._missed)
            self._left, self._missed = AT_ONCE, 0

    def hear(self, worker: Spawned, line: str) -> None:
        """Take a line from a worker."""
        if not line.startswith('{"event":"'):
            self._pass_on("worker", "log", f"{worker.pid} │ {line}", pid=worker.pid)
        elif self._left <= 0 and line.startswith(('{"event":"completed"', '{"event":"started"')):
            self._missed += line.startswith('{"event":"completed"')
        else:
            self._hear_event(worker, line)

    def _pass_on(self, who: str, event: str, words: str, **more: Any) -> None:
        if self._left <= 0:
            self._missed += 1
            return
        self._left -= 1
        self._report(who, event, words, **more)

    def _hear_event(self, worker: Spawned, line: str) -> None:
        try:
            said = json.loads(line)
            event, words = said["event"], said.get("words", "")
            facts = {name: said[name] for name in ("id", "task", "queue", "attempt", "state") if name in said}
        except (ValueError, KeyError, TypeError):  # a task has printed what looks like one
            self._pass_on("worker", "log", f"{worker.pid} │ {line}", pid=worker.pid)
            return
        facts["pid"] = worker.pid
        if event == "ready":
            self._report("worker", "ready", f"{worker.pid} is here", name=words.split(" ")[0], **facts)
        elif "id" in facts:
            self._hear_of_job(event, words, facts, said.get("due_at", ""))
        elif event not in QUIET:
            self._pass_on("worker", event, f"{worker.pid} {event}: {words}", **facts)

    def _hear_of_job(self, event: str, words: str, facts: dict[str, Any], due: str) -> None:
        attempt = (facts["id"], facts["attempt"])
        took = ""
        if event == "started":
            if len(self._began) >= REMEMBERED:  # the ends of a flood are not looked at
                self._began.clear()
            self._began[attempt] = time.monotonic()
        elif event in ENDS and attempt in self._began:
            took = f" · {(time.monotonic() - self._began.pop(attempt)) * 1000:,.0f} ms"
        which = f"attempt {facts['attempt']}" if facts["attempt"] > 1 else ""
        more = "" if event in ("started", "completed") else words
        then = f" · {_again(due) or facts['state']}" if event != "completed" and facts.get("state") else ""
        shown = "  ".join(filter(None, [event, facts["task"], facts["id"], which, more]))
        if event != "started":
            self._pass_on("job", event, shown + took + then, **facts)
            if event == "failed":
                self._point(facts)
        elif self._left > 0:  # for programs; it takes no place from what people see
            self._report("job", event, shown, **facts)

    def _point(self, facts: dict[str, Any]) -> None:
        """Say where more is to be seen of a failure: once for each task, for the next one is looked up in the same way."""
        if facts["task"] not in self._pointed and len(self._pointed) < REMEMBERED:
            self._pointed.add(facts["task"])
            self._report("job", "hint", f"  → {self._call} get {facts['id']} --detail shows where", **facts)


def _again(due: str) -> str:
    """When a job is tried again, in words; empty if it is not."""
    try:
        seconds = (datetime.fromisoformat(due) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return ""
    return f"again in {max(0, round(seconds)):,} s" if seconds < 120 else f"again in {seconds / 60:,.0f} min"
