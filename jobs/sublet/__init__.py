"""Sublet: a job scheduler without a master. `App` declares tasks; `Client` and `SyncClient` submit jobs.

Each name is imported at its first use: importing all takes 0.6 s of CPU time.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sublet.app import App, Task
    from sublet.client.client import Client
    from sublet.client.handle import Handle
    from sublet.client.sync_client import SyncClient
    from sublet.client.sync_handle import SyncHandle
    from sublet.connection.settings import Settings
    from sublet.context import Context, Discard, Snooze
    from sublet.errors import (
        Changed,
        Invalid,
        JobCancelled,
        JobFailed,
        JobsError,
        KeyTaken,
        LeaseLost,
        NoNamespace,
        NotFound,
        OutOfMemory,
        QueueFull,
        Refused,
        StepsFull,
        TooMany,
        Unavailable,
        Unfit,
        WorkersFull,
        WrongLayout,
        WrongState,
    )
    from sublet.model import Attempt, Job, Page, Queue, State, Stats, Submission, Submitted
    from sublet.options import Backoff, Options
    from sublet.outcome import Outcome
    from sublet.schedules.definition import Schedule
    from sublet.schedules.recurrence import Recurrence
    from sublet.steps.chunks import Chunk
    from sublet.tasks.failures import AttemptFailure
    from sublet.then import Then
    from sublet.worker.config import WorkerConfig
    from sublet.worker.worker import Worker

_HOMES = {
    "sublet.client.client": ("Client",),
    "sublet.client.sync_client": ("SyncClient",),
    "sublet.connection.settings": ("Settings",),
    "sublet.context": ("Context", "Discard", "Snooze"),
    "sublet.errors": (
        "Changed", "Invalid", "JobCancelled", "JobFailed", "JobsError", "KeyTaken", "LeaseLost", "NoNamespace", "NotFound",
        "OutOfMemory", "QueueFull", "Refused", "StepsFull", "TooMany", "Unavailable", "Unfit", "WorkersFull",
        "WrongLayout", "WrongState",
    ),
    "sublet.client.handle": ("Handle",),
    "sublet.client.sync_handle": ("SyncHandle",),
    "sublet.model": ("Attempt", "Job", "Page", "Queue", "State", "Stats", "Submission", "Submitted"),
    "sublet.options": ("Backoff", "Options"),
    "sublet.outcome": ("Outcome",),
    "sublet.schedules.definition": ("Schedule",),
    "sublet.app": ("App", "Task"),
    "sublet.schedules.recurrence": ("Recurrence",),
    "sublet.steps.chunks": ("Chunk",),
    "sublet.tasks.failures": ("AttemptFailure",),
    "sublet.then": ("Then",),
    "sublet.worker.config": ("WorkerConfig",),
    "sublet.worker.worker": ("Worker",),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "App", "Attempt", "AttemptFailure", "Backoff", "Changed", "Chunk", "Client", "Context", "Discard", "Handle", "Invalid", "Job", "JobCancelled",
    "JobFailed", "JobsError", "KeyTaken", "LeaseLost", "NoNamespace", "NotFound", "Options", "OutOfMemory", "Outcome", "Page", "Queue",
    "QueueFull", "Recurrence", "Refused", "Schedule", "Settings", "Snooze", "State", "Stats", "StepsFull", "Submission", "Submitted",
    "SyncClient", "SyncHandle", "Task", "Then", "TooMany", "Unavailable", "Unfit", "Worker", "WorkerConfig", "WorkersFull",
    "WrongLayout", "WrongState",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sublet' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
