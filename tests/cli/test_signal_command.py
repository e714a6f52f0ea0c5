"""`signal`, `retry --anew`, and the steps that `get` shows, with a real worker."""

import json
import re

pytest_plugins = ["tests.support.command_line"]

APP = """
from sublet import App, Context

app = App()


async def charge() -> int:
    print("charged", flush=True)
    return 5


@app.task
async def order(ctx: Context) -> object:
    await ctx.step("charge", charge)
    return await ctx.wait_for("approval")
"""


def works(shell):
    """What the tasks print until the queues are empty."""
    done = shell.run("work", "orders:app", "--drain", "--quiet")
    assert done.returncode == 0, done.stderr
    return done.stderr.count("charged")


def test_a_person_signals_a_job(shell):
    (shell.folder / "orders.py").write_text(APP)
    job_id = shell.ok("submit", "order")
    assert works(shell) == 1
    shown = shell.ok("get", job_id)
    assert "awaits      signal approval" in shown
    assert re.search(r"step        charge   step, 1 bytes, \d{4}-", shown)
    assert "suspended" in shown
    assert "due " not in shown
    assert "waits for the signal approval: send it" in shell.run("promote", job_id).stdout
    (shell.folder / "answer.json").write_text('{"by": "ada"}')
    assert shell.json("signal", job_id[-8:], "approval", "@answer.json") == [{"id": job_id, "answer": "kept"}]
    assert works(shell) == 0
    job = shell.json("get", job_id)
    assert (job["state"], job["result"], job["steps"], job["awaits"]) == (
        "completed",
        {"by": "ada"},
        [],
        None,
    )
    refused = shell.run("signal", job_id, "approval", "--json")
    assert (refused.returncode, json.loads(refused.stdout)[0]["error"]) == (1, "WRONG_STATE")


def test_a_value_that_is_not_json_is_refused(shell):
    assert "'yes': use JSON; text needs quotes" in shell.run("signal", "0-a", "approval", "yes").stderr


def test_a_retry_anew_forgets_the_steps(shell):
    (shell.folder / "orders.py").write_text(APP)
    job_id = shell.ok("submit", "order")
    assert works(shell) == 1
    for words, charged in (((), 0), (("--anew",), 1)):
        shell.ok("cancel", job_id)
        shell.ok("retry", job_id, *words)
        assert works(shell) == charged
    assert "--anew: name the jobs by their ids" in shell.run("retry", "--task", "order", "--anew").stderr
