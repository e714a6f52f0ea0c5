"""A program always ends, with all processes that it started: at a cancellation, and when its worker dies."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from sublet.tasks.programs import command
from tests.support.paths import ROOT
from tests.support.processes import is_alive, on_linux, until
from tests.support.program_runs import bearing, soon

pytest_plugins = ["tests.support.program_fixtures"]


@on_linux
@pytest.mark.parametrize(
    "script", ["sleep 1000 & exit 0", "sleep 1000 >/dev/null 2>&1 & exit 0"], ids=["holds pipes", "aside"]
)
async def test_processes_that_a_program_leaves_running_end_with_it(run, worker, marker, script):
    done = await run(script, shell=True, env={"MARK": marker})
    assert done.code == 0
    await soon(lambda: not bearing(marker))


async def test_processes_that_are_left_running_may_clean_up(run, worker, tmp_path):
    script = (
        "f() {{ echo cleaned > {out}; exit; }}; (trap f TERM; touch {begun}; while true; do sleep 0.05; done) & "
        "until [ -e {begun} ]; do sleep 0.05; done"
    )
    assert (await run(script, str(tmp_path / "out"), str(tmp_path / "begun"), shell=True)).code == 0
    assert (tmp_path / "out").read_text() == "cleaned\n"


@on_linux
async def test_a_program_that_closes_its_output_is_waited_for(run, worker, tmp_path):
    await run("exec >&- 2>&-; sleep 0.3; echo done > {out}", str(tmp_path / "out"), shell=True)
    assert (tmp_path / "out").read_text() == "done\n"


async def begun(running, path):
    """Wait until a program has reported that it runs."""
    await soon(lambda: running.done() or path.exists(), "the program has begun")
    assert not running.done()


@on_linux
async def test_a_cancelled_program_gets_a_second_to_clean_up(run, worker, marker, tmp_path):
    script = (
        "f() {{ echo cleaned > {out}; exit; }}; trap f TERM; touch {begun}; while true; do sleep 0.05; done"
    )
    running = asyncio.create_task(
        run(
            script, out=str(tmp_path / "out"), begun=str(tmp_path / "begun"), shell=True, env={"MARK": marker}
        )
    )
    await begun(running, tmp_path / "begun")
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert (tmp_path / "out").read_text() == "cleaned\n"
    assert not bearing(marker)


DEAF = "trap '' TERM; touch {begun}; sleep 1000 | sleep 1000"


@on_linux
async def test_a_program_that_ignores_sigterm_is_killed(run, worker, marker, tmp_path):
    running = asyncio.create_task(run(DEAF, str(tmp_path / "begun"), shell=True, env={"MARK": marker}))
    await begun(running, tmp_path / "begun")
    running.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait([running])
    await soon(lambda: not bearing(marker))


@on_linux
@pytest.mark.parametrize("why", ["the lease is lost", "told twice"])
async def test_programs_are_killed_at_once_after_a_lost_lease_or_a_second_cancellation(
    run, context, worker, marker, tmp_path, monkeypatch, why
):
    monkeypatch.setattr(command, "PATIENCE", 1000.0)
    running = asyncio.create_task(run(DEAF, str(tmp_path / "begun"), shell=True, env={"MARK": marker}))
    await begun(running, tmp_path / "begun")
    if why == "the lease is lost":
        context.ending = "lost"
    running.cancel()
    if why == "told twice":
        await asyncio.sleep(0.05)
        assert bearing(marker), "the first signal has a grace period"
        running.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait([running])
    await soon(lambda: not bearing(marker))


@on_linux
async def test_without_a_worker_a_program_has_a_guard_of_its_own(run):
    before = set(os.listdir("/proc/self/fd"))
    assert (await run("echo {x}", 1)).stdout == "1\n"
    assert set(os.listdir("/proc/self/fd")) == before


@on_linux
def test_a_program_that_the_guard_does_not_watch_never_runs(tmp_path):
    """The worker dies after it has started the gate and before the guard watches it: the program must not run."""
    script = f"""
import asyncio, os, signal
from sublet.tasks.programs import process_guard, program
class Dies(process_guard.ProcessGuard):
    def watch(self, group):
        print(group, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
process_guard.current.set(Dies())
asyncio.run(program.run(program.ProgramCall(["touch", {str(tmp_path / "ran")!r}], dict(os.environ))))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == -signal.SIGKILL
    until(lambda: not is_alive(int(done.stdout)), "the gate is gone")
    assert not (tmp_path / "ran").exists()
