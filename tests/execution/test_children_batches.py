"""Short jobs: several are sent to a child at once, and more are claimed than there are children."""

import asyncio
import os
import signal

import pytest

from sublet.execution import process_pool
from sublet.execution.attempt import Crashed, Why
from sublet.execution.child_process import ChildRun
from sublet.execution.runner import Limits
from tests.support import bare_runner
from tests.support import misbehaving_functions as tasks
from tests.support.bare_runner import attempt_of, eventually, failure, result, start, written
from tests.support.processes import is_alive, on_linux

pytestmark = [on_linux]
hire = bare_runner.hire


async def test_a_job_for_a_stuck_child_is_released(hire, tmp_path):
    runner = hire(processes=1)
    assert runner.ahead == 0
    async with asyncio.timeout(60):
        while not runner.ahead:
            await result(runner, tasks.pid)
    stuck = start(runner, tasks.turns, f'{{"file": "{tmp_path}/pid"}}')
    ended = await failure(runner, tasks.pid)
    assert ended[1:] == (0, "every child process is busy", "released")
    assert runner.ahead == 0
    stuck.end(Why.CANCELLED)


async def handed_together(runner, *jobs):
    """Hand one child several jobs at once, as is done with short ones."""
    await result(runner, tasks.pid)
    attempts = [attempt_of(task, payload) for task, payload in jobs]
    for attempt in attempts:
        number = runner._children._numbers[attempt.lease.task]
        attempt.running = ChildRun(attempt, number, asyncio.get_running_loop())
    runner._children._idle.pop().take([attempt.running for attempt in attempts])
    runner._children._recall()
    return attempts


async def test_jobs_behind_a_slow_one_go_to_another_child(hire, tmp_path):
    runner = hire(processes=2)
    stuck, *others = await handed_together(
        runner, (tasks.turns, f'{{"file": "{tmp_path}/pid"}}'), *[(tasks.pid, "{}")] * 3
    )
    await written(tmp_path / "pid")
    async with asyncio.timeout(60):
        await asyncio.wait([attempt.running for attempt in others])
    assert not stuck.running.done()
    for attempt in others:
        error = attempt.running.exception()  # or no child was free in time: then it is released
        assert error is None or error.ending[1:3] == (0, "every child process is busy")
    stuck.end(Why.CANCELLED)


@pytest.mark.parametrize("how", ["crash", "cancel"])
async def test_jobs_behind_a_killed_one_run_once_in_another_child(hire, tmp_path, how):
    runner = hire(processes=1)
    task = (tasks.turns, f'{{"file": "{tmp_path}/pid"}}')
    notes = [(tasks.notes_its_run, f'{{"file": "{tmp_path}/{number}"}}') for number in range(5)]
    killed, *others = await handed_together(runner, task, *notes)
    (pid,) = await written(tmp_path / "pid")
    if how == "crash":
        os.kill(pid, signal.SIGKILL)
    else:
        killed.end(Why.TIMED_OUT)
    async with asyncio.timeout(60):
        await asyncio.wait([attempt.running for attempt in (killed, *others)])
    assert killed.running.cancelled() if how == "cancel" else isinstance(killed.running.exception(), Crashed)
    for number, attempt in enumerate(others):
        assert attempt.running.result().result == b"null"
        assert (tmp_path / str(number)).read_text() == "x"


async def test_a_job_cancelled_behind_another_never_runs(hire, tmp_path):
    runner = hire(processes=1)
    waits = (tasks.waits_for, f'{{"file": "{tmp_path}/go"}}')
    notes = [(tasks.notes_its_run, f'{{"file": "{tmp_path}/{number}"}}') for number in range(2)]
    first, off, last = await handed_together(runner, waits, *notes)
    off.end(Why.LOST)
    assert await eventually(lambda: len(first.running.child.jobs) == 1)
    (tmp_path / "go").write_text("")
    async with asyncio.timeout(60):
        await first.running
        await asyncio.wait([last.running])
    assert off.running.cancelled()
    assert not (tmp_path / "0").exists()


async def test_many_jobs_of_any_length_are_completed(hire, monkeypatch):
    monkeypatch.setattr(process_pool, "PATIENCE", 60.0)  # a busy machine may release some, which is harmless
    runner = hire(processes=2, limits=Limits(jobs=50))
    lengths = [0.05 if number % 97 == 0 else 0.0 for number in range(2000)]
    ends = []
    for at in range(
        0, len(lengths), 50
    ):  # as a worker does, which never takes many more than it has room for
        runs = [
            start(runner, tasks.naps, f'{{"seconds": {seconds}}}').running
            for seconds in lengths[at : at + 50]
        ]
        async with asyncio.timeout(100):
            ends += await asyncio.gather(*runs)
    assert [end.result for end in ends] == [b"null"] * 2000


async def test_a_lent_place_is_taken_until_it_is_returned(hire, tmp_path):
    """And the child process that it needed ends when it has been idle for a while."""
    runner = hire(processes=1)
    parent = start(runner, tasks.turns, f'{{"file": "{tmp_path}/parent"}}')
    await written(tmp_path / "parent")
    child = start(runner, tasks.pid)
    parent.reports.waiting = True
    runner.lend(1, 1)
    async with asyncio.timeout(60):
        pid = int((await child.running).result)
    runner.lend(0, 0)
    later = start(runner, tasks.pid)
    assert runner.waiting == 1
    parent.end(Why.CANCELLED)
    async with asyncio.timeout(60):
        assert int((await later.running).result) == pid


async def test_a_child_that_only_a_lent_place_needed_ends_when_it_is_idle(hire, monkeypatch, tmp_path):
    monkeypatch.setattr(process_pool, "SPARE_SECONDS", 0.0)
    runner = hire(processes=1)
    parent = start(runner, tasks.turns, f'{{"file": "{tmp_path}/parent"}}')
    await written(tmp_path / "parent")
    runner.lend(1, 1)
    pid = int(await result(runner, tasks.pid))
    runner.lend(0, 0)
    assert await eventually(lambda: not is_alive(pid))
    assert not parent.running.done()


async def test_a_task_that_waits_does_not_keep_the_jobs_behind_it(hire, monkeypatch, tmp_path):
    """The jobs of its batch go to the child process of the lent place."""
    monkeypatch.setattr(process_pool, "RECALL", 3600.0)
    monkeypatch.setattr(process_pool, "PATIENCE", 3600.0)
    runner = hire(processes=1)
    jobs = [(tasks.turns, f'{{"file": "{tmp_path}/parent"}}'), (tasks.pid, "{}")]
    parent, behind = await handed_together(runner, *jobs)
    await written(tmp_path / "parent")
    parent.reports.waiting = True
    runner.lend(1, 1)
    async with asyncio.timeout(30):
        await behind.running
    assert not parent.running.done()
