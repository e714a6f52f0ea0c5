"""`work`: the events and the exit code of a worker on the command line."""

import asyncio
import io
import json
import os
import re
import signal
import subprocess
import time

import pytest
import redis

from sublet.cli.workers import worker_events
from sublet.cli.workers.event_loop import YOUNG
from sublet.cli.workers.worker_events import EventPrinter
from sublet.model import Lease
from tests.cli.test_cli import on_a_terminal

pytest_plugins = ["tests.support.command_line"]


def started(worker, task):
    """Read events until a task has started; return that event."""
    for line in worker.stdout:
        event = json.loads(line)
        if (event["event"], event.get("task")) == ("started", task):
            return event
    raise AssertionError(worker.stderr.read())


def test_a_worker_drains_the_queues_and_prints_each_event(shell):
    job_id = shell.ok("submit", "add", '{"a": 1}')
    ready, began, ended, summary = shell.work("--name", "w1", "--slots", "3")
    assert (ready["event"], ready["detail"]) == ("ready", "w1 slots=3 queues=default,mail")
    about = {"id": job_id, "task": "add", "queue": "default", "attempt": 1}
    assert began == {"event": "started", "at": began["at"], **about, "detail": ""}
    assert ended == {"event": "completed", "at": ended["at"], **about, "detail": "completed"}
    assert began["at"].endswith("Z")
    assert (summary["event"], summary["completed"], summary["failed"]) == ("summary", 1, 0)


def test_a_plain_function_runs_in_a_child_that_finds_the_same_app(shell):
    namespace = ("--namespace", shell.env.pop("SUBLET_NAMESPACE"))
    job_id = shell.ok("submit", "plain", '{"a": 21}', *namespace)
    assert shell.work(*namespace)[-1]["completed"] == 1
    assert shell.json("get", job_id, *namespace)["result"] == 42


def test_a_failure_is_printed_with_the_next_state_of_the_job(shell):
    shell.ok("submit", "fail", '{"words": "no paper"}', "--queue", "mail", "--max-attempts", "2")
    events = [event for event in shell.work() if event["event"] == "failed"]
    assert events[0]["detail"] == "ValueError no paper"
    assert (events[0]["state"], events[0]["due_at"][-1]) == ("scheduled", "Z")


def test_a_job_that_was_released_often_has_used_no_try(shell):
    job_id = shell.ok("submit", "nowhere", "--max-attempts", "3")
    for n in range(1, 5):
        shell.work()
        assert shell.json("get", job_id)["attempt"] == n
        shell.ok("promote", job_id)
    job = shell.json("get", job_id)
    assert (job["attempt"], job["max_attempts"], job["tries_left"]) == (4, 3, 3)
    assert "tries       0 of 3 used, claimed 4 times" in shell.ok("get", job_id)
    assert re.search(r" 0 of 3 ", shell.ok("list"))


def test_a_job_of_an_unknown_task_is_released_and_not_lost(shell):
    job_id = shell.ok("submit", "of_tomorrow")
    (released,) = [event for event in shell.work() if event["event"] == "released"]
    assert (released["id"], released["state"]) == (job_id, "scheduled")
    job = shell.json("get", job_id)
    assert (job["state"], job["tries_left"]) == ("scheduled", 3)
    assert [attempt["code"] for attempt in job["attempts"]] == ["unknown_task"]
    assert "this worker has no task of_tomorrow" in shell.ok("get", job_id)


def test_a_job_whose_arguments_do_not_match_is_released(shell):
    job_id = shell.ok("submit", "add", '{"z": 1, "y": 2, "x": 3}')
    shell.work()
    job = shell.json("get", job_id)
    assert (job["state"], job["attempts"][0]["code"]) == ("scheduled", "unknown_task")
    shown = shell.ok("get", job_id, COLUMNS="200")
    fit = "the payload does not match this worker's version of the task: a: missing: add it; z: unknown: leave it out; y: unknown: leave it"
    assert fit in shown
    assert "(and 1 more)" in shown
    assert shown.count("unknown_task") == 1


def test_sigterm_releases_the_job_and_is_not_a_failure(shell):
    job_id = shell.ok("submit", "forever")
    worker = shell.start("work", "tasks:app")
    started(worker, "forever")
    worker.send_signal(signal.SIGTERM)
    worker.send_signal(signal.SIGINT)  # the second signal ends the grace
    out, err = worker.communicate(timeout=20)
    stopping, hurrying, released, summary = map(json.loads, out.splitlines())
    assert (stopping["event"], hurrying["event"]) == ("stopping", "stopping")
    assert (released["event"], released["detail"], released["state"]) == (
        "released",
        "the worker stopped",
        "queued",
    )
    assert (worker.returncode, err, summary["released"]) == (0, "", 1)
    job = shell.json("get", job_id)
    assert (job["state"], job["tries_left"]) == ("queued", 3)


def test_a_worker_stops_when_its_time_is_up(shell):
    assert [event["event"] for event in shell.work("--for", "50ms")] == ["ready", "summary"]
    assert [
        event["event"] for event in map(json.loads, shell.ok("work", "tasks", "--for", "50ms").splitlines())
    ] == [
        "ready",
        "summary",
    ]


def test_quiet_prints_only_the_summary(shell):
    shell.ok("submit", "add", '{"a": 1}')
    (summary,) = shell.work("--quiet")
    assert summary["completed"] == 1


def test_a_worker_claims_from_the_named_queues_only(shell):
    shell.ok("submit", "add", '{"a": 1}', "--queue", "other")
    assert shell.work()[-1]["completed"] == 0
    assert shell.work("--queues", "mail,other")[-1]["completed"] == 1


def test_tokens_and_payloads_are_never_printed(shell):
    shell.ok("submit", "add", '{"a": 918273645}')
    shell.ok("submit", "add", '{"a": "918273645"}', "--delay", "1ms")
    output = shell.run("work", "tasks:app", "--drain")
    assert "918273645" not in output.stdout + output.stderr
    assert "token" not in output.stdout + output.stderr


def test_a_worker_stops_when_the_reader_of_its_output_leaves(shell):
    shell.ok("submit", "add", '{"a": 1}')
    worker = shell.start("work", "tasks:app")
    started(worker, "add")
    worker.stdout.close()
    job_id = shell.ok("submit", "add", '{"a": 2}')
    assert worker.wait(30) == 141
    assert worker.stderr.read() == ""
    assert shell.json("get", job_id)["state"] in ("queued", "completed")


@pytest.mark.parametrize("flag", ["--redis-url", "--namespace"])
def test_a_flag_wins_over_the_programs_settings(shell, flag):
    text = "from sublet import App\napp = App('redis://127.0.0.1:1', namespace='elsewhere')\n@app.task\nasync def f(): return 1\n"
    (shell.folder / "fixed.py").write_text(text)
    there = ("--redis-url", shell.env["SUBLET_REDIS_URL"], "--namespace", shell.env["SUBLET_NAMESPACE"])
    if flag == "--namespace":
        assert "127.0.0.1:1" in shell.no(3, "work", "fixed:app", "--wait", "0", *there[2:])
    else:
        job_id = shell.ok("submit", "f", "--app", "fixed:app", *there)
        assert json.loads(shell.ok("work", "fixed:app", "--drain", *there).splitlines()[-1])["completed"] == 1
        assert shell.json("get", job_id)["state"] == "completed"


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


STUBBORN = """
import asyncio, time
from sublet import App, Context

app = App()

@app.task(run="thread")
def thread() -> None:
    time.sleep(600)

@app.task
async def lent() -> None:
    await asyncio.to_thread(time.sleep, 600)

@app.task
async def deaf() -> None:
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
"""


def test_max_jobs_stops_the_worker(shell):
    for _ in range(3):
        shell.ok("submit", "add", '{"a": 1}')
    lines = shell.ok("work", "--app", "tasks:app", "--max-jobs", "2").splitlines()
    assert json.loads(lines[-1])["completed"] == 2
    assert shell.json("stats")["states"]["queued"] == 1


def test_unknown_queues_are_reported_once(shell):
    shell.ok("submit", "add", '{"a": 1}', "--queue", "images")
    ready, warning, summary = shell.work("--queues", "nope,mial")
    assert (ready["event"], warning["event"], summary["event"]) == ("ready", "warning", "summary")
    unknown = "no task of this app uses it, and it never had a job"
    assert warning["detail"] == f"queue nope: {unknown}; queue mial: {unknown}, did you mean mail?"
    assert "warning" not in {event["event"] for event in shell.work("--queues", "images,mail")}


def test_an_app_without_tasks_causes_a_warning(shell):
    (shell.folder / "empty.py").write_text("from sublet import App\napp = App()\n")
    command = [*shell.command, "work", "empty:app", "--drain"]
    for more, events in (["--commands"], ["ready", "summary"]), ([], ["ready", "warning", "summary"]):
        lines = subprocess.run(
            [*command, *more], cwd=shell.folder, env=shell.env, capture_output=True, text=True, timeout=60
        )
        shown = [json.loads(line) for line in lines.stdout.splitlines()]
        assert [event["event"] for event in shown] == events
    assert (
        shown[1]["detail"]
        == 'empty:app has no task: this worker releases every job; list the modules that declare tasks, as in App(include=["shop.mail"])'
    )


TALKATIVE = """
from sublet import App
print("while the module is imported")
app = App()
@app.task
async def on_the_loop(): print("on the loop")
@app.task
def in_a_child(): print("in a child")
@app.on_failure
async def told(failure): print("in a hook")
@app.task(max_attempts=1)
async def fails(): raise ValueError("no")
"""


def test_what_tasks_print_is_on_stderr_and_events_alone_on_stdout(shell):
    (shell.folder / "talkative.py").write_text(TALKATIVE)
    for task in ("on_the_loop", "in_a_child", "fails"):
        shell.ok("submit", task)
    done = shell.run("work", "talkative:app", "--drain")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({event["id"] for event in events if event["event"] == "started"}) == 3
    for words in ("while the module is imported", "on the loop", "in a child", "in a hook"):
        assert words in done.stderr


def test_a_missing_pool_causes_a_warning(shell):
    shell.ok("pools", "set", "images", "--queues", "images")
    pool = ("--linger", "100ms", "--pool")
    _, warning, leaving, _ = shell.work(*pool, "image")
    assert (warning["event"], leaving["event"]) == ("warning", "leaving")
    assert warning["detail"] == "there is no pool image, did you mean images?; the worker runs without it"
    assert leaving["detail"] == "no job for 0.1 s"
    assert [event["event"] for event in shell.work(*pool, "images")] == ["ready", "leaving", "summary"]


def test_a_worker_that_stalls_exits_1_and_fails_the_job_that_ran_so_long(shell):
    job_id = shell.ok("submit", "forever")
    done = shell.run("work", "tasks:app", "--stall", "500ms")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["event"] for event in events] == ["ready", "started", "stalled", "failed", "summary"]
    assert (done.returncode, events[-1]["stalled"]) == (1, True)
    job = shell.json("get", job_id)
    assert (job["state"], job["tries_left"], job["attempts"][0]["code"]) == ("scheduled", 2, "stalled")


@pytest.mark.parametrize("task", ["thread", "lent", "deaf"])
def test_a_task_that_does_not_end_does_not_keep_the_process(shell, task):
    (shell.folder / "stubborn.py").write_text(STUBBORN)
    job_id = shell.ok("submit", task)
    done = shell.run("work", "stubborn:app", "--for", "3s", "--grace", "100ms")
    assert (done.returncode, json.loads(done.stdout.splitlines()[-1])["released"]) == (0, 1)
    assert "exit although a task has not ended" in done.stderr
    assert shell.json("get", job_id)["state"] == "queued"


LITTER = """
import asyncio
import threading

from sublet import App

app = App()
kept = []


async def deaf() -> None:
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            continue


@app.task
async def leaves_a_task() -> None:
    kept.append(asyncio.create_task(deaf()))
    await asyncio.sleep(0)


@app.task
async def leaves_a_thread() -> None:
    threading.Thread(target=threading.Event().wait).start()
"""


@pytest.mark.parametrize("task", ["leaves_a_task", "leaves_a_thread"])
def test_leftovers_of_a_task_do_not_keep_the_process(shell, task):
    (shell.folder / "litter.py").write_text(LITTER)
    shell.ok("submit", task)
    done = shell.run("work", "litter:app", "--drain")
    assert (done.returncode, json.loads(done.stdout.splitlines()[-1])["completed"]) == (0, 1)
    assert "exit although tasks left threads or asyncio tasks" in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
def test_a_full_disk_stops_the_lines_and_not_the_jobs(shell):
    job_id = shell.ok("submit", "add", '{"a": 1}')
    with open("/dev/full", "w") as full:
        done = subprocess.run([*shell.command, "work", "tasks:app", "--drain"], cwd=shell.folder, env=shell.env, stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=60)  # fmt: skip
    output, last = done.stderr.splitlines()
    assert "cannot write to stdout, continuing without it: No space left on device" in output
    assert (done.returncode, last) == (74, "sublet: the output cannot be written: No space left on device")
    assert shell.json("get", job_id)["state"] == "completed"


# ── a task's log and progress ────────────────────────────────────────────────────────────────────────────────────────


TELLING = """
import asyncio
from sublet import App, Context

app = App()

@app.task(max_attempts=2)
async def convert(ctx: Context) -> None:
    for page in range(12):
        ctx.log(f"page {page} of \x1b[31m")
    ctx.progress(0.42, stage="resize", message="page 3")
    ctx.checkpoint({"page": ctx.attempt, "done": ["a.png"] * 40})
    if ctx.attempt == 1:
        raise ValueError("no paper")
    await asyncio.Event().wait()
"""


def test_the_log_of_a_task_is_shown_with_its_job(shell):
    (shell.folder / "telling.py").write_text(TELLING)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    job_id = "0-told"
    submit_with_trace(shell, job_id, trace)
    worker = shell.start("work", "telling:app", "--name", "w1")
    try:
        started(worker, "convert")
        job = until(
            lambda job: job["log"] and job["progress"] and job["attempt"] == 2,
            lambda: shell.json("get", job_id),
        )
        assert (job["checkpoint"]["page"], job["trace"]) == (2, trace)
        shown = shell.ok("get", job_id)
        assert re.search(r"^  owner       w1, attempt 2, for .+\n  heartbeat   .+ ago$", shown, re.MULTILINE)
        assert "  progress    42%   resize   page 3\n" in shown
        assert re.search(
            r'^  checkpoint  \d+ characters: {"page":2,"done":\["a.png",.+…$', shown, re.MULTILINE
        )
        assert f"  trace       {trace}\n" in shown
        for attempt in ("attempt 1", "attempt 2 so far"):
            assert re.search(
                rf"^  log of {attempt}, the last 10 of 12 lines\n    \+\d+\.\d+ page 2 of",
                shown,
                re.MULTILINE,
            ), shown
        assert (shown.count(" page 2 of  [31m"), shown.count(" page 1 of")) == (2, 0), "no control characters"
        assert "page 1 of" in shell.ok("get", job_id, "--detail")
        narrow = on_a_terminal(shell, "get", job_id, COLUMNS="80", NO_COLOR="1").splitlines()
        first = narrow[narrow.index("  attempts") + 1]
        assert re.fullmatch(r"  1  ValueError after .+, claimed \S+ \S+Z by w1", first)
        assert max(len(line) for line in narrow if "--detail" not in line) <= 80
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.send_signal(signal.SIGINT)
        assert worker.wait(20) == 0


def until(right, look):
    """Return the value of `look()` as soon as `right` accepts it."""
    end = time.monotonic() + 20
    while not right(found := look()):
        assert time.monotonic() < end, found
    return found


def submit_with_trace(shell, job_id, trace):
    """As a program with tracing does."""
    program = (
        "from sublet.client.sync_client import SyncClient; from sublet.model import Submission\n"
        f"SyncClient().submit_all([Submission({job_id!r}, 'default', 'convert', 'tries=2 trace={trace}', b'{{}}')])"
    )
    subprocess.run([shell.command[0], "-c", program], cwd=shell.folder, env=shell.env, check=True, timeout=60)


# ── the lines of a terminal ──────────────────────────────────────────────────────────────────────────────────────────


def lines_of(*events):
    """The text of these events on a terminal."""

    async def hear():
        for event in events:
            printer.print_event(*event)
        await asyncio.sleep(0)

    printer = EventPrinter(io.StringIO(), as_json=False, quiet=False)
    asyncio.run(hear())
    return [line.split(maxsplit=1)[1] for line in printer._stream.getvalue().splitlines()]


LEASE = Lease("0-01M7YZCYXBMTDMEHCNPXH2D402", "1.x", 1, 1, "default", "convert", None, b"", "")


def test_an_event_during_a_job_does_not_end_the_job():
    printer = EventPrinter(io.StringIO(), as_json=False, quiet=False)

    async def hear():
        printer.print_event("started", LEASE, "")
        printer.print_event("lag", LEASE, "the loop was blocked for 2.0 s")
        printer.print_event("crashed", LEASE, "SIGSEGV")
        assert len(printer._started) == 1, "otherwise the next event would show no duration"
        printer.print_event("completed", LEASE, "completed")
        await asyncio.sleep(0)

    asyncio.run(hear())
    start, lag, crash, end = (line.split(maxsplit=1)[1] for line in printer._stream.getvalue().splitlines())
    assert start == "started     convert           …HCNPXH2D402"
    assert lag.endswith("…HCNPXH2D402  the loop was blocked for 2.0 s")
    assert crash.endswith("…HCNPXH2D402  SIGSEGV")
    assert re.fullmatch(r"completed   convert           …HCNPXH2D402  \d+ ms", end)


def test_events_without_a_job_are_aligned():
    words = "no such thing " * 20
    lines = lines_of(("reconciled", None, "3 jobs of workers that are gone"), ("draining", None, "2 jobs to finish"),
                     ("warning", None, words), ("an event of tomorrow", None, "x\x1b"))  # fmt: skip
    assert lines[0] == "reconciled  3 jobs of workers that are gone"
    assert lines[1] == "draining    2 jobs to finish"
    assert lines[2] == f"warning     {words}"
    assert lines[3] == "an event of tomorrow  x "


async def test_lines_for_programs_are_json_for_any_text_and_have_times(monkeypatch):
    moments = iter([1_763_690_000.0011, 1_763_690_000.0012, 1_763_690_000.0023])
    monkeypatch.setattr("sublet.cli.workers.worker_events.time.time", lambda: next(moments))
    stream = io.StringIO()
    printer = EventPrinter(stream, as_json=True, quiet=False)
    lease = Lease("0-a", "1.c", 1, 0, "q", "t", None, b"", "")
    details = ['half a "character" \udc80 é\n', "ValueError no: scheduled 1763690001500", "completed"]
    for event, words in zip(("lost", "failed", "completed"), details, strict=True):
        printer.print_event(event, lease, words)
    await asyncio.sleep(0)
    lost, failed, completed = map(json.loads, stream.getvalue().splitlines())
    about = {"id": "0-a", "task": "t", "queue": "q", "attempt": 1}
    assert lost == {"event": "lost", "at": "2025-11-21T01:53:20.001Z", **about, "detail": details[0]}
    due = {"state": "scheduled", "due_at": "2025-11-21T01:53:21.500Z"}
    assert failed == {
        "event": "failed",
        "at": "2025-11-21T01:53:20.001Z",
        **about,
        **due,
        "detail": "ValueError no",
    }
    assert completed == {
        "event": "completed",
        "at": "2025-11-21T01:53:20.002Z",
        **about,
        "detail": "completed",
    }


def test_the_printer_forgets_finished_jobs():
    printer = EventPrinter(io.StringIO(), as_json=False, quiet=False)

    async def hear():
        for ending in ("completed", "failed", "released", "refused", "lost"):
            printer.print_event("started", LEASE, "")
            printer.print_event(ending, LEASE, "x: dead")

    asyncio.run(hear())
    assert printer._started == {}


# ── a server that has lost all data ──────────────────────────────────────────────────────────────────────────────────


def test_a_worker_continues_after_flushall(shell):
    worker = shell.start("work", "tasks:app", "--lease", "1500ms")
    assert json.loads(worker.stdout.readline())["event"] == "ready"
    try:
        until(bool, lambda: shell.json("workers"))
        with redis.Redis.from_url(shell.env["SUBLET_REDIS_URL"]) as raw:
            raw.delete(*raw.scan_iter(match=f"{{{shell.env['SUBLET_NAMESPACE']}:*", count=1000))
        assert shell.ok("submit", "add", '{"a": 1}', "--wait") == "2"
        assert until(bool, lambda: shell.json("workers")), "and it is registered again"
    finally:
        worker.terminate()
        assert worker.wait(20) == 0


# ── `command`: any program ───────────────────────────────────────────────────────────────────────────────────────────


def test_the_task_command_exists_on_request(shell):
    job_id = shell.ok("submit", "command", '{"argv": ["echo", "hello"]}')
    assert [event["event"] for event in shell.work()][2:] == ["released", "summary"]
    shell.ok("promote", job_id)
    assert shell.work("--commands")[-1]["completed"] == 1
    assert "hello" in json.dumps(shell.json("get", job_id)["result"])


def test_the_garbage_collector_runs_seldom_in_a_worker(shell):
    (shell.folder / "gentle.py").write_text(
        "import gc\nfrom sublet import App\napp = App()\n\n"
        "@app.task\nasync def looks() -> list[int]:\n    return [gc.get_threshold()[0], gc.get_freeze_count()]\n"
    )
    job_id = shell.ok("submit", "looks")
    shell.ok("work", "gentle:app", "--drain")
    threshold, frozen = shell.json("get", job_id)["result"]
    assert threshold == YOUNG
    assert frozen > 10_000


def test_what_an_app_prints_while_it_is_imported_is_not_in_the_output_for_machines(shell):
    """Machines read stdout: `sublet dev` describes an app by it."""
    (shell.folder / "noisy.py").write_text(
        f"print('hello from the import')\n{(shell.folder / 'tasks.py').read_text()}"
    )
    for words in (("dev", "noisy:app", "--check", "--json"), ("schedules", "sync", "noisy:app", "--json")):
        done = shell.run(*words)
        json.loads(done.stdout)
        assert (done.returncode, done.stderr) == (0, "hello from the import\n")


@pytest.mark.parametrize(("events", "signals"), [(["ready"], 1), (["stopping", "ready"], 0)])
async def test_a_reader_that_is_gone_stops_the_worker_once(monkeypatch, events, signals):
    """A second signal would take the grace away: the platform that has ended was the reader, and has sent one."""

    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    sent = []
    monkeypatch.setattr(worker_events.signal, "raise_signal", sent.append)
    printer = EventPrinter(Gone(), as_json=True, quiet=False)
    for event in events:
        printer.print_event(event, None, "")
        await asyncio.sleep(0)
    assert len(sent) == signals
