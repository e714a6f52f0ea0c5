"""The invoker `http`: signed requests to checked addresses within a time limit, whatever the target answers."""

import asyncio
import contextlib
import gzip
import json
import shutil
import socket
import ssl
import subprocess
import sys
import time

import pytest

pytest.importorskip("aiohttp")

from sublet.scaling import invokers as module
from sublet.scaling.invokers import Invocation, InvocationFailed, NoInvoker, call_each, invokers_of
from sublet.scaling.invokers import http as http_module
from sublet.scaling.invokers.addresses import Reach
from sublet.scaling.invokers.http import HttpInvoker
from sublet.scaling.signing import Secrets
from tests.support.program_runs import soon

SECRETS = Secrets("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
OK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Played:
    """A server that reads a request; `do` is its response, or a function of its writer."""

    def __init__(self, do):
        self.do, self.requests, self.ended = do, [], []

    async def __call__(self, reader, writer):
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            headers = {
                name.lower(): value
                for name, _, value in (line.partition(": ") for line in head.split("\r\n")[1:-2])
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.requests.append((head.split("\r\n")[0], headers, body))
            if isinstance(self.do, bytes):
                writer.write(self.do)
            else:
                await self.do(writer)
            if b"chunked" not in (self.do if isinstance(self.do, bytes) else b""):
                return
            self.ended.append(await reader.read(1))
        except (OSError, asyncio.IncompleteReadError) as error:
            self.ended.append(error)
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def playing(do, **how):
    played = Played(do)
    server = await asyncio.start_server(played, "127.0.0.1", 0, **how)
    played.port = server.sockets[0].getsockname()[1]
    played.url = f"http{'s' if how else ''}://127.0.0.1:{played.port}/work?for=50"
    try:
        yield played
    finally:
        server.close()


@pytest.fixture
async def invoker():
    one = HttpInvoker(SECRETS, Reach.LOCAL)
    yield one
    await one.aclose()


def request_of(url, *summons):
    return Invocation("images", url, ("a", "b"), 4, 2.5, summons or ("s.1",))


async def why(invoker, url, *summons):
    """The reason that this process logs."""
    with pytest.raises(InvocationFailed) as failed:
        await invoker.invoke(request_of(url, *summons))
    return failed.value.detail


@pytest.mark.parametrize("host", ["127.0.0.1", "inside.example"])
async def test_the_failure_of_a_private_call_does_not_reveal_which_ports_are_open(host, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.5)
    invoker = HttpInvoker(SECRETS, Reach.LOCAL, resolve=naming("127.0.0.1"))
    seen, logged = set(), set()

    async def hang(writer):
        await asyncio.sleep(20)

    async def call(port, scheme="http"):
        with pytest.raises(InvocationFailed) as failed:
            await invoker.invoke(request_of(f"{scheme}://{host}:{port}/", "s.1", "s.2"))
        assert failed.value.summons == ("s.1", "s.2")
        seen.add(str(failed.value))
        logged.add(failed.value.detail)

    for answer in (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", b"SSH-2.0-OpenSSH\r\n", b"", hang):
        async with playing(answer) as played:
            await call(played.port)
            if isinstance(answer, bytes):
                await call(played.port, "https")
    await call(played.port)
    await invoker.aclose()
    assert seen == {
        "the call of a private address failed: the log of the process that made it has the reason"
    }
    assert len(logged) >= 5


async def test_a_function_is_called_once_for_each_summons_with_a_valid_signature(invoker):
    async with playing(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n") as played:
        await invoker.invoke(request_of(played.url, "s.1", "s.2"))
    assert len(played.requests) == 2
    for line, headers, body in played.requests:
        assert line == "POST /work?for=50 HTTP/1.1"
        sent = json.loads(body)
        assert sent | {"summons": ""} == {
            "pool": "images",
            "queues": ["a", "b"],
            "slots": 4,
            "linger": 2.5,
            "summons": "",
        }
        assert SECRETS.verify(headers, body) == sent["summons"]
        assert (headers["content-type"], headers["user-agent"]) == ("application/json", "sublet")
        assert not {"authorization", "cookie"} & set(headers)
    assert {json.loads(body)["summons"] for *_, body in played.requests} == {"s.1", "s.2"}


async def test_an_invocation_succeeds_with_its_status_and_keeps_the_connection_open(invoker):
    async with playing(OK) as played:
        await invoker.invoke(request_of(played.url))
        done, _ = await asyncio.wait([asyncio.create_task(soon(lambda: played.ended))], timeout=0.3)
        assert not done, "the function may continue"
        await invoker.aclose()
        await soon(lambda: played.ended)


async def test_a_complete_response_is_read_and_its_connection_closed(invoker):
    async with playing(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}") as played:
        await invoker.invoke(request_of(played.url))
        await soon(lambda: not invoker._held)


async def test_an_endless_response_is_read_up_to_a_limit(invoker):
    sent = []

    async def pour(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(10_000):
            writer.write(b"x" * 65536)
            await writer.drain()
            sent.append(65536)

    async with playing(pour) as played:
        await invoker.invoke(request_of(played.url))
        await soon(lambda: played.ended and not invoker._held)
    assert sum(sent) < 64 * 1024 * 1024, "only the system's buffers are filled"


async def test_the_number_of_open_connections_has_a_limit(invoker, monkeypatch):
    monkeypatch.setattr(http_module, "HELD_MAX", 1)
    async with playing(OK) as played:
        await invoker.invoke(request_of(played.url, "s.1", "s.2"))
        await soon(lambda: len(played.ended) == 1)
        assert len(invoker._held) == 1


async def test_a_compressed_response_is_not_decompressed(invoker):
    bomb = gzip.compress(b"0" * 50_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    async with playing(head + bomb) as played:
        await invoker.invoke(request_of(played.url))
        await soon(lambda: not invoker._held)


# failures


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (b"HTTP/1.1 500 Oh\r\nContent-Length: 6\r\n\r\ns3cret", "the target answered 500"),
        (b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", "the target answered 404"),
        (b"HTTP/1.1 429 Later\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n", "the target answered 429"),
        (
            b"HTTP/1.1 302 There\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            "the target answered 302: redirects are not followed",
        ),
        (b"", "the target closed the connection before it answered"),
        (b"SSH-2.0-OpenSSH\r\n", "the target's answer is not valid HTTP"),
        (b"HTTP/1.1 2000 What\r\n\r\n", "the target's answer is not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", "the target's answer is not valid HTTP"),
    ],
)
async def test_an_error_status_is_explained_without_its_body(invoker, response, words):
    async with playing(response) as played:
        message = await why(invoker, played.url)
    assert message.startswith(words)
    assert "s3cret" not in message
    assert not invoker._held


async def test_a_missing_or_disconnecting_function_is_reported(invoker):
    async def reset(writer):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async with playing(reset) as played:
        assert await why(invoker, played.url) == "the target closed the connection before it answered"
    assert (
        await why(invoker, f"http://127.0.0.1:{played.port}/")
        == "the target cannot be reached: Connection refused"
    )
    assert (await why(invoker, "http://nowhere.invalid/")).startswith("the target cannot be reached: ")


async def test_a_hanging_or_slow_function_times_out_after_five_seconds(invoker, monkeypatch):
    assert module.SECONDS == 5
    monkeypatch.setattr(module, "SECONDS", 0.5)

    async def hang(writer):
        await asyncio.sleep(20)

    async def trickle(writer):
        for byte in b"HTTP/1.1 200 OK\r\nX-Y: " + b"z" * 10_000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.02)

    for do in (hang, trickle):
        async with playing(do) as played:
            began = time.monotonic()
            assert await why(invoker, played.url) == "no answer within 0.5 s"
            assert time.monotonic() - began < 10


async def test_a_connection_that_is_never_accepted_times_out(invoker, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as crowd:
        for _ in range(4):  # the queue of connections to accept is full
            one = crowd.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        assert await why(invoker, f"http://127.0.0.1:{full.getsockname()[1]}/") == "no answer within 0.3 s"


async def test_the_error_lists_the_summonses_that_failed(invoker):
    answers = iter([b"200 OK", b"500 Oh", b"200 OK"])

    async def answer(writer):
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % next(answers))

    async with playing(answer) as played:
        with pytest.raises(InvocationFailed) as failed:
            await invoker.invoke(request_of(played.url, "s.1", "s.2", "s.3"))
    assert failed.value.detail == "the target answered 500: see the log of the target (1 of 3 calls failed)"
    (lost,) = failed.value.summons
    assert lost in ("s.1", "s.2", "s.3")


async def test_sixteen_calls_run_at_once_and_the_rest_are_reported(monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 0.5)
    now, most = [], []

    async def call(summons):
        now.append(summons)
        most.append(len(now))
        try:
            await asyncio.Event().wait()
        finally:
            now.remove(summons)

    with pytest.raises(InvocationFailed, match=r"no answer within 0\.5 s \(20 of 20 calls failed\)"):
        await call_each(request_of("", *map(str, range(20))), call, asyncio.Semaphore(module.AT_ONCE))
    assert (max(most), now) == (16, [])


async def test_a_hanging_target_does_not_block_others(invoker):
    async with playing(lambda writer: asyncio.sleep(20)) as hanging, playing(OK) as well:
        asking = asyncio.create_task(invoker.invoke(request_of(hanging.url, *map(str, range(20)))))
        await soon(lambda: len(hanging.requests) == 8)
        await invoker.invoke(request_of(well.url))
        assert (asking.done(), len(hanging.requests)) == (False, 8)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_a_cancelled_invocation_closes_its_connection(invoker):
    async def hang(writer):
        await asyncio.sleep(20)

    async with playing(hang) as played:
        asking = asyncio.create_task(invoker.invoke(request_of(played.url)))
        await soon(lambda: played.requests)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert not invoker._held


# addresses


def naming(*answers):
    """A resolver with another answer each time; the last one is repeated."""
    left = list(answers)

    async def resolve(host, port, family):
        one = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port))]

    return resolve


async def test_a_rebound_name_is_not_called(monkeypatch):
    """DNS rebinding: the name is public when it is checked, and internal when it is connected to."""
    async with playing(OK) as played:
        invoker = HttpInvoker(SECRETS, resolve=naming("8.8.8.8", "127.0.0.1"))
        assert (await invoker._guard.resolve("rebound.example", 443))[0]["host"] == "8.8.8.8"
        words = await why(invoker, f"https://rebound.example:{played.port}/")
        assert words.startswith("rebound.example resolves to 127.0.0.1, which is this machine")
        assert not played.requests
        await invoker.aclose()


async def test_a_name_is_resolved_for_every_invocation():
    resolved = []

    async def resolve(host, port, family):
        resolved.append(host)
        return await naming("127.0.0.1")(host, port, family)

    async with playing(OK) as played:
        invoker = HttpInvoker(SECRETS, Reach.LOCAL, resolve=resolve)
        for _ in range(2):
            await invoker.invoke(request_of(f"http://moved.example:{played.port}/"))
        await invoker.aclose()
    assert resolved == ["moved.example"] * 2


async def test_the_connected_address_is_checked_last(monkeypatch):
    """Even if the resolver is wrong and the target was not checked before."""
    monkeypatch.setattr(http_module, "check_url", lambda text, reach: None)

    async def wrong(host, port=0, family=socket.AF_INET):
        return [
            {
                "hostname": host,
                "host": "127.0.0.1",
                "port": port,
                "family": socket.AF_INET,
                "proto": 6,
                "flags": 0,
            }
        ]

    async with playing(OK) as played:
        invoker = HttpInvoker(SECRETS)
        monkeypatch.setattr(invoker._guard, "resolve", wrong)
        for host in ("public.example", "127.0.0.1", "[::ffff:127.0.0.1]"):
            assert "not public" in await why(invoker, f"http://{host}:{played.port}/")
        for host in ("127.1", "0x7f000001", "2130706433"):
            assert not (await why(invoker, f"http://{host}:{played.port}/")).startswith("the target answered")
        assert not played.requests
        await invoker.aclose()


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "https://127.1/", "https://0x7f000001/", "https://[::ffff:127.0.0.1]/", ""]
)
async def test_a_target_written_to_redis_by_others_is_checked_before_the_invocation(url):
    invoker = HttpInvoker(SECRETS)
    with pytest.raises(InvocationFailed, match=r"^the target") as failed:
        await invoker.invoke(request_of(url, "s.1", "s.2"))
    assert failed.value.summons == ("s.1", "s.2")
    assert invoker._session is None


async def test_proxies_of_the_environment_are_not_used(invoker, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with playing(OK) as played:
        await invoker.invoke(request_of(played.url))


async def test_cookies_are_not_kept(invoker):
    async with playing(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n") as played:
        for _ in range(2):
            await invoker.invoke(request_of(played.url))
    assert ["cookie" in headers for _, headers, _ in played.requests] == [False, False]


@pytest.fixture
def certificate(tmp_path):
    """A key and a self-signed certificate for localhost."""
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the certificate")
    words = (
        "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    files = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "cert")]
    subprocess.run(["openssl", *words.split(), *files], check=True, capture_output=True, timeout=60)


async def test_a_tls_certificate_is_verified(tmp_path, certificate):
    served = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    served.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    async with playing(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ssl=served) as played:
        for trusted, name, words in [
            (None, "localhost", "TLS with the target failed: self-signed certificate"),
            (str(tmp_path / "cert"), "localhost", ""),
            (str(tmp_path / "cert"), "other.localhost", "TLS with the target failed: Hostname mismatch"),
        ]:
            invoker = HttpInvoker(
                SECRETS,
                reach=Reach.LOCAL,
                resolve=naming("127.0.0.1"),
                tls=ssl.create_default_context(cafile=trusted),
            )
            url = f"https://{name}:{played.port}/"
            if words:
                assert (await why(invoker, url)).startswith(words)
            else:
                await invoker.invoke(request_of(url))
            await invoker.aclose()
        assert len(played.requests) == 1


# available invokers


def test_a_process_has_the_invokers_that_its_environment_allows(monkeypatch):
    assert set(invokers_of({})) == {"none"}
    assert set(invokers_of({"SUBLET_SIGNING_SECRETS": "a-secret-of-16-characters"})) == {"none", "http"}
    assert set(invokers_of({}, "tasks:app")) == {"none", "process"}
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: object())
    assert set(invokers_of({"AWS_REGION": "eu-central-1"})) == {"none", "lambda"}
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    assert set(invokers_of({"AWS_REGION": "eu-central-1"})) == {"none"}
    assert {
        kind: one.kind for kind, one in invokers_of({"SUBLET_SIGNING_SECRETS": "x" * 16}, "a:b").items()
    } == {kind: kind for kind in ("none", "http", "process")}


async def test_the_invoker_none_starts_no_worker():
    await NoInvoker().invoke(request_of(""))
    await NoInvoker().aclose()


def test_large_modules_are_imported_on_first_use():
    script = (
        "import sys; from sublet.scaling.invokers import invokers_of; "
        "found = invokers_of({'SUBLET_SIGNING_SECRETS': 'x' * 16, 'AWS_REGION': 'eu-central-1'}); "
        "assert 'http' in found; print(sorted({'aiohttp', 'boto3', 'redis', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


async def test_without_aiohttp_the_error_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    assert "pip install 'PATH/TO/THE/CHECKOUT[http]'" in await why(
        HttpInvoker(SECRETS), "https://example.com/"
    )
