"""Server-side request forgery: the address that was checked is the one that is called, and no internal one,
whatever DNS or a response contains."""

import ast
import asyncio
import contextlib
import re
import socket
import struct

import pytest

pytest.importorskip("aiohttp")

from sublet.client.sync_client import SyncClient
from sublet.operations import pools
from sublet.operations.pool import Pool
from sublet.scaling import invokers as module
from sublet.scaling.invokers import InvocationFailed
from sublet.scaling.invokers.addresses import Reach
from sublet.scaling.invokers.http import HttpInvoker
from sublet_functions.api.routes import ROUTES
from sublet_functions.schemas.requests import NewJob
from tests.scaling.test_invokers_http import OK, SECRETS, naming, playing, request_of, why
from tests.support.http_server import ADMIN, SECRET, ask, serve_process
from tests.support.paths import ROOT
from tests.support.processes import until

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures", "tests.support.command_line"]

CALLERS = {
    "sublet.connection.pipeline": "Redis, from the environment",
    "sublet.store.http": "the API, from the user who starts a worker",
    "sublet.devtools.platform.api_service": "its own server, on loopback",
    "sublet.devtools.platform.redis_service": "its own server, on a unix socket",
    "sublet.devtools.conformance.proxy": "Redis, from the user who runs the suite",
    "sublet.devtools.embedded_server": "its own server, on a unix socket",
    "sublet.scaling.invokers.addresses": "a pool's target: the only URL that is read from Redis",
    "sublet.scaling.invokers.http": "likewise",
    "sublet_functions.adapters.wsgi_environ": "no connection: it checks the socket of a caller",
}
"""The modules that open connections, and the origin of the address."""
CONNECTS = r"open_connection|create_connection|ClientSession\(|socket\.socket\(|urlopen|\.sock_connect|HTTPConnection"


def test_only_listed_modules_open_connections():
    """A new callback, webhook or download must be listed here, and be checked like a pool's target."""
    found = set()
    for path in [*(ROOT / "jobs").rglob("*.py"), *(ROOT / "functions").rglob("*.py")]:
        if any(
            re.search(CONNECTS, ast.unparse(node))
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
        ):
            found.add(".".join(path.relative_to(ROOT).with_suffix("").parts[1:]))
    assert found <= set(CALLERS), "list the new module with the origin of its address"


def test_a_pools_target_is_the_only_address_in_a_body():
    """According to the OpenAPI document, no other field contains an address to call: a callback is a job."""
    named = {
        name
        for route in ROUTES
        for name, field in route.body.model_fields.items()
        if re.search(r"url|uri|target|callback|hook|host|link", name) and field.annotation != NewJob | None
    }
    assert named == {"target"}


BAD = [
    *(
        "http://169.254.169.254/latest/meta-data/",
        "https://169.254.169.254/",
        "https://0x7f000001/",
        "https://2130706433/",
    ),
    *(
        "https://017700000001/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://[::ffff:127.0.0.1]/",
        "https://[::1]/",
    ),
    *(
        "https://[::ffff:7f00:1]/",
        "https://a:b@example.com/",
        "https://example.com@127.0.0.1/",
        "https://localhost/",
    ),
    *(
        "http://example.com/",
        "gopher://example.com/",
        "file:///etc/passwd",
        "https://example.com\\@10.0.0.1/",
        "https://%31%30.0.0.1/",
    ),
    *(
        "https://\u2460\u2461\u2466.0.0.1/",
        "https://10.0.0.1/",
        "https://[fe80::1%25lo]/",
        "unix:///tmp/redis.sock",
        "https://0/",
    ),
]


@pytest.mark.parametrize("url", BAD)
async def test_a_forbidden_target_is_refused_over_http(core, url):
    answer = await core("PUT", "/pools/p", {"queues": ["q"], "invoker": "http", "target": url})
    assert (answer.status, answer.problem) == (422, "invalid")
    assert (await core("GET", "/pools/p")).status == 404


@pytest.mark.parametrize("url", BAD[:3] + BAD[7:9])
def test_a_forbidden_target_is_refused_by_the_command(shell, url):
    assert "target" in shell.no(2, "pools", "set", "p", "--queues", "q", "--invoker", "http", "--target", url)


@pytest.mark.parametrize("url", BAD[:6])
async def test_a_forbidden_target_stored_in_redis_is_refused_before_any_connection(url):
    def never(*words):
        raise AssertionError("a name was resolved, or a connection opened")

    invoker = HttpInvoker(SECRETS, resolve=never)
    with pytest.raises(InvocationFailed, match=r"^the target"):
        await invoker.invoke(request_of(url))
    await invoker.aclose()


@pytest.mark.parametrize("status", [300, 301, 302, 303, 305, 307, 308])
async def test_no_redirect_of_any_kind_is_followed(status):
    invoker = HttpInvoker(SECRETS, Reach.LOCAL)
    async with playing(OK) as inside:
        redirect = b"HTTP/1.1 %d There\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n" % (
            status,
            inside.url.encode(),
        )
        async with playing(redirect) as outside:
            assert (await why(invoker, outside.url)).startswith(f"the target answered {status}")
            assert len(outside.requests) == 1
        assert not inside.requests, "the redirect was followed"
    await invoker.aclose()


# DNS rebinding


class Names(asyncio.DatagramProtocol):
    """A DNS server on UDP that answers each A query with its next list of addresses, with TTL 0."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), 0

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, caller):
        self.asked += 1
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        head = data[:2] + struct.pack(">HHHHH", 0x8180, 1, len(found), 0, 0)
        records = b"".join(struct.pack(">HHHIH", 0xC00C, 1, 1, 0, 4) + socket.inet_aton(one) for one in found)
        self.transport.sendto(head + data[12:] + records, caller)


@contextlib.asynccontextmanager
async def names(*answers):
    """Such a server and a resolver for it: real queries, real answers, and no cache."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: Names(*answers), local_addr=("127.0.0.1", 0)
    )

    async def resolve(host, port, family):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.setblocking(False)
            one.connect(transport.get_extra_info("sockname"))
            words = b"".join(bytes([len(part)]) + part.encode() for part in host.split("."))
            question = words + b"\0" + struct.pack(">HH", 1, 1)
            await loop.sock_sendall(one, struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + question)
            async with asyncio.timeout(20):
                reply = (await loop.sock_recv(one, 4096))[12 + len(question) :]
        records = [socket.inet_ntoa(reply[at + 12 : at + 16]) for at in range(0, len(reply), 16)]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in records]

    try:
        yield server, resolve
    finally:
        transport.close()


async def test_dns_rebinding_reaches_no_internal_address():
    """The first lookup returns a public address, every later one this machine: the call uses the checked
    address.
    """
    async with playing(OK) as inside, names(["192.0.2.1"], ["127.0.0.1"]) as (server, resolve):
        made, tried = [], []

        def record_and_fail(info):
            tried.append(info[4][0])
            raise OSError("no call leaves this machine in a test")

        invoker = HttpInvoker(SECRETS, Reach.PUBLIC, resolve=resolve)
        invoker._guard.check = lambda address, host="": made.append(
            address[0]
        )  # treats that address as public
        invoker._guard.open = record_and_fail
        await why(invoker, f"https://changes.example:{inside.port}/")
        assert made == tried == ["192.0.2.1"], (
            "the name is resolved once, and the connection goes to the checked address"
        )
        assert server.asked == 1, "the name is not resolved a second time"
        assert not inside.requests
        await invoker.aclose()


async def test_a_connection_goes_to_the_checked_address_only():
    """With real connections: each DNS answer is another loopback address, and the first one is called."""
    async with playing(OK) as played, names(["127.0.0.1"], ["127.0.0.2"]) as (server, resolve):
        invoker = HttpInvoker(SECRETS, Reach.LOCAL, resolve=resolve)
        await invoker.invoke(request_of(f"http://changes.example:{played.port}/"))
        assert (server.asked, len(played.requests)) == (1, 1)
        assert "cannot be reached" in await why(invoker, f"http://changes.example:{played.port}/"), (
            "the name is resolved for each call"
        )
        assert (server.asked, len(played.requests)) == (2, 1)
        await invoker.aclose()


@pytest.mark.parametrize(
    "answer",
    [["8.8.8.8", "127.0.0.1"], ["127.0.0.1", "8.8.8.8"], ["169.254.169.254"], ["0.0.0.0"], ["10.0.0.1"]],
)
async def test_a_name_with_one_internal_address_among_several_is_refused(answer):
    async with playing(OK) as inside, names(answer) as (_, resolve):
        invoker = HttpInvoker(SECRETS, resolve=resolve)
        assert re.search(
            "not public|never called", await why(invoker, f"https://mixed.example:{inside.port}/")
        )
        assert not inside.requests
        await invoker.aclose()


async def test_without_a_certificate_for_the_name_no_request_is_sent(monkeypatch):
    """The server there lacks a certificate for the name: neither the request nor its signature is sent."""
    monkeypatch.setattr(module, "SECONDS", 0.5)
    async with playing(OK) as played:
        invoker = HttpInvoker(SECRETS, Reach.LOCAL, resolve=naming("127.0.0.1"))
        assert await why(invoker, f"https://named.example:{played.port}/")
        assert not played.requests
        await invoker.aclose()


# a whole server


def test_a_server_does_not_call_an_internal_target(settings, monkeypatch):
    """An attacker has written a pool to Redis: the server logs the error and opens no connection to the
    internal address.
    """
    monkeypatch.setenv(
        "SUBLET_INVOKE_PRIVATE", "local"
    )  # for the client that writes the pool, not for the server
    with socket.create_server(("127.0.0.1", 0)) as inside:
        inside.settimeout(0)
        port = inside.getsockname()[1]
        secrets = {"SUBLET_SIGNING_SECRETS": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
        with serve_process(settings, tokens=ADMIN, **secrets) as server, SyncClient(settings) as client:
            target = f"http://127.0.0.1:{port}/"
            client.store.follow(
                pools.put(
                    client.store.operations.bases,
                    Pool(name="p", queues=("q",), invoker="http", target=target),
                )
            )
            assert (
                asyncio.run(
                    ask(server.url, "POST", "/jobs", {"task": "t", "queue": "q"}, token=SECRET)
                ).status
                == 201
            )
            until(lambda: "the target must begin with https://" in server.output(), server.output)
            with pytest.raises(BlockingIOError):
                inside.accept()
