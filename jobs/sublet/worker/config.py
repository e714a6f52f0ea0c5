"""The options of a worker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sublet.execution.runner import NO_LIMITS, Limits


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """Options of a worker. Every job takes a slot; a plain function not in a thread, or a program, also one of
    `processes`."""

    queues: Sequence[str] | Mapping[str, int] | None = None
    """Names and patterns (`tenant-*`), or up to 32 names with weights from 1 to 1000: a queue of weight 3 gets three turns for each turn of a queue of
    weight 1. Default: the queues of the app's tasks."""
    strict: bool = False
    """Serve the queues in their order, each only when the earlier ones are empty, instead of in turns."""
    slots: int | None = None
    """Default: 100, or `processes` if all tasks run in child processes."""
    processes: int | None = None
    """Child processes, each under `limits`, and programs at a time. Default: the number of CPUs."""
    lease: float = 30.0
    """Seconds without a heartbeat until a job goes to another worker."""
    grace: float = 8.0
    """Seconds that running jobs have to finish after `stop()`."""
    stall: float | None = None
    """Seconds without the end of a running job until the worker ends: jobs that ran for so long have failed as
    `stalled`, others are released. Also for `blocked`.
    """
    blocked: float | None = None
    """Seconds with the event loop blocked until the process exits, with code 1."""
    limits: Limits = NO_LIMITS
    commands: bool = False
    """Offer the task `command`, which runs any program."""
    name: str | None = None
    worker_id: str = ""
    """Exclusive identity: the worker takes over the leases of its previous holder."""
    pool: str = ""
    """The pool that the worker belongs to; it counts there if it serves all the pool's queues."""
    summons: str = ""


DEFAULTS = WorkerConfig()
