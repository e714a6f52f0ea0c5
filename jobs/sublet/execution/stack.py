"""Tracebacks of failed tasks, and stacks of timed-out ones: a child process writes its own
(`faulthandler`) at a signal.
"""

import faulthandler
import os
import re
import signal
import sys
import traceback

from sublet.source_tree import PACKAGE

DETAIL_MAX = 4096
"""Most characters of a traceback or stack that are kept: of the task's frames, the last ones."""
MESSAGE_MAX = 1024
"""Most characters of a message that are kept."""
SIGNAL = getattr(signal, "SIGRTMAX", signal.SIGUSR2)
"""The signal at which a child process writes its stack."""
_OWN = (os.path.dirname(__file__) + os.sep, str(PACKAGE / "execution") + os.sep)
_FRAME = re.compile(r'  File "(.*)", line (\d+) in (.*)')


def write_at_signal(pipe: int) -> None:
    """Write the stacks of all threads to a non-blocking pipe whenever this process gets SIGNAL."""
    faulthandler.register(SIGNAL, pipe, all_threads=True)


def from_child(written: bytes) -> str:
    """Format the stacks that a child process wrote: the task's thread first, without frames of this package;
    empty without that thread.
    """
    task, others = "", []
    for block in written.decode("utf-8", "replace").split("\n\n"):
        head, *lines = block.splitlines() or [""]
        frames = [found.groups() for found in map(_FRAME.match, lines) if found]
        own = [frame for frame in frames if frame[0].startswith(_OWN)]
        if any(name == "_watch" for _, _, name in own):
            continue
        shown = "".join(
            f'  File "{file}", line {line}, in {name}\n'
            for file, line, name in reversed(frames)
            if not file.startswith(_OWN) and file != "<string>"
        )
        if own or (not task and head.startswith("Current")):
            task = shown
        elif shown:
            others.append(f"{head.partition(' (')[0]}:\n{shown}")
    return _headed(task, "".join(others)) if task else ""


def of_thread(ident: int) -> str:
    """Return the stack of a thread of this process from its task on, without frames of this package; empty if
    the thread has ended.
    """
    frame = sys._current_frames().get(ident)
    found = traceback.extract_stack(frame) if frame else []
    first = next((i for i, one in enumerate(found) if one.filename.startswith(_OWN)), 0)
    shown = [one for one in found[first:] if not one.filename.startswith(_OWN)]
    return _headed("".join(traceback.format_list(shown))) if found else ""


def _headed(task: str, others: str = "") -> str:
    head = "Stack when it was ended (most recent call last):\n"
    return (head + task[len(head) - DETAIL_MAX :] + others)[:DETAIL_MAX]


def of_error(error: BaseException) -> str:
    """Return the traceback of an exception, from the first frame outside this package on."""
    whole = traceback.TracebackException.from_exception(error, compact=True)
    whole.stack = _task_part(whole.stack)
    text = "".join(part if len(part) <= MESSAGE_MAX else f"{cut(part)}\n" for part in whole.format())
    return text if len(text) <= DETAIL_MAX else f"…\n{text[2 - DETAIL_MAX :]}"


def cut(message: str) -> str:
    """Return a message, above 1024 characters its beginning and `…`."""
    return message if len(message) <= MESSAGE_MAX else f"{message[: MESSAGE_MAX - 1]}…"


def of_frames(error: BaseException) -> str:
    """Format the frames of an exception without its message, whose code must not be called."""
    return "".join(traceback.format_list(_task_part(traceback.extract_tb(error.__traceback__))))[-DETAIL_MAX:]


def _task_part(found: traceback.StackSummary) -> traceback.StackSummary:
    first = next((i for i, one in enumerate(found) if not one.filename.startswith(_OWN)), 0)
    return traceback.StackSummary.from_list(found[first:])
