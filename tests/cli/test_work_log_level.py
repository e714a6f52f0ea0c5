"""`--log-level`: which records of `logging` stay with a job."""

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
