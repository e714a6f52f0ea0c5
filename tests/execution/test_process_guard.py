"""The guard: however a worker ends, its process groups end with it. Real processes, real signals."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sublet.tasks.programs import process_guard, process_guard_main
from sublet.tasks.programs.process_guard import ProcessGuard
from tests.support.paths import ROOT
from tests.support.processes import children_of, is_alive, on_linux, until

pytestmark = on_linux
WORKER = """
import json, os, signal, subprocess, sys, time
from sublet.tasks.programs.process_guard import ProcessGuard

guard = ProcessGuard()

def start(script):
    return subprocess.Popen(["sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)

def tell(**pids):
    print(json.dumps(pids | {"guard": guard.pid}), flush=True)
    while True:  # a signal that comes just before pause() is not heard in it
        time.sleep(0.05)

"""


@pytest.fixture
def worker():
    """Run a script as a worker would be, and yield it with the pids that it prints; all of it is gone after the test."""
    started = []

    def start(script):
        words = [sys.executable, "-c", WORKER + textwrap.dedent(script)]
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        started.append(process)
        pids = json.loads(process.stdout.readline())
        started.extend(pids.values())
        return process, pids

    yield start
    for one in reversed(started):
        if isinstance(one, subprocess.Popen):
            one.kill()
            one.communicate(timeout=30)
        elif is_alive(one):
            os.kill(one, signal.SIGKILL)


@pytest.fixture
def sleeper():
    """Start a program that sleeps, as the leader of a group; all of them are gone after the test."""
    started = []

    def start():
        started.append(subprocess.Popen(["sleep", "1000"], start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait(30)


def is_there(pid):
    """Is there such a process, be it a zombie?"""
    return Path(f"/proc/{pid}").exists()


def group_of(pid):
    """The living processes of a group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rpartition(") ")[2].split()[:3]
        except OSError:
            continue
        if int(group) == pid and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def test_a_pipeline_ends_with_a_worker_that_is_killed(worker):
    process, pids = worker("""
        pipeline = start("sleep 1000 | sleep 1000")
        guard.watch(pipeline.pid)
        tell(pipeline=pipeline.pid)
    """)
    until(lambda: len(group_of(pids["pipeline"])) == 3)
    process.kill()
    until(lambda: not group_of(pids["pipeline"]), "the pipeline is gone")
    until(lambda: not is_alive(pids["guard"]), "the guard is gone")


def test_processes_that_a_leader_left_behind_end_too(worker):
    process, pids = worker("""
        left = start("sleep 1000 & echo")
        guard.watch(left.pid)
        left.wait()
        tell(group=left.pid)
    """)
    assert not is_alive(pids["group"])
    assert len(group_of(pids["group"])) == 1
    process.kill()
    until(lambda: not group_of(pids["group"]), "the rest of the group is gone")


def test_an_unregistered_group_is_not_killed(worker):
    process, pids = worker("""
        one, other = start("exec sleep 1000"), start("exec sleep 1000")
        guard.watch(one.pid)
        guard.watch(other.pid)
        guard.forget(one.pid)
        guard.forget(one.pid)
        tell(one=one.pid, other=other.pid)
    """)
    process.kill()
    until(lambda: not is_alive(pids["other"]), "the registered group is gone")
    assert is_alive(pids["one"])


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_to_all_processes_does_not_stop_the_guard(worker, name):
    process, pids = worker("""
        group = start("exec sleep 1000")
        guard.watch(group.pid)
        tell(group=group.pid)
    """)
    ignored = 1 << (signal.Signals[name] - 1)
    until(
        lambda: (
            int(Path(f"/proc/{pids['guard']}/status").read_text().split("SigIgn:")[1].split()[0], 16)
            & ignored
        )
    )
    os.kill(pids["guard"], signal.Signals[name])
    assert is_alive(pids["guard"])
    process.kill()
    until(lambda: not is_alive(pids["group"]), "the group is gone")


def test_a_fork_that_holds_the_pipe_does_not_keep_the_guard_waiting(worker):
    process, pids = worker("""
        group = start("exec sleep 1000")
        guard.watch(group.pid)
        forked = os.fork()
        if not forked:
            signal.pause()
        tell(group=group.pid, forked=forked)
    """)
    process.kill()
    until(lambda: not is_alive(pids["group"]), "the group is gone")
    assert is_alive(pids["forked"])


def test_a_normal_exit_ends_the_groups_too(worker):
    process, pids = worker("""
        group = start("exec sleep 1000")
        guard.watch(group.pid)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
        tell(group=group.pid)
    """)
    process.terminate()
    assert process.wait(30) == 3
    until(lambda: not is_alive(pids["group"]), "the group is gone")


def test_a_reused_process_id_is_not_killed(sleeper):
    stranger = sleeper()
    assert not process_guard_main.end(stranger.pid, "1")
    assert is_alive(stranger.pid)
    assert process_guard_main.end(stranger.pid, process_guard_main.start_of(stranger.pid))
    assert stranger.wait(30) == -signal.SIGKILL
    assert not process_guard_main.end(stranger.pid, "1")


def test_without_proc_a_group_is_identified_by_its_number_only(sleeper):
    process = sleeper()
    assert process_guard_main.start_of(2**22 + 1) == ""
    assert process_guard_main.end(process.pid, "")
    assert process.wait(30) == -signal.SIGKILL


@pytest.mark.parametrize("notice", ["watch", "check"])
async def test_a_killed_guard_is_replaced_and_receives_all_groups(sleeper, caplog, notice):
    watching, one, other = ProcessGuard(), sleeper(), sleeper()
    watching.watch(one.pid)
    first = watching.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: not is_alive(first))
    if notice == "watch":
        watching.watch(other.pid)
    else:
        watching.check()
    assert watching.pid not in (first, None)
    assert (
        "starting again the guard process, which kills this worker's programs if the worker is killed: it has died"
        in caplog.text
    )
    assert not is_there(first), "it is a zombie"
    await watching.aclose()  # its pipe closes while it has groups to watch
    assert one.wait(30) == -signal.SIGKILL
    if notice == "watch":
        assert other.wait(30) == -signal.SIGKILL


def test_a_guard_that_does_not_read_delays_nothing(sleeper, caplog):
    watching, process = ProcessGuard(), sleeper()
    watching.watch(process.pid)
    first = watching.pid
    os.kill(first, signal.SIGSTOP)
    try:
        for _ in range(20_000):
            watching.watch(process.pid)
            if watching.pid != first:
                break
    finally:
        if is_there(first):
            os.kill(first, signal.SIGKILL)
            pytest.fail("the stopped guard was left as it was")
    assert "it does not read its pipe" in caplog.text
    watching.forget(process.pid)
    asyncio.run(watching.aclose())
    assert is_alive(process.pid)


def test_a_guard_serves_event_loops_in_sequence_and_ends_in_between(sleeper):
    watching, before, descriptors = (
        ProcessGuard(),
        set(children_of(os.getpid())),
        set(os.listdir("/proc/self/fd")),
    )

    async def serve():
        process = sleeper()
        watching.watch(process.pid)
        pid = watching.pid
        assert is_alive(pid)
        watching.forget(process.pid)
        await watching.aclose()
        assert watching.pid is None
        assert not is_there(pid)
        return process

    started = {asyncio.run(serve()).pid for _ in range(2)}
    assert set(children_of(os.getpid())) - before == started
    assert set(os.listdir("/proc/self/fd")) == descriptors
    asyncio.run(watching.aclose())


def test_a_guard_starts_only_when_needed(sleeper):
    idle, process = ProcessGuard(), sleeper()
    idle.forget(1)
    idle.check()
    assert idle.pid is None
    idle.watch(process.pid)
    asyncio.run(idle.aclose())
    assert process.wait(30) == -signal.SIGKILL
    idle.forget(process.pid)
    idle.check()
    assert idle.pid is None


def test_a_guard_that_cannot_be_started_is_logged(sleeper, monkeypatch, caplog):
    monkeypatch.setattr(process_guard.sys, "executable", "/nowhere/python")
    descriptors = set(os.listdir("/proc/self/fd"))
    ProcessGuard().watch(sleeper().pid)
    assert "may outlive it" in caplog.text
    assert set(os.listdir("/proc/self/fd")) == descriptors


def test_children_inherit_nothing_of_the_guard(sleeper):
    watching = ProcessGuard()
    watching.watch(sleeper().pid)
    out = subprocess.run(
        ["ls", "/proc/self/fd"], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
    ).stdout
    assert out.split() == ["0", "1", "2", "3"]  # the last is the folder that it reads
    asyncio.run(watching.aclose())


def test_the_guard_has_no_secrets(sleeper, monkeypatch):
    monkeypatch.setenv("SUBLET_REDIS_URL", "redis://:hunter2@nowhere")
    watching = ProcessGuard()
    watching.watch(sleeper().pid)
    until(
        lambda: (
            b"sublet.tasks.programs.process_guard_main" in Path(f"/proc/{watching.pid}/cmdline").read_bytes()
        )
    )
    assert b"hunter2" not in Path(f"/proc/{watching.pid}/environ").read_bytes()
    asyncio.run(watching.aclose())
