"""Report a command's error: one line on stderr, or JSON, and the exit code."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import traceback
from typing import Any

from sublet.cli.output import escaped, put
from sublet.cli.parser import program
from sublet.errors import Denied, Invalid, JobFailed, JobsError, Refused, Unavailable, Unconfirmed, Unfit

EXIT_CODES = {
    0: "success; `work` and `serve` also after Ctrl-C or SIGTERM",
    1: "refused, failed or not found; `doctor`: a check is bad; `work`: stalled",
    2: "wrong usage, or an invalid request: nothing was sent",
    3: "Redis or the API cannot be reached, or cannot be used",
    70: "a bug in Sublet",
    74: "the output cannot be written, e.g. because the disk is full",
    130: "interrupted by Ctrl-C (128 + the signal's number)",
    141: "the reader of the output has gone",
    143: "ended by SIGTERM",
}
ERRORS: tuple[tuple[type[BaseException], str, int], ...] = (
    (Invalid, "INVALID", 2),
    (Denied, "DENIED", 1),
    (Unfit, "UNFIT", 3),
    (Unconfirmed, "UNCONFIRMED", 3),
    (Unavailable, "UNAVAILABLE", 3),
    (Refused, "", 1),
    (JobFailed, "JOB_FAILED", 1),
    (TimeoutError, "TIMEOUT", 1),
    (JobsError, "ERROR", 1),
    (KeyboardInterrupt, "INTERRUPTED", 130),
)
"""An exception class, the value of `error` with --json (empty: the exception's own code) and the exit code.
The first match counts.
"""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def report(error: BaseException, as_json: bool) -> int:
    """Write an error and its notes to stderr on one line, as text or JSON; return the exit code. Ignores a
    stderr that cannot be written.
    """
    code, message, exit_code = _describe(error)
    for note in getattr(error, "__notes__", ()):
        message += f" {note[0].upper()}{note[1:]}" if message.endswith("?") else f"; {note}"
    if as_json:
        more = {"id": error.job_id} if hasattr(error, "job_id") else {}
        more |= {"code": error.code} if isinstance(error, JobFailed) else {}
        line = escaped(json.dumps({"error": code, "message": message, **more}, ensure_ascii=False))
    else:
        line = f"sublet: {message}"
    with contextlib.suppress(OSError):
        put(line, stream=sys.stderr)
    return exit_code


def is_output_error(error: BaseException) -> bool:
    """Whether this is an OSError of the output: a full or failed disk, or stdout closed at start."""
    closed = (errno.EBADF,) if sys.__stdout__ is None else ()
    return isinstance(error, OSError) and error.errno in (*_FULL, *closed) and error.filename is None


def _describe(error: Any) -> tuple[str, str, int]:
    for exception, code, exit_code in ERRORS:
        if isinstance(error, exception):
            message = str(error) or "interrupted"
            if isinstance(error, JobFailed):
                message += f" (see {program()} get {error.job_id})"
            if isinstance(error, KeyboardInterrupt):
                message = "interrupted"
            return code or str(getattr(error, "code", "")), message, exit_code
    if is_output_error(error) or isinstance(error, BrokenPipeError):
        return "OUTPUT", f"the output cannot be written: {error.strerror}", 74
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{os.path.basename(last.filename)}:{last.lineno}"
    message = " ".join(str(error).split()) or "no message"
    return (
        "BUG",
        f"a bug in Sublet, {type(error).__name__} at {place}: {message}; please report it with the output of --debug",
        70,
    )
