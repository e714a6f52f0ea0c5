"""What a worker and its child processes say to each other: frames over plain pipes, and how a task is found again.

A frame is four bytes of length, one byte of kind, and the body. To a child: one HELLO (JSON: where each task is, the memory it
may use); then, whenever it has none, a JOB, or a few of them that will not take long. From a child: one UP when it is ready, then
per job any number of news (their kinds are `News`), and a RESULT, a FAILURE (JSON: code, message, detail, again), SPENT (a
failure after which the child is of no more use) or a RELEASE (JSON: delay, reason). Asked for the jobs that it has not begun, it
forgets the last ones of them and says how many in a BACK.
"""

import json
import struct
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sublet.errors import Invalid
from sublet.model import Ending, Failure, Lease, News, Release

if TYPE_CHECKING:
    from sublet.app import Task

HELLO: Final = b"H"
JOB: Final = b"J"
UP: Final = b"U"
RESULT: Final = b"R"
FAILURE: Final = b"F"
SPENT: Final = b"M"
RELEASE: Final = b"S"
BACK: Final = b"B"
ASK_BACK: Final = b"?"
"""What is written to the pipe whose closing means that the parent is gone."""
ENDS: Final = (RESULT, FAILURE, SPENT, RELEASE)
NEWS: Final = {news.value.encode(): news for news in News}

HEAD = struct.Struct(">Ic")
_JOB = struct.Struct(">HIQqqHHHHI")
"""Of a JOB: the task's number, attempt, fence, timeout and occurrence in ms (-1: none), the lengths of what follows but the payload."""
BODY_MAX = 1 << 20
"""Bytes of a frame's body: whoever announces more is not speaking to us."""
CHUNK = 1 << 16
"""Bytes to read at a time: what a pipe holds."""
MAIN = "__sublet_main__"
"""The name under which a child imports the file that its parent runs as `__main__`."""


class Address(NamedTuple):
    """Where a child finds a task: module, qualified name, and the file if that is the parent's main program."""

    module: str
    name: str
    file: str


def frame(kind: bytes, body: bytes) -> bytes:
    """One frame."""
    return HEAD.pack(len(body), kind) + body


def hello(names: Sequence[str], addresses: Sequence[Address], memory: int | None) -> bytes:
    """The first frame that a child is sent; a JOB names its task by its number in these lists."""
    return frame(HELLO, json.dumps({"names": names, "addresses": addresses, "memory": memory}).encode())


def job(number: int, lease: Lease) -> bytes:
    """The frame that asks a child to run one job."""
    job_id, queue, recovered, trace = (
        lease.id.encode(),
        lease.queue.encode(),
        lease.recovered.encode(),
        lease.trace.encode(),
    )
    sizes = len(job_id), len(queue), len(recovered), len(trace), len(lease.checkpoint)
    timeout = -1 if lease.timeout_ms is None else lease.timeout_ms
    occurrence = -1 if lease.occurrence_ms is None else lease.occurrence_ms
    words = _JOB.pack(number, lease.attempt, lease.fence, timeout, occurrence, *sizes)
    size = _JOB.size + sum(sizes) + len(lease.payload)
    return b"".join(
        (HEAD.pack(size, JOB), words, job_id, queue, recovered, trace, lease.checkpoint, lease.payload)
    )


def size(lease: Lease) -> int:
    """Bytes that the frame of a JOB takes, or a few more."""
    return (
        _JOB.size + 256 + len(lease.recovered) + len(lease.trace) + len(lease.checkpoint) + len(lease.payload)
    )


def lease(body: bytes, names: Sequence[str]) -> tuple[int, Lease]:
    """What a JOB says: its task's number, and the lease as far as a child may know it (the token stays at home)."""
    number, attempt, fence, timeout, occurrence, *sizes = _JOB.unpack_from(body)
    at, parts = _JOB.size, []
    for size in sizes:
        parts.append(body[at : at + size])
        at += size
    job_id, queue, recovered, trace = (part.decode() for part in parts[:4])
    timeout_ms, occurrence_ms = (None if ms < 0 else ms for ms in (timeout, occurrence))
    return number, Lease(
        job_id,
        f"{fence}.",
        attempt,
        0,
        queue,
        names[number],
        timeout_ms,
        body[at:],
        recovered,
        trace,
        parts[4],
        occurrence_ms,
    )


def address(task: "Task[..., Any]") -> Address:
    """Where a child will find a task. Raises Invalid if it could not."""
    module, name = task.function.__module__, task.function.__qualname__
    home: Any = sys.modules.get(module)
    found = home
    for part in name.split("."):
        found = getattr(found, part, None)
    if getattr(found, "function", None) is not task.function:
        raise Invalid(
            f"task {task.name}: a plain function runs in a child process, which must find it as {module}.{name}: "
            "declare it at the top of its module, or give it run='thread'"
        )
    if module != "__main__":
        return Address(module, name, "")
    if home.__spec__ is not None:  # python -m package.module
        return Address(home.__spec__.name, name, "")
    return Address(MAIN, name, getattr(home, "__file__", None) or "")


def ending(kind: bytes, body: bytes, lease: Lease) -> Ending:
    """The ending that a FAILURE, SPENT or RELEASE frame speaks of."""
    said = json.loads(body)
    return Release(lease, *said) if kind == RELEASE else Failure(lease, *said)


def ended(ending: Ending, spent: bool = False) -> bytes:
    """The frame that speaks of an ending which is no result."""
    kind = (SPENT if spent else FAILURE) if isinstance(ending, Failure) else RELEASE
    return frame(kind, json.dumps(ending[1:]).encode())
