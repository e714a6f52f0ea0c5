"""Runs a program in its own process group, with bounded output, and with a certain end."""

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

from sublet.tasks.programs.process_guard import ProcessGuard, current

log = logging.getLogger(__name__)

SHELL = "/bin/sh"
KEPT = 64 * 1024
"""Most bytes of stdout, and of stderr, that are kept: half from the beginning, half from the end."""
WRITTEN = 120 * 1024
"""Most bytes of stdout and of stderr as JSON, where a control character takes six, so that both fit into a
result.
"""
LINGER = 0.5
"""How many seconds to wait, after a program's exit, for its children to close its output."""
PATIENCE = 1.0
"""Default seconds between SIGTERM and SIGKILL."""
DETAIL_MAX = 4096
LAST_OUTPUT = 0.2


class Output(BaseModel):
    """The result of a program: exit code (always 0), output (without its middle if it is long), duration in
    seconds.
    """

    model_config = ConfigDict(frozen=True)

    code: int
    stdout: str
    stderr: str
    seconds: float


class ProgramFailed(Exception):
    """A program failed. `code` is `exit_<n>`, `killed_<SIGNAL>` or `not_started`; `detail` has the
    last parts of its stdout and stderr, at most 4 KiB in all.
    """

    def __init__(self, code: str, message: str, detail: str = "") -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.detail = code, message, detail


class ProgramCall(NamedTuple):
    """A program to run: its name and arguments, whole environment, folder, and stdin (`text`)."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str | None = None
    text: str = ""
    patience: Callable[[], float] = lambda: PATIENCE
    """Returns the seconds from SIGTERM to SIGKILL when the attempt ends early; 0: only SIGKILL."""
    ended_early: Callable[[str], None] = lambda output: None
    """Called with the last part of the output after a program was ended early."""


async def run(call: ProgramCall) -> Output:
    """Run a program, then end its process group; return the output. Raises ProgramFailed unless its exit code
    is 0.

    If the caller is cancelled, the program's process group gets SIGTERM and, after `call.patience()` seconds
    or a second cancellation, SIGKILL.
    """
    guard = current.get()
    if guard:
        return await _run(guard, call)
    guard = ProcessGuard()
    try:
        return await _run(guard, call)
    finally:
        await guard.aclose()


async def _run(guard: ProcessGuard, call: ProgramCall) -> Output:
    transport, program = await _start(call)
    group, started = transport.get_pid(), time.monotonic()
    try:
        guard.watch(group)
        _release(transport, call.text)
        await program.exited.wait()
        await _wait(program.closed, LINGER)
        await _end(group, program, PATIENCE)
        return _outcome(transport.get_returncode() or 0, program, time.monotonic() - started)
    except asyncio.CancelledError:
        try:
            await _end(group, program, call.patience())
            await _wait(program.closed, LAST_OUTPUT)
        finally:
            call.ended_early(program.ends())
        raise
    finally:
        _signal(group, program, signal.SIGKILL)
        transport.close()
        guard.forget(group)


class Program(asyncio.SubprocessProtocol):
    """Collects the output of one program. asyncio calls its methods."""

    def __init__(self) -> None:
        self.kept = {1: OutputBuffer(), 2: OutputBuffer()}
        self.exited, self.closed = asyncio.Event(), asyncio.Event()
        self._open = set(self.kept)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep a piece of the program's output."""
        self.kept[fd].add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Record that stdout or stderr has ended; set `closed` after both."""
        self._open.discard(fd)
        if not self._open:
            self.closed.set()

    def process_exited(self) -> None:
        """Set `exited`. From now on the program's pid may be reused."""
        self.exited.set()

    def ends(self) -> str:
        """Return the last parts of stdout and stderr, each under its name, at most 4 KiB in all; empty
        without output.
        """
        texts = {name: self.kept[fd].text().strip() for name, fd in (("stdout", 1), ("stderr", 2))}
        found = {name: f"{name}:\n{text}\n".encode() for name, text in texts.items() if text}
        left = DETAIL_MAX
        for i, name in enumerate(sorted(found, key=lambda name: len(found[name]))):
            found[name] = _shortened(found[name], left // (len(found) - i))
            left -= len(found[name])
        return b"".join(found.values()).decode(errors="ignore").rstrip()


class OutputBuffer:
    """Keeps the beginning and the end of a stream of any length."""

    def __init__(self) -> None:
        self._head, self._tail, self._size = bytearray(), bytearray(), 0

    def add(self, data: bytes) -> None:
        """Add bytes; drop those too far from both ends."""
        room = max(0, KEPT // 2 - len(self._head))
        self._head += data[:room]
        self._tail += data[room:]
        self._size += len(data)
        if len(self._tail) > KEPT:
            del self._tail[: -KEPT // 2]

    def text(self) -> str:
        """Return the kept bytes as text, as JSON at most 120 KiB; between beginning and end the number of those
        left out, if any. Invalid UTF-8 is replaced.
        """
        text = ""
        for kept in (KEPT, KEPT // 2, KEPT // 4):
            text = self._text(kept // 2)
            if len(json.dumps(text, ensure_ascii=False).encode()) <= WRITTEN:
                break
        return text

    def _text(self, half: int) -> str:
        kept, dropped = bytes(self._head + self._tail), self._size - 2 * half
        if dropped <= 0:
            return kept.decode("utf-8", "replace")
        first, last = (part.decode("utf-8", "replace") for part in (kept[:half], kept[-half:]))
        return f"{first}\n… {dropped:,} bytes left out …\n{last}"


def _shortened(text: bytes, most: int) -> bytes:
    head = text[: text.index(b"\n") + 1]
    return text if len(text) <= most else head + text[len(head) - most :]


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _start(call: ProgramCall) -> tuple[asyncio.SubprocessTransport, Program]:
    """Start a shell that becomes the program after it has read a line, so that the guard can watch it first.
    Raises ProgramFailed.
    """
    _check_program(call.argv[0], call.env, call.cwd)
    gate = 'read -r go && exec "$@"' + ("" if call.text else " </dev/null")
    try:
        return await asyncio.get_running_loop().subprocess_exec(
            Program,
            SHELL,
            "-c",
            gate,
            "sh",
            *call.argv,
            env=call.env,
            cwd=call.cwd,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ProgramFailed(
            "not_started",
            f"the system refused to start {call.argv[0]}: {getattr(error, 'strerror', None) or error}: check the length of its arguments"
            " and environment, and this machine's limits of processes and memory",
        ) from None


def _check_program(name: str, env: Mapping[str, str], cwd: str | None) -> None:
    if os.sep in name:
        path = Path(cwd or "", name)
        problem = (
            ""
            if path.is_file() and os.access(path, os.X_OK)
            else f"{name} is not an executable file: correct the path, or make the file executable"
        )
    else:
        found = shutil.which(name, path=env.get("PATH")) if name and not name.startswith("-") else None
        problem = (
            ""
            if found
            else f"program {name!r} is not on this worker's PATH, or that of its env: install it, or write its path"
        )
    if cwd and not Path(cwd).is_dir():
        problem = f"the folder {cwd}, in which {name} should start, does not exist: make it on this worker's machine, or correct cwd"
    elif cwd and not os.access(cwd, os.X_OK):
        problem = f"the folder {cwd}, in which {name} should start, may not be entered by this worker's user: give that user the right, or change cwd"
    if not os.access(SHELL, os.X_OK):
        problem = f"programs are started through {SHELL}, which this worker does not have: install it"
    if problem:
        raise ProgramFailed("not_started", problem)


def _release(transport: asyncio.SubprocessTransport, text: str) -> None:
    pipe = cast(asyncio.WriteTransport, transport.get_pipe_transport(0))
    pipe.write(b"\n" + text.encode())
    pipe.write_eof()


async def _end(group: int, program: Program, patience: float) -> None:
    try:
        if patience and _signal(group, program, signal.SIGTERM):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    while _signal(group, program, 0):  # noqa: ASYNC110  # nothing signals the end of a process that is not a child
                        await asyncio.sleep(0.02)
    finally:
        _signal(group, program, signal.SIGKILL)
    await _wait(program.exited, PATIENCE)


def _signal(group: int, program: Program, number: int) -> bool:
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
    text = err.strip() or out.strip()
    last = text.rpartition("\n")[2].strip()[:200]
    if code > 0:
        raise ProgramFailed(f"exit_{code}", last or f"exited with code {code}", program.ends())
    name = _signal_name(-code)
    raise ProgramFailed(f"killed_{name}", last or f"killed by {name}", program.ends())


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return str(number)
