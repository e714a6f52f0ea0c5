"""Plain functions in child processes: their crashes, errors and ends, with real processes."""

import asyncio
import itertools
import os
import signal
import sys

import pytest

from sublet import Invalid
from sublet.execution import child_main as program
from sublet.execution import process_pool
from sublet.execution.attempt import Crashed, UnknownTask, Why
from sublet.execution.runner import Limits, Runner
from sublet.model import Failure, Lease, News, Release
from tests.support import bare_runner
from tests.support import misbehaving_functions as tasks
from tests.support.bare_runner import eventually, failure, result, start, written
from tests.support.processes import is_alive, on_linux

pytestmark = [on_linux]
hire = bare_runner.hire


async def test_an_idle_child_is_used_again(hire):
    runner = hire()
    assert len({await result(runner, tasks.pid) for _ in range(20)}) == 1


async def test_concurrent_jobs_run_in_at_most_the_requested_number_of_children(hire):
    runner = hire(processes=2)
    runs = [start(runner, tasks.pid).running for _ in range(50)]
    async with asyncio.timeout(60):
        pids = {(await run).result for run in runs}
    assert 1 <= len(pids) <= 2
    assert b"%d" % os.getpid() not in pids


async def test_a_child_leads_a_group_and_a_session_of_its_own(hire):
    pid, group, session = eval_numbers(await result(hire(), tasks.session))
    assert pid == group == session != os.getpid()


def eval_numbers(words):
    return [int(word) for word in words.strip(b"[]").split(b",")]


@pytest.mark.parametrize(("how", "words"), [
    ("segfault", "died of SIGSEGV"), ("exit", "exited with code 3"),
    ("SIGKILL", "died of SIGKILL"), ("SIGABRT", "died of SIGABRT"),
])  # fmt: skip
async def test_a_crash_fails_that_job_with_the_reason(hire, how, words):
    runner = hire(processes=1)
    with pytest.raises(Crashed, match=words):
        await result(runner, tasks.ends, f'{{"how": "{how}"}}')
    assert await result(runner, tasks.pid), "another child replaces it"


async def test_a_crash_fails_no_other_job(hire, monkeypatch):
    monkeypatch.setattr(process_pool, "PATIENCE", 60.0)  # a busy machine may take longer to bury the first
    runner = hire(processes=1)
    crash, other = start(runner, tasks.ends, '{"how": "segfault"}').running, start(runner, tasks.pid).running
    async with asyncio.timeout(60):
        await asyncio.wait([crash, other])
    assert isinstance(crash.exception(), Crashed)
    assert other.result().result


async def test_a_child_that_was_killed_while_it_was_idle_is_replaced(hire):
    runner = hire(processes=1)
    first = int(await result(runner, tasks.pid))
    os.kill(first, signal.SIGKILL)
    assert await eventually(lambda: not is_alive(first))
    pids = []
    for _ in range(20):  # a job may be sent before its closed pipe is noticed
        try:
            pids.append(int(await result(runner, tasks.pid)))
        except Crashed:
            continue
    assert first not in pids
    assert len(pids) >= 19


@pytest.mark.parametrize("task", [tasks.turns, tasks.hogs, tasks.locks], ids=lambda task: task.name)
async def test_cancelling_the_future_kills_the_child(hire, tmp_path, task):
    runner = hire(processes=1)
    attempt = start(runner, task, f'{{"file": "{tmp_path}/pid"}}')
    (pid,) = await written(tmp_path / "pid")
    attempt.end(Why.CANCELLED)
    assert attempt.running.cancelled()
    assert await eventually(lambda: not is_alive(pid))
    assert int(await result(runner, tasks.pid)) != pid


@pytest.mark.parametrize("then", ["dies", "waits"])
async def test_processes_that_a_task_started_die_with_its_child(hire, tmp_path, then):
    runner = hire()
    attempt = start(runner, tasks.starts_a_program, f'{{"file": "{tmp_path}/pid", "then": "{then}"}}')
    pids = await written(tmp_path / "pid")
    attempt.end(Why.CANCELLED)
    assert await eventually(lambda: not any(map(is_alive, pids)))


async def test_a_fork_of_a_task_does_not_hide_its_death(hire, tmp_path):
    with pytest.raises(Crashed, match="SIGKILL"):
        await result(hire(), tasks.forks_and_dies, f'{{"file": "{tmp_path}/pid"}}')
    (forked,) = await written(tmp_path / "pid")
    assert await eventually(lambda: not is_alive(forked))


async def test_a_job_that_waits_for_a_child_can_be_cancelled_and_never_runs(hire, tmp_path):
    runner = hire(processes=1)
    first = start(runner, tasks.turns, f'{{"file": "{tmp_path}/first"}}')
    await written(tmp_path / "first")
    second = start(runner, tasks.turns, f'{{"file": "{tmp_path}/second"}}')
    second.end(Why.CANCELLED)
    first.end(Why.CANCELLED)
    assert await result(runner, tasks.pid)
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize(("where", "words"), [("garbage", "invalid frame"), ("half", "exited with code 0")])
async def test_an_invalid_frame_is_a_crash_with_the_reason(hire, where, words):
    runner = hire(processes=1)
    with pytest.raises(Crashed, match=words):
        await result(runner, tasks.writes, f'{{"where": "{where}"}}')
    assert await result(runner, tasks.pid)


async def test_a_child_that_closes_its_pipe_is_killed_with_the_reason(hire, tmp_path):
    with pytest.raises(Crashed, match="closed its pipe"):
        await result(hire(), tasks.closes_its_files, f'{{"file": "{tmp_path}/pid"}}')
    (pid,) = await written(tmp_path / "pid")
    assert await eventually(lambda: not is_alive(pid))


async def test_large_payloads_and_results_pass(hire):
    runner = hire(processes=1)
    text = "x" * (250 * 1024)
    runs = [start(runner, tasks.sizes, f'{{"text": "{text}"}}').running for _ in range(8)]
    async with asyncio.timeout(60):
        for run in runs:
            assert len((await run).result) == len(text) + 2


async def test_a_result_that_is_too_large_is_refused_and_the_child_lives_on(hire):
    runner = hire(processes=1)
    pid = await result(runner, tasks.pid)
    refused = await failure(runner, tasks.returns, '{"size": 307200}')
    assert (refused.code, refused.again) == ("invalid_result", False)
    assert await result(runner, tasks.pid) == pid


async def test_a_task_without_memory_fails_with_the_reason_and_its_child_is_replaced(hire):
    runner = hire(processes=1, limits=Limits(memory=256 << 20))
    pid = await result(runner, tasks.pid)
    ended = await failure(runner, tasks.fills_memory)
    assert (ended.code, ended.message) == (
        "MemoryError",
        "the task needed more memory than its child process may use (256 MiB): raise --memory, or split the job",
    )
    assert "fills_memory" in ended.detail
    assert await result(runner, tasks.pid) != pid


async def test_a_job_may_use_so_much_cpu_time_of_its_child(hire):
    """The limit is of each job: earlier jobs of the child do not count. The kernel counts in ticks: a busy machine's may run ahead."""
    runner = hire(processes=1, limits=Limits(cpu=2))
    pids = {await result(runner, tasks.burns, '{"seconds": 0.6}') for _ in range(4)}
    with pytest.raises(
        Crashed, match=r"used more CPU time than its child process may use for a job \(SIGXCPU\)"
    ):
        await result(runner, tasks.burns, '{"seconds": 60}')
    assert len(pids) == 1
    assert await result(runner, tasks.pid) not in pids


async def test_a_child_is_replaced_after_so_many_jobs(hire):
    runner = hire(processes=1, limits=Limits(jobs=3))
    pids = [await result(runner, tasks.pid) for _ in range(9)]
    assert [len(list(group)) for _, group in itertools.groupby(pids)] == [3, 3, 3]


@pytest.mark.parametrize(
    ("limits", "words"),
    [(Limits(memory=1 << 20), "64 MiB"), (Limits(jobs=0), "1 or more"), (Limits(cpu=0.5), "use 1 s to")],
)
def test_invalid_limits_are_refused_at_the_start(limits, words):
    with pytest.raises(Invalid, match=words):
        Runner(tasks.app.tasks, slots=1, processes=1, limits=limits)


def test_a_memory_limit_that_the_platform_does_not_support_is_refused_at_the_start(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(Invalid, match="on Linux only"):
        Runner(tasks.app.tasks, slots=1, processes=1, limits=Limits(memory=1 << 30))


async def test_notes_and_progress_reach_the_attempt(hire):
    attempt = start(hire(), tasks.tells, trace="00-trace", checkpoint=b'{"at":6}', recovered="crashed")
    async with asyncio.timeout(60):
        output = (await attempt.running).result
    assert attempt.lease.id.encode() in output
    assert b"default" in output
    assert b"00-trace" in output
    assert b"'at': 6" in output
    assert b"half" in attempt.reports.progress
    assert attempt.reports.checkpoint == b'{"at":7}'
    assert b"a line" in attempt.reports.log
    assert b"a warning" in attempt.reports.log


async def test_notes_over_the_rate_limit_are_sent_while_the_task_runs(hire):
    attempt = start(hire(), tasks.tells_once_and_waits)
    assert await eventually(lambda: b"0.2" in attempt.reports.progress)
    attempt.end(Why.CANCELLED)


@pytest.mark.parametrize(("what", "kind", "words"), [
    ("exit", Failure, "SystemExit"), ("stop", Failure, "StopIteration"),
    ("snooze", Release, "later"), ("discard", Failure, "no use"),
])  # fmt: skip
async def test_an_exception_is_the_outcome_of_its_job_and_the_child_lives_on(hire, what, kind, words):
    runner = hire(processes=1)
    pid = await result(runner, tasks.pid)
    ended = await failure(runner, tasks.raises, f'{{"what": "{what}"}}')
    assert isinstance(ended, kind)
    assert any(words in str(word) for word in ended[1:])
    assert await result(runner, tasks.pid) == pid


async def test_programs_of_a_task_receive_sigterm(hire):
    assert await result(hire(), tasks.ends_a_program_politely) == b"-15"


async def test_a_mismatched_payload_and_a_missing_task_are_unknown(hire):
    runner = hire()
    ended = await failure(runner, tasks.returns, '{"size": "many"}')
    assert isinstance(ended, Release)
    assert ended.reason.startswith("the payload does not match this worker's version of the task: size:")
    with pytest.raises(UnknownTask, match="no task nonsense"):
        await result(runner, "nonsense")


async def test_hooks_are_entered_where_the_task_runs(hire):
    runner = hire(tasks.hooked, processes=1)
    assert await result(runner, tasks.hooked_plain) == b'["before hooked_plain"]'
    assert b'"after hooked_plain"' in await result(runner, tasks.hooked_seen)
    tasks.SEEN.clear()
    assert await result(runner, tasks.hooked_thread) == b'["before hooked_thread"]'
    assert b'"after hooked_thread","before hooked_async"' in await result(runner, tasks.hooked_async)
    assert tasks.SEEN[-1] == "after hooked_async"
    tasks.SEEN.clear()


async def test_closing_ends_running_jobs(hire, tmp_path):
    runner = hire()
    attempt = start(runner, tasks.turns, f'{{"file": "{tmp_path}/pid"}}')
    (pid,) = await written(tmp_path / "pid")
    await runner.aclose()
    assert attempt.running.cancelled()
    assert not is_alive(pid)


async def test_a_child_that_died_before_it_received_a_job_began_none(hire):
    """Its end is not noticed yet: the loop does not turn between its death and the next job."""
    runner = hire(processes=1)
    await result(runner, tasks.naps, '{"seconds": 0}')
    (child,) = runner._children._children
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222  # the loop must not turn meanwhile
    assert await result(runner, tasks.naps, '{"seconds": 0}') == b"null"


def test_a_thread_that_outlived_its_job_reports_nothing_in_the_next_one():
    source, out = os.pipe()
    child = program.JobRunner(source, out, {})
    before, now = (Lease(name, "1.", 1, 0, "q", "t", None, b"", "") for name in "ab")
    child._lease = now
    child._send_news(before, News.LOG, b"late")
    child._send_news(now, News.LOG, b"in time")
    output = os.read(source, 1000)
    for handle in (source, out, child.news, child._wake):
        os.close(handle)
    assert b"in time" in output
    assert b"late" not in output
