"""From a command line to an exit code: find the command, see to what it needs, run it, and say in one line what went wrong.

Exit codes: 0 yes · 1 no (refused, failed, not found) · 2 wrong usage or an invalid request · 3 Redis or the API is away ·
74 the output cannot be written.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import importlib
import json
import os
import signal
import sys
import traceback
from typing import Any

from sublet.cli.commands import COMMANDS, Command
from sublet.cli.overview import first_steps, overview
from sublet.cli.parser import VALUED, program, read_more
from sublet.devtools.bootstrap import ensure
from sublet.errors import (
    Denied,
    Invalid,
    JobFailed,
    JobsError,
    Refused,
    Unavailable,
    Unconfirmed,
    Unfit,
    did_you_mean,
)

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
HELP = ("-h", "--help", "help")


def run(argv: list[str]) -> int:
    """Run one command line and give its exit code. Nothing is raised that a user could have caused."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="replace")
    try:
        code = _run(argv)
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        return _ended(stop, argv, 128 + next(iter(stop.args), signal.SIGINT))
    except BrokenPipeError as error:
        _forget_stdout()
        return _ended(error, argv, 141)
    except Exception as error:  # noqa: BLE001  # the last place where an error can be put into words
        if "--debug" in argv:
            traceback.print_exc()
        if _is_full(error):
            _forget_stdout()
        with contextlib.suppress(OSError):  # stderr may be on the same full disk
            return complain(error, as_json="--json" in argv)
        return _told(error)[2]
    return code


def _ended(error: BaseException, argv: list[str], exit_code: int) -> int:
    """The command was ended, which takes no words, unless something was begun that goes on."""
    if hasattr(error, "__notes__"):
        with contextlib.suppress(OSError):
            complain(error, as_json="--json" in argv)
    return exit_code


def _open_streams() -> None:
    """Open what of the three standard streams the caller has closed, or a socket of ours would get its number."""
    for name in ("stdin", "stdout", "stderr"):  # in the order of their numbers: each gets its own
        if getattr(sys, name) is None:
            fd = os.open(
                os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY
            )  # to write to stdout fails as before
            setattr(sys, name, open(fd, "r" if name == "stdin" else "w"))  # noqa: SIM115  it stays open


def _forget_stdout() -> None:
    """What is not written yet goes nowhere, so that the flush at exit is quiet too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_full(error: Any) -> bool:
    """Is this about the disk that the output goes to?"""
    closed = (errno.EBADF,) if sys.__stdout__ is None else ()
    return isinstance(error, OSError) and error.errno in (*FULL, *closed) and error.filename is None


def _run(argv: list[str]) -> int:
    name, rest = split(argv)
    if name in HELP:
        name, rest = rest[0] if rest else "", ["--help"]
    if not name:
        sys.stdout.write(overview() if rest else first_steps())
        return 0
    command = _command(name)
    parser = command.parser()
    if "-h" in rest[:1] or "--help" in rest[:1] or (not command.passes and {"-h", "--help"} & set(rest)):
        sys.stdout.write(parser.format_help())
        return 0
    args = argparse.Namespace(rest=rest) if command.passes else parser.read(rest)
    ensure(command.groups)
    module, _, function = command.handler.rpartition(".")
    handler = getattr(importlib.import_module(f"sublet.cli.{module}"), function)
    gc.freeze()  # what was imported stays: the collector need not look at it again, not even at exit
    gc.enable()
    code: int = handler(args)
    return code


def split(argv: list[str]) -> tuple[str, list[str]]:
    """The command's name, and all other words; the shared options may stand before it."""
    i = 0
    while i < len(argv) and argv[i].startswith("-"):
        if argv[i] in HELP:
            return argv[i], argv[i + 1 :]
        if argv[i] == "--version":
            return "version", argv[:i] + argv[i + 1 :]
        i += 2 if argv[i] in VALUED else 1
    return (argv[i] if i < len(argv) else ""), argv[:i] + argv[i + 1 :]


def _command(name: str) -> Command:
    if name in COMMANDS:
        return COMMANDS[name]
    raise Invalid(read_more(f"there is no command {name[:40]!r}{did_you_mean(name, COMMANDS)}"))


def complain(error: BaseException, as_json: bool) -> int:
    """Say an error in one line on stderr, and give the exit code that it stands for."""
    code, words, exit_code = _told(error)
    for more in getattr(error, "__notes__", ()):
        words += f" {more[0].upper()}{more[1:]}" if words.endswith("?") else f"; {more}"
    if as_json:
        more = {"id": error.job_id} if hasattr(error, "job_id") else {}  # the job that was waited for
        more |= {"code": error.code} if isinstance(error, JobFailed) else {}
        sys.stderr.write(json.dumps({"error": code, "message": words, **more}, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write("sublet: " + "".join(c if c.isprintable() else " " for c in words) + "\n")
    return exit_code


def _told(error: Any) -> tuple[str, str, int]:
    """The code, the words and the exit code of an error."""
    if isinstance(error, Invalid):
        return "INVALID", str(error), 2
    if isinstance(error, Denied):
        return "DENIED", str(error), 1
    if isinstance(error, Unavailable):
        code = (
            "UNFIT"
            if isinstance(error, Unfit)
            else "UNCONFIRMED"
            if isinstance(error, Unconfirmed)
            else "UNAVAILABLE"
        )
        return code, str(error), 3
    if isinstance(error, Refused):
        return error.code, str(error), 1
    if isinstance(error, JobFailed):
        return "JOB_FAILED", f"{error} (see {program()} get {error.job_id})", 1
    if isinstance(error, TimeoutError):
        return "TIMEOUT", str(error), 1
    if isinstance(error, JobsError):
        return "ERROR", str(error), 1
    if isinstance(error, KeyboardInterrupt):
        return "INTERRUPTED", "interrupted", 130
    if _is_full(error) or isinstance(error, BrokenPipeError):
        return "OUTPUT", f"the output cannot be written: {error.strerror}", 74
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(last.filename)}:{last.lineno}"
    words = " ".join(str(error).split()) or "no words"
    return (
        "BUG",
        f"a bug of ours, {type(error).__name__} at {where}: {words}; please report it, with what --debug shows",
        70,
    )
