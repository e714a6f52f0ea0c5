"""The program of a child process: reads jobs from its parent, runs them one by one, writes what came of them.

It ends when its parent does: the reading thread sees the pipe close, and on Linux the kernel kills it as well, should a task
hold the interpreter. What a task prints goes to stderr, for stdin and stdout are the pipes.
"""

import ctypes
import importlib
import json
import os
import queue
import runpy
import signal
import sys
import threading
from functools import cache
from types import SimpleNamespace
from typing import Any, BinaryIO

from jobs import pipe
from jobs.attempt import UnknownTask, ending_of
from jobs.context import Context
from jobs.errors import Invalid
from jobs.model import Lease

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve the parent until it is gone."""
    source, out = _take_pipes()
    _die_with(int(sys.argv[1]))
    jobs: queue.SimpleQueue[tuple[list[Any], bytes]] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(source, jobs), daemon=True).start()
    while True:
        said, payload = jobs.get()
        _write(out, _outcome(said, payload, out))


def _take_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Keep the pipes for ourselves: what a task reads is empty, what it prints goes to stderr."""
    source, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, out


def _die_with(parent: int) -> None:
    for name in (signal.SIGINT, signal.SIGTERM):  # meant for the whole group; the parent decides what becomes of a job
        signal.signal(name, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _read(source: BinaryIO, jobs: "queue.SimpleQueue[tuple[list[Any], bytes]]") -> None:
    """Pass jobs on to the main thread; when the pipe closes, the parent is gone and so is our reason to be."""
    said: list[Any] = []
    while True:
        head = source.read(pipe.HEAD.size)
        if len(head) < pipe.HEAD.size:
            os._exit(0)
        size, kind = pipe.HEAD.unpack(head)
        body = source.read(size)
        if kind == pipe.JOB:
            said = json.loads(body)
        else:
            jobs.put((said, body))


def _write(out: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[out.write(view) :]


def _outcome(said: list[Any], payload: bytes, out: BinaryIO) -> bytes:
    """Run one job and give the frame that says what came of it."""
    job_id, name, queue_name, attempt, fence, recovered, *address = said
    lease = Lease(job_id, f"{fence}.", attempt, 0, queue_name, name, None, payload, recovered)
    try:
        task = _task(*address)
        arguments = _arguments(task, payload)
        context = (Context(lease, lambda news, body: _write(out, pipe.frame(news.value.encode(), body))),)
        value = task.function(*(context if task.arguments.takes_context else ()), **arguments)
        return pipe.frame(pipe.RESULT, task.arguments.dump_result(value))
    except BaseException as error:  # noqa: BLE001  # whatever a task raises, SystemExit included, is told to the parent
        return pipe.ended(ending_of(lease, error))


def _arguments(task: Any, payload: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = task.arguments.load(payload)
    except Invalid as error:
        raise UnknownTask(str(error)) from None
    return found


@cache
def _task(module: str, name: str, file: str) -> Any:
    found: Any = SimpleNamespace(**runpy.run_path(file, run_name=pipe.MAIN)) if file else importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found
