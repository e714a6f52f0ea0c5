"""`sublet.testing`: its page, and cases that the page omits. No server, and no sleeping."""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from sublet import App, Invalid, Unfit
from sublet.testing import Sandbox, StandIn, fixture
from sublet.testing.server import Server
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "guides" / "testing.md").read_text()
NOWHERE = "redis://127.0.0.1:1"
ASYNCIO = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function", "-p", "no:anyio")
NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)

app = App(redis_url=NOWHERE)
sandbox = fixture(app, now=NOW)


@app.task
async def double(n: int) -> int:
    return 2 * n


@app.task
def here() -> tuple[int, int]:
    return os.getpid(), threading.get_ident()


# the page


def snippets():
    return dict(re.findall(r"^```python (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


def run_tests(folder, *words):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "SUBLET_REDIS_URL": NOWHERE, "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def test_the_snippets_of_the_page_pass_as_written(tmp_path):
    for name, text in snippets().items():
        (tmp_path / name).write_text(text)
    (tmp_path / "test_unasked.py").write_text(
        "from tasks import app\n\ndef test_unasked():\n    assert app.sync.queues() == []\n"
    )
    done = run_tests(tmp_path, *ASYNCIO)
    assert done.returncode == 0, done.stdout
    tests = sum(text.count("def test_") for text in snippets().values())
    assert f"{tests + 1} passed" in done.stdout


def test_the_fixture_works_with_anyio(tmp_path):
    for name in ("tasks.py", "conftest.py"):
        (tmp_path / name).write_text(snippets()[name])
    text = snippets()["test_pay.py"].replace("async def", "@pytest.mark.anyio\nasync def")
    (tmp_path / "test_pay.py").write_text("import pytest\n" + text)
    backend = "import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
    (tmp_path / "conftest.py").write_text(snippets()["conftest.py"] + backend)
    done = run_tests(tmp_path, "-p", "no:asyncio", "test_pay.py")
    assert "2 passed" in done.stdout, done.stdout


def test_a_failed_test_shows_the_exceptions_of_its_tasks(tmp_path):
    for name in ("tasks.py", "conftest.py"):
        (tmp_path / name).write_text(snippets()[name])
    (tmp_path / "test_wrong.py").write_text(
        "from tasks import notify\n\ndef test_wrong(sandbox):\n"
        "    notify.submit_sync('https://example.com', 'x')\n    assert sandbox.drain_sync().completed == 1\n"
    )
    done = run_tests(tmp_path, *ASYNCIO, "test_wrong.py")
    assert done.returncode == 1
    assert "attempt 1 failed: ConnectionError not in a test" in done.stdout
    assert 'raise ConnectionError("not in a test")' in done.stdout


# isolation


async def test_the_app_is_unchanged_after_the_sandbox(monkeypatch):
    monkeypatch.setenv("SUBLET_REDIS_URL", "redis://127.0.0.1:2")
    own = App()
    client, sync, settings, operations = own.client, own.sync, own.settings, own.operations
    with Sandbox(own) as sandbox:
        assert own.client is not client
        assert own.sync is not sync
        await own.client.submit("t")
        assert [job.task for job in sandbox.jobs()] == ["t"]
    assert (own.client, own.sync, own.settings, own.operations) == (client, sync, settings, operations)
    assert own.settings.redis_url == "redis://127.0.0.1:2"
    assert own.hooks == []


async def test_the_app_is_unchanged_after_a_failed_test():
    own = App(redis_url=NOWHERE)
    with pytest.raises(ZeroDivisionError):
        async with Sandbox(own):
            raise ZeroDivisionError
    assert own.settings.redis_url == NOWHERE
    async with Sandbox(own) as sandbox:
        assert sandbox.jobs() == []


async def test_two_sandboxes_are_separate():
    one, two = App(redis_url=NOWHERE), App(redis_url=NOWHERE)
    with Sandbox(one, now=NOW) as left, Sandbox(two, now=NOW) as right:
        await one.client.submit("t")
        left.travel(3600)
        assert (len(left.jobs()), len(right.jobs())) == (1, 0)
        assert (left.now, right.now) == (NOW + timedelta(hours=1), NOW)


def test_a_nested_sandbox_is_refused_without_effect(sandbox):
    double.submit_sync(1)
    with pytest.raises(Invalid, match="in a sandbox already: leave that sandbox first"):
        Sandbox(app).__enter__()
    with pytest.raises(Invalid, match="was entered already"):
        sandbox.__enter__()
    assert len(sandbox.jobs()) == 1


def test_a_sandbox_that_is_not_entered_is_refused():
    own = App(redis_url=NOWHERE)
    idle = Sandbox(own)
    for use in (idle.drain_sync, idle.jobs, idle.travel, lambda: idle.job("x"), lambda: idle.now):
        with pytest.raises(Invalid, match="inside of `with Sandbox"):
            use()
    with idle:
        pass
    with pytest.raises(Invalid, match="inside of `with Sandbox"):
        idle.jobs()


def test_the_real_clock_does_not_change(sandbox):
    real, module = time.time, sys.modules["time"]
    sandbox.travel(timedelta(days=365))
    assert time.time is real
    assert abs(datetime.now(UTC) - datetime.fromtimestamp(module.time(), UTC)) < timedelta(minutes=1)
    assert sandbox.now == NOW + timedelta(days=365)


def test_a_missing_fakeredis_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "fakeredis", None)
    with (
        pytest.raises(Unfit, match=r"pip install 'PATH/TO/THE/CHECKOUT\[testing\]'"),
        Sandbox(App(redis_url=NOWHERE)),
    ):
        pass


@pytest.mark.parametrize("strange", ["dbs", "lock", "time"])
def test_an_incompatible_fakeredis_is_reported(monkeypatch, strange):
    import fakeredis

    class Other(fakeredis.FakeServer):
        def __getattribute__(self, name):
            if name == strange:
                raise AttributeError(name)
            return super().__getattribute__(name)

    if strange == "time":
        monkeypatch.setattr(Server, "_take_expiry", lambda self: None)
    else:
        monkeypatch.setattr(fakeredis, "FakeServer", Other)
    with pytest.raises(Unfit, match=r"fakeredis \S+ cannot run a sandbox"):
        Server(NOW)


def test_the_test_tools_are_not_imported_until_they_are_used():
    code = "import sys, sublet.testing; print(sorted({'fakeredis', 'pytest', 'lupa'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


# where plain functions run


def test_plain_functions_run_in_a_thread_of_this_process(sandbox):
    handle = here.submit_sync()
    sandbox.drain_sync(raising=True)
    pid, thread = handle.result()
    assert pid == os.getpid()
    assert thread != threading.get_ident()
    assert app.tasks["here"].run == "process"  # unchanged


def test_plain_functions_run_in_this_thread_with_inline():
    with Sandbox(app, plain="inline") as inline:
        handle = here.submit_sync()
        inline.drain_sync(raising=True)
        assert handle.result() == here() == (os.getpid(), threading.get_ident())


def test_plain_functions_run_in_child_processes_with_process():
    from tests.support.tasks import app as others

    with Sandbox(others, plain="process") as sandbox:
        handle = others.tasks["plain"].submit_sync(4)
        sandbox.drain_sync(raising=True)
        assert handle.result()["pid"] != os.getpid()


def test_invalid_arguments_are_refused():
    with pytest.raises(Invalid, match="thread, inline, process"):
        Sandbox(app, plain="fork")
    with pytest.raises(Invalid, match="time zone"):
        Sandbox(app, now=datetime(2030, 1, 1))  # without a time zone, on purpose


# the stand-in


def test_a_stand_in_records_progress_checkpoints_and_logs():
    ctx = StandIn(attempt=2, recovered="crashed", restored={"row": 3}, timeout=60)
    assert (ctx.attempt, ctx.recovered, ctx.restored) == (2, "crashed", {"row": 3})
    assert 0 < ctx.remaining <= 60
    ctx.progress(0.25, stage="half of half")
    ctx.stage("more")
    ctx.log("a line")
    ctx.checkpoint([1])
    assert ctx.progresses == [(0.25, "half of half", ""), (0.25, "more", "")]
    assert (ctx.lines, ctx.checkpoints) == (["a line"], [[1]])
    with pytest.raises(Invalid):
        ctx.checkpoint({1, 2})
    assert not ctx.cancelled
    ctx.end()
    assert ctx.cancelled
    assert StandIn(timeout=None).deadline is None


def test_a_stand_in_has_the_fields_that_it_is_given():
    at = datetime(2030, 1, 31, 9, tzinfo=UTC)
    ctx = StandIn(
        arguments={"rows": 5}, tags=["tenant:acme"], attempt=4, max_attempts=5, tries_left=3, id="0-a", task="load",
        queue="bulk", fence=7, trace="00-ab-cd-01", occurrence=at,
    )  # fmt: skip
    assert (ctx.arguments, ctx.tags, ctx.attempt) == ({"rows": 5}, ("tenant:acme",), 4)
    assert (ctx.max_attempts, ctx.tries_left) == (5, 3)
    assert (ctx.id, ctx.task, ctx.queue, ctx.fence) == ("0-a", "load", "bulk", 7)
    assert (ctx.trace, ctx.occurrence) == ("00-ab-cd-01", at)
    assert StandIn(attempt=2, max_attempts=5).tries_left == 3
    with pytest.raises(TypeError):
        ctx.arguments["rows"] = 6  # as in a worker


def test_a_stand_in_without_arguments_does_not_pretend_to_have_none():
    ctx = StandIn()
    for read in (lambda: ctx.arguments["rows"], lambda: ctx.arguments.get("rows"), lambda: dict(ctx.arguments), lambda: len(ctx.arguments)):  # fmt: skip
        with pytest.raises(Invalid, match=r"StandIn\(arguments="):
            read()
    assert dict(StandIn(arguments={}).arguments) == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"attempt": 0}, "use 1 or more"),
        ({"max_attempts": 0}, "use 1 or more"),
        ({"tries_left": 3}, "use 0 to 2"),
        ({"occurrence": datetime(2030, 1, 1)}, "time zone"),  # without one, on purpose
    ],
)
def test_a_stand_in_refuses_what_no_attempt_has(given, words):
    with pytest.raises(Invalid, match=words):
        StandIn(**given)


# plain="inline"


def test_inline_runs_plain_functions_and_middleware_without_an_event_loop():
    app, seen = App(redis_url=NOWHERE), []

    def note(place):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        seen.append((place, threading.get_ident()))

    @app.middleware
    @contextlib.contextmanager
    def session(context):
        note("enter")
        yield
        note("exit")

    @app.middleware
    @contextlib.asynccontextmanager
    async def for_async_tasks_only(context):
        seen.append(("async", 0))
        yield

    @app.task
    def plain():
        note("task")

    with Sandbox(app, plain="inline") as sandbox:
        plain.submit_sync()
        assert sandbox.drain_sync(raising=True).completed == 1
    assert seen == [(place, threading.get_ident()) for place in ("enter", "task", "exit")]


def test_inline_runs_commands():
    app = App(redis_url=NOWHERE)
    echo = app.command("echo {word}")
    with Sandbox(app, plain="inline") as sandbox:
        handle = echo.submit_sync(word="hello")
        assert sandbox.drain_sync(raising=True).completed == 1
        assert handle.result().stdout == "hello\n"
