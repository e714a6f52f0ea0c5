"""Orders by filter: `sublet retry --task X --code ValueError`."""

import json

import pytest

pytest_plugins = ["tests.support.command_line"]


@pytest.fixture
def dead(shell):
    """Three dead jobs of two tasks, with two errors, and one that waits."""
    made = """
from sublet import App
app = App()
@app.task(max_attempts=1)
def parse(text): raise ValueError(text)
@app.task(max_attempts=1)
def fetch(text): raise OSError(text)
"""
    (shell.folder / "broken.py").write_text(made)
    for task in ("parse", "parse", "fetch"):
        shell.ok("submit", task, '{"text": "x"}', "--max-attempts", "1")
    shell.run("work", "broken:app", "--drain")
    return shell


def states(shell):
    jobs = shell.json("list")["jobs"]
    return sorted((job["task"], job["state"]) for job in jobs)


def test_a_dry_run_counts_and_changes_nothing(dead):
    before = states(dead)
    assert dead.ok("retry", "--task", "parse", "--dry-run") == "2 jobs fit"
    assert dead.json("retry", "--code", "OSError", "--dry-run") == {"found": 1}
    assert dead.ok("retry", "--task", "parse", "--code", "OSError", "--yes") == "0 jobs fit"
    assert states(dead) == before


def test_a_filter_orders_all_its_jobs_and_no_others(dead):
    assert dead.ok("retry", "--task", "parse", "--yes") == "queued 2 · refused 0"
    assert states(dead) == [("fetch", "dead"), ("parse", "queued"), ("parse", "queued")]
    assert dead.ok("cancel", "--queue", "default", "--yes") == "cancelled 2 · refused 0"
    done = dead.json("erase", "--queue", "default", "--yes")
    assert done == {"found": 3, "done": {"erased": 3}, "refused": []}
    assert states(dead) == []


def test_without_a_terminal_a_filter_needs_yes(dead):
    before = states(dead)
    assert "2 jobs will be queued again; nothing was done: there is no terminal" in dead.no(
        1, "retry", "--task", "parse"
    )
    assert states(dead) == before


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["retry"], "give ids, or a filter"),
        (["retry", "0-a", "--task", "t"], "give ids, or a filter"),
        (["erase", "0-a", "--yes"], "go with a filter, not with ids"),
        (
            ["retry", "--state", "queued", "--yes"],
            "state queued: use dead or cancelled: retry changes no other jobs",
        ),
    ],
)
def test_what_does_not_fit_is_an_error(shell, words, shown):
    shell.ok("submit", "add")
    assert shown in shell.no(2, *words)


def test_refused_jobs_are_listed(dead):
    dead.ok("submit", "parse", '{"text": "x"}', "--key", "k", "--id", "one")
    dead.ok("cancel", "one")
    dead.ok("submit", "parse", '{"text": "x"}', "--key", "k")
    done = dead.run("retry", "--state", "cancelled", "--yes", "--json")
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["refused"][0]["error"]) == (1, "KEY_TAKEN")
