"""The invoker `process`: child processes as workers; it reads their output, counts and reaps them, and leaves
none behind."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile

import pytest

from sublet.operations import pools
from sublet.operations.pool import Pool
from sublet.scaling.invokers import Invocation, InvocationFailed
from sublet.scaling.invokers import process as module
from sublet.scaling.invokers.process import ProcessInvoker
from sublet.scaling.summoner import Summoner
from sublet.store.store import Store
from tests.support.paths import ROOT
from tests.support.processes import children_of, is_alive, on_linux, until
from tests.support.program_runs import soon
from tests.support.tasks import app

pytest_plugins = ["tests.support.http_settings"]

WAITS = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
OBEDIENT = "import signal; signal.pthread_sigmask(0, {15}); print('up', flush=True); signal.sigwait({15})"


class ScriptInvoker(ProcessInvoker):
    """Starts a script instead of a worker, which is faster; the script can be chosen."""

    def __init__(self, script=WAITS, **how):
        self.lines, self.ends = [], []
        how.setdefault("hear", lambda worker, line: self.lines.append((worker.summons, line)))
        super().__init__("tasks:app", ended=lambda *words: self.ends.append(words), **how)
        self.script = script

    def _command(self, request, summons):
        return [sys.executable, "-I", "-S", "-c", self.script]

    async def up(self, *summons):
        await self.invoke(request_of(*summons))
        await soon(lambda: [line for _, line in self.lines].count("up") == len(self.processes))
        return [one.pid for one in self.processes]


def request_of(*summons):
    return Invocation("images", "", ("a", "b"), 4, 2.5, summons)


@pytest.fixture
async def play():
    """Makes invokers and closes them after the test."""
    made = []

    def make(*words, **how):
        made.append(ScriptInvoker(*words, **how))
        return made[-1]

    yield make
    for one in made:
        await one.aclose(0)
        assert one.processes == ()


def test_a_worker_receives_all_options_of_its_summons():
    words = ProcessInvoker("tasks:app", seconds=1e6, arguments=["--lease", "10s"])._command(
        request_of("s.1"), "s.1"
    )
    assert words[:7] == [sys.executable, "-P", "-m", "sublet", "work", "tasks:app", "--drain"]
    assert words[7:12] == ["--pool=images", "--summons=s.1", "--slots=4", "--linger=2.5s", "--queues=a,b"]
    assert words[12:] == ["--for=1000000s", "--lease", "10s"]


async def test_one_process_starts_for_each_summons_and_live_ones_are_listed(play):
    invoker = play()
    pids = await invoker.up("s.1", "s.2")
    assert sorted(one.summons for one in invoker.processes) == ["s.1", "s.2"]
    assert all((one.pool, is_alive(one.pid)) == ("images", True) for one in invoker.processes)
    assert all(one.since.tzinfo for one in invoker.processes)
    os.kill(pids[0], signal.SIGKILL)
    await soon(lambda: invoker.ends)
    assert [(pid, code) for _, pid, code in invoker.ends] == [(pids[0], -signal.SIGKILL)]
    assert [one.pid for one in invoker.processes] == pids[1:]


async def test_an_end_is_reported_at_once_without_a_zombie(play):
    invoker = play("print('so long'); raise SystemExit(3)")
    await invoker.invoke(request_of("s.1"))
    await soon(lambda: invoker.ends)
    ((summons, pid, code),) = invoker.ends
    assert (summons, code, invoker.lines) == ("s.1", 3, [("s.1", "so long")])
    with pytest.raises(ProcessLookupError):  # a zombie would still exist
        os.kill(pid, 0)


async def test_the_number_of_processes_has_a_limit(play):
    invoker = play(most=2)
    with pytest.raises(
        InvocationFailed, match=r"2 workers run here already, which is the limit: .* \(1 of 3 calls failed\)"
    ) as failed:
        await invoker.invoke(request_of("s.1", "s.2", "s.3"))
    assert failed.value.summons == ("s.3",)
    assert len(invoker.processes) == 2
    os.kill(invoker.processes[0].pid, signal.SIGKILL)
    await soon(lambda: invoker.ends)
    await invoker.invoke(request_of("s.4"))


async def test_a_worker_is_killed_after_its_duration(play, monkeypatch, caplog):
    monkeypatch.setattr(module, "KILL_AFTER", 0.2)
    invoker = play(STUBBORN, seconds=0.1)
    await invoker.invoke(request_of("s.1"))
    await soon(lambda: invoker.ends)
    assert invoker.ends[0][2] == -signal.SIGKILL
    assert "did not end within 0.1 s" in caplog.text


async def test_a_close_stops_workers_and_kills_those_that_ignore_it(play, caplog):
    obedient, stubborn, frozen = play(OBEDIENT), play(STUBBORN), play(OBEDIENT)
    for one in (obedient, stubborn, frozen):
        await one.up("s.1")
    os.kill(frozen.processes[0].pid, signal.SIGSTOP)
    await obedient.aclose()
    assert [code for *_, code in obedient.ends] == [0]
    assert "killed" not in caplog.text
    for one in (stubborn, frozen):
        await one.aclose(0.2)
        assert [code for *_, code in one.ends] == [-signal.SIGKILL]
    assert "killing workers that did not end after SIGTERM: 1" in caplog.text
    with pytest.raises(InvocationFailed, match="this process is ending"):
        await obedient.invoke(request_of("s.2"))


async def test_a_cancelled_close_leaves_no_worker(play):
    invoker = play(STUBBORN)
    await invoker.up("s.1")
    closing = asyncio.create_task(invoker.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert [code for *_, code in invoker.ends] == [-signal.SIGKILL]


async def test_a_cancelled_start_still_tracks_the_worker(play):
    invoker = play()
    asking = asyncio.create_task(invoker.invoke(request_of("s.1")))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await soon(lambda: not invoker._workers or invoker.processes)
    await invoker.aclose(0)
    assert len(invoker.ends) <= 1
    assert not children_of(os.getpid()) or all(
        pid not in children_of(os.getpid()) for _, pid, _ in invoker.ends
    )


async def test_a_process_that_cannot_be_started_is_reported(play, monkeypatch):
    invoker = play()
    monkeypatch.setattr(module.sys, "executable", "/nowhere/python")
    monkeypatch.setattr("sublet.tasks.programs.bound_process.sys.executable", "/nowhere/python")
    with pytest.raises(InvocationFailed, match="the worker process could not be started: No such file"):
        await invoker.invoke(request_of("s.1"))
    assert invoker.processes == ()


# a real worker


async def test_a_job_of_a_pool_starts_a_worker_that_leaves_afterwards(settings):
    """With the real command, from zero workers."""
    store = Store(settings)
    await store.prepare()
    ends, env = (
        [],
        {**os.environ, "SUBLET_REDIS_URL": settings.redis_url, "SUBLET_NAMESPACE": settings.namespace},
    )
    invoker = ProcessInvoker(
        "tests.support.tasks:app",
        environment=env,
        output=subprocess.DEVNULL,
        ended=lambda *words: ends.append(words),
    )
    summoner = Summoner(store, {"process": invoker})
    await store.follow(
        pools.put(
            store.operations.bases, Pool(name="p", queues=("default",), invoker="process", linger=0.0), None
        )
    )
    with app.using(settings):
        handle = await app.tasks["add"].submit(a=1)
        summoner.nudge(["default"])
        assert await handle.result(timeout=60) == 2
        await app.client.aclose()
    await soon(lambda: ends)
    assert (len(ends), ends[0][2], invoker.processes) == (1, 0, ())
    assert await store.workers() == []
    await summoner.aclose()
    await store.aclose()


# output


async def test_lines_are_joined_and_cut_at_a_limit(play):
    script = (
        "import sys, time; w = sys.stdout.buffer; w.write(b'half '); w.flush(); time.sleep(0.05); "
        r"w.write(b'a line\nsecond\r\n\xff\n' + b'x' * 30000 + b'\n'); w.flush(); sys.stderr.write('to stderr\n'); "
        "sys.stderr.flush(); w.write(b'unfinished'); w.flush()"
    )
    invoker = play(script)
    await invoker.invoke(request_of("s.1"))
    await soon(lambda: invoker.ends)
    lines = [line for _, line in invoker.lines]
    assert lines == ["half a line", "second", "\ufffd", "x" * module.LINE_MAX, "to stderr", "unfinished"]


async def test_an_endless_line_is_cut(play):
    invoker = play("import sys; [sys.stdout.write('x' * 65536) for _ in range(200)]; print(); print('end')")
    await invoker.invoke(request_of("s.1"))
    await soon(lambda: invoker.ends, 30)
    assert [len(line) for _, line in invoker.lines] == [module.LINE_MAX, 3]


async def test_the_output_may_be_redirected_to_a_file(play, tmp_path):
    with (tmp_path / "log").open("wb") as log:
        invoker = play(
            "import os; print('hello', os.environ.get('MINE'))",
            hear=None,
            output=log,
            environment={"MINE": "yes"},
        )
        await invoker.invoke(request_of("s.1"))
        await soon(lambda: invoker.ends)
    assert (tmp_path / "log").read_text() == "hello yes\n"


@on_linux
@pytest.mark.parametrize("is_stopped", [False, True])
@pytest.mark.parametrize(("script", "grace", "code"), [(OBEDIENT, 60, "obeyed"), (STUBBORN, 0.3, "killed")])
def test_a_program_has_its_grace_when_its_starter_is_killed(tmp_path, script, grace, code, is_stopped):
    """Then it is killed if it ignores SIGTERM. A stopped program is continued, so that it can obey."""
    ended = f"; open({str(tmp_path / 'obeyed')!r}, 'w')" if code == "obeyed" else ""
    starter = (
        "import os, sys, time; from sublet.tasks.programs.bound_process import spawn_bound; "
        "process = spawn_bound([sys.executable, '-I', '-S', '-c', sys.argv[1]], grace=float(sys.argv[2]), stdout=2); "
        "print(process.pid, flush=True); time.sleep(600)"
    )
    path = os.pathsep.join([str(ROOT / "jobs"), str(ROOT / "functions")])
    with subprocess.Popen(
        [sys.executable, "-c", starter, script + ended, str(grace)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path}, text=True,
    ) as process:  # fmt: skip
        pid = int(process.stdout.readline())
        assert process.stderr.readline() == "up\n"
        if is_stopped:
            os.kill(pid, signal.SIGSTOP)
        process.kill()
    until(lambda: not is_alive(pid))
    assert (tmp_path / "obeyed").exists() == (code == "obeyed")


def test_a_worker_imports_this_package_and_claims_from_redis(monkeypatch):
    monkeypatch.setenv("SUBLET_SOURCE", "http://elsewhere")
    monkeypatch.setenv("PYTHONPATH", "mine")
    found = module.worker_environment(os.environ)
    assert (found["PYTHONPATH"], found["SUBLET_SOURCE"]) == (
        os.pathsep.join([str(ROOT / "jobs"), str(ROOT / "functions"), "mine"]),
        "",
    )


# the end of the invoker

PARENT = """
import asyncio, sys
sys.path.insert(0, {root!r})
from sublet.scaling.invokers import Invocation
from sublet.scaling.invokers.process import ProcessInvoker
class ScriptInvoker(ProcessInvoker):
    def _command(self, request, summons):
        return [sys.executable, "-I", "-S", "-c", {script!r}]
async def main():
    invoker = ScriptInvoker("tasks:app", output=-3)
    await invoker.invoke(Invocation("p", "", (), 1, 0.0, ("s.1", "s.2")))
    print(*[one.pid for one in invoker.processes], flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


@on_linux
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_die_with_their_invoker_on_any_signal(number):
    words = [sys.executable, "-c", PARENT.format(root=str(ROOT), script=STUBBORN)]
    with (
        tempfile.TemporaryFile() as err,
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=err, text=True) as parent,
    ):
        try:
            pids = [int(word) for word in parent.stdout.readline().split()]
            assert len(pids) == 2
            assert all(is_alive(pid) for pid in pids)
            parent.send_signal(number)
            until(lambda: not any(is_alive(pid) for pid in pids))
        finally:
            parent.kill()
