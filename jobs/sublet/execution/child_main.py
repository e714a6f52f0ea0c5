"""The program of a child process: it runs its parent's jobs one by one.

It ends with its parent: a thread notices that a pipe closes; on Linux the kernel kills it, too.
"""

import contextlib
import ctypes
import gc
import importlib
import itertools
import json
import math
import os
import select
import signal
import sys
import threading
from collections import deque
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any

from sublet.context import Context, current
from sublet.errors import Invalid, JobsError, LeaseLost
from sublet.execution import frames, stack
from sublet.execution.attempt import STARVED, UnknownTask, ending_of, unfit
from sublet.execution.following import chunks, completion_of
from sublet.execution.large import read_payload, storage_from
from sublet.execution.steps.kept import PlainSteps
from sublet.job_log import keep_logs
from sublet.large_payloads.storage import Storage, is_reference
from sublet.model import Ending, Failure, Lease, News
from sublet.options import PAYLOAD_MAX
from sublet.tasks.arguments import Arguments
from sublet.tasks.middleware import entered

PR_SET_PDEATHSIG = 1
IGNORED = (signal.SIGINT, signal.SIGTERM)
FLUSH_EVERY = 0.1


def main() -> None:
    """Prepare this process, then run the parent's jobs (`JobRunner.serve`)."""
    parent = int(sys.argv[1])
    source, out, life = _take_pipes(int(sys.argv[2]), int(sys.argv[5]))
    _die_with(parent)
    runner = JobRunner(source, out, json.loads(b"".join(_receive(source)) or b"{}"))
    threading.Thread(target=_watch, args=(life, runner), name="sublet-life", daemon=True).start()
    runner.serve()


def _take_pipes(life: int, stacks: int) -> tuple[int, int, int]:
    # Tasks read nothing and print to stderr; forks do not inherit the pipes
    source, out, own_life, own_stacks = os.dup(0), os.dup(1), os.dup(life), os.dup(stacks)
    os.close(life)
    os.close(stacks)
    stack.write_at_signal(own_stacks)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    # With line buffering, a SIGKILL loses no complete line.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a TextIOWrapper
    os.register_at_fork(after_in_child=lambda: os.closerange(source, out + 1))
    # Without the pipe, a fork cannot report its waits
    os.register_at_fork(after_in_child=partial(current.set, None))
    return source, out, own_life


def _die_with(parent: int) -> None:
    for name in IGNORED:
        # The parent decides. Not SIG_IGN, which a task's own programs would inherit.
        signal.signal(name, lambda number, frame: None)
    mask = partial(signal.pthread_sigmask, signal.SIG_BLOCK, IGNORED)
    os.register_at_fork(before=mask, after_in_parent=_unmask, after_in_child=_restore_signals)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _unmask() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, IGNORED)


def _restore_signals() -> None:
    # multiprocessing's `terminate` relies on it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # Last: a signal since the fork takes effect, too
    _unmask()


def _watch(life: int, runner: "JobRunner") -> None:
    requests = b""
    # OSError: the task has closed our file descriptor.
    with contextlib.suppress(OSError):
        while True:
            ready = select.select([life, runner.news], [], [])[0]
            if runner.news in ready:
                ready = select.select([life], [], [], FLUSH_EVERY)[0]
                runner.flush()
            if life in ready:
                more = os.read(life, frames.CHUNK)
                if not more:
                    os.killpg(0, signal.SIGKILL)
                requests = _obey(requests + more, runner)


def _obey(requests: bytes, runner: "JobRunner") -> bytes:
    at, head = 0, frames.HEAD.size
    while len(requests) - at >= head:
        size, kind = frames.HEAD.unpack_from(requests, at)
        if len(requests) - at < head + size:
            break
        at += head + size
        if kind == frames.STARVED:
            runner.log_starved()
        elif kind == frames.ASK_BACK:
            runner.give_back()
        else:
            runner.take_answer(requests[at - size : at])
    return requests[at:]


def _receive(source: int) -> list[bytes]:
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


class JobRunner:
    """Runs the jobs that the parent sends, and writes their outcomes and reports to the pipe `out`."""

    def __init__(self, source: int, out: int, hello: dict[str, Any]) -> None:
        self._source, self._out = source, out
        self._names: list[str] = hello.get("names", [])
        self._addresses = [frames.Address(*address) for address in hello.get("addresses", [])]
        self._first: list[str] = hello.get("first", [])
        self._memory: int | None = hello.get("memory")
        self._cpu: float | None = hello.get("cpu")
        self._large: dict[str, Any] | None = hello.get("large")
        self._storages: dict[int, Storage | None] = {}  # by id(app)
        self._tasks: dict[int, Any] = {}
        self._context: Context | None = None
        self._lease: Lease | None = None
        self._storage: Storage | None = None
        self._pending: deque[bytes] = deque()
        self._spent = False
        self._writing = threading.Lock()
        self._asked: dict[int, SimpleQueue[Any]] = {}
        self._numbers = itertools.count()
        self.news, self._wake = os.pipe()
        self._flushed = True

    def serve(self) -> None:
        """Import the tasks (failures are only printed), then run jobs until the pipe with the jobs closes or a job runs out
        of memory.
        """
        if self._memory:
            _limit_memory(self._memory)
        keep_logs()
        for number in range(len(self._names)):
            try:
                self._task(number)
            except UnknownTask as error:
                print(f"sublet: {error}", file=sys.stderr)  # noqa: T201  # its jobs are released with the same message
        gc.freeze()
        self._write(frames.frame(frames.UP, b""))
        while not self._spent and (bodies := _receive(self._source)):
            self._pending.extend(bodies)
            while self._pending and not self._spent:
                with contextlib.suppress(IndexError):
                    self._write(self._outcome(*frames.lease(self._pending.popleft(), self._names)))

    def give_back(self) -> None:
        """Drop the jobs that have not begun; report to the parent how many."""
        given = 0
        with contextlib.suppress(IndexError):
            while True:
                self._pending.pop()
                given += 1
        self._write(frames.frame(frames.BACK, given.to_bytes(4, "big")))

    def log_starved(self) -> None:
        """Warn in the running job's log that all slots, or all children, wait for other jobs."""
        context = self._context
        if context:
            context.log(f"warning {STARVED}")

    def _notify(self) -> None:
        if self._flushed:
            self._flushed = False
            os.write(self._wake, b".")

    def flush(self) -> None:
        """Send the running task's reports to the parent."""
        os.read(self.news, 1)
        self._flushed, context = True, self._context
        if context:
            context.flush()

    def _write(self, data: bytes) -> None:
        with self._writing:
            sent = os.write(self._out, data)
            while sent < len(data):
                sent += os.write(self._out, data[sent:])

    def _outcome(self, number: int, lease: Lease) -> bytes:
        context = Context(lease, partial(self._send_news, lease), self._notify, self)
        rules = None
        if self._cpu:
            _limit_cpu(self._cpu)
        try:
            task = self._tasks.get(number) or self._task(number)
            rules = task.error_rules
            storage = self._storage = self._storage_of(task) if self._large else None
            result = self._run(task, context, lease, storage)
            if storage and storage.takes(result):
                result = storage.put(lease.id, result)
            return frames.frame(frames.RESULT, result)
        except MemoryError as error:
            self._spent = True
            return frames.ending_frame(self._out_of_memory(ending_of(lease, error, rules)), spent=True)
        except BaseException as error:  # noqa: BLE001  # every exception, SystemExit included, is the job's outcome
            return frames.ending_frame(ending_of(lease, error, rules))
        finally:
            self._context = self._lease = None

    def _storage_of(self, task: Any) -> Storage | None:
        if id(task.app) not in self._storages:
            self._storages[id(task.app)] = storage_from(self._large, task.app)
        return self._storages[id(task.app)]

    def _run(self, task: Any, context: Context, lease: Lease, storage: Storage | None) -> bytes:
        payload = read_payload(storage, lease) if is_reference(lease.payload) else lease.payload
        try:
            arguments = task.arguments.load(payload)
        except Invalid as error:
            raise unfit(error) from None
        self._context, self._lease = context, lease
        context.arguments = MappingProxyType(arguments)
        token = current.set(context)
        first = (context,) if task.arguments.takes_context else ()
        try:
            encode = partial(self._encode, task.arguments, lease, math.inf if storage else PAYLOAD_MAX)
            if not task.app.hooks:
                return encode(task.function(*first, **arguments))
            with entered(task.app.hooks, context):
                return encode(task.function(*first, **arguments))
            return encode(None)
        finally:
            current.reset(token)
            context.flush()

    def _encode(self, arguments: Arguments, lease: Lease, most: float, value: Any) -> bytes:
        done = completion_of(lease, arguments, value, most)
        for part in chunks(done.following) if done.following else ():
            self._send_news(lease, News.FOLLOWING, part)
        return done.result

    def open_steps(self, lease: Lease) -> PlainSteps:
        """Return the running job's steps; they ask the parent."""
        return PlainSteps(lease, partial(self._ask, lease), self._storage)

    def _ask(self, lease: Lease, what: str, argument: Any) -> Any:
        if lease is not self._lease:
            raise LeaseLost(
                "the attempt has ended, and a thread of its task still uses the context: end threads before the task returns"
            )
        number, answer = next(self._numbers), SimpleQueue[Any]()
        self._asked[number] = answer
        self._write(frames.ask(number, lease.id, what, argument))
        found = answer.get()
        if isinstance(found, JobsError):
            raise found
        return found

    def take_answer(self, body: bytes) -> None:
        """Give the parent's answer to the thread that waits for it."""
        number, found = frames.answered(body)
        self._asked.pop(number).put(found)

    def _send_news(self, lease: Lease, news: News, body: bytes) -> None:
        # Not from a thread that has outlived its job
        if lease is self._lease:
            self._write(frames.frame(news.value.encode(), body))

    def _out_of_memory(self, ending: Ending) -> Ending:
        limit = (
            f" ({self._memory // (1 << 20):,} MiB): raise --memory, or split the job" if self._memory else ""
        )
        words = f"the task needed more memory than its child process may use{limit}"
        return ending._replace(message=words) if isinstance(ending, Failure) else ending

    def _task(self, number: int) -> Any:
        module, name, file = self._addresses[number]
        own = importing = file or module
        try:
            for importing in (*self._first, own):
                found: Any = _import_main(file) if importing == file else importlib.import_module(importing)
            for part in name.split("."):
                found = getattr(found, part)
            found.app.load()
        except BaseException as error:
            words = " ".join(str(error).split())
            raise UnknownTask(
                f"a child process cannot import {importing}: {type(error).__name__}: {words}"
            ) from error
        self._tasks[number] = found
        return found


def _import_main(file: str) -> Any:
    # Not as `__main__`, so that the program does not start again
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


def _limit_cpu(limit: float) -> None:
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    most = math.ceil(used.ru_utime + used.ru_stime + limit)
    resource.setrlimit(
        resource.RLIMIT_CPU, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )


def _limit_memory(limit: int) -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
