"""`work`: a worker from the command line, told by its events and its exit code."""

import json
import signal

import pytest

pytest_plugins = ["tests.shell"]


def started(worker, task):
    """Read events until a task has started; that event."""
    for line in worker.stdout:
        event = json.loads(line)
        if (event["event"], event.get("task")) == ("started", task):
            return event
    raise AssertionError(worker.stderr.read())


def test_a_worker_drains_the_queues_and_tells_each_event(shell):
    job_id = shell.ok("submit", "add", '{"a": 1}')
    ready, began, ended, summary = shell.work("--name", "w1", "--slots", "3")
    assert (ready["event"], ready["words"]) == ("ready", "w1 slots=3 queues=default,mail")
    about = {"id": job_id, "task": "add", "queue": "default", "attempt": 1}
    assert began == {"event": "started", "at": began["at"], **about, "words": ""}
    assert ended == {"event": "completed", "at": ended["at"], **about, "words": "completed"}
    assert began["at"].endswith("Z")
    assert (summary["event"], summary["completed"], summary["failed"]) == ("summary", 1, 0)


def test_a_plain_function_runs_in_a_child_that_finds_the_same_app(shell):
    namespace = ("--namespace", shell.env.pop("SUBLET_NAMESPACE"))
    job_id = shell.ok("submit", "plain", '{"a": 21}', *namespace)
    assert shell.work(*namespace)[-1]["completed"] == 1
    assert shell.json("get", job_id, *namespace)["result"] == 42


def test_a_failure_is_told_with_what_becomes_of_the_job(shell):
    shell.ok("submit", "fail", '{"words": "no paper"}', "--queue", "mail", "--max-attempts", "2")
    events = [event for event in shell.work() if event["event"] == "failed"]
    assert events[0]["words"] == "ValueError no paper"
    assert (events[0]["state"], events[0]["due_at"][-1]) == ("scheduled", "Z")


def test_a_task_that_the_worker_lacks_is_given_back_and_not_lost(shell):
    job_id = shell.ok("submit", "of_tomorrow")
    (released,) = [event for event in shell.work() if event["event"] == "released"]
    assert (released["id"], released["state"]) == (job_id, "scheduled")
    job = shell.json("get", job_id)
    assert (job["state"], job["tries_left"]) == ("scheduled", 3)
    assert [attempt["code"] for attempt in job["attempts"]] == ["unknown_task"]
    assert "this worker has no task of_tomorrow" in shell.ok("get", job_id)


def test_arguments_that_do_not_fit_are_given_back_too(shell):
    job_id = shell.ok("submit", "add", '{"a": "one"}')
    shell.work()
    job = shell.json("get", job_id)
    assert (job["state"], job["attempts"][0]["code"]) == ("scheduled", "unknown_task")


def test_sigterm_gives_the_job_back_and_is_no_failure(shell):
    job_id = shell.ok("submit", "forever")
    worker = shell.start("work", "tasks:app")
    started(worker, "forever")
    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGINT)  # the second one hurries
    out, err = worker.communicate(timeout=20)
    released, summary = map(json.loads, out.splitlines())
    assert (released["event"], released["words"], released["state"]) == ("released", "the worker stopped", "queued")
    assert (worker.returncode, err, summary["released"]) == (0, "", 1)
    job = shell.json("get", job_id)
    assert (job["state"], job["tries_left"]) == ("queued", 3)


def test_a_worker_stops_when_its_time_is_up(shell):
    assert [event["event"] for event in shell.work("--for", "50ms")] == ["ready", "summary"]
    assert [event["event"] for event in map(json.loads, shell.ok("work", "tasks", "--for", "50ms").splitlines())] == [
        "ready",
        "summary",
    ]


def test_quiet_leaves_the_summary_alone(shell):
    shell.ok("submit", "add", '{"a": 1}')
    (summary,) = shell.work("--quiet")
    assert summary["completed"] == 1


def test_only_the_named_queues_are_worked_on(shell):
    shell.ok("submit", "add", '{"a": 1}', "--queue", "other")
    assert shell.work()[-1]["completed"] == 0
    assert shell.work("--queues", "mail,other")[-1]["completed"] == 1


def test_tokens_and_payloads_are_never_told(shell):
    shell.ok("submit", "add", '{"a": 918273645}')
    shell.ok("submit", "add", '{"a": "918273645"}', "--delay", "1ms")
    said = shell.run("work", "tasks:app", "--drain")
    assert "918273645" not in said.stdout + said.stderr
    assert "token" not in said.stdout + said.stderr


def test_a_worker_whose_reader_leaves_stops_by_itself(shell):
    shell.ok("submit", "add", '{"a": 1}')
    worker = shell.start("work", "tasks:app")
    started(worker, "add")
    worker.stdout.close()
    job_id = shell.ok("submit", "add", '{"a": 2}')
    assert worker.wait(30) == 141
    assert worker.stderr.read() == ""
    assert shell.json("get", job_id)["state"] in ("queued", "completed")


@pytest.mark.parametrize("flag", ["--redis-url", "--namespace"])
def test_a_flag_wins_over_what_the_program_says(shell, flag):
    text = "from jobs import App\napp = App('redis://127.0.0.1:1', namespace='elsewhere')\n@app.task\nasync def f(): return 1\n"
    (shell.folder / "fixed.py").write_text(text)
    there = ("--redis-url", shell.env["SUBLET_REDIS_URL"], "--namespace", shell.env["SUBLET_NAMESPACE"])
    if flag == "--namespace":
        assert "127.0.0.1:1" in shell.no(3, "work", "fixed:app", "--drain", *there[2:])
    else:
        job_id = shell.ok("submit", "f", "--app", "fixed:app", *there)
        assert json.loads(shell.ok("work", "fixed:app", "--drain", *there).splitlines()[-1])["completed"] == 1
        assert shell.json("get", job_id)["state"] == "completed"
