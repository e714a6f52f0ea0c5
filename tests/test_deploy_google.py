"""The template for Cloud Run: `deploy.sh` runs with a `gcloud` that notes what it is told, and what it deploys is started here.

A service is a process with the command, the environment and the secrets of its YAML file, and a port as Cloud Run tells it one.
Its probes are asked, and what Cloud Scheduler is told to send is sent.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from urllib.parse import urlsplit

import pytest
import yaml

from functions.events import STREAM_SECONDS
from tests.manifests import documents, kind_of
from tests.pages import blocks, check, command_on_path, free_port, need_curl, run, steps
from tests.platforms import spawned, up
from tests.processes import until
from tests.serving import ROOT, SECONDS, ask

pytest_plugins = ["tests.manifests"]

TEMPLATE = ROOT / "deploy" / "cloud-run"
SERVICES = documents(TEMPLATE / "service.yaml", TEMPLATE / "worker.yaml")
API, WORKER = (kind_of(SERVICES, "Service", name) for name in ("sublet", "sublet-worker"))
TEN = 10.0
"""Seconds that Cloud Run gives an instance to end."""
TASKS = """
import asyncio
from jobs import App

app = App()

@app.task
async def hello(name: str) -> str:
    return f"hello, {name}"

@app.task
async def nap() -> None:
    await asyncio.sleep(60)
"""
GCLOUD = """#!{python}
import json, os, pathlib, sys, time
state, words = pathlib.Path(os.environ["GCLOUD_STATE"]), sys.argv[1:]
stdin = sys.stdin.read() if words[-1] == "-" else ""
with (state / "said").open("a") as said:
    said.write(json.dumps([words, os.environ.get("CLOUDSDK_CORE_PROJECT")]) + "\\n")
def option(name):
    return words[words.index(name) + 1]
name = next((word for word in words[2:] if word not in ("describe", "create", "http")), "")
path = state / "-".join([*words[:2], name.partition("@")[0]])
if words[:2] == ["secrets", "versions"]:
    print((state / f"secrets-{{option('--secret')}}").read_text(), end="")
elif words[:2] in (["secrets", "create"], ["secrets", "describe"]):
    path = state / f"secrets-{{words[2]}}"
    if words[1] == "describe":
        sys.exit(not path.exists())
    path.write_text(stdin)
elif words[:3] == ["run", "services", "replace"]:
    (state / pathlib.Path(words[3]).name).write_text(pathlib.Path(words[3]).read_text())
elif words[:3] == ["run", "services", "describe"]:
    url = state / f"url-{{words[3]}}"
    for _ in range(1500):
        if url.exists():
            break
        time.sleep(0.02)
    print(url.read_text())
elif "describe" in words:
    sys.exit(not path.exists())
elif "create" in words:
    path.touch()
"""
"""A `gcloud` that notes what it is told; secrets and manifests it keeps in files, and a service's URL comes when there is one."""


class Cloud:
    """Where the template was deployed: what `gcloud` was told, and the services that came of it, by name."""

    def __init__(self, folder, redis_url):
        self.state, self.folder = folder / "state", folder / "project"
        self.state.mkdir()
        self.redis_url = redis_url
        path = command_on_path(folder)
        (folder / "bin" / "gcloud").write_text(GCLOUD.format(python=sys.executable))
        (folder / "bin" / "gcloud").chmod(0o700)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SUBLET_", "REDIS_", "CLOUDSDK_"))}
        self.env = {**clean, "PATH": path, "PYTHONPATH": str(ROOT), "GCLOUD_STATE": str(self.state)}
        self.folder.mkdir()
        (self.folder / "tasks.py").write_text(TASKS)
        subprocess.run(
            ["sublet", "init", "cloud-run"], cwd=self.folder, env=self.env, check=True, capture_output=True, timeout=SECONDS
        )
        self.servers = {}

    def said(self, *words):
        """What gcloud was told that has these words, in this order."""
        told = [json.loads(line)[0] for line in (self.state / "said").read_text().splitlines()]
        return [one for one in told if [word for word in one if word in words] == list(words)]

    def secret(self, name):
        return (self.state / f"secrets-{name}").read_text()

    def shell(self, script):
        """A run of some shell lines in the project, on a thread of its own."""
        done = []
        how = {"cwd": self.folder, "env": self.env, "capture_output": True, "text": True, "timeout": SECONDS}
        thread = threading.Thread(target=lambda: done.append(subprocess.run(["bash", "-c", f"set -e\n{script}"], **how)))
        thread.start()
        return thread, done

    @contextlib.contextmanager
    def service(self, file):
        """What a manifest that was deployed says, as a process."""
        until((self.state / file).exists, lambda: (self.state / "said").read_text())
        manifest = yaml.safe_load((self.state / file).read_text())
        name, port = manifest["metadata"]["name"], free_port()
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        own = {one["name"]: one.get("value") or self.secret(one["valueFrom"]["secretKeyRef"]["name"]) for one in container["env"]}
        env = {"PATH": self.env["PATH"], "PYTHONPATH": f"{ROOT}:{self.folder}", "K_SERVICE": name, "PORT": port, **own}
        env |= {"SUBLET_HOST": "127.0.0.1", "SUBLET_INVOKE_PRIVATE": "1"}  # nobody else is to reach what is tested here
        place = self.state / name
        place.mkdir()
        command = container["command"]
        assert command[0] == "sublet"
        with spawned(["jobs", *command[1:]], place, env) as server:
            server.url, server.probes = f"http://127.0.0.1:{port}", container
            until(lambda: probed(server, "startupProbe") == 200, server.said)
            (self.state / f"url-{name}").write_text(server.url)
            yield server


def probed(server, kind):
    """The status with which a probe is answered; 0 for none."""
    try:
        path = server.probes[kind]["httpGet"]["path"]
        return asyncio.run(ask(server.url, "GET", path)).status
    except OSError:
        return 0


@pytest.fixture(scope="module")
def cloud(new_server, tmp_path_factory):
    """The README's lines, done; the first three of them as the README has them, with a Redis of ours."""
    need_curl()
    if not shutil.which("openssl"):
        pytest.skip("no openssl on PATH")
    cloud = Cloud(tmp_path_factory.mktemp("cloud"), new_server("valkey").url)
    ((_, script),) = blocks("sh", (TEMPLATE / "README.md").read_text())
    assert "rediss://USER:PASSWORD@HOST:6379" in script
    thread, done = cloud.shell(script.replace("rediss://USER:PASSWORD@HOST:6379", f"'{cloud.redis_url}'"))
    try:
        with cloud.service("service.yaml") as api, cloud.service("worker.yaml") as worker:
            cloud.api, cloud.worker = api, worker
            thread.join(SECONDS)
            assert done, "the README's lines have not ended"
            assert done[0].returncode == 0, done[0].stderr + api.said()
            cloud.printed = done[0].stdout
            cloud.token = re.search(r"^me:admin:(\w{48}) clock:tick:\w{48}$", cloud.secret("sublet-tokens"))[1]
            yield cloud
    finally:
        thread.join(SECONDS)


# ── what it says ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_knative(service):
    """A service without what Cloud Run alone has: its startup probe stands where Knative has a probe of the same shape."""
    changed = json.loads(json.dumps(service))
    for container in changed["spec"]["template"]["spec"]["containers"]:
        container["readinessProbe"] = container.pop("startupProbe")
    return changed


def test_the_services_are_what_knative_takes_but_for_the_startup_probe_of_cloud_run(manifest_faults):
    assert manifest_faults([as_knative(one) for one in SERVICES]) == []


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ("spec", "containerConcurency", 5),
        ("spec", "timeoutSeconds", "360"),
        ("container", "image", 5),
        ("container", "livenessProb", {}),
    ],
)
def test_a_mistake_in_a_service_would_be_found(manifest_faults, place, name, value):
    broken = as_knative(API)
    spec = broken["spec"]["template"]["spec"]
    (spec if place == "spec" else spec["containers"][0])[name] = value
    assert manifest_faults([broken])


@pytest.mark.parametrize("service", SERVICES, ids=["api", "worker"])
def test_what_must_fit_together_does(service):
    spec = service["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    env = {one["name"]: one.get("value", "") for one in container["env"]}
    assert spec["timeoutSeconds"] > (float(env["SUBLET_WORK_SECONDS"]) if service is WORKER else STREAM_SECONDS)
    assert spec["containerConcurrency"] == 1 or service is API, "one worker an instance, or calls are refused while others idle"
    for probe in (container["startupProbe"], container["livenessProbe"]):
        assert probe["timeoutSeconds"] <= probe["periodSeconds"]
    refs = {one["valueFrom"]["secretKeyRef"]["name"] for one in container["env"] if "valueFrom" in one}
    assert refs == {"sublet-redis-url", "sublet-tokens", "sublet-signing"}
    assert all(f"secret {name} " in (TEMPLATE / "deploy.sh").read_text() for name in refs)


def test_the_image_obeys_port_and_is_nobody_in_particular():
    lines = (TEMPLATE / "Dockerfile").read_text()
    assert "SUBLET_HOST=0.0.0.0" in lines
    assert re.search(r"^USER [1-9]", lines, re.MULTILINE)
    assert json.loads(re.search(r"^CMD (.*)", lines, re.MULTILINE)[1]) == ["sublet", "serve"]


# ── what comes of it ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_probes_are_answered(cloud):
    for server in (cloud.api, cloud.worker):
        assert [probed(server, kind) for kind in ("startupProbe", "livenessProbe")] == [200, 200]


def test_the_pages_job_runs_on_a_worker_that_was_called_with_a_signature(cloud):
    job = re.search(r'^\{"id":"(0-\w+)"\}$', cloud.printed, re.MULTILINE)[1]
    done = asyncio.run(ask(cloud.api.url, "GET", f"/jobs/{job}?wait=20", token=cloud.token)).json()
    assert (done["state"], done["result"]) == ("completed", "hello, Ada")
    assert '"pool":"default"' not in cloud.worker.said()
    until(lambda: "a worker of pool default came and went: 1 completed" in cloud.worker.said(), cloud.worker.said)
    unsigned = asyncio.run(ask(cloud.worker.url, "POST", "/work", {"queues": ["default"]}))
    assert unsigned.status == 401


def test_the_pages_commands_do_what_it_shows(cloud, tmp_path):
    plain = {name: value for name, value in cloud.env.items() if name != "GCLOUD_STATE"}
    first, rest = [[*steps(text)] for _, text in blocks("console", (ROOT / "docs" / "google.md").read_text())]
    env = plain | {"URL": cloud.api.url, "ME": cloud.token, "LC_ALL": "C"}
    for step, answer in zip([*first, *rest], run([*first, *rest], tmp_path, env), strict=True):
        check(step, *answer)


def test_the_image_and_the_project_are_put_in(cloud):
    (build,) = cloud.said("builds", "submit")
    image = build[build.index("--tag") + 1]
    assert re.fullmatch(r"europe-west1-docker\.pkg\.dev/my-project/sublet/tasks:\d{8}-\d{6}", image)
    for file in ("service.yaml", "worker.yaml"):
        spec = yaml.safe_load((cloud.state / file).read_text())["spec"]["template"]["spec"]
        assert (spec["containers"][0]["image"], spec["serviceAccountName"]) == (
            image,
            "sublet@my-project.iam.gserviceaccount.com",
        )
    assert {json.loads(line)[1] for line in (cloud.state / "said").read_text().splitlines()} <= {"my-project", None}


def test_no_secret_stands_in_a_file_or_a_command_but_the_clocks_own(cloud):
    told = [word for line in (cloud.state / "said").read_text().splitlines() for word in json.loads(line)[0]]
    clock = cloud.secret("sublet-tokens").rpartition(":")[2]
    for name in ("sublet-redis-url", "sublet-signing"):
        assert not [word for word in told if cloud.secret(name) in word]
    assert not [word for word in told if cloud.token in word]
    assert [word for word in told if clock in word] == [f"Authorization=Bearer {clock}"]


def test_to_deploy_again_makes_nothing_twice(cloud):
    before = {path.name: path.read_text() for path in cloud.state.glob("secrets-*")}
    made = len(cloud.said("create"))
    thread, done = cloud.shell("PROJECT=my-project REGION=europe-west1 sh deploy.sh")
    thread.join(SECONDS)
    assert done[0].returncode == 0, done[0].stderr
    assert (len(cloud.said("create")), {path.name: path.read_text() for path in cloud.state.glob("secrets-*")}) == (made, before)


@pytest.mark.parametrize(("said", "asked"), [("PROJECT=my-project", "REGION"), ("PROJECT=p REGION=r", "set SUBLET_REDIS_URL")])
def test_what_is_not_said_is_asked_for_and_nothing_is_deployed(cloud, tmp_path, said, asked):
    thread, done = cloud.shell(f"GCLOUD_STATE={tmp_path} {said} sh deploy.sh")
    thread.join(SECONDS)
    assert done[0].returncode != 0
    assert asked in done[0].stderr
    assert not [*tmp_path.glob("secrets-*"), *tmp_path.glob("*.yaml")]


# ── the clock, and the end: these end the services ───────────────────────────────────────────────────────────────────────


def clock_of(cloud):
    """What Cloud Scheduler is told to send: method, path, headers."""
    (told,) = cloud.said("scheduler", "create", "http")
    options = {one: told[i + 1] for i, one in enumerate(told) if one.startswith("--")}
    assert options["--schedule"] == "* * * * *"
    url = urlsplit(options["--uri"])
    assert f"{url.scheme}://{url.netloc}" == cloud.api.url
    assert float(options["--attempt-deadline"].removesuffix("s")) <= 60, "two attempts must not overlap"
    headers = dict([options["--headers"].split("=", 1)])
    return options["--http-method"], url.path, headers


async def test_the_clocks_tick_sees_to_what_falls_due(cloud):
    method, path, headers = clock_of(cloud)
    made = await ask(cloud.api.url, "POST", "/jobs", {"task": "nap", "queue": "nobodys", "delay": 0.3}, token=cloud.token)
    promoted = 0
    async with asyncio.timeout(SECONDS):
        while not promoted:
            answer = await ask(cloud.api.url, method, path, **headers)
            assert answer.status == 200
            promoted = answer.json()["promoted"]
    assert (await ask(cloud.api.url, "GET", f"/jobs/{made.json()['id']}", token=cloud.token)).json()["state"] == "queued"


async def test_both_end_within_ten_seconds_and_a_worker_gives_back(cloud):
    await ask(cloud.api.url, "POST", "/jobs", {"task": "nap"}, token=cloud.token)
    await asyncio.to_thread(told_to_go, cloud)


def told_to_go(cloud):
    env = cloud.env | {"SUBLET_REDIS_URL": cloud.redis_url}

    def jobs(*words):
        words = ["sublet", *words, "--json"]
        return subprocess.run(words, cwd=cloud.folder, env=env, capture_output=True, text=True, timeout=SECONDS).stdout

    until(lambda: '"nap"' in jobs("list", "--state", "running"), cloud.worker.said)
    for one in (cloud.worker, cloud.api):
        one.signal(signal.SIGTERM)
        assert one.process.wait(TEN) == 0
    assert '"nap"' in jobs("list", "--state", "queued", "--queue", "default")
    assert "Traceback" not in cloud.worker.said() + cloud.api.said()


# ── as functions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("target", "kind", "status"), [("http", "http", 401), ("event", "cloudevent", 200)])
async def test_the_templates_main_py_is_what_the_framework_takes(new_server, tmp_path, target, kind, status):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SUBLET_", "REDIS_")) and name != "PORT"}
    env |= {"PYTHONPATH": str(ROOT), "SUBLET_REDIS_URL": new_server("valkey").url, "GUNICORN_LOG_LEVEL": "info"}
    env |= {"SUBLET_TOKENS": "me:admin:a-secret-of-the-tests"}
    words = ["functions_framework", "--source", str(TEMPLATE / "function" / "main.py"), "--target", target]
    with up([*words, "--signature-type", kind, "--host", "127.0.0.1", "--port", "0"], tmp_path, env) as server:
        said = {"ce_id": "1", "ce_source": "/tests", "ce_type": "com.example.x", "ce_specversion": "1.0"}
        answer = await ask(server.url, "POST", "/tick" if target == "http" else "/", {}, **said)
        assert answer.status == status


def test_a_function_needs_what_the_template_says():
    wanted = (TEMPLATE / "function" / "requirements.txt").read_text().splitlines()
    assert "sublet[http]" in wanted
    assert [line for line in wanted if re.match(r"functions-framework\b", line)]


def test_the_shell_lines_are_plain_ones():
    """Whatever /bin/sh it is."""
    done = subprocess.run(["sh", "-n", str(TEMPLATE / "deploy.sh")], capture_output=True, text=True, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert os.access(TEMPLATE / "deploy.sh", os.X_OK)
    assert (TEMPLATE / "deploy.sh").read_text().startswith("#!/bin/sh\n")
