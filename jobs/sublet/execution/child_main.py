"""The program of a child process: reads jobs from its parent, runs them one by one, writes what came of them.

It ends when its parent does: a thread sees the parent's end of a pipe close, and on Linux the kernel kills it as well, should a
task hold the interpreter. The main thread reads the jobs itself: handing them over from another thread costs 20 µs a job and
more. What a task prints goes to stderr, for stdin and stdout are the pipes.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import logging
import os
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import Any

from sublet.context import Context, KeepLog, current
from sublet.errors import Invalid
from sublet.execution import frames
from sublet.execution.attempt import UnknownTask, ending_of, unfit
from sublet.model import Failure, Lease, News
from sublet.tasks.middleware import entered

PR_SET_PDEATHSIG = 1
DEAF_TO = (signal.SIGINT, signal.SIGTERM)
OFTEN = 0.1
"""Seconds that a task's news may wait to be passed on."""


def main() -> None:
    """Serve the parent until it wants no more, or is gone."""
    parent = int(sys.argv[1])
    source, out, life = _take_pipes(int(sys.argv[2]))
    _die_with(parent)
    child = Child(source, out, json.loads(b"".join(_receive(source)) or b"{}"))
    threading.Thread(target=_watch, args=(life, child), name="sublet-life", daemon=True).start()
    child.serve()


def _take_pipes(life: int) -> tuple[int, int, int]:
    """Keep the pipes for ourselves: what a task reads is empty, what it prints goes to stderr; what it forks has no part."""
    source, out, own_life = os.dup(0), os.dup(1), os.dup(life)
    os.close(life)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a line that was printed is not lost by a SIGKILL
    os.register_at_fork(after_in_child=lambda: os.closerange(source, out + 1))
    return source, out, own_life


def _die_with(parent: int) -> None:
    for name in DEAF_TO:  # the parent decides; a task's own programs still hear them
        signal.signal(name, lambda number, frame: None)
    mask = partial(signal.pthread_sigmask, signal.SIG_BLOCK, DEAF_TO)
    os.register_at_fork(before=mask, after_in_parent=_unmask, after_in_child=_hear_again)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _unmask() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, DEAF_TO)


def _hear_again() -> None:
    """What a task forks is ended by signals as any process is: multiprocessing's `terminate` relies on it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _unmask()  # only now: what came since the fork is heard as well


def _watch(life: int, child: "Child") -> None:
    """When the pipe closes, the parent is gone: end whatever runs here, with all that it has started. Until then, flush news."""
    with contextlib.suppress(OSError):  # a task has closed files that are not its own: the parent sees that
        while True:
            ready = select.select([life, child.heard], [], [])[0]
            if child.heard in ready:
                ready = select.select([life], [], [], OFTEN)[0]
                child.flush()
            if life in ready:
                if not os.read(life, 16):
                    os.killpg(0, signal.SIGKILL)
                child.give_back()


def _receive(source: int) -> list[bytes]:
    """The bodies of the next frames; none when there will be none. The parent sends no more until we have answered them."""
    data, at, head = b"", 0, frames.HEAD.size
    bodies: list[bytes] = []
    while more := os.read(source, frames.CHUNK):
        data = data[at:] + more if at < len(data) else more
        at = 0
        while len(data) - at >= head and len(data) - at >= head + (
            size := frames.HEAD.unpack_from(data, at)[0]
        ):
            at += head + size
            bodies.append(data[at - size : at])
        if at == len(data):
            return bodies
    return []


class Child:
    """What runs the jobs in a child process."""

    def __init__(self, source: int, out: int, hello: dict[str, Any]) -> None:
        self._source, self._out = source, out
        self._names: list[str] = hello.get("names", [])
        self._addresses = [frames.Address(*address) for address in hello.get("addresses", [])]
        self._memory: int | None = hello.get("memory")
        self._tasks: dict[int, Any] = {}
        self._context: Context | None = None
        self._lease: Lease | None = None
        self._pending: deque[bytes] = deque()
        self._spent = False
        self._writing = threading.Lock()
        self.heard, self._wake = os.pipe()
        """Readable when the task has said something that is to be flushed."""
        self._unheard = True

    def serve(self) -> None:
        """Import the tasks, and run jobs until there will be no more."""
        if self._memory:
            _limit_memory(self._memory)
        logging.getLogger().addHandler(KeepLog(logging.INFO))
        for number in range(len(self._names)):
            try:
                self._task(number)
            except UnknownTask as error:
                print(f"sublet: {error}", file=sys.stderr)  # noqa: T201  # its jobs say so, too
        gc.freeze()  # what was imported stays: the collector need not look at it again
        self._write(frames.frame(frames.UP, b""))
        while not self._spent and (bodies := _receive(self._source)):
            self._pending.extend(bodies)
            while self._pending and not self._spent:
                with contextlib.suppress(IndexError):  # given back this very moment
                    self._write(self._outcome(*frames.lease(self._pending.popleft(), self._names)))

    def give_back(self) -> None:
        """The task that runs takes longer than was thought: let others have the jobs that wait behind it."""
        given = 0
        with contextlib.suppress(IndexError):
            while True:
                self._pending.pop()
                given += 1
        self._write(frames.frame(frames.BACK, given.to_bytes(4, "big")))

    def _hear(self) -> None:
        if self._unheard:
            self._unheard = False
            os.write(self._wake, b".")

    def flush(self) -> None:
        """Pass on what the running task has said."""
        os.read(self.heard, 1)
        self._unheard, context = True, self._context
        if context:
            context.flush()

    def _write(self, data: bytes) -> None:
        """Write a frame; a task's threads may speak as well."""
        with self._writing:
            sent = os.write(self._out, data)
            while sent < len(data):
                sent += os.write(self._out, data[sent:])

    def _outcome(self, number: int, lease: Lease) -> bytes:
        """Run one job and give the frame that says what came of it."""
        context = Context(lease, partial(self._tell, lease), self._hear)
        try:
            task = self._tasks.get(number) or self._task(number)
            return frames.frame(frames.RESULT, self._run(task, context, lease))
        except MemoryError as error:
            self._spent = True
            return frames.ended(self._out_of_memory(lease, error), spent=True)
        except BaseException as error:  # noqa: BLE001  # whatever a task raises, SystemExit included, is told to the parent
            return frames.ended(ending_of(lease, error))
        finally:
            self._context = self._lease = None

    def _run(self, task: Any, context: Context, lease: Lease) -> bytes:
        try:
            arguments = task.arguments.load(lease.payload)
        except Invalid as error:
            raise unfit(error) from None
        self._context, self._lease = context, lease
        token = current.set(context)
        first = (context,) if task.arguments.takes_context else ()
        try:
            encode: Callable[[Any], bytes] = task.arguments.dump_result
            if not task.app.hooks:
                return encode(task.function(*first, **arguments))
            with entered(task.app.hooks, context):
                return encode(task.function(*first, **arguments))
            return encode(None)
        finally:
            current.reset(token)
            context.flush()

    def _tell(self, lease: Lease, news: News, body: bytes) -> None:
        if lease is self._lease:  # a thread may have outlived its job: then nobody listens
            self._write(frames.frame(news.value.encode(), body))

    def _out_of_memory(self, lease: Lease, error: MemoryError) -> Failure:
        """The failure of a task that wanted more than there is; the error itself mostly has no words."""
        failure = ending_of(lease, error)
        limit = f" ({self._memory // (1 << 20):,} MiB)" if self._memory else ""
        words = f"the task needed more memory than its child process may use{limit}"
        return Failure(lease, "MemoryError", words, failure.detail if isinstance(failure, Failure) else "")

    def _task(self, number: int) -> Any:
        """Find a task; looked for again with each of its jobs until it is found. Raises UnknownTask."""
        module, name, file = self._addresses[number]
        try:
            found: Any = _import_main(file) if file else importlib.import_module(module)
            for part in name.split("."):
                found = getattr(found, part)
        except BaseException as error:  # a module may raise whatever it likes, and exit
            words = " ".join(str(error).split())
            raise UnknownTask(
                f"a child process cannot import {file or module}: {type(error).__name__}: {words}"
            ) from error
        self._tasks[number] = found
        return found


def _import_main(file: str) -> Any:
    """The parent's main program as a module, under a name that does not set it off."""
    if frames.MAIN not in sys.modules:
        loader = SourceFileLoader(frames.MAIN, file)
        spec = spec_from_loader(frames.MAIN, loader)
        assert spec is not None
        sys.modules[frames.MAIN] = module_from_spec(spec)
        try:
            loader.exec_module(sys.modules[frames.MAIN])
        except BaseException:
            del sys.modules[frames.MAIN]
            raise
    return sys.modules[frames.MAIN]


def _limit_memory(limit: int) -> None:
    import resource  # not everywhere, and the worker asks for it only where it is

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
