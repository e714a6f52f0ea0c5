"""keep_payload: a completed job keeps its payload, wherever the option is given."""

import pytest

from sublet import App, Invalid, Options
from sublet.model import State, Submission
from sublet.store.http_codec import new_job
from sublet.testing import Sandbox

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures", "tests.support.command_line"]

app = App()


@app.task
async def echo(text: str) -> int:
    return len(text)


@app.task(keep_payload=True)
async def keeps(text: str) -> int:
    return len(text)


@pytest.mark.parametrize("text", ["short", "x" * 5000])
def test_a_task_option_keeps_the_payload_of_completed_jobs(text):
    with Sandbox(app) as sandbox:
        kept, deleted = keeps.submit_sync(text), echo.submit_sync(text)
        sandbox.drain_sync()
        assert sandbox.job(kept).state is sandbox.job(deleted).state is State.COMPLETED
        assert (sandbox.job(kept).payload, sandbox.job(kept).result) == ({"text": text}, len(text))
        assert sandbox.job(deleted).payload is None


def test_a_submit_option_keeps_it_too():
    with Sandbox(app) as sandbox:
        one = echo.options(keep_payload=True).submit_sync("a")
        two = app.sync.submit("echo", {"text": "b"}, Options(keep_payload=True))
        sandbox.drain_sync()
        assert [sandbox.job(job).payload for job in (one, two)] == [{"text": "a"}, {"text": "b"}]


def test_the_option_is_a_bool():
    with pytest.raises(Invalid, match="keep_payload 1: use True or False"):
        Options(keep_payload=1).rules()


def test_a_declared_schedule_has_the_option_of_its_task():
    with Sandbox(app) as sandbox:
        declaring = App()
        declaring.schedule(every=60, name="each", payload={"text": "c"})(
            declaring.task(keep_payload=True)(keeps.function)
        )
        app.sync.sync(declaring)
        assert app.sync.schedules.get("each").keep_payload
        job_id = app.sync.schedules.run("each").id
        sandbox.drain_sync()
        assert sandbox.job(job_id).payload == {"text": "c"}


async def test_over_http_it_is_a_field_of_jobs_and_schedules(asked):
    new = {"task": "t", "payload": {"a": 1}, "keep_payload": True}
    job = (await asked("POST", "/jobs", new)).json()["id"]
    assert (await asked("PUT", "/schedules/s", new | {"every": 3600})).json()["keep_payload"] is True
    run = (await asked("POST", "/schedules/s/run", {})).json()["id"]
    claimed = (await asked("POST", "/jobs/claim", {"n": 2})).json()["jobs"]
    for lease in claimed:
        done = await asked("POST", f"/jobs/{lease['id']}/complete", {"token": lease["token"], "result": 2})
        assert done.status == 200
    for job_id in (job, run):
        found = (await asked("GET", f"/jobs/{job_id}")).json()
        assert (found["state"], found["payload"], found["result"]) == ("completed", {"a": 1}, 2)
    wrong = await asked("POST", "/jobs", {"task": "t", "keep_payload": 1})
    assert (wrong.status, wrong.places[0]) == (422, "#/keep_payload")


def test_a_client_over_http_sends_it():
    job = Submission("0-a", "default", "t", "keep=1", b"{}")
    assert new_job(job)["keep_payload"] is True


def test_commands_take_it_as_a_switch(shell):
    kept = shell.ok("submit", "add", '{"a": 1}', "--keep-payload")
    deleted = shell.ok("submit", "add", '{"a": 1}')
    shell.ok("schedules", "add", "s", "add", '{"a": 2}', "--every", "1h", "--keep-payload")
    assert shell.json("schedules", "show", "s")["keep_payload"] is True
    run = shell.json("schedules", "run", "s")[0]["id"]
    shell.work()
    payloads = [shell.json("get", job_id)["payload"] for job_id in (kept, deleted, run)]
    assert payloads == [{"a": 1}, None, {"a": 2}]
    assert '"a": 1' in shell.ok("get", kept) or '{"a":1}' in shell.ok("get", kept)
