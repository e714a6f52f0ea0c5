"""From a command line to an exit code: find the command, call its handler, report errors."""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable

from sublet.cli.commands import COMMANDS, ORDERS, OTHER_NAMES
from sublet.cli.error_report import is_output_error, report
from sublet.cli.output import put
from sublet.cli.overview import first_steps, overview
from sublet.cli.parser import HELP_FLAGS, SHARED_WITH_VALUE, Command, with_help_hint
from sublet.devtools.bootstrap import ensure
from sublet.errors import Invalid, did_you_mean
from sublet.protocol.person import acting_for


def run(argv: list[str], started: Callable[[], object] = int) -> int:
    """Run a command line, given without the program's name; return its exit code. Errors are printed.
    `started` is called as soon as this function handles Ctrl-C.
    """
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        return _run_and_report(argv, started)
    finally:
        _flush_or_discard()


def _run_and_report(argv: list[str], started: Callable[[], object]) -> int:
    as_json = "--json" in argv
    try:
        started()
        code = _run(argv)
        sys.stdout.flush()
    except KeyboardInterrupt as error:
        # a signal number from the handlers of `submit`, else Ctrl-C
        return _interrupted(error, as_json, 128 + next(iter(error.args), signal.SIGINT))
    except BrokenPipeError as error:
        return _interrupted(error, as_json, 141)
    except Exception as error:  # noqa: BLE001  # the last place that can report an error
        if "--debug" in argv:
            with contextlib.suppress(OSError):
                put(*traceback.format_exc().splitlines(), stream=sys.stderr)
        return report(error, as_json)
    return code


def _interrupted(error: BaseException, as_json: bool, exit_code: int) -> int:
    if hasattr(error, "__notes__"):
        report(error, as_json)
    return exit_code


def _open_closed_streams() -> None:
    for name in ("stdin", "stdout", "stderr"):  # in the order of their descriptors
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
            setattr(sys, name, open(fd, "r" if name == "stdin" else "w"))  # noqa: SIM115  it stays open


def _flush_or_discard() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            if is_output_error(error) or isinstance(error, BrokenPipeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(argv: list[str]) -> int:
    name, words = split(argv)
    if name in {*HELP_FLAGS, "help"}:
        name, words = words[0] if words else "", [*words[1:], "--help"]
    if not name:
        unknown = next((word for word in words if word.startswith("--") and not _is_shared(word)), None)
        if unknown:
            raise Invalid(with_help_hint(f"there is no option {unknown[:40]}, and no command is named"))
        put(*(overview() if words else first_steps()).splitlines())
        return 0
    command = _find(name)
    if HELP_FLAGS & set(words[:1] if command.passes_arguments else words):
        put(*command.resolve(words)[0].help().splitlines())
        return 0
    args = argparse.Namespace(rest=words) if command.passes_arguments else command.read(words)
    ensure(command.extras)
    module, _, function = command.resolve(words)[0].handler.partition(":")
    handler = getattr(importlib.import_module(f"sublet.cli.{module}"), function)
    gc.freeze()
    gc.enable()
    with acting_for(_user_at_host() if name in ORDERS else ""):
        code: int = handler(args)
    return code


def _user_at_host() -> str:
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = f"uid-{os.getuid()}"
    return f"{user}@{os.uname().nodename}"


def split(argv: list[str]) -> tuple[str, list[str]]:
    """Return the command's name, "" without one, and the other words. Shared options may precede the name;
    --help and --version count as names.
    """
    i = 0
    while i < len(argv) and argv[i].startswith("-"):
        if argv[i] in HELP_FLAGS:
            return argv[i], argv[i + 1 :]
        if argv[i] == "--version":
            return "version", argv[:i] + argv[i + 1 :]
        i += 2 if argv[i] in SHARED_WITH_VALUE else 1
    return (argv[i] if i < len(argv) else ""), argv[:i] + argv[i + 1 :]


def _is_shared(word: str) -> bool:
    return word.partition("=")[0] in {*SHARED_WITH_VALUE, *HELP_FLAGS, "--json", "--debug"}


def _find(name: str) -> Command:
    if name in COMMANDS:
        return COMMANDS[name]
    same = OTHER_NAMES.get(name.lower())
    near = f", did you mean {same}?" if same else did_you_mean(name, COMMANDS)
    raise Invalid(with_help_hint(f"there is no command {name[:40]!r}{near}"))
