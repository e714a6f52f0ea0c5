"""Sublet: a job scheduler with no master. `App` declares tasks; `Client` and `SyncClient` submit and look.

Names are looked up when they are first used, for two reasons: `python3 -m jobs` must run before any dependency is
installed, and a command that only submits should not pay for what it does not use.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobs.client import Client, Handle, SyncClient, SyncHandle
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
    from jobs.model import Attempt, Job, Page, Queue, State, Stats, Submission, Submitted
    from jobs.options import Backoff, Options
    from jobs.registry import App, Task

_HOMES = {
    "jobs.client": ("Client", "Handle", "SyncClient", "SyncHandle"),
    "jobs.config": ("Settings",),
    "jobs.context": ("Context", "Discard", "Snooze"),
    "jobs.errors": (
        "Changed", "Invalid", "JobCancelled", "JobFailed", "JobsError", "KeyTaken", "LeaseLost", "NoNamespace", "NotFound",
        "OutOfMemory", "QueueFull", "Refused", "TooMany", "Unavailable", "Unfit", "WrongLayout", "WrongState",
    ),
    "jobs.model": ("Attempt", "Job", "Page", "Queue", "State", "Stats", "Submission", "Submitted"),
    "jobs.options": ("Backoff", "Options"),
    "jobs.registry": ("App", "Task"),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "App", "Attempt", "Backoff", "Changed", "Client", "Context", "Discard", "Handle", "Invalid", "Job", "JobCancelled",
    "JobFailed", "JobsError", "KeyTaken", "LeaseLost", "NoNamespace", "NotFound", "Options", "OutOfMemory", "Page", "Queue",
    "QueueFull", "Refused", "Settings", "Snooze", "State", "Stats", "Submission", "Submitted", "SyncClient", "SyncHandle",
    "Task", "TooMany", "Unavailable", "Unfit", "WrongLayout", "WrongState",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'jobs' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
