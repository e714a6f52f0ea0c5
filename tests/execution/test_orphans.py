"""A child whose parent is gone exits at once, however the parent died and whatever the child does."""

import os
import signal
import sys

import pytest

from tests.support import misbehaving_tasks as tasks
from tests.support.processes import is_alive, on_linux, until

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = on_linux
USUAL = ("--slots", "3", "--processes", "2", "--lease", "300s")
CRASHING = """
import asyncio
from sublet_functions.work import work
from tests.support.misbehaving_tasks import app

def hear(event, lease, words):
    print('{"event": "%s"}' % event, flush=True)
    if lease and lease.task == "quick":
        raise RuntimeError("a bug in the worker itself")

asyncio.run(work(app, slots=3, lease=300, report=hear))
"""


def gone(*pids):
    until(lambda: not any(map(is_alive, pids)), f"the end of {pids}")


@pytest.fixture
def parent(stage):
    """A worker with one idle child and one that waits in Python, and their pids."""
    worker = stage.hire(*USUAL)
    (waits,) = stage.submit(tasks.plain_rests)
    (busy,) = stage.until_noted("began", waits)
    stage.until_ended(*stage.submit(tasks.plain_quick))
    (idle,) = stage.notes("done")
    assert len({worker.pid, busy.pid, idle.pid}) == 3
    return worker, (busy.pid, idle.pid)


def test_children_end_with_a_parent_that_is_killed(parent):
    worker, children = parent
    worker.kill()
    gone(*children)


def test_children_end_with_a_parent_that_exits_without_cleanup(stage, parent):
    worker, children = parent
    stage.submit(tasks.ends_its_worker, stage.say_go())
    assert worker.wait() == 7
    gone(*children)


def test_children_end_with_a_parent_that_is_killed_while_it_is_stopped(parent):
    worker, children = parent
    worker.send(signal.SIGSTOP)
    worker.kill()
    gone(*children)


def test_children_end_although_they_are_stopped_themselves(parent):
    worker, children = parent
    for child in children:
        os.kill(child, signal.SIGSTOP)
    worker.kill()
    gone(*children)


def test_children_end_with_a_parent_that_ends_by_an_exception(stage):
    worker = stage.run([sys.executable, "-c", CRASHING])
    (job_id,) = stage.submit(tasks.plain_rests)
    (busy,) = stage.until_noted("began", job_id)
    stage.submit(tasks.quick)
    assert worker.wait() == 1
    worker.hears("a bug in the worker itself")
    gone(busy.pid)


def test_a_child_ends_although_its_task_holds_the_interpreter(stage):
    worker = stage.hire(*USUAL)
    stage.submit(tasks.holds_the_interpreter)
    (busy,) = stage.until_noted("began")
    worker.kill()
    gone(busy.pid)


@pytest.mark.parametrize("then", ["", "hold"], ids=["waiting", "holding the interpreter"])
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_processes_that_a_task_started_end_with_it(stage, how, then):
    """A grandchild: when the worker dies, and when it gives the job up."""
    worker = stage.hire(*USUAL, "--grace", "100ms")
    stage.submit(tasks.has_a_child_of_its_own, then)
    (busy,) = stage.until_noted("began")
    (grandchild,) = stage.notes("grandchild")
    assert is_alive(grandchild.pid)
    if how == "killed":
        worker.kill()
    else:
        assert worker.stop() == 0
    gone(busy.pid, grandchild.pid)


@pytest.mark.parametrize("how", ["program", "fork"])
def test_a_task_can_end_processes_that_it_started(stage, how):
    """Its children take SIGTERM as any process does, although the child that started them is deaf to it."""
    stage.hire(*USUAL)
    (job_id,) = stage.submit(tasks.ends_its_own_child, how)
    stage.until_ended(job_id)
    assert stage.job(job_id).result == -signal.SIGTERM


def test_a_task_may_have_a_pool_of_processes(stage):
    stage.hire(*USUAL)
    (job_id,) = stage.submit(tasks.has_a_pool)
    stage.until_ended(job_id)
    assert stage.job(job_id).result == [1, 2, 3]
