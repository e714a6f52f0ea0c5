"""Counters of one run of a worker."""

from dataclasses import dataclass

from sublet.model import Completion, Ending, Failure, Release, Suspension

COUNTERS = ("completed", "failed", "cancelled", "released", "suspended", "refused")
"""Names of counters of outcomes; each is also an event's name."""
_EVENTS: dict[type, str] = {
    Completion: "completed",
    Failure: "failed",
    Release: "released",
    Suspension: "suspended",
}
_LOST = ("LEASE_LOST", "NOT_FOUND")


@dataclass
class Summary:
    """What a worker did in one run: accepted outcomes by kind (`cancelled`: stopped on request), `refused`
    ones (lease lost, or job deleted), and the run's `seconds`.
    """

    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    released: int = 0
    suspended: int = 0
    refused: int = 0
    seconds: float = 0.0
    dismissed: bool = False
    """Whether the worker left because it had lingered long enough without a job. If False, jobs may remain:
    start other workers.
    """
    stalled: bool = False
    """Whether the worker ended because no job ended for too long, or as many cancelled tasks as slots ran on:
    replace it.
    """
    stuck: int = 0
    """How many tasks ignored their cancellation. Above 0, kill the process: an orderly exit would wait for
    them.
    """

    def count(self, ending: Ending, answer: str) -> str:
        """Count an outcome: by its kind, or by `answer` as `refused` or `cancelled`. Returns the name of the
        counter, and of the event.
        """
        event = "refused" if answer in _LOST else _EVENTS[type(ending)]
        if event == "failed" and isinstance(ending, Failure) and ending.code == answer == "cancelled":
            event = "cancelled"
        setattr(self, event, getattr(self, event) + 1)
        return event


def outcome_text(ending: Ending, answer: str) -> str:
    """Return an outcome as text: its reason, if any, and the answer."""
    if isinstance(ending, Completion):
        return answer
    if isinstance(ending, Suspension):
        return f"{ending.kind} {ending.name}: {answer.partition(' ')[0]}"
    why = f"{ending.code} {ending.message}".strip() if isinstance(ending, Failure) else ending.reason
    return f"{why}: {answer}"


def unwanted_text(pool: str) -> str:
    """Return why a new worker ends at once; `pool` is "" without a pool."""
    if pool:
        return f"not needed: pool {pool} wants no more workers, has other queues, or is gone"
    return "a drain was requested"


def leaving_text(idle: float, pool: str) -> str:
    """Return why a worker ends after `idle` seconds without a job."""
    return f"no job for {idle:g} s" + (f", and pool {pool} can spare this worker" if pool else "")
