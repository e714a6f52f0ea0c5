"""`--log-level`: which records of `logging` stay with a job."""

import json

import pytest

pytest_plugins = ["tests.support.command_line"]

LOGGING = """
import logging
from sublet import App

app = App()
log = logging.getLogger("shop")

def speak():
    for level in ("debug", "info", "warning", "error"):
        getattr(log, level)(f"a line of {level}")

@app.task
async def on_loop() -> None:
    speak()

@app.task
def in_child() -> None:
    speak()

@app.task(run="thread")
def in_thread() -> None:
    speak()
"""
KINDS = ("on_loop", "in_child", "in_thread")
LEVELS = ("debug", "info", "warning", "error")


def kept(shell, *words, **env):
    (shell.folder / "logs.py").write_text(LOGGING)
    ids = [shell.ok("submit", kind) for kind in KINDS]
    done = shell.run("work", "logs:app", "--drain", *words, **env)
    assert done.returncode == 0, done.stderr
    logs = [shell.ok("get", job_id) for job_id in ids]
    return [[level for level in LEVELS if f"a line of {level}" in log] for log in logs], done.stderr


@pytest.mark.parametrize(
    ("words", "env", "levels"),
    [
        ((), {}, [LEVELS[1:], LEVELS[2:], LEVELS[1:]]),
        (("--log-level", "debug"), {}, [LEVELS] * 3),
        ((), {"SUBLET_LOG_LEVEL": "Info"}, [LEVELS[1:]] * 3),
        (("--log-level", "ERROR"), {"SUBLET_LOG_LEVEL": "debug"}, [LEVELS[3:]] * 3),
    ],
    ids=["not set", "debug", "info", "error"],
)
def test_the_level_decides_which_records_are_kept(shell, words, env, levels):
    found, errors = kept(shell, *words, **env)
    assert found == [list(each) for each in levels]
    assert "a line of debug" not in errors, "stderr does not change"


def test_an_invalid_level_is_refused(shell):
    assert "--log-level: 'loud': use debug, info," in shell.no(2, "work", "tasks:app", "--log-level", "loud")
    assert "did you mean info?" in shell.no(2, "work", "tasks:app", "--log-level", "infos")
    words = shell.no(2, "work", "tasks:app", SUBLET_LOG_LEVEL="loud")
    assert words == "SUBLET_LOG_LEVEL='loud': use debug, info, warning, error, critical"


UNAWAITED = """
from sublet import App, Context

app = App()

@app.task
async def talks(ctx: Context) -> str:
    ctx.emit("lost")
    ctx.sleep("cool-off", days=3)
    ctx.step("charge", print, 1)
    return "done"
"""


@pytest.mark.parametrize("words", [(), ("--json",)], ids=["text", "JSON"])
def test_a_call_without_await_is_named_on_stderr_and_in_the_log_of_its_job(shell, words):
    (shell.folder / "lazy.py").write_text(UNAWAITED)
    shell.ok("submit", "talks", "--id", "t")
    done = shell.run("work", "lazy:app", "--drain", *words)
    lines = done.stderr.splitlines()
    for name, line, code in (
        ("emit", 8, 'ctx.emit("lost")'),
        ("sleep", 9, "ctx.sleep("),
        ("step", 10, "ctx.step("),
    ):
        (shown,) = [each for each in lines if f"coroutine 'LoopSteps.{name}' was never awaited" in each]
        message = json.loads(shown)["message"] if words else shown
        assert "warning" in shown
        assert f"lazy.py:{line}: RuntimeWarning: " in message
        assert code in message
    assert len(lines) == 3
    log = shell.ok("get", "t")
    assert "coroutine 'LoopSteps.emit' was never awaited" in log
