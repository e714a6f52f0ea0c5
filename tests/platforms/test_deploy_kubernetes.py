"""The templates for Kubernetes: checked with published schemas, and their pods run here without a cluster."""

import copy
import json
import os
import re
import shutil
import subprocess

import pytest
import yaml

from sublet.connection.settings import Settings, connect
from sublet.protocol import keys
from tests.support.clusters import EVERY, FILES, PLAIN, SHELL, TEMPLATE, ask, options_of, pod_of, uncommented
from tests.support.manifests import kind_of
from tests.support.pages import blocks, check, command_on_path, run, steps
from tests.support.paths import ROOT
from tests.support.pods import SECONDS, secret_of
from tests.support.processes import on_linux, until

pytest_plugins = ["tests.support.manifests", "tests.support.clusters"]
PAGE = "\n".join((ROOT / "docs" / "platforms" / f"{name}.md").read_text() for name in ("kubernetes", "keda"))
WORKLOADS = ("Deployment", "StatefulSet", "CronJob", "ScaledJob")
PODS = [(one["metadata"]["name"], pod_of(one)) for one in PLAIN if one["kind"] in WORKLOADS]


# ── the files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_published(documents):
    """Without fields that the published schema of KEDA, 2.11, lacks: tests/platforms/test_deploy_keda.py
    checks those.
    """
    made = copy.deepcopy(documents)
    kind_of(made, "ScaledObject")["spec"]["advanced"].pop("scalingModifiers")
    return made


def test_every_document_matches_its_schema(manifest_faults):
    assert manifest_faults(as_published(PLAIN)) == []
    assert manifest_faults(as_published(EVERY)) == []


def test_planted_mistakes_are_found(manifest_faults):
    tick, scaled = (yaml.safe_load(yaml.safe_dump(kind_of(PLAIN, kind))) for kind in ("CronJob", "ScaledJob"))
    tick["spec"]["startingDeadlineSeconds"] = "30s"
    tick["spec"]["concurencyPolicy"] = tick["spec"].pop("concurrencyPolicy")
    scaled["spec"]["triggers"][0]["typ"] = scaled["spec"]["triggers"][0].pop("type")
    assert len(manifest_faults([tick])) >= 1
    assert len(manifest_faults([scaled])) >= 1


def test_the_kustomization_names_exactly_the_existing_files():
    text = (TEMPLATE / "k8s" / "kustomization.yaml").read_text()
    own, all_of_it = (yaml.safe_load(one)["resources"] for one in (text, uncommented(text)))
    assert sorted([*all_of_it, "kustomization.yaml"]) == [path.name for path in FILES]
    assert [name for name in all_of_it if name.startswith("keda")] == [
        name for name in all_of_it if name not in own
    ]


@pytest.mark.skipif(
    not shutil.which("kubectl"), reason="no kubectl on PATH, which is what reads a kustomization.yaml"
)
def test_kubectl_builds_it_with_the_namespace_and_the_image(tmp_path):
    for path in FILES:
        (tmp_path / path.name).write_text(uncommented(path.read_text()))
    words = ["kubectl", "kustomize", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    made = list(yaml.safe_load_all(done.stdout))
    assert sorted((one["kind"], one["metadata"]["name"]) for one in made) == sorted(
        (one["kind"], one["metadata"]["name"]) for one in EVERY
    )
    assert {one["metadata"]["namespace"] for one in made} == {"sublet"}
    images = {pod_of(one)["containers"][0]["image"] for one in made if one["kind"] in WORKLOADS}
    assert images == {"registry.example.com/tasks:1", "redis:8"}


def test_pods_run_as_the_images_own_user():
    (user,) = re.findall(r"^USER (\d+):\d+$", (TEMPLATE / "Dockerfile").read_text(), re.MULTILINE)
    own = [spec for _, spec in PODS if spec["containers"][0]["image"] == "sublet-tasks"]
    users = {spec["containers"][0]["name"]: spec["securityContext"]["runAsUser"] for spec in own}
    assert users == {"api": int(user), "tick": int(user), "worker": int(user) + 1}


def test_only_workers_use_the_workers_secret():
    keys = {}
    for _, spec in PODS:
        keys.setdefault(spec["containers"][0]["name"], set()).update(
            one["key"] for one in re_keys(spec) if "key" in one
        )
    assert keys["worker"] == {"worker-redis-url"}
    assert "worker-redis-url" not in keys["api"] | keys["tick"]


def test_the_secret_has_all_referenced_keys_and_no_file_contains_one():
    made, asked = secret_of(SHELL), set()
    for one in EVERY:
        assert one["kind"] != "Secret"
        asked |= {(r["name"], r["key"]) for r in re_keys(one)}
    assert asked == {("sublet", key) for key in made}
    assert len({*re.findall(r"[0-9a-f]{48}", " ".join(made.values()))}) == 3


def re_keys(value):
    """All references to a key of a secret in a document."""
    if isinstance(value, dict):
        if "secretName" in value:
            yield from ({"name": value["secretName"], "key": item["key"]} for item in value["items"])
        if set(value) >= {"name", "key"}:
            yield value
        for one in value.values():
            yield from re_keys(one)
    elif isinstance(value, list):
        for one in value:
            yield from re_keys(one)


# ── the running pods ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_commands_of_the_readme_run_a_job(cluster):
    api, port = cluster.api()
    worker = cluster.worker()
    (line,) = re.findall(r"-- (sublet submit .*)", SHELL)
    assert cluster.node.run(api, line) == '"hello, Ada"'
    assert api.probe("livenessProbe", port) == 200
    assert [api.stop(), worker.stop()] == [0, 0]


def test_the_doctor_accepts_the_redis(cluster):
    cluster.submit("hello", {"name": "x"})
    report = json.loads(cluster.node.run(cluster.node.pods[0], "sublet doctor --json"))
    levels = {one["subject"]: one["level"] for one in report["checks"]}
    assert {
        levels[one] for one in ("server", "eviction", "memory", "persistence", "layout", "maintenance")
    } == {"ok"}, report


def test_a_changed_secret_needs_no_restart(cluster):
    pod, port = cluster.api()
    (before,) = re.findall(r"me:admin:(\w+)", cluster.secret["tokens"])
    assert ask(port, "/jobs", before)[0] == 200
    (mounted,) = pod.mounts.values()
    mounted.put({"tokens": "me:admin:another-secret-of-mine\n"})
    until(lambda: ask(port, "/jobs", "another-secret-of-mine")[0] == 200)
    assert ask(port, "/jobs", before)[0] == 401


@on_linux
def test_no_pod_writes_a_file(cluster, tmp_path):
    """HOME and TMPDIR are unset, all folders are read-only, and all capabilities are dropped."""
    if not cluster.node.confined:
        pytest.skip("no mount namespaces here")
    probe = [*cluster.node.confined, "sh", "-c", f"touch {tmp_path}/x || touch /tmp/x || touch x"]
    assert subprocess.run(probe, capture_output=True, timeout=SECONDS).returncode != 0
    cluster.let_go()
    cluster.api()
    cluster.worker()
    found = [cluster.submit(*job, "--wait 30s") for job in (("held", {}), ("count", {"text": "a b"}))]
    assert found == ["1", "2"]
    tick = cluster.start("CronJob", "sublet-tick")
    until(lambda: cluster.redis.hget(keys.base("sublet"), "maintenance"), tick.output)
    assert "Traceback" not in "".join(pod.output() for pod in cluster.node.pods)


def test_a_rolling_deploy_releases_unfinished_jobs_to_another_worker(cluster):
    old = cluster.worker(**{"--grace=20s": "--grace=200ms"})
    job_id = cluster.hold()
    old.until('"started"')
    new = cluster.worker()
    assert old.stop() == 0
    cluster.let_go()
    new.until('"completed"')
    job = cluster.job(job_id)
    assert [one["code"] for one in job["attempts"]] == ["released", "completed"]
    assert new.stop() == 0


def test_the_successor_of_a_crashed_worker_recovers_its_jobs_at_once(cluster):
    """In the same pod, whose processes see each other; the lease would last another half minute."""
    crashed = cluster.worker()
    job_id = cluster.hold()
    crashed.until('"started"')
    crashed.kill()
    cluster.worker().until('"started"')
    assert [one["code"] for one in cluster.job(job_id)["attempts"]][:1] == ["crashed"]
    assert not cluster.is_overdue()
    cluster.let_go()


def test_the_cron_job_recovers_the_jobs_of_a_dead_worker(cluster):
    worker = cluster.worker("--lease=1s")
    job_id, late = cluster.hold(), cluster.submit("hello", {"name": "x"}, "--delay 1s")
    worker.until('"started"')
    worker.kill()
    until(cluster.is_overdue)
    tick = cluster.start("CronJob", "sublet-tick")
    until(lambda: [cluster.job(one)["state"] for one in (job_id, late)] == ["queued", "queued"], tick.output)
    assert [one["code"] for one in cluster.job(job_id)["attempts"]] == ["lease_expired"]
    tick.stop()


def test_the_scaled_jobs_pod_ends_when_the_queues_are_empty(cluster):
    job_id = cluster.submit("hello", {"name": "a"})
    pods = [cluster.start("ScaledJob", "sublet-drain") for _ in range(2)]  # the second one finds no job
    assert [pod.process.wait(SECONDS) for pod in pods] == [0, 0]
    assert cluster.job(job_id)["result"] == "hello, a"


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_commands_of_the_page_work_and_match_the_readme(tmp_path):
    env = {**os.environ, "PATH": command_on_path(tmp_path), "PYTHONPATH": str(ROOT), "SUBLET_APP": ""}
    commands = [*steps(*(console for _, console in blocks("console", PAGE)))]
    for step, answer in zip(commands, run(commands, tmp_path, env), strict=True):
        check(step, *answer)
    assert SHELL in PAGE


def test_the_snippets_of_the_page_fit_the_template(manifest_faults):
    (_, place), (_, second) = blocks("yaml", PAGE)
    worker, api = (
        copy.deepcopy(kind_of(PLAIN, "Deployment", f"sublet-{name}")) for name in ("worker", "api")
    )
    pod_of(worker)["containers"][0]["env"] += yaml.safe_load(place)["env"]
    (tick,) = yaml.safe_load(second)
    (container,) = pod_of(api)["containers"]
    pod_of(api)["containers"].append(
        {**tick, "env": container["env"], "securityContext": container["securityContext"]}
    )
    assert manifest_faults([worker, api]) == []
    assert options_of({"containers": [tick]}).every == options_of(pod_of(kind_of(PLAIN, "CronJob"))).every


def test_the_numbers_of_the_page_are_those_of_the_files():
    page = " ".join(PAGE.split())
    worker, scaled = (
        pod_of(kind_of(PLAIN, "Deployment", "sublet-worker")),
        kind_of(PLAIN, "ScaledObject")["spec"],
    )
    assert (
        f"the former ({worker['terminationGracePeriodSeconds']} s); jobs may finish within the latter ({options_of(worker).grace:g} s)"
        in page
    )
    assert f"every {scaled['pollingInterval']} s (`pollingInterval`)" in page
    assert f"to zero {scaled['cooldownPeriod']} s after the last one" in page
    assert f"0 to {scaled['maxReplicaCount']} |" in page
    assert f"have been empty for {options_of(pod_of(kind_of(PLAIN, 'ScaledJob'))).linger:g} s" in page
    most = sum(connect(Settings(), blocking=which).connection_pool.max_connections for which in (True, False))
    pods, apis = scaled["maxReplicaCount"], kind_of(PLAIN, "Deployment", "sublet-api")["spec"]["replicas"]
    assert f"no process uses more than {most}" in page
    assert f"{pods} pods of workers and {apis} of the API, {pods * 3 + apis * 4 + 1} as a rule, " in page
    assert f"{(pods + apis) * most + 1} at most" in page


def test_each_pod_opens_as_many_connections_as_documented(cluster):
    def open_ones():
        return len(cluster.redis.client_list()) - 1

    assert "of workers uses 3, of the API 2 to 4, a tick 1" in PAGE
    worker = cluster.worker()
    assert cluster.submit("hello", {"name": "x"}, "--wait 30s") == '"hello, x"'
    until(lambda: open_ones() <= 3)
    worker.stop()
    until(lambda: open_ones() == 0)
    api, port = cluster.api()
    assert ask(port, "/stats", cluster.secret["keda-token"])[0] == 200
    assert open_ones() <= 4
    api.stop()
    until(lambda: open_ones() == 0)
    tick = cluster.start("CronJob", "sublet-tick")
    until(lambda: cluster.redis.hget(keys.base("sublet"), "maintenance"), tick.output)
    assert open_ones() == 1
