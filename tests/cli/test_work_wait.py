"""`work` starts although its job source is away: it waits, logs that, and goes on."""

import asyncio
import http.server
import json
import signal
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from sublet import App
from sublet.cli.workers.start import Start
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import Denied, Unavailable
from sublet.store import readiness
from sublet_functions.work import work
from tests.support.http_server import serve_process
from tests.support.pages import blocks, free_port, steps
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.command_line"]

PAGE = (ROOT / "docs" / "guides" / "failures.md").read_text()
SCHEDULED = """
from sublet import App

app = App()

@app.schedule(every=3600)
@app.task(queue="mail")
async def report() -> None: ...
"""


@pytest.fixture
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    with EmbeddedServer.start(folder, persistent=False) as server:
        url = server.url
    return SimpleNamespace(path=folder, url=url)


@pytest.fixture
def start(shell):
    workers = []

    def start(*words):
        workers.append(shell.start("work", *words))
        return workers[-1]

    yield start
    for worker in workers:
        worker.kill()
        worker.communicate()


def test_a_worker_waits_for_redis_and_checks_its_start_then(shell, folder, start):
    (shell.folder / "scheduled.py").write_text(SCHEDULED)
    worker = start("scheduled:app", "--redis-url", folder.url, "--queues", "mial")
    line = worker.stderr.readline()
    assert f"warning  waiting for Redis: no answer from Redis at {folder.url} (" in line
    assert "is SUBLET_REDIS_URL right? The worker starts when it answers" in line
    with EmbeddedServer.start(folder.path, persistent=False):
        ready, warning = (json.loads(worker.stdout.readline()) for _ in range(2))
        assert ready["event"] == "ready"
        assert "queue mial: no task of this app uses it" in warning["detail"]
        with SyncClient(Settings.read(folder.url, shell.env["SUBLET_NAMESPACE"])) as client:
            assert [one.name for one in client.schedules.list()] == ["report"]
        worker.send_signal(signal.SIGTERM)
        _, errors = worker.communicate(timeout=20)
    assert worker.returncode == 0
    assert errors.count("\n") == 1
    assert "Redis answers, after " in errors


def test_a_worker_waits_for_the_http_api(shell, start):
    port, settings = free_port(), Settings.read(shell.env["SUBLET_REDIS_URL"], shell.env["SUBLET_NAMESPACE"])
    worker = start("tasks:app", "--source", f"http://127.0.0.1:{port}", "--drain")
    assert f"no answer from the API at http://127.0.0.1:{port} (" in worker.stderr.readline()
    with serve_process(settings, "--port", port):
        events, errors = worker.communicate(timeout=30)
    assert (worker.returncode, errors.count("\n")) == (0, 1)
    assert "the HTTP API answers, after " in errors
    assert [json.loads(line)["event"] for line in events.splitlines()] == ["ready", "summary"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_wait(folder, start, number):
    worker = start("tasks:app", "--redis-url", folder.url)
    worker.stderr.readline()
    began = time.monotonic()
    worker.send_signal(number)
    events, errors = worker.communicate(timeout=20)
    assert time.monotonic() - began < 2
    assert (worker.returncode, errors) == (0, "")
    assert [json.loads(line)["event"] for line in events.splitlines()] == ["summary"]


def test_a_signal_ends_a_call_that_nothing_answers(start):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        worker = start("tasks:app", "--redis-url", f"redis://127.0.0.1:{silent.getsockname()[1]}")
        silent.accept()
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        _, errors = worker.communicate(timeout=20)
    assert time.monotonic() - began < 2, "a call takes up to 8 s"
    assert (worker.returncode, errors) == (0, "")


def test_the_wait_has_an_end_on_request(shell, folder):
    there = ("work", "tasks:app", "--redis-url", folder.url)
    assert shell.no(3, *there, "--wait", "0").startswith(f"no answer from Redis at {folder.url} (")
    for limit in ("--wait", "--for"):
        done = shell.run(*there, limit, "1s")
        waiting, error = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (3, "")
        assert "waiting for up to 1 s for Redis: " in waiting
        assert error.startswith(f"sublet: no answer from Redis at {folder.url} (")
    assert "--wait" in shell.no(2, "work", "tasks:app", "--wait=soon")


async def test_the_command_passes_on_the_seconds_of_its_wait(monkeypatch):
    monkeypatch.setattr(readiness, "PAUSE", 0.01)
    answers = iter([Unavailable("away"), Unavailable("away"), []])

    class Source:
        async def workers(self):
            answer = next(answers)
            if isinstance(answer, Unavailable):
                raise answer
            return answer

    args = SimpleNamespace(wait=None, seconds=60.0)
    assert await Start(App(), args, "http://there").connect(Source()) >= 0.02
    answers = iter([[]])
    assert await Start(App(), args, "http://there").connect(Source()) == 0.0


def test_a_wrong_password_ends_the_worker_at_once(shell):
    url = shell.env["SUBLET_REDIS_URL"].replace("://", "://somebody:hunter2@", 1)
    line = shell.no(3, "work", "tasks:app", "--redis-url", url)
    assert "check user and password" in line
    assert "hunter2" not in line


class Elsewhere(http.server.BaseHTTPRequestHandler):
    status = 404

    def do_GET(self):
        self.send_response(self.status)
        self.send_header("Location", "https://elsewhere.example/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def elsewhere():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "words"), [(404, "did not answer as the API of Sublet"), (302, "redirects")]
)
def test_a_wrong_address_ends_the_worker_at_once(shell, elsewhere, monkeypatch, status, words):
    monkeypatch.setattr(Elsewhere, "status", status)
    assert words in shell.no(3, "work", "tasks:app", "--source", elsewhere)


def test_a_proxy_whose_api_is_away_is_waited_for(shell, elsewhere, monkeypatch):
    monkeypatch.setattr(Elsewhere, "status", 503)
    done = shell.run("work", "tasks:app", "--source", elsewhere, "--wait", "1s")
    assert done.returncode == 3
    assert "waiting for up to 1 s for the HTTP API: " in done.stderr


def test_the_commands_of_the_page_work(shell):
    for step in steps(*(console for _, console in blocks("console", PAGE))):
        words = step.command.partition("#")[0].replace("50s", "1s").split()
        assert shell.run(*words[1:]).returncode == 0, step.command


# the lines of a wait


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)

    async def sleep(seconds):
        clock.now += seconds

    monkeypatch.setattr(readiness.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(readiness.asyncio, "sleep", sleep)
    return clock


async def test_a_wait_is_logged_once_then_each_minute_then_its_end(clock, caplog):
    answers = iter([Unavailable("Redis cannot serve now (READONLY)")] * 250)

    async def call():
        for error in answers:
            raise error
        return "an answer"

    assert await readiness.until_ready(call, "redis://here", None) == ("an answer", 125.0)
    assert [record.getMessage() for record in caplog.records] == [
        "waiting for Redis at redis://here: Redis cannot serve now (READONLY). The worker starts when it answers",
        "still waiting for Redis at redis://here, for 60 s now: Redis cannot serve now (READONLY)",
        "still waiting for Redis at redis://here, for 120 s now: Redis cannot serve now (READONLY)",
        "Redis answers, after 125.0 s",
    ]


@pytest.mark.parametrize("error", [Denied("no"), Unavailable("wrong password", lasting=True)])
async def test_a_lasting_error_is_not_waited_for(clock, caplog, error):
    async def call():
        assert clock.now == 1000.0, "it was called again"
        raise error

    with pytest.raises(type(error)):
        await readiness.until_ready(call, "redis://here", None)
    assert caplog.records == []


async def test_the_seconds_of_the_wait_are_subtracted(store):
    async def connect(source):
        return 3600.0

    async with asyncio.timeout(10):
        await work(App(), store, queues=["q"], seconds=3600, connect=connect)
