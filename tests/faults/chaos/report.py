"""The report: a table, or a JSON document for programs."""

from collections.abc import Sequence
from typing import Any

from sublet.cli.output import Cell, duration, paint, table, write
from tests.faults.chaos.scenario import PROMISES, SCRIPT_LIMIT, Finding
from tests.faults.chaos.verdict import Verdict, percentile

HEADS = (
    "scenario",
    "acked",
    "lost",
    "twice",
    "stale",
    "re-run",
    "recovery p50",
    "recovery p99",
    "bound",
    "script",
    "verdict",
)
SPARE = ("recovery p50", "script", "re-run", "bound", "recovery p99", "acked")
"""The columns omitted on a narrow terminal, in this order."""


def status_of(finding: Finding) -> str:
    """The status in one word."""
    return "not run" if finding.skipped else "passed" if finding.ok else "FAILED"


def document_of(findings: Sequence[Finding], seed: int) -> dict[str, Any]:
    """The JSON document."""
    return {"ok": all(each.ok for each in findings), "seed": seed, "script_bound_ms": SCRIPT_LIMIT * 1000,
            "scenarios": [_as_dict(each) for each in findings]}  # fmt: skip


def _as_dict(finding: Finding) -> dict[str, Any]:
    scenario, verdict = finding.scenario, finding.verdict
    fields: dict[str, Any] = {
        "name": scenario.name, "fault": scenario.fault, "promises": list(scenario.promises), "loses": scenario.loses,
        "repeats": scenario.repeats,
        "ok": finding.ok, "failures": list(finding.failures), "skipped": finding.skipped, "seconds": round(finding.seconds, 1),
    }  # fmt: skip
    if verdict:
        fields |= {
            "acknowledged": verdict.acked, "lost": verdict.lost, "accepted_twice": verdict.twice, "stale_accepted": verdict.stale,
            "late_refused": verdict.late_refused, "rerun": verdict.rerun, "unfinished": verdict.unfinished,
            "recovery_p50_s": round(percentile(verdict.recovery, 0.5), 3),
            "recovery_p99_s": round(percentile(verdict.recovery, 0.99), 3),
            "recovery_bound_s": scenario.recovery, "recoveries": len(verdict.recovery),
            "unconfirmed": verdict.unconfirmed, "unanswered": verdict.unanswered, "rejected_but_stored": verdict.rejected_but_stored,
            "longest_script_ms": None if finding.script_time is None else round(finding.script_time.seconds * 1000, 2),
            "longest_script": finding.script_time.script if finding.script_time else "",
        }  # fmt: skip
    return fields | {"notes": finding.notes}


def show(findings: Sequence[Finding]) -> None:
    """Print the table, the failures, and the losses that a failure model allows."""
    table(HEADS, [_row(each) for each in findings], SPARE)
    write()
    for each in findings:
        for failure in each.failures:
            write(f"{paint('failed', 'red')}  {each.scenario.name}: {failure}")
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
        write(paint("(n): not promised here: Redis itself loses acknowledged writes", "dim"))
    ran = [each for each in findings if not each.skipped]
    failed = sum(not each.ok for each in ran)
    acked = sum(each.verdict.acked for each in ran if each.verdict)
    verdict = _all(len(ran), failed) if ran else "nothing was run"
    write(paint(f"{verdict}: {acked:,} jobs acknowledged", "red" if failed or not ran else "green"))


def _repeated(words: str, verdict: Verdict) -> str:
    return f"no job may be lost; {words}, and accepted again (here twice: {verdict.twice:,}, stale: {verdict.stale:,})"


def _all(ran: int, failed: int) -> str:
    if failed:
        return f"{failed} of {ran} scenarios failed" if ran > 1 else "the scenario failed"
    return f"all {ran} scenarios passed" if ran > 1 else "the scenario passed"


def _row(finding: Finding) -> list[Cell | str]:
    verdict, scenario = finding.verdict, finding.scenario
    end = Cell(status_of(finding), "yellow" if finding.skipped else "green" if finding.ok else "red")
    if verdict is None:
        return [scenario.name, *[""] * (len(HEADS) - 2), end]
    back = [
        duration(percentile(verdict.recovery, share)) if verdict.recovery else "" for share in (0.5, 0.99)
    ]
    bound = duration(scenario.recovery) if scenario.recovery else ""
    script_time = (
        ""
        if finding.script_time is None
        else f"{finding.script_time.seconds * 1000:.2f} ms"
        if finding.script_time.seconds
        else "< 1 ms"
    )
    kept = [_count(getattr(verdict, name), name in scenario.promises) for name in PROMISES]
    return [scenario.name, f"{verdict.acked:,}", *kept, f"{verdict.rerun:,}", *back, bound, script_time, end]


def _count(number: int, promised: bool) -> str:
    """In brackets unless zero is promised."""
    return f"{number:,}" if promised else f"({number:,})"
