"""What a worker and its child processes say to each other: frames over plain pipes, and how a task is found again.

A frame is four bytes of length, one byte of kind, and the body. To the child, per job: a JOB (what a `Context` shows, and
where the task is) and a PAYLOAD. From the child: any number of PROGRESS, then a RESULT, a FAILURE (code, message, detail,
again) or a RELEASE (delay, reason).
"""

import json
import struct
import sys
from typing import TYPE_CHECKING, Any, Final

from jobs.errors import Invalid
from jobs.model import Ending, Failure, Lease, Release

if TYPE_CHECKING:
    from jobs.registry import Task

JOB: Final = b"J"
PAYLOAD: Final = b"P"
PROGRESS: Final = b"G"
RESULT: Final = b"R"
FAILURE: Final = b"F"
RELEASE: Final = b"S"

HEAD = struct.Struct(">Ic")
MAIN = "__sublet_main__"
"""The name under which a child imports the file that its parent runs as `__main__`."""


def frame(kind: bytes, body: bytes) -> bytes:
    """One frame."""
    return HEAD.pack(len(body), kind) + body


def job(task: "Task[..., Any]", lease: Lease) -> bytes:
    """The frames that ask a child to run one job."""
    said = [lease.id, lease.task, lease.queue, lease.attempt, lease.fence, lease.recovered, *address(task)]
    return frame(JOB, json.dumps(said).encode()) + frame(PAYLOAD, lease.payload)


def address(task: "Task[..., Any]") -> tuple[str, str, str]:
    """Module, qualified name and (for the main program) file of a task. Raises Invalid if a child could not find it there."""
    module, name = task.function.__module__, task.function.__qualname__
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if getattr(found, "function", None) is not task.function:
        raise Invalid(
            f"task {task.name}: a plain function runs in a child process, which must find it as {module}.{name}: "
            "declare it at the top of its module, or give it run='thread'"
        )
    return module, name, getattr(sys.modules[module], "__file__", None) or "" if module == "__main__" else ""


def ending(kind: bytes, body: bytes, lease: Lease) -> Ending:
    """The ending that a FAILURE or RELEASE frame speaks of."""
    said = json.loads(body)
    return Failure(lease, *said) if kind == FAILURE else Release(lease, *said)


def ended(ending: Ending) -> bytes:
    """The frame that speaks of an ending which is no result."""
    return frame(FAILURE if isinstance(ending, Failure) else RELEASE, json.dumps(ending[1:]).encode())
