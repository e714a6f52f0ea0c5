"""The command line for people and for scripts: each command, as text and as JSON."""

import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import tomllib
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sublet.cli.jobs.query import FILTERS, PAGES, _page
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.model import Page
from sublet.operations.job_list import EXAMINED
from sublet.protocol.scripts import NAMES, script
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.command_line"]

ID = r"0-[0-9A-Z]{26}"


# ── submit ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_submit_prints_the_id_and_nothing_else(shell):
    job_id = shell.ok("submit", "add", '{"a": 1}')
    assert re.fullmatch(ID, job_id)
    job = shell.json("get", job_id)
    assert (job["task"], job["state"], job["payload"], job["queue"]) == ("add", "queued", {"a": 1}, "default")


def test_submit_takes_its_options(shell):
    words = "--queue images --priority 5 --delay 1h --key a.png --window 5m --max-attempts 7 --retention 2d --timeout none"
    job = shell.json("get", shell.ok("submit", "add", *words.split()))
    assert (job["queue"], job["priority"], job["key"], job["max_attempts"]) == ("images", 5, "a.png", 7)
    assert job["state"] == "scheduled"
    tagged = shell.ok("submit", "add", "--tag", "tenant:acme", "--tag", "import")
    assert "tags        tenant:acme, import" in shell.ok("get", tagged)
    assert [job["tags"] for job in shell.json("list", "--state", "queued")["jobs"]] == [
        ["tenant:acme", "import"]
    ]
    assert (
        shell.json("get", shell.ok("submit", "add", "--at", "2100-01-31T09:00:00+01:00"))["due_at"]
        == "2100-01-31T08:00:00.000Z"
    )


def test_submit_reads_arguments_from_stdin_and_from_a_file(shell):
    (shell.folder / "arguments.json").write_text('{\n  "a": 2\n}\n')
    for words, stdin in ((["-"], '{"a": 2}'), (["@arguments.json"], "")):
        assert shell.json("get", shell.ok("submit", "add", *words, stdin=stdin))["payload"] == {"a": 2}


def test_a_submit_with_debounce_replaces_the_arguments_of_the_waiting_job(shell):
    words = ("--key", "k", "--debounce", "30", "--at-most", "300")
    first = shell.ok("submit", "add", '{"a": 1}', *words)
    again = shell.run("submit", "add", '{"a": 2}', *words)
    assert (again.stdout, again.stderr) == (f"{first}\n", f"replaced: {first} holds this key\n")
    third = shell.run("submit", "add", '{"a": 3}', "--key", "k", "--on-conflict", "replace", "--json")
    assert json.loads(third.stdout) == {"id": first, "created": False, "replaced": True}
    job = shell.json("get", first)
    assert (job["payload"], job["replaced"], job["state"]) == ({"a": 3}, 2, "queued")
    assert "replaced    2 times, last " in shell.ok("get", first)
    refused = shell.run("submit", "add", "--key", "k", "--debounce", "30", "--at-most", "10")
    assert "at_most 10 s: use at least the debounce, 30 s" in refused.stderr


def test_the_same_id_or_key_returns_the_existing_job(shell):
    assert shell.json("submit", "add", "--id", "order-7") == {"id": "0-order-7", "created": True}
    again = shell.run("submit", "add", "--id", "order-7", "--json")
    assert json.loads(again.stdout) == {"id": "0-order-7", "created": False}
    first = shell.ok("submit", "add", "--key", "k")
    again = shell.run("submit", "add", "--key", "k")
    assert (again.stdout, again.stderr) == (f"{first}\n", f"there already: {first} holds this key\n")


def test_submit_refuses_an_empty_command(shell):
    for payload, words in (
        ("{}", "the payload needs argv or shell"),
        ('{"argv": []}', "argv: use 1 items or more"),
    ):
        done = shell.run("submit", "command", payload)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"task command: {words}" in done.stderr
    shell.ok("submit", "command", '{"argv": ["true"]}')


def test_submit_waits_for_the_result(shell):
    worker = shell.start("work", "tasks:app")
    try:
        assert shell.ok("submit", "--wait", "add", '{"a": 1, "b": 4}') == "5"
        found = shell.json("submit", "add", '{"a": 1}', "--wait", "20s")
        assert found == {"id": found["id"], "created": True, "state": "completed", "result": 2}
        words = ["submit", "fail", '{"words": "no paper"}', "--max-attempts", "1", "--wait"]
        failed = shell.run(*words)
        assert (failed.returncode, failed.stdout) == (1, "")
        assert re.match(rf"sublet: job {ID} is dead \(ValueError\): no paper", failed.stderr)
        error = json.loads(shell.no(1, *words, "--json"))
        assert (error["error"], error["code"]) == ("JOB_FAILED", "ValueError")
        assert shell.json("get", error["id"])["state"] == "dead"
    finally:
        worker.terminate()
        assert worker.wait(20) == 0


def test_submit_does_not_wait_for_ever(shell):
    error = json.loads(shell.no(1, "submit", "add", "--wait", "50ms", "--json"))
    assert error["error"] == "TIMEOUT"
    assert "is still queued after 0.05 s" in error["message"]
    assert shell.json("get", error["id"])["state"] == "queued"


def test_submit_names_a_paused_queue_that_keeps_its_job_waiting(shell):
    shell.ok("pause", "mail")
    words = ("submit", "fail", "--queue", "mail", "--wait", "50ms")
    assert "; queue mail is paused: sublet resume mail; see" in shell.no(1, *words)
    assert "; no worker has claimed it: sublet work MODULE:APP" in shell.no(
        1, "submit", "add", "--wait", "50ms"
    )


def test_in_a_pipe_the_next_page_is_named_after_the_table(shell):
    for _ in range(2):
        shell.ok("submit", "add")
    words = [*shell.command, "list", "--limit", "1"]
    done = subprocess.run(words, cwd=shell.folder, env=shell.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=60, check=True)  # fmt: skip
    assert [line.split()[0] for line in done.stdout.splitlines()][-1] == "more:"


def test_an_app_gives_its_options_and_checks_arguments(shell):
    job = shell.json("get", shell.ok("submit", "fail", '{"words": "x"}', "--app", "tasks:app"))
    assert (job["queue"], job["max_attempts"]) == ("mail", 1)
    job = shell.json(
        "get", shell.ok("submit", "fail", '{"words": "x"}', "--queue", "other", SUBLET_APP="tasks:app")
    )
    assert (job["queue"], job["max_attempts"]) == ("other", 1)


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_get_shows_the_attempts_of_a_job(shell):
    job_id = shell.ok(
        "submit",
        "fail",
        '{"words": "no \\u001b[31mpaper"}',
        "--queue",
        "mail",
        "--max-attempts",
        "1",
        "--key",
        "k",
    )
    shell.work()
    shown = shell.ok("get", job_id)
    assert re.match(
        rf"{job_id}   dead\n  task        fail\n  queue       mail\n  submitted   \S+ \S+Z   .+ ago\n", shown
    )
    assert re.search(r"  1  \S+ \S+Z  \S+  .+ m?s  ValueError  no  \[31mpaper\n", shown), (
        "control characters are removed"
    )
    assert "tries       1 of 1 used, claimed once" in shown
    assert "raise ValueError(words)" not in shown
    assert "raise ValueError(words)" in shell.ok("get", job_id, "--detail")


def test_get_shows_the_owner_of_a_job_and_its_last_heartbeat(shell):
    job_id = shell.ok("submit", "forever")
    worker = shell.start("work", "tasks:app", "--name", "w1", "--lease", "1500ms")
    try:
        for line in worker.stdout:
            if '"started"' in line:
                break
        while not (job := shell.json("get", job_id))["progress"]:
            assert job["state"] == "running"
        shown = shell.ok("get", job_id)
        assert re.search(
            r"  owner       w1, attempt 1, for .+\n  heartbeat   .+ ago\n  lease ends  .+ in .+\n", shown
        )
        assert "  progress    50%   half\n" in shown
        assert re.search(
            r"running +forever +default +1 of 3 +heartbeat .+ ago, w1$",
            shell.ok("list", "--state", "running"),
        )
        assert shell.json("cancel", job_id) == [{"id": job_id, "answer": "requested"}]
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.send_signal(signal.SIGINT)
        assert worker.wait(20) == 0


def test_a_deeply_nested_value_is_shown(shell):
    payload = '{"a": ' + "[" * 300 + "]" * 300 + "}"
    job_id = shell.ok("submit", "add", payload)
    assert shell.json("get", job_id)["payload"] == json.loads(payload)
    assert '  arguments   606 characters: {"a":[[[' in shell.ok("get", job_id)


def test_get_shortens_long_values_and_says_how_to_see_them(shell):
    job_id = shell.ok("submit", "add", json.dumps({"a": "x" * 5000}))
    shown = shell.ok("get", job_id)
    assert re.search(r'^  arguments   5,008 characters: {"a":"x{110,}…$', shown, re.MULTILINE)
    assert shown.endswith(f"  all of it: sublet get {job_id} --detail, or --json")
    assert f'  arguments   {{"a":"{"x" * 5000}"}}' in shell.ok("get", job_id, "--detail").splitlines()
    assert shell.json("get", job_id)["payload"] == {"a": "x" * 5000}
    short = shell.ok("submit", "add", json.dumps({"a": "x" * 100}))
    assert shell.ok("get", short).endswith(f'  arguments   {{"a":"{"x" * 100}"}}')


def test_list_shows_errors_and_sizes_of_results(shell):
    dead = shell.ok("submit", "fail", '{"words": "no paper"}', "--max-attempts", "1")
    done = shell.ok("submit", "add", '{"a": 1, "b": 2}')
    shell.work()
    shown = shell.ok("list")
    assert re.search(r"^ID .+ OUTCOME$", shown.splitlines()[0])
    assert re.search(rf"{dead} .+ ago +ValueError: no paper$", shown, re.MULTILINE)
    assert re.search(rf"{done} .+ ago +result of \d+ bytes?$", shown, re.MULTILINE)
    jobs = {job["id"]: job for job in shell.json("list")["jobs"]}
    assert jobs[dead]["last_error"] == {"code": "ValueError", "message": "no paper"}
    assert jobs[done]["result_bytes"] > 0
    assert "result" not in jobs[done]


def test_list_pages_through_jobs(shell):
    ids = {shell.ok("submit", "add", "--delay", f"{n}h") for n in (1, 2, 3)}
    page = shell.json("list", "--limit", "2")
    rest = shell.json("list", "--cursor", page["cursor"])
    assert {job["id"] for job in page["jobs"] + rest["jobs"]} == ids
    assert len(page["jobs"]) == 2
    assert "payload" not in page["jobs"][0], "a list does not read all fields, and omits the others"
    shown = shell.run("list", "--limit", "2")
    assert re.search(
        r"^ID +STATE +TASK +QUEUE +TRIES +WHEN\n(0-\w+ +scheduled +add +default +0 of 3 +due in 60 min\n)",
        shown.stdout,
    )
    assert f"list --limit 2 --cursor '{page['cursor']}'" in shown.stderr
    url = shell.env["SUBLET_REDIS_URL"].replace("://", "://default:S3cret-word@")
    shown = shell.run("list", "--limit", "2", "--redis-url", url)
    assert 'list --redis-url "$SUBLET_REDIS_URL" --limit 2 --cursor' in shown.stderr
    assert "S3cret-word" not in shown.stdout + shown.stderr
    assert (
        len(shell.ok("list", "--state", "scheduled", "--task", "add", "--queue", "default").splitlines()) == 4
    )
    assert shell.ok("list", "--state", "dead") == "no jobs"


def test_list_filters_jobs_by_tag_and_more(shell):
    mail = shell.ok("submit", "mail", "--tag", "tenant:acme")
    add = shell.ok("submit", "add")
    gone = shell.ok("submit", "add", "--tag", "tenant:acme", "--key", "k")
    shell.ok("cancel", gone)

    def found(*words):
        return {job["id"] for job in shell.json("list", *words)["jobs"]}

    assert found("--tag", "tenant:acme") == {mail, gone}
    assert found("--tag", "tenant:acme", "--state", "queued,dead") == {mail}
    assert found("--since", "1h") == {mail, add, gone}
    assert found("--until", "1h") == found("--since", "2100-01-01T00:00:00Z") == set()
    assert (
        found("--worker", "w1")
        == found("--code", "ValueError")
        == found("--key", "k", "--task", "mail")
        == set()
    )
    shown = shell.run(
        "list", "--tag", "tenant:acme", "--state", "queued,cancelled", "--since", "1h", "--limit", "1"
    )
    assert re.search(
        r"list --state queued,cancelled --tag tenant:acme --since 20\S+T\S+ --limit 1 --cursor", shown.stderr
    )
    for words in (
        ["--since", "tomorrow"],
        ["--state", "queued,lost"],
        ["--tag", "a b"],
        ["--since", "1h", "--until", "2h"],
    ):
        shell.no(2, "list", *words)


def test_queues_and_stats_count(shell):
    for queue in ("images", "images", "mail"):
        shell.ok("submit", "add", "--queue", queue)
    heads, images, mail = shell.ok("queues").splitlines()
    assert (heads.split(), images.split(), mail.split()) == (
        ["QUEUE", "WAITING", "IN", "ALL", "BYTES", "LIMITS", "PAUSED"],
        ["images", "2", "2", "4"],
        ["mail", "1", "1", "2"],
    )
    empty = {"bytes": 2, "limits": {}, "on_dead": None, "paused_at": None, "revision": 0, "exists": True}
    assert shell.json("queues")[1] == {"name": "mail", "queued": 1, "jobs": 1, **empty}
    assert re.search(r"^queued +3$", shell.ok("stats"), re.MULTILINE)
    stats = shell.json("stats")
    assert (stats["states"]["queued"], stats["totals"]["submitted"]) == (3, 3)


def test_a_list_goes_on_behind_pages_without_a_job_that_matches(shell):
    settings = Settings(redis_url=shell.env["SUBLET_REDIS_URL"], namespace=shell.env["SUBLET_NAMESPACE"])
    with SyncClient(settings) as client:
        job = client.store.operations.submission
        client.submit_all([job("add", b"{}", "default", "") for _ in range(2 * EXAMINED + 1)])
        client.submit_all([job("other", b"{}", "default", "")])
    assert shell.ok("list", "--task", "other").splitlines()[1].split()[1:3] == ["queued", "other"]
    assert len(shell.json("list", "--task", "other")["jobs"]) == 1
    assert shell.ok("list", "--task", "third") == "no jobs"


def test_a_list_ends_after_many_pages_without_a_job_that_matches():
    cursors = []

    def list_jobs(*_, cursor, **__):
        cursors.append(cursor)
        yield from ()
        return Page(jobs=(), cursor="next")

    client = SimpleNamespace(store=SimpleNamespace(operations=SimpleNamespace(list_jobs=list_jobs)))
    args = Namespace(queue=None, key=None, state=None, limit=20, cursor=None, **dict.fromkeys(FILTERS))
    with pytest.raises(StopIteration) as ended:
        next(_page(client, args))
    assert ended.value.value.cursor == "next"
    assert cursors == [None, *["next"] * (PAGES - 1)]


def test_reading_creates_no_namespace(shell):
    assert shell.ok("queues", said=shell.none_yet) == "no queues: no job was ever submitted here"
    assert shell.ok("list", said=shell.none_yet) == "no jobs"
    shell.ok("stats", said=shell.none_yet)
    assert shell.json("list") == {"jobs": [], "cursor": None}
    shell.no(1, "get", "0-nobody")
    assert "does not exist yet" in shell.run("doctor").stdout


# ── actions of an operator ───────────────────────────────────────────────────────────────────────────────────────────


def test_an_operator_cancels_revives_and_promotes_jobs(shell):
    now, later = shell.ok("submit", "add"), shell.ok("submit", "add", "--delay", "1h")
    assert shell.ok("promote", later).splitlines()[1] == f"{later}  queued"
    assert shell.json("cancel", now, later) == [
        {"id": now, "answer": "cancelled"},
        {"id": later, "answer": "cancelled"},
    ]
    assert shell.ok("retry", now) == f"{'ID':<28}  ANSWER\n{now}  queued"


def test_an_operator_reschedules_waiting_jobs(shell):
    one, two = shell.ok("submit", "add", "--id", "one"), shell.ok("submit", "add", "--delay", "1h")
    moved = shell.json("reschedule", "one", two[-8:], "--at", "2030-01-31T10:00:00+01:00")
    due = {"answer": "scheduled", "due_at": "2030-01-31T09:00:00Z"}
    assert moved == [{"id": one, **due}, {"id": two, **due}]
    assert shell.ok("reschedule", one, "--priority", "-7").splitlines()[1].split("  ") == [
        one,
        "scheduled for 2030-01-31T09:00:00Z, priority -7",
    ]
    assert shell.json("reschedule", one, "--in", "0", "--priority", "5") == [
        {"id": one, "answer": "queued", "priority": 5}
    ]
    assert (shell.json("get", one)["priority"], shell.json("get", one)["revision"]) == (5, 3)
    assert "reschedule  0-one" in (said := shell.ok("audit")), said
    assert "scheduled 2030-01-31T09:00:00Z priority=-7" in said
    shell.ok("cancel", one)
    assert "WRONG_STATE" in shell.run("reschedule", one, "--in", "5s", "--json").stdout


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "nothing to change: give --at, --in or --priority"),
        (("--at", "2030-01-31T09:00:00Z", "--in", "5s"), "--at and --in: use one of them"),
        (("--at", "tomorrow"), "'tomorrow': use a time with a time zone, as RFC 3339 has it"),
        (("--in", "-5s"), "a duration cannot be negative"),
        (("--in=-soon",), "'-soon' is not a duration"),
        (("--priority", "101"), "priority 101: use a whole number from -100 to 100"),
    ],
)
def test_a_reschedule_without_sense_is_refused(shell, words, error):
    assert error in shell.no(2, "reschedule", "0-one", *words)


def test_an_operator_pauses_a_queue_and_resumes_it(shell):
    shell.ok("submit", "add", "--queue", "mail")
    assert shell.ok("pause", "mail", "mial") == "QUEUE  ANSWER\nmail   paused\nmial   " + (
        "paused; this queue never had a job, did you mean mail?"
    )
    assert shell.json("pause", "mali") == [{"queue": "mali", "answer": "paused", "new": True}]
    assert re.search(r"^mail +1 +1 +2 +for \d+ ms$|^mail .* for [\d.]+ s$", shell.ok("queues"), re.MULTILINE)
    assert shell.json("resume", "mail") == [{"queue": "mail", "answer": "resumed"}]
    assert [queue["paused_at"] for queue in shell.json("queues") if queue["name"] == "mail"] == [None]
    assert "use 1 to 128 of" in shell.no(2, "pause", "mail", "no good")


def test_an_operator_limits_a_queue_and_the_namespace(shell):
    assert shell.ok("configure", "mail") == "mail: no limits"
    assert (
        shell.ok("configure", "mail", "--jobs", "1", "--bytes", "10MiB") == "mail: 1 jobs, 10,485,760 bytes"
    )
    shell.ok("submit", "add", "--queue", "mail")
    words = shell.no(1, "submit", "add", "--queue", "mail")
    assert "queue mail may hold 1 jobs and has 1" in words
    assert "add workers, or raise the limit (sublet configure)" in words
    assert shell.json("configure", "mail", "--jobs", "none") == {
        "queue": "mail",
        "limits": {"bytes": 10485760},
        "on_dead": None,
    }
    assert "1 jobs" not in shell.ok("queues")
    assert shell.ok("configure", "--completed", "500") == "the namespace: 500 completed"
    assert shell.json("configure") == {"queue": "*", "limits": {"completed": 500}, "on_dead": None}
    assert "--completed is a limit of the namespace: leave QUEUE out" in shell.no(
        2, "configure", "mail", "--completed", "5"
    )
    assert "--jobs is a limit of a queue: name the queue" in shell.no(2, "configure", "--jobs", "5")
    assert "'1TB' is not a size; write 500000, 64KiB" in shell.no(2, "configure", "mail", "--bytes", "1TB")


def test_a_refusal_among_several_ids_is_reported_and_the_others_are_done(shell):
    job_id = shell.ok("submit", "add")
    done = shell.run("cancel", "0-nobody", job_id)
    assert done.returncode == 1
    assert done.stdout.splitlines()[1].startswith("0-nobody ")
    assert "refused: no job 0-nobody" in done.stdout
    assert done.stdout.splitlines()[2] == f"{job_id}  cancelled"
    done = shell.run("promote", job_id, "--json")
    (answer,) = json.loads(done.stdout)
    assert (done.returncode, answer["error"]) == (1, "WRONG_STATE")


# ── maintenance, scripts, and the program itself ──────────────────────────────────────────────────────────────────────────


def test_a_tick_prints_its_counts(shell):
    shell.ok("submit", "add", "--delay", "1ms")
    assert shell.ok("tick") == "reaped 0 · promoted 1 · pruned 0 · fired 0"
    assert shell.json("tick") == {
        "reaped": 0,
        "promoted": 0,
        "pruned": 0,
        "fired": 0,
        "summoned": 0,
        "unreached": 0,
        "rounds": 1,
    }
    assert shell.ok("tick", "--for", "500ms", "--every", "10ms").endswith(" rounds")
    assert re.search(r"^last maintenance .+ ago, by tick-", shell.ok("stats"), re.MULTILINE)


def test_scripts_are_named_by_their_sha_and_can_be_loaded(shell):
    shown = shell.run("scripts", "--load").stdout
    assert all(re.search(rf"^{name} +{script(name).sha}  yes$", shown, re.MULTILINE) for name in NAMES)
    assert shell.json("scripts")[0] == {"name": "init", "sha": script("init").sha, "loaded": True}


def test_scripts_are_shown_without_a_server(shell):
    away = ("--redis-url", "unix:///nowhere/redis.sock")
    assert shell.json("scripts", *away)[0]["loaded"] is None
    assert "no server" in shell.run("scripts", *away).stdout
    assert "no answer from Redis" in shell.no(3, "scripts", "--load", *away)


def test_the_version_is_that_of_the_project_also_in_a_copy_of_the_package(shell, tmp_path):
    """In another project, which has a version of its own."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "shop"\nversion = "77"\n')
    for name in ("jobs/sublet", "functions/sublet_functions"):
        shutil.copytree(
            ROOT / name, tmp_path / "vendor" / Path(name).name, ignore=shutil.ignore_patterns("__pycache__")
        )
    shell.env["PYTHONPATH"] = str(tmp_path / "vendor")
    with shell.start("version") as copy:
        shown, output = copy.communicate(timeout=60)
    assert shown.startswith(f"sublet {version} "), output


def test_versions(shell):
    assert re.match(r"sublet \d+\.\d+", shell.ok("version"))
    assert set(shell.json("--version")) == {"sublet", "python", "redis-py"}


def test_the_tests_run_from_anywhere_and_take_pytests_arguments(shell):
    words = ("test", "tests/client/test_options.py", "--collect-only", "-p", "no:cacheprovider")
    assert "test_options.py" in shell.ok(*words, SUBLET_NAMESPACE="not for them")


# ── terminals and pipes ──────────────────────────────────────────────────────────────────────────────────────────────


def on_a_terminal(shell, *words, codes=(0,), **env):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*shell.command, *words], cwd=shell.folder, env=shell.env | {"TERM": "xterm"} | env, stdout=theirs,
                               stderr=theirs)  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # Linux's error when the other end is closed
        pass
    os.close(ours)
    assert process.wait(30) in codes
    return shown.decode()


def test_submit_on_a_terminal_tells_of_a_queue_without_a_worker(shell):
    said = "no registered worker serves queue vip: "
    assert said in on_a_terminal(shell, "submit", "add", '{"a": 1}', "--queue", "vip")
    assert "no registered worker" not in shell.run("submit", "add", '{"a": 1}', "--queue", "vip").stderr
    worker = shell.start("work", "tasks:app", "--queues", "vip")
    try:
        assert '"ready"' in worker.stdout.readline()
        assert said not in on_a_terminal(shell, "submit", "add", '{"a": 1}', "--queue", "vip")
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=30)


def test_colours_are_for_terminals_or_on_request(shell):
    shell.ok("submit", "add", "--delay", "1h")
    assert "\x1b[36mscheduled\x1b[0m" in on_a_terminal(shell, "list")
    assert "\x1b" not in on_a_terminal(shell, "list", NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(shell, "list", TERM="dumb")
    assert "\x1b" not in shell.ok("list")


def test_a_terminal_gets_events_as_text_and_no_line_too_long(shell):
    job_id = shell.ok(
        "submit", "fail", json.dumps({"words": "no paper " * 20}), "--max-attempts", "1", "--queue", "mail"
    )
    shown = on_a_terminal(shell, "work", "tasks:app", "--drain", COLUMNS="100", NO_COLOR="1").splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d  ready       \S+ slots=\d+ queues=default,mail", shown[0])
    assert re.fullmatch(
        rf"\S+  failed      fail              …{job_id[-11:]}  ValueError: no paper .*… · dead", shown[2]
    )
    assert re.fullmatch(r"0 completed · 1 failed in .+", shown[-1])
    assert max(map(len, shown)) <= 100


def test_a_reader_that_leaves_is_not_an_error(shell):
    for n in range(3):
        shell.ok("submit", "add", "--id", f"{n}{'x' * 60}")
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*shell.command, "list"],
        cwd=shell.folder,
        env=shell.env,
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("words", ["get 2-x", "list", "stats", "queues", "cancel 2-x"])
def test_a_command_with_another_partition_count_is_refused(shell, words):
    """Otherwise the data in the other partitions would seem not to exist."""
    assert shell.ok("submit", "add", SUBLET_PARTITIONS="4")
    line = shell.no(3, *words.split())
    assert line.endswith("has 4 partitions, but SUBLET_PARTITIONS is 1: set it to 4")


def test_ctrl_c_before_the_reply_names_the_id_with_which_to_repeat_the_submit(shell):
    """It is unknown whether the job was stored."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        process = shell.start("submit", "add", "--redis-url", f"redis://127.0.0.1:{silent.getsockname()[1]}")
        silent.settimeout(20)
        asked, _ = silent.accept()
        with asked:
            asked.settimeout(20)
            assert asked.recv(100)
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
    output = process.stderr.read()
    assert re.search(
        rf"interrupted; if in doubt whether the job was stored: repeating it with --id {ID} is safe\n$",
        output,
    ), output


@pytest.mark.parametrize(
    "words",
    [("submit", "add", "--wait", "30"), ("tick", "--for", "30s", "--every", "10ms")],
    ids=lambda w: w[0],
)
def test_ctrl_c_is_quiet(shell, words):
    if words[0] == "tick":
        shell.ok("pause", "q")  # a tick creates no namespace
    process = shell.start(*words)
    while not shell.json("stats")["totals"]["submitted"] and not shell.json("stats")["maintenance_at"]:
        pass
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    output = process.stderr.read()
    if words[0] == "tick":
        assert output == ""
    else:
        (job,) = shell.json("list")["jobs"]
        assert (
            output
            == f"sublet: interrupted; {job['id']} is submitted and continues; see sublet get {job['id']}\n"
        )


def test_sigterm_does_not_lose_the_id_of_a_job_that_is_waited_for_as_json(shell):
    waiting = shell.start("submit", "add", "--wait", "60", "--json")
    while not (jobs := shell.json("list")["jobs"]):
        pass
    waiting.terminate()
    output = json.loads(waiting.communicate(timeout=20)[1])
    assert (waiting.returncode, output["error"], output["id"]) == (
        128 + signal.SIGTERM,
        "INTERRUPTED",
        jobs[0]["id"],
    )
