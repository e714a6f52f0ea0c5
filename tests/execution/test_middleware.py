"""Middleware: around every attempt, its process, and the order of errors."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress

import pytest

from sublet import App, Discard, Invalid, JobFailed, Snooze
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support import middleware_tasks
from tests.support.paths import ROOT
from tests.support.workers_beside import beside

SNIPPETS = re.findall(
    r"^```python\n(.*?)^```$",
    (ROOT / "docs" / "guides" / "middleware.md").read_text(),
    re.MULTILINE | re.DOTALL,
)


@pytest.fixture
async def run(store, client):
    """Submit jobs, have a worker of one slot run them until all have ended, and give each job as it is then."""

    async def run(app, *jobs):
        ids = [submitted.id for submitted in await client.submit_all(jobs)]
        async with beside(app, store):
            for job_id in ids:
                with suppress(JobFailed):
                    await client.result(job_id, 30)
        return [await client.get(job_id) for job_id in ids]

    return run


def noting(trail, name):
    """A middleware that records its calls."""

    @contextmanager
    def hook(ctx):
        trail.append(f"{name} in")
        try:
            yield
        except BaseException as error:
            trail.append(f"{name} saw {type(error).__name__}")
            raise
        finally:
            trail.append(f"{name} out")

    return hook


def codes(job):
    return [line.code for line in job.attempts]


# order and place


async def test_the_first_hook_is_the_outermost(app, run):
    trail = []
    for name in ("a", "b", "c"):
        app.middleware(noting(trail, name))

    @app.task
    async def work():
        trail.append("task")

    (job,) = await run(app, work.job())
    assert (job.state, trail) == ("completed", ["a in", "b in", "c in", "task", "c out", "b out", "a out"])


async def test_a_hook_sees_the_context_that_the_task_sees(app, run):
    seen = []

    @app.middleware
    @contextmanager
    def hook(ctx):
        seen.append(ctx)
        yield

    @app.task(backoff=0.01)
    async def work(ctx: middleware_tasks.Context):
        seen.append(ctx)
        if ctx.attempt == 1:
            raise ValueError

    (job,) = await run(app, work.job())
    assert [ctx.attempt for ctx in seen] == [1, 1, 2, 2]
    assert (seen[0] is seen[1], seen[2] is seen[3]) == (True, True)
    assert (seen[2].id, seen[2].task, seen[2].queue, seen[2].recovered) == (
        job.id,
        "work",
        "default",
        "ValueError",
    )


ON_THE_LOOP = ["outer in on_loop 1", "loop in", "inner in"]
AROUND = {
    "on_loop": (ON_THE_LOOP, ["inner out", "loop out", "outer out", *ON_THE_LOOP]),
    "in_a_thread": (
        ["outer in in_a_thread 1", "inner in"],
        ["inner out", "outer out", "outer in in_a_thread 1", "inner in"],
    ),
    "in_a_child": (
        ["outer in in_a_child 1", "inner in"],
        ["inner out", "outer out", "outer in in_a_child 1", "inner in"],
    ),
}
"""What the task of a first and of a second job see: an async hook goes around what runs on the loop, and only that."""


@pytest.mark.parametrize("name", AROUND)
async def test_middleware_runs_where_its_task_runs_and_shares_context_variables(run, name):
    middleware_tasks.trail.clear()
    first, second = await run(
        middleware_tasks.app, *[middleware_tasks.app.tasks[name].job() for _ in range(2)]
    )
    (hook_at, task_at, before), (_, _, after) = first.result, second.result
    assert hook_at == task_at
    assert (task_at.split()[0] == str(os.getpid())) is (name != "in_a_child")
    assert (before, after) == AROUND[name]


async def test_middleware_in_a_child_sees_the_exception_of_the_task(run):
    (job,) = await run(middleware_tasks.app, middleware_tasks.fails_in_a_child.job())
    assert codes(job) == ["LookupError", "completed"]
    *_, trail = job.result
    assert trail == [
        *["outer in fails_in_a_child 1", "inner in", "outer saw LookupError", "outer out"],
        *["outer in fails_in_a_child 2", "inner in"],
    ]


async def test_a_killed_child_leaves_no_hook(run, tmp_path):
    """The process is gone: neither `finally` nor `__exit__` runs, in the task or in a hook."""
    (job,) = await run(middleware_tasks.app, middleware_tasks.stuck_in_a_child.job(str(tmp_path / "left")))
    assert (codes(job), list(tmp_path.iterdir())) == (["timed_out"], [])


async def test_a_worker_without_hooks_makes_no_stack(app, run, monkeypatch):
    def never(*_):
        raise AssertionError("no hooks, no cost")

    monkeypatch.setattr(contextlib.ExitStack, "__init__", never)
    monkeypatch.setattr(contextlib.AsyncExitStack, "__init__", never)

    @app.task
    async def work():
        return 1

    (job,) = await run(app, work.job())
    assert job.result == 1


# errors


async def test_a_hook_that_cannot_be_entered_fails_the_attempt_and_the_task_does_not_run(app, run):
    trail = []
    app.middleware(noting(trail, "a"))

    @app.middleware
    @contextmanager
    def broken(ctx):
        raise ConnectionError("no database")
        yield

    app.middleware(noting(trail, "c"))

    @app.task(max_attempts=1)
    async def work():
        trail.append("task")

    (job,) = await run(app, work.job())
    assert (job.state, codes(job), job.attempts[0].message) == ("dead", ["ConnectionError"], "no database")
    assert trail == ["a in", "a saw ConnectionError", "a out"]


async def test_a_hook_that_cannot_be_left_fails_the_attempt(app, run):
    """So a commit that does not succeed is a job that did not succeed."""
    trail = []
    app.middleware(noting(trail, "a"))

    @app.middleware
    @contextmanager
    def broken(ctx):
        yield
        raise ConnectionError("no commit")

    @app.task(max_attempts=1)
    async def work():
        trail.append("task")

    (job,) = await run(app, work.job())
    assert (codes(job), trail) == (["ConnectionError"], ["a in", "task", "a saw ConnectionError", "a out"])


@pytest.mark.parametrize("error", [Snooze(0.01), Discard("of no use"), ValueError("no")])
async def test_middleware_sees_every_exception_of_a_task(app, run, error):
    trail = []
    app.middleware(noting(trail, "a"))

    @app.task(max_attempts=1, backoff=0.01)
    async def work(ctx: middleware_tasks.Context):
        if ctx.attempt == 1:
            raise error

    await run(app, work.job())
    assert trail[:3] == ["a in", f"a saw {type(error).__name__}", "a out"]


async def test_a_hook_may_suppress_an_exception_and_the_result_is_null(app, run):
    app.middleware(lambda ctx: suppress(LookupError))

    @app.task(max_attempts=1)
    async def work() -> int | None:
        raise LookupError

    @app.task(max_attempts=1, run="thread")
    def plain() -> int | None:
        raise LookupError

    jobs = await run(app, work.job(), plain.job())
    assert [(job.state, job.result) for job in jobs] == [("completed", None)] * 2


async def test_none_is_refused_as_a_result_of_another_type(app, run):
    app.middleware(lambda ctx: suppress(LookupError))

    @app.task(max_attempts=1)
    async def work() -> int:
        raise LookupError

    (job,) = await run(app, work.job())
    assert (job.state, codes(job)) == ("dead", ["invalid_result"])


async def test_hooks_see_a_refused_result_as_an_exception(app, run):
    """Only commits count: a session rolls back when the job fails for its result."""
    trail = []
    app.middleware(noting(trail, "a"))

    @app.task(max_attempts=1)
    async def work() -> int:
        return "words"

    (job,) = await run(app, work.job())
    assert (codes(job), trail) == (["invalid_result"], ["a in", "a saw InvalidResult", "a out"])


async def test_hooks_in_a_child_suppress_exceptions_and_see_refused_results(run):
    swallowed, refused, last = await run(
        middleware_tasks.forgiving,
        *[middleware_tasks.forgiving.tasks[n].job() for n in middleware_tasks.forgiving.tasks],
    )
    assert (swallowed.state, swallowed.result) == ("completed", None)
    assert codes(refused) == ["invalid_result"]
    assert last.result == ["swallowed LookupError", "refused InvalidResult"]


async def test_an_unknown_task_and_mismatched_arguments_enter_no_hook(app, run, store, client):
    trail = []
    app.middleware(noting(trail, "a"))

    @app.task
    async def work(a: int):
        pass

    ids = [(await client.submit("nobody")).id, (await client.submit("work", {"b": 1})).id]
    worker = Worker(app, store, WorkerConfig(slots=1, grace=0.0))
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        for job_id in ids:
            while not (job := await client.get(job_id)).attempts:
                await asyncio.sleep(0.005)
            assert codes(job) == ["unknown_task"]
        worker.stop()
        await working
    assert trail == []


# ends that come from outside


async def test_a_time_out_passes_through_hooks_which_may_still_clean_up(app, run):
    trail = []
    app.middleware(noting(trail, "a"))

    @app.middleware
    @asynccontextmanager
    async def session(ctx):
        try:
            yield
        finally:
            await asyncio.sleep(0)
            trail.append(f"cleaned up, {ctx.ending}")

    @app.task(timeout=0.1, max_attempts=1)
    async def work():
        await asyncio.Event().wait()

    (job,) = await run(app, work.job())
    assert codes(job) == ["timed_out"]
    assert trail == ["a in", "cleaned up, timed_out", "a saw CancelledError", "a out"]


async def test_a_stopping_worker_ends_middleware_with_the_reason(app, store, client):
    trail, running = [], asyncio.Event()

    @app.middleware
    @contextmanager
    def hook(ctx):
        try:
            yield
        finally:
            trail.append(ctx.ending)

    @app.task
    async def work():
        running.set()
        await asyncio.Event().wait()

    (submitted,) = await client.submit_all([work.job()])
    worker = Worker(app, store, WorkerConfig(slots=1, grace=0.0))
    async with asyncio.timeout(30):
        task = asyncio.create_task(worker.run())
        await running.wait()
        worker.stop()
        await task
    assert (trail, (await client.get(submitted.id)).state) == (["stopping"], "queued")


async def test_async_hooks_are_entered_and_left_by_the_task_they_wrap(app, run):
    seen = []

    @app.middleware
    @asynccontextmanager
    async def hook(ctx):
        seen.append(asyncio.current_task())
        yield
        seen.append(asyncio.current_task())

    @app.task
    async def work():
        seen.append(asyncio.current_task())

    await run(app, work.job())
    assert len(seen) == 3
    assert len(set(seen)) == 1


# refused objects


@contextmanager
def fine(ctx):
    yield


def forgot(ctx):
    yield


async def forgot_async(ctx):
    yield


async def coroutine(ctx):
    pass


NO_HOOKS = {
    "generator": forgot,
    "async_generator": forgot_async,
    "coroutine": coroutine,
    "none": None,
    "manager": nullcontext(),
}


@pytest.mark.parametrize("hook", NO_HOOKS.values(), ids=NO_HOOKS)
def test_an_object_that_is_not_a_context_manager_is_refused_when_declared(hook):
    app = App()
    with pytest.raises(Invalid, match=r"middleware .*context manager"):
        app.middleware(hook)
    assert app.hooks == []
    assert app.middleware(fine) is fine


async def test_a_hook_without_a_context_manager_fails_its_attempts_with_the_reason(app, run):
    app.middleware(lambda ctx: None)

    @app.task(max_attempts=1)
    async def work():
        pass

    @app.task(max_attempts=1, run="thread")
    def plain():
        pass

    for job in await run(app, work.job(), plain.job()):
        assert (job.state, codes(job)) == ("dead", ["TypeError"])
        assert "context manager" in job.attempts[0].message


TYPED = """
import contextlib
from collections.abc import AsyncIterator, Iterator
from sublet import App, Context

app = App()

@app.middleware
@contextlib.contextmanager
def plain(ctx: Context) -> Iterator[int]:
    yield ctx.attempt

@app.middleware
@contextlib.asynccontextmanager
async def on_the_loop(ctx: Context) -> AsyncIterator[None]:
    yield

app.middleware(lambda ctx: contextlib.suppress(KeyError))
still_typed: contextlib.AbstractContextManager[int] = plain(Context.__new__(Context))
"""
UNTYPED = "from sublet import App\n\n@App().middleware\ndef wrong(number: int) -> int:\n    return number\n"


def test_hooks_are_typed(tmp_path):
    for name, text in {"typed.py": TYPED, "untyped.py": UNTYPED}.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(tmp_path / "typed.py"), str(tmp_path / "untyped.py")],
        cwd=ROOT, capture_output=True, text=True, timeout=110,
    )  # fmt: skip
    errors = [line.partition("untyped.py:")[2] for line in done.stdout.splitlines() if " error: " in line]
    assert len(errors) == 1, done.stdout
    assert re.match(r"3: error: .*(\"H\"|middleware)", errors[0]), done.stdout


# the page and the example


@pytest.mark.real_server
def test_the_example(place, raw):
    env = {
        **os.environ,
        "SUBLET_REDIS_URL": place.settings.redis_url,
        "SUBLET_NAMESPACE": place.settings.namespace,
    }
    command = [sys.executable, "-m", "examples.middleware"]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == [
        "left: 70",
        "undone: bob is 470 cents short",
        "accounts: {'ann': 70, 'bob': 30}",
        "attempts: {'transfer done': 1, 'transfer failed': 1} - all of them timed: True",
    ], done.stderr


async def test_the_first_snippets_of_the_document_work_as_written(run, tmp_path, monkeypatch, capfd):
    (tmp_path / "shop.py").write_text(SNIPPETS[0] + SNIPPETS[1])
    monkeypatch.syspath_prepend(tmp_path)
    import shop

    try:
        jobs = await run(shop.app, shop.resize.job("a.png"), shop.notify.job("ann"))
    finally:
        del sys.modules["shop"]
    assert [job.state for job in jobs] == ["completed", "completed"]
    assert jobs[1].result == "sent over the pool to ann"
    printed = capfd.readouterr()
    assert re.search(r"resize took \d+\.\d+ s", printed.err + printed.out)
    assert re.search(r"notify took \d+\.\d+ s", printed.err + printed.out)
