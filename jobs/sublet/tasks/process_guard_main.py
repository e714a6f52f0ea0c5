"""The keeper's program: waits for the worker's end, and then kills the process groups that the worker could not end.

It is the smallest Python there is (no site, nothing but builtin modules), for it is started with a worker's first program.
Lines on stdin say which groups there are: `+<group> <start>` and `-<group>`. See `sublet.tasks.process_guard` for the worker's side.
"""

import os
import select
import signal


def main(parent: int) -> None:
    """Hear of groups until the worker is gone, however it went, then kill those that are left."""
    for name in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
    ):  # whoever stops the worker may mean all of its processes
        signal.signal(name, signal.SIG_IGN)
    os.set_blocking(0, False)
    ends = [0, *_end_of(parent)]
    groups: dict[int, str] = {}
    rest, alive = b"", True
    while alive:
        ready = select.select(ends, [], [])[0]
        said, alive = _read()
        alive = alive and ready == [0]
        *lines, rest = (rest + said).split(b"\n")
        for line in lines:
            _hear(line.decode(), groups)
    for group, start in groups.items():
        end(group, start)


def end(group: int, start: str) -> bool:
    """Kill a group, unless its number was given to another process by now. True if there was something to kill.

    Where the leader is gone its number still is the group's, for the kernel gives no number away that a group bears.
    """
    now = start_of(group)
    if start and now and now != start:
        return False
    try:
        os.killpg(group, signal.SIGKILL)
    except (
        ProcessLookupError,
        PermissionError,
    ):  # gone; or only what has changed its user, or (macOS) is dead already
        return False
    return True


def start_of(pid: int) -> str:
    """When a process started, in the kernel's ticks; empty when there is none, or no /proc to ask."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return ""


def _end_of(parent: int) -> list[int]:
    """What becomes readable when the parent dies, even while a process that it forked still holds our pipe (Linux)."""
    try:
        return [os.pidfd_open(parent)]
    except (AttributeError, OSError):
        return []


def _read() -> tuple[bytes, bool]:
    """All that lies in the pipe, and whether there may be more later."""
    said = b""
    try:
        while chunk := os.read(0, 65536):
            said += chunk
    except BlockingIOError:
        return said, True
    return said, False


def _hear(line: str, groups: dict[int, str]) -> None:
    group, _, start = line[1:].partition(" ")
    if line[:1] == "+":
        groups[int(group)] = start
    else:
        groups.pop(int(group), None)
