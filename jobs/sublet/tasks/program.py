"""Runs one program to its end: a process group of its own, output that is kept within bounds, and an end that comes.

Weighed: `sh`, `plumbum` and `anyio.run_process` start programs too, but none bounds what it keeps, ends a whole group, or goes
on when a grandchild holds the pipes; with those written, what is left of them is a call of asyncio.
"""

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

from pydantic import BaseModel, ConfigDict

from sublet.tasks.process_guard import Keeper, current

log = logging.getLogger(__name__)

SHELL = "/bin/sh"
KEPT = 64 * 1024
"""Bytes that are kept of stdout, and of stderr: the first half and the last."""
WRITTEN = 120 * 1024
"""Bytes that each of them may have as JSON, where a control character takes six: both must fit into a result."""
LINGER = 0.5
"""Seconds that a program's own children may hold its output open after it has exited."""
PATIENCE = 1.0
"""Seconds between SIGTERM and SIGKILL."""


class Output(BaseModel):
    """What a program left behind: its exit code, its output as text, the seconds that it took."""

    model_config = ConfigDict(frozen=True)

    code: int
    stdout: str
    stderr: str
    seconds: float


class ProgramFailed(Exception):
    """A program did not do its work. `code` is `exit_<n>`, `killed_<SIGNAL>` or `not_started`; `detail` the end of its stderr."""

    def __init__(self, code: str, message: str, detail: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.detail = code, message, detail


class Order(NamedTuple):
    """What to run: the words, all of the environment, the folder, what it may read, and how patient an early end is."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    text: str = ""
    patience: Callable[[], float] = lambda: PATIENCE
    """Asked when it is ended early: seconds between SIGTERM and SIGKILL; at 0 only the latter is sent."""


async def run(order: Order) -> Output:
    """Run a program to its end. Raises ProgramFailed unless it exits with 0.

    It leads a process group, all of which ends with it, or when the caller is cancelled: SIGTERM, then, when patience ends
    or the caller is cancelled again, SIGKILL. If this process is killed, the keeper ends the group.
    """
    keeper = current.get()
    if keeper:
        return await _run(keeper, order)
    keeper = Keeper()
    try:
        return await _run(keeper, order)
    finally:
        await keeper.aclose()


async def _run(keeper: Keeper, order: Order) -> Output:
    transport, program = await _start(order)
    group, started = transport.get_pid(), time.monotonic()
    try:
        keeper.watch(group)
        _let_it_run(transport, order.text)
        await program.exited.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER):
                await program.closed.wait()
        await _end(group, program, PATIENCE)
        return _outcome(transport.get_returncode() or 0, program, time.monotonic() - started)
    except asyncio.CancelledError:
        await _end(group, program, order.patience())
        raise
    finally:
        _signal(group, program, signal.SIGKILL)
        transport.close()
        keeper.forget(group)


class Program(asyncio.SubprocessProtocol):
    """What asyncio tells of a running program."""

    def __init__(self) -> None:
        self.kept = {1: Kept(), 2: Kept()}
        self.exited, self.closed = asyncio.Event(), asyncio.Event()
        self._open = set(self.kept)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep what it prints."""
        self.kept[fd].add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """All of one output was read."""
        self._open.discard(fd)
        if not self._open:
            self.closed.set()

    def process_exited(self) -> None:
        """The leader has exited, and was waited for: its number may be given to another process."""
        self.exited.set()


class Kept:
    """The beginning and the end of a stream of any length."""

    def __init__(self) -> None:
        self._head, self._tail, self._size = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        """Keep these bytes, and let go of what is too far from either end."""
        room = max(0, KEPT // 2 - len(self._head))
        self._head += data[:room]
        self._tail += data[room:]
        self._size += len(data)
        if len(self._tail) > KEPT:
            del self._tail[: -KEPT // 2]

    def text(self) -> str:
        """What was kept, and how much was not; what is not UTF-8 is replaced. Less is kept of what JSON must escape."""
        text = ""
        for kept in (KEPT, KEPT // 2, KEPT // 4):
            text = self._text(kept // 2)
            if len(json.dumps(text, ensure_ascii=False).encode()) <= WRITTEN:
                break
        return text

    def _text(self, half: int) -> str:
        kept, left_out = bytes(self._head + self._tail), self._size - 2 * half
        if left_out <= 0:
            return kept.decode("utf-8", "replace")
        first, last = (part.decode("utf-8", "replace") for part in (kept[:half], kept[-half:]))
        return f"{first}\n… {left_out:,} bytes left out …\n{last}"


async def _start(order: Order) -> tuple[asyncio.SubprocessTransport, Program]:
    """Start a shell that waits for our word before it becomes the program.

    So the program does nothing before the keeper knows of it: if we die in between, the shell reads the end of its stdin.
    """
    _look_for(order.argv[0], order.env, order.cwd)
    gate = 'read -r go && exec "$@"' + ("" if order.text else " </dev/null")
    try:
        return await asyncio.get_running_loop().subprocess_exec(
            Program,
            SHELL,
            "-c",
            gate,
            "sh",
            *order.argv,
            env=order.env,
            cwd=order.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # too many arguments, a NUL byte, no memory
        raise ProgramFailed(
            "not_started", f"cannot start {order.argv[0]}: {getattr(error, 'strerror', None) or error}"
        ) from None


def _look_for(name: str, env: Mapping[str, str], cwd: str | None) -> None:
    """Raise ProgramFailed for what cannot be run: a shell that is told to would have its own words for it."""
    if os.sep in name:
        path = Path(cwd or "", name)
        problem = (
            "" if path.is_file() and os.access(path, os.X_OK) else f"{name} is no file that may be executed"
        )
    else:
        found = shutil.which(name, path=env.get("PATH")) if name and not name.startswith("-") else None
        problem = "" if found else f"there is no program {name!r} on this worker's PATH"
    if cwd and not Path(cwd).is_dir():
        problem = f"there is no folder {cwd} to start {name} in"
    if not os.access(SHELL, os.X_OK):
        problem = f"programs are started through {SHELL}, and this worker has none"
    if problem:
        raise ProgramFailed("not_started", problem)


def _let_it_run(transport: asyncio.SubprocessTransport, text: str) -> None:
    """Give the gate its word, and the program its input; one that does not read it does not hold us up."""
    pipe = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
    pipe.write(b"\n" + text.encode())
    pipe.write_eof()


async def _end(group: int, program: Program, patience: float) -> None:
    """Have all of a group gone, and its leader waited for. Cancelled while it is patient, it is so no longer."""
    try:
        if patience and _signal(group, program, signal.SIGTERM):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    while _signal(group, program, 0):  # noqa: ASYNC110  # the end of what is no child of ours tells nobody
                        await asyncio.sleep(0.02)
    finally:
        _signal(group, program, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await program.exited.wait()


def _signal(group: int, program: Program, number: int) -> bool:
    """Signal a group. False if there is none, or (once the leader was waited for) its number is another process's."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if program.exited.is_set() and _is_taken(group):
            return False
        os.killpg(group, number)
        return True
    return False


def _is_taken(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _outcome(code: int, program: Program, seconds: float) -> Output:
    out, err = program.kept[1].text(), program.kept[2].text()
    if code == 0:
        return Output(code=code, stdout=out, stderr=err, seconds=round(seconds, 3))
    said = err.strip() or out.strip()
    last = said.rpartition("\n")[2].strip()[:200]
    if code > 0:
        raise ProgramFailed(f"exit_{code}", last or f"exited with code {code}", said[-4096:])
    name = _signal_name(-code)
    raise ProgramFailed(f"killed_{name}", last or f"killed by {name}", said[-4096:])


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return str(number)
