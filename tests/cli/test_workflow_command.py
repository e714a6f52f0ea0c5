"""`workflow`, and orders with `--workflow`, with a real worker."""

import re
import subprocess
import sys

pytest_plugins = ["tests.support.command_line"]

APP = """
from sublet import App

app = App()


@app.task(max_attempts=1)
def fetch(page: int) -> int:
    if page == 2:
        raise OSError("no page")
    return page


@app.task
def index() -> str:
    return "done"
"""
PRODUCER = """
from flows import app, fetch, index

with app.sync.workflow() as flow:
    pages = [flow.add(fetch.job(page)) for page in range(6)]
    flow.add(index.job(), after=pages)
print(flow.id)
"""


def stored(shell):
    """The id of a new workflow, before it runs."""
    (shell.folder / "flows.py").write_text(APP)
    (shell.folder / "produce.py").write_text(PRODUCER)
    line = [sys.executable, "produce.py"]
    done = subprocess.run(line, cwd=shell.folder, env=shell.env, capture_output=True, text=True, check=True)
    shell.env["COLUMNS"] = "250"
    return done.stdout.strip()


def test_a_workflow_is_shown_cancelled_and_retried(shell):
    flow = stored(shell)
    shown = shell.ok("workflow", flow)
    assert re.match(rf"{flow}   runs since \d{{4}}-", shown)
    assert "unfinished 7 · completed 0 · dead 0 · cancelled 0" in shown
    assert "and 3 more" in shown
    seen = shell.json("workflow", flow, "--limit", "3")
    assert (seen["unfinished"], len(seen["members"]), bool(seen["cursor"])) == (7, 3, True)
    more = shell.run("workflow", flow, "--limit", "3").stderr
    assert f"more: sublet workflow {flow} --limit 3 --cursor" in more
    assert len(shell.json("list", "--workflow", flow)["jobs"]) == 7
    job = seen["members"][0]["id"]
    assert f"workflow    {flow}" in shell.ok("get", job)

    assert shell.ok("cancel", "--workflow", flow, "--dry-run") == "7 jobs fit"
    done = shell.json("cancel", "--workflow", flow, "--yes")
    assert (done["found"], done["refused"]) == (7, [])
    assert "unfinished 0" in shell.ok("workflow", flow)
    assert "ended" in shell.ok("workflow", flow).splitlines()[0]
    (entry,) = shell.json("audit")["entries"]
    assert (entry["verb"], entry["what"]) == ("cancel", f"workflow={flow}")
    assert shell.json("retry", "--workflow", flow, "--yes")["refused"] == []
    assert "unfinished 7" in shell.ok("workflow", flow)


def test_a_failed_job_and_what_it_cancelled_are_shown(shell):
    flow = stored(shell)
    shell.run("work", "flows:app", "--drain")
    shown = shell.ok("workflow", flow, "--state", "dead,cancelled")
    assert "completed 5 · dead 1 · cancelled 1" in shown
    assert re.search(r"dead .*OSError: no page", shown)
    assert re.search(r"cancelled .*upstream: job \S+ is dead", shown)
    assert shell.json("retry", "--workflow", flow, "--yes")["done"] == {"queued": 1}


def test_an_unknown_workflow_is_refused(shell):
    shell.ok("submit", "fetch")
    assert "no workflow 0-none: it never existed" in shell.no(1, "workflow", "none")
    assert "no workflow 0-none" in shell.no(1, "retry", "--workflow", "none", "--yes")
