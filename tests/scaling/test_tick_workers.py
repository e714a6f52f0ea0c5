"""`sublet tick --app`: a tick starts workers of this machine, which outlive it and end by themselves."""

import contextlib
import errno
import os
import signal
import subprocess
from types import SimpleNamespace

import pytest

from sublet.scaling.invokers import Invocation, InvocationFailed, detached
from tests.support.processes import on_linux, until
from tests.support.program_runs import bearing

pytest_plugins = ["tests.support.command_line"]
pytestmark = on_linux
POOL = ("--queues", "default", "--invoker", "process", "--slots", "2")
BRIEF = (*POOL, "--linger", "1s")


@pytest.fixture
def tick(shell):
    """Run a tick to its end; returns its stdout. Its workers write to `errors`."""
    errors = shell.folder / "errors"

    def run(*words, **env):
        with errors.open("a") as file:
            done = subprocess.run(
                [*shell.command, "tick", *words], cwd=shell.folder, env=shell.env | env, stdout=subprocess.PIPE,
                stderr=file, text=True, timeout=60, check=True,
            )  # fmt: skip
        return done.stdout

    run.errors = errors.read_text
    yield run
    for pid in bearing(shell.env["SUBLET_NAMESPACE"]):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def workers(shell):
    """The worker processes, without their children."""
    return [
        pid
        for pid in bearing(shell.env["SUBLET_NAMESPACE"])
        if b"--summons=" in open(f"/proc/{pid}/cmdline", "rb").read()
    ]


def test_a_worker_outlives_the_tick_that_started_it_and_ends_when_it_is_idle(shell, tick):
    shell.ok("pools", "set", "local", *BRIEF)
    job_id = shell.ok("submit", "add", '{"a": 1}')
    assert tick("--app", "tasks:app").endswith(" · summoned 1\n")
    until(lambda: shell.json("get", job_id)["state"] == "completed")
    until(lambda: not workers(shell))
    assert shell.json("workers") == []
    assert tick.errors() == ""
    assert "summoned" not in tick("--app", "tasks:app"), "nothing is left to do"


def test_ticks_start_no_more_workers_than_the_pool_allows_and_its_removal_ends_them(shell, tick):
    shell.ok("pools", "set", "local", *POOL, "--max", "2", "--linger", "1h", "--wait", "1s")
    for _ in range(9):
        shell.ok("submit", "forever")
    for _ in range(3):
        tick(SUBLET_APP="tasks:app")
    until(lambda: len(shell.json("workers")) == 2)
    assert len(workers(shell)) == 2
    tick("--app", "tasks:app")
    assert len(workers(shell)) == 2
    for job in shell.json("list", "--state", "queued", "--limit", "100")["jobs"]:
        shell.ok("cancel", job["id"])
    for job in shell.json("list", "--state", "running", "--limit", "100")["jobs"]:
        shell.ok("cancel", job["id"])
    shell.ok("pools", "remove", "local")
    until(lambda: not workers(shell))


def test_a_killed_worker_is_replaced_by_the_next_tick(shell, tick):
    shell.ok("pools", "set", "local", *BRIEF, "--min", "1", "--max", "1")
    tick("--app", "tasks:app", SUBLET_WORKER_ID="not-for-them")
    (worker,) = until(lambda: shell.json("workers"))
    assert worker["worker_id"] == ""
    os.kill(worker["about"]["pid"], signal.SIGKILL)

    def replaced():
        tick("--app", "tasks:app")
        return [one for one in shell.json("workers") if one["name"] != worker["name"]]

    until(replaced)


def test_an_interrupt_of_a_ticks_process_group_does_not_reach_its_workers(shell, tick):
    shell.ok("pools", "set", "local", *POOL, "--min", "1", "--max", "1", "--linger", "1h")
    words = ("tick", "--app", "tasks:app", "--for", "50s", "--every", "1s")
    with subprocess.Popen(
        [*shell.command, *words], cwd=shell.folder, env=shell.env, stdout=subprocess.DEVNULL, process_group=0
    ) as process:
        until(lambda: shell.json("workers"))
        assert all(os.getpgid(pid) != process.pid for pid in workers(shell))
        os.killpg(process.pid, signal.SIGINT)  # as by Ctrl-C
    job_id = shell.ok("submit", "add", '{"a": 1}')
    until(lambda: shell.json("get", job_id)["state"] == "completed")


def test_workers_use_the_server_and_the_namespace_of_the_ticks_options(shell, tick):
    shell.ok("pools", "set", "local", *BRIEF)
    job_id = shell.ok("submit", "add", '{"a": 1}')
    where = ("--redis-url", shell.env["SUBLET_REDIS_URL"], "--namespace", shell.env["SUBLET_NAMESPACE"])
    tick("--app", "tasks:app", *where, SUBLET_REDIS_URL="redis://127.0.0.1:1", SUBLET_NAMESPACE="another")
    until(lambda: shell.json("get", job_id)["state"] == "completed")


async def test_the_summonses_whose_workers_do_not_start_are_reported(monkeypatch):
    """They are owed again."""
    started = []

    def start(command, environment):
        if started:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        started.append(command)
        return SimpleNamespace(poll=lambda: 0)

    monkeypatch.setattr(detached, "_spawn", start)
    request = Invocation("p", "", ("q",), 1, 1.0, ("one", "two", "three"))
    with pytest.raises(
        InvocationFailed, match="could not be started: Resource temporarily unavailable"
    ) as failed:
        await detached.DetachedInvoker("tasks:app").invoke(request)
    assert failed.value.summons == ("two", "three")
    assert "--summons=one" in started[0]


def test_a_tick_without_an_app_and_pools_of_sublet_dev_start_none(shell, tick):
    shell.ok("pools", "set", "dev:tasks:app:123456", *BRIEF)
    shell.ok("submit", "add", '{"a": 1}')
    assert "summoned" not in tick("--app", "tasks:app")
    shell.ok("pools", "set", "local", *BRIEF)
    assert "summoned" not in tick()
    assert (
        "pool local: 1 worker owed, not invoked from here: only `sublet tick --app MODULE:APP`"
        in tick.errors()
    )


def test_the_error_of_a_worker_that_cannot_start_is_on_the_ticks_stderr(shell, tick):
    (shell.folder / "broken.py").write_text("import absent_module\n")
    shell.ok("pools", "set", "local", *BRIEF)
    shell.ok("submit", "add", '{"a": 1}')
    tick("--app", "broken:app")
    until(lambda: "absent_module" in tick.errors() and not workers(shell))
