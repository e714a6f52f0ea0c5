"""Tasks, their child processes and programs get no secret of the server or worker that runs them."""

import contextlib
import json
import os
import subprocess
import sys
from functools import partial

import pytest

from sublet.client.sync_client import SyncClient
from sublet.connection import held_secrets
from sublet.connection.settings import Settings
from sublet.scaling.signing import Secrets
from sublet_functions.http.auth import Tokens
from tests.support.http_server import ask, serve_process
from tests.support.lambda_runtime import asking, runtime
from tests.support.paths import ROOT
from tests.support.platforms import asgi, asked_at, wsgi

pytest_plugins = ["tests.support.command_line"]
TOKEN, SIGNING, OWN = "t" * 40, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "w" * 40
TASKS = """
import ctypes, os
from sublet import App

app = App()

def found():
    return [dict(os.environ), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)]

@app.task
async def inside() -> list:
    return found()

@app.task
def child() -> list:
    return found()

app.command("env", name="program")
"""
NAMES = ("inside", "child", "program")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")


def ends(shell, names=NAMES):
    """Submit tasks; return a function that waits for the results."""
    settings = Settings(redis_url=shell.env["SUBLET_REDIS_URL"], namespace=shell.env["SUBLET_NAMESPACE"])
    ids = [shell.ok("submit", name) for name in names]

    def results():
        with SyncClient(settings) as client:
            return [json.dumps(client.result(job_id, 30)) for job_id in ids]

    return settings, results


@pytest.fixture
def app(shell):
    (shell.folder / "held.py").write_text(TASKS)
    return shell


@on_linux
async def test_tasks_of_a_server_do_not_get_its_secrets(app):
    """A signed `POST /work` and the tokens still work."""
    settings, results = ends(app)
    path = {"PYTHONPATH": f"{app.env['PYTHONPATH']}:{app.folder}", "SUBLET_SIGNING_SECRETS": SIGNING}
    with serve_process(settings, "--app", "held:app", tokens=f"me:admin:{TOKEN}", **path) as server:
        body = json.dumps({"queues": ["default"], "slots": 2, "linger": 0}).encode()
        signed = Secrets(SIGNING).sign("a-summons-of-the-test", body)
        headers = {name.replace("-", "_"): value for name, value in signed.items()}
        answer = await ask(server.url, "POST", "/work", body, content_type="application/json", **headers)
        assert (answer.status, answer.json()["completed"]) == (200, 3), server.output()
        assert (await ask(server.url, "GET", "/jobs", token=TOKEN)).status == 200
        assert (await ask(server.url, "GET", "/jobs")).status == 401
    found = results()
    for text in found:
        assert TOKEN not in text
        assert "MfKQ9r8" not in text
        assert "SUBLET_TOKENS" not in text
    assert app.env["SUBLET_REDIS_URL"] in found[1], "tasks may submit jobs"
    assert json.loads(found[0])[1] == 0, "other processes of this user may not read the server's memory"


@contextlib.contextmanager
def served(start, settings, folder, *words, **env):
    with start(settings, folder, *words, **env) as server:
        yield asked_at(server.url, TOKEN)


@contextlib.contextmanager
def invoked(settings, folder, **env):
    with runtime(settings, folder=folder, **env) as invoke:
        asked = asking(invoke)
        yield lambda *request, token=TOKEN: asked(*request, token=token)


HOSTS = {
    "uvicorn": partial(served, asgi),
    "gunicorn, forked after the import": lambda *where, **env: served(wsgi, *where, "--preload", **env),
    "lambda": invoked,
}


@on_linux
@pytest.mark.parametrize("host", HOSTS)
async def test_tasks_in_another_server_do_not_get_its_secrets(app, host):
    settings, results = ends(app)
    env = {"SUBLET_TOKENS": f"me:admin:{TOKEN}", "SUBLET_SIGNING_SECRETS": SIGNING, "SUBLET_APP": "held:app"}
    with HOSTS[host](settings, app.folder, **env) as asked:
        wish = {"queues": ["default"], "slots": 2, "linger": 0}
        answer = await asked("POST", "/work", wish)
        assert (answer.status, answer.json()["completed"]) == (200, 3)
        assert (await asked("GET", "/jobs")).status == 200, "the tokens are still known"
        assert (await asked("GET", "/jobs", token="")).status == 401
    found = results()
    for text in found:
        assert TOKEN not in text
        assert "MfKQ9r8" not in text
    assert app.env["SUBLET_REDIS_URL"] in found[1], "tasks may submit jobs"
    assert json.loads(found[0])[1] == 0, "other processes of this user may not read the server's memory"


@on_linux
def test_tasks_of_a_worker_do_not_get_its_token_and_signing_secrets(app):
    settings, results = ends(app)
    with serve_process(settings, tokens=f"fleet:work:{OWN}") as server:
        done = app.run(
            "work",
            "held:app",
            "--drain",
            SUBLET_SOURCE=server.url,
            SUBLET_TOKEN=OWN,
            SUBLET_SIGNING_SECRETS=SIGNING,
        )
    assert done.returncode == 0, done.stderr
    for text in results():
        assert OWN not in text
        assert "MfKQ9r8" not in text


HOLDER = """
import ctypes, os
from sublet.connection.held_secrets import hold_secrets
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as after an exec
hold_secrets()
if os.fork():
    os.wait()
else:
    for name in ("environ", "mem"):
        try:
            open(f"/proc/{os.getppid()}/{name}", "rb").close()
            print("open", name)
        except PermissionError:
            print("denied", name)
"""


@on_linux
@pytest.mark.parametrize("secret", [{}, {"SUBLET_TOKENS": f"me:admin:{TOKEN}"}])
def test_a_process_of_the_same_user_cannot_read_a_holders_memory(secret):
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}/jobs:{ROOT}/functions"}
    words = [sys.executable, "-c", HOLDER]
    done = subprocess.run(words, env=env | secret, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    word = "denied" if secret else "open"
    assert done.stdout.split("\n")[:2] == [f"{word} environ", f"{word} mem"]


def test_held_secrets_are_still_read(monkeypatch):
    monkeypatch.setattr(
        held_secrets, "_held", {"SUBLET_TOKENS": f"me:admin:{TOKEN}", "SUBLET_SIGNING_SECRETS": SIGNING}
    )
    for name in held_secrets.SECRETS:
        monkeypatch.delenv(name, raising=False)
    assert (len(Tokens.read()), len(Secrets.read())) == (1, 1)
