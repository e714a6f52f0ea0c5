"""The program of the guard process: no `site`, only builtin modules, so that it is small.

Input: lines `+<group> <start>` to watch a process group, `-<group>` to forget it.
"""

import os
import select
import signal


def main(parent: int) -> None:
    """Read groups from stdin until it closes or the worker `parent` has ended, then kill the remaining ones."""
    # A signal that stops the worker may be sent to all of its processes.
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    os.set_blocking(0, False)
    ends = [0, *_end_of(parent)]
    groups: dict[int, str] = {}
    rest, alive = b"", True
    while alive:
        ready = select.select(ends, [], [])[0]
        data, alive = _read()
        alive = alive and ready == [0]
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            _apply(line.decode(), groups)
    for group, start in groups.items():
        end(group, start)


def end(group: int, start: str) -> bool:
    """Kill a process group, unless its number now belongs to another process (started at another time than
    `start`). Return whether it was killed.
    """
    now = start_of(group)
    if start and now and now != start:
        return False
    try:
        os.killpg(group, signal.SIGKILL)
    # PermissionError: the rest has changed its user, or (macOS) is dead already.
    except (ProcessLookupError, PermissionError):
        return False
    return True


def start_of(pid: int) -> str:
    """Return when a process started, in kernel ticks since boot, as text; empty if the process, or /proc,
    does not exist.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return ""


def _end_of(parent: int) -> list[int]:
    try:
        return [os.pidfd_open(parent)]
    except (AttributeError, OSError):
        return []


def _read() -> tuple[bytes, bool]:
    data = b""
    try:
        while chunk := os.read(0, 65536):
            data += chunk
    except BlockingIOError:
        return data, True
    return data, False


def _apply(line: str, groups: dict[int, str]) -> None:
    group, _, start = line[1:].partition(" ")
    if line[:1] == "+":
        groups[int(group)] = start
    else:
        groups.pop(int(group), None)
