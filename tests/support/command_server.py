"""Runs `sublet` commands fast: a process that has imported the command line forks for each command.

A start of Python that imports redis, pydantic and the command line takes ten times the CPU of most commands.
`command_client.py` takes the place of `python -m sublet`: it sends its arguments, environment, folder and
standard streams, and ends as the command ends. A command is a process of its own, with real streams, signals
and exit codes.
"""

import array
import atexit
import contextlib
import gc
import importlib
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

from tests.support.paths import PYTHONPATH, ROOT

CLIENT = [sys.executable, "-I", "-S", str(Path(__file__).with_name("command_client.py"))]
"""The command that takes the place of `python -m sublet`."""
ADDRESS = "TEST_COMMAND_SERVER"
"""The environment variable with the name of the server's socket, which is no file; without it a client starts Python."""
AT_START = ("PYTHON", "LC_", "LANG", "OTEL_", "LD_", "FAKETIME")
"""Beginnings of variables that Python and libraries read when they start. A command with others starts Python."""
SECONDS = 60.0
"""How long the server may take to import everything."""


class CommandServer:
    """The server of this test process, started at first use."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the server unless it runs; return when it accepts commands."""
        if self.process or sys.platform != "linux":
            return
        name, root = f"commands-{uuid.uuid4().hex}", str(ROOT)
        env = {name: value for name, value in os.environ.items() if not name.startswith("SUBLET_")}
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [PYTHONPATH, env.get("PYTHONPATH")]))
        words = [sys.executable, "-P", "-m", "tests.support.command_server", name]
        self.process = subprocess.Popen(
            words, cwd=root, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        assert ready, "the command server did not start"
        assert self.process.stdout.readline() == b"ready\n"
        os.environ[ADDRESS] = name

    def close(self) -> None:
        """End the server."""
        os.environ.pop(ADDRESS, None)
        if self.process:
            self.process.communicate(timeout=10)  # closes its stdin, which ends it
            self.process = None


COMMANDS = CommandServer()


def main(name: str) -> None:
    """Serve until stdin is closed."""
    _import_everything()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{name}")
    listener.listen(64)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # monitors leave no zombies
    os.write(1, b"ready\n")
    while True:
        ready, _, _ = select.select([listener, 0], [], [])
        if 0 in ready:
            return
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _monitor(connection)
        connection.close()


def _import_everything() -> None:
    """Import what commands import, with one thread left and nothing to collect."""
    from sublet.cli.commands import COMMANDS

    modules = {
        f"sublet.cli.{command.handler.partition(':')[0]}" for command in COMMANDS.values() if command.handler
    }
    groups = {module.rpartition(".")[0] + ".arguments" for module in modules if module.count(".") > 2}
    for name in ("sublet", "sublet.__main__", "sublet.cli.main", "redis.asyncio", *modules, *groups):
        importlib.import_module(name)
    import sublet

    for name in sublet.__all__:  # loaded at first use
        getattr(sublet, name)
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()


def _monitor(connection: socket.socket) -> None:
    """Run one command in a child, report its process id and status, and kill it if the client has gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, streams = _receive(connection)
    child = os.fork()
    if child == 0:
        connection.close()
        _become(request, streams)
        return
    for fd in streams:
        os.close(fd)
    ended = os.pidfd_open(child)
    connection.sendall(f"{child}\n".encode())
    ready, _, _ = select.select([ended, connection], [], [])
    if ended not in ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):  # the client was killed
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _receive(connection: socket.socket) -> tuple[list[str], list[int]]:
    """The words of a request and the three standard streams. See `_send` in command_client.py."""
    fds = array.array("i")
    data, ancillary, _, _ = connection.recvmsg(1 << 16, socket.CMSG_SPACE(3 * fds.itemsize))
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            fds.frombytes(content)
    size, _, data = data.partition(b"\n")
    while len(data) < int(size):
        data += connection.recv(1 << 16)
    return os.fsdecode(data).split("\0"), list(fds)


def _become(request: list[str], streams: list[int]) -> None:
    """Be the process that `python -m sublet` would be, and exit."""
    folder, mask, count, *rest = request
    words, environment = rest[: int(count)], rest[int(count) :]
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
    os.closerange(3, 64)
    os.chdir(folder)
    os.umask(int(mask))
    started = _at_start()
    os.environ.clear()
    os.environ.update(pair.split("=", 1) for pair in environment)
    if _at_start() != started:
        os.execv(sys.executable, [sys.executable, "-m", "sublet", *words])
    time.tzset()
    random.seed()
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115  open until the end, as a process's streams are
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace")  # noqa: SIM115  likewise
    from sublet import __main__

    sys.argv = [__main__.__file__, *words]
    sys.orig_argv = [sys.executable, "-m", "sublet", *words]  # for a command that starts itself again
    sys.path[:0] = [folder, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    try:
        code = __main__.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    threading._shutdown()
    atexit._run_exitfuncs()
    os._exit(code)  # leaves out the deletion of every module, which takes longer than most commands


def _at_start() -> dict[str, str]:
    return {
        name: os.environ[name] for name in os.environ if name.startswith(AT_START) and name != "PYTHONPATH"
    }


if __name__ == "__main__":
    main(sys.argv[1])
