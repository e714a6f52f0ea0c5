"""The API as a WSGI application: a loop beside the threads of its server, answers that nobody takes, and callers who leave."""

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
from tests.support.http_server import ADMIN, ROOT, SECRET, Answer
from tests.support.platforms import environment
from tests.support.route_samples import named, prepared, sample

WAIT = 30.0


def environ(method="GET", path="/", body=b"", **more):
    """A request as a WSGI server hands it over; `HTTP_ACCEPT=…` is a header."""
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
    """What an application answers, taken as far as a server likes."""

    def __init__(self, app, made):
        self.pieces = app(made, self.start)

    def start(self, status, headers, exc_info=None):
        self.status, self.headers = int(status[:3]), {name.lower(): value for name, value in headers}

    def all(self):
        try:
            return Answer(self.status, self.headers, b"".join(self.pieces))
        finally:
            self.pieces.close()


class Stand:
    """A core whose answers are held back until `go`, and that notes what becomes of them."""

    def __init__(self, body=b"taken", go=True, unsent=True, headers=None, finishes=False):
        self.finishes, self.go = finishes, None
        self.body, self.unsent, self.headers = body, unsent, headers or {}
        self.asked, self.went, self.notes, self.requests = threading.Event(), go, [], []
        self.ended = threading.Event()

    async def answer(self, request, who=None):
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


# the answer, and what becomes of it


def test_an_answer_that_was_taken_to_its_end_counts(applied):
    core = Stand()
    answer = Taken(applied(core), environ(path="/x?y=1")).all()
    assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"taken", "5")
    assert core.notes == []
    assert (core.requests[0].path, core.requests[0].query, core.requests[0].streams) == ("/x", "y=1", True)


def test_an_answer_whose_end_was_not_asked_for_is_undone(applied):
    core = Stand()
    taken = Taken(applied(core), environ())
    assert next(taken.pieces) == b"taken"  # the server could not send it
    taken.pieces.close()
    taken.pieces.close()
    assert core.notes == ["undone"]


def test_a_response_to_a_disconnected_client_is_discarded_at_once(applied):
    ours, theirs = socket.socketpair()
    theirs.close()
    core = Stand()
    with ours:
        answer = Taken(applied(core), environ(**{"gunicorn.socket": ours})).all()
    assert answer.problem == "timeout"
    assert core.notes == ["undone"]


def test_a_disconnect_cancels_a_waiting_request(applied):
    ours, theirs = socket.socketpair()
    core = Stand(go=False)
    with ours, ThreadPoolExecutor(1) as pool:
        answering = pool.submit(lambda: Taken(applied(core), environ(**{"gunicorn.socket": ours})).all())
        assert core.asked.wait(WAIT)
        theirs.close()
        assert answering.result(WAIT).problem == "timeout"
    assert core.notes == ["cancelled"]


def test_an_answer_that_comes_after_it_was_called_off_is_undone_however_late(applied, monkeypatch):
    monkeypatch.setattr(loop_thread, "DISCARD_SECONDS", 0.05)
    ours, theirs = socket.socketpair()
    theirs.close()
    core, late = Stand(), threading.Event()

    async def answer(request, who=None):
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
    core = Stand(go=False)
    app = applied(core)
    assert Taken(app, environ()).all().body == b"taken"
    assert sorted(set(core.notes)) == ["finished", "hurried"]
    app.close()
    assert core.notes.count("finished") == 1
    assert core.notes[-1] == "gone"


@pytest.mark.parametrize("finishes", [False, True], ids=["events", "a worker"])
def test_a_stream_is_cut_short_when_the_server_stops_unless_it_ends_by_itself(applied, monkeypatch, finishes):
    core, ending = Stand([b"one", b"two"], unsent=False, finishes=finishes), []
    monkeypatch.setattr(wsgi, "is_ending", lambda: bool(ending))
    taken = Taken(applied(core), environ())
    assert next(taken.pieces) == b"one"
    ending.append(True)
    assert next(taken.pieces, b"") == (b"two" if finishes else b"")
    taken.pieces.close()
    assert "closed" in core.notes
    assert "finished" in core.notes


def test_the_caller_has_some_time_to_take_a_piece_and_the_next_one_has_its_own(applied):
    core, seen = Stand([b"one", b"two"], unsent=False), []
    app = applied(core)
    stream = core.stream

    async def watched():
        async for piece in stream():
            seen.append(len(app._thread()._deadlines))
            yield piece

    core.stream = watched
    taken = Taken(app, environ())
    assert len(app._thread()._deadlines) == 1, "the head is on its way"
    assert [next(taken.pieces), len(app._thread()._deadlines)] == [b"one", 1]
    assert [next(taken.pieces), len(app._thread()._deadlines)] == [b"two", 1]
    taken.pieces.close()
    assert (seen, app._thread()._deadlines) == ([0, 0], {}), "while a piece is made, nobody is late"


def test_the_pieces_of_a_stream_come_one_by_one_and_an_end_that_is_not_waited_for_closes_it(applied):
    core = Stand(
        [b"one", b"", b"two"], unsent=False, headers={"Connection": "close", "Content-Type": "text/plain"}
    )
    taken = Taken(applied(core), environ())
    assert taken.headers == {"content-type": "text/plain"}, "what is said from hop to hop is the server's"
    assert [next(taken.pieces), next(taken.pieces)] == [b"one", b"two"]
    assert core.notes == []
    taken.pieces.close()
    assert core.notes == ["closed"]


def test_a_stream_ends_when_its_caller_has_gone(applied):
    ours, theirs = socket.socketpair()
    core = Stand([b"one"], unsent=False)
    with ours:
        taken = Taken(applied(core), environ(**{"gunicorn.socket": ours}))
        assert next(taken.pieces) == b"one"
        theirs.close()
        assert list(taken.pieces) == []
    assert core.notes == ["closed"]


def test_a_stream_that_breaks_off_is_not_taken_for_all_of_it(applied, caplog):
    taken = Taken(applied(Stand([b"one", ValueError("a secret")], unsent=False)), environ())
    assert next(taken.pieces) == b"one"
    with pytest.raises(ResponseAborted):
        next(taken.pieces)
    assert "a secret" not in caplog.text


def test_a_body_is_read_by_the_thread_that_the_server_gave_the_request(applied):
    core, threads = Stand(), []

    class Input:
        def read(self, size):
            threads.append(threading.current_thread())
            return b"abc"

    Taken(applied(core), environ("POST", body=b"abc", **{"wsgi.input": Input()})).all()
    assert core.notes == [b"abc"]
    assert threads == [threading.current_thread()]


@pytest.mark.parametrize(
    "core",
    [Stand(ValueError("a secret")), Stand(headers={"X": "a\r\nSet-Cookie: secret"})],
    ids=["core", "header"],
)
def test_a_defect_is_a_plain_500(applied, caplog, core):
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
    core = Stand()
    core.answer = lambda request, who=None: blocked(go)
    try:
        answer = Taken(applied(core), environ()).all()
    finally:
        go.set()
    assert (answer.status, answer.problem) == (503, "busy")
    assert "has been blocked" in caplog.text


async def blocked(go):
    go.wait(WAIT)


def test_many_threads_share_one_loop(applied):
    core, app = Stand(go=False), None
    app = applied(core)
    loops = set()

    async def answer(request, who=None):
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
    """The API of the environment, as its module has it: `await api(method, path, body)`, judged by wsgiref at every call."""
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


async def test_every_route_answers_as_the_standard_library_says_that_wsgi_is(api):
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


async def test_where_one_request_is_answered_at_a_time_a_stream_says_what_there_is_and_ends(api):
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
    said = []
    given = {"REQUEST_METHOD": "GET", "PATH_INFO": "/stats", "HTTP_AUTHORIZATION": "Bearer " + sys.argv[1]}
    body = b"".join(app(given, lambda status, headers: said.append(status)))
    return said[0] == "200 OK", app._threads[os.getpid()]
good, own = ask()
pid = os.fork()
if pid == 0:
    also, another = ask()
    sys.exit(0 if also and another is not own else 3)
print(good, os.waitpid(pid, 0)[1], *ask()[:1])
"""


def test_a_fork_makes_a_loop_of_its_own_and_leaves_the_other_alone(settings, tmp_path):
    words = [sys.executable, "-c", FORKS, SECRET]
    ran = subprocess.run(
        words, env=environment(settings, tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (ran.stdout, ran.stderr) == ("True 0 True\n", "")


ENDS = """
from sublet_functions.http.response import Response
from sublet_functions.wsgi import Wsgi
class Core:
    async def answer(self, request, who=None):
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


def test_at_an_orderly_exit_workers_give_back_and_connections_close():
    ran = subprocess.run([sys.executable, "-c", ENDS], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ran.stdout.split(), ran.stderr) == (["b'!'", "hurried", "finished", "gone"], "")
