"""The template for Kubernetes, started without a cluster: its pods are read from its files. A plugin.

(PYTEST_DONT_REWRITE: its functions are imported before its fixtures are requested, and pytest would warn
about that.)
"""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
import redis
import yaml

from sublet import SyncClient
from sublet.cli.commands import COMMANDS
from sublet.connection.settings import Settings
from sublet.protocol import keys
from tests.support.manifests import documents, kind_of
from tests.support.pages import free_port
from tests.support.paths import ROOT
from tests.support.pods import SECONDS, node, secret_of
from tests.support.processes import until

TEMPLATE = ROOT / "deploy" / "kubernetes"
FILES = sorted((TEMPLATE / "k8s").glob("*.yaml"))
SHELL = re.search(r"^```sh\n(.*?)^```$", (TEMPLATE / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1]
"""The commands that the README lists."""
TASKS = """
import asyncio, logging
from pathlib import Path
from sublet import App, Context

app = App()

@app.task
async def hello(name: str) -> str:
    return f"hello, {name}"

@app.task
async def held(ctx: Context) -> int:
    ctx.progress(0.5, stage="half")
    ctx.log("it waits for a file")
    while not Path("go").exists():
        await asyncio.sleep(0.02)
    return ctx.attempt

@app.task
def count(text: str) -> int:
    logging.getLogger(__name__).warning("it counts")
    return len(text.split())
"""


def uncommented(text):
    """The text of a template with its commented-out alternatives enabled, from a dash on."""
    lines, inside = [], False
    for line in text.splitlines():
        indent, _, rest = line.partition("# ")
        inside = (
            line.lstrip().startswith("# ")
            and not indent.strip()
            and (rest.startswith("- ") or (inside and rest[:1] == " "))
        )
        lines.append(indent + rest if inside else line)
    return "\n".join(lines) + "\n"


def alternatives():
    """All documents, with every alternative."""
    texts = [uncommented(path.read_text()) for path in FILES if path.stem != "kustomization"]
    return [one for text in texts for one in yaml.safe_load_all(text)]


def pod_of(document):
    """The pod template in a document."""
    spec = document["spec"]
    spec = spec.get("jobTemplate", {}).get("spec") or spec.get("jobTargetRef") or spec
    return spec["template"]["spec"]


PLAIN = documents(*(path for path in FILES if path.stem != "kustomization"))
EVERY = alternatives()


def triggers(kind, kind_of_trigger):
    return [one for one in kind_of(EVERY, kind)["spec"]["triggers"] if one["type"] == kind_of_trigger]


def options_of(spec):
    """The arguments of a pod's command, parsed as the program parses them."""
    _, name, *words = spec["containers"][0]["command"]
    return COMMANDS[name].read(words)


class Cluster:
    """The template in a project, a node, the secret that the README creates, and the template's own Redis."""

    def __init__(self, a_node, made):
        self.node, self.port = a_node, free_port()
        files = sorted((a_node.project / "k8s").glob("*.yaml"))
        self.documents = [one for path in files for one in yaml.safe_load_all(uncommented(path.read_text()))]
        assert "sublet-redis:6379" in made["redis-url"]
        assert kind_of(PLAIN, "Service", "sublet-redis")["spec"]["ports"][0]["port"] == 6379
        a_node.secrets["sublet"] = made | {
            name: made[name].replace("sublet-redis:6379", f"127.0.0.1:{self.port}")
            for name in ("redis-url", "worker-redis-url")
        }
        place = a_node.folder / "data"
        place.mkdir(parents=True)
        self.start(
            "StatefulSet", "sublet-redis", "--port", self.port, "--bind", "127.0.0.1", **{"/data": str(place)}
        )
        self.redis = redis.Redis.from_url(self.secret["redis-url"], decode_responses=True)
        until(self.answers, self.node.pods[0].output)

    @property
    def secret(self):
        return self.node.secrets["sublet"]

    def answers(self):
        try:
            return self.redis.ping()
        except redis.ConnectionError:
            return False

    def start(self, kind, name, *more, **instead):
        return self.node.start(pod_of(kind_of(self.documents, kind, name)), *more, **instead)

    def worker(self, *more, **instead):
        pod = self.start("Deployment", "sublet-worker", *more, **instead)
        pod.until('"ready"')
        return pod

    def api(self):
        """Start an API pod and wait for its readiness probe; returns the pod and its port."""
        port = free_port()
        pod = self.start("Deployment", "sublet-api", SUBLET_PORT=port, SUBLET_HOST="127.0.0.1")
        until(lambda: pod.probe("readinessProbe", port) == 200, pod.output)
        return pod, port

    def submit(self, task, payload, *words):
        line = f"sublet submit {task} '{json.dumps(payload)}' {' '.join(words)}"
        return self.node.run(self.node.pods[0], line)

    def hold(self, many=1):
        """Submit jobs that run until `let_go`; returns the last id."""
        with SyncClient(Settings(redis_url=self.secret["redis-url"])) as client:
            return [client.submit("held", {}) for _ in range(many)][-1].id

    def let_go(self):
        (self.node.project / "go").touch()

    def is_overdue(self):
        """Whether every scheduled moment and every lease has expired."""
        seconds, micros = self.redis.time()
        base, now = keys.base("sublet"), seconds * 1000 + micros / 1000
        found = [
            at
            for name in ("scheduled", "running")
            for _, at in self.redis.zrange(f"{base}:{name}", 0, -1, withscores=True)
        ]
        return all(at < now for at in found)

    def job(self, job_id):
        return json.loads(self.node.run(self.node.pods[0], f"sublet get {job_id} --json"))


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory):
    """The cluster that all tests of a file share."""
    if not shutil.which("redis-server"):
        pytest.skip("no redis-server on PATH")
    project = tmp_path_factory.mktemp("project")
    (project / "tasks.py").write_text(TASKS)
    words = [sys.executable, "-m", "sublet", "init", "kubernetes", "--to", str(project)]
    subprocess.run(
        words, check=True, cwd=ROOT, env=os.environ | {"SUBLET_APP": ""}, capture_output=True, timeout=SECONDS
    )
    with node(tmp_path_factory.mktemp("node"), project) as a_node:
        cluster = Cluster(a_node, secret_of(SHELL))
        cluster.node.pods[0].env["SUBLET_REDIS_URL"] = cluster.secret["redis-url"]
        yield cluster


@pytest.fixture
def cluster(kubernetes):
    """The same cluster with an empty Redis and no other pods."""
    kubernetes.redis.flushall()
    yield kubernetes
    for pod in kubernetes.node.pods[1:]:
        pod.kill()
    (kubernetes.node.project / "go").unlink(missing_ok=True)


def ask(port, path, token, body=None):
    """Send a request with a token; returns the status and the answer."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers, data=body)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)
