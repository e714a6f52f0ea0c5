"""`events` follows the changes of jobs' states."""

import json
import os
import re
import signal

import pytest

from sublet.devtools.embedded_server import EmbeddedServer

pytest_plugins = ["tests.support.command_line"]


def kept(shell, *words):
    """Return the events that the server keeps, as `--json` prints them."""
    after = () if "--after" in words else ("--after", "0")
    return [
        json.loads(line) for line in shell.ok("events", *after, "--for", "2s", "--json", *words).splitlines()
    ]


def test_each_change_is_one_line(shell):
    job_id = shell.ok("submit", "fail", '{"words": "x"}', "--max-attempts", "1", "--queue", "mail")
    shell.work("--name", "w1")
    lines = shell.ok("events", "--after", "0", "--for", "2s").splitlines()
    assert [re.sub(r"^\d\d:\d\d:\d\d  ", "", line) for line in lines] == [
        f"queued     {job_id}  submitted",
        f"running    {job_id}  w1",
        f"dead       {job_id}  ValueError",
    ]
    first, *_, last = kept(shell)
    assert re.fullmatch(r"\d+-\d+", first.pop("id"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("at"))
    assert first == {"jobs": [job_id], "state": "queued", "code": "submitted"}
    assert kept(shell, "--after", last["id"]) == []


def test_events_are_selected_by_state_and_queue(shell):
    ids = {queue: shell.ok("submit", "add", '{"a": 1}', "--queue", queue) for queue in ("mail", "images")}
    shell.ok("cancel", ids["mail"])
    assert [one["jobs"] for one in kept(shell, "--queue", "images")] == [[ids["images"]]]
    assert [one["state"] for one in kept(shell, "--queue", "mail")] == ["queued", "cancelled"]
    assert [one["jobs"] for one in kept(shell, "--state", "cancelled")] == [[ids["mail"]]]
    assert kept(shell, "--state", "cancelled", "--queue", "images") == []


def test_an_event_of_jobs_of_two_queues_names_those_of_the_queue(shell):
    for queue in ("mail", "images"):
        shell.ok("submit", "add", '{"a": 1}', "--queue", queue)
    lines = shell.work("--queues", "mail,images")
    assert lines[-1]["completed"] == 2
    assert {len(one["jobs"]) for one in kept(shell, "--queue", "mail")} == {1}


def test_it_follows_from_now_on_and_ctrl_c_is_quiet(shell):
    """Also in a namespace that does not exist yet."""
    process = shell.start("events", "--json")
    try:
        assert re.fullmatch(shell.none_yet, process.stderr.readline())
        job_id = shell.ok("submit", "add")
        assert json.loads(process.stdout.readline())["jobs"] == [job_id]
        shell.ok("cancel", job_id)
        assert json.loads(process.stdout.readline())["state"] == "cancelled"
        later = shell.start("events", "--for", "1s", "--json")
        assert later.communicate(timeout=20) == ("", "")
        assert later.returncode == 0
    finally:
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=20) == ("", "")
        assert process.returncode == 130


def test_reading_events_creates_no_namespace(shell):
    assert shell.ok("events", "--for", "100ms", said=shell.none_yet) == ""
    assert "does not exist yet" in shell.run("doctor").stdout


def test_events_that_the_server_no_longer_keeps_are_reported(shell):
    shell.ok("submit", "add")
    (first,) = kept(shell, "--after", "1-1")[1:]
    said = "events were missed: the server keeps the last 10,000 of each partition, or has lost its data\n"
    shell.ok("events", "--after", "1-1", "--for", "2s", said=said)
    assert kept(shell, "--after", "1-1")[0] == {"missed": True, "cursor": "0"}
    assert first["state"] == "queued"


def test_an_outage_is_waited_out(shell, tmp_path):
    with EmbeddedServer.start(tmp_path / "own") as server:
        shell.env["SUBLET_REDIS_URL"] = server.url
        first = shell.ok("submit", "add")
        process = shell.start("events", "--after", "0", "--json")
        assert json.loads(process.stdout.readline())["jobs"] == [first]
        os.kill(server.pid, signal.SIGKILL)
        assert re.search("no answer from Redis at .+; waiting for it\n$", process.stderr.readline())
    with EmbeddedServer.start(tmp_path / "own"):
        second = shell.ok("submit", "add")
        assert json.loads(process.stdout.readline())["jobs"] == [second]
        assert process.stderr.readline() == "the server answers again\n"
        process.terminate()
        assert process.communicate(timeout=20) == ("", "")


def test_without_a_server_it_does_not_start(shell):
    assert "no answer from Redis" in shell.no(3, "events", "--redis-url", "unix:///nowhere/redis.sock")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--after x", "event id 'x': use the id of an event, the cursor of a page, or 0 for the oldest kept"),
        ("--queue a/b", "queue 'a/b': use 1 to 128 of A-Z a-z 0-9 _ . : -, but not . or .. alone"),
        ("--state deed", "--state: there is no state 'deed', did you mean dead? See sublet events --help"),
        ("--for 0", "--for: '0': use a duration of 1ms or more, such as 30s; see sublet events --help"),
    ],
)
def test_invalid_arguments(shell, words, line):
    assert shell.no(2, "events", *words.split()) == line
