"""Secrets that leave the environment, so that the tasks and programs of this process do not inherit them."""

import ctypes
import os
import sys
from collections.abc import Mapping

SECRETS = ("SUBLET_TOKENS", "SUBLET_SIGNING_SECRETS", "SUBLET_TOKEN")
"""Variables that only this process needs. SUBLET_REDIS_URL stays: tasks submit jobs with it."""
PR_SET_DUMPABLE = 4
_held: dict[str, str] = {}


def hold_secrets() -> None:
    """Take SECRETS out of `os.environ`; `environment` still has them.

    If there are any, no other process of this user may read this one's memory and first environment
    (/proc, ptrace) from now on, except with CAP_SYS_PTRACE, as root has. Linux only.
    """
    _held.update({name: os.environ.pop(name) for name in SECRETS if name in os.environ})
    if _held and sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


def environment() -> Mapping[str, str]:
    """Return `os.environ` with the secrets that were taken out of it."""
    return {**_held, **os.environ}
