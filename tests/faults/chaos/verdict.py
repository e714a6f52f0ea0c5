"""Evaluate a ledger against the final jobs. No I/O."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sublet.model import Job, State
from tests.faults.chaos.ledger import Entry


class Verdict(NamedTuple):
    """The counters of one scenario."""

    acked: int
    """Acknowledged submits."""
    lost: int
    """Acknowledged jobs missing at the end."""
    lost_after: int
    """Those of them first sent after the last fault."""
    unfinished: int
    """Acknowledged jobs not completed in time."""
    twice: int
    """Jobs with more than one accepted outcome, by the workers' reports or the server's counter."""
    stale: int
    """Jobs whose accepted outcome or result is not that of their last lease."""
    unanswered: int
    """Submits without any reply."""
    unconfirmed: int
    """Submits repeated after a missing reply."""
    rejected_but_stored: int
    """Stored jobs of rejected submits."""
    late_refused: int
    """Outcomes refused because the lease was lost: the promise at work."""
    rerun: int
    """Jobs started again although their attempt had neither failed nor begun to wait."""
    recovery: tuple[float, ...]
    """Seconds from each fault until work continued."""


def evaluate(entries: Sequence[Entry], jobs: Mapping[str, Job], counted: int | None = None) -> Verdict:
    """Compare the entries with the final jobs.

    `counted` is the server's number of completed jobs; None if it has lost data.
    """
    by = defaultdict(list)
    for entry in entries:
        by[entry.event].append(entry)
    times = {
        event: {entry.id: entry.at for entry in reversed(by[event])}
        for event in ("sent", "acked", "rejected")
    }
    acked, sent, refused = times["acked"], times["sent"], times["rejected"]
    lost = acked.keys() - jobs.keys()
    over = max((entry.at for entry in (*by["healed"], *by["fault"])), default=0.0)
    accepted: dict[str, list[Entry]] = defaultdict(list)
    for entry in by["completed"]:
        accepted[entry.id].append(entry)
    starts, ended = (
        Counter(entry.id for event in events for entry in by[event])
        for events in (("started",), ("failed", "suspended"))
    )
    done = {job_id: job for job_id, job in jobs.items() if job.state is State.COMPLETED}
    twice = sum(len(found) > 1 for found in accepted.values())
    return Verdict(
        acked=len(acked),
        lost=len(lost),
        lost_after=sum(sent.get(job_id, acked[job_id]) > over for job_id in lost),
        unfinished=len((acked.keys() & jobs.keys()) - done.keys()),
        twice=twice + (abs(counted - len(done)) if counted is not None else 0),
        stale=sum(
            job.result != job.attempt or not _is_last(accepted[job_id], job) for job_id, job in done.items()
        ),
        unanswered=len(sent.keys() - acked.keys() - refused.keys()),
        unconfirmed=len({entry.id for entry in by["unknown"]}),
        rejected_but_stored=len(refused.keys() & jobs.keys() - acked.keys()),
        late_refused=len(by["refused"]) + len(by["lost"]),
        rerun=sum(count - ended[job_id] > 1 for job_id, count in starts.items()),
        recovery=tuple(_recovery(by)),
    )


def _is_last(accepted: Sequence[Entry], job: Job) -> bool:
    """Whether the accepted outcome is that of the last lease, or unknown: a killed worker could not record it."""
    return not accepted or accepted[-1].attempt == job.attempt


def _recovery(by: Mapping[str, Sequence[Entry]]) -> list[float]:
    """The time from each fault to the next start of its job or, after `healed`, to the next completion.

    Only a job's first fault counts, because a second lost lease in a row delays it on purpose. A fault
    followed by another before work continued does not count; nor does one whose job lost an attempt that no
    worker recorded.
    """
    waits, met = list[float](), set[str]()
    troubles = [fault.at for fault in by["fault"] if not fault.id]
    for entry in (*by["fault"], *by["healed"]):
        if entry.event == "fault" and (not entry.id or entry.id in met):
            continue
        met.add(entry.id)
        sign = next(
            (each for each in by["started" if entry.id else "completed"] if _follows(each, entry)), None
        )
        unseen = sign and entry.id and sign.attempt != entry.attempt + 1
        if sign and not unseen and not any(entry.at < trouble < sign.at for trouble in troubles):
            waits.append(sign.at - entry.at)
    return waits


def _follows(sign: Entry, trouble: Entry) -> bool:
    return sign.at > trouble.at and trouble.id in ("", sign.id)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share of the values lies; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
