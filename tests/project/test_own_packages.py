"""A project with its own packages `jobs`, `functions`, `lua`, `tests` and `deploy` uses Sublet from the wheel.

The environment holds the wheel alone; the libraries that it depends on are those of the environment that runs the tests.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import urllib.request
import uuid
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.processes import SECONDS, until

OWN = ("deploy", "functions", "jobs", "lua", "tests")
"""The packages of the project. Each has a module `models` with a constant."""
TASKS = """
import deploy.models, functions.models, jobs.models, lua.models, tests.models
from sublet import App

app = App()


def names():
    return [module.models.NAME for module in (deploy, functions, jobs, lua, tests)]


@app.task
async def on_the_loop() -> list[str]:
    return names()


@app.task
def in_a_child() -> list[str]:
    import jobs.late
    return [*names(), jobs.late.NAME]


@app.task(run="thread")
def in_a_thread() -> list[str]:
    return names()
"""
NAMES = [f"own {name}" for name in OWN]
RESULTS = {"on_the_loop": NAMES, "in_a_child": [*NAMES, "own late"], "in_a_thread": NAMES}
LAMBDA = """
import json, sublet_functions.aws

class Context:
    def get_remaining_time_in_millis(self):
        return 30000

event = {"sublet": "work", "for": 10}
print(json.dumps(sublet_functions.aws.handler(event, Context())))
"""
SERVERS = {
    "serve": ["-m", "sublet", "serve", "--app", "tasks:app", "--port", "0"],
    "asgi": ["-m", "uvicorn", "sublet_functions.asgi:app", "--port", "0"],
    "wsgi": ["-m", "gunicorn", "sublet_functions.wsgi:app", "--bind", "127.0.0.1:0"],
    "google": ["-m", "functions_framework", "--target", "http", "--host", "127.0.0.1", "--port", "0"],
}
"""Each server of the API: what follows `python`."""
LISTENING = re.compile(r"http://127\.0\.0\.1:[1-9]\d*")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel."""
    folder = tmp_path_factory.mktemp("with-the-wheel")
    call(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder / "dist", ROOT)
    venv.EnvBuilder(symlinks=True).create(folder / "env")
    python = folder / "env" / "bin" / "python"
    site = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (wheel,) = (folder / "dist").glob("*.whl")
    call(sys.executable, "-m", "zipfile", "-e", wheel, site)
    # A folder named in a .pth file is searched, and its own .pth files (the checkout's) are not read.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in OWN:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "models.py").write_text(f"NAME = 'own {name}'\n")
    (tmp_path / "jobs" / "late.py").write_text("NAME = 'own late'\n")
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "main.py").write_text("from sublet_functions.google import http\n")
    return tmp_path


@pytest.fixture
def env(server_url: Any) -> dict[str, str]:
    """The environment of every command: a namespace of its own, and the project's app."""
    namespace = f"test-{uuid.uuid4().hex[:12]}"
    plain = {name: os.environ[name] for name in ("PATH", "HOME", "RUN_OF_THE_TESTS") if name in os.environ}
    redis = {"SUBLET_REDIS_URL": server_url("redis"), "SUBLET_NAMESPACE": namespace}
    return plain | redis | {"SUBLET_APP": "tasks:app", "PYTHONUNBUFFERED": "1", "GUNICORN_LOG_LEVEL": "info"}


def call(*words: object, **how: Any) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, **how)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def submit_all(python: Path, project: Path, env: dict[str, str]) -> dict[str, str]:
    """Submit each task once; returns the jobs' ids by task."""
    submit = [python, "-m", "sublet", "submit"]
    return {task: call(*submit, task, cwd=project, env=env).strip() for task in RESULTS}


def results(python: Path, project: Path, env: dict[str, str], ids: dict[str, str]) -> dict[str, Any]:
    """The results of the jobs, by task."""
    get = [python, "-m", "sublet", "get", "--json"]
    found = {task: json.loads(call(*get, job, cwd=project, env=env)) for task, job in ids.items()}
    return {task: job.get("result", job) for task, job in found.items()}


def test_sublet_is_imported_from_the_wheel_and_jobs_from_the_project(python, project, env):
    program = "import sublet, sublet_functions, jobs, functions; print(sublet.__file__, jobs.__file__)"
    ours, theirs = call(python, "-c", program, cwd=project, env=env).split()
    assert str(python.parents[1]) in ours
    assert theirs == str(project / "jobs" / "__init__.py")


def test_a_worker_runs_the_projects_tasks(python, project, env):
    ids = submit_all(python, project, env)
    call(python, "-m", "sublet", "work", "--drain", cwd=project, env=env)
    assert results(python, project, env, ids) == RESULTS


def test_the_console_script_runs_the_projects_tasks(python, project, env):
    ids = submit_all(python, project, env)
    script = "import sys; from sublet.__main__ import main; sys.exit(main())"
    call(python, "-P", "-c", script, "work", "--drain", cwd=project, env=env)
    assert results(python, project, env, ids) == RESULTS


@contextlib.contextmanager
def serving(words: list[str], python: Path, project: Path, env: dict[str, str]) -> Iterator[str]:
    """The URL of a server of the API that runs in the project."""
    log = project / "log"
    with log.open("wb") as out:
        command = [str(python), *words]
        process = subprocess.Popen(command, cwd=project, env=env, stdout=out, stderr=out)
    try:
        until(lambda: LISTENING.search(log.read_text()) or process.poll() is not None, log.read_text)
        found = LISTENING.search(log.read_text())
        assert found, log.read_text()
        yield found[0]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def request(url: str, path: str, token: str, body: Any = None) -> Any:
    """Send a request; POST where there is a body."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=SECONDS) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize("words", SERVERS.values(), ids=SERVERS)
def test_each_server_runs_the_projects_tasks(words, python, project, env):
    token = uuid.uuid4().hex
    env |= {"SUBLET_TOKENS": f"test:admin,submit,read,work:{token}"}
    with serving(words, python, project, env) as url:
        ids = {task: request(url, "/jobs", token, {"task": task})["id"] for task in RESULTS}
        request(url, "/work?for=20", token, {})
        found = {task: request(url, f"/jobs/{job}?wait=20", token)["result"] for task, job in ids.items()}
    assert found == RESULTS


def test_a_lambda_function_runs_the_projects_tasks(python, project, env):
    ids = submit_all(python, project, env)
    call(python, "-c", LAMBDA, cwd=project, env=env)
    assert results(python, project, env, ids) == RESULTS


def test_dev_runs_the_projects_tasks_and_reloads_its_packages(python, project, env):
    del env["SUBLET_REDIS_URL"]
    events = project / "events"
    with events.open("wb") as out:
        words = [str(python), "-m", "sublet", "dev", "tasks:app", "--json", "--port", "0"]
        process = subprocess.Popen(words, cwd=project, env=env, stdout=out, stderr=out)
    try:
        ready = until(lambda: event(events, "ready", "url") or process.poll() is not None, events.read_text)
        own = env | {"SUBLET_REDIS_URL": ready["redis_url"]}
        waited = [python, "-m", "sublet", "submit", "--wait", "30", "--json"]
        first = json.loads(call(*waited, "in_a_child", cwd=project, env=own))
        assert first["result"] == RESULTS["in_a_child"]
        (project / "jobs" / "models.py").write_text("NAME = 'another'\n")
        until(lambda: event(events, "reloaded", "source"), events.read_text)
        second = json.loads(call(*waited, "in_a_child", cwd=project, env=own))
        assert "another" in second["result"]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(SECONDS)


def event(path: Path, name: str, field: str) -> dict[str, Any] | None:
    """The latest event of that name, with such a field, in the lines that `sublet dev --json` has written."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    return next((line for line in reversed(lines) if line["event"] == name and field in line), None)


def test_templates_are_written_beside_the_projects_packages(python, project, env):
    before = {path: path.read_text() for name in OWN for path in (project / name).rglob("*.py")}
    listed = call(python, "-m", "sublet", "init", "--json", cwd=project, env=env)
    targets = [target["target"] for target in json.loads(listed)]
    assert len(targets) >= 7
    for target in targets:
        call(python, "-m", "sublet", "init", target, "--to", project, "--app", "tasks:app", env=env)
    assert {path: path.read_text() for path in before} == before
