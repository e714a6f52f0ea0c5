"""The template for Knative without a cluster: checked with the published schemas, and its services run for
real."""

import asyncio
import contextlib
import copy
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
import uuid
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
import yaml
from cloudevents.conversion import to_binary
from cloudevents.http import CloudEvent

from tests.support import pages
from tests.support.http_server import ask
from tests.support.manifests import documents, kind_of
from tests.support.paths import ROOT
from tests.support.pods import secret_of
from tests.support.processes import until

pytest_plugins = ["tests.support.manifests"]

TEMPLATE = ROOT / "deploy" / "knative"
KUSTOMIZATION = TEMPLATE / "knative" / "kustomization.yaml"
FILES = sorted(path for path in (TEMPLATE / "knative").glob("*.yaml") if path != KUSTOMIZATION)
DOCUMENTS = documents(*FILES)
SERVING = [one for one in DOCUMENTS if one["apiVersion"].startswith("serving.knative.dev/")]
PAGE = (ROOT / "docs" / "platforms" / "knative.md").read_text()
RESERVED = re.compile(r"PORT|K_\w+")
"""Variables that Knative reserves."""
KNOWN = {
    "autoscaling.knative.dev/min-scale",
    "autoscaling.knative.dev/max-scale",
    "autoscaling.knative.dev/target-utilization-percentage",
}
"""The annotations of a revision that are allowed here. The schemas do not contain them, and a misspelt one has
no effect."""
LONGEST = 600
"""The maximum of `timeoutSeconds` in seconds, unless a cluster's ConfigMap changes it."""
SECONDS = 60.0


def of(name):
    return kind_of(SERVING, "Service", name)


def pod(service):
    return service["spec"]["template"]["spec"]


def container(service):
    (one,) = pod(service)["containers"]
    return one


def env(service):
    return {one["name"]: one for one in container(service)["env"]}


def named(service):
    return service["metadata"]["name"]


each_service = pytest.mark.parametrize("service", SERVING, ids=named)

# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_manifests_match_the_schemas(manifest_faults):
    assert manifest_faults(DOCUMENTS) == []


def planted():
    """Each document with one unknown field, in each place where the schema limits the fields."""
    free = {"labels", "annotations", "attributes", "extensions"}

    def places(value, way=()):
        if isinstance(value, dict) and not free & set(way):
            yield way
        for name, inner in (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        ):
            yield from places(inner, (*way, name))

    for document in DOCUMENTS:
        for way in places(document):
            wrong = copy.deepcopy(document)
            place = wrong
            for step in way:
                place = place[step]
            place["misspelt"] = "x"
            yield way, wrong


def test_a_misspelt_field_is_found_in_every_place(manifest_faults):
    wrong = [*planted()]
    for number, (_, document) in enumerate(wrong):
        document["metadata"]["name"] = f"wrong-{number}."
    seen = " ".join(manifest_faults([document for _, document in wrong]))
    assert [way for number, (way, _) in enumerate(wrong) if f"wrong-{number}.:" not in seen] == []
    assert len(wrong) > 50


def test_other_mistakes_are_found(manifest_faults):
    ping, service = kind_of(DOCUMENTS, "PingSource"), of("sublet-api")
    ping, service = copy.deepcopy(ping), copy.deepcopy(service)
    ping["spec"]["schedule"] = 5
    service["spec"]["template"]["spec"]["containerConcurrency"] = "3"
    faults = manifest_faults(
        [ping, service, {"apiVersion": "v1", "kind": "Nonsense", "metadata": {"name": "x"}}]
    )
    assert len(faults) == 3
    assert "/spec/schedule must be string" in faults[0]
    assert "no schema knows this kind" in faults[2]


def test_the_kustomization_lists_every_file():
    """Optional files are listed, too, behind a `#`."""
    listed = re.findall(
        r"^  #? ?-? ?(\w+\.yaml)", KUSTOMIZATION.read_text().replace("  - ", "  "), re.MULTILINE
    )
    assert sorted(listed) == [path.name for path in FILES]
    assert yaml.safe_load(KUSTOMIZATION.read_text())["resources"] == ["api.yaml", "work.yaml", "tick.yaml"]
    assert {container(one)["image"] for one in SERVING} == {"sublet-tasks"}


def test_kustomize_sets_the_image_and_the_namespace():
    if not shutil.which("kubectl"):
        pytest.skip("no kubectl on PATH: `kubectl kustomize` takes no cluster")
    done = subprocess.run(
        ["kubectl", "kustomize", KUSTOMIZATION.parent], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stderr
    made = [*yaml.safe_load_all(done.stdout)]
    assert {one["metadata"]["namespace"] for one in made} == {"sublet"}
    assert {container(one)["image"] for one in made if one["apiVersion"].startswith("serving")} == {
        "registry.example.com/tasks:1"
    }


@each_service
def test_a_service_obeys_the_rules_of_knatives_webhook(service):
    """Rules of its webhook that the schema lacks: reserved variables, probes of other ports, long timeouts."""
    ports = [one["containerPort"] for one in container(service)["ports"]]
    assert len(ports) == 1
    assert [name for name in env(service) if RESERVED.fullmatch(name)] == []
    assert {
        container(service)[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")
    } == set(ports)
    assert pod(service)["timeoutSeconds"] <= LONGEST
    assert not {"terminationGracePeriodSeconds", "securityContext", "volumes"} & set(pod(service)), (
        "these need a feature flag"
    )
    annotations = service["spec"]["template"]["metadata"]["annotations"]
    assert all(isinstance(value, str) for value in annotations.values())
    assert set(annotations) <= KNOWN
    assert set(service["metadata"].get("labels", {})) <= {"networking.knative.dev/visibility"}
    assert "annotations" not in service["metadata"], "annotations of a revision belong into its template"


@each_service
def test_open_services_are_cluster_local_and_without_tokens(service):
    inside = service["metadata"].get("labels", {}).get("networking.knative.dev/visibility") == "cluster-local"
    assert inside == (named(service) != "sublet-api")
    assert (
        ("SUBLET_OPEN" in env(service))
        == ("SUBLET_TOKENS" not in env(service))
        == (named(service) in ("sublet-tick", "sublet-events"))
    )
    if named(service) == "sublet-tick":
        assert (env(service)["SUBLET_OPEN"]["value"], pod(service)["containerConcurrency"]) == ("tick", 2)
        assert (
            service["spec"]["template"]["metadata"]["annotations"]["autoscaling.knative.dev/max-scale"] == "1"
        )


def test_workers_have_no_secret_of_the_api_but_the_one_that_signs_calls():
    keys = {
        named(one): {v["valueFrom"]["secretKeyRef"]["key"] for v in env(one).values() if "valueFrom" in v}
        for one in SERVING
    }
    assert keys["sublet-work"] == {"worker-redis-url", "worker-tokens", "signing"}
    assert keys["sublet-work"] & (keys["sublet-api"] | keys["sublet-events"]) == set()
    users = {named(one): container(one)["securityContext"]["runAsUser"] for one in SERVING}
    assert [name for name, user in users.items() if user == users["sublet-work"]] == ["sublet-work"]


def test_only_the_tick_service_invokes_workers():
    """For Knative, a pod is busy while its caller is connected; after a disconnect the pod may be removed."""
    calls = {"SUBLET_SIGNING_SECRETS", "SUBLET_INVOKE_PRIVATE"}
    assert {named(one) for one in SERVING if calls <= set(env(one))} == {"sublet-tick"}
    assert "SUBLET_SIGNING_SECRETS" in env(of("sublet-work")), "to verify the caller"
    assert "SUBLET_INVOKE_PRIVATE" in env(of("sublet-api")), "to accept a pool inside the cluster"
    ping = kind_of(DOCUMENTS, "PingSource")["spec"]
    assert (ping["schedule"], ping["sink"]["ref"]["name"]) == ("* * * * *", "sublet-tick")


def test_as_many_pods_may_run_as_the_pool_may_summon():
    for text in ((TEMPLATE / "README.md").read_text(), PAGE):
        (most,) = re.findall(r'-X PUT .*"invoker": "http", .*"max": (\d+)', text)
        annotations = of("sublet-work")["spec"]["template"]["metadata"]["annotations"]
        assert int(annotations["autoscaling.knative.dev/max-scale"]) >= int(most)
        assert "http://sublet-work.sublet.svc.cluster.local/work" in text


def test_the_durations_fit_the_timeouts():
    asked = parse_qs(urlsplit(kind_of(DOCUMENTS, "PingSource")["spec"]["sink"]["uri"]).query)
    assert int(asked["every"][0]) <= 5  # owed workers wait for the next tick
    assert 0 < int(asked["for"][0]) < pod(of("sublet-tick"))["timeoutSeconds"]
    assert (
        int(env(of("sublet-work"))["SUBLET_WORK_SECONDS"]["value"])
        <= pod(of("sublet-work"))["timeoutSeconds"] - 30
    )
    assert pod(of("sublet-work"))["containerConcurrency"] == 1


def test_the_readme_creates_the_secret_of_the_services():
    asked = {
        one["valueFrom"]["secretKeyRef"]["key"]
        for service in SERVING
        for one in env(service).values()
        if "valueFrom" in one
    }
    for text in ((TEMPLATE / "README.md").read_text(), PAGE):
        scripts = "\n".join(script for _, script in pages.blocks("sh", text))
        secret = secret_of(scripts.split("\nkubectl apply")[0])
        assert secret.keys() == asked
        assert re.fullmatch(r"worker:work:\w{48}", secret["worker-tokens"]), (
            "no other role: tasks can read it"
        )


# ── the running services ─────────────────────────────────────────────────────────────────────────────────────────────────


class Running:
    """A service as a process: its command, environment and secrets, on a port that we choose, as Knative does."""

    def __init__(self, service, secrets, project):
        self.service, self.port = service, pages.free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        variables = {
            name: one.get("value") or secrets[one["valueFrom"]["secretKeyRef"]["key"]]
            for name, one in env(service).items()
        }
        if "SUBLET_INVOKE_PRIVATE" in variables:
            variables["SUBLET_INVOKE_PRIVATE"] = "local"  # the cluster's addresses are this machine's here
        plain = {
            name: value for name, value in os.environ.items() if name in ("PATH", "RUN_OF_THE_TESTS", "LANG")
        }
        own = {
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "SUBLET_NAMESPACE": secrets["namespace"],
        }
        sublet, *words = container(service)["command"]
        assert sublet == "sublet"
        with (project / f"{named(service)}.out").open("wb") as self.out:
            self.process = subprocess.Popen([sys.executable, "-m", "sublet", *words], cwd=project, stdout=self.out, stderr=self.out,
                                            env={**plain, **own, **variables, "PORT": self.port})  # fmt: skip

    def output(self):
        return Path(self.out.name).read_text()

    def probe(self, kind):
        asked = container(self.service)[kind]
        request = urllib.request.Request(
            self.url + asked["httpGet"]["path"], headers={"Host": "10.1.2.3:8080"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status
        except OSError:
            return 0


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The output of `sublet init knative`, with the page's own task."""
    folder = tmp_path_factory.mktemp("knative")
    words = [sys.executable, "-m", "sublet", "init", "knative"]
    done = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    ((_, example),) = pages.blocks("python", PAGE)
    with (folder / "tasks.py").open("a") as tasks:
        tasks.write(example.replace("from tasks import app\n", ""))
    return folder


@pytest.fixture(scope="module")
def cluster(project, server_url):
    """All services on an empty namespace, and the secret made by the page's own commands."""
    os.environ["SUBLET_REDIS_URL"], kept = server_url("redis"), os.environ.get("SUBLET_REDIS_URL")
    try:
        secrets = secret_of(
            "\n".join(script for _, script in pages.blocks("sh", PAGE)).split("\nkubectl apply")[0]
        )
    finally:
        os.environ.pop("SUBLET_REDIS_URL") if kept is None else os.environ.update(SUBLET_REDIS_URL=kept)
    secrets["namespace"] = f"test-{uuid.uuid4().hex[:12]}"
    running = {named(service): Running(service, secrets, project) for service in SERVING}
    try:
        for one in running.values():
            until(
                lambda one=one: one.probe("readinessProbe") == 200 or one.process.poll() is not None,
                one.output,
            )
        yield running, secrets
    finally:
        for one in running.values():
            one.process.terminate()
        for one in running.values():
            assert one.process.wait(SECONDS) == 0, one.output()


@pytest.fixture
def services(cluster):
    return cluster[0]


@pytest.fixture
def me(cluster):
    return cluster[1]["tokens"].split(":")[2]


@pytest.mark.parametrize("kind", ["readinessProbe", "livenessProbe"])
def test_the_probes_are_answered(services, kind):
    assert {name: one.probe(kind) for name, one in services.items()} == dict.fromkeys(services, 200)


def destination(services, to, **changed):
    """The destination of an event, resolved as by Knative, with changed query values."""
    assert (to["ref"]["apiVersion"], to["ref"]["kind"]) == ("serving.knative.dev/v1", "Service")
    parts = urlsplit(urljoin(services[to["ref"]["name"]].url, to["uri"]))
    query = {
        name: changed.get(name, value)
        for name, (value,) in parse_qs(parts.query, strict_parsing=True).items()
    }
    return f"{parts.scheme}://{parts.netloc}", parts.path + "?" + "&".join(
        f"{name}={value}" for name, value in query.items()
    )


async def deliver(place, attributes, data):
    """Send an event as Knative's sources and brokers do: in binary mode, without a token."""
    headers, body = to_binary(CloudEvent({"time": datetime.now(UTC).isoformat(), **attributes}, data))
    headers = {name.replace("-", "_"): value for name, value in headers.items()}
    return await ask(place[0], "POST", place[1], body, **({"content_type": "application/json"} | headers))


async def test_a_ping_is_a_tick_that_reaps(services, me):
    spec = kind_of(DOCUMENTS, "PingSource")["spec"]
    api = services["sublet-api"].url
    job = (
        await ask(
            api, "POST", "/jobs", {"task": "hello", "queue": "lost", "payload": {"name": "x"}}, token=me
        )
    ).json()["id"]
    (taken,) = (await ask(api, "POST", "/jobs/claim", {"queues": ["lost"], "lease": 0.1}, token=me)).json()[
        "jobs"
    ]
    ends = datetime.fromisoformat(taken["lease_expires_at"]).timestamp()
    while time.time() < ends + 0.2:
        await asyncio.sleep(0.05)
    assert (await ask(api, "GET", f"/jobs/{job}", token=me)).json()["state"] == "running", (
        "no maintenance has run"
    )
    source = {
        "type": "dev.knative.sources.ping",
        "source": "/apis/v1/namespaces/sublet/pingsources/sublet-tick",
        "id": str(uuid.uuid4()),
    }
    answer = await deliver(
        destination(services, spec["sink"], **{"for": "0.1"}),
        source | {"datacontenttype": spec["contentType"]},
        json.loads(spec["data"]),
    )
    assert (answer.status, answer.body) == (202, b"")
    found = (await ask(api, "GET", f"/jobs/{job}", token=me)).json()
    assert found["state"] in ("queued", "scheduled")
    assert found["attempts"][0]["code"] == "lease_expired"


@pytest.mark.parametrize("name", ["sublet-tick", "sublet-events"])
async def test_an_open_service_allows_one_route_without_a_token(services, name):
    may = {"sublet-tick": {"/tick"}, "sublet-events": {"/jobs"}}[name]
    for path, body in (
        ("/tick", {}),
        ("/jobs", {"task": "x", "queue": "unserved"}),
        ("/work", {}),
        ("/jobs/claim", {}),
    ):
        answer = await ask(services[name].url, "POST", path, body)
        assert (answer.status == 401) == (path not in may), (path, answer.status)
    for path in ("/jobs", "/jobs/0-any", "/workers", "/events", "/metrics", "/pools", "/tick"):
        assert (await ask(services[name].url, "GET", path)).status == 401, path


async def test_the_other_services_refuse_requests_without_a_token(services):
    for name in ("sublet-api", "sublet-work"):
        for path in ("/jobs", "/tick", "/work", "/events"):
            assert (await ask(services[name].url, "POST", path, {})).status == 401


@contextlib.asynccontextmanager
async def ticking(services):
    """Send the PingSource's event with shorter pauses between the rounds."""
    sink = destination(
        services, kind_of(DOCUMENTS, "PingSource")["spec"]["sink"], **{"for": "40", "every": "0.5"}
    )
    event = {"type": "dev.knative.sources.ping", "source": "/apis/v1", "id": str(uuid.uuid4())}
    task = asyncio.create_task(deliver(sink, event, {}))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=SECONDS)


async def test_the_commands_of_the_page_print_the_shown_output(services, me, project):
    """The pool, the job and its result; then an event through the trigger, sent twice, becomes one job of
    the page's task.
    """
    listing, *steps = pages.steps(*(console for _, console in pages.blocks("console", PAGE)))
    assert listing.command == "sublet init knative"
    address = "http://sublet-work.sublet.svc.cluster.local"
    assert address in PAGE
    work = services["sublet-work"].url
    mine = [one._replace(command=one.command.replace(address, work)) for one in steps]
    shell = {**os.environ, "ME": me, "API": services["sublet-api"].url}
    async with ticking(services):
        for step, answer in zip(mine, await asyncio.to_thread(pages.run, mine, project, shell), strict=True):
            pages.check(step, *answer)
    spec = kind_of(DOCUMENTS, "Trigger")["spec"]
    event = {"type": spec["filter"]["attributes"]["type"], "source": "/shop", "id": "A-1"}
    first, second = [
        await deliver(destination(services, spec["subscriber"]), event, {"customer": "Ada"}) for _ in range(2)
    ]
    assert (first.status, first.body, second.status) == (202, b"", 202)
    assert first.headers["location"] == second.headers["location"]
    async with ticking(services):
        job = (
            await ask(services["sublet-api"].url, "GET", first.headers["location"] + "?wait=20", token=me)
        ).json()
    assert (job["task"], job["state"], job["result"]) == (
        parse_qs(spec["subscriber"]["uri"].partition("?")[2])["task"][0],
        "completed",
        "Ada",
    )
