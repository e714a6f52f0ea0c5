"""Secrets that tasks and child processes do not inherit."""

import ctypes
import os
import sys
from collections.abc import Mapping

SECRETS = ("SUBLET_TOKENS", "SUBLET_SIGNING_SECRETS", "SUBLET_TOKEN")
"""Environment variables that are hidden. SUBLET_REDIS_URL stays: tasks submit jobs with it."""
PR_SET_DUMPABLE = 4
_held: dict[str, str] = {}


def hold_secrets() -> None:
    """Remove SECRETS from `os.environ`, and keep their values. If there were any, other processes without
    CAP_SYS_PTRACE cannot read this process's memory afterwards (Linux).
    """
    for name in SECRETS:
        if name in os.environ:
            _held[name] = os.environ[name]
            os.environ.pop(name, None)
    if _held and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def environment() -> Mapping[str, str]:
    """Return `os.environ` together with the removed secrets."""
    return {**_held, **os.environ}
