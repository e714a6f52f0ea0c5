"""A plain function that times out leaves its stack; tracebacks begin in the task's code."""

import asyncio
import os
import signal
import threading
import time

import pytest

from sublet.execution import stack
from sublet.execution.attempt import Why, ending_of
from sublet.execution.child_process import STACK_SECONDS
from sublet.model import Lease
from tests.support import bare_runner
from tests.support import misbehaving_functions as tasks
from tests.support.bare_runner import eventually, failure, result, start, written
from tests.support.processes import is_alive, on_linux

pytestmark = [on_linux]
hire = bare_runner.hire
HEAD = "Stack when it was ended (most recent call last):"


async def time_out(attempt):
    began = time.monotonic()
    attempt.end(Why.TIMED_OUT)
    await asyncio.wait([attempt.running], timeout=20)
    return attempt.ending(), time.monotonic() - began


@pytest.mark.parametrize("task", [tasks.turns, tasks.hogs, tasks.locks], ids=lambda task: task.name)
async def test_a_child_writes_its_stack_before_it_is_killed(hire, tmp_path, task):
    runner = hire(processes=1)
    attempt = start(runner, task, f'{{"file": "{tmp_path}/pid"}}', timeout_ms=2000)
    (pid,) = await written(tmp_path / "pid")
    ending, _ = await time_out(attempt)
    assert (ending.code, ending.message) == ("timed_out", "ran longer than 2 s")
    head, *frames = ending.detail.splitlines()
    assert head == HEAD
    assert frames[0].startswith(f'  File "{tasks.__file__}", line ')
    assert frames[0].endswith(f", in {task.name}")
    assert "sublet/execution" not in ending.detail
    assert task is tasks.hogs or await eventually(lambda: not is_alive(pid)), (
        "a signal ends the C call of `hogs`"
    )
    assert int(await result(runner, tasks.pid)) != pid or task is tasks.hogs


async def test_a_child_that_cannot_write_its_stack_is_killed_in_time(hire, tmp_path):
    runner = hire(processes=1)
    attempt = start(runner, tasks.turns, f'{{"file": "{tmp_path}/pid"}}')
    (pid,) = await written(tmp_path / "pid")
    os.kill(pid, signal.SIGSTOP)
    ending, took = await time_out(attempt)
    assert (ending.code, ending.detail) == ("timed_out", "")
    assert STACK_SECONDS - 0.05 < took < 5
    assert await eventually(lambda: not is_alive(pid), 10)


async def test_a_stop_does_not_wait_for_the_stack(hire, tmp_path):
    runner = hire(processes=1)
    attempt = start(runner, tasks.turns, f'{{"file": "{tmp_path}/pid"}}')
    (pid,) = await written(tmp_path / "pid")
    os.kill(pid, signal.SIGSTOP)
    attempt.end(Why.TIMED_OUT)
    assert not attempt.running.done()
    attempt.cancel_again()
    assert attempt.running.cancelled()
    assert await eventually(lambda: not is_alive(pid))


async def test_a_thread_leaves_its_stack(hire, tmp_path):
    runner = hire()
    attempt = start(runner, tasks.thread_waits, f'{{"file": "{tmp_path}/go"}}')
    assert await eventually(lambda: attempt.running.begun)
    await asyncio.sleep(0.05)
    ending, _ = await time_out(attempt)
    (tmp_path / "go").touch()
    head, first, *_ = ending.detail.splitlines()
    assert head == HEAD
    assert first.endswith(", in thread_waits")


def test_the_frames_of_a_task_remain_above_those_that_it_calls_in_this_package():
    package = {}
    file = os.path.join(os.path.dirname(stack.__file__), "kept.py")
    exec(compile("def step(function):\n    function()\n", file, "exec"), package)  # noqa: S102  # frames of that file
    begun, end = threading.Event(), threading.Event()

    def inner():
        begun.set()
        end.wait(30)

    def task():
        package["step"](inner)

    thread = threading.Thread(target=package["step"], args=(task,))
    thread.start()
    assert begun.wait(30)
    found = stack.of_thread(thread.ident)
    end.set()
    thread.join(30)
    head, *frames = found.splitlines()
    names = [line.rpartition(" ")[2] for line in frames if line.startswith("  File ")]
    assert (head, names[:3]) == (HEAD, ["task", "inner", "wait"])
    assert file not in found


def test_a_stack_is_bounded_and_shows_the_other_threads_last():
    own = f'  File "{os.path.dirname(stack.__file__)}/child_main.py", line 1 in '
    deep = "".join(f'  File "/app/deep.py", line {i} in step\n' for i in range(90))
    written = (
        f'Thread 0x1 (most recent call first):\n{own}_watch\n  File "/lib/threading.py", line 1 in run\n\n'
        'Thread 0x2 (most recent call first):\n  File "/app/other.py", line 3 in waits\n\n'
        f'Thread 0x3 (most recent call first):\n  File "/app/a.py", line 7 in inner\n{deep}{own}_run\n'
    )
    shown = stack.from_child(written.encode())
    lines = shown.splitlines()
    assert (lines[0], lines[-3:]) == (
        HEAD,
        ['  File "/app/a.py", line 7, in inner', "Thread 0x2:", '  File "/app/other.py", line 3, in waits'],
    )
    assert "_watch" not in shown
    assert (
        len(stack.from_child(written.replace("/app/deep.py", "/app/" + "deep" * 40).encode()))
        <= stack.DETAIL_MAX
    )
    assert stack.from_child(b"") == ""
    assert stack.from_child(b"\xff\n\nhalf of a") == ""


@pytest.mark.parametrize("task", [tasks.raises, tasks.thread_raises], ids=lambda task: task.name)
async def test_a_traceback_begins_in_the_code_of_the_task(hire, task):
    what = "exit" if task is tasks.thread_raises else "broken"
    ending = await failure(hire(), task, f'{{"what": "{what}"}}')
    head, first, *_ = ending.detail.splitlines()
    assert head == "Traceback (most recent call last):"
    assert first.startswith(f'  File "{tasks.__file__}", line ')
    assert "child_main" not in ending.detail


def test_cut_errors_keep_their_frames_and_are_marked():
    def deep(n):
        if n:
            deep(n - 1)
        raise RuntimeError("x" * 5000)

    lease = Lease("0-a", "1.t", 1, 0, "q", "t", 1000, b"{}", "")
    with pytest.raises(RuntimeError) as caught:
        deep(0)
    ending = ending_of(lease, caught.value)
    assert (len(ending.message), ending.message[-1]) == (1024, "…")
    assert "in deep" in ending.detail
    assert ending.detail.endswith("x…\n")
    with pytest.raises(RuntimeError) as caught:
        deep(1)
    ending = ending_of(lease, caught.value.with_traceback(caught.value.__traceback__))
    assert ending.detail.count("in deep") == 2
    long = ending_of(lease, ExceptionGroup("all", [RuntimeError("y" * 900) for _ in range(9)])).detail
    assert (len(long), long[:2]) == (4096, "…\n")


class Broken(Exception):
    def __str__(self):
        raise AssertionError


def test_the_frames_of_an_error_without_a_readable_message_are_kept():
    lease = Lease("0-a", "1.t", 1, 0, "q", "t", 1000, b"{}", "")
    with pytest.raises(Broken) as caught:
        raise Broken
    ending = ending_of(lease, caught.value)
    assert "cannot be read" in ending.message
    assert "in test_the_frames_of" in ending.detail


def test_a_traceback_of_frames_of_sublet_alone_is_whole():
    with pytest.raises(AttributeError) as caught:
        stack.from_child(None)
    error = caught.value.with_traceback(caught.value.__traceback__.tb_next)
    assert "in from_child" in stack.of_error(error)
