"""A wrong input or a missing server is reported in one line with advice, never as a stack trace."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading

import pytest

from sublet.cli import main
from sublet.connection.settings import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import Invalid
from sublet.protocol.payload import EXAMPLE

pytest_plugins = ["tests.support.command_line"]


# ── wrong input ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("sumbit add", "there is no command 'sumbit', did you mean submit? See sublet --help"),
        ("worker tasks:app", "there is no command 'worker', did you mean work? See sublet --help"),
        ("run tasks:app", "there is no command 'run', did you mean work? See sublet --help"),
        ("Enqueue add", "there is no command 'Enqueue', did you mean submit? See sublet --help"),
        (
            "dev tasks:app --app other:app",
            "MODULE:APP is given twice, as other:app and tasks:app: leave one out; see sublet dev --help",
        ),
        ("submit", "TASK is missing; see sublet submit --help"),
        (
            "submit add {} --qeue q",
            "there is no option --qeue, did you mean --queue? See sublet submit --help",
        ),
        ("submit add {} {}", "unexpected argument '{}'; see sublet submit --help"),
        ("submit add {", "payload is not JSON: "),
        ("submit add to=x", f"payload is not JSON: Expecting value: line 1 column 1 (char 0): {EXAMPLE}"),
        ("submit add @/dev/null", f"payload is empty: {EXAMPLE}"),
        (f"submit add @{sys.executable}", "payload is not UTF-8: save the file as JSON in UTF-8"),
        (f"submit add {'[' * 99_999}", "payload is nested too deeply: use fewer levels"),
        ("--nope", "there is no option --nope, and no command is named; see sublet --help"),
        ("submit add [1]", "payload: use one JSON object, the task's arguments by name"),
        ('submit add {"a":NaN}', "payload is not JSON: NaN is not a JSON number"),
        ("submit add @nowhere.json", "cannot read nowhere.json: No such file or directory"),
        ("submit a/b", "task 'a/b': use 1 to 128 of A-Z a-z 0-9 _ . : -, but not . or .. alone"),
        ("submit add --queue a/b", "queue 'a/b': use 1 to 128 of A-Z a-z 0-9 _ . : -, but not . or .. alone"),
        ("submit add --id a/b", "id 'a/b': use 1 to 62 of A-Z a-z 0-9 _ . : -, but not . or .. alone"),
        (
            "submit add --delay -5s",
            "--delay: a duration cannot be negative; write 250ms, 50s, 5m, 1h, 2d or plain seconds; see",
        ),
        ("submit add --delay", "the value of --delay is missing; see sublet submit --help"),
        (
            "submit add --at tomorrow",
            "--at: 'tomorrow': use a time with a time zone, as RFC 3339 has it, e.g. 2030-01-31T09:00:00Z",
        ),
        (
            "submit add --at 2030-01-31T09:00:00",
            "--at: '2030-01-31T09:00:00': use a time with a time zone, as RFC 3339 has it",
        ),
        ("submit add --at 2030-01-31T09:00:00Z --delay 1s", "--at and --delay: use one of them"),
        ("submit add --priority 1000", "priority 1000: use a whole number from -100 to 100"),
        ("submit add --priority 99999999999", "priority 99999999999: use a whole number from -100 to 100"),
        (
            "submit add --max-attempts 99999999999",
            "--max-attempts: '99999999999': use a whole number from 1 to 999,999,999; see",
        ),
        (
            "work tasks:app --queues a,,b",
            "--queues: 'a,,b': a name is empty: use one name, or several separated by single commas; see",
        ),
        (
            "work tasks:app --queues a:2.5",
            "--queues: 'a:2.5': use NAME:WEIGHT, a weight from 1 to 1000, or the queue's name alone; see",
        ),
        (
            "work tasks:app --queues a:-1",
            "--queues: 'a:-1': use NAME:WEIGHT, a weight from 1 to 1000, or the queue's name alone; see",
        ),
        (
            "work tasks:app --queues a:",
            "--queues: 'a:': use NAME:WEIGHT, a weight from 1 to 1000, or the queue's name alone; see",
        ),
        ("configure q --rate 5/0s", "--rate: '5/0s' is not a rate; write 60/1m, 10/1s, or none; see"),
        (
            "configure q --concurrency -1",
            "--concurrency: '-1': use a whole number such as 5, of up to 14 digits, or none; see",
        ),
        ("submit add --max-attempts 0", "--max-attempts: '0': use a whole number from 1 to 999,999,999; see"),
        (
            "submit add --window 5m",
            "window without a key: give the deduplication key that is held for this time",
        ),
        ("submit add --retention 5s", "retention 5 s: use 60 s or more, at most 31622400 s"),
        (
            "work tasks:app --slots 100000",
            "--slots: '100000': use a whole number from 1 to 10,000: one process must keep the lease",
        ),
        ("work tasks:app --slots 0", "--slots: '0': use a whole number from 1 to 10,000: "),
        (
            "work tasks:app --processes 1e3",
            "--processes: '1e3': use a whole number from 1 to 1,000: each is a Python process",
        ),
        (
            "work tasks:app --memory 1KiB",
            "--memory: '1KiB' is too small to start Python in; use 64MiB or more; see",
        ),
        (
            "work tasks:app --memory 1TB",
            "--memory: '1TB' is not a size; write 500000, 64KiB, 10MiB, 2GiB, or none; see",
        ),
        (
            "work tasks:app --lease 1ms",
            "--lease: '1ms': use 100ms to 1d; a worker without a heartbeat for so long loses its jobs; see",
        ),
        ("work tasks:app --lease 400d", "--lease: '400d': use 100ms to 1d; a worker"),
        ("work tasks:app --stall 0", "--stall: '0': use a duration of 1ms or more, such as 30s; see"),
        ("work tasks:app --grace -1s", "--grace: a duration cannot be negative; write"),
        ("work tasks:app --max-jobs 0", "--max-jobs: '0': use a whole number from 1 to 999,999,999; see"),
        ("work tasks:app --jobs-per-child many", "--jobs-per-child: 'many' is not a whole number; see"),
        ("tick --app nope:app", "there is no module nope in "),
        ("tick --app ./tasks.py", "'./tasks.py' is not a module name: write MODULE:APP, e.g. tasks:app"),
        (
            "submit add --priority 5 --priority=6",
            "--priority is given twice: give it once; see sublet submit",
        ),
        (
            "tick --every 5s",
            "--every needs --for: say how long to repeat, e.g. --for 55s --every 5s",
        ),
        ("list --state deed", "--state: there is no state 'deed', did you mean dead? See sublet list --help"),
        ("list --cursor x", "cursor 'x': use the cursor of the page before, with the same filters"),
        ("get a/b", "id 'a/b': use 1 to 64 of A-Z a-z 0-9 _ . : -, but not . or .. alone"),
        ("cancel 0-fine a/b", "id 'a/b': use 1 to 64 of A-Z a-z 0-9 _ . : -, but not . or .. alone"),
        (
            "stats --namespace a/b",
            "namespace 'a/b': use 1 to 128 of A-Z a-z 0-9 _ . : -, but not . or .. alone",
        ),
        (
            "stats --redis-url http://here",
            "Redis URL 'http://here': use redis://host:port/db, rediss://… or unix:///path",
        ),
        (
            "stats --redis-url redis://h:66379",
            "Redis URL 'redis://h:66379': its port is out of range: use 1 to 65535",
        ),
        (
            "stats --redis-url redis://u:99999/b@h",
            "Redis URL 'redis://h': use redis://host:port/db, rediss://… or",
        ),
        (
            "stats --redis-url redis://h:1?colour=red",
            "Redis URL 'redis://h:1': its parameter colour is not known",
        ),
        (
            "stats --redis-url redis://h:1/abc",
            "Redis URL 'redis://h:1/abc': database 'abc' is not a number; use redis://",
        ),
    ],
)
def test_an_invalid_input_is_reported_in_one_line_with_exit_code_2(shell, words, line):
    assert shell.no(2, *words.split(" ")).startswith(line)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["ad", "{}"], "tasks:app has no task 'ad', did you mean add?"),
        (["xyz", "{}"], "tasks:app has no task 'xyz'; there are add, fail, forever, plain"),
        (["add", "{}"], "task add: a: missing: add it"),
        (["add", '{"a": "one"}'], "task add: a: use a whole number"),
        (["add", '{"a": 1, "c": 2}'], "task add: c: unknown: leave it out"),
    ],
)
def test_with_an_app_its_tasks_and_arguments_are_checked(shell, words, line):
    assert shell.no(2, "submit", *words, "--app", "tasks:app").startswith(line)
    assert shell.json("queues") == []


def test_a_payload_that_is_too_large_is_refused_before_it_is_sent(shell):
    line = shell.no(2, "submit", "add", "-", stdin=json.dumps({"a": "x" * 256 * 1024}))
    assert line.startswith(
        "task add: arguments of 262,152 bytes (JSON): at most 262,144 are allowed: store the data"
    )


@pytest.mark.parametrize(
    "words",
    [["--priority", "5", "--priority=6"], ["--namespace", "a", "--priority", "5", "--namespace", "b"]],
)
def test_an_option_is_given_once(shell, words):
    flag = words[-1].partition("=")[0] if "=" in words[-1] else words[0]
    assert shell.no(2, "submit", "add", *words).startswith(f"{flag} is given twice: give it once; see ")


def test_options_that_collect_are_given_often(shell):
    job = shell.ok("submit", "add", "--tag", "a", "--tag", "b")
    assert shell.json("get", job)["tags"] == ["a", "b"]


def test_a_tick_finds_the_module_of_its_app(shell):
    assert shell.no(2, "tick", "--app", "nope:app").startswith("there is no module nope in ")
    assert shell.no(2, "tick", "--app", "./tasks.py").startswith(
        "'./tasks.py' is not a module name: write MODULE"
    )


def test_a_missing_object_is_exit_code_1(shell):
    gone = "no job 0-nobody: it never existed, or was deleted (retention, erase)"
    assert (
        shell.no(1, "get", "0-nobody")
        == f"{gone}; there is no namespace {shell.env['SUBLET_NAMESPACE']} yet: the first job creates it"
    )
    shell.ok("submit", "add")
    assert shell.no(1, "get", "0-nobody") == f"{gone}; no job's id ends so"
    assert json.loads(shell.no(1, "get", "0-nobody", "--json"))["error"] == "NOT_FOUND"
    shell.ok("submit", "add", "--id", "order-7")
    assert shell.json("get", "order-7")["id"] == "0-order-7"
    assert (
        shell.ok("list", "--queue", "defualt") == "no jobs: there is no queue defualt, did you mean default?"
    )


def test_a_scheme_may_be_written_in_capitals(shell):
    scheme, _, rest = shell.env["SUBLET_REDIS_URL"].partition("://")
    assert shell.json("queues", SUBLET_REDIS_URL=f"{scheme.upper()}://{rest}") == []
    with pytest.raises(Invalid, match="use redis://host:port/db"):  # names of settings are not corrected
        Settings("REDIS://127.0.0.1").check_url()


def test_errors_as_json_have_a_code_and_a_message(shell):
    assert json.loads(shell.no(2, "--json", "submit", "add", "[]")) == {
        "error": "INVALID",
        "message": "payload: use one JSON object, the task's arguments by name",
    }


# ── apps that cannot be loaded ───────────────────────────────────────────────────────────────────────────────────────


MODULES = {
    "syntax": "def f(:\n  pass\n",
    "imports": "import json\nimport no_such_thing\n",
    "raises": "import json\n\ndef f():\n    json.loads('{')\n\nf()\n",
    "leaves": "raise SystemExit('bye')\n",
    "empty": "",
    "twice": "from sublet import App\none = App()\ntwo = App()\n",
}


@pytest.mark.parametrize(
    ("place", "line"),
    [
        ("tsks:app", "there is no module tsks in {here} or on Python's path, did you mean tasks?"),
        (
            "nowhere.at.all:app",
            "there is no module nowhere.at.all in {here} or on Python's path: correct the name, or change to its folder",
        ),
        ("tasks.py:app", "tasks.py is a file; write it as a module: tasks:app"),
        (
            "no-name:app",
            "'no-name' is not a module name (letters, digits, _ and dots): write MODULE:APP, e.g. tasks:app",
        ),
        ("tasks:nothing", "module tasks has no 'nothing' (there is app)"),
        ("tasks:number", "tasks:number is not an App, its type is int (there is app): name an App"),
        ("empty", "module empty has no app; make one: app = App()"),
        ("twice", "module twice has 2 apps; write twice:one"),
        (
            "syntax:app",
            "module syntax cannot be imported: SyntaxError: invalid syntax (syntax.py:1); --debug shows the whole trace",
        ),
        (
            "imports:app",
            "module imports cannot be imported: ModuleNotFoundError: No module named 'no_such_thing' (imports.py:2); --d",
        ),
        (
            "raises:app",
            "module raises cannot be imported: JSONDecodeError: Expecting property name enclosed in double quotes: ",
        ),
        ("leaves:app", "module leaves cannot be imported: SystemExit: bye (leaves.py:1); --debug shows"),
    ],
)
def test_an_app_that_cannot_be_loaded_is_one_line(shell, place, line):
    for name, text in MODULES.items():
        (shell.folder / f"{name}.py").write_text(text)
    assert shell.no(2, "work", place).startswith(line.format(here=shell.folder))


def test_the_line_names_the_apps_own_file_and_debug_shows_the_trace(shell):
    (shell.folder / "raises.py").write_text(MODULES["raises"])
    assert "(raises.py:4)" in shell.no(2, "work", "raises:app")
    trace = shell.run("work", "raises:app", "--debug").stderr
    assert "Traceback" in trace
    assert "json.loads('{')" in trace


def test_a_worker_needs_an_app(shell):
    assert shell.no(2, "work") == "MODULE:APP is missing: say where the tasks are, or set SUBLET_APP"
    assert shell.no(2, "work", "tasks:app", "--queues", "a/b,c").startswith("queue 'a/b': use")
    assert (
        shell.no(2, "work", "tasks:app", SUBLET_WORKER_ID="a b")
        == "SUBLET_WORKER_ID 'a b': use 1 to 128 of A-Z a-z 0-9 _ . : -, but not . or .. alone"
    )


# ── servers that do not answer, or are not Redis ─────────────────────────────────────────────────────────────────────


COMMANDS = [
    "submit add",
    "submit add --wait",
    "get 0-x",
    "list",
    "queues",
    "stats",
    "cancel 0-x",
    "tick",
    "doctor",
    "workers",
    "workers drain w1",
    "work tasks:app --wait 0",
    "work tasks:app --wait 0 --queues a",
]


@pytest.mark.parametrize("words", COMMANDS)
def test_an_unreachable_server_is_exit_code_3(shell, words):
    line = shell.no(3, *words.split(), "--redis-url", "unix:///nowhere/redis.sock")
    assert line.startswith("no answer from Redis at unix:///nowhere/redis.sock (")
    assert "is it up, and is SUBLET_REDIS_URL right?" in line
    assert (
        not words.startswith("submit")
        or "right? If in doubt whether the job was stored: repeating it with --id 0-" in line
    )


def test_tls_to_a_port_without_it_is_explained(shell):
    words = "does that port speak TLS (if not, use redis:// instead of rediss://)"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"rediss://127.0.0.1:{silent.getsockname()[1]}"
        assert words in shell.no(3, "stats", "--redis-url", url, SUBLET_TIMEOUT="0.3")
    assert "TLS" not in shell.no(3, "stats", "--redis-url", "rediss://127.0.0.1:1")


def test_a_submit_without_a_reply_explains_how_to_repeat_it(shell):
    line = shell.no(3, "submit", "add", "--redis-url", "unix:///nowhere/redis.sock")
    job_id = line.partition(" --id ")[2].split()[0]
    assert shell.ok("submit", "add", "--id", job_id) == job_id


@pytest.fixture
def web_server():
    """A port that answers everything as a web server does."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    threading.Thread(target=serve, daemon=True).start()
    yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.mark.parametrize("words", ["submit add", "stats", "work tasks:app", "doctor"])
def test_a_server_that_is_not_redis_is_recognised(shell, web_server, words):
    line = shell.no(3, *words.split(), "--redis-url", web_server)
    assert line == f"the server at {web_server} does not speak Redis's protocol: check SUBLET_REDIS_URL"
    assert json.loads(shell.no(3, *words.split(), "--redis-url", web_server, "--json"))["error"] == "UNFIT"


def test_a_wrong_password_is_reported_and_not_shown(shell):
    url = shell.env["SUBLET_REDIS_URL"].replace("://", "://somebody:hunter2@", 1)
    line = shell.no(3, "stats", "--redis-url", url)
    assert "check user and password" in line
    assert "hunter2" not in line


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full on this system")
@pytest.mark.parametrize("words", ["stats", "stats --json", "help", "submit add", "work tasks:app --drain"])
def test_a_full_disk_is_not_reported_as_a_bug(shell, words):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*shell.command, *words.split()], cwd=shell.folder, env=shell.env, stdout=full,
                              stderr=subprocess.PIPE, text=True, timeout=60)  # fmt: skip
        both = subprocess.run(
            [*shell.command, *words.split()],
            cwd=shell.folder,
            env=shell.env,
            stdout=full,
            stderr=full,
            timeout=60,
        )
    assert (done.returncode, both.returncode) == (74, 74)
    assert "the output cannot be written: No space left on device" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    if words == "submit add":
        jobs = shell.json("list")["jobs"]
        assert [f"{job['id']} is submitted; see " in done.stderr for job in jobs].count(True) == 1, (
            "the other's stderr was full"
        )


@pytest.mark.parametrize(
    "words", ["stats", "help", "submit add", "submit add --json", "work tasks:app --drain"]
)
def test_a_closed_output_is_not_reported_as_a_bug_and_the_job_is_named(shell, words):
    done = subprocess.run(["sh", "-c", f"{shlex.join([*shell.command, *words.split()])} >&- <&-"], cwd=shell.folder,
                          env=shell.env, stderr=subprocess.PIPE, text=True, timeout=60)  # fmt: skip
    last = done.stderr.splitlines()[-1]
    assert (done.returncode, "the output cannot be written: Bad file descriptor" in last) == (74, True), last
    if words.startswith("submit"):
        (job,) = shell.json("list")["jobs"]
        assert f"{job['id']} is submitted; see sublet get {job['id']}" in last
        assert "--json" not in words or json.loads(last)["id"] == job["id"]


def test_a_job_whose_id_cannot_be_printed_is_named_on_stderr(shell):
    read, write = os.pipe()
    os.close(read)
    env = shell.env | {
        "PYTHONUNBUFFERED": ""
    }  # the output stays in this process's buffer for a while, as it usually does
    done = subprocess.run([*shell.command, "submit", "add"], cwd=shell.folder, env=env, stdout=write,
                          stderr=subprocess.PIPE, text=True, timeout=60)  # fmt: skip
    os.close(write)
    (job,) = shell.json("list")["jobs"]
    assert (done.returncode, f"{job['id']} is submitted" in done.stderr) == (141, True)


def test_a_submit_that_waits_and_loses_the_server_prints_the_id(shell, tmp_path):
    with EmbeddedServer.start(tmp_path / "own", persistent=False) as server:
        shell.env["SUBLET_REDIS_URL"] = server.url
        waiting = shell.start("submit", "add", "--wait", "60", "--json")
        while not shell.json("stats")["totals"]["submitted"]:
            pass
        (job,) = shell.json("list")["jobs"]
        os.kill(server.pid, signal.SIGKILL)
        output = json.loads(waiting.communicate(timeout=30)[1])
        assert (waiting.returncode, output["error"], output["id"]) == (3, "UNAVAILABLE", job["id"])
        assert output["message"].endswith(
            f"{job['id']} is submitted and continues; see sublet get {job['id']}"
        )


def test_ctrl_c_before_the_reply_names_the_job_that_may_exist(monkeypatch, capsys):
    sent = []

    def stop(client, jobs):
        sent.extend(jobs)
        raise KeyboardInterrupt

    monkeypatch.setattr("sublet.client.sync_client.SyncClient.submit_all", stop)
    assert main.run(["submit", "add", "--check-tasks", "off"]) == 130
    words = f"if in doubt whether the job was stored: repeating it with --id {sent[0].id} is safe"
    assert capsys.readouterr().err == f"sublet: interrupted; {words}\n"


def test_a_bug_is_reported_in_one_line_and_debug_shows_the_trace(monkeypatch, capsys):
    monkeypatch.setattr("sublet.cli.develop.project.version", lambda args: 1 // 0)
    assert main.run(["version"]) == 70
    line = capsys.readouterr().err
    assert re.fullmatch(
        r"sublet: a bug in Sublet, ZeroDivisionError at \S+:\d+: .*; please report it with the output of --debug\n",
        line,
    )
    main.run(["version", "--debug"])
    assert "Traceback" in capsys.readouterr().err
