"""Start programs that are killed when this process ends."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

HAS_DEATH_SIGNAL = sys.platform == "linux"
_DEATH_SIGNAL, _WATCHDOG = "death-signal", "watchdog"

# Not preexec_fn: Python code in a forked child may deadlock when the parent has threads.
LAUNCHER = """
import os, select, signal, sys, time
parent, lock, way, binary = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[6]
grace, others = float(sys.argv[4]), int(sys.argv[5])
if way == "death-signal":
    import ctypes
    if ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL, 0, 0, 0):
        sys.exit("prctl(PR_SET_PDEATHSIG): " + os.strerror(ctypes.get_errno()))
elif os.fork() == 0:
    server = os.getppid()
    if lock >= 0:
        os.close(lock)
    os.read(0, 1)
    until = time.monotonic() + grace
    if others >= 0:
        select.select([others], [], [], grace)
    elif grace and os.getppid() == server:
        os.kill(server, signal.SIGTERM)
        os.kill(server, signal.SIGCONT)      # else a stopped one keeps it
        while os.getppid() == server and time.monotonic() < until:
            time.sleep(0.02)
    if os.getppid() == server:
        os.kill(server, signal.SIGKILL)
    os._exit(0)
if os.getppid() != parent:
    sys.exit("the parent process has ended")
try:
    os.execv(binary, sys.argv[6:])
except OSError as error:
    sys.exit(f"cannot run {binary}: {error.strerror}")
"""


def spawn_bound(
    command: Sequence[str],
    *,
    lock: int = -1,
    grace: float = 0.0,
    others: int = -1,
    keep: Sequence[int] = (),
    **options: Any,
) -> "subprocess.Popen[bytes]":
    """Start a program that is killed when this process ends. `options` are those of Popen.

    With `grace` (seconds), the program first gets SIGTERM, and SIGKILL `grace` later; with a pipe `others`,
    only SIGKILL, when the pipe's writers have ended or `grace` is over. It inherits the file descriptors
    `keep`, `lock` and `others` (-1: none). It leads its own session: the terminal's Ctrl-C does not reach it.

    On Linux, without `grace`, the kernel kills it (PR_SET_PDEATHSIG). Otherwise a watchdog process does, once
    all forked (not spawned) children of this process have ended too.
    """
    is_signalled = HAS_DEATH_SIGNAL and not grace
    way = _DEATH_SIGNAL if is_signalled else _WATCHDOG
    facts = [str(os.getpid()), str(lock), way, f"{grace:g}", str(others)]
    words = [sys.executable, "-I", "-S", "-c", LAUNCHER, *facts, *command]
    options |= {
        "stdin": subprocess.DEVNULL if is_signalled else subprocess.PIPE,
        "pass_fds": tuple(fd for fd in (lock, others, *keep) if fd >= 0),
        "start_new_session": True,
    }
    started: Future[subprocess.Popen[bytes]] = Future()

    def hold() -> None:
        try:
            process = subprocess.Popen(words, **options)
        except BaseException as error:  # noqa: BLE001  it is raised in the thread that waits for it
            started.set_exception(error)
        else:
            started.set_result(process)
            process.wait()

    # Linux sends the death signal when the starting *thread* ends, so that thread waits for the program
    threading.Thread(target=hold, name="bound-process", daemon=True).start()
    return started.result()
