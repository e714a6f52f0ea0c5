"""What the chaos suite says: a row a scenario for people, one document for programs."""

from collections.abc import Sequence
from typing import Any

from sublet.cli.output import Cell, duration, paint, table, write
from tests.faults.chaos.judge import Verdict, percentile
from tests.faults.chaos.scenario import HOLD, PROMISES, Finding

HEADS = (
    "scenario",
    "acked",
    "lost",
    "twice",
    "ghosts",
    "re-run",
    "back p50",
    "back p99",
    "bound",
    "hold",
    "verdict",
)
SPARE = ("back p50", "hold", "re-run", "bound", "back p99", "acked")
"""What a narrow terminal is spared, in this order: `--json` has everything."""


def verdict_of(finding: Finding) -> str:
    """In a word."""
    return "not run" if finding.skipped else "held" if finding.ok else "FELL"


def document_of(findings: Sequence[Finding], seed: int) -> dict[str, Any]:
    """Everything, for programs."""
    return {"ok": all(each.ok for each in findings), "seed": seed, "hold_bound_ms": HOLD * 1000,
            "scenarios": [_as_dict(each) for each in findings]}  # fmt: skip


def _as_dict(finding: Finding) -> dict[str, Any]:
    scenario, verdict = finding.scenario, finding.verdict
    said: dict[str, Any] = {
        "name": scenario.name, "words": scenario.words, "promises": list(scenario.promises), "loses": scenario.loses,
        "repeats": scenario.repeats,
        "ok": finding.ok, "faults": list(finding.faults), "skipped": finding.skipped, "seconds": round(finding.seconds, 1),
    }  # fmt: skip
    if verdict:
        said |= {
            "acknowledged": verdict.acked, "lost": verdict.lost, "accepted_twice": verdict.twice, "stale_accepted": verdict.stale,
            "ghosts_refused": verdict.turned_away, "rerun": verdict.rerun, "unfinished": verdict.unfinished,
            "recovery_p50_s": round(percentile(verdict.recovery, 0.5), 3),
            "recovery_p99_s": round(percentile(verdict.recovery, 0.99), 3),
            "recovery_bound_s": scenario.recovery, "recoveries": len(verdict.recovery),
            "unconfirmed": verdict.unconfirmed, "unanswered": verdict.unanswered, "refused_but_there": verdict.denied,
            "longest_hold_ms": None if finding.hold is None else round(finding.hold.seconds * 1000, 2),
            "longest_hold_by": finding.hold.script if finding.hold else "",
        }  # fmt: skip
    return said | {"notes": finding.notes}


def show(findings: Sequence[Finding]) -> None:
    """The table, what fell, and what a failure model lets be lost, or done again."""
    table(HEADS, [_row(each) for each in findings], SPARE)
    write()
    for each in findings:
        for fault in each.faults:
            write(f"{paint('fell', 'red')}  {each.scenario.name}: {fault}")
        if each.skipped:
            write(f"{paint('not run', 'yellow')}  {each.scenario.name}: {each.skipped}")
        if each.scenario.loses and each.verdict:
            write(
                f"{paint('may lose', 'cyan')}  {each.scenario.name}: {each.scenario.loses}; lost here: {each.verdict.lost:,}"
            )
        if each.scenario.repeats and each.verdict:
            write(
                f"{paint('may repeat', 'cyan')}  {each.scenario.name}: {_repeated(each.scenario.repeats, each.verdict)}"
            )
    if any(each.verdict and len(each.scenario.promises) < len(PROMISES) for each in findings):
        write(paint("(n): not promised there, as Redis itself loses what it acknowledged", "dim"))
    ran = [each for each in findings if not each.skipped]
    fell = sum(not each.ok for each in ran)
    acked = sum(each.verdict.acked for each in ran if each.verdict)
    verdict = _all(len(ran), fell) if ran else "nothing was run"
    write(paint(f"{verdict}: {acked:,} jobs acknowledged", "red" if fell or not ran else "green"))


def _repeated(words: str, verdict: Verdict) -> str:
    return f"no job may be lost; {words}, and accepted again (here twice: {verdict.twice:,}, ghosts: {verdict.stale:,})"


def _all(ran: int, fell: int) -> str:
    """How many held, or fell."""
    if fell:
        return f"{fell} of {ran} scenarios fell" if ran > 1 else "the scenario fell"
    return f"all {ran} scenarios held" if ran > 1 else "the scenario held"


def _row(finding: Finding) -> list[Cell | str]:
    verdict, scenario = finding.verdict, finding.scenario
    end = Cell(verdict_of(finding), "yellow" if finding.skipped else "green" if finding.ok else "red")
    if verdict is None:
        return [scenario.name, *[""] * (len(HEADS) - 2), end]
    back = [
        duration(percentile(verdict.recovery, share)) if verdict.recovery else "" for share in (0.5, 0.99)
    ]
    bound = duration(scenario.recovery) if scenario.recovery else ""
    hold = (
        ""
        if finding.hold is None
        else f"{finding.hold.seconds * 1000:.2f} ms"
        if finding.hold.seconds
        else "< 1 ms"
    )
    kept = [_count(getattr(verdict, name), name in scenario.promises) for name in PROMISES]
    return [scenario.name, f"{verdict.acked:,}", *kept, f"{verdict.rerun:,}", *back, bound, hold, end]


def _count(number: int, promised: bool) -> str:
    """In brackets, where none is not promised."""
    return f"{number:,}" if promised else f"({number:,})"
