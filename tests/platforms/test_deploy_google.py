"""The template for Cloud Run: `deploy.sh` runs with a recording `gcloud`, and the deployed services run
here.

A service is a process with the command, the environment and the secrets of its YAML file, and a port as
from Cloud Run. Its probes are requested, and the requests of Cloud Scheduler are sent.
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

from sublet_functions.handlers.events import STREAM_SECONDS
from tests.support.http_server import SECONDS, ask
from tests.support.manifests import documents, kind_of
from tests.support.pages import blocks, check, command_on_path, free_port, need_curl, run, steps
from tests.support.paths import ROOT
from tests.support.platforms import spawned, up
from tests.support.processes import plain_environment, until

pytest_plugins = ["tests.support.manifests"]

TEMPLATE = ROOT / "deploy" / "cloud-run"
SERVICES = documents(TEMPLATE / "service.yaml", TEMPLATE / "worker.yaml")
API, WORKER = (kind_of(SERVICES, "Service", name) for name in ("sublet", "sublet-worker"))
PAGE = "\n".join(
    (ROOT / "docs" / "platforms" / f"{name}.md").read_text() for name in ("google", "google-functions")
)
TEN = 10.0
"""The seconds between SIGTERM and SIGKILL on Cloud Run."""
TASKS = """
import asyncio
from sublet import App

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
def keep(path, text):  # whoever sees the file sees all of it
    part = path.with_name(f".{{path.name}}.{{os.getpid()}}")
    part.write_text(text)
    part.replace(path)
state, words = pathlib.Path(os.environ["GCLOUD_STATE"]), sys.argv[1:]
stdin = sys.stdin.read() if words[-1] == "-" else ""
with (state / "calls").open("a") as calls:
    calls.write(json.dumps([words, os.environ.get("CLOUDSDK_CORE_PROJECT")]) + "\\n")
def option(name):
    return words[words.index(name) + 1]
name = next((word for word in words[2:] if word not in ("describe", "create", "http")), "")
path = state / "-".join([*words[:2], name.partition("@")[0]])
unknown = state / "account-unknown-for"
if "add-iam-policy-binding" in words and unknown.exists() and (left := int(unknown.read_text())):
    keep(unknown, str(left - 1))
    sys.exit("the account does not exist")
if words[:3] == ["secrets", "versions", "add"]:
    keep(state / f"secrets-{{words[3]}}", stdin)
elif words[:2] == ["secrets", "versions"]:
    print((state / f"secrets-{{option('--secret')}}").read_text(), end="")
elif words[:2] in (["secrets", "create"], ["secrets", "describe"]):
    path = state / f"secrets-{{words[2]}}"
    if words[1] == "describe":
        sys.exit(not path.exists())
    keep(path, stdin)
elif words[:3] == ["run", "services", "replace"]:
    keep(state / pathlib.Path(words[3]).name, pathlib.Path(words[3]).read_text())
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
"""A `gcloud` that records its calls, stores secrets and manifests in files, and waits for a service's URL."""
SLEEP = '#!/bin/sh\necho "$1" >> "$GCLOUD_STATE/slept"\n'
CURL = """#!/bin/sh
for word; do case "$word" in @*) cat "${word#@}"; ls -l "${word#@}" ;; *) echo "$word" ;; esac; done >> "$GCLOUD_STATE/asked"
case " $* " in *" PUT "*) exit 0 ;; *) exit 22 ;; esac
"""
"""A `curl` that records its arguments and the files that they name; there is no pool yet."""


def program(path, text):
    """Write an executable script."""
    path.write_text(text)
    path.chmod(0o700)


class Cloud:
    """A deployment of the template: the calls of `gcloud`, and the services by name."""

    def __init__(self, folder, redis_url):
        self.state, self.folder = folder / "state", folder / "project"
        self.state.mkdir()
        self.redis_url = redis_url
        path = command_on_path(folder)
        program(folder / "bin" / "gcloud", GCLOUD.format(python=sys.executable))
        program(folder / "bin" / "sleep", SLEEP)
        clean = plain_environment("CLOUDSDK_")
        self.env = {**clean, "PATH": path, "PYTHONPATH": str(ROOT), "GCLOUD_STATE": str(self.state)}
        self.folder.mkdir()
        (self.folder / "tasks.py").write_text(TASKS)
        subprocess.run(
            ["sublet", "init", "cloud-run"],
            cwd=self.folder,
            env=self.env,
            check=True,
            capture_output=True,
            timeout=SECONDS,
        )
        self.servers = {}

    def calls(self, *words):
        """The calls of gcloud that contain these words in this order."""
        calls = [json.loads(line)[0] for line in (self.state / "calls").read_text().splitlines()]
        return [one for one in calls if [word for word in one if word in words] == list(words)]

    def secret(self, name):
        return (self.state / f"secrets-{name}").read_text()

    def again(self, folder, words="", **programs):
        """Run `deploy.sh` again for the same state, or with a state in a new folder, and with replaced
        programs.
        """
        (folder / "bin").mkdir()
        for name, text in programs.items():
            program(folder / "bin" / name, text)
        if not (folder / "state").exists():
            shutil.copytree(self.state, folder / "state")
        env = self.env | {
            "GCLOUD_STATE": str(folder / "state"),
            "PATH": f"{folder / 'bin'}:{self.env['PATH']}",
        }
        thread, done = self.shell(f"PROJECT=my-project REGION=europe-west1 {words} sh deploy.sh", env)
        thread.join(SECONDS)
        return done[0]

    def shell(self, script, env=None):
        """Run shell lines in the project in a thread."""
        done = []
        how = {
            "cwd": self.folder,
            "env": env or self.env,
            "capture_output": True,
            "text": True,
            "timeout": SECONDS,
        }
        thread = threading.Thread(
            target=lambda: done.append(subprocess.run(["bash", "-c", f"set -e\n{script}"], **how))
        )
        thread.start()
        return thread, done

    @contextlib.contextmanager
    def service(self, file):
        """A deployed manifest as a process."""
        until((self.state / file).exists, lambda: (self.state / "calls").read_text())
        manifest = yaml.safe_load((self.state / file).read_text())
        name, port = manifest["metadata"]["name"], free_port()
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        own = {
            one["name"]: one.get("value") or self.secret(one["valueFrom"]["secretKeyRef"]["name"])
            for one in container["env"]
        }
        env = {
            "PATH": self.env["PATH"],
            "PYTHONPATH": f"{ROOT}:{self.folder}",
            "K_SERVICE": name,
            "PORT": port,
            **own,
        }
        env |= {
            "SUBLET_HOST": "127.0.0.1",
            "SUBLET_INVOKE_PRIVATE": "local",
        }  # only local requests are tested
        place = self.state / name
        place.mkdir()
        command = container["command"]
        assert command[0] == "sublet"
        with spawned(["jobs", *command[1:]], place, env) as server:
            server.url, server.probes = f"http://127.0.0.1:{port}", container
            until(lambda: probed(server, "startupProbe") == 200, server.output)
            (self.state / f".url-{name}").write_text(server.url)
            (self.state / f".url-{name}").replace(
                self.state / f"url-{name}"
            )  # a reader sees the complete file
            yield server


def probed(server, kind):
    """The status of a probe; 0 without an answer."""
    try:
        path = server.probes[kind]["httpGet"]["path"]
        return asyncio.run(ask(server.url, "GET", path)).status
    except OSError:
        return 0


@pytest.fixture(scope="module")
def cloud(new_server, tmp_path_factory):
    """The README's lines, executed; the first three unchanged except for our Redis."""
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
            assert done[0].returncode == 0, done[0].stderr + api.output()
            cloud.printed = done[0].stdout
            cloud.token = re.search(r"^me:admin:(\w{48}) clock:tick:\w{48}$", cloud.secret("sublet-tokens"))[
                1
            ]
            yield cloud
    finally:
        thread.join(SECONDS)


# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_knative(service):
    """A service without Cloud Run's own fields: its startup probe takes the place of Knative's probe of the
    same shape.
    """
    changed = json.loads(json.dumps(service))
    for container in changed["spec"]["template"]["spec"]["containers"]:
        container["readinessProbe"] = container.pop("startupProbe")
    return changed


def test_the_services_match_knatives_schema_except_for_the_startup_probe(manifest_faults):
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
def test_a_mistake_in_a_service_is_found(manifest_faults, place, name, value):
    broken = as_knative(API)
    spec = broken["spec"]["template"]["spec"]
    (spec if place == "spec" else spec["containers"][0])[name] = value
    assert manifest_faults([broken])


@pytest.mark.parametrize("service", SERVICES, ids=["api", "worker"])
def test_timeouts_probes_and_secrets_fit_together(service):
    spec = service["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    env = {one["name"]: one.get("value", "") for one in container["env"]}
    assert spec["timeoutSeconds"] > (
        float(env["SUBLET_WORK_SECONDS"]) if service is WORKER else STREAM_SECONDS
    )
    assert spec["containerConcurrency"] == 1 or service is API, (
        "one worker per instance; otherwise invocations are refused while other instances are idle"
    )
    for probe in (container["startupProbe"], container["livenessProbe"]):
        assert probe["timeoutSeconds"] <= probe["periodSeconds"]
    refs = {one["valueFrom"]["secretKeyRef"]["name"] for one in container["env"] if "valueFrom" in one}
    own = "sublet-worker" if service is WORKER else "sublet"
    assert refs == {f"{own}-redis-url", f"{own}-tokens", "sublet-signing"}, (
        "no secret of the API is the workers'"
    )
    assert all(f"secret {name} " in (TEMPLATE / "deploy.sh").read_text() for name in refs)


ANNOTATIONS = {
    "run.googleapis.com/invoker-iam-disabled": "true",
    "autoscaling.knative.dev/maxScale": r"[1-9]|[1-9]\d",
    "run.googleapis.com/cpu-throttling": "true|false",
    "run.googleapis.com/startup-cpu-boost": "true|false",
}
"""The annotations of the template. Cloud Run ignores unknown ones, so a typo would have no effect."""


def faults(api, worker, script):
    """The names of violated requirements in files (texts) that Cloud Run would accept."""
    api, worker = yaml.safe_load(api), yaml.safe_load(worker)
    outer = [one["metadata"]["annotations"] for one in (api, worker)]
    inner = [one["spec"]["template"]["metadata"]["annotations"] for one in (api, worker)]
    boxes = [one["spec"]["template"]["spec"]["containers"][0] for one in (api, worker)]
    prompt = {one["name"]: one.get("value") for one in boxes[0]["env"]}.get("SUBLET_SUMMON_FIRST")
    at_most = [int(one.get("autoscaling.knative.dev/maxScale", 1000)) for one in inner]
    throttled = [one.get("run.googleapis.com/cpu-throttling", "true") for one in inner]
    enabled = {"iam", "run", "cloudbuild", "artifactregistry", "secretmanager", "cloudscheduler"}
    right = {
        "annotations": all(
            re.fullmatch(ANNOTATIONS.get(k, "(?!)"), v) for one in outer + inner for k, v in one.items()
        ),
        "our tokens authorize requests": all(
            "run.googleapis.com/invoker-iam-disabled" in one for one in outer
        ),
        "a worker keeps its CPU": throttled[1] == "false",
        "invocations happen while there is a CPU": throttled[0] == "false" or prompt == "1",
        "connections": sum(at_most) * 20 <= 1000,
        "no more workers than instances": at_most[1] >= int(re.search(r'"max": (\d+)', script)[1]),
        "memory": all(
            int(re.fullmatch(r"(\d+)Mi", box["resources"]["limits"]["memory"])[1]) >= 512 for box in boxes
        ),
        "the next tick is the retry": re.findall(r"--max-retry-attempts (\S+)", script) == ["0"],
        "one round per tick": re.findall(r'--uri "(.*?)"', script) == ["$api/tick"],
        "secrets can be read": re.findall(r"--role (roles/[\w.]+)", script)
        == ["roles/secretmanager.secretAccessor"],
        "services": set(
            re.findall(r"(\w+)\.googleapis\.com", re.search(r"^gcloud services .*", script, re.MULTILINE)[0])
        )
        == enabled,
    }
    return [name for name, is_so in right.items() if not is_so]


FILES = [(TEMPLATE / name).read_text() for name in ("service.yaml", "worker.yaml", "deploy.sh")]


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        (1, 'cpu-throttling: "false"', 'cpu-throttling: "true"'),
        (1, 'cpu-throttling: "false"', 'cpu-throtling: "false"'),
        (0, "startup-cpu-boost", "startup-cpu-bost"),
        (2, "--max-retry-attempts 0", "--max-retry-attempts 5"),
        (0, "name: SUBLET_SUMMON_FIRST", "name: SUBLET_NAMESPACE"),
        (0, 'maxScale: "5"', 'maxScale: "1000"'),
        (1, 'maxScale: "10"', 'maxScale: "1"'),
        (0, 'invoker-iam-disabled: "true"', 'invoker-iam-disabled: "false"'),
        (
            1,
            '    run.googleapis.com/invoker-iam-disabled: "true"\n',
            '    run.googleapis.com/startup-cpu-boost: "true"\n',
        ),
        (2, "secretmanager.secretAccessor", "secretmanager.viewer"),
        (2, "enable iam.googleapis.com run.googleapis.com", "enable iam.googleapis.com"),
        (2, "$api/tick", "$api/tick?for=50&every=5"),
        (1, "memory: 512Mi", "memory: 256Mi"),
    ],
)
def test_mistakes_that_cloud_run_would_accept_are_found(file, right, wrong):
    planted = [*FILES]
    assert planted[file].count(right) == 1
    planted[file] = planted[file].replace(right, wrong)
    assert faults(*planted)


def test_the_template_satisfies_the_requirements():
    assert faults(*FILES) == []


def test_the_figures_of_the_page_are_those_of_the_template():
    at_most = [
        int(one["spec"]["template"]["metadata"]["annotations"]["autoscaling.knative.dev/maxScale"])
        for one in SERVICES
    ]
    assert f"{sum(at_most)} of them {sum(at_most) * 20}" in PAGE
    assert f"Not more workers than instances ({at_most[1]})" in PAGE
    assert "`POST /tick` each minute" in PAGE


def test_every_gcloud_line_of_the_page_names_the_project():
    """Otherwise the line uses the last configured project, or fails."""
    lines = [
        line
        for _, text in blocks("sh", PAGE)
        for line in text.replace("\\\n", " ").splitlines()
        if "gcloud " in line
    ]
    assert len(lines) > 4
    assert [line for line in lines if "--project $PROJECT" not in line] == []
    deployed = [line for line in lines if "functions deploy" in line]
    assert len(deployed) == 2
    assert [
        line for line in deployed if "--service-account sublet@$PROJECT.iam.gserviceaccount.com" not in line
    ] == []


def test_the_image_uses_port_and_an_unprivileged_user():
    lines = (TEMPLATE / "Dockerfile").read_text()
    assert "SUBLET_HOST=0.0.0.0" in lines
    assert re.search(r"^USER [1-9]", lines, re.MULTILINE)
    assert json.loads(re.search(r"^CMD (.*)", lines, re.MULTILINE)[1]) == ["sublet", "serve"]


# ── the running services ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_probes_are_answered(cloud):
    for server in (cloud.api, cloud.worker):
        assert [probed(server, kind) for kind in ("startupProbe", "livenessProbe")] == [200, 200]


def test_the_pages_job_runs_on_a_worker_invoked_with_a_signature(cloud):
    job = re.search(r'^\{"id":"(0-\w+)"\}$', cloud.printed, re.MULTILINE)[1]
    done = asyncio.run(ask(cloud.api.url, "GET", f"/jobs/{job}?wait=20", token=cloud.token)).json()
    assert (done["state"], done["result"]) == ("completed", "hello, Ada")
    assert '"pool":"default"' not in cloud.worker.output()
    until(
        lambda: re.search(
            r"a worker of pool default ended after [\d.]+ s: 1 completed", cloud.worker.output()
        ),
        cloud.worker.output,
    )
    unsigned = asyncio.run(ask(cloud.worker.url, "POST", "/work", {"queues": ["default"]}))
    assert unsigned.status == 401


def test_the_commands_of_the_google_page_print_the_shown_output(cloud, tmp_path):
    plain = {name: value for name, value in cloud.env.items() if name != "GCLOUD_STATE"}
    first, rest = [[*steps(text)] for _, text in blocks("console", PAGE)]
    env = plain | {"URL": cloud.api.url, "ME": cloud.token, "LC_ALL": "C"}
    for step, answer in zip([*first, *rest], run([*first, *rest], tmp_path, env), strict=True):
        check(step, *answer)


def test_the_manifests_name_the_image_and_the_project(cloud):
    (build,) = cloud.calls("builds", "submit")
    image = build[build.index("--tag") + 1]
    assert re.fullmatch(r"europe-west1-docker\.pkg\.dev/my-project/sublet/tasks:\d{8}-\d{6}", image)
    for file in ("service.yaml", "worker.yaml"):
        spec = yaml.safe_load((cloud.state / file).read_text())["spec"]["template"]["spec"]
        assert (spec["containers"][0]["image"], spec["serviceAccountName"]) == (
            image,
            f"sublet{'-worker' * (file == 'worker.yaml')}@my-project.iam.gserviceaccount.com",
        )
    assert {json.loads(line)[1] for line in (cloud.state / "calls").read_text().splitlines()} <= {
        "my-project",
        None,
    }


def test_the_workers_account_may_read_no_secret_of_the_api(cloud):
    reads = {}
    for words in cloud.calls("secrets", "add-iam-policy-binding"):
        reads.setdefault(words[words.index("--member") + 1].partition("@")[0], set()).add(words[2])
    assert reads == {
        "serviceAccount:sublet": {"sublet-redis-url", "sublet-tokens", "sublet-signing"},
        "serviceAccount:sublet-worker": {"sublet-worker-redis-url", "sublet-worker-tokens", "sublet-signing"},
    }
    assert re.fullmatch(r"worker:work:\w{48}", cloud.secret("sublet-worker-tokens"))


def test_no_command_contains_a_secret_except_the_schedulers(cloud):
    words = [
        word for line in (cloud.state / "calls").read_text().splitlines() for word in json.loads(line)[0]
    ]
    clock = cloud.secret("sublet-tokens").rpartition(":")[2]
    for name in ("sublet-redis-url", "sublet-signing"):
        assert not [word for word in words if cloud.secret(name) in word]
    assert not [word for word in words if cloud.token in word]
    assert [word for word in words if clock in word] == [f"Authorization=Bearer {clock}"]


def test_a_second_deploy_creates_nothing_twice(cloud):
    before = {path.name: path.read_text() for path in cloud.state.glob("secrets-*")}
    made = len(cloud.calls("create"))
    thread, done = cloud.shell("PROJECT=my-project REGION=europe-west1 sh deploy.sh")
    thread.join(SECONDS)
    assert done[0].returncode == 0, done[0].stderr
    assert (
        len(cloud.calls("create")),
        {path.name: path.read_text() for path in cloud.state.glob("secrets-*")},
    ) == (made, before)


def test_another_redis_url_is_a_reported_new_version_of_the_secret(cloud, tmp_path):
    for place, url, is_reported in (
        ("same", cloud.redis_url, False),
        ("other", "redis://other.example:1", True),
    ):
        (tmp_path / place).mkdir()
        done = cloud.again(tmp_path / place, f"SUBLET_REDIS_URL={url}")
        assert done.returncode == 0, done.stderr
        assert (tmp_path / place / "state" / "secrets-sublet-redis-url").read_text() == url
        assert ("the secret sublet-redis-url has a new version" in done.stdout) == is_reported
        assert url not in done.stdout + done.stderr


def test_nothing_is_stored_without_openssl(cloud, tmp_path):
    (tmp_path / "state").mkdir()
    done = cloud.again(
        tmp_path, "SUBLET_REDIS_URL=redis://h", openssl="#!/bin/sh\necho no openssl here >&2\nexit 127\n"
    )
    assert done.returncode != 0
    assert "no openssl here" in done.stderr
    assert not [*(tmp_path / "state").iterdir()]


def test_a_secret_without_the_token_fails_the_deploy(cloud, tmp_path):
    shutil.copytree(cloud.state, tmp_path / "state")
    (tmp_path / "state" / "secrets-sublet-tokens").write_text("other:admin:abc\n")
    done = cloud.again(tmp_path)
    assert done.returncode != 0
    assert "no token of me" in done.stderr


@pytest.mark.parametrize(("times", "code"), [(3, 0), (99, 1)])
def test_the_deploy_waits_for_a_new_account(cloud, tmp_path, times, code):
    shutil.copytree(cloud.state, tmp_path / "state")
    (tmp_path / "state" / "account-unknown-for").write_text(str(times))
    done = cloud.again(tmp_path)
    assert done.returncode == code, done.stderr
    slept = [int(line) for line in (tmp_path / "state" / "slept").read_text().split()]
    assert slept == [5] * min(times, 11), "at most a minute"
    assert ("the account does not exist" in done.stderr) == bool(code)


def test_the_arguments_of_commands_do_not_contain_the_token(cloud, tmp_path):
    """Every user of a machine can read the arguments of processes."""
    done = cloud.again(tmp_path, curl=CURL)
    assert done.returncode == 0, done.stderr
    asked = (tmp_path / "state" / "asked").read_text().splitlines()
    kept = [i for i, line in enumerate(asked) if line == f"Authorization: Bearer {cloud.token}"]
    assert len(kept) == 2, "one request to find the pool, and one to create it"
    assert all(asked[i + 1].startswith("-rw------- ") for i in kept)
    assert not [line for i, line in enumerate(asked) if cloud.token in line and i not in kept]


@pytest.mark.parametrize(
    ("given", "missing"), [("PROJECT=my-project", "REGION"), ("PROJECT=p REGION=r", "set SUBLET_REDIS_URL")]
)
def test_a_missing_variable_is_reported_and_nothing_is_deployed(cloud, tmp_path, given, missing):
    thread, done = cloud.shell(f"GCLOUD_STATE={tmp_path} {given} sh deploy.sh")
    thread.join(SECONDS)
    assert done[0].returncode != 0
    assert missing in done[0].stderr
    assert not [*tmp_path.glob("secrets-*"), *tmp_path.glob("*.yaml")]


# ── the scheduler, and the stop: these end the services ──────────────────────────────────────────────────────────────────


def clock_of(cloud):
    """The request of Cloud Scheduler: method, path, headers."""
    (call,) = cloud.calls("scheduler", "create", "http")
    options = {one: call[i + 1] for i, one in enumerate(call) if one.startswith("--")}
    assert options["--schedule"] == "* * * * *"
    url = urlsplit(options["--uri"])
    assert f"{url.scheme}://{url.netloc}" == cloud.api.url
    assert float(options["--attempt-deadline"].removesuffix("s")) <= 60, "two attempts must not overlap"
    headers = dict([options["--headers"].split("=", 1)])
    return options["--http-method"], url.path, headers


async def test_the_schedulers_tick_promotes_due_jobs(cloud):
    method, path, headers = clock_of(cloud)
    made = await ask(
        cloud.api.url, "POST", "/jobs", {"task": "nap", "queue": "unserved", "delay": 0.3}, token=cloud.token
    )
    promoted = 0
    async with asyncio.timeout(SECONDS):
        while not promoted:
            answer = await ask(cloud.api.url, method, path, **headers)
            assert answer.status == 200
            promoted = answer.json()["promoted"]
    assert (await ask(cloud.api.url, "GET", f"/jobs/{made.json()['id']}", token=cloud.token)).json()[
        "state"
    ] == "queued"


async def test_both_services_stop_within_ten_seconds_and_release_jobs(cloud):
    await ask(cloud.api.url, "POST", "/jobs", {"task": "nap"}, token=cloud.token)
    await asyncio.to_thread(stop_services, cloud)


def stop_services(cloud):
    env = cloud.env | {"SUBLET_REDIS_URL": cloud.redis_url}

    def jobs(*words):
        words = ["sublet", *words, "--json"]
        return subprocess.run(
            words, cwd=cloud.folder, env=env, capture_output=True, text=True, timeout=SECONDS
        ).stdout

    until(lambda: '"nap"' in jobs("list", "--state", "running"), cloud.worker.output)
    for one in (cloud.worker, cloud.api):
        one.signal(signal.SIGTERM)
        assert one.process.wait(TEN) == 0
    assert '"nap"' in jobs("list", "--state", "queued", "--queue", "default")
    assert "Traceback" not in cloud.worker.output() + cloud.api.output()


# ── as functions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("target", "kind", "status"), [("http", "http", 401), ("event", "cloudevent", 200)])
async def test_the_framework_runs_the_templates_main_py(new_server, tmp_path, target, kind, status):
    env = plain_environment()
    env |= {
        "PYTHONPATH": str(ROOT),
        "SUBLET_REDIS_URL": new_server("valkey").url,
        "GUNICORN_LOG_LEVEL": "info",
    }
    env |= {"SUBLET_TOKENS": "me:admin:a-secret-of-the-tests"}
    words = ["functions_framework", "--source", str(TEMPLATE / "function" / "main.py"), "--target", target]
    with up(
        [*words, "--signature-type", kind, "--host", "127.0.0.1", "--port", "0"], tmp_path, env
    ) as server:
        attributes = {
            "ce_id": "1",
            "ce_source": "/tests",
            "ce_type": "com.example.x",
            "ce_specversion": "1.0",
        }
        answer = await ask(server.url, "POST", "/tick" if target == "http" else "/", {}, **attributes)
        assert answer.status == status


def test_the_templates_requirements_are_complete():
    wanted = (TEMPLATE / "function" / "requirements.txt").read_text().splitlines()
    assert "sublet[http]" in wanted
    assert [line for line in wanted if re.match(r"functions-framework\b", line)]


def test_the_deploy_script_is_posix_shell():
    """The script works with any /bin/sh."""
    done = subprocess.run(
        ["sh", "-n", str(TEMPLATE / "deploy.sh")], capture_output=True, text=True, timeout=SECONDS
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert os.access(TEMPLATE / "deploy.sh", os.X_OK)
    assert (TEMPLATE / "deploy.sh").read_text().startswith("#!/bin/sh\n")
