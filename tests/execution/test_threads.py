"""Plain functions in threads, which cannot be killed: that is logged and counted, and delays no exit."""

import asyncio
import logging
import subprocess
import sys
import textwrap

import pytest

from sublet.execution.attempt import Why
from tests.support import bare_runner
from tests.support import misbehaving_functions as tasks
from tests.support.bare_runner import eventually, failure, start
from tests.support.paths import ROOT
from tests.support.processes import on_linux

pytestmark = [on_linux]
hire = bare_runner.hire


async def test_a_thread_that_cannot_be_killed_is_logged_and_counted(hire, tmp_path, caplog):
    runner = hire(slots=3)
    attempt = start(runner, tasks.thread_waits, f'{{"file": "{tmp_path}/go"}}')
    assert await eventually(lambda: attempt.running.begun)
    attempt.end(Why.TIMED_OUT)
    assert attempt.running.cancelled()
    assert attempt.context.cancelled
    assert runner.stuck == 1
    assert (
        "runs in a thread, which cannot be killed: it keeps the thread until it returns; the worker ends when 3 threads are kept"
        in caplog.text
    )
    (tmp_path / "go").write_text("")
    assert await eventually(lambda: runner.stuck == 0)


async def test_a_thread_job_cancelled_before_it_began_never_runs(hire, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    runner = hire(slots=1)
    first = start(runner, tasks.thread_waits, f'{{"file": "{tmp_path}/go"}}')
    assert await eventually(lambda: first.running.begun)
    second = start(runner, tasks.thread_knows)
    second.end(Why.CANCELLED)
    assert (runner.stuck, caplog.text) == (0, "")
    (tmp_path / "go").write_text("")
    async with asyncio.timeout(60):
        assert (await first.running).result == b'"at last"'


@pytest.mark.parametrize(
    ("what", "code"), [("exit", "SystemExit"), ("stop", "StopIteration"), ("interrupt", "KeyboardInterrupt")]
)
async def test_an_exception_in_a_thread_never_ends_the_worker(hire, what, code):
    assert (await failure(hire(), tasks.thread_raises, f'{{"what": "{what}"}}')).code == code


async def test_a_thread_has_its_context(hire):
    runner = hire()
    attempt = start(runner, tasks.thread_knows)
    assert (await attempt.running).result == f'"{attempt.lease.id}"'.encode()


def test_a_stuck_thread_does_not_keep_the_process(tmp_path):
    program = f"""
        import asyncio
        from sublet.execution.attempt import Why
        from tests.support.bare_runner import Runner, eventually, start, tasks

        async def main():
            runner = Runner(tasks.app.tasks, slots=1, processes=1)
            attempt = start(runner, tasks.thread_waits, '{{"file": "{tmp_path}/never"}}')
            assert await eventually(lambda: attempt.running.begun)
            attempt.end(Why.CANCELLED)
            await runner.aclose()

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
