"""Each entry point needs a token away from this machine; tokens are rotated without an outage; replays are harmless."""

import ast
import asyncio
import base64
import os
import re

import pytest

pytest.importorskip("aiohttp")

from sublet import App
from sublet.cli.commands import COMMANDS
from sublet.errors import Invalid
from sublet.scaling import secrets_file
from sublet.scaling.signing import Secrets
from sublet_functions.adapters.hosted import Hosted
from sublet_functions.aws import handler
from sublet_functions.handlers.worker_host import WorkerHost
from sublet_functions.http.auth import Tokens
from sublet_functions.server.sockets import listen
from tests.platforms.test_wsgi import Taken, environ
from tests.support.http_server import ask, serve_process, serving
from tests.support.paths import ROOT, module_of
from tests.support.processes import until

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

WAYS_IN = {
    "sublet_functions.serve": "away from loopback it does not start without tokens",
    "sublet_functions.adapters.hosted": "without tokens it answers only requests that the platform has authorized",
    "sublet_functions.asgi": "by Hosted",
    "sublet_functions.wsgi": "by Hosted",
    "sublet_functions.aws": "by Hosted; events of the platform's own need none",
    "sublet_functions.google": "by sublet_functions.wsgi; events of the platform's own need none",
}
"""All modules that pass requests to the API, and their behaviour without tokens."""
ONE, TWO, THREE = "f1rst-secret-of-ours", "s2cond-secret-of-ours", "th1rd-secret-of-ours"


def imported(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_every_entry_point_of_the_api_is_listed():
    """A module that makes an Api, or imports one that does, must be listed above: a new adapter states its
    behaviour without tokens there.
    """
    for path in sorted((ROOT / "functions").rglob("*.py")):
        own = module_of(path)
        if imported(path) & {
            "sublet_functions.api.dispatch",
            "sublet_functions.adapters.hosted",
            "sublet_functions.wsgi",
            "sublet_functions.serve",
        }:
            assert own in WAYS_IN, own
        if "Api(" in path.read_text() and own != "sublet_functions.api.dispatch":
            assert own in ("sublet_functions.serve", "sublet_functions.adapters.hosted")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1"])
def test_serving_on_a_public_address_needs_tokens(host):
    with pytest.raises(Invalid, match="set SUBLET_TOKENS"):
        listen(host, 0, loopback_only=not Tokens().needed)
    assert Tokens(f"a:work:{ONE}").needed, "with tokens any address is allowed"


def test_the_development_server_listens_on_loopback_only():
    """Its workers run all submitted jobs, and it runs without tokens: the host is fixed in the code, and no
    flag changes it.
    """
    source = (ROOT / "jobs" / "sublet" / "devtools" / "platform" / "api_service.py").read_text()
    assert re.search(r'"--host",\s+"127\.0\.0\.1"', source)
    dev = COMMANDS["dev"]
    assert "--host" not in repr(dev)
    assert "0.0.0.0" not in "".join(
        path.read_text() for path in (ROOT / "jobs" / "sublet" / "devtools" / "platform").glob("*.py")
    )


@pytest.fixture
def without_tokens(settings, monkeypatch):
    for name in list(os.environ):
        if name.startswith(("SUBLET_", "AWS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SUBLET_REDIS_URL", settings.redis_url)
    monkeypatch.setenv("SUBLET_NAMESPACE", settings.namespace)


def by_asgi():
    from sublet_functions.asgi import Asgi

    async def asked():
        sent, app = [], Asgi()

        async def receive():
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/jobs/claim",
            "headers": [(b"host", b"localhost")],
            "root_path": "",
        }
        await app(scope, receive, send)
        return sent[0]["status"], sent[1]["body"]

    return asyncio.run(asked())


def by_wsgi():
    from sublet_functions.wsgi import Wsgi

    app = Wsgi()
    try:
        answer = Taken(app, environ("POST", "/jobs/claim", b"{}", HTTP_HOST="localhost")).all()
        return answer.status, answer.body
    finally:
        app.close()


def by_google():
    import flask

    from sublet_functions.google import http

    with flask.Flask("t").test_request_context(
        "/jobs/claim", method="POST", json={}, base_url="http://localhost"
    ):
        from flask import request

        response = http(request)
        return response.status_code, response.get_data()


def by_aws():
    class Context:
        aws_request_id = "x"

        def get_remaining_time_in_millis(self):
            return 20_000

    event = {
        "version": "2.0", "rawPath": "/jobs/claim", "rawQueryString": "", "headers": {"host": "localhost"}, "body": "{}",
        "requestContext": {"http": {"method": "POST", "path": "/jobs/claim"}, "stage": "$default"}, "isBase64Encoded": False,
    }  # fmt: skip
    answer = handler(event, Context())
    return answer["statusCode"], answer["body"].encode()


@pytest.mark.parametrize("way", [by_asgi, by_wsgi, by_google, by_aws], ids=lambda way: way.__name__)
def test_on_a_platform_requests_without_tokens_are_refused_even_from_localhost(way, without_tokens):
    """Not even `localhost` is accepted: the client behind a platform's address is unknown."""
    status, body = way()
    assert status == 503
    assert b"not-set-up" in body


async def test_a_hosted_api_does_not_start_without_tokens(without_tokens):
    with pytest.raises(Invalid, match="no tokens are set"):
        await Hosted().start()


def test_a_token_is_rotated_without_refusing_any_caller(settings, tmp_path):
    """A real process with two lines for a while, then one, as documented."""
    file = tmp_path / "tokens"

    def write(*secrets):
        (tmp_path / "new").write_text("".join(f"ci:read:{secret}\n" for secret in secrets))
        os.replace(tmp_path / "new", file)

    def status(secret):
        return asyncio.run(ask(server.url, "GET", "/jobs", token=secret)).status

    write(ONE)
    with serve_process(settings, "--tokens-file", str(file)) as server:
        assert (status(ONE), status(TWO)) == (200, 401)
        write(ONE, TWO)
        until(lambda: status(TWO) == 200)
        assert status(ONE) == 200
        write(TWO)
        until(lambda: status(ONE) == 401)
        assert status(TWO) == 200
        file.unlink()
        until(lambda: "stay valid" in server.output() or status(THREE) != 401)
        assert (status(ONE), status(TWO), status(THREE)) == (401, 200, 401), (
            "a missing file neither accepts nor revokes tokens"
        )


# signed requests to a server


@pytest.fixture
async def host(settings):
    app = App(settings=settings)
    host = WorkerHost(app)
    yield host
    await host.aclose()
    await app.client.aclose()


OLD, NEW = "whsec_b2xkLXNlY3JldC1vZi0zMi1jaGFyYWN0ZXJzISE=", "whsec_bmV3LXNlY3JldC1vZi0zMi1jaGFyYWN0ZXJzISE="
BODY = b'{"pool":"","queues":["none"],"slots":1,"linger":0,"summons":""}'


async def sent(url, body, signed):
    headers = {name.replace("-", "_"): value for name, value in signed.items()}
    return await ask(url, "POST", "/work", body, **headers)


@pytest.mark.parametrize("apart", [-301, 301, -100_000])
async def test_a_signature_of_another_time_is_refused(settings, host, apart):
    import time

    async with serving(settings, tokens=f"a:read:{ONE}", worker_host=host, secrets=Secrets(OLD)) as url:
        answer = await sent(
            url, BODY, Secrets(OLD).sign("s.1", BODY, at=time.time() + apart + (5 if apart > 0 else -5))
        )
        assert (answer.status, answer.problem) == (401, "unauthorized")
        assert not host.busy


@pytest.mark.parametrize(
    ("body", "change"),
    [
        (BODY.replace(b"none", b"more"), {}),
        (BODY + b" ", {}),
        (b"", {}),
        (BODY, {"webhook-id": "s.2"}),
        (BODY, {"webhook-signature": "v1,"}),
        (BODY, {"webhook-signature": ""}),
        (BODY, {"webhook-timestamp": "0"}),
    ],
)
async def test_a_changed_signed_request_is_refused_by_a_server(settings, host, body, change):
    async with serving(settings, tokens=f"a:read:{ONE}", worker_host=host, secrets=Secrets(OLD)) as url:
        answer = await sent(url, body, Secrets(OLD).sign("s.1", BODY) | change)
        assert (answer.status, answer.problem) == (401, "unauthorized")


async def test_two_secrets_are_valid_during_a_rotation_and_an_empty_one_never(settings, host):
    async with serving(
        settings, tokens=f"a:read:{ONE}", worker_host=host, secrets=Secrets(f"{OLD} {NEW}")
    ) as url:
        for secret in (OLD, NEW):
            assert (await sent(url, BODY, Secrets(secret).sign("s.1", BODY))).status == 200
        foreign = Secrets("another-secret-unknown").sign("s.1", BODY)
        assert (await sent(url, BODY, foreign)).status == 401
    for empty in ("", " ", "\n"):
        assert not Secrets(empty)
        async with serving(settings, tokens=f"a:read:{ONE}", worker_host=host, secrets=Secrets(empty)) as url:
            assert (await sent(url, BODY, foreign)).status == 401
    for weak in ("whsec_", "whsec_====", "x" * 15):
        with pytest.raises(Invalid, match=r"a secret must have 16|must be base64"):
            Secrets(weak)


async def test_a_replayed_request_starts_one_worker_at_a_time_and_runs_no_job_twice(settings, host):
    """Within its five minutes a replay has the effect of the first request: it summons the workers that are
    wanted, and nothing else.
    """
    signed = Secrets(OLD).sign("s.1", BODY)
    async with serving(settings, tokens=f"a:read:{ONE}", worker_host=host, secrets=Secrets(OLD)) as url:
        answers = await asyncio.gather(*(sent(url, BODY, signed) for _ in range(20)))
        assert {answer.status for answer in answers} <= {200, 429}
        assert all(answer.json()["completed"] == 0 for answer in answers if answer.status == 200)
        headers = {name.replace("-", "_"): value for name, value in signed.items()}
        for method, path, body in (
            ("POST", "/jobs", b'{"task":"t"}'),
            ("POST", "/tick", b""),
            ("GET", "/jobs", None),
        ):
            assert (await ask(url, method, path, body, **headers)).status == 401, (
                "a signature is valid for POST /work only"
            )


def test_secrets_files_are_checked_each_second():
    assert secrets_file.CHECK_EVERY <= 1.0


async def test_a_lease_token_has_128_random_bits_and_all_are_compared(asked, monkeypatch):
    drawn = []

    def draw(n):
        drawn.append(os.urandom(n))
        return base64.urlsafe_b64encode(drawn[-1]).decode().rstrip("=")

    monkeypatch.setattr("secrets.token_urlsafe", draw)
    await asked("POST", "/jobs", {"task": "t"})
    job = (await asked("POST", "/jobs/claim", {})).json()["jobs"][0]
    token = job["token"]
    claim_id = token.partition(".")[2]
    assert len(base64.urlsafe_b64decode(claim_id + "==")) == 16
    assert base64.urlsafe_b64decode(claim_id + "==") in drawn, "all bits come from the system's random source"
    others = [token[:n] + ("a" if token[n] != "a" else "b") + token[n + 1 :] for n in range(len(token))]
    for other in [*others, token[:-1], token + "a", claim_id]:
        assert (
            await asked("POST", f"/jobs/{job['id']}/heartbeat", {"token": other})
        ).problem == "lease-lost", other
    assert (await asked("POST", f"/jobs/{job['id']}/heartbeat", {"token": token})).status == 200
    assert (await asked("POST", "/jobs/claim", {"claim_id": "x" * 21})).status == 422
