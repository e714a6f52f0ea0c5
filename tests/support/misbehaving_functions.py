"""Plain functions that misbehave, in a module that a child process can import."""

import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from sublet import App, Context, Discard, Snooze
from sublet.context import current

app = App()
hooked = App()
SEEN: list[str] = []


@app.task
def pid() -> int:
    return os.getpid()


@app.task
def sizes(text: str) -> str:
    return text * 2 if len(text) < 1000 else text


@app.task
def returns(size: int) -> str:
    return "x" * size


@app.task
def ends(how: str) -> None:
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    else:
        os.kill(os.getpid(), signal.Signals[how])


@app.task
def turns(file: str) -> None:
    Path(file).write_text(str(os.getpid()))
    while True:
        pass


@app.task
def hogs(file: str) -> None:
    """Run C code that never releases the interpreter."""
    Path(file).write_text(str(os.getpid()))
    ctypes.PyDLL(None).pause()


@app.task
def locks(file: str) -> None:
    lock = threading.Lock()
    lock.acquire()
    Path(file).write_text(str(os.getpid()))
    lock.acquire()


@app.task
def starts_a_program(file: str, then: str) -> None:
    program = subprocess.Popen(["sleep", "600"])
    Path(file).write_text(f"{os.getpid()} {program.pid}")
    if then == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


@app.task
def forks_and_dies(file: str) -> None:
    """Fork a process that has inherited every pipe."""
    forked = os.fork()
    if not forked:
        time.sleep(600)
    Path(file).write_text(str(forked))
    os.kill(os.getpid(), signal.SIGKILL)


@app.task
def writes(where: str) -> None:
    """Write to the pipe that leads to the worker, found by its file descriptor alone."""
    for number in range(3, 20):
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/self/fd/{number}").startswith("pipe:") and os.write(
                number, _GARBAGE[where]
            ):
                break
    os._exit(0)


_GARBAGE = {"garbage": b"Traceback (most recent call last)", "half": b"\x00\x00\x00\x10Rhalf of it"}


@app.task
def closes_its_files(file: str) -> None:
    Path(file).write_text(str(os.getpid()))
    os.closerange(3, 256)
    time.sleep(600)


@app.task
def notes_its_run(file: str) -> None:
    with open(file, "a") as notes:
        notes.write("x")


@app.task
def waits_for(file: str) -> None:
    while not Path(file).exists():
        time.sleep(0.005)


@app.task
def naps(seconds: float) -> None:
    time.sleep(seconds)


@app.task
def fills_memory() -> int:
    return len([bytearray(1 << 20) for _ in range(2000)])


@app.task
def burns(seconds: float) -> int:
    """Use so many seconds of CPU time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return os.getpid()


@app.task
def tells(ctx: Context) -> list[str]:
    ctx.progress(0.25)
    ctx.progress(0.5, stage="half")
    ctx.checkpoint({"at": 7})
    ctx.log("a line")
    logging.getLogger("anything").warning("a warning")
    return [
        ctx.id,
        ctx.queue,
        ctx.task,
        ctx.trace,
        str(ctx.fence),
        str(ctx.attempt),
        str(ctx.recovered),
        str(ctx.restored),
    ]


@app.task
def tells_once_and_waits(ctx: Context) -> None:
    ctx.progress(0.1)
    ctx.progress(0.2)
    time.sleep(600)


@app.task
def raises(what: str) -> None:
    raise {
        "exit": SystemExit(4),
        "stop": StopIteration("enough"),
        "snooze": Snooze(5, "later"),
        "discard": Discard("no use"),
    }[what]


@app.task
def ends_a_program_politely() -> int:
    """Handle SIGTERM in a process that the task starts."""
    program = subprocess.Popen(["sleep", "600"])
    program.terminate()
    return program.wait(60)


@app.task
def session() -> tuple[int, int, int]:
    return os.getpid(), os.getpgid(0), os.getsid(0)


@app.task(run="thread")
def thread_waits(file: str) -> str:
    while not Path(file).exists():
        time.sleep(0.005)
    return "at last"


@app.task(run="thread")
def thread_raises(what: str) -> None:
    raise {"exit": SystemExit(4), "stop": StopIteration("enough"), "interrupt": KeyboardInterrupt()}[what]


@app.task(run="thread")
def thread_knows() -> str:
    context = current.get()
    return context.id if context else ""


@hooked.middleware
@contextmanager
def around(context: Context):
    SEEN.append(f"before {context.task}")
    try:
        yield
    finally:
        SEEN.append(f"after {context.task}")


@hooked.task
def hooked_plain() -> list[str]:
    return list(SEEN)


@hooked.task(run="thread")
def hooked_thread() -> list[str]:
    return list(SEEN)


@hooked.task
async def hooked_async() -> list[str]:
    return list(SEEN)


@hooked.task
def hooked_seen() -> list[str]:
    """The traces of earlier tasks in the same child process."""
    return list(SEEN)
