"""What a ledger and the jobs at the end say of the promises. No I/O."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sublet.model import Job, State
from tests.faults.chaos.ledger import Entry


class Verdict(NamedTuple):
    """What came of one scenario."""

    acked: int
    """Jobs whose submit was acknowledged."""
    lost: int
    """Acknowledged, and not there at the end."""
    lost_after: int
    """Those of them that were first sent after the last trouble was over."""
    unfinished: int
    """Acknowledged, there, and not completed in the time given."""
    twice: int
    """Jobs of which more than one outcome was accepted, by those who ran them or by the server's own count."""
    stale: int
    """Jobs whose accepted outcome, or result, is not that of their last lease."""
    unanswered: int
    """Submits that nobody ever answered."""
    unconfirmed: int
    """Submits that had no answer at first, and were sent again."""
    rejected_but_stored: int
    """Submits that were refused, whose jobs are there."""
    late_refused: int
    """Outcomes of ghosts that were refused: the promise at work."""
    rerun: int
    """Jobs that were started again though their attempt had not failed."""
    recovery: tuple[float, ...]
    """Seconds from each trouble to the next sign that work goes on after it."""


def evaluate(entries: Sequence[Entry], jobs: Mapping[str, Job], counted: int | None = None) -> Verdict:
    """The verdict on what was written, given the jobs that are there at the end, by id.

    `counted` is how many jobs the server says were completed; None where it has no say, as it has forgotten some.
    """
    by = defaultdict(list)
    for entry in entries:
        by[entry.event].append(entry)
    told = {
        event: {entry.id: entry.at for entry in reversed(by[event])}
        for event in ("sent", "acked", "rejected")
    }
    acked, sent, refused = told["acked"], told["sent"], told["rejected"]
    lost = acked.keys() - jobs.keys()
    over = max((entry.at for entry in (*by["healed"], *by["fault"])), default=0.0)
    accepted: dict[str, list[Entry]] = defaultdict(list)
    for entry in by["completed"]:
        accepted[entry.id].append(entry)
    starts, failed = (Counter(entry.id for entry in by[event]) for event in ("started", "failed"))
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
        rerun=sum(count - failed[job_id] > 1 for job_id, count in starts.items()),
        recovery=tuple(_recovery(by)),
    )


def _is_last(accepted: Sequence[Entry], job: Job) -> bool:
    """Is the outcome that was accepted that of the last lease? One that a killed worker could not write down is unknown."""
    return not accepted or accepted[-1].attempt == job.attempt


def _recovery(by: Mapping[str, Sequence[Entry]]) -> list[float]:
    """For each trouble: until the job that it interrupted runs again or, where it was healed, until the next job is completed.

    A job that loses its lease for the second time in a row waits longer, on purpose; so only its first trouble counts. And where
    the next trouble comes before work has gone on, it is that one which counts; as where a worker died before it could say that
    it had started the job.
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
    """The value below which that share of them lies; 0 for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
