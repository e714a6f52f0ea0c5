"""The worker function over HTTP: authorization, responses, and work that continues without the caller's
connection."""

import asyncio
import json
import logging
import os
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import redis

pytest.importorskip("aiohttp")

from sublet import App
from sublet.errors import Invalid
from sublet.operations import pools
from sublet.operations.pool import Pool
from sublet.protocol import keys
from sublet.scaling.invokers import Invocation, InvocationFailed
from sublet.scaling.invokers.addresses import Reach
from sublet.scaling.invokers.http import UNSEEN, HttpInvoker
from sublet.scaling.signing import Secrets
from sublet.scaling.summoner import Summoned, Summoner
from sublet.store.store import Store
from sublet_functions.handlers import worker_host as module
from sublet_functions.handlers.worker_host import WorkerHost
from sublet_functions.serve import Stop
from tests.support.http_server import Wire, ask, refuses, serve_process, serving, spawn, wire
from tests.support.paths import ROOT
from tests.support.processes import is_alive, until
from tests.support.program_runs import soon

pytest_plugins = ["tests.support.http_settings"]

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SECRETS = Secrets(SECRET)
BODY = {"pool": "", "queues": ["q"], "slots": 2, "linger": 0, "summons": ""}


@pytest.fixture
async def app(settings):
    """An app whose task `wait` runs until the gate is opened."""
    app = App(settings=settings)
    app.begun, app.gate = asyncio.Event(), asyncio.Event()

    @app.task(queue="q")
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @app.task(queue="q")
    async def wait() -> str:
        app.begun.set()
        await app.gate.wait()
        return "done"

    yield app
    await app.client.aclose()


@pytest.fixture
async def worker_host(app):
    host = WorkerHost(app)
    yield host
    app.gate.set()
    await host.aclose()
    assert not host._runs


@pytest.fixture
async def url(settings, worker_host):
    async with serving(settings, worker_host=worker_host, secrets=SECRETS) as url:
        yield url


async def submit(app, name, **arguments):
    return await app.tasks[name].submit(**arguments)


def signed(body=None, secrets=SECRETS, summons="s.1", **how):
    """The body and the headers of a signed request."""
    data = json.dumps(BODY if body is None else body).encode()
    headers = secrets.sign(summons, data, **how)
    return data, {name.replace("-", "_"): value for name, value in headers.items()}


async def begin(url, query="", body=None):
    """Call the worker function and wait for the response head; returns the connection and the head."""
    one = await Wire.open(url)
    data = json.dumps(BODY if body is None else body).encode()
    head = f"POST /work{query} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    one.write(head.encode() + data)
    async with asyncio.timeout(30):
        return one, (await one.reader.readuntil(b"\r\n\r\n")).decode()


async def test_a_worker_runs_all_jobs_and_returns_their_counts(app, url):
    handles = [await submit(app, "add", a=n) for n in range(5)]
    answer = await ask(url, "POST", "/work", BODY)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    counts = answer.json()
    assert counts | {"seconds": 0} == {
        "completed": 5,
        "failed": 0,
        "cancelled": 0,
        "released": 0,
        "suspended": 0,
        "refused": 0,
        "seconds": 0,
        "stalled": False,
    }
    assert [await handle.result(timeout=10) for handle in handles] == [1, 2, 3, 4, 5]


async def test_an_empty_body_selects_the_queues_of_the_app(app, url):
    await submit(app, "add", a=1)
    assert (await ask(url, "POST", "/work", b"", content_type="application/json")).json()["completed"] == 1
    assert (await ask(url, "POST", "/work", {})).json()["completed"] == 0


async def test_the_head_is_sent_at_once_and_the_body_at_the_end(app, url, monkeypatch):
    monkeypatch.setattr(module, "KEEP_ALIVE", 0.05)
    await submit(app, "wait")
    one, head = await begin(url)
    assert head.startswith("HTTP/1.1 200 OK")
    async with asyncio.timeout(30):
        await app.begun.wait()
        assert await one.reader.readexactly(6 * 3) == b"1\r\n\n\r\n" * 3, (
            "line breaks keep the connection from being idle"
        )
        app.gate.set()
        rest = await one.reader.readuntil(b"0\r\n\r\n")
    assert b'"completed":1' in rest
    one.close()


async def test_a_worker_continues_after_its_caller_disconnects(app, url, worker_host):
    handle = await submit(app, "wait")
    one, _ = await begin(url)
    async with asyncio.timeout(30):
        await app.begun.wait()
    one.close(rudely=True)
    await soon(lambda: len(worker_host._runs) == 1)
    assert (await ask(url, "POST", "/work", BODY)).problem == "at-work"
    app.gate.set()
    assert await handle.result(timeout=30) == "done"
    await soon(lambda: not worker_host._runs)


async def test_a_second_worker_is_refused_with_429(app, url):
    await submit(app, "wait")
    one, _ = await begin(url)
    for _ in range(2):
        answer = await ask(url, "POST", "/work", BODY)
        assert (answer.status, answer.problem) == (429, "at-work")
        assert int(answer.headers["retry-after"]) >= 1
    app.gate.set()
    async with asyncio.timeout(30):
        await one.reader.readuntil(b"0\r\n\r\n")
    assert (await ask(url, "POST", "/work", BODY)).status == 200
    one.close()


async def test_several_workers_may_run_if_configured_and_each_log_line_is_kept_once(app, settings):
    @app.task(queue="logs")
    async def talks() -> None:
        logging.getLogger("mine").warning("only once")

    async with serving(settings, worker_host=WorkerHost(app, most=2)) as url:
        await submit(app, "wait")
        one, _ = await begin(url)
        async with asyncio.timeout(30):
            await app.begun.wait()
        handle = await submit(app, "talks")
        assert (await ask(url, "POST", "/work", BODY | {"queues": ["logs"]})).json()["completed"] == 1
        job = (await ask(url, "GET", f"/jobs/{handle.id}")).json()
        assert json.dumps(job).count("only once") == 1
        app.gate.set()
        one.close()


async def test_a_worker_ends_after_its_duration(app, settings):
    async with serving(settings, worker_host=WorkerHost(app, seconds=1.0)) as url:
        for query in ("?for=1", "?for=86400"):
            await submit(app, "wait")
            app.begun.clear()
            began = time.monotonic()
            answer = await ask(url, "POST", f"/work{query}", BODY)
            assert (answer.status, answer.json()["released"] >= 1) == (200, True)
            assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"pool": "a b"}, "#/pool"),
        ({"queues": ["a"] * 33}, "#/queues"),
        ({"queues": [""]}, "#/queues/0"),
        ({"slots": 0}, "#/slots"),
        ({"slots": 10_001}, "#/slots"),
        ({"slots": "4"}, "#/slots"),
        ({"linger": -1}, "#/linger"),
        ({"linger": 1e9}, "#/linger"),
        ({"pool": "p", "summons": "x" * 129}, "#/summons"),
        ({"summons": "s.1"}, "#"),
        ({"app": "os:system"}, "#/app"),
    ],
)
async def test_an_invalid_body_is_refused_with_its_place(url, body, where):
    answer = await ask(url, "POST", "/work", body)
    assert (answer.status, answer.places[0]) == (422, where)


@pytest.mark.parametrize("query", ["for=0", "for=nan", "for=86401", "seconds=5"])
async def test_an_invalid_duration_is_refused(url, query):
    assert (await ask(url, "POST", f"/work?{query}", BODY)).problem == "invalid"


# authorization


async def test_without_an_app_work_is_404(settings):
    async with serving(settings, secrets=SECRETS) as url:
        data, headers = signed()
        for answer in (
            await ask(url, "POST", "/work", BODY),
            await ask(url, "POST", "/work", data, **headers),
        ):
            assert (answer.status, answer.problem) == (404, "not-found")
            assert "set SUBLET_APP, or use sublet serve --app" in answer.json()["detail"]


async def test_a_signature_replaces_a_token_for_work_only(app, settings, worker_host):
    tokens = "crew:work:secret-of-the-crew-1 eye:read:secret-of-the-eye-01"
    async with serving(settings, worker_host=worker_host, secrets=SECRETS, tokens=tokens) as url:
        data, headers = signed()
        assert (await ask(url, "POST", "/work", data, **headers)).status == 200
        assert (await ask(url, "POST", "/work", BODY, token="secret-of-the-crew-1")).status == 200
        assert (await ask(url, "POST", "/work", BODY, token="secret-of-the-eye-01")).problem == "forbidden"
        assert (await ask(url, "POST", "/work", BODY)).problem == "unauthorized"
        for path in ("/tick", "/jobs/claim"):
            assert (await ask(url, "POST", path, data, **headers)).problem == "unauthorized"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"secrets": Secrets("another-secret-of-ours")}, "the signature does not match"),
        ({"at": time.time() - 3600}, "s old, and 300 s are allowed"),
        ({"at": time.time() + 3600}, "s in the future, and 300 s are allowed"),
    ],
)
async def test_an_invalid_signature_is_refused(url, change, why, worker_host):
    data, headers = signed(**change)
    answer = await ask(url, "POST", "/work", data, **headers)
    assert (answer.status, answer.problem) == (401, "unauthorized")
    assert why in answer.json()["detail"]
    assert SECRET.encode() not in answer.body
    assert not worker_host._runs


async def test_a_changed_signed_request_is_refused_even_with_a_valid_token(app, settings, worker_host):
    async with serving(
        settings, worker_host=worker_host, secrets=SECRETS, tokens="crew:work:secret-of-the-crew-1"
    ) as url:
        data, headers = signed()
        changed = await ask(
            url, "POST", "/work", data.replace(b'"q"', b'"p"'), token="secret-of-the-crew-1", **headers
        )
        assert changed.problem == "unauthorized"
        large = await ask(url, "POST", "/work", b"x" * 20_000, **headers)
        assert (large.status, large.problem) == (413, "too-large")


async def test_a_server_without_a_secret_accepts_no_signature(settings, worker_host):
    async with serving(settings, worker_host=worker_host) as url:
        data, headers = signed()
        answer = await ask(url, "POST", "/work", data, **headers)
        assert (answer.problem, "SUBLET_SIGNING_SECRETS" in answer.json()["detail"]) == ("unauthorized", True)


async def test_a_signed_request_through_a_proxy_is_refused_without_tokens(url):
    data, headers = signed()
    assert (
        await ask(url, "POST", "/work", data, x_forwarded_for="192.0.2.1", **headers)
    ).problem == "forbidden"


class RecordingInvoker(HttpInvoker):
    """An invoker that records its requests."""

    def __init__(self):
        super().__init__(SECRETS, reach=Reach.LOCAL)
        self.asked = []

    async def invoke(self, request):
        self.asked.append(request)
        await super().invoke(request)


@pytest.fixture
async def summoner(settings, app, url, monkeypatch):
    """Summons workers for a pool at the server's own URL."""
    monkeypatch.setenv("SUBLET_INVOKE_PRIVATE", "local")
    store = Store(settings)
    await store.prepare()
    pool = Pool(
        name="images", queues=("q",), invoker="http", target=f"{url}/work?for=30", slots=2, linger=0.0
    )
    await store.follow(pools.put(store.operations.bases, pool, None))
    one = Summoner(store, {"http": RecordingInvoker()})
    one.requests = one._invokers["http"].asked
    yield one
    await one.aclose()
    await store.aclose()


async def test_a_summoned_worker_works_after_its_caller_disconnects(app, summoner, worker_host):
    handle = await submit(app, "wait")
    assert await summoner.summon() == Summoned(pools=1, summoned=1, failed=0)
    await summoner.aclose()  # disconnects
    async with asyncio.timeout(30):
        await app.begun.wait()
    app.gate.set()
    assert await handle.result(timeout=30) == "done"
    await soon(lambda: not worker_host._runs)


async def test_a_replayed_invocation_has_no_effect(app, summoner, worker_host):
    """A signed request, replayed in time by an attacker: no worker is expected for that summons, and none
    is wanted.
    """
    handle = await submit(app, "add", a=1)
    await summoner.summon()
    assert await handle.result(timeout=30) == 2
    await soon(lambda: not worker_host._runs)
    (request,) = summoner.requests
    again = HttpInvoker(SECRETS, Reach.LOCAL)
    handle = await submit(app, "add", a=2)
    await again.invoke(request)
    await soon(lambda: not worker_host._runs)
    assert (await app.client.get(handle.id)).state == "queued"
    await again.aclose()


async def test_an_invocation_during_work_fails_and_is_counted(app, url, summoner, caplog):
    await submit(app, "wait")
    one, _ = await begin(url)
    async with asyncio.timeout(30):
        await app.begun.wait()
    await submit(app, "add", a=1)
    assert await summoner.summon() == Summoned(pools=1, summoned=0, failed=1)
    (pool,) = await summoner._store.follow(pools.look_at_all(summoner._store.operations.bases))
    assert (pool.failures, pool.failure) == (1, UNSEEN)
    assert "the target answered 429" in caplog.text
    app.gate.set()
    one.close()


async def test_worker_ends_are_logged_and_refusals_once_a_minute(app, url, caplog, monkeypatch):
    monkeypatch.setattr(module, "_logged_at", {})
    caplog.set_level(logging.INFO, "sublet_functions.handlers.worker_host")
    foreign = HttpInvoker(Secrets("another-secret-of-ours"), Reach.LOCAL)
    for i in range(2):
        with pytest.raises(InvocationFailed):
            await foreign.invoke(Invocation("images", f"{url}/work", ("q",), 2, 0.0, (f"s.{i}",)))
    await foreign.aclose()
    await submit(app, "add", a=1)
    one, _ = await begin(url)
    await soon(lambda: "a worker ended after" in caplog.text)
    one.close()
    refused, gone = [
        record.getMessage()
        for record in caplog.records
        if record.name == "sublet_functions.handlers.worker_host"
    ]
    assert refused.startswith(
        "POST /work refused with 401 (logged at most once a minute): the signature does not match"
    )
    assert gone.startswith("a worker ended after ")


async def test_an_invocation_with_a_wrong_signature_starts_no_worker(url, summoner):
    foreign = HttpInvoker(Secrets("another-secret-of-ours"), Reach.LOCAL)
    with pytest.raises(InvocationFailed) as failed:
        await foreign.invoke(Invocation("images", f"{url}/work", ("q",), 2, 0.0, ("s.1",)))
    assert (
        failed.value.detail
        == "the target answered 401: does it have the same SUBLET_SIGNING_SECRETS as this process?"
    )
    await foreign.aclose()


# trouble, and the stop


async def test_without_redis_work_is_503(app, settings):
    app.settings = replace(settings, redis_url="redis://127.0.0.1:1", timeout=0.5)
    host = WorkerHost(app)
    async with serving(settings, worker_host=host) as url:
        for _ in range(2):  # the second time because the slot is free again
            assert (await ask(url, "POST", "/work", BODY)).problem == "unavailable"
    app.settings = settings


async def test_at_the_stop_the_worker_releases_jobs_and_the_caller_gets_a_response(
    app, settings, monkeypatch
):
    monkeypatch.setattr(module, "GRACE", 0.2)
    stop = Stop()
    async with serving(settings, worker_host=WorkerHost(app), stop=stop) as url:
        handle = await submit(app, "wait")
        one, _ = await begin(url)
        async with asyncio.timeout(30):
            await app.begun.wait()
            stop.ask()
            rest = await one.reader.read(-1)
        assert b'"released":1' in rest
        assert rest.endswith(b"0\r\n\r\n")
    job = await app.client.get(handle.id)
    assert (job.state, job.attempt) == ("queued", 1)


async def test_a_worker_whose_caller_disconnected_releases_its_jobs(app, settings, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.2)
    async with serving(settings, worker_host=WorkerHost(app)) as url:
        handle = await submit(app, "wait")
        one, _ = await begin(url)
        async with asyncio.timeout(30):
            await app.begun.wait()
        one.close(rudely=True)
    assert (await app.client.get(handle.id)).state == "queued"


async def test_a_second_stop_does_not_wait_for_the_grace(app, settings, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 60)
    stop = Stop()
    async with serving(settings, worker_host=WorkerHost(app), stop=stop) as url:
        handle = await submit(app, "wait")
        async with wire(url):
            one, _ = await begin(url)
            async with asyncio.timeout(30):
                await app.begun.wait()
            stop.ask()
            stop.ask()
    assert (await app.client.get(handle.id)).state == "queued"
    one.close()


async def test_a_stop_releases_the_jobs_within_its_time(app, settings, monkeypatch):
    """Although the worker's own grace is longer."""
    monkeypatch.setattr(module, "GRACE", 60)
    monkeypatch.setattr(module, "RELEASE_SECONDS", 19.8)
    host = WorkerHost(app)
    handle = await submit(app, "wait")
    await host.start(module.Summons(**BODY), 60)
    async with asyncio.timeout(30):
        await app.begun.wait()
        await host.finish(20, asyncio.Event())
    assert not host.busy
    assert (await app.client.get(handle.id)).state == "queued"


async def test_the_end_of_a_worker_that_does_not_end_is_part_of_the_time_to_finish(app, monkeypatch):
    """5 s to finish and release, 1 s for its cancellation. It took 5, 4 and 4 s."""
    clock = [100.0]

    async def wait(tasks, timeout=None, return_when=None):
        if timeout is not None:
            clock[0] += timeout
            await asyncio.sleep(0)

    host, run = WorkerHost(app), module.WorkerRun()
    run.task = asyncio.get_running_loop().create_future()
    run.task.cancel = lambda: None
    host._runs.add(run)
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(module.asyncio, "wait", wait)
    await host.finish(5.0, asyncio.Event())
    assert clock[0] == 105
    await host.aclose()
    assert clock[0] == 106


RESTING = """
import os, time
from sublet import App

app = App()

@app.task
def rest(file: str) -> None:
    with open(file, "w") as pid:
        pid.write(str(os.getpid()))
    time.sleep(60)
"""


def test_serve_runs_an_app_and_its_signals_end_the_worker(settings, tmp_path):
    """With a real process, a real signal, and a plain function in a child process."""
    (tmp_path / "resting.py").write_text(RESTING)
    file = tmp_path / "pid"
    env = {
        "SUBLET_SIGNING_SECRETS": SECRET,
        "SUBLET_WORK_SECONDS": "30",
        "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}",
    }
    with serve_process(settings, "--app", "resting:app", **env) as server:

        async def calls():
            assert (await ask(server.url, "POST", "/work", {})).json()["completed"] == 0
            job = (
                await ask(server.url, "POST", "/jobs", {"task": "rest", "payload": {"file": str(file)}})
            ).json()["id"]
            one, head = await begin(server.url, body={})
            assert head.startswith("HTTP/1.1 200")
            await soon(lambda: file.exists() and file.read_text())
            one.close()
            return job

        job = asyncio.run(calls())
        for _ in range(2):
            server.signal(signal.SIGTERM)
            until(lambda: server.process.poll() is not None or refuses(server.url))
        assert server.wait() == 0, server.output()
        assert "Traceback" not in server.output()
        until(lambda: not is_alive(int(file.read_text())))
    with redis.Redis.from_url(settings.redis_url, decode_responses=True) as raw:
        assert raw.hget(keys.job(keys.base(settings.namespace), job), "state") == "queued"


@pytest.mark.parametrize(
    ("words", "env", "why"),
    [
        (("--app", "nowhere:app"), {}, "there is no module nowhere"),
        (
            ("--app", "tests.support.tasks:app"),
            {"SUBLET_WORK_SECONDS": "soon"},
            "SUBLET_WORK_SECONDS='soon': use seconds",
        ),
        (
            (),
            {"SUBLET_SIGNING_SECRETS": "s3cret"},
            "SUBLET_SIGNING_SECRETS: word 1: a secret must have 16 to 512 bytes",
        ),
    ],
)
def test_invalid_settings_are_refused_at_the_start(settings, tmp_path, words, env, why):
    with spawn(settings, tmp_path, *words, **env) as server:
        assert server.wait() == 2
        assert why in server.output()
        assert "s3cret" not in server.output()


@pytest.mark.parametrize("value", ["0", "x", "-1", "86401", "nan", "inf"])
def test_an_invalid_duration_in_the_environment_is_refused(value):
    with pytest.raises(Invalid, match="SUBLET_WORK_SECONDS"):
        WorkerHost.seconds_of({"SUBLET_WORK_SECONDS": value})
    assert (WorkerHost.seconds_of({}), WorkerHost.seconds_of({"SUBLET_WORK_SECONDS": "12.5"})) == (55.0, 12.5)
