"""One child process, as its parent sees it: spawned, handed one job at a time, heard through its pipe, killed, seen off.

Nothing here waits: the event loop calls when the pipe has something to read, and a job costs one write and one read.
"""

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

from sublet.execution import frames
from sublet.execution.attempt import Attempt, Crashed, Ended
from sublet.model import Completion
from sublet.source_tree import PACKAGE

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

BOOT = "import json, sys; sys.path[:0] = [sys.argv[4]]; from sublet.execution.child_main import main; sys.path[:] = json.loads(sys.argv[3]); main()"
"""The child imports from where its parent does, but this package from its own home, whatever lies in the user's folder. Its
arguments: the parent's pid, the pipe that closes when the parent dies, that path, that home."""
HOME = str(PACKAGE.parent)
MISSPOKE = (
    "the child process wrote what its worker cannot read: does the task write to file descriptors of others?"
)
START_SECONDS = 120.0
"""How long a child may import the user's modules before it is killed."""
LEAVE_SECONDS = 2.0
"""How long a child that is no longer needed may take to exit by itself."""
CLOSED_SECONDS = 0.1
"""How long a child may live on after its pipe closed: it may have closed it itself."""
DEAD_SECONDS = 10.0
"""How long the system may take to bury what was killed."""


class Running(asyncio.Future[Completion]):
    """The run of a job in a child. Whoever cancels it ends the task: its child is killed."""

    def __init__(self, attempt: Attempt, number: int, loop: "AbstractEventLoop") -> None:
        super().__init__(loop=loop)
        self.attempt, self.number = attempt, number
        self.child: Child | None = None

    def cancel(self, msg: object = None) -> bool:
        """Cancel, and end the task at once."""
        cancelled = super().cancel(msg)
        if cancelled and self.child:
            self.child.let_go(self)
        return cancelled


class Pool(Protocol):
    """Who is told how a child is."""

    def came_free(self, child: "Child") -> None:
        """It is up, or has ended its jobs: give it the next ones."""
        ...

    def went(self, child: "Child") -> None:
        """It takes no more jobs."""
        ...

    def given_back(self, jobs: "Sequence[Running]") -> None:
        """These were not begun: give them to another."""
        ...

    def died(self, child: "Child", words: str) -> None:
        """It is gone, and its process buried."""
        ...


class Child:
    """One child process. `pid` is also its process group and session: what it starts dies with it."""

    def __init__(self, pool: Pool, hello: bytes, loop: "AbstractEventLoop") -> None:
        self._pool, self._loop = pool, loop
        self.jobs: deque[Running] = deque()
        """The job that it runs, and those that it is to run afterwards."""
        self.up = False
        self.batch = 0
        """How many jobs it was given last."""
        self.taken = 0
        """How many jobs it was given."""
        self._open = True
        self._deaf, self._given = False, 0
        """It was dead, or dying, when it was given its jobs (so many bytes): it has begun none."""
        self.began = self.heard = 0.0
        """When it was given these jobs, and when the last one of them ended."""
        self._got = self._unsent = b""
        self._garbage = ""
        life, self._life = os.pipe()
        command = [sys.executable, "-c", BOOT, str(os.getpid()), str(life), json.dumps(sys.path), HOME]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                pass_fds=(life,),
                start_new_session=True,
            )
        except OSError:
            os.close(self._life)
            raise
        finally:
            os.close(life)
        self.pid = self._process.pid
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        for end in (self._to, self._from):
            os.set_blocking(end, False)
        loop.add_reader(self._from, self._read)
        self._timer = loop.call_later(
            START_SECONDS, self._misspoke, f"the child process was not ready after {START_SECONDS:g} s"
        )
        self._send(hello)

    def take(self, jobs: Sequence[Running]) -> None:
        """Run jobs, one after the other. The child must be up and free."""
        for job in jobs:
            job.child = self
        self.jobs.extend(jobs)
        self.batch = len(jobs)
        self.taken += len(jobs)
        self.began = self.heard = time.monotonic()
        data = b"".join([frames.job(job.number, job.attempt.lease) for job in jobs])
        self._given = len(data)
        self._deaf = not self._send(data)

    def let_go(self, job: Running) -> None:
        """A job was cancelled: end it if it runs; if it is to run later, have it back."""
        self._read()  # it may have ended already
        if self.jobs and self.jobs[0] is job:
            self.kill()
        elif self._open and job in self.jobs:
            self.ask_back()

    def ask_back(self) -> None:
        """Have it give back the jobs that it has not begun."""
        with contextlib.suppress(OSError):  # it has died
            os.write(self._life, frames.ASK_BACK)

    def _send(self, data: bytes) -> bool:
        """Send, now or as soon as there is room. False if the child has died; its other pipe says so, too."""
        try:
            sent = os.write(self._to, data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return False
        if sent < len(data):
            self._unsent = data[sent:]
            self._loop.add_writer(self._to, self._send_rest)
        return True

    def _send_rest(self) -> None:
        data, self._unsent = self._unsent, b""
        self._loop.remove_writer(self._to)
        self._send(data)

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
                self._misspoke()
                break
            if len(data) - at < head + size:
                break
            at += head + size
            self._hear(kind, data[at - size : at])
        self._got = data[at:]

    def _hear(self, kind: bytes, body: bytes) -> None:
        if kind in frames.NEWS:
            if self.jobs:  # else a thread of the task has outlived its job
                self.jobs[0].attempt.said.tell(frames.NEWS[kind], body)
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
            self._hear_end(self.jobs[0], kind, body)
        else:
            self._misspoke()

    def _hear_end(self, job: Running, kind: bytes, body: bytes) -> None:
        """The first of its jobs has ended."""
        if kind == frames.RESULT:
            if not job.done():
                job.set_result(Completion(job.attempt.lease, body))
        else:
            try:
                ending = frames.ending(kind, body, job.attempt.lease)
            except (ValueError, TypeError):
                self._misspoke()
                return
            if not job.done():
                job.set_exception(Ended(ending))
        self.jobs.popleft()
        self.heard = time.monotonic()
        if kind == frames.SPENT:
            self.retire()
        elif not self.jobs:
            self._pool.came_free(self)
        elif self.jobs[0].done():  # cancelled before it was begun, and not given back in time
            self.kill()

    def _misspoke(self, words: str = MISSPOKE) -> None:
        self._garbage = words
        self.kill()

    def retire(self, seconds: float = LEAVE_SECONDS) -> None:
        """Give it no more jobs, and let it exit within so many seconds."""
        self._leave(seconds, retired=True)

    def kill(self) -> None:
        """End it now, whatever it does, with all that it has started."""
        if self._open:
            self._kill_group()
            self._leave(0.0)

    def _kill_group(self) -> None:
        with contextlib.suppress(
            ProcessLookupError, PermissionError
        ):  # macOS says the latter of a group of zombies
            os.killpg(self.pid, signal.SIGKILL)

    def _leave(self, seconds: float, retired: bool = False) -> None:
        if not self._open:
            return
        self._open = False
        self._timer.cancel()
        self._loop.remove_reader(self._from)
        self._loop.remove_writer(self._to)
        self._deaf = self._deaf or (bool(self.jobs) and 0 < self._given <= self._unread())
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            end.close()
        unbegun = list(self.jobs) if retired or self._deaf else list(self.jobs)[1:]
        for _ in unbegun:
            self.jobs.pop()
        self._pool.went(self)
        self._pool.given_back(unbegun)
        self.burial = self._loop.create_task(self._bury(seconds))

    def _unread(self) -> int:
        """The bytes that the child has not taken out of its pipe. It may have died just before it was given its jobs."""
        with contextlib.suppress(OSError):  # a system that does not say
            return int.from_bytes(fcntl.ioctl(self._to, termios.FIONREAD, bytes(4)), sys.byteorder)
        return 0

    async def _bury(self, seconds: float) -> None:
        """See the process gone within the seconds, or kill it, and what it has started with it."""
        pause, until = 0.001, self._loop.time() + seconds
        words = self._garbage
        while (code := self._process.poll()) is None and self._loop.time() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)
        if code is None and not words and seconds == CLOSED_SECONDS:
            words = "the child process closed its pipe to the worker: does the task close file descriptors of others?"
        self._kill_group()
        until = self._loop.time() + DEAD_SECONDS
        while (code := self._process.poll()) is None and self._loop.time() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)
        words = words or _words(code)
        os.close(self._life)
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
    with contextlib.suppress(ValueError):
        return f"the child process died of {signal.Signals(-code).name}"
    return f"the child process died of signal {-code}"
