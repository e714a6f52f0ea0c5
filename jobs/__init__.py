"""Sublet: a job scheduler with no master. `App` declares tasks; `Client` and `SyncClient` submit and look.

Names are looked up when they are first used, for two reasons: `python3 -m jobs` must run before any dependency is
installed, and a command that only submits should not pay for what it does not use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.client import Client, SyncClient
    from jobs.config import Settings
    from jobs.context import Context, Discard, Snooze
    from jobs.errors import (
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
        TooMany,
        Unavailable,
        Unfit,
        WrongLayout,
        WrongState,
    )
    from jobs.handle import Handle, SyncHandle
    from jobs.model import Attempt, Job, Page, Queue, State, Stats, Submission, Submitted
    from jobs.options import Backoff, Options
    from jobs.recurring import Schedule
    from jobs.registry import App, Task
    from jobs.schedule import Recurrence

_HOMES = {
    "jobs.client": ("Client", "SyncClient"),
    "jobs.config": ("Settings",),
    "jobs.context": ("Context", "Discard", "Snooze"),
    "jobs.errors": (
        "Changed", "Invalid", "JobCancelled", "JobFailed", "JobsError", "KeyTaken", "LeaseLost", "NoNamespace", "NotFound",
        "OutOfMemory", "QueueFull", "Refused", "TooMany", "Unavailable", "Unfit", "WrongLayout", "WrongState",
    ),
    "jobs.handle": ("Handle", "SyncHandle"),
    "jobs.model": ("Attempt", "Job", "Page", "Queue", "State", "Stats", "Submission", "Submitted"),
    "jobs.options": ("Backoff", "Options"),
    "jobs.recurring": ("Schedule",),
    "jobs.registry": ("App", "Task"),
    "jobs.schedule": ("Recurrence",),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "App", "Attempt", "Backoff", "Changed", "Client", "Context", "Discard", "Handle", "Invalid", "Job", "JobCancelled",
    "JobFailed", "JobsError", "KeyTaken", "LeaseLost", "NoNamespace", "NotFound", "Options", "OutOfMemory", "Page", "Queue",
    "QueueFull", "Recurrence", "Refused", "Schedule", "Settings", "Snooze", "State", "Stats", "Submission", "Submitted",
    "SyncClient", "SyncHandle", "Task", "TooMany", "Unavailable", "Unfit", "WrongLayout", "WrongState",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jobs' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
