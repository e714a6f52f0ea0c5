"""The API as a WSGI application: an event loop beside the server's threads, unsent responses, and
disconnecting clients."""

import asyncio
import io
import json
import logging
import socket
import subprocess
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from sublet.connection.settings import Settings
from sublet_functions import wsgi
from sublet_functions.adapters import loop_thread
from sublet_functions.api.routes import ROUTES
from sublet_functions.http.response import Response
from sublet_functions.wsgi import ResponseAborted, Wsgi
from tests.support.http_server import ADMIN, SECRET, Answer
from tests.support.paths import ROOT
from tests.support.platforms import environment
from tests.support.route_samples import named, prepared, sample

WAIT = 30.0


def environ(method="GET", path="/", body=b"", **more):
    """A request as a WSGI server passes it; `HTTP_ACCEPT=…` is a header."""
    place, _, query = path.partition("?")
    made = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": place,
        "QUERY_STRING": query,
        "wsgi.multithread": True,
    }
    made |= {"wsgi.input": io.BytesIO(body), "HTTP_AUTHORIZATION": f"Bearer {SECRET}"}
    made |= {"CONTENT_LENGTH": str(len(body)), "CONTENT_TYPE": "application/json"} if body else {}
    made |= more
    setup_testing_defaults(made)
    return made


class Taken:
    """An application's response, read as far as the server wants."""

    def __init__(self, app, made):
        self.pieces = app(made, self.start)

    def start(self, status, headers, exc_info=None):
        self.status, self.headers = int(status[:3]), {name.lower(): value for name, value in headers}

    def all(self):
        try:
            return Answer(self.status, self.headers, b"".join(self.pieces))
        finally:
            self.pieces.close()


class HeldCore:
    """A core that holds its responses back until `go`, and records their outcome."""

    def __init__(self, body=b"taken", go=True, unsent=True, headers=None, finishes=False):
        self.finishes, self.go = finishes, None
        self.body, self.unsent, self.headers = body, unsent, headers or {}
        self.asked, self.went, self.notes, self.requests = threading.Event(), go, [], []
        self.ended = threading.Event()

    async def answer(self, request, caller=None):
        self.requests.append(request)
        self.go = asyncio.Event()
        if self.went:
            self.go.set()
        self.asked.set()
        try:
            async with asyncio.timeout(WAIT):
                await self.go.wait()
        except asyncio.CancelledError:
            self.note("cancelled")
            raise
        if isinstance(self.body, Exception):
            raise self.body
        if request.read:
            self.note(await request.read(10))
        body = self.body if isinstance(self.body, bytes) else self.stream()
        return Response(
            200, body, self.headers, on_unsent=self.undo if self.unsent else None, finite=self.finishes
        )

    async def stream(self):
        try:
            for piece in self.body:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
            await asyncio.Event().wait()
        finally:
            self.note("closed")

    async def undo(self):
        self.note("undone")

    def note(self, word):
        self.notes.append(word)
        self.ended.set()

    def hurry(self):
        self.notes.append("hurried")
        if self.go:
            self.go.set()

    async def finish(self):
        self.notes.append("finished")

    async def aclose(self):
        self.notes.append("gone")


@pytest.fixture
def applied():
    """Make an application of a core; its loop ends with the test."""
    made = []

    def apply(core):
        made.append(Wsgi(lambda: core))
        return made[-1]

    yield apply
    for app in made:
        app.close()


# responses and their outcome


def test_a_response_read_to_its_end_is_delivered(applied):
    core = HeldCore()
    answer = Taken(applied(core), environ(path="/x?y=1")).all()
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"taken", "5")
    assert core.notes == []
    assert (core.requests[0].path, core.requests[0].query, core.requests[0].streams) == ("/x", "y=1", True)


def test_a_response_not_read_to_its_end_is_undone(applied):
    core = HeldCore()
    taken = Taken(applied(core), environ())
    assert next(taken.pieces) == b"taken"  # the server could not send it
    taken.pieces.close()
    taken.pieces.close()
    assert core.notes == ["undone"]


def test_a_response_to_a_disconnected_client_is_discarded_at_once(applied):
    ours, theirs = socket.socketpair()
    theirs.close()
    core = HeldCore()
    with ours:
        answer = Taken(applied(core), environ(**{"gunicorn.socket": ours})).all()
    assert answer.problem == "timeout"
    assert core.notes == ["undone"]


def test_a_disconnect_cancels_a_waiting_request(applied):
    ours, theirs = socket.socketpair()
    core = HeldCore(go=False)
    with ours, ThreadPoolExecutor(1) as pool:
        answering = pool.submit(lambda: Taken(applied(core), environ(**{"gunicorn.socket": ours})).all())
        assert core.asked.wait(WAIT)
        theirs.close()
        assert answering.result(WAIT).problem == "timeout"
    assert core.notes == ["cancelled"]


def test_a_response_after_its_cancellation_is_undone(applied, monkeypatch):
    monkeypatch.setattr(loop_thread, "DISCARD_SECONDS", 0.05)
    ours, theirs = socket.socketpair()
    theirs.close()
    core, late = HeldCore(), threading.Event()

    async def answer(request, caller=None):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.to_thread(late.wait, WAIT)
        return Response(200, b"taken", on_unsent=core.undo)

    core.answer = answer
    with ours:
        assert Taken(applied(core), environ(**{"gunicorn.socket": ours})).all().problem == "timeout"
    assert core.notes == []
    late.set()
    assert core.ended.wait(WAIT)
    assert core.notes == ["undone"]


def test_no_request_waits_after_the_server_was_asked_to_stop(applied, monkeypatch):
    monkeypatch.setattr(wsgi, "is_ending", lambda: True)
    core = HeldCore(go=False)
    app = applied(core)
    assert Taken(app, environ()).all().body == b"taken"
    assert sorted(set(core.notes)) == ["finished", "hurried"]
    app.close()
    assert core.notes.count("finished") == 1
    assert core.notes[-1] == "gone"


@pytest.mark.parametrize("finishes", [False, True], ids=["an event stream", "a worker"])
def test_a_stop_ends_endless_streams_and_lets_finite_ones_finish(applied, monkeypatch, finishes):
    core, ending = HeldCore([b"one", b"two"], unsent=False, finishes=finishes), []
    monkeypatch.setattr(wsgi, "is_ending", lambda: bool(ending))
    taken = Taken(applied(core), environ())
    assert next(taken.pieces) == b"one"
    ending.append(True)
    assert next(taken.pieces, b"") == (b"two" if finishes else b"")
    taken.pieces.close()
    assert "closed" in core.notes
    assert "finished" in core.notes


def test_each_piece_of_a_stream_has_its_own_send_timeout(applied):
    core, seen = HeldCore([b"one", b"two"], unsent=False), []
    app = applied(core)
    stream = core.stream

    async def watched():
        async for piece in stream():
            seen.append(len(app._thread()._deadlines))
            yield piece

    core.stream = watched
    taken = Taken(app, environ())
    assert len(app._thread()._deadlines) == 1, "the head is being sent"
    assert [next(taken.pieces), len(app._thread()._deadlines)] == [b"one", 1]
    assert [next(taken.pieces), len(app._thread()._deadlines)] == [b"two", 1]
    taken.pieces.close()
    assert (seen, app._thread()._deadlines) == ([0, 0], {}), "no deadline runs while a piece is made"


def test_a_stream_is_sent_piece_by_piece_and_closed_with_its_response(applied):
    core = HeldCore(
        [b"one", b"", b"two"], unsent=False, headers={"Connection": "close", "Content-Type": "text/plain"}
    )
    taken = Taken(applied(core), environ())
    assert taken.headers == {"content-type": "text/plain"}, "hop-by-hop headers are left to the server"
    assert [next(taken.pieces), next(taken.pieces)] == [b"one", b"two"]
    assert core.notes == []
    taken.pieces.close()
    assert core.notes == ["closed"]


def test_a_wsgi_stream_ends_when_its_client_disconnects(applied):
    ours, theirs = socket.socketpair()
    core = HeldCore([b"one"], unsent=False)
    with ours:
        taken = Taken(applied(core), environ(**{"gunicorn.socket": ours}))
        assert next(taken.pieces) == b"one"
        theirs.close()
        assert list(taken.pieces) == []
    assert core.notes == ["closed"]


def test_a_failed_stream_aborts_the_response(applied, caplog):
    taken = Taken(applied(HeldCore([b"one", ValueError("a secret")], unsent=False)), environ())
    assert next(taken.pieces) == b"one"
    with pytest.raises(ResponseAborted):
        next(taken.pieces)
    assert "a secret" not in caplog.text


def test_a_body_is_read_in_the_servers_thread(applied):
    core, threads = HeldCore(), []

    class Input:
        def read(self, size):
            threads.append(threading.current_thread())
            return b"abc"

    Taken(applied(core), environ("POST", body=b"abc", **{"wsgi.input": Input()})).all()
    assert core.notes == [b"abc"]
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize(
    "core",
    [HeldCore(ValueError("a secret")), HeldCore(headers={"X": "a\r\nSet-Cookie: secret"})],
    ids=["core", "header"],
)
def test_an_unexpected_exception_is_a_500_without_details(applied, caplog, core):
    answer = Taken(applied(core), environ()).all()
    assert (answer.status, answer.problem) == (500, "internal")
    assert b"secret" not in answer.body
    assert "secret" not in caplog.text
    assert "unexpected ValueError" in caplog.text


def test_a_blocked_loop_does_not_block_requests_forever(applied, monkeypatch, caplog):
    monkeypatch.setattr(loop_thread, "STUCK_SECONDS", 0.5)
    monkeypatch.setattr(loop_thread, "CHECK_SECONDS", 0.05)
    monkeypatch.setattr(loop_thread, "DISCARD_SECONDS", 0.1)
    go = threading.Event()
    core = HeldCore()
    core.answer = lambda request, caller=None: blocked(go)
    try:
        answer = Taken(applied(core), environ()).all()
    finally:
        go.set()
    assert (answer.status, answer.problem) == (503, "busy")
    assert "the event loop of this process has not run for" in caplog.text


async def blocked(go):
    go.wait(WAIT)


def test_many_threads_share_one_loop(applied):
    core, app = HeldCore(go=False), None
    app = applied(core)
    loops = set()

    async def answer(request, caller=None):
        loops.add(asyncio.get_running_loop())
        await asyncio.sleep(0.01)
        return Response(200, request.path.encode())

    core.answer = answer
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda i: Taken(app, environ(path=f"/{i}")).all().body, range(200)))
    assert answers == [f"/{i}".encode() for i in range(200)]
    assert len(loops) == 1
    app.close()
    assert core.notes == ["hurried", "finished", "gone"]


# the API itself


@pytest.fixture(scope="module")
def settings(server_url):
    return Settings(redis_url=server_url("valkey"), namespace=f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def api(settings, monkeypatch):
    """The API from the environment, as in its module: `await api(method, path, body)`, validated by wsgiref
    at every call.
    """
    for name in ("SUBLET_TOKENS_FILE", "SUBLET_APP", "SUBLET_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SUBLET_REDIS_URL", settings.redis_url)
    monkeypatch.setenv("SUBLET_NAMESPACE", f"test-{uuid.uuid4().hex[:12]}")
    monkeypatch.setenv("SUBLET_TOKENS", ADMIN)
    app = Wsgi()

    async def asked(method, path, body=None, **headers):
        data = b"" if body is None else json.dumps(body).encode()
        made = environ(method, path, data, **headers)
        return await asyncio.to_thread(lambda: Taken(validator(app), made).all())

    yield asked
    app.close()


async def test_every_route_passes_the_wsgi_validator(api):
    words = await prepared(api)
    for route in ROUTES:
        one = sample(route)
        path = one.path
        for word, meaning in words.items():
            path = path.replace(word, meaning)
        body = json.loads(
            json.dumps(one.body).replace("TOKEN", words["TOKEN"]).replace("RUNNING", words["RUNNING"])
        )
        answer = await api(route.method, path, body)
        assert answer.status < 500, (named(route), answer)
        if route.method == "GET":
            answer = await api("HEAD", path)
            assert answer.body == b""


async def test_without_threads_an_event_stream_ends_after_the_present_events(api):
    await api("POST", "/jobs", {"task": "t"})
    answer = await api(
        "GET", "/events?after=0", HTTP_ACCEPT="text/event-stream", **{"wsgi.multithread": False}
    )
    assert b"event: queued" in answer.body


async def test_invalid_settings_are_logged_once_and_not_sent_to_clients(api, monkeypatch, caplog):
    monkeypatch.setenv("SUBLET_REDIS_URL", "nonsense://s3cret@there")
    for _ in range(2):
        answer = await api("GET", "/healthz")
        assert answer.problem == "not-set-up"
        assert b"nonsense" not in answer.body
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


FORKS = """
import os, sys, threading
from sublet_functions.wsgi import app
assert threading.active_count() == 1 and not app._threads, "nothing at import"
def ask():
    statuses = []
    given = {"REQUEST_METHOD": "GET", "PATH_INFO": "/stats", "HTTP_AUTHORIZATION": "Bearer " + sys.argv[1]}
    body = b"".join(app(given, lambda status, headers: statuses.append(status)))
    return statuses[0] == "200 OK", app._threads[os.getpid()]
good, own = ask()
pid = os.fork()
if pid == 0:
    also, another = ask()
    sys.exit(0 if also and another is not own else 3)
print(good, os.waitpid(pid, 0)[1], *ask()[:1])
"""


def test_a_forked_process_has_its_own_loop(settings, tmp_path):
    words = [sys.executable, "-c", FORKS, SECRET]
    ran = subprocess.run(
        words, env=environment(settings, tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout, ran.stderr) == ("True 0 True\n", "")


ENDS = """
from sublet_functions.http.response import Response
from sublet_functions.wsgi import Wsgi
class Core:
    async def answer(self, request, caller=None):
        return Response(200, b"!")
    def hurry(self):
        print("hurried", flush=True)
    async def finish(self):
        print("finished", flush=True)
    async def aclose(self):
        print("gone", flush=True)
app = Wsgi(Core)
print(b"".join(app({"REQUEST_METHOD": "GET"}, lambda status, headers: None)), flush=True)
"""


def test_an_exit_releases_jobs_and_closes_connections():
    ran = subprocess.run([sys.executable, "-c", ENDS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ran.stdout.split(), ran.stderr) == (["b'!'", "hurried", "finished", "gone"], "")
