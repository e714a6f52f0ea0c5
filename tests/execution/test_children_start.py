"""Child processes start, find their tasks, and end with their parent, however it ends."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from sublet import App, Invalid
from sublet.execution.app_loader import load_app
from sublet.execution.attempt import Crashed
from sublet.execution.runner import Runner
from sublet.model import Release
from tests.support import bare_runner
from tests.support import misbehaving_functions as tasks
from tests.support.bare_runner import eventually, failure, result, start
from tests.support.paths import ROOT
from tests.support.processes import is_alive, on_linux

pytestmark = [on_linux]
hire = bare_runner.hire


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of tasks that behaves in its second import, in a child, as a test wants it."""

    def make(name, in_child):
        text = f"""
            import os, sys
            from sublet import App

            app = App()

            @app.task
            def pid() -> int:
                return os.getpid()

            if {os.getpid()} != os.getpid():
                open({str(tmp_path / "starts")!r}, "a").write("x")
                {in_child}
        """
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        monkeypatch.syspath_prepend(str(tmp_path))
        return __import__(name)

    return make


@pytest.mark.parametrize(("in_child", "words"), [
    ("raise RuntimeError('no such database')", "RuntimeError: no such database"), ("import no_such_thing", "No module named"),
    ("del pid", "no attribute 'pid'"), ("sys.exit('goodbye')", "SystemExit: goodbye"),
])  # fmt: skip
async def test_a_module_that_a_child_cannot_import_is_named_in_the_error(
    hire, module, request, in_child, words
):
    found = module(f"broken_{request.node.callspec.indices['in_child']}", in_child)
    ended = await failure(hire(found.app), found.pid)
    assert isinstance(ended, Release), "another worker's code may be able to"
    assert "cannot import broken_" in ended.reason
    assert words in ended.reason


@pytest.fixture
def setup(tmp_path, monkeypatch):
    """An app found by a module that prepares what its tasks need, as a Django project may do."""
    (tmp_path / "prepared_tasks.py").write_text(
        "import sys\nfrom sublet import App\n\napp, places = App(), []\n\n@app.task\ndef place() -> str:\n    return places[0]\n"
    )
    (tmp_path / "preparing.py").write_text(
        f"import os\nimport prepared_tasks\nfrom prepared_tasks import app\n\n"
        f"if {os.getpid()} != os.getpid() and os.path.exists({str(tmp_path / 'wrong')!r}):\n    raise OSError('no settings')\n"
        "prepared_tasks.places.append('set up')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield load_app("preparing:app")
    for name in ("preparing", "prepared_tasks"):
        del sys.modules[name]


async def test_a_child_imports_the_module_that_the_command_was_given_before_the_tasks(hire, setup):
    assert await result(hire(setup), setup.tasks["place"]) == b'"set up"'


async def test_a_given_module_that_a_child_cannot_import_is_named_in_the_error(hire, setup, tmp_path):
    (tmp_path / "wrong").touch()
    ended = await failure(hire(setup), setup.tasks["place"])
    assert isinstance(ended, Release)
    assert "cannot import preparing: OSError: no settings" in ended.reason


async def test_a_child_that_dies_at_its_start_is_restarted_a_few_times_with_pauses(
    hire, module, tmp_path, caplog
):
    found = module("dying_at_import", "os._exit(7)")
    with pytest.raises(
        Crashed,
        match=r"no child process could start \(it imports dying_at_import\): the child process exited with code 7",
    ):
        await result(hire(found.app, processes=1), found.pid)
    assert len((tmp_path / "starts").read_text()) == 3
    assert "next try in 0.1 s" in caplog.text
    assert "next try in 0.2 s" in caplog.text


async def test_a_child_killed_at_its_start_is_started_again(hire, module, tmp_path):
    found = module(
        "slow_at_import", f"os.path.exists({str(tmp_path / 'go')!r}) or __import__('time').sleep(600)"
    )
    runner = hire(found.app, processes=1)
    running = start(runner, found.pid).running
    assert await eventually(lambda: (tmp_path / "starts").exists())
    (tmp_path / "go").write_text("")
    (child,) = runner._children._children
    os.kill(child.pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        assert (await running).result


@pytest.mark.parametrize("task", ["turns", "hogs", "idle"])
def test_a_child_without_its_parent_exits_at_once(tmp_path, task):
    program = f"""
        import asyncio, os, sys
        from tests.support.bare_runner import Runner, start, tasks, written
        from pathlib import Path

        async def main():
            runner = Runner(tasks.app.tasks, slots=1, processes=1)
            if {task!r} == "idle":
                pid = int((await start(runner, tasks.pid).running).result)
            else:
                start(runner, tasks.{task if task != "idle" else "pid"}, '{{"file": "{tmp_path}/pid"}}')
                (pid,) = await written(Path("{tmp_path}/pid"))
            print(pid, flush=True)
            await asyncio.sleep(120)

        asyncio.run(main())
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert is_alive(child)
    parent.kill()
    parent.wait(60)
    until = time.monotonic() + 60
    while is_alive(child):
        assert time.monotonic() < until
        time.sleep(0.005)
    parent.stdout.close()


async def test_a_child_without_the_kernels_help_exits_when_its_parents_pipe_closes(hire):
    """As on a platform without PR_SET_PDEATHSIG: only the pipe closes."""
    runner = hire(processes=1)
    pid = int(await result(runner, tasks.pid))
    (child,) = runner._children._children
    os.dup2(0, child._life)
    assert await eventually(lambda: not is_alive(pid))


def test_the_main_program_of_a_script_is_found_by_its_children(tmp_path):
    script = tmp_path / "script.py"
    text = f"""
        import asyncio, sys
        from sublet import App
        sys.path.append({str(ROOT)!r})

        app = App()

        @app.task
        def one() -> int:
            return 1

        @app.task
        def two() -> int:
            return 2

        async def main():
            from tests.support.bare_runner import Runner, result
            runner = Runner(app.tasks, slots=2, processes=1)
            print(await result(runner, one) + await result(runner, two))
            await runner.aclose()

        if __name__ == "__main__":
            asyncio.run(main())
    """
    script.write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, str(script)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "b'12'\n", done.stderr


def test_a_function_that_no_child_could_find_is_refused_at_the_start():
    app = App()

    @app.task
    def hidden() -> None: ...

    with pytest.raises(Invalid, match="declare it at the top of its module"):
        Runner(app.tasks, slots=1, processes=1)
