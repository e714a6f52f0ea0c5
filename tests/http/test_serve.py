"""The server: start, responses, secrets, and stop."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import tomllib
from dataclasses import replace

import pytest

from sublet.cli.workers import serve as command
from sublet.connection.settings import Settings
from sublet.devtools.bootstrap import missing
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import Invalid, JobsError
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from sublet_functions.http.request import Request
from sublet_functions.http.response import Response
from sublet_functions.serve import quick
from sublet_functions.server.sockets import listen, make_room
from sublet_functions.server.writer import encode_head
from tests.support.http_server import ADMIN, SECRET, ask, fronting, serve_process, serving, spawn, wire
from tests.support.paths import ROOT
from tests.support.processes import until

pytest_plugins = ["tests.support.http_settings", "tests.support.command_line"]


# addresses and ports


def test_serve_prints_its_url_and_exits_with_0_at_a_signal(settings, tmp_path):
    with (
        spawn(settings, tmp_path, "--host", "localhost", SUBLET_PORT="70000") as refused,
        spawn(settings, tmp_path) as server,
    ):
        assert refused.wait() == 2
        until(lambda: "\n" in (tmp_path / "out").read_text(), server.output)
        output = (tmp_path / "out").read_text()
        assert output.startswith("serving http://127.0.0.1:")
        assert output.endswith("this machine alone, no token needed\n")
        server.signal(signal.SIGINT)
        assert server.wait() == 0
    assert "Traceback" not in server.output()


@pytest.mark.parametrize(
    ("words", "env", "why"),
    [
        (["--host", "0.0.0.0"], {}, "set SUBLET_TOKENS"),
        (["--port", "70000"], {}, "use 0 to 65535"),
        ([], {"SUBLET_TOKENS": "ci:submit:hunter2"}, "secret: use"),
        (["--tokens-file", "nowhere"], {}, "cannot be read"),
    ],
)
def test_invalid_settings_are_refused_in_one_sentence(shell, words, env, why):
    shell.env |= env
    message = shell.no(2, "serve", *words)
    assert why in message
    assert "hunter2" not in message


def test_a_port_in_use_is_exit_code_1(shell):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert shell.no(1, "serve", "--port", str(port)).startswith(f"port {port} is in use")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "198.51.100.7"])
def test_without_tokens_only_loopback_addresses_are_served(host):
    with pytest.raises(Invalid, match="without tokens only loopback addresses are served"):
        listen(host, 0, loopback_only=True)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("198.51.100.7", "does not have the address"),
        ("no.such.host.invalid", "the name or address does not exist"),
        ("a" * 300, "the name or address does not exist"),
        ("a..b", "does not exist"),
    ],
)
def test_an_address_of_another_machine_is_refused(host, why):
    with pytest.raises(Invalid, match=why):
        listen(host, 0, loopback_only=False)


def test_a_privileged_port_is_refused(monkeypatch):
    def denied(*args, **how):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket, "create_server", denied)
    with pytest.raises(Invalid, match="port 80 needs a privilege"):
        listen("127.0.0.1", 80, loopback_only=True)


def test_a_name_with_several_addresses_is_served_on_one_port(monkeypatch):
    both = [(socket.AF_INET, 1, 6, "", ("127.0.0.2", 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.3", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **how: both)
    sockets = listen("both", 0, loopback_only=True)
    assert {one.getsockname()[0] for one in sockets} == {"127.0.0.2", "127.0.0.3"}
    assert len({one.getsockname()[1] for one in sockets}) == 1
    with pytest.raises(JobsError, match="in use"):
        listen("both", sockets[0].getsockname()[1], loopback_only=True)
    for one in sockets:
        one.close()


def test_the_port_comes_from_sublet_port_else_port_else_the_default(monkeypatch):
    for name in ("SUBLET_PORT", "PORT"):
        monkeypatch.delenv(name, raising=False)
    assert command._port() == 8377
    monkeypatch.setenv("PORT", "9001")
    assert command._port() == 9001
    monkeypatch.setenv("SUBLET_PORT", "9002")
    assert command._port() == 9002
    for wrong in ("http", "-1", "65536", "1e3", "\u0662\u0663", " 80"):
        monkeypatch.setenv("SUBLET_PORT", wrong)
        with pytest.raises(Invalid, match="SUBLET_PORT"):
            command._port()


def test_without_aiohttp_the_error_names_the_packages_to_install(monkeypatch):
    monkeypatch.setattr(command, "missing", lambda needed: missing(needed, path=[]))
    with pytest.raises(
        Invalid,
        match=r"aiohttp>=3\.14\.1 and prometheus-client>=0\.22: pip install 'PATH/TO/THE/CHECKOUT\[http\]'",
    ):
        command.serve(None)
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["http"]
    assert set(command.NEEDED) <= set(extra)


def test_calls_to_redis_have_a_short_timeout_unless_configured(monkeypatch):
    monkeypatch.delenv("SUBLET_TIMEOUT", raising=False)
    assert quick(Settings()).timeout == 0.8
    assert quick(Settings(timeout=0.2)).timeout == 0.2
    monkeypatch.setenv("SUBLET_TIMEOUT", "5")
    assert quick(Settings(timeout=5)).timeout == 5


def test_the_connection_limit_is_below_the_file_limit(monkeypatch):
    limits = [(1024, 4096)]
    monkeypatch.setattr("resource.getrlimit", lambda kind: limits[0])
    monkeypatch.setattr("resource.setrlimit", lambda kind, new: limits.__setitem__(0, new))
    assert make_room(4096) == 4096 - 128
    assert limits == [(4096, 4096)]


# without Redis


async def test_without_redis_the_server_starts_answers_503_and_recovers(tmp_path):
    url = f"unix://{tmp_path}/server.sock"
    async with serving(Settings(redis_url=url, namespace="t")) as api:
        assert (await ask(api, "GET", "/healthz")).status == 200
        for method, path, body in (
            ("GET", "/readyz", None),
            ("POST", "/jobs", {"task": "t"}),
            ("POST", "/jobs/claim", {"wait": 20}),
        ):
            answer = await ask(api, method, path, body)
            assert (answer.status, answer.problem, answer.headers["retry-after"]) == (503, "unavailable", "1")
        with await asyncio.to_thread(EmbeddedServer.start, tmp_path, persistent=False) as server:
            assert server.url == url
            assert (await ask(api, "GET", "/readyz")).status == 200
            assert (await ask(api, "POST", "/jobs", {"task": "t"})).status == 201


def test_a_start_without_redis_is_logged_before_the_first_request(tmp_path):
    with serve_process(Settings(redis_url=f"unix://{tmp_path}/none.sock", namespace="t")) as server:
        until(lambda: "cannot answer" in server.output(), server.output)


async def test_with_a_frozen_redis_responses_are_503_until_it_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "sublet.connection.transport.PAUSES", (1000.0,)
    )  # no call is repeated after such a long wait,
    monkeypatch.setattr(
        "sublet.connection.settings.BLOCK_SECONDS", 1000.0
    )  # and blocking reads do not add their timeout
    with await asyncio.to_thread(EmbeddedServer.start, tmp_path, persistent=False) as server:
        async with serving(Settings(redis_url=server.url, namespace="t")) as api:
            assert (await ask(api, "POST", "/jobs", {"task": "t"})).status == 201
            with frozen(server.pid):
                asked = [
                    ("POST", "/jobs", {"task": "t"}),
                    ("POST", "/jobs/claim", {"wait": 20}),
                    ("GET", "/jobs/0-x?wait=20", None),
                ]
                answers = await asyncio.gather(
                    *(ask(api, *one) for one in (*asked, ("GET", "/readyz", None)))
                )
                assert [answer.problem for answer in answers] == ["unavailable"] * 4
            assert (await ask(api, "GET", "/readyz")).status == 200


@contextlib.contextmanager
def frozen(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# responses


async def test_a_process_without_free_connections_is_reported_as_busy(settings, caplog):
    store = Store(replace(settings, timeout=0.5, patience=0.1))
    api, request = Api(store, Tokens()), Request("GET", "/jobs", headers={"host": "localhost"})
    assert (await api.answer(request)).status == 200
    pool = store._transport.client.connection_pool
    taken = [await pool.get_connection() for _ in range(pool.max_connections)]
    for _ in range(2):
        refused = await api.answer(request)
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        assert json.loads(refused.body)["type"] == "urn:sublet:problem:busy"
    for connection in taken:
        await pool.release(connection)
    assert (await api.answer(request)).status == 200
    (record,) = caplog.records
    assert record.message.startswith("cannot answer everything: all connections to Redis are in use")
    await store.aclose()


async def test_an_unexpected_exception_is_500_and_its_message_is_not_logged(caplog):
    class Broken:
        async def answer(self, request):
            raise ValueError("with a s3cret in it")

    async with fronting(Broken()) as (_, url):
        answer = await ask(url, "GET", "/")
        assert (answer.status, answer.problem) == (500, "internal")
        assert "unexpected ValueError at test_serve.py" in caplog.text
        assert "s3cret" not in caplog.text + answer.body.decode()


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\nb", "a\rb", "a\0b"])
def test_a_line_break_in_a_response_header_is_refused(value):
    with pytest.raises(ValueError, match="line break"):
        encode_head(Response(200, headers={"Location": value}), keep=True)


async def test_every_response_has_the_security_headers_and_no_server_header(settings):
    async with serving(settings, tokens=ADMIN) as api:
        answers = [
            await ask(api, "GET", "/healthz"),
            await ask(api, "POST", "/jobs", {"task": "t"}, token=SECRET),
            await ask(api, "POST", "/jobs", {"task": "t"}),
            await ask(api, "POST", "/jobs", {"task": "t"}, token=SECRET[:-1]),
            await ask(api, "POST", "/jobs/claim", {"queues": ["none"]}, token=SECRET),
            await ask(api, "GET", "/nothing"),
        ]
    assert [answer.status for answer in answers] == [200, 201, 401, 401, 204, 404]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers
        assert answer.headers.get("www-authenticate") == ("Bearer" if answer.status == 401 else None)


# output


def test_no_secret_is_written_to_the_output_with_debug(settings):
    with serve_process(settings, "--debug", tokens=ADMIN) as server:
        canaries = asyncio.run(requests_with_secrets(server.url))
        assert server.stop() == 0
        output = server.output()
    assert "POST /jobs 201" in output
    assert "GET /jobs 401" in output
    for canary in canaries:
        assert canary not in output


async def requests_with_secrets(url):
    """Run a job and some failing requests with secrets in them; return the secrets."""
    payload, result, wrong = "c4nary-payload", "c4nary-result", "c4nary-wrong-token"
    assert (
        await ask(url, "POST", "/jobs", {"task": "t", "payload": {"a": payload}}, token=SECRET)
    ).status == 201
    await ask(
        url, "POST", "/jobs", {"task": "t", "queue": "other"}, token=SECRET, idempotency_key='"c4nary-key"'
    )
    await ask(url, "POST", "/jobs", {"task": "t", "payload": payload}, token=SECRET)
    await ask(url, "POST", "/jobs", f'{{"{payload}'.encode(), token=SECRET)
    await ask(url, "GET", "/jobs?queue=c4nary-query", token=wrong)
    await ask(url, "GET", "/jobs", token=wrong, cookie="c4nary-cookie")
    (lease,) = (await ask(url, "POST", "/jobs/claim", {}, token=SECRET)).json()["jobs"]
    for verb, more in (
        ("heartbeat", {"progress": payload}),
        ("note", {"log": payload}),
        ("complete", {"result": result}),
    ):
        assert (
            await ask(
                url, "POST", f"/jobs/{lease['id']}/{verb}", {"token": lease["token"], **more}, token=SECRET
            )
        ).status == 200
    async with wire(url) as one:
        one.write(
            f"GET /jobs HTTP/1.1\r\nAuthorization: Bearer {SECRET}\r\nAuthorization : {wrong}\r\n\r\n".encode()
        )
        assert (await one.answer()).status == 400
    return [payload, result, wrong, SECRET, lease["token"], "c4nary"]


async def test_without_debug_no_request_is_logged(settings, caplog):
    caplog.set_level(logging.INFO)
    async with serving(settings) as api:
        await ask(api, "POST", "/jobs", {"task": "t"})
        await ask(api, "GET", "/nothing")
        async with wire(api) as one:
            one.write(b"no HTTP\r\n\r\n")
            assert (await one.answer()).status == 400
    assert caplog.text == ""
