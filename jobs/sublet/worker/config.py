"""The options of a worker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sublet.execution.runner import NO_LIMITS, Limits


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """Options of a worker. Each running job takes a slot. A plain function (not in a thread) or a program
    also takes one of `processes`. For a job that waits for another, one more may run.
    """

    queues: Sequence[str] | Mapping[str, int] | None = None
    """Names and patterns (`tenant-*`), or up to 32 names with weights from 1 to 1000: a queue of weight 3
    gets three turns for each turn of a queue of weight 1. None or empty: the queues of the app's tasks.
    """
    strict: bool = False
    """Ask each queue only when the earlier ones are empty, instead of in turns."""
    slots: int | None = None
    """Most jobs that run at once. None: 100, or `processes` if all tasks run in child processes or as programs."""
    processes: int | None = None
    """Most child processes and programs that run at once. None: the number of CPUs."""
    lease: float = 30.0
    """A lease ends after so many seconds without a heartbeat."""
    grace: float = 8.0
    """Jobs that still run so many seconds after `stop()` are released."""
    stall: float | None = None
    """The worker ends after so many seconds in which no running job ends: jobs that ran that long fail as
    `stalled`, the others are released. The process exits with code 1 if a task blocks the event loop so long.
    None: no limit.
    """
    blocked: float | None = None
    """Without `stall`: the process exits with code 1 if a task blocks the event loop for so many seconds.
    None: never.
    """
    limits: Limits = NO_LIMITS
    """Memory and number of jobs of each child process, CPU time of each job."""
    commands: bool = False
    """Whether to offer the task `command`, which runs any program that a submitter names."""
    name: str | None = None
    """The name that `sublet workers` shows. None: `<host>-<pid>-<6 hex digits>`."""
    worker_id: str = ""
    """The worker identity, an exclusive name: this worker ends the leases of its previous holder."""
    pool: str = ""
    """The worker's pool, which counts the worker if it serves all the pool's queues. "": no pool."""
    summons: str = ""
    """The id of this worker's summons; "" if none."""


DEFAULTS = WorkerConfig()
