"""Many runs, one seed after the other, for some time. The first failure stops them."""

import json
import os
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.simulation.choices import Choices
from tests.faults.simulation.run import Outcome, run
from tests.faults.simulation.shrink import smallest


@dataclass
class Campaign:
    """The totals of several runs."""

    first: int
    runs: int = 0
    steps: int = 0
    calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    failed: Outcome | None = None
    """The first failing run."""
    shrunk: Outcome | None = None
    """The same after shrinking."""
    stopped: bool = False

    @classmethod
    def resumed(cls, path: Path) -> "Campaign | None":
        """Load the totals of earlier runs, to continue after the last one; None if the file does not exist."""
        if not path.exists():
            return None
        totals = json.loads(path.read_text())
        if totals["failed"]:
            raise SystemExit(
                f"{path}: seed {totals['failed']['seed']} failed: repair the defect, and start with another file"
            )
        sums = {name: totals[name] for name in ("runs", "steps", "calls", "seconds")}
        return cls(
            totals["first_seed"], faults=Counter(totals["faults"]), ends=Counter(totals["jobs"]), **sums
        )

    def save(self, path: Path) -> None:
        """Save the totals atomically."""
        new = path.with_name(path.name + ".new")
        new.write_text(json.dumps(self.document()))
        os.replace(new, path)

    def add(self, outcome: Outcome) -> None:
        """Count one more run."""
        self.runs, self.steps, self.calls = (
            self.runs + 1,
            self.steps + outcome.steps,
            self.calls + outcome.calls,
        )
        self.faults += outcome.faults
        self.ends += outcome.ends
        if outcome.wrong:
            self.failed = outcome

    def line(self) -> str:
        """The numbers on one line."""
        rate = self.runs / self.seconds if self.seconds else 0
        kinds = " · ".join(f"{count:,} {name}" for name, count in self.faults.most_common())
        faults = f"{sum(self.faults.values()):,} faults{f' ({kinds})' * bool(kinds)}"
        return f"{self.runs:,} runs ({rate:.1f} seeds/s) · {self.steps:,} steps · {self.calls:,} calls · {faults}"

    def summary(self) -> str:
        """The numbers, and the story of the failure."""
        jobs = ", ".join(f"{count:,} {state}" for state, count in self.ends.most_common())
        lines = [
            f"seeds {self.first} to {self.first + self.runs - 1} in {self.seconds:.1f} s"
            if self.runs
            else "no run",
            self.line(),
        ]
        lines.append(f"{sum(self.ends.values()):,} jobs: {jobs}" if jobs else "no jobs")
        if self.failed is None:
            lines.append(
                "stopped before the time was over"
                if self.stopped
                else "all invariants held, all histories are legal"
            )
        else:
            shown = self.shrunk or self.failed
            lines += [f"seed {self.failed.seed} FAILS: {self.failed.wrong}",
                      f"its {len(self.failed.deviations)} deviations from a run without faults were reduced to {len(shown.deviations)}"
                      + (f" (those of seed {shown.seed}, which are fewer)" if shown.seed != self.failed.seed else "") + ":",
                      *(f"  {name}: option {number}" for name, number in sorted(shown.deviations.items())),
                      "", "The run (seconds; indented: the scripts that Redis runs, and their replies):", *shown.story]  # fmt: skip
        return "\n".join(lines)

    def document(self) -> dict[str, Any]:
        """The same for a program."""
        failed, shown = self.failed, self.shrunk
        return {
            "first_seed": self.first, "runs": self.runs, "steps": self.steps, "calls": self.calls, "faults": dict(self.faults),
            "jobs": dict(self.ends), "seconds": round(self.seconds, 3), "stopped": self.stopped,
            "failed": failed and {"seed": failed.seed, "wrong": failed.wrong, "deviations": len(failed.deviations)},
            "shrunk": shown and {"seed": shown.seed, "wrong": shown.wrong, "deviations": shown.deviations, "story": shown.story},
        }  # fmt: skip


def campaign(
    first: int,
    seconds: float,
    most: int = 10**9,
    show: Any = None,
    *,
    calls: int = 10**12,
    before: Campaign | None = None,
) -> Campaign:
    """Run seed after seed until the time is over, `most` runs or the calls are reached, or a run fails. Shrink the failure.

    With totals `before`, it continues after their last seed.
    """
    found, began = before or Campaign(first), time.monotonic()
    ran = found.seconds
    try:
        if show:
            show(found)
        while (
            found.runs < most
            and found.calls < calls
            and found.failed is None
            and time.monotonic() - began < seconds
        ):
            found.add(run(Choices(found.first + found.runs)))
            found.seconds = ran + time.monotonic() - began
            if show:
                show(found)
        if found.failed:
            found.shrunk = smallest(found.failed)
    except KeyboardInterrupt:
        found.stopped = True
    return found


class Progress:
    """Progress on stderr: one line that is overwritten on a terminal, elsewhere a line every ten seconds."""

    def __init__(self, first: int, seconds: float, kept: Path | None = None) -> None:
        self.terminal = sys.stderr.isatty()
        self.kept = kept
        self._head = f"seeds from {first} on, for {seconds:g} s; Ctrl-C stops\n"
        self._next = 0.0

    def __call__(self, found: Campaign) -> None:
        """Show the progress, if it is time to."""
        if found.seconds < self._next:
            return
        self._next = found.seconds + (0.2 if self.terminal else 10.0)
        if self.kept and found.runs:
            found.save(self.kept)
        line = found.line() if found.runs else ""
        sys.stderr.write(
            self._head + (f"\r\x1b[K{line[: _columns() - 1]}" if self.terminal else f"{line}\n" * bool(line))
        )
        self._head = ""
        sys.stderr.flush()

    def done(self) -> None:
        """Clear the line."""
        if self.terminal:
            sys.stderr.write("\r\x1b[K")


def _columns() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def report(found: Campaign, as_json: bool) -> int:
    """Print the result. Returns the exit code."""
    print(json.dumps(found.document()) if as_json else found.summary())
    return 1 if found.failed else 130 if found.stopped else 0
