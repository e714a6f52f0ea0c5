"""Text output of one job."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sublet.cli.output import (
    STATE_COLOURS,
    Cell,
    clean,
    compact,
    duration,
    fit,
    is_narrow,
    paint,
    table,
    write,
)
from sublet.cli.parser import program
from sublet.model import Attempt, Job, JobSummary, State

ENDINGS = {
    "completed": "its result was accepted",
    "lease_expired": "no heartbeat: its lease expired",
    "crashed": "its process crashed; the worker reported it",
    "released": "released; the try did not count",
    "suspended": "the task waits; the try did not count",
    "unknown_task": "released: the worker's app has no such task",
    "cancelled": "cancelled on request",
}
"""An attempt's code → the text to show if the attempt lacks a message."""

LOG_LINES = 10
SHORT = 120
VALUES = ("progress", "checkpoint", "arguments", "result")
WIDE = 110


def show_job(job: Job, now: datetime, detail: bool) -> None:
    """Print a job with attempts and logs; `detail` adds stack traces, all log lines, and long values."""
    write(f"{paint(job.id, 'bold')}   {paint(job.state.value, STATE_COLOURS[job.state])}")
    whole = [_show_fact(name, clean(text), detail) for name, text in _facts(job, now)]
    if job.attempts:
        write()
        write(paint("  attempts", "dim"))
        _show_attempts(job.attempts)
    whole += [_show_log(f"attempt {each.number}", each.log, each.detail, detail) for each in job.attempts]
    whole.append(_show_log(f"attempt {job.attempt} so far", job.log, "", detail))
    if not all(whole):
        write()
        write(paint(f"  all of it: {program()} get {job.id} --detail, or --json", "dim"))


def _show_fact(name: str, text: str, detail: bool) -> bool:
    shown = text if detail else fit(_short(text) if name in VALUES else text, 14)
    write(f"  {paint(name.ljust(11), 'dim')} {shown}")
    return shown == text


def moment(at: datetime) -> str:
    """Return a UTC time as text, to the second."""
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def _facts(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    yield from _submission(job, now)
    if job.worker:
        yield from _claim(job, now)
    yield from _running(job, now)
    yield from _outcome(job, now)


def _submission(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    yield "task", job.task
    yield "queue", job.queue + (f"   priority {job.priority}" if job.priority else "")
    yield "submitted", _ago(job.submitted_at, now)
    if job.schedule:
        yield "schedule", job.schedule + (f"   for {moment(job.run_at)}" if job.run_at else "   run by hand")
    if job.workflow:
        yield "workflow", job.workflow
    if job.key:
        yield "key", job.key
    if job.replaced and job.replaced_at:
        times = f"{job.replaced} times" if job.replaced > 1 else "once"
        yield "replaced", f"{times}, last {_ago(job.replaced_at, now)}"
    if job.after and job.state is State.SCHEDULED:
        yield "after", f"{job.after}   which has its key and runs"
    if job.group:
        yield "group", job.group + (f"   cost {job.cost:,}" if job.cost != 1 else "")
    if job.waits_for:
        yield "waits for", job.waits_for
    if job.tags:
        yield "tags", ", ".join(job.tags)
    if job.awaits:
        yield "awaits", job.awaits
    if job.due_at:
        gives_up = (job.awaits or "").startswith(("upstream ", "retry "))
        yield "gives up" if gives_up else "due", f"{moment(job.due_at)}   {_time_until(job.due_at, now)}"


def _claim(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    held = duration((now - (job.claimed_at or now)).total_seconds())
    yield "owner", f"{job.worker}, attempt {job.attempt}, for {held}"
    yield "heartbeat", _ago(job.heartbeat_at or now, now)


def _running(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    if job.lease_expires_at:
        yield "lease ends", f"{moment(job.lease_expires_at)}   {_time_until(job.lease_expires_at, now)}"
    if job.progress is not None:
        yield "progress", _progress(job.progress)
    if job.checkpoint is not None:
        yield "checkpoint", compact(job.checkpoint)
    for step in job.steps:
        yield "step", f"{step.name}   {step.kind}, {step.bytes:,} bytes, {moment(step.kept_at)}"
    if job.cancel_requested_at:
        requested = _ago(job.cancel_requested_at, now)
        yield "cancel", f"requested {requested}; its worker ends it at the next heartbeat"


def _outcome(job: Job, now: datetime) -> Iterator[tuple[str, str]]:
    if job.finished_at:
        yield "finished", _ago(job.finished_at, now)
    yield "tries", _tries(job)
    if job.last_error and not job.attempts:
        yield "error", f"{job.last_error.code}   {job.last_error.message}"
    if job.payload is not None:
        yield "arguments", _value(job.payload)
    if job.state is State.COMPLETED:
        yield "result", _value(job.result)
    if job.trace:
        yield "trace", job.trace


def _value(value: Any) -> str:
    match value:
        case {"sublet:large": {"bytes": int(size), "sha256": str(digest)}}:
            return f"stored outside Redis, {size:,} bytes, SHA-256 {digest[:16]}…"
    return compact(value)


def _ago(at: datetime, now: datetime) -> str:
    return f"{moment(at)}   {duration((now - at).total_seconds())} ago"


def _time_until(at: datetime, now: datetime) -> str:
    left = (at - now).total_seconds()
    if left >= 0:
        return f"in {duration(left)}"
    return f"{duration(-left)} ago, and no maintenance has run since"


def _short(text: str) -> str:
    return text if len(text) <= SHORT else f"{len(text):,} characters: {text[:SHORT]}…"


def tries(job: JobSummary) -> str:
    """Return how many of its tries the job has used, as `1 of 3`. A release used none."""
    return f"{max(0, job.max_attempts - job.tries_left)} of {job.max_attempts}"


def _tries(job: Job) -> str:
    claims = "once" if job.attempt == 1 else f"{job.attempt:,} times"
    return f"{tries(job)} used, {f'claimed {claims}' if job.attempt else 'not yet claimed'}"


def _progress(progress: object) -> str:
    fraction = progress.get("fraction") if isinstance(progress, dict) else None
    if not isinstance(progress, dict) or not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        return compact(progress)
    words = [f"{fraction:.0%}", str(progress.get("stage", "")), str(progress.get("message", ""))]
    return "   ".join(word for word in words if word)


def _show_attempts(attempts: Sequence[Attempt]) -> None:
    lines = [_attempt_row(attempt) for attempt in attempts]
    if not is_narrow(WIDE):
        table(["  #", "CLAIMED", "BY", "FOR", "ENDED", ""], lines)
        return
    for number, claimed, worker, took, ended, words in lines:
        assert isinstance(ended, Cell)
        write(f"{number}  {paint(ended.text, ended.colour)} after {took}, claimed {claimed} by {worker!s}")
        if words:
            write(f"     {fit(clean(str(words)), 5)}")


def _attempt_row(attempt: Attempt) -> list[Cell | str]:
    took = duration((attempt.ended_at - attempt.claimed_at).total_seconds())
    colour = "green" if attempt.code == "completed" else "yellow" if attempt.code in ENDINGS else "red"
    words = attempt.message.removeprefix(f"{attempt.code}: ") or ENDINGS.get(attempt.code, "")
    return [
        f"{attempt.number:>3}",
        moment(attempt.claimed_at),
        attempt.worker,
        took,
        Cell(attempt.code, colour),
        words,
    ]


def _show_log(name: str, log: Sequence[str], trace: str, detail: bool) -> bool:
    shown = log if detail else log[-LOG_LINES:]
    if shown:
        share = f", the last {len(shown)} of {len(log)} lines" if len(shown) < len(log) else ""
        write()
        write(paint(f"  log of {name}{share}", "dim"))
        for line in shown:
            write(f"    {clean(line) if detail else fit(clean(line), 4)}")
    if trace and detail:
        write()
        write(paint(f"  stack trace of {name}", "dim"))
        for line in trace.splitlines():
            write(f"    {line}")
    return detail or (len(shown) == len(log) and not trace)
