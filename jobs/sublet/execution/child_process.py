"""One child process, seen from its parent. Nothing here waits for the child."""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from sublet.errors import LeaseLost
from sublet.execution import frames, stack
from sublet.execution.attempt import Attempt, Crashed, Ended, Why
from sublet.execution.pipe_writer import PipeWriter
from sublet.execution.steps.kept import answer
from sublet.model import Completion
from sublet.source_tree import PACKAGE

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

BOOT = "import json, sys; sys.path[:0] = [sys.argv[4]]; from sublet.execution.child_main import main; sys.path[:] = json.loads(sys.argv[3]); main()"
"""The code of a child. Arguments: the parent's pid, the pipe that closes when it dies, its `sys.path`, where
to import this package, the pipe for stacks.
"""
HOME = str(PACKAGE.parent)
GARBAGE = "the child process wrote an invalid frame to its pipe: does the task write to file descriptors that it did not open?"
START_SECONDS = 120.0
LEAVE_SECONDS = 2.0
CLOSED_SECONDS = 0.1
DEAD_SECONDS = 10.0
STACK_SECONDS, STACK_QUIET = 0.2, 0.02
"""How many seconds a child has to write its stack, and after how many without output it is complete."""
STACK_MAX = 1 << 16
STACK_AFTER = (Why.TIMED_OUT, Why.STALLED)


class ChildRun(asyncio.Future[Completion]):
    """One job in a child process, as a future of its outcome."""

    def __init__(self, attempt: Attempt, number: int, loop: "AbstractEventLoop") -> None:
        super().__init__(loop=loop)
        self.attempt, self.number = attempt, number
        self.child: ChildProcess | None = None

    def cancel(self, msg: object = None) -> bool:
        """Cancel the job. If its task has begun, the child is killed; at a timeout or stall, after its stack
        was read.
        """
        if msg in STACK_AFTER and self.child and self.child.ask_stack(self):
            return True
        return self.end(msg)

    @property
    def begun(self) -> bool:
        """Whether it runs: it is the first of the jobs that its child holds."""
        return self.child is not None and bool(self.child.jobs) and self.child.jobs[0] is self

    def log_starved(self) -> None:
        """Warn in the job's log that all slots, or all children, wait for other jobs."""
        if self.child:
            self.child.log_starved()

    def end(self, msg: object = None) -> bool:
        """Cancel the job; kill the child at once if its task has begun."""
        cancelled = super().cancel(msg)
        if cancelled and self.child:
            self.child.abandon(self)
        return cancelled


class Pool(Protocol):
    """The methods of a process pool that its child processes call."""

    def came_free(self, child: "ChildProcess") -> None:
        """The child has no job: send it the next ones."""
        ...

    def went(self, child: "ChildProcess") -> None:
        """The child takes no more jobs."""
        ...

    def given_back(self, jobs: "Sequence[ChildRun]") -> None:
        """The child will not begin these jobs now: queue them in front again."""
        ...

    def died(self, child: "ChildProcess", words: str) -> None:
        """The process has ended, or could not be killed; `words`: why."""
        ...


class ChildProcess:
    """A child process. It leads its own process group and session: its tasks' processes die with it."""

    def __init__(self, pool: Pool, hello: bytes, loop: "AbstractEventLoop") -> None:
        self._pool, self._loop = pool, loop
        self.jobs: deque[ChildRun] = deque()
        """Jobs sent to the child; the first one runs."""
        self.up = False
        self.batch = 0
        self.taken = 0
        self._open = True
        self._given = 0
        self._never_read = False
        self.began = self.heard = 0.0
        self._got = b""
        self._garbage = ""
        self._asked: ChildRun | None = None
        self._stack, self._stack_until = b"", 0.0
        self._life, self._stacks, self._process = _spawn()
        self.pid = self._process.pid
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        for end in (self._from, self._stacks):
            os.set_blocking(end, False)
        self._out, self._requests = PipeWriter(self._to, loop), PipeWriter(self._life, loop)
        loop.add_reader(self._from, self._read)
        self._timer = loop.call_later(
            START_SECONDS,
            self._invalid_frame,
            f"the child process was not ready after {START_SECONDS:g} s: does a module that it imports wait?",
        )
        self._out.send(hello)

    def take(self, jobs: Sequence[ChildRun]) -> None:
        """Send jobs to the child, which must be ready and have none."""
        for job in jobs:
            job.child = self
        self.jobs.extend(jobs)
        self.batch = len(jobs)
        self.taken += len(jobs)
        self.began = self.heard = time.monotonic()
        data = b"".join([frames.job(job.number, job.attempt.lease) for job in jobs])
        self._given = len(data)
        self._never_read = not self._out.send(data)

    def abandon(self, job: ChildRun) -> None:
        """End a cancelled job: kill the child if it runs the job, else ask it to give the job back."""
        self._read()
        if self.jobs and self.jobs[0] is job:
            self.kill()
        elif self._open and job in self.jobs:
            self.ask_back()

    def ask_stack(self, job: ChildRun) -> bool:
        """Make the child write the stack of a running job; kill the child 0.2 s later at most, unless the job
        ends. Returns False, without effect, if the job does not run, or a stack is awaited.
        """
        self._read()
        if not (self._open and self.jobs and self.jobs[0] is job) or self._asked or job.done():
            return False
        self._read_stack()  # an earlier one
        self._asked, self._stack = job, b""
        self._stack_until = self._loop.time() + STACK_SECONDS
        self._stack_timer = self._loop.call_at(self._stack_until, self._take_stack, True)
        self._loop.add_reader(self._stacks, self._stack_came)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, stack.SIGNAL)
        return True

    def _read_stack(self) -> bool:
        with contextlib.suppress(BlockingIOError, InterruptedError):
            more = os.read(self._stacks, STACK_MAX)
            self._stack = (self._stack + more)[:STACK_MAX]
            return bool(more)
        return False

    def _stack_came(self) -> None:
        self._stack_timer.cancel()
        quiet = self._loop.time() + STACK_QUIET if self._read_stack() else 0.0
        self._stack_timer = self._loop.call_at(min(quiet, self._stack_until), self._take_stack, True)

    def _take_stack(self, kill: bool = False) -> None:
        job, self._asked = self._asked, None
        if job is None:
            return
        self._stack_timer.cancel()
        self._loop.remove_reader(self._stacks)
        self._read_stack()
        job.attempt.stack = stack.from_child(self._stack)
        if kill:
            job.end()
        else:
            asyncio.Future.cancel(job)

    def ask_back(self) -> None:
        """Ask the child to give back the jobs that have not begun."""
        self._requests.send(frames.frame(frames.ASK_BACK, b""))

    def log_starved(self) -> None:
        """Warn in the running job's log that all slots, or all children, wait for other jobs."""
        self._requests.send(frames.frame(frames.STARVED, b""))

    def _read(self) -> None:
        if not self._open:
            return
        try:
            data = os.read(self._from, frames.CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._leave(CLOSED_SECONDS)
            return
        if self._got:
            data = self._got + data
        at, head = 0, frames.HEAD.size
        while self._open and len(data) - at >= head:
            size, kind = frames.HEAD.unpack_from(data, at)
            if size > frames.BODY_MAX:
                self._invalid_frame()
                break
            if len(data) - at < head + size:
                break
            at += head + size
            self._receive(kind, data[at - size : at])
        self._got = data[at:]

    def _receive(self, kind: bytes, body: bytes) -> None:
        if kind in frames.NEWS:
            # Without a job: from a thread that has outlived its job.
            if self.jobs:
                self.jobs[0].attempt.reports.add(frames.NEWS[kind], body)
        elif kind == frames.ASK:
            self._asks(body)
        elif kind == frames.UP and not self.up:
            self.up = True
            self._timer.cancel()
            self._pool.came_free(self)
        elif kind == frames.BACK and len(body) == 4 and int.from_bytes(body, "big") <= len(self.jobs):
            back = [self.jobs.pop() for _ in range(int.from_bytes(body, "big"))]
            self.taken -= len(back)
            self._pool.given_back(back[::-1])
            if back and not self.jobs:
                self._pool.came_free(self)
        elif self.jobs and kind in frames.ENDS:
            self._job_ended(self.jobs[0], kind, body)
        else:
            self._invalid_frame()

    def _asks(self, body: bytes) -> None:
        try:
            number, job_id, what, argument = frames.asked(body)
        except (ValueError, TypeError, AttributeError, KeyError):
            self._invalid_frame()
            return
        job = self.jobs[0] if self.jobs else None
        if job is None or job.attempt.lease.id != job_id:
            self._requests.send(frames.answer(number, what, LeaseLost("the attempt has ended")))
            return
        ask, lease = job.attempt.reports.ask, job.attempt.lease
        answering = self._loop.create_task(answer(ask, lease, number, what, argument))
        job.add_done_callback(lambda _: answering.cancel())
        answering.add_done_callback(self._answered)

    def _answered(self, answering: "asyncio.Task[bytes]") -> None:
        if self._open and not answering.cancelled():
            self._requests.send(answering.result())

    def _job_ended(self, job: ChildRun, kind: bytes, body: bytes) -> None:
        self._take_stack()
        if kind == frames.RESULT:
            if not job.done():
                job.set_result(Completion(job.attempt.lease, body, job.attempt.reports.following))
        else:
            try:
                ending = frames.ending(kind, body, job.attempt.lease)
            except (ValueError, TypeError):
                self._invalid_frame()
                return
            if not job.done():
                job.set_exception(Ended(ending))
        self.jobs.popleft()
        self.heard = time.monotonic()
        if kind == frames.SPENT:
            self.retire()
        elif not self.jobs:
            self._pool.came_free(self)
        # cancelled, and not given back in time
        elif self.jobs[0].done():
            self.kill()

    def _invalid_frame(self, words: str = GARBAGE) -> None:
        self._garbage = words
        self.kill()

    def retire(self, seconds: float = LEAVE_SECONDS) -> None:
        """Take its jobs back; close its pipes, so that it exits; kill it after `seconds`."""
        self._leave(seconds, retired=True)

    def kill(self) -> None:
        """Kill the process group. The running job fails as crashed, unless ended before; others go to the pool."""
        if self._open:
            self._kill_group()
            self._leave(0.0)

    def _kill_group(self) -> None:
        # macOS raises PermissionError for a group of zombies.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def _leave(self, seconds: float, retired: bool = False) -> None:
        if not self._open:
            return
        self._open = False
        self._take_stack()
        self._timer.cancel()
        self._loop.remove_reader(self._from)
        self._out.stop()
        self._never_read = self._never_read or (bool(self.jobs) and 0 < self._given <= self._unread())
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            end.close()
        unbegun = list(self.jobs) if retired or self._never_read else list(self.jobs)[1:]
        for _ in unbegun:
            self.jobs.pop()
        self._pool.went(self)
        self._pool.given_back(unbegun)
        self.burial = self._loop.create_task(self._wait_for_end(seconds))

    def _unread(self) -> int:
        with contextlib.suppress(OSError):
            return int.from_bytes(fcntl.ioctl(self._to, termios.FIONREAD, bytes(4)), sys.byteorder)
        return 0

    async def _wait_for_end(self, seconds: float) -> None:
        pause, until = 0.001, self._loop.time() + seconds
        words = self._garbage
        while (code := self._process.poll()) is None and self._loop.time() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)
        if code is None and not words and seconds == CLOSED_SECONDS:
            words = "the child process closed its pipe to the worker: does the task close file descriptors that it did not open?"
        self._kill_group()
        until = self._loop.time() + DEAD_SECONDS
        while (code := self._process.poll()) is None and self._loop.time() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)
        words = words or _words(code)
        self._requests.stop()
        os.close(self._life)
        os.close(self._stacks)
        if self.jobs and not self.jobs[0].done():
            self.jobs[0].set_exception(Crashed(words))
        self._pool.died(self, words)


def _words(code: int | None) -> str:
    if code is None or code >= 0:
        return (
            "the child process could not be killed"
            if code is None
            else f"the child process exited with code {code}"
        )
    if code == -signal.SIGXCPU:
        return "the task used more CPU time than its child process may use for a job (SIGXCPU): raise --cpu, or split the job"
    with contextlib.suppress(ValueError):
        return f"the child process died of {signal.Signals(-code).name}"
    return f"the child process died of signal {-code}"


def _spawn() -> "tuple[int, int, subprocess.Popen[bytes]]":
    life, own_life = os.pipe()
    own_stacks, stacks = os.pipe()
    os.set_blocking(stacks, False)  # a signal's handler writes to it
    command = [
        sys.executable,
        "-c",
        BOOT,
        str(os.getpid()),
        str(life),
        json.dumps(sys.path),
        HOME,
        str(stacks),
    ]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            pass_fds=(life, stacks),
            start_new_session=True,
        )
    except OSError:
        os.close(own_life)
        os.close(own_stacks)
        raise
    finally:
        os.close(life)
        os.close(stacks)
    return own_life, own_stacks, process
