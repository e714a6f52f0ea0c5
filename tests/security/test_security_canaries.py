"""Canaries: secret words in all inputs, searched in all output and all responses of real processes."""

import asyncio
import json
import os
import subprocess
import uuid
from urllib.parse import urlsplit

import pytest
import redis

pytest.importorskip("aiohttp")

from sublet.connection.settings import Settings
from sublet_functions.api.routes import ROUTES
from sublet_functions.schemas.query import Empty
from tests.support.command_server import CLIENT, COMMANDS
from tests.support.http_server import ask, serve_process
from tests.support.paths import ROOT
from tests.support.processes import plain_environment, until

PASSWORD = "c4nary-redis-password"
SIGNING = "c4nary-signing-secret-of-ours"
ROLES = {role: f"c4nary-token-of-{role}-0123" for role in ("admin", "submit", "work", "read", "tick")}
TOKENS = " ".join(f"{role}-bot:{role}:{secret}" for role, secret in ROLES.items())
CODE = "c4nary-code-in-a-target"
SECRETS = [PASSWORD, SIGNING, CODE, *ROLES.values()]
"""These appear nowhere: in no response, no log, and no output of a command."""
DATA = {
    kind: f"c4nary-{kind}-of-a-job"
    for kind in ("payload", "result", "exception", "local", "log", "checkpoint", "progress")
}
"""These appear in responses to tokens that may read jobs, and in no log."""
TASKS = f"""
from sublet import App, Context, Discard

app = App()

@app.task
async def well(ctx: Context, word: str) -> str:
    ctx.progress(0.5, stage={DATA["progress"]!r})
    ctx.log({DATA["log"]!r})
    ctx.checkpoint({{"at": {DATA["checkpoint"]!r}}})
    return {DATA["result"]!r}

@app.task(max_attempts=1)
async def ill(word: str) -> None:
    local = {DATA["local"]!r}
    raise ValueError({DATA["exception"]!r})

@app.task(max_attempts=1)
def plain(word: str) -> None:
    raise Discard({DATA["exception"]!r})

@app.task
async def number(word: int) -> float:
    return float("nan")
"""


class Run:
    """A folder with the app and processes in it; keeps all their output."""

    def __init__(self, folder, settings):
        COMMANDS.start()
        self.folder, self.settings, self.written = folder, settings, {}
        (folder / "tasks.py").write_text(TASKS)
        self.env = plain_environment()
        self.env |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "SUBLET_NAMESPACE": settings.namespace}
        self.env |= {"SUBLET_REDIS_URL": settings.redis_url, "SUBLET_SIGNING_SECRETS": SIGNING}

    def __call__(self, *words, **env):
        """Run a command that may fail; returns its exit code and its output."""
        done = subprocess.run([*CLIENT, *words], cwd=self.folder, env=self.env | env,
                              capture_output=True, text=True, timeout=60)  # fmt: skip
        self.written[f"{len(self.written)} {' '.join(words)}"] = (done.stdout, done.stderr)
        return done.returncode, done.stdout


@pytest.fixture(scope="module")
def guarded(new_server):
    """A server with a password, and the URL with it."""
    server = new_server("valkey")
    with redis.Redis.from_url(server.url) as raw:
        raw.config_set("requirepass", PASSWORD)
    return server, f"unix://:{PASSWORD}@{urlsplit(server.url).path}"


@pytest.fixture(scope="module")
def day(guarded, tmp_path_factory):
    """A day: the output of all processes, all responses, and the tokens of leases."""
    server, url = guarded
    settings = Settings(redis_url=url, namespace=f"test-{uuid.uuid4().hex[:12]}")
    run = Run(tmp_path_factory.mktemp("day"), settings)
    env = {"SUBLET_SIGNING_SECRETS": SIGNING, "PYTHONPATH": run.env["PYTHONPATH"], "SUBLET_APP": "tasks:app"}
    with serve_process(settings, "--debug", tokens=TOKENS, **env) as api:
        answers, leases = asyncio.run(a_day_over_http(api.url))
        a_day_of_commands(run, api.url)
        answers += asyncio.run(all_reads(api.url))
        server.stop()
        for words in (
            ("get", "0-x"),
            ("submit", "well", json.dumps({"word": DATA["payload"]})),
            ("doctor",),
            ("tick",),
        ):
            assert run(*words, "--debug")[0] != 0
        answers += asyncio.run(an_outage_over_http(api.url))
        until(lambda: "cannot answer" in api.output(), api.output)
        api.stop()
        run.written["serve"] = (api.output(), "")
    return run.written, answers, leases


async def a_day_over_http(url):
    answers, leases = [], []

    async def asked(role, method, path, body=None, **how):
        answer = await ask(url, method, path, body, token=ROLES.get(role, role), **how)
        answers.append((role, method, path, answer))
        return answer

    word = {"word": DATA["payload"]}
    for task in ("well", "ill", "plain", "number"):
        made = await asked(
            "submit",
            "POST",
            "/jobs",
            {"task": task, "payload": word, "queue": "day"},
            idempotency_key=f'"{task}"',
        )
        assert made.status == 201
    await asked("submit", "POST", "/jobs", {"task": "ill", "payload": DATA["payload"]})
    await asked("submit", "POST", "/jobs", f'{{"task": "{DATA["payload"]}'.encode())
    await asked("submit", "POST", "/jobs", {"task": "t", "id": f"{DATA['payload']} !", "payload": word})
    await asked("an-unknown-token-0123456", "GET", "/jobs")
    await asked("submit", "GET", "/jobs")
    for ending in ("complete", "fail", "release"):
        await asked("submit", "POST", "/jobs", {"task": "t", "payload": word, "queue": "by-hand"})
        lease = (await asked("work", "GET", "/jobs/next?queue=by-hand&worker=hand&lease=600")).json()
        leases.append(lease["token"])
        held = {"token": lease["token"]}
        await asked("work", "POST", f"/jobs/{lease['id']}/heartbeat", held | {"progress": DATA["progress"]})
        await asked(
            "work",
            "POST",
            f"/jobs/{lease['id']}/note",
            held | {"log": DATA["log"], "checkpoint": DATA["checkpoint"]},
        )
        await asked("work", "POST", f"/jobs/{lease['id']}/heartbeat", {"token": lease["token"][:-1] + "!"})
        more = {
            "complete": {"result": DATA["result"]},
            "fail": {"code": "Boom", "message": DATA["exception"]},
        }.get(ending, {})
        await asked("work", "POST", f"/jobs/{lease['id']}/{ending}", held | more)
        await asked("work", "POST", f"/jobs/{lease['id']}/{ending}", held | more)
    await asked("submit", "POST", "/jobs", {"task": "t", "payload": word, "queue": "held"})
    (lease,) = (
        await asked("work", "POST", "/jobs/claim", {"queues": ["held"], "worker": "hand", "lease": 600})
    ).json()["jobs"]
    leases.append(lease["token"])
    target = f"https://example.com/work?code={CODE}"
    await asked("admin", "PUT", "/pools/called", {"queues": ["called"], "invoker": "http", "target": target})
    await asked("admin", "PUT", "/schedules/s", {"task": "well", "payload": word, "cron": "0 0 1 1 *"})
    await asked(
        "submit", "POST", "/work", {}, webhook_id="x", webhook_timestamp="1", webhook_signature="v1,c4nary"
    )
    return answers, leases


def a_day_of_commands(run, url):
    word = json.dumps({"word": DATA["payload"]})
    for task in ("well", "ill", "plain", "number", "an-unknown-task"):
        assert run("submit", task, word, "--debug")[0] == 0
    assert run("work", "tasks:app", "--drain", "--queues", "default,day", "--debug")[0] == 0
    assert run("submit", "well", word, "--debug")[0] == 0
    source = {"SUBLET_SOURCE": url, "SUBLET_TOKEN": ROLES["work"], "SUBLET_REDIS_URL": "redis://127.0.0.1:1"}
    assert run("work", "tasks:app", "--drain", "--debug", **source)[0] == 0
    assert run("work", "tasks:app", "--drain", "--debug", **source | {"SUBLET_TOKEN": ROLES["read"]})[0] != 0
    assert (
        run("work", "tasks:app", "--drain", "--debug", **source | {"SUBLET_TOKEN": "c4nary-unknown-token"})[0]
        != 0
    )
    for words in (
        ("list",),
        ("stats",),
        ("queues",),
        ("workers",),
        ("pools",),
        ("schedules",),
        ("doctor",),
        ("tick",),
    ):
        run(*words, "--debug")
        run(*words, "--debug", "--json")
    for words in (
        ("get", "0-none"),
        ("cancel", "0-none"),
        ("retry", "0-none"),
        ("submit", "well", "{no json"),
        ("serve", "--host", "0.0.0.0"),
    ):
        assert run(*words, "--debug")[0] != 0
    wrong = run.settings.redis_url.replace(PASSWORD, f"{PASSWORD}-wrong")
    for words in (("list",), ("doctor",), ("work", "tasks:app", "--drain"), ("submit", "well", word)):
        assert run(*words, "--debug", SUBLET_REDIS_URL=wrong)[0] != 0
    assert run("list", "--debug", "--redis-url", f"http://:{PASSWORD}@localhost")[0] == 2
    assert run("serve", "--debug", SUBLET_TOKENS=f"ci:none:{ROLES['admin']}")[0] == 2
    assert run("serve", "--debug", SUBLET_SIGNING_SECRETS=f"{SIGNING} whsec_{SIGNING}!")[0] == 2


async def all_reads(url):
    """Every route that only reads, with every role."""
    jobs = (await ask(url, "GET", "/jobs?limit=200", token=ROLES["read"])).json()["jobs"]
    paths = [
        route.path
        for route in ROUTES
        if route.method == "GET" and "{" not in route.path and route.path not in ("/jobs/next",)
    ]
    paths += [f"/jobs/{job['id']}" for job in jobs]
    paths += ["/pools/called", "/schedules/s", "/queues/day", "/events?after=0", "/jobs?limit=200"]
    answers = []
    for role in ("read", "admin", "submit", "work", "tick"):
        for path in paths:
            answers.append((role, "GET", path, await ask(url, "GET", path, token=ROLES[role])))
    assert all(route.body is Empty for route in ROUTES if route.method == "GET")
    return answers


async def an_outage_over_http(url):
    word = {"task": "t", "payload": {"word": DATA["payload"]}}
    asked = [
        ("POST", "/jobs", word),
        ("GET", "/readyz", None),
        ("POST", "/jobs/claim", {}),
        ("GET", "/jobs", None),
    ]
    return [
        ("admin", method, path, await ask(url, method, path, body, token=ROLES["admin"]))
        for method, path, body in asked
    ]


def test_no_secret_is_in_any_output_or_response(day):
    written, answers, _ = day
    for name, streams in written.items():
        for secret in SECRETS:
            assert secret not in streams[0] + streams[1], f"{name}: {secret}"
    for role, method, path, answer in answers:
        for secret in SECRETS:
            assert secret.encode() not in answer.body + repr(answer.headers).encode(), (
                f"{method} {path} as {role}: {secret}"
            )
    assert len(written) > 40
    assert any("Traceback" in err for _, err in written.values()), "--debug prints tracebacks"


def test_a_lease_token_is_returned_only_by_its_claim(day):
    written, answers, leases = day
    assert len(leases) == 4
    assert len(set(leases)) == 4
    for role, method, path, answer in answers:
        if not path.startswith(("/jobs/next", "/jobs/claim")):
            assert not [one for one in leases if one.encode() in answer.body], f"{method} {path} as {role}"
            assert b'"token"' not in answer.body or answer.status == 422 or path == "/openapi.json", (
                f"{method} {path} as {role}"
            )
    for name, streams in written.items():
        assert not [one for one in leases if one in streams[0] + streams[1]], name


def test_the_data_of_jobs_is_in_no_log(day):
    """Commands print only the requested fields. A worker's event on stdout contains the exception of a
    failed attempt.
    """
    written, _, _ = day
    shows = ("get", "list", "schedules")
    for name, (out, err) in written.items():
        verb = name.split()[1] if " " in name else name
        for kind, canary in DATA.items():
            assert canary not in err, f"{name}: {kind}"
            if verb not in shows and (verb, kind) != ("work", "exception"):
                assert canary not in out, f"{name}: {kind}"


def test_a_token_without_the_role_read_gets_no_jobs(day):
    _, answers, _ = day
    assert len([1 for role, *_ in answers if role == "read"]) > 20
    for role, method, path, answer in answers:
        if role == "tick" or (role == "submit" and method == "GET" and not path.startswith("/jobs/")):
            for kind, canary in DATA.items():
                assert canary.encode() not in answer.body, f"{method} {path} as {role}: {kind}"
    for _, method, path, answer in answers:
        if answer.status >= 400:
            for kind, canary in DATA.items():
                assert canary.encode() not in answer.body, (
                    f"{method} {path} {answer.status}: {kind} in an error"
                )
