"""Frames between a worker and its child processes: four bytes of length, one byte of kind, the body.

To a child: one HELLO (JSON, see `hello`); then, when it is idle, one JOB or several short ones. From a child:
one UP; then for each job any number of reports (`NEWS`), and one of RESULT, FAILURE, SPENT (a failure after
which the child must be replaced), RELEASE or SUSPENSION (all but RESULT: the outcome's fields as JSON). After
ASK_BACK, the child drops the jobs that have not begun and sends their number in a BACK; after STARVED, it
logs a warning. ASK is a question of `FORMS`; an ANSWER with its number follows.
"""

import json
import struct
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sublet import errors
from sublet.errors import Invalid, JobsError
from sublet.execution.steps.asks import FORMS
from sublet.model import Ending, Failure, Lease, News, Release, Suspension

if TYPE_CHECKING:
    from sublet.app import Task

HELLO: Final = b"H"
JOB: Final = b"J"
UP: Final = b"U"
RESULT: Final = b"R"
FAILURE: Final = b"F"
SPENT: Final = b"M"
RELEASE: Final = b"S"
SUSPENSION: Final = b"Z"
ASK: Final = b"P"
BACK: Final = b"B"
ASK_BACK: Final = b"?"
STARVED: Final = b"!"
ANSWER: Final = b"A"
"""Like ASK_BACK and STARVED, it is sent on the pipe that closes at the parent's death."""
ENDS: Final = (RESULT, FAILURE, SPENT, RELEASE, SUSPENSION)
NEWS: Final = {news.value.encode(): news for news in News}

HEAD = struct.Struct(">Ic")
_JOB = struct.Struct(">HIQqqqqHHHHHI")
"""Task number, attempt, fence, timeout and occurrence (ms; -1: none), most tries and tries left, lengths."""
BODY_MAX = 1 << 20
"""Most bytes of a frame's body. A longer one was not written by Sublet."""
CHUNK = 1 << 16
MAIN = "__sublet_main__"
"""The name under which a child imports the parent's `__main__`."""


class Address(NamedTuple):
    """Where a child imports a task: module and name, and the file if it is the parent's main program."""

    module: str
    name: str
    file: str


def frame(kind: bytes, body: bytes) -> bytes:
    """Build a frame: head and body."""
    return HEAD.pack(len(body), kind) + body


def hello(
    names: Sequence[str],
    addresses: Sequence[Address],
    limits: tuple[int | None, float | None],
    large: dict[str, Any] | None = None,
    first: Sequence[str] = (),
) -> bytes:
    """Build the first frame for a child. `names` and `addresses` of the tasks: a job refers to them by index.
    `limits`: bytes of memory, seconds of CPU time per job. `large`: how to reach large payloads. `first`:
    modules to import first.
    """
    memory, cpu = limits
    said = {
        "names": names,
        "addresses": addresses,
        "memory": memory,
        "cpu": cpu,
        "large": large,
        "first": first,
    }
    return frame(HELLO, json.dumps(said).encode())


def job(number: int, lease: Lease) -> bytes:
    """Build the frame that sends a leased job to a child; `number`: its task's index in the HELLO."""
    job_id, queue, recovered, trace, tags = (
        lease.id.encode(),
        lease.queue.encode(),
        lease.recovered.encode(),
        lease.trace.encode(),
        ",".join(lease.tags).encode(),
    )
    sizes = len(job_id), len(queue), len(recovered), len(trace), len(tags), len(lease.checkpoint)
    tries = lease.max_attempts, lease.tries_left
    timeout = -1 if lease.timeout_ms is None else lease.timeout_ms
    occurrence = -1 if lease.occurrence_ms is None else lease.occurrence_ms
    words = _JOB.pack(number, lease.attempt, lease.fence, timeout, occurrence, *tries, *sizes)
    size = _JOB.size + sum(sizes) + len(lease.payload)
    return b"".join(
        (HEAD.pack(size, JOB), words, job_id, queue, recovered, trace, tags, lease.checkpoint, lease.payload)
    )


def size(lease: Lease) -> int:
    """Return the most bytes that the frame for a leased job can have."""
    return (
        _JOB.size + 640 + len(lease.recovered) + len(lease.trace) + len(lease.checkpoint) + len(lease.payload)
    )


def lease(body: bytes, names: Sequence[str]) -> tuple[int, Lease]:
    """Parse a JOB: its task's index, and its lease, with only the fence of the token."""
    number, attempt, fence, timeout, occurrence, tries, tries_left, *sizes = _JOB.unpack_from(body)
    at, parts = _JOB.size, []
    for size in sizes:
        parts.append(body[at : at + size])
        at += size
    job_id, queue, recovered, trace, tags = (part.decode() for part in parts[:5])
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
        parts[5],
        occurrence_ms,
        tries,
        tries_left,
        tuple(tags.split(",")) if tags else (),
    )


def address(task: "Task[..., Any]") -> Address:
    """Return where a child can import a task. Raises Invalid if it cannot."""
    module, name = task.function.__module__, task.function.__qualname__
    home: Any = sys.modules.get(module)
    found = home
    for part in name.split("."):
        found = getattr(found, part, None)
    if getattr(found, "function", None) is not task.function:
        raise Invalid(
            f"task {task.name}: a plain function runs in a child process, which cannot import it as {module}.{name}: "
            "declare it at the top of its module, or give it run='thread'"
        )
    if module != "__main__":
        return Address(module, name, "")
    if home.__spec__ is not None:  # python -m package.module
        return Address(home.__spec__.name, name, "")
    return Address(MAIN, name, getattr(home, "__file__", None) or "")


def ending(kind: bytes, body: bytes, lease: Lease) -> Ending:
    """Parse the frame of an outcome without a result."""
    said = json.loads(body)
    if kind == SUSPENSION:
        return Suspension(lease, *said)
    return Release(lease, *said) if kind == RELEASE else Failure(lease, *said)


def ending_frame(ending: Ending, spent: bool = False) -> bytes:
    """Build the frame of an outcome without a result. `spent`, of a failure: the child must be replaced."""
    kind = SUSPENSION if isinstance(ending, Suspension) else RELEASE
    if isinstance(ending, Failure):
        kind = SPENT if spent else FAILURE
    return frame(kind, json.dumps(ending[1:]).encode())


def ask(number: int, job_id: str, what: str, argument: Any) -> bytes:
    """Build an ASK, a child's question to its worker; `what`: one of `FORMS`."""
    return frame(ASK, json.dumps([number, job_id, what, FORMS[what].write(argument)]).encode())


def asked(body: bytes) -> tuple[int, str, str, Any]:
    """Parse an ASK: its number, the job's id, what, and the argument. Raises e.g. ValueError, KeyError."""
    number, job_id, what, argument = json.loads(body)
    return number, job_id, what, FORMS[what].read(argument)


def answer(number: int, what: str, found: Any) -> bytes:
    """Build the ANSWER to an ASK. `found`: its answer, or a JobsError."""
    if isinstance(found, JobsError):
        return frame(ANSWER, json.dumps([number, "", type(found).__name__, str(found)]).encode())
    return frame(ANSWER, json.dumps([number, what, FORMS[what].write_answer(found)]).encode())


def answered(body: bytes) -> tuple[int, Any]:
    """Parse an ANSWER: its number, and the answer or JobsError."""
    number, what, *words = json.loads(body)
    if not what:
        kind = getattr(errors, words[0])
        return number, kind(words[1])
    return number, FORMS[what].read_answer(words[0])
