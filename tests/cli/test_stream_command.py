"""`stream`: the chunks of a job on a terminal, with a real worker."""

import json

pytest_plugins = ["tests.support.command_line"]

APP = """
from sublet import App, Context

app = App()


@app.task(max_attempts=2, backoff=0.0)
async def tells(ctx: Context, fails: int = 1) -> None:
    for word in ("Hel", "lo\\n", "\\x1b[2J", {"n": 1}):
        await ctx.emit(word)
    if ctx.attempt <= fails:
        raise ConnectionError("away")
"""


def ended(shell, **arguments):
    """Run a job to its end; returns its id."""
    (shell.folder / "talk.py").write_text(APP)
    job_id = shell.ok("submit", "tells", json.dumps(arguments), "--max-attempts", "2")
    done = shell.run("work", "talk:app", "--max-jobs", "2", "--quiet")
    assert done.returncode == 0, done.stderr
    return job_id


def test_the_text_of_each_attempt_is_printed(shell):
    job_id = ended(shell)
    done = shell.run("stream", job_id[-6:])
    assert done.returncode == 0
    text = 'Hello\n [2J{"n":1}\n'
    assert done.stdout == f"{text}\n{text}\n"
    assert done.stderr == f"attempt 2 begins:\n{job_id} is completed\n"


def test_a_line_of_json_for_each_chunk_and_the_end(shell):
    job_id = ended(shell, fails=2)
    done = shell.run("stream", job_id, "--after", "5", "--json")
    assert done.returncode == 1, "the job is dead"
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0] == {"value": "Hel", "attempt": 2, "id": 7, "missed": False}
    assert lines[-1] == {"state": "dead", "cursor": 10}


def test_an_unknown_job_and_the_end_of_the_time(shell):
    job_id = shell.ok("submit", "tells")
    done = shell.run("stream", job_id, "--for", "100ms")
    assert (done.returncode, done.stdout) == (0, "")
    missing = shell.run("stream", "0-none")
    assert (missing.returncode, "no job 0-none" in missing.stderr) == (1, True)
