"""The ASGI application on a real uvicorn: clients that disconnect, unsent responses, start and stop."""

import asyncio
import contextlib
import gc
import signal
import threading
import weakref

import pytest
import uvicorn
from starlette.middleware.base import BaseHTTPMiddleware

from sublet.connection.settings import Settings
from sublet.devtools.embedded_server import EmbeddedServer
from sublet_functions.adapters.asgi_exchange import AHEAD, RequestStream
from sublet_functions.asgi import Asgi
from sublet_functions.http.limits import Limits
from sublet_functions.http.response import Response
from sublet_functions.server.sockets import listen, url_of
from tests.support.http_server import ADMIN, Held, ask, wire
from tests.support.platforms import asgi, asked_at, asking_for, environment, spawned
from tests.support.program_runs import soon

pytest_plugins = ["tests.support.http_settings"]

GET = b"GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n"
EXPECTING = GET[:-2] + b"Expect: 100-continue\r\n\r\n"
SCOPE = {"type": "http", "method": "GET", "path": "/", "headers": [], "raw_path": b"/", "query_string": b""}


@pytest.fixture(scope="module")
def redis_url(new_server):
    return new_server("valkey").url


class Core(Held):
    """A core whose responses are held back."""

    def __init__(self, *args, trouble=None, **how):
        super().__init__(*args, **how)
        self.trouble = trouble

    async def start(self):
        self.notes.append("started")

    def hurry(self):
        self.go.set()

    async def finish(self):
        self.notes.append("finished")

    async def aclose(self):
        self.notes.append("closed")


class Streaming(Core):
    """A core whose response streams the given pieces."""

    def __init__(self, finishes=False):
        super().__init__()
        self.pieces, self.finishes = asyncio.Queue(), finishes

    async def answer(self, request):
        return Response(200, self.stream(), {"Content-Type": "text/event-stream"}, finite=self.finishes)

    async def stream(self):
        try:
            while piece := await self.pieces.get():
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.notes.append("ended")


@contextlib.asynccontextmanager
async def uvicorn_of(app, **options):
    """A uvicorn on this event loop until the end of the block; yields its URL."""
    (one,) = listen("127.0.0.1", 0, loopback_only=True)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, **options))
    task = asyncio.create_task(server.serve([one]))
    try:
        await soon(lambda: server.started or task.done())
        yield url_of("127.0.0.1", one), server
    finally:
        server.should_exit = True
        async with asyncio.timeout(30):
            await task


@contextlib.asynccontextmanager
async def fronting(core, limits=Limits(), **options):  # noqa: B008  frozen
    async with uvicorn_of(Asgi(lambda: core, limits), **options) as (url, _):
        core.notes.clear()
        yield url


@pytest.mark.parametrize("asking", [GET, EXPECTING], ids=["", "expecting"])
async def test_a_handler_is_cancelled_when_its_client_disconnects(asking, monkeypatch):
    monkeypatch.setattr("sublet_functions.asgi.CONTINUE_SECONDS", 0.2)
    core = Core()
    async with fronting(core) as url:
        for rudely in (False, True):
            core.asked.clear()
            async with wire(url) as one:
                one.write(asking)
                await asyncio.wait_for(core.asked.wait(), 30)
                one.close(rudely=rudely)
                await soon(lambda: core.notes)
            assert core.notes == ["cancelled"]
            core.notes.clear()


@pytest.mark.parametrize("size", [5, 5_000_000])
async def test_an_undeliverable_response_is_discarded(size):
    core = Core(b"x" * size, stubborn=True)
    async with fronting(core) as url:
        async with wire(url) as one:
            one.write(GET)
            await asyncio.wait_for(core.asked.wait(), 30)
        await soon(lambda: len(core.notes) == 2)
        assert core.notes == ["cancelled", "undone"]


@pytest.mark.parametrize("http", ["h11", "httptools"])
@pytest.mark.parametrize("size", [0, 5, 5_000_000])
async def test_a_delivered_response_is_not_undone(size, http):
    core = Core(b"x" * size)
    core.go.set()
    async with fronting(core, http=http) as url, wire(url) as one:
        for _ in range(3):
            one.write(GET)
            assert len((await one.answer()).body) == size
    assert core.notes == ["finished", "closed"]


@pytest.mark.parametrize("leaves", [True, False], ids=["disconnects", "stops reading"])
async def test_a_partly_delivered_response_is_discarded(leaves):
    core = Core(b"x" * 50_000_000)
    core.go.set()
    async with fronting(core, Limits(send_seconds=30 if leaves else 0.3)) as url, wire(url) as one:
        one.write(GET)
        await one.reader.readexactly(1000)
        if leaves:
            one.close(rudely=True)
        await soon(lambda: core.notes)
        assert core.notes == ["undone"]


@pytest.mark.parametrize("asking", [GET, EXPECTING], ids=["", "expecting"])
async def test_a_response_is_undone_if_its_client_disconnects_at_the_same_moment(asking):
    """Only the system has noticed the disconnect: the event loop needs another iteration before the server
    reports it.
    """
    core = Core()
    async with fronting(core) as url, wire(url) as one:
        one.write(asking)
        await asyncio.wait_for(core.asked.wait(), 30)
        one.close(rudely=True)
        core.go.set()
        await soon(lambda: core.notes)
        assert core.notes in (["undone"], ["cancelled"])


async def test_a_failed_cleanup_affects_no_other_request(caplog):
    core = Core(stubborn=True)

    async def undo():
        raise RuntimeError("with a s3cret in it")

    core.undo = undo
    async with fronting(core) as url:
        async with wire(url) as one:
            one.write(GET)
            await asyncio.wait_for(core.asked.wait(), 30)
        await soon(lambda: "was not cleaned up" in caplog.text)
        core.go.set()
        assert (await ask(url, "GET", "/")).status == 200
    assert "s3cret" not in caplog.text


class Passing(BaseHTTPMiddleware):
    """Like an application's own `@app.middleware("http")`."""

    async def dispatch(self, request, call_next):
        return await call_next(request)


async def test_a_disconnect_is_not_an_error_for_middleware(caplog):
    core = Core()
    async with uvicorn_of(Passing(Asgi(lambda: core))) as (url, _):
        async with wire(url) as one:
            one.write(GET)
            await asyncio.wait_for(core.asked.wait(), 30)
        await soon(lambda: "cancelled" in core.notes)
        core.go.set()
        assert (await ask(url, "GET", "/")).body == b"taken"
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_a_failing_receive_is_answered_with_503(caplog):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        raise RuntimeError("the server's own")

    await Asgi(Core)(SCOPE, receive, send)
    assert [(message["type"], message.get("status")) for message in sent] == [
        ("http.response.start", 503),
        ("http.response.body", None),
    ]
    assert "a client counts as disconnected: the ASGI server raised RuntimeError" in caplog.text


# unread bodies


def pieces_of(count, size=1000):
    """ASGI messages of a body with this number of pieces and a disconnect."""
    sent = [
        {"type": "http.request", "body": b"%d" % (n % 10) * size, "more_body": True} for n in range(count)
    ]

    async def receive():
        await asyncio.sleep(0)
        return sent.pop(0) if sent else {"type": "http.disconnect"}

    return receive, sent


async def test_a_disconnect_is_noticed_behind_an_unread_body():
    receive, sent = pieces_of(50)
    caller = RequestStream(receive, 30)
    caller.start()
    await asyncio.wait_for(asyncio.shield(caller.disconnected), 30)
    assert not sent
    assert len(await caller.readany()) == 50_000, "a small body is kept for a late reader"


@pytest.mark.parametrize("answered", [True, False], ids=["after a response", "after a timeout"])
async def test_only_the_beginning_of_an_unread_body_is_held_for_a_short_time(answered):
    receive, sent = pieces_of(500)
    caller = RequestStream(receive, 30 if answered else 0.2)
    caller.start()
    await soon(lambda: len(sent) <= 434)
    assert len(caller._held) == 66_000
    if answered:
        caller.discard()
    await asyncio.wait_for(asyncio.shield(caller.disconnected), 30)
    assert (sent, len(caller._held)) == ([], 0)
    with pytest.raises(OSError, match="not read in time"):
        await caller.readany()


async def test_a_large_body_is_read_completely_and_in_order():
    receive, sent = pieces_of(500)
    want = b"".join(one["body"] for one in sent)
    caller, got = RequestStream(receive, 30), b""
    caller.start()
    while len(got) < len(want):
        got += await asyncio.wait_for(caller.readany(), 30)
        assert len(caller._held) <= AHEAD + 1000
    assert got == want
    assert not caller.is_eof(), "the body is incomplete"


async def test_a_repeated_final_message_is_read_once():
    async def receive():
        return {"type": "http.request", "body": b"all"}

    caller = RequestStream(receive, 30)
    caller.start()
    assert await asyncio.wait_for(caller.readany(), 30) == b"all"
    assert (caller.is_eof(), caller.read_nowait()) == (True, b"")
    await soon(lambda: caller._receiving.done())
    assert not caller.disconnected.done()


async def test_a_stream_is_sent_in_chunks_and_its_connection_stays_usable():
    core = Streaming()
    async with fronting(core) as url, wire(url) as one:
        for _ in range(2):
            one.write(GET)
            await one.reader.readuntil(b"\r\n\r\n")
            for piece in (b"one", b"three"):
                core.pieces.put_nowait(piece)
                assert await one.reader.readexactly(len(piece) + 5) == b"%x\r\n%b\r\n" % (len(piece), piece)
            core.pieces.put_nowait(None)
            assert await one.reader.readexactly(5) == b"0\r\n\r\n"
    assert core.notes[:2] == ["ended"] * 2


async def test_a_stream_ends_when_its_client_disconnects():
    core = Streaming()
    async with fronting(core) as url:
        async with wire(url) as one:
            one.write(GET)
            core.pieces.put_nowait(b"one")
            await one.reader.readuntil(b"one")
        await soon(lambda: core.notes == ["ended"])


async def test_a_failed_stream_has_no_final_chunk(caplog):
    core = Streaming()
    async with fronting(core) as url, wire(url) as one:
        one.write(GET)
        core.pieces.put_nowait(b"one")
        core.pieces.put_nowait(ValueError("with a s3cret in it"))
        with contextlib.suppress(ConnectionError):
            assert not (await one.rest()).endswith(b"0\r\n\r\n")
    assert "a response was cut off: unexpected ValueError" in caplog.text
    assert "s3cret" not in caplog.text


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb", "a\0b"])
async def test_a_line_break_in_a_response_header_is_refused(value, caplog):
    core = Core()
    core.go.set()
    core.answer = lambda request: asyncio.sleep(0, Response(200, headers={"Location": value}))
    async with fronting(core) as url:
        answer = await ask(url, "GET", "/")
        assert (answer.status, "location" in answer.headers) == (500, False)
    assert "a response was cut off: unexpected ValueError" in caplog.text


# start and stop


@pytest.mark.parametrize(
    ("tokens", "env", "why"),
    [
        ("", {}, "no tokens are set, so every request is refused: set SUBLET_TOKENS"),
        ("ci:submit:hunter2", {}, "SUBLET_TOKENS: word 1: secret: use 16 to 512"),
        (ADMIN, {"SUBLET_REDIS_URL": "http://hunter2@localhost"}, "SUBLET_REDIS_URL '"),
        (ADMIN, {"SUBLET_APP": "nowhere:app"}, "nowhere"),
    ],
)
def test_a_server_that_could_not_answer_any_client_fails_at_start(tmp_path, tokens, env, why):
    words = ["uvicorn", "sublet_functions.asgi:app", "--port", "0", "--log-level", "warning"]
    with spawned(words, tmp_path, environment(None, tmp_path, tokens, **env)) as server:
        assert server.wait() == 3
    sent = server.output().splitlines()
    assert why in sent[0]
    assert len(sent) == 2, "the reason, and uvicorn's own message"
    assert "hunter2" not in server.output()


def test_without_a_lifespan_requests_are_refused_without_tokens(tmp_path, redis_url):
    with asgi(Settings(redis_url=redis_url), tmp_path, "--lifespan", "off", SUBLET_TOKENS="") as server:
        for _ in range(2):
            answer = asyncio.run(ask(server.url, "POST", "/jobs", {"task": "t"}))
            assert (answer.status, answer.problem) == (503, "not-set-up")
        assert server.output().count("no tokens are set") == 1


def test_a_signal_answers_waiting_requests_ends_streams_and_stops_the_server(tmp_path, redis_url):
    async def ending(server):
        asked = asked_at(server.url)
        job = (await asked("POST", "/jobs", {"task": "t", "queue": "other"})).json()["id"]
        paths = [
            ("POST", "/jobs/claim", {"wait": 20}),
            ("GET", f"/jobs/{job}?wait=20", None),
            ("POST", "/tick?for=50", None),
        ]
        waiting = [asyncio.create_task(asked(*one)) for one in paths]
        async with wire(server.url) as stream:
            stream.write(asking_for("GET", "/events", None, b"Accept: text/event-stream"))
            async with asyncio.timeout(30):
                await stream.reader.readuntil(b"retry:")
            done, _ = await asyncio.wait(waiting, timeout=0.3)
            assert not done
            server.signal(signal.SIGTERM)
            answers = await asyncio.wait_for(asyncio.gather(*waiting), 10)
            assert [answer.status for answer in answers] == [204, 200, 200]
            assert (await stream.rest()).endswith(b"0\r\n\r\n")

    with asgi(Settings(redis_url=redis_url, namespace="test-end"), tmp_path) as server:
        asyncio.run(ending(server))
        assert server.wait() in (0, -signal.SIGTERM)
        assert "Application shutdown complete" in server.output()
        assert "Traceback" not in server.output()


TASKS = """
import asyncio
from pathlib import Path
from sublet import App

app = App()

@app.task
async def wait() -> None:
    while not Path("go").exists():
        await asyncio.sleep(0.01)
"""


def test_a_signal_lets_a_worker_finish_its_job_and_start_no_other(tmp_path, redis_url):
    (tmp_path / "tasks.py").write_text(TASKS)

    async def working(server):
        asked = asked_at(server.url)
        jobs = [(await asked("POST", "/jobs", {"task": "wait"})).headers["location"] for _ in range(2)]
        work = asyncio.create_task(asked("POST", "/work", {"slots": 1}))
        while (await asked("GET", jobs[0])).json()["state"] != "running":
            await asyncio.sleep(0.02)
        server.signal(signal.SIGTERM)
        await soon(lambda: "Shutting down" in server.output())
        (tmp_path / "go").touch()
        assert (await work).json()["completed"] == 1

    settings = Settings(redis_url=redis_url, namespace="test-work")
    with asgi(settings, tmp_path, SUBLET_APP="tasks:app") as server:
        asyncio.run(asyncio.wait_for(working(server), 30))
        assert server.wait() in (0, -signal.SIGTERM)


def test_without_redis_responses_are_503_until_it_is_back(tmp_path):
    place = tmp_path / "server"
    place.mkdir()
    settings = Settings(redis_url=f"unix://{place}/server.sock", namespace="t")

    async def trying(server):
        asked = asked_at(server.url)
        for path in (("GET", "/readyz"), ("POST", "/jobs/claim", {"wait": 20})):
            answer = await asked(*path)
            assert (answer.status, answer.problem, answer.headers["retry-after"]) == (503, "unavailable", "1")
        with await asyncio.to_thread(EmbeddedServer.start, place, persistent=False):
            assert (await asked("POST", "/jobs", {"task": "t"})).status == 201
        assert (await asked("GET", "/readyz")).status == 503

    with asgi(settings, tmp_path) as server:
        asyncio.run(trying(server))


async def test_the_application_starts_and_stops_with_its_server():
    core = Core()
    async with uvicorn_of(Asgi(lambda: core)):
        assert core.notes == ["started"]
    assert core.notes == ["started", "finished", "closed"]


@pytest.fixture
def received():
    """The signals that this process has received, as a server would."""
    numbers = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


async def test_the_servers_signal_handlers_are_kept(received):
    mine, core = signal.getsignal(signal.SIGTERM), Core()
    async with Asgi(lambda: core).lifespan():
        signal.raise_signal(signal.SIGTERM)
        await soon(lambda: "finished" in core.notes)
        assert received == [signal.SIGTERM]
    assert signal.getsignal(signal.SIGTERM) is mine


async def test_a_signal_ends_endless_streams_and_lets_finite_ones_finish(received):
    for finishes in (False, True):
        core = Streaming(finishes)
        async with fronting(core) as url, wire(url) as one:
            one.write(GET)
            core.pieces.put_nowait(b"one")
            await one.reader.readuntil(b"one\r\n")
            signal.raise_signal(signal.SIGTERM)
            await soon(lambda core=core: "finished" in core.notes)
            if finishes:
                for piece in (b"two", None):
                    core.pieces.put_nowait(piece)
            assert await one.rest() == (b"3\r\ntwo\r\n" if finishes else b"") + b"0\r\n\r\n"


async def test_a_disconnect_after_the_last_piece_undoes_nothing():
    """Some servers report the disconnect while the last piece is still being sent."""
    core, over = Core(), asyncio.Event()
    core.go.set()

    async def send(message):
        if message["type"] == "http.response.body" and not message["more_body"]:
            over.set()
            await asyncio.sleep(0.05)

    async def receive():
        await over.wait()
        return {"type": "http.disconnect"}

    app = Asgi(lambda: core)
    async with app.lifespan():
        await app(SCOPE, receive, send)
    assert core.notes == ["started", "finished", "closed"]


def test_each_event_loop_has_its_own_api(received):
    made = []

    def make():
        made.append(Core())
        made[-1].go.set()
        return made[-1]

    async def get(app):
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "http.request"} if not sent else await asyncio.Event().wait()

        await app(SCOPE, receive, send)
        return sent[0]["status"]

    app = Asgi(make)
    for n in (1, 2):
        assert asyncio.run(get(app)) == 200
        assert len(made) == n
    other = threading.Thread(target=lambda: asyncio.run(get(app)))
    other.start()
    other.join(30)
    assert len(made) == 3
    assert len(app._states) == 1, "the states of closed loops are removed"
    hook, last = signal.getsignal(signal.SIGTERM), weakref.ref(*app._states.values())
    assert asyncio.run(get(app)) == 200
    gc.collect()
    assert last() is None, "no reference to the core remains"
    assert signal.getsignal(signal.SIGTERM) is hook, "all loops share one signal handler"
    signal.raise_signal(signal.SIGTERM)
    assert received == [signal.SIGTERM]


@pytest.mark.parametrize("kind", ["websocket", "http3"])
async def test_other_protocols_than_http_are_refused(kind):
    sent = []

    async def send(message):
        sent.append(message["type"])

    async def receive():
        return {"type": "websocket.connect"}

    if kind == "websocket":
        await Asgi()({"type": "websocket", "path": "/"}, receive, send)
        assert sent == ["websocket.close"]
    else:
        with pytest.raises(NotImplementedError, match="http3"):
            await Asgi()({"type": kind}, receive, send)
