"""Identify this process, and decide whether a worker of this machine is certainly gone.

It is gone if it ran with the same host name, kernel (boot id) and pid namespace, and its pid is free or
belongs to a process with another start time. If that cannot be known (clones of one snapshot, a hidden
process), it is not.
"""

import os
import platform
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_PLATFORMS = (
    ("AWS_LAMBDA_FUNCTION_NAME", "lambda"),
    ("K_SERVICE", "knative"),
    ("CLOUD_RUN_JOB", "cloud run job"),
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
    ("INVOCATION_ID", "systemd"),
)
"""The first that is set counts. Cloud Run services set K_SERVICE."""


def identity() -> dict[str, Any]:
    """Return what identifies this process in a registration: host, pid, boot id, start time, …."""
    where = next((name for variable, name in _PLATFORMS if os.environ.get(variable)), "process")
    # Clones of a snapshot have the same ones
    boot, pidns = ("", "") if where == "lambda" else (_boot(), _pid_namespace())
    return {
        "host": socket.gethostname()[:128],
        "pid": os.getpid(),
        "boot": boot,
        "pidns": pidns,
        "started": started(os.getpid()),
        "platform": where,
        "system": sys.platform,
        "python": platform.python_version(),
    }


def started(pid: int) -> int | None:
    """Return when a process started, in kernel ticks since boot; None if it is gone, hidden, a zombie, or
    without /proc.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The process name before the last ")" may contain anything.
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])


def resident_memory(children: Sequence[int]) -> int | None:
    """Return the resident bytes of this process and `children` (pids) together; None without /proc."""
    own, *others = (_resident(pid) for pid in (os.getpid(), *children))
    return None if own is None else own + sum(other or 0 for other in others)


def _resident(pid: int) -> int | None:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def is_here(about: dict[str, Any], me: dict[str, Any]) -> bool:
    """Whether a registered worker (`about`) certainly ran on the machine, and in the pid namespace, of this
    process (`me`).
    """
    if not (me["boot"] and me["pidns"]):
        return False
    return all(about.get(word) == me[word] for word in ("host", "boot", "pidns"))


def is_gone(about: dict[str, Any], me: dict[str, Any]) -> bool:
    """Whether a registered worker (`about`) is certainly gone, as far as this process (`me`) can see."""
    pid, began = about.get("pid"), about.get("started")
    if not is_here(about, me) or not isinstance(pid, int) or not isinstance(began, int):
        return False
    return started(pid) != began and not _is_hidden(pid)


def _is_hidden(pid: int) -> bool:
    # Is /proc mounted with hidepid, or restricted by systemd's ProtectProc=?
    if os.path.lexists(f"/proc/{pid}"):
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
