"""Workers that run programs: timeouts, cancellation, the `command` task, and workers that are stopped or killed meanwhile."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid

import pytest

from sublet import App, Invalid, JobCancelled, JobFailed
from sublet.context import Discard
from sublet.tasks.programs.command import any_program
from sublet.worker.capacity import queue_sets
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support.paths import ROOT
from tests.support.processes import children_of, is_alive, on_linux, until
from tests.support.program_runs import bearing, soon

pytest_plugins = ["tests.support.program_fixtures", "tests.support.command_line"]
app = App()
sleeps = app.command("sleep {seconds}", max_attempts=1)
stuck = app.command(
    "trap '' TERM; sleep 1000 | sleep 1000 | cat {marker}",
    name="stuck",
    shell=True,
    timeout=0.3,
    max_attempts=1,
)


@pytest.fixture
async def hire(store):
    hired = []

    def start(app=app, **how):
        worker = Worker(
            app,
            store,
            WorkerConfig(**{"queues": ["default"], "slots": 4, "processes": 4, "grace": 0.0, **how}),
        )
        hired.append((worker, asyncio.create_task(worker.run())))
        return worker

    yield start
    for worker, running in hired:
        worker.stop()
        async with asyncio.timeout(30):
            await running


@on_linux
async def test_a_timeout_ends_the_whole_group(client, hire, marker):
    hire()
    (job,) = await client.submit_all([stuck.job(marker)])
    with pytest.raises(JobFailed) as failed:
        await client.result(job.id, 30)
    assert failed.value.code == "timed_out"
    await soon(lambda: not bearing(marker))


@on_linux
async def test_a_cancelled_job_ends_its_program(client, hire):
    hire(lease=0.9)
    seconds = 1000 + uuid.uuid4().int % 10**6
    (job,) = await client.submit_all([sleeps.job(seconds)])
    await soon(lambda: bearing(f"sleep\0{seconds}\0"))
    await client.cancel(job.id)
    with pytest.raises(JobCancelled):
        await client.result(job.id, 30)
    await soon(lambda: not bearing(f"sleep\0{seconds}\0"))


CHATTY = "echo started; echo warning >&2; exec 2>&-; f() {{ echo cleaned; exit; }}; trap f TERM; touch {begun}; while true; do sleep 0.05; done"
chatty = app.command(CHATTY, name="chatty", shell=True, max_attempts=1)
slow = app.command(CHATTY, name="slow", shell=True, max_attempts=1, timeout=0.5)
OUTPUT = "stdout:\nstarted\ncleaned\nstderr:\nwarning"


@on_linux
async def test_a_program_that_is_ended_early_leaves_its_output(client, hire, tmp_path):
    """As the attempt's detail at a timeout or a cancel, in its log when the worker stops."""
    worker = hire(lease=0.9)
    paths = [tmp_path / name for name in ("slow", "cancelled", "stopped")]
    late, cancelled, stopped = await client.submit_all(
        [task.job(str(path)) for task, path in zip((slow, chatty, chatty), paths, strict=True)]
    )
    await soon(lambda: all(path.exists() for path in paths))
    with pytest.raises(JobFailed) as failed:
        await client.result(late.id, 30)
    assert (failed.value.code, failed.value.detail) == ("timed_out", OUTPUT)
    await client.cancel(cancelled.id)
    with pytest.raises(JobCancelled) as ended:
        await client.result(cancelled.id, 30)
    assert ended.value.detail == OUTPUT
    worker.stop()
    await soon(lambda: worker.summary.released)
    (attempt,) = (await client.get(stopped.id)).attempts
    assert attempt.code == "released"
    assert [line.partition(" ")[2] for line in attempt.log] == OUTPUT.split("\n")


async def test_the_command_task_exists_only_on_request_of_the_worker(client, hire):
    (job,) = await client.submit_all(
        [sleeps.job(seconds=0)._replace(task="command", payload=b'{"argv": ["echo", "hi"]}')]
    )
    first = hire()

    async def refused():
        return (await client.get(job.id)).attempts

    deadline = time.monotonic() + 30
    while not (attempts := await refused()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    assert attempts[0].code == "unknown_task"
    first.stop()
    hire(commands=True)
    result = await client.result(job.id, 30)
    assert (result["code"], result["stdout"], result["stderr"]) == (0, "hi\n", "")
    assert result["seconds"] >= 0


async def test_a_job_without_a_program_is_dead_at_once(context):
    for arguments in ({}, {"argv": []}, {"argv": ["a"], "shell": "b"}):
        with pytest.raises(Discard, match='must have either "argv"'):
            await any_program(context, **arguments)


def test_a_task_of_that_name_and_the_flag_exclude_each_other(monkeypatch):
    own = App()
    own.command("echo {x}", name="command")
    with pytest.raises(Invalid, match="the app has a task of this name"):
        Worker(own, None, WorkerConfig(commands=True))


def test_a_program_takes_one_of_the_workers_processes():
    """A hundred at once, as for async tasks, would be a hundred programs."""
    assert Worker(app, None, WorkerConfig(processes=3)).slots == 3
    mixed = App()
    mixed.command("true", queue="programs")
    mixed.task(function_of_nothing)
    assert Worker(mixed, None, WorkerConfig(processes=3)).slots > 3
    assert [
        (each.queues, each.may_need_child)
        for each in queue_sets(["default", "programs"], mixed.tasks.values())
    ] == [
        (["programs"], True),
        (["default"], False),
    ]


async def function_of_nothing():
    pass


@on_linux
async def test_a_stopping_worker_is_not_delayed_by_a_program_that_ignores_signals(client, hire, marker):
    (job,) = await client.submit_all([stuck.options(timeout=60).job(marker)])
    worker = hire()
    await soon(lambda: len(bearing(marker)) >= 3)
    worker.stop()

    async def state():
        return (await client.get(job.id)).state

    deadline = time.monotonic() + 30
    while await state() != "queued":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    await soon(lambda: not bearing(marker))
    await soon(lambda: worker.summary.released)  # counted when the answer arrives
    assert (worker.summary.released, worker.summary.stuck) == (1, 0)


@on_linux
async def test_a_killed_process_guard_is_replaced_at_the_next_heartbeat(client, marker, hire):
    def guards():
        return [
            pid
            for pid in bearing("sublet.tasks.programs.process_guard_main")
            if pid in children_of(os.getpid())
        ]

    hire(lease=0.9)
    await client.submit_all([stuck.options(timeout=60).job(marker)])
    await soon(lambda: len(bearing(marker)) >= 3)
    (first,) = await soon(guards)
    os.kill(first, signal.SIGKILL)
    (second,) = await soon(lambda: [pid for pid in guards() if pid != first])
    assert is_alive(second)


async def test_two_workers_in_sequence_each_have_their_guard(client, hire):
    for n in (1, 2):
        worker = hire()
        (job,) = await client.submit_all([sleeps.job(0)])
        assert (await client.result(job.id, 30))["code"] == 0, n
        worker.stop()


TASKS = """
from sublet import App
app = App()
pipeline = app.command("echo {marker}; sleep 1000 | sleep 1000", name="pipeline", shell=True)
deaf = app.command("trap '' TERM INT HUP; sleep 1000 | sleep 1000; cat {marker}", name="deaf", shell=True)
shows = app.command("env", name="shows")
"""


@pytest.fixture
def commands(shell):
    (shell.folder / "commands.py").write_text(TASKS)
    return shell


@on_linux
@pytest.mark.parametrize("task", ["pipeline", "deaf"])
def test_a_killed_worker_ends_its_pipelines(commands, marker, task):
    commands.ok("submit", task, json.dumps({"marker": marker}))
    worker = commands.start("work", "commands:app")
    try:
        until(lambda: len(bearing(marker)) >= 3, "the pipeline runs")
    finally:
        worker.kill()
        worker.communicate(timeout=30)
    until(lambda: not bearing(marker), "all of the group is gone")


@on_linux
def test_sigterm_releases_the_job_and_ends_its_group(commands, marker):
    job_id = commands.ok("submit", "deaf", json.dumps({"marker": marker}))
    worker = commands.start("work", "commands:app")
    try:
        until(lambda: len(bearing(marker)) >= 3, "the pipeline runs")
        worker.terminate()
        worker.send_signal(signal.SIGINT)
        out, err = worker.communicate(timeout=60)
    finally:
        worker.kill()
    output = [
        line for line in err.splitlines() if "Unknown child process" not in line
    ]  # asyncio, of one that ended as it was closed
    assert (worker.returncode, output) == (0, [])
    assert not bearing(marker)
    assert [json.loads(line)["event"] for line in out.splitlines()][-2:] == ["released", "summary"]
    job = commands.json("get", job_id)
    assert (job["state"], job["tries_left"]) == ("queued", 3)


def test_a_password_reaches_neither_program_nor_result_nor_log(commands):
    url = commands.env["SUBLET_REDIS_URL"]
    commands.env["SUBLET_REDIS_URL"] = url.replace(
        "://", "://default:hunter2@"
    )  # a user without one takes any
    commands.env |= {"REDIS_URL": commands.env["SUBLET_REDIS_URL"], "SUBLET_WEBHOOK_TOKEN": "hunter2"}
    assert "hunter2" in commands.env["SUBLET_REDIS_URL"]
    job_id = commands.ok("submit", "shows")
    worker = commands.run("work", "commands:app", "--drain", "--lease", "3")
    assert worker.returncode == 0, worker.stderr
    job = commands.ok("get", job_id, "--json")
    assert f"SUBLET_JOB_ID={job_id}" in job
    assert "PATH=" in job
    for text in (job, worker.stdout, worker.stderr):
        assert "hunter2" not in text
        assert "SUBLET_REDIS_URL" not in text


@pytest.mark.real_server
def test_the_example_counts_and_compresses(place, raw, tmp_path):
    (tmp_path / "-a; b.txt").write_text("To be or not to be that is the question of being to be\n")
    env = {
        **os.environ,
        "SUBLET_REDIS_URL": place.settings.redis_url,
        "SUBLET_NAMESPACE": place.settings.namespace,
    }
    env["PYTHONPATH"] = str(ROOT)
    words = [sys.executable, "-m", "examples.convert", "-a; b.txt"]
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "-a; b.txt ['3', 'to', '3', 'be']\n"
    assert (tmp_path / "-a; b.txt.gz").exists()
