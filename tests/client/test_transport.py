"""Failures between a call and its answer: lost replies, servers that are away, wrong, or refuse."""

import asyncio
import contextlib
import re
import socket
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import quote

import pytest
import redis
from redis.connection import parse_url

from sublet.connection import settings as config
from sublet.connection import transport as transports
from sublet.connection.settings import BLOCK_SECONDS, Settings
from sublet.connection.transport import SyncTransport, Transport
from sublet.errors import Demoted, Forbidden, Invalid, Unavailable, Unfit
from sublet.model import Completion, Failure, Submission, Submitted
from sublet.protocol import verbs
from sublet.protocol.scripts import Call, source
from sublet.store.store import Store

pytestmark = pytest.mark.real_server
SECRET = "hunter2-S3cret"


class Proxy:
    """A proxy between a client and a server on loopback; loses the replies to the next `lose` scripts, and
    their connections.
    """

    def __init__(self, url):
        self.target, self.lose, self.scripts, self.connections = parse_url(url), 0, [], 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        user = ":".join(quote(self.target.get(name, "")) for name in ("username", "password"))
        self.settings = Settings(redis_url=f"redis://{user}@127.0.0.1:{port}/{self.target.get('db', 0)}")
        self.sockets = [self.listener]
        self.arrived, self.let_reply = threading.Event(), threading.Event()
        self.let_reply.set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                self.connections += 1
                server = socket.socket(socket.AF_UNIX if "path" in self.target else socket.AF_INET)
                server.connect(
                    self.target.get("path") or (self.target["host"], self.target.get("port", 6379))
                )
                self.sockets += [client, server]
                threading.Thread(target=self.serve, args=(client, server), daemon=True).start()

    def serve(self, client, server):
        """One request, one reply: enough for a client that waits for each."""
        with contextlib.suppress(OSError), client, server:
            while request := client.recv(1 << 20):
                is_script = b"EVAL" in request
                server.sendall(request)
                reply = server.recv(1 << 20)
                if is_script:
                    self.scripts.append(request)
                    self.arrived.set()
                    self.let_reply.wait(5)
                    if self.lose:
                        self.lose -= 1
                        return
                client.sendall(reply)

    def close(self):
        for each in self.sockets:
            with contextlib.suppress(OSError):
                each.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(transports, "PAUSES", (0.001, 0.001))


@pytest.fixture
def proxy(place):
    proxy = Proxy(place.settings.redis_url)
    yield proxy
    proxy.close()


@pytest.fixture(params=["async", "sync"])
async def connect(request):
    """Makes `run` functions over either transport."""
    made = []

    def make(settings):
        made.append(Transport(settings) if request.param == "async" else SyncTransport(settings))
        if request.param == "async":
            return made[-1].run
        return lambda call, run=made[-1].run: asyncio.to_thread(run, call)

    yield make
    for each in made:
        await each.aclose() if isinstance(each, Transport) else each.close()


def settings(port, **more):
    return Settings(redis_url=f"redis://127.0.0.1:{port}", **more)


async def message_of(run, call, kind=Unavailable):
    """The message of the error, which is one line and came in bounded time."""
    begin = time.monotonic()
    with pytest.raises(kind) as caught:
        await run(call)
    assert time.monotonic() - begin < 1.5
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    return str(caught.value)


# lost replies


async def test_a_call_with_a_lost_reply_is_repeated_with_the_same_bytes(desk, proxy, connect):
    run = connect(proxy.settings)
    await desk.submit("a", "b", "c")
    await desk.claim(1)
    proxy.lose = 1
    claimed = await run(verbs.claim(desk.base, claim_id="c" * 22, worker="w", lease=30, n=1, queues=["q"]))
    assert len(proxy.scripts) == 2
    assert proxy.scripts[0] == proxy.scripts[1]
    assert [(lease.id, lease.attempt) for lease in claimed.leases] == [("b", 1)]
    assert desk.members("running") == ["a", "b"]
    assert desk.members("queue:q") == ["c"]


async def test_a_submit_with_a_lost_reply_makes_one_job(desk, proxy, connect):
    run = connect(proxy.settings)
    await desk.submit("known")
    proxy.lose = 2
    answer = await run(verbs.submit(desk.base, [Submission("a", "q", "t", "", b"{}")]))
    assert [submitted.id for submitted in answer] == ["a"]
    assert desk.counter("submitted") == 2
    assert len(set(proxy.scripts)) == 1


@pytest.mark.parametrize("verb", ["complete", "fail"])
async def test_an_outcome_with_a_lost_reply_gets_its_first_answer(desk, proxy, connect, verb):
    run = connect(proxy.settings)
    one, two = await desk.running("a"), await desk.running("b")
    make = {
        "complete": lambda lease: Completion(lease, b"1"),
        "fail": lambda lease: Failure(lease, "Boom", again=False),
    }[verb]
    await desk.run(getattr(verbs, verb)(desk.base, [make(two)]))
    proxy.lose = 1
    assert await run(getattr(verbs, verb)(desk.base, [make(one)])) == [
        "completed" if verb == "complete" else "dead"
    ]
    assert len(proxy.scripts) == 2
    assert desk.counter({"complete": "completed", "fail": "failed"}[verb]) == 2


async def test_redis_py_adds_no_retries(desk, proxy, connect):
    """redis-py would send a script eleven times by default."""
    run = connect(proxy.settings)
    await desk.submit("a")
    proxy.lose = 99
    await message_of(run, verbs.reap(desk.base, limit=1, by="w"))
    assert len(proxy.scripts) == len(transports.PAUSES) + 1


async def test_a_call_is_not_repeated_after_the_claim_memo_may_have_expired(desk, proxy, connect):
    remembered = int(re.search(r"\bMEMO = (\d+)", source("claim"))[1]) / 1000
    assert Settings().patience + max(transports.PAUSES) < remembered
    run = connect(replace(proxy.settings, patience=-1))
    proxy.lose = 99
    await message_of(run, verbs.claim(desk.base, claim_id="c" * 22, worker="w", lease=30, n=1, queues=["q"]))
    assert len(proxy.scripts) == 1


async def test_calls_of_one_turn_share_a_round_trip(desk, proxy):
    await desk.submit("a")
    transport = Transport(proxy.settings)
    await asyncio.gather(
        *(transport.run(verbs.submit(desk.base, [Submission(f"j{i}", "q", "t", "", b"")])) for i in range(50))
    )
    assert (len(proxy.scripts), proxy.connections) == (1, 1)
    await transport.aclose()


async def test_replies_as_redis_sends_them_keep_their_order(connect, place, raw, base):
    run, text = connect(place.settings), f"{base}:text"
    raw.set(text, "x")
    calls = [
        Call((("ECHO", str(i)), ("GET", text), ("GET", f"{base}:none")), list, raw=True) for i in range(5)
    ]
    assert await asyncio.gather(*map(run, calls)) == [[str(i).encode(), b"x", None] for i in range(5)]


async def test_an_error_of_any_raw_reply_is_raised(connect, place, raw, base):
    run, text = connect(place.settings), f"{base}:text"
    raw.set(text, "x")
    with pytest.raises(Unfit, match="wrong type"):
        await run(Call((("GET", text), ("ZSCORE", text, "a"), ("HGETALL", text)), list, raw=True))
    assert await run(Call((("GET", text), ("GET", text)), list, raw=True)) == [b"x", b"x"]


async def test_the_first_call_of_a_turn_is_sent_at_once_on_an_idle_connection(place, base, monkeypatch):
    transport, sent = Transport(place.settings), []
    await transport.run(verbs.init(base))
    send, send_if_idle = transport._pipeline.send, transport._pipeline.send_if_idle

    def note(was_sent: bool) -> bool:
        sent.append(was_sent)
        return was_sent

    monkeypatch.setattr(
        transport._pipeline, "send", lambda requests: (sent.append(len(requests)), send(requests))
    )
    monkeypatch.setattr(transport._pipeline, "send_if_idle", lambda *request: note(send_if_idle(*request)))
    await asyncio.gather(*(transport.run(verbs.init(base)) for _ in range(5)))
    assert sent == [True, False, 4]
    await transport.aclose()


async def test_no_call_overtakes_those_that_wait_for_the_turn_to_end(place, monkeypatch):
    transport, sent = Transport(place.settings), []
    line = SimpleNamespace(
        send_if_idle=lambda command, _: False, send=lambda asks: sent.append([command for command, _ in asks])
    )
    with monkeypatch.context() as patch:
        patch.setattr(transport, "_pipeline", line)
        transport._execute(("FIRST",))
        line.send_if_idle = lambda command, _: sent.append(
            [command]
        )  # all replies have come, in the same turn
        transport._execute(("SECOND",))
        await asyncio.sleep(0)
    assert sent == [[("FIRST",), ("SECOND",)]]
    await transport.aclose()


async def test_any_error_of_the_connection_reaches_the_waiting_calls(desk, proxy, monkeypatch):
    """An error of neither Redis nor the network must not leave them waiting for ever."""
    transport = Transport(proxy.settings)

    def broken(*_, **__):
        raise TypeError("a reply that cannot be read")

    monkeypatch.setattr(transport.client.connection_pool, "make_connection", broken)
    async with asyncio.timeout(10):
        with pytest.raises(TypeError, match="cannot be read"):
            await transport.run(verbs.prune(desk.base, limit=1))
    await transport.aclose()


async def test_calls_in_flight_end_before_the_connections_are_closed(desk, proxy):
    await desk.submit("known")
    transport = Transport(proxy.settings)
    proxy.let_reply.clear()
    sending = asyncio.create_task(
        transport.run(verbs.submit(desk.base, [Submission("a", "q", "t", "", b"")]))
    )
    await asyncio.to_thread(proxy.arrived.wait, 5)
    closing = asyncio.create_task(transport.aclose())
    await asyncio.sleep(0.01)
    proxy.let_reply.set()
    await closing
    assert await sending == [Submitted("a", True)]
    assert (len(proxy.scripts), proxy.connections) == (1, 1)


# servers that are away or wrong


async def test_an_unavailable_server_is_a_one_line_error(connect):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    words = await message_of(connect(settings(port)), verbs.init("{x:0}"))
    assert f"no answer from Redis at redis://127.0.0.1:{port}" in words
    assert "SUBLET_REDIS_URL" in words


async def test_a_server_that_never_answers_times_out(connect):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = await message_of(connect(settings(silent.getsockname()[1], timeout=0.1)), verbs.init("{x:0}"))
    assert "no answer from Redis" in words


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", b"220 mail.example.com ESMTP\r\n"]
)
async def test_another_program_that_answers_is_unfit(connect, answer):
    def serve(listener):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    client.recv(4096)
                    client.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        port = listener.getsockname()[1]
        words = await message_of(connect(settings(port, timeout=0.2)), verbs.init("{x:0}"), Unfit)
    assert f"the server at redis://127.0.0.1:{port} does not speak Redis's protocol" in words


# servers that refuse


@pytest.fixture(scope="session")
def own_servers():
    return {}


@pytest.fixture
def own(new_server, own_servers, backend):
    """A server with settings that tests may change, a client for it, and its URL."""
    if backend not in own_servers:
        own_servers[backend] = new_server(backend)
    url = own_servers[backend].url
    client = redis.Redis.from_url(url)
    yield client, url
    client.config_set("requirepass", "")
    client.config_set("maxmemory-policy", "noeviction")
    client.execute_command("REPLICAOF", "NO", "ONE")
    client.close()


@pytest.mark.parametrize("form", ["unix://:{}@{}", "unix://somebody:{}@{}", "unix://{1}?password={0}"])
async def test_a_wrong_password_is_a_one_line_error_without_it(own, connect, form):
    client, url = own
    client.config_set("requirepass", "another")
    wrong = Settings(redis_url=form.format(SECRET, url.removeprefix("unix://")))
    words = await message_of(connect(wrong), verbs.init("{x:0}"))
    assert "refused this client" in words
    assert "password" in words
    assert SECRET not in words
    assert SECRET not in wrong.shown_url


async def test_a_missing_password_is_a_one_line_error(own, connect):
    client, url = own
    client.config_set("requirepass", SECRET)
    assert "check user and password" in await message_of(
        connect(Settings(redis_url=url)), verbs.init("{x:0}")
    )


async def test_a_missing_password_is_the_same_error_for_large_commands(own, connect):
    """Redis calls those of more than 10 words, or with a word above 16 KiB, a protocol error."""
    client, url = own
    client.config_set("requirepass", SECRET)
    jobs = [Submission(f"0-{i}", "q", "t", "", b"x" * 20_000) for i in range(3)]
    for call in (verbs.submit("{x:0}", jobs), verbs.submit("{x:0}", jobs[:1])):
        words = await message_of(connect(Settings(redis_url=url)), call)
        assert "check user and password" in words


async def test_a_missing_permission_is_a_one_line_error(own, connect):
    client, url = own
    client.acl_setuser(
        "reader", enabled=True, passwords=[f"+{SECRET}"], keys=["*"], categories=["+@read", "+@connection"]
    )
    reader = Settings(redis_url=url.replace("unix://", f"unix://reader:{SECRET}@"))
    words = await message_of(connect(reader), verbs.init("{x:0}"), Forbidden)
    assert "change its rights" in words
    assert SECRET not in words


async def test_a_replica_cannot_serve(own, connect):
    client, url = own
    run = connect(Settings(redis_url=url))
    assert await run(verbs.init("{x:0}")) == "1"
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    assert "cannot serve now (READONLY" in await message_of(
        run, verbs.reap("{x:0}", limit=1, by="w"), Demoted
    )


async def test_a_server_set_to_evict_jobs_is_unfit_unless_allowed_explicitly(own):
    client, url = own
    client.config_set("maxmemory-policy", "allkeys-lru")
    store = Store(Settings(redis_url=url, namespace="evicting"))
    words = await message_of(store.submit, [Submission("a", "q", "t", "", b"{}")], Unfit)
    assert "maxmemory-policy allkeys-lru" in words
    assert "CONFIG SET maxmemory-policy noeviction" in words
    assert client.keys("*evicting*") == []
    await store.aclose()
    risky = Store(Settings(redis_url=url, namespace="evicting", allow_eviction=True))
    assert (await risky.submit([Submission("a", "q", "t", "", b"{}")]))[0].created
    await risky.aclose()


@pytest.mark.parametrize("policy", ["noeviction", "volatile-lru", "volatile-ttl"])
async def test_a_server_that_evicts_only_what_expires_is_fit(own, policy):
    client, url = own
    client.config_set("maxmemory-policy", policy)
    store = Store(Settings(redis_url=url, namespace="fit"))
    await store.prepare()
    await store.aclose()


# the settings


@pytest.mark.parametrize(
    "url",
    [
        *(
            "http://127.0.0.1",
            "127.0.0.1:6379",
            "",
            "redis://host:99999",
            "redis://host:port",
            "redis://a..b",
        ),
        *(
            "redis://h:1/abc",
            "rediss://h:1/1x",
            "redis://h:1/1/2",
            "redis://h:1?db=x",
            "redis://h:1?db=",
            "unix:///a/b?db=-1",
        ),
        *("redis://h:1/1?db=2", "redis+cluster://h:1/abc", "redis+sentinel://h:1/main/abc"),
    ],
)
def test_an_invalid_url_raises_invalid(url, monkeypatch):
    """The error names the source of the URL."""
    for name in ("SUBLET_REDIS_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    if url:
        with pytest.raises(Invalid, match=r"^Redis URL '"):
            Settings.read(redis_url=url)
    for name in ("REDIS_URL", "SUBLET_REDIS_URL"):  # the second one wins
        monkeypatch.setenv(name, url or f"nonsense-{name}")
        with pytest.raises(Invalid, match=rf"^{name} '"):
            Settings.read()


@pytest.mark.parametrize(
    "url", ["redis://h", "redis://h/", "redis://h:1/15", "redis://h?db=3", "redis://h/3?db=3", "unix:///a/b", "unix:///a/b?db=2",
            "redis+cluster://h:1/0", "redis+sentinel://h:1/main/4"]
)  # fmt: skip
def test_a_valid_url_is_kept_unchanged(url):
    assert Settings.read(redis_url=url).redis_url == url


@pytest.mark.parametrize(
    "url", [f"redis://:12?db={SECRET}@host", f"redis://:12?{SECRET}=x@host", "redis://:12?hunters=x@host"]
)
def test_unknown_parts_of_a_url_are_not_shown(url):
    with pytest.raises(Invalid) as caught:
        config.check(Settings(redis_url=url))
    assert not re.search(f"{re.escape(SECRET)}|hunters", str(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@host:1/0",
        f"rediss://me:{SECRET}@host",
        f"unix://me:{SECRET}@/a/b?db=1",
        f"unix:///a/b?password={SECRET}",
    ],
)
def test_a_url_is_shown_without_its_password(url):
    assert SECRET not in Settings(redis_url=url).shown_url
    with pytest.raises(Invalid) as caught:
        Settings.read(redis_url=url.replace("redis", "radish").replace("unix", "unixx"))
    assert SECRET not in str(caught.value)


def test_a_missing_database_is_an_error(server_url):
    url = server_url("valkey")
    wrong = (
        url + ("&" if "?" in url else "?") + "db=99" if url.startswith("unix") else url.rstrip("/") + "/99"
    )
    with pytest.raises(Unfit, match="check the number at the end of SUBLET_REDIS_URL"):
        SyncTransport(Settings(redis_url=wrong)).run(verbs.init("{x:0}"))


async def test_a_blocking_read_does_not_time_out_in_the_client():
    client = config.connect(Settings(timeout=0.5), blocking=True)
    assert client.connection_pool.connection_kwargs["socket_timeout"] > BLOCK_SECONDS
    await client.aclose()
