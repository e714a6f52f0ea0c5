"""The API inside another server: its settings, its authorization, and its work before a response."""

import asyncio
import importlib
import json
import logging
import os
import re

import pytest

from sublet.connection.settings import Settings, connect
from sublet.errors import Invalid
from sublet.store.store import Store
from sublet_functions.adapters import hosted as module
from sublet_functions.adapters.hosted import Hosted
from sublet_functions.handlers.triggers import PLATFORM
from sublet_functions.http.auth import Tokens
from sublet_functions.http.request import Request, fold_headers

pytest_plugins = ["tests.support.http_settings"]

SECRET = "the-secret-of-the-tests"


@pytest.fixture
def environment(settings, monkeypatch):
    """The environment of a function; yields a function that sets a variable."""
    for name in ("SUBLET_TOKENS_FILE", "SUBLET_APP", "SUBLET_SIGNING_SECRETS", "SUBLET_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SUBLET_REDIS_URL", settings.redis_url)
    monkeypatch.setenv("SUBLET_NAMESPACE", settings.namespace)
    monkeypatch.setenv("SUBLET_TOKENS", f"all:admin:{SECRET}")
    return monkeypatch.setenv


async def asked(hosted, method, path, body=None, caller=None, token=SECRET):
    headers = {"host": "example.com", "content-type": "application/json"} | (
        {"authorization": f"Bearer {token}"} if token else {}
    )
    place, _, query = path.partition("?")
    raw = b"" if body is None else json.dumps(body).encode()
    reply = await hosted.answer(Request(method, place, query, headers, raw), caller)
    return reply.status, json.loads(reply.body) if reply.body else None


async def test_the_api_is_configured_by_the_environment(environment, settings):
    hosted = Hosted()
    await hosted.start()
    status, made = await asked(hosted, "POST", "/jobs", {"task": "t"})
    assert status == 201
    assert (await asked(hosted, "GET", f"/jobs/{made['id']}"))[1]["state"] == "queued"
    await hosted.aclose()


SECRETS = ("SUBLET_TOKENS", "SUBLET_SIGNING_SECRETS", "SUBLET_TOKEN")


async def test_tasks_in_the_same_process_find_no_secret_in_the_environment(environment):
    """A module may read the environment at its import, before the first request has an answer."""
    for name in SECRETS[1:]:
        environment(name, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    environment("SUBLET_APP", "tests.support.environment_app:app")
    hosted = Hosted()
    await hosted.start()
    at_import = importlib.import_module("tests.support.environment_app").AT_IMPORT
    assert not at_import & set(SECRETS)
    assert not os.environ.keys() & set(SECRETS)
    await hosted.aclose()


async def test_held_secrets_serve_a_second_instance_and_a_reopened_one(environment):
    """A frozen process closes its connections after idleness, and reads its settings again."""
    first = Hosted()
    await first.start()
    assert "SUBLET_TOKENS" not in os.environ
    second = Hosted(freezes=True)
    await second.start()
    await first.aclose()
    for hosted in (first, second):
        assert (await asked(hosted, "GET", "/jobs"))[0] == 200
        assert (await asked(hosted, "GET", "/jobs", token=""))[0] == 401
    environment("SUBLET_TOKENS", "all:admin:a-newer-secret-of-the-tests")
    await second.aclose()
    assert (await asked(second, "GET", "/jobs"))[0] == 401, "a newer value replaces the held one"
    for hosted in (first, second):
        await hosted.aclose()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_held_secrets_are_known_after_a_fork(environment):
    """A server may start the API, then fork its workers."""
    asyncio.run(Hosted().start())
    child = os.fork()
    if child == 0:
        os._exit(0 if len(Tokens.read()) == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def test_without_tokens_only_platform_events_are_served(environment, caplog):
    environment("SUBLET_TOKENS", "")
    hosted = Hosted()
    for path in ("/jobs", "/healthz", "/"):
        status, problem = await asked(hosted, "GET", path)
        assert (status, problem["type"]) == (503, "urn:sublet:problem:not-set-up")
    assert [record.levelno for record in caplog.records] == [logging.ERROR], "it is logged once"
    assert "set SUBLET_TOKENS" in caplog.text
    assert (await asked(hosted, "POST", "/events", {"sublet": "tick"}, PLATFORM))[0] == 200
    with pytest.raises(Invalid, match="set SUBLET_TOKENS"):
        await hosted.start()
    await hosted.aclose()


async def test_a_platform_event_may_only_tick_and_work(environment):
    hosted = Hosted()
    assert (await asked(hosted, "POST", "/tick", None, PLATFORM, token=""))[0] == 200
    assert (await asked(hosted, "GET", "/jobs", None, PLATFORM, token=""))[0] == 403
    await hosted.aclose()


@pytest.mark.parametrize("token", ["", "another-secret-than-ours"])
async def test_a_missing_or_wrong_token_is_401(environment, token):
    hosted = Hosted()
    assert (await asked(hosted, "GET", "/jobs", token=token))[0] == 401
    await hosted.aclose()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SUBLET_REDIS_URL", "http://nowhere", "SUBLET_REDIS_URL"),
        ("SUBLET_REDIS_URL", "redis://u:PA/SS@h", "SUBLET_REDIS_URL"),
        ("SUBLET_REDIS_URL", "redis://u:PA#SS@h", "SUBLET_REDIS_URL"),
        ("SUBLET_REDIS_URL", "redis://u:PASS@[::1/0", "SUBLET_REDIS_URL"),
        ("SUBLET_REDIS_URL", "default:PASS@h:6379", "SUBLET_REDIS_URL"),
        ("SUBLET_REDIS_URL", "redis:/u:PASS@h:1", "SUBLET_REDIS_URL"),
        ("SUBLET_REDIS_URL", "redis://u:12/PASS@h", "SUBLET_REDIS_URL"),
        ("SUBLET_REDIS_URL", "redis://u:12#PASS@h", "SUBLET_REDIS_URL"),
        ("SUBLET_TOKENS", "all:admin:short", "SUBLET_TOKENS: word 1"),
        ("SUBLET_APP", "no_such_module:app", "there is no module no_such_module"),
        ("SUBLET_WORK_SECONDS", "never", "SUBLET_WORK_SECONDS"),
        ("SUBLET_SIGNING_SECRETS", "x", "SUBLET_SIGNING_SECRETS"),
    ],
)
async def test_invalid_settings_are_logged_and_not_sent_to_clients(environment, caplog, name, value, words):
    if name == "SUBLET_WORK_SECONDS":
        environment("SUBLET_APP", "tests.support.misbehaving_tasks:app")
    environment(name, value)
    hosted = Hosted()
    for _ in range(2):
        status, problem = await asked(hosted, "GET", "/readyz")
        assert (status, problem["type"]) == (503, "urn:sublet:problem:not-set-up")
    assert value not in json.dumps(problem)
    assert caplog.text.count(words) == 1
    assert not re.search("PA|SS@", caplog.text)
    with pytest.raises(Invalid, match=words):
        await hosted.start()


async def test_a_freezing_process_invokes_workers_before_the_response(environment, monkeypatch):
    """…because otherwise the call would wait for the next request."""
    called = []

    class Caller:
        kind = "http"

        async def invoke(self, request):
            await asyncio.sleep(0.05)
            called.append(request.pool)

        async def aclose(self):
            pass

    monkeypatch.setattr(module, "invokers_of", lambda: {"http": Caller()})
    environment("SUBLET_INVOKE_PRIVATE", "local")
    hosted = Hosted(freezes=True)
    pool = {"queues": ["default"], "invoker": "http", "target": "http://127.0.0.1:1/work"}
    assert (await asked(hosted, "PUT", "/pools/main", pool))[0] == 201
    assert not called
    assert (await asked(hosted, "POST", "/jobs", {"task": "t"}))[0] == 201
    assert called == ["main"]
    await hosted.aclose()


class Gateway:
    """Passes bytes between clients and Redis, and drops connections without closing them."""

    def __init__(self, target):
        self.target = target
        self.links = []

    async def take(self, reader, writer):
        link = {"alive": True}
        self.links.append(link)
        to = await asyncio.open_unix_connection(self.target)
        await asyncio.gather(self.pass_on(link, reader, to[1]), self.pass_on(link, to[0], writer))

    async def pass_on(self, link, reader, writer):
        while data := await reader.read(65536):
            if link["alive"]:
                writer.write(data)
        writer.close()

    def drop(self):
        for link in self.links:
            link["alive"] = False


@pytest.mark.parametrize(("idle", "status"), [(0.0, 201), (60.0, 503)], ids=["reopened", "kept"])
async def test_idle_connections_are_reopened(environment, settings, monkeypatch, idle, status):
    """Data on a dropped connection is lost, and the caller would wait in vain."""
    gateway = Gateway(settings.redis_url.removeprefix("unix://"))
    server = await asyncio.start_server(gateway.take, "127.0.0.1", 0)
    environment("SUBLET_REDIS_URL", f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    hosted = Hosted(freezes=True)
    assert (await asked(hosted, "POST", "/jobs", {"task": "t"}))[0] == 201
    gateway.drop()
    monkeypatch.setattr(module, "IDLE", idle)
    assert (await asked(hosted, "POST", "/jobs", {"task": "t"}))[0] == status
    await hosted.aclose()
    server.close()


async def test_connections_are_not_reopened_during_a_stream(environment, monkeypatch):
    monkeypatch.setattr(module, "IDLE", 0.0)
    hosted = Hosted(freezes=True)
    headers = {"host": "h", "authorization": f"Bearer {SECRET}", "accept": "text/event-stream"}
    stream = (await hosted.answer(Request("GET", "/events", headers=headers))).body
    assert (await anext(stream)).startswith(b"retry:")
    assert (await asked(hosted, "POST", "/jobs", {"task": "t"}))[0] == 201
    async with asyncio.timeout(10):
        assert b"event: queued" in await anext(stream)
    await stream.aclose()
    await hosted.aclose()


def test_repeated_headers_are_joined_into_one_line():
    assert fold_headers([("Accept", "a"), ("X-B", "1"), ("accept", "b")]) == {"accept": "a, b", "x-b": "1"}


async def test_two_authorization_headers_are_refused(environment):
    hosted = Hosted()
    headers = fold_headers(
        [("host", "h"), ("authorization", f"Bearer {SECRET}"), ("authorization", f"Bearer {SECRET}")]
    )
    assert (await hosted.answer(Request("GET", "/jobs", headers=headers))).status == 401
    await hosted.aclose()


async def test_a_response_is_undone_if_its_client_disconnects_during_pending_work(
    environment, settings, monkeypatch
):
    """The claim has its job, and a pending task delays the response: then the client disconnects."""
    hosted = Hosted(freezes=True)
    assert (await asked(hosted, "POST", "/jobs", {"task": "t"}))[0] == 201
    resting = asyncio.Event()

    async def rest(self):
        resting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(Store, "rest", rest)
    monkeypatch.setattr(module, "REST_SECONDS", 60.0)
    headers = {"host": "h", "authorization": f"Bearer {SECRET}"}
    claiming = asyncio.create_task(hosted.answer(Request("GET", "/jobs/next", "", headers)))
    async with asyncio.timeout(10):
        await resting.wait()
        claiming.cancel()
        await asyncio.wait([claiming])
    monkeypatch.undo()
    store = Store(settings)
    claimed = await store.claim(worker="w", queues=["default"], n=1, lease=30)
    assert [lease.attempt for lease in claimed.leases] == [2]
    await store.aclose()


async def test_pending_work_delays_a_response_briefly_at_most(environment, monkeypatch, caplog):
    async def rest(self):
        await asyncio.Event().wait()

    monkeypatch.setattr(Store, "rest", rest)
    monkeypatch.setattr(module, "REST_SECONDS", 0.01)
    hosted = Hosted(freezes=True)
    async with asyncio.timeout(10):
        assert (await asked(hosted, "GET", "/jobs"))[0] == 200
    assert "Redis is slow or away" in caplog.text


@pytest.mark.parametrize(("raw", "decoded"), [("Ã\x9c", "Ü"), ("ÿ", "ÿ"), ("plain", "plain"), ("…", "…")])
def test_a_header_is_decoded_as_utf8_if_possible(raw, decoded):
    assert fold_headers([("x", raw)]) == {"x": decoded}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://u:PA@SS@h:1/2?x=PASS#PASS", "redis://h:1/2"),
        ("rediss://:PASS@h", "rediss://h"),
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("unix:///run/redis.sock?db=1", "unix:///run/redis.sock"),
        ("u:PASS@h", "(not shown: not a URL)"),
    ],
)
def test_a_url_is_shown_without_its_password(url, shown):
    assert Settings(redis_url=url).shown_url == shown


async def test_a_malformed_token_gets_a_problem(environment):
    hosted = Hosted()
    assert "Bearer TOKEN" in (await asked(hosted, "GET", "/jobs", token=""))[1]["detail"]
    assert (
        "no token that is valid on this server"
        in (await asked(hosted, "GET", "/jobs", token="another-secret-than-ours"))[1]["detail"]
    )
    await hosted.aclose()


async def test_a_tick_creates_no_namespace(environment, settings):
    hosted = Hosted()
    status, done = await asked(hosted, "POST", "/tick")
    assert (status, done["rounds"], done["reaped"]) == (200, 1, 0)
    redis = connect(settings)
    assert [key async for key in redis.scan_iter(f"{{{settings.namespace}:*")] == []
    await redis.aclose()
    await hosted.aclose()
