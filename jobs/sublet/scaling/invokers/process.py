"""The invoker `process`: workers as processes on this machine, which end with the invoker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO, NamedTuple

from sublet.scaling.invokers import AT_ONCE, Invocation, InvocationFailed, call_each
from sublet.source_tree import import_folders
from sublet.tasks.programs.bound_process import spawn_bound

log = logging.getLogger(__name__)

MOST = 32
SECONDS = 900.0
"""Most seconds that a worker may live, by default."""
KILL_AFTER = 5.0
"""A worker is killed if it still runs so many seconds after its time limit."""
PATIENCE = 13.0
"""How many seconds `aclose` waits for the workers' end, by default."""
LINE_MAX = 8192


class Spawned(NamedTuple):
    """A running worker process."""

    pid: int
    pool: str
    summons: str
    since: datetime


Ended = Callable[[str, int, int], None]
"""Called when a worker process has ended, with the summons id, pid and exit code (negative: the signal)."""
Hear = Callable[[Spawned, str], None]


@dataclass(eq=False)
class _Worker:
    pool: str
    summons: str
    since: datetime
    started: asyncio.Future[None]
    process: subprocess.Popen[bytes] | None = None
    timer: asyncio.TimerHandle | None = None
    pipe: int = -1
    rest: bytearray = field(default_factory=bytearray)

    @property
    def shown(self) -> Spawned:
        return Spawned(self.process.pid if self.process else 0, self.pool, self.summons, self.since)


def worker_command(
    app: str, request: Invocation, summons: str, seconds: float, arguments: Sequence[str]
) -> list[str]:
    """Return the command of the worker for one summons. `seconds` is its `--for`; `arguments` come last."""
    words = [
        f"--pool={request.pool}",
        f"--summons={summons}",
        f"--slots={request.slots}",
        f"--linger={_duration(request.linger)}",
    ]
    words += [f"--queues={','.join(request.queues)}"] if request.queues else []
    words += [f"--for={_duration(seconds)}", *arguments]
    return [sys.executable, "-P", "-m", "sublet", "work", app, "--drain", *words]


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment`, but with Sublet on PYTHONPATH, and Redis, not an API, as a worker's source."""
    path = os.pathsep.join(filter(None, [*import_folders(), environment.get("PYTHONPATH")]))
    return {**environment, "PYTHONPATH": path, "SUBLET_SOURCE": ""}


class ProcessInvoker:
    """Starts workers as processes of this machine (`sublet work APP --drain …`), one for each summons; they
    end with this process. If this process is killed, they get SIGTERM, and SIGKILL `grace` seconds later (0:
    only SIGKILL). They inherit the file descriptors `keep`.

    At most `most` workers live at once, each for `seconds`; after 5 more it is killed. `arguments` are added
    to the command. Their output goes to `output` (None: this process's own), or each line to `hear`. `hear`
    and `ended` must not raise.
    """

    kind = "process"

    def __init__(
        self,
        app: str,
        *,
        most: int = MOST,
        seconds: float = SECONDS,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        output: IO[bytes] | int | None = None,
        hear: Hear | None = None,
        ended: Ended = lambda summons, pid, code: None,
        grace: float = 0.0,
        keep: Sequence[int] = (),
    ) -> None:
        self._app, self._most, self._seconds, self._arguments = app, most, seconds, tuple(arguments)
        self._environment, self._output, self._hear, self._on_end = environment, output, hear, ended
        self._grace, self._keep_open = grace, keep
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._workers: set[_Worker] = set()
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def processes(self) -> tuple[Spawned, ...]:
        """The running workers, the oldest first."""
        return tuple(
            sorted(
                (worker.shown for worker in self._workers if worker.process),
                key=lambda one: (one.since, one.pid),
            )
        )

    async def invoke(self, request: Invocation) -> None:
        """Start one worker per summons. Raises InvocationFailed for those that did not start."""
        if self._closed:
            raise InvocationFailed(
                "this process is ending and starts no more workers; another process must start them",
                request.summons,
            )
        await call_each(request, lambda summons: self._start(request, summons), self._turns)

    async def _start(self, request: Invocation, summons: str) -> None:
        if len(self._workers) >= self._most:
            raise InvocationFailed(
                f"{self._most} workers run here already, which is the limit: one more may start when one ends"
            )
        loop = asyncio.get_running_loop()
        worker = _Worker(request.pool, summons, datetime.now(UTC), loop.create_future())
        self._workers.add(worker)
        command = self._command(request, summons)
        threading.Thread(
            target=self._keep, args=(loop, worker, command), name="sublet-spawn", daemon=True
        ).start()
        await asyncio.shield(worker.started)

    def _command(self, request: Invocation, summons: str) -> list[str]:
        return worker_command(self._app, request, summons, self._seconds, self._arguments)

    def _keep(self, loop: asyncio.AbstractEventLoop, worker: _Worker, command: list[str]) -> None:

        def call(what: Callable[..., None], *words: object) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(what, worker, *words)

        try:
            process, pipe = self._spawn(command)
        except OSError as error:
            call(self._not_started, error)
            return
        call(self._started, process, pipe)
        code = process.wait()
        if process.stdin:
            process.stdin.close()
        call(self._ended, code)

    def _spawn(self, command: list[str]) -> tuple[subprocess.Popen[bytes], int]:
        mine, theirs = os.pipe() if self._hear else (-1, -1)
        out = theirs if self._hear else self._output
        try:
            return spawn_bound(
                command,
                stdout=out,
                stderr=out,
                env=worker_environment(os.environ if self._environment is None else self._environment),
                grace=self._grace,
                keep=self._keep_open,
            ), mine
        except BaseException:
            if mine >= 0:
                os.close(mine)
            raise
        finally:
            if theirs >= 0:
                os.close(theirs)

    def _started(self, worker: _Worker, process: subprocess.Popen[bytes], pipe: int) -> None:
        worker.process, worker.pipe = process, pipe
        loop = asyncio.get_running_loop()
        if pipe >= 0:
            os.set_blocking(pipe, False)
            loop.add_reader(pipe, self._read, worker)
        worker.timer = loop.call_later(self._seconds + KILL_AFTER, self._overdue, worker)
        if self._closed:
            process.terminate()
        if not worker.started.done():
            worker.started.set_result(None)

    def _not_started(self, worker: _Worker, error: OSError) -> None:
        self._forget(worker)
        if not worker.started.done():
            worker.started.set_exception(
                InvocationFailed(f"the worker process could not be started: {error.strerror or error}")
            )

    def _ended(self, worker: _Worker, code: int) -> None:
        process = worker.process
        assert process is not None
        self._read(worker)
        self._close_pipe(worker)
        self._forget(worker)
        self._on_end(worker.summons, process.pid, code)

    def _forget(self, worker: _Worker) -> None:
        if worker.timer:
            worker.timer.cancel()
        self._workers.discard(worker)
        self._changed.set()

    def _overdue(self, worker: _Worker) -> None:
        if worker.process:
            log.warning(
                "killing worker process %d of pool %s: it did not end within %g s",
                worker.process.pid,
                worker.pool,
                self._seconds,
            )
            worker.process.kill()

    def _read(self, worker: _Worker) -> None:
        for _ in range(16):
            try:
                piece = os.read(worker.pipe, 65536) if worker.pipe >= 0 else b""
            except BlockingIOError:
                return
            if not piece:
                self._close_pipe(worker)
                return
            worker.rest += piece
            *lines, rest = worker.rest.split(b"\n")
            worker.rest = rest[:LINE_MAX]
            for line in lines:
                self._pass_on(worker, line)

    def _close_pipe(self, worker: _Worker) -> None:
        if worker.pipe >= 0:
            asyncio.get_running_loop().remove_reader(worker.pipe)
            os.close(worker.pipe)
            worker.pipe = -1
        if worker.rest:
            self._pass_on(worker, worker.rest)
            worker.rest = bytearray()

    def _pass_on(self, worker: _Worker, line: bytes | bytearray) -> None:
        if self._hear:
            self._hear(worker.shown, line[:LINE_MAX].decode("utf-8", "replace").rstrip("\r"))

    async def aclose(self, patience: float = PATIENCE) -> None:
        """Stop all workers, which release their jobs; kill those that still run after `patience` seconds. A
        later `invoke` fails.
        """
        self._closed = True
        self._signal(signal.SIGTERM)
        try:
            await self._wait_for_all(patience)
        finally:
            if self._workers:
                log.warning("killing workers that did not end after SIGTERM: %d", len(self._workers))
                self._signal(signal.SIGKILL)
                await self._wait_for_all(PATIENCE)

    def _signal(self, number: int) -> None:
        for worker in self._workers:
            if worker.process:
                worker.process.send_signal(number)

    async def _wait_for_all(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._workers:
                    self._changed.clear()
                    await self._changed.wait()


def _duration(seconds: float) -> str:
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
