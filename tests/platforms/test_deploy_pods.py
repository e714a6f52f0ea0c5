"""The pods of the template for Kubernetes: mistakes that a schema accepts and that show only on a bad day."""

import base64
import re
import subprocess

import pytest

from sublet.options import Options
from tests.support.clusters import PLAIN, SHELL, options_of, pod_of
from tests.support.manifests import kind_of
from tests.support.paths import ROOT
from tests.support.pods import SECONDS, secret_of

PAGE = (ROOT / "docs" / "platforms" / "kubernetes.md").read_text()
WORKLOADS = ("Deployment", "StatefulSet", "CronJob", "ScaledJob")
PODS = [(one["metadata"]["name"], pod_of(one)) for one in PLAIN if one["kind"] in WORKLOADS]
OF_EACH_POD = pytest.mark.parametrize("spec", [spec for _, spec in PODS], ids=[name for name, _ in PODS])


@OF_EACH_POD
def test_a_pod_is_unprivileged_and_read_only_and_gets_signals(spec):
    (container,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert (spec["automountServiceAccountToken"], spec["enableServiceLinks"]) == (False, False)
    assert {"memory"} <= set(container["resources"]["limits"]) <= set(container["resources"]["requests"])
    if container["command"][0] == "sublet" and container["command"][1] != "serve":
        assert (
            spec["shareProcessNamespace"] is True
        )  # process 1 gets only signals that it handles, and must reap orphans
        assert (getattr(options_of(spec), "grace", None) or 0) + 5 <= spec["terminationGracePeriodSeconds"]


def mebibytes(words):
    number, unit = re.fullmatch(r"(\d+)(\w+)", words).groups()
    return int(number) * {"mb": 1, "gb": 1024, "Mi": 1, "Gi": 1024}[unit]


def test_selectors_select_the_intended_pods():
    labels = {}
    for one in PLAIN:
        if one["kind"] in ("Deployment", "StatefulSet"):
            own = labels[one["metadata"]["name"]] = one["spec"]["template"]["metadata"]["labels"]
            assert one["spec"]["selector"]["matchLabels"] == own, "otherwise the cluster refuses it"
    for one in PLAIN:
        if one["kind"] == "Service":
            name, selector = one["metadata"]["name"], one["spec"]["selector"].items()
            assert [pod for pod, own in labels.items() if selector <= own.items()] == [name]
            named = {port["name"] for port in pod_of(workload(name))["containers"][0]["ports"]}
            assert {port["targetPort"] for port in one["spec"]["ports"]} <= named


def workload(name):
    (one,) = [one for one in PLAIN if one["kind"] in WORKLOADS and one["metadata"]["name"] == name]
    return one


def test_redis_has_a_disk_and_a_memory_limit():
    document = workload("sublet-redis")
    spec = pod_of(document)
    (container,), words = spec["containers"], spec["containers"][0]["command"]
    settings = dict(zip(words[1::2], words[2::2], strict=True))
    ((mount,), (claim,)) = container["volumeMounts"], document["spec"]["volumeClaimTemplates"]
    assert (mount["mountPath"], mount["name"]) == (settings["--dir"], claim["metadata"]["name"])
    user = spec["securityContext"]
    assert user["fsGroup"] == user["runAsGroup"], "otherwise the disk belongs to root"
    assert mebibytes(settings["--maxmemory"]) * 2 <= mebibytes(container["resources"]["limits"]["memory"])
    assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]


def test_pods_have_the_documented_memory():
    each, more = map(
        int, re.search(r"A\s+worker\s+needs\s+(\d+)\s+MiB,\s+each\s+process\s+(\d+)\s+MiB", PAGE).groups()
    )
    for name in ("sublet-worker", "sublet-drain"):
        spec = pod_of(workload(name))
        need, found = each + more * options_of(spec).processes, spec["containers"][0]["resources"]
        assert need <= mebibytes(found["requests"]["memory"])
        assert 2 * need <= mebibytes(found["limits"]["memory"])
    for name in ("sublet-api", "sublet-tick"):
        assert mebibytes(pod_of(workload(name))["containers"][0]["resources"]["limits"]["memory"]) >= 2 * each


def test_pods_are_not_restarted_for_failures_elsewhere():
    """An API that restarts during an outage of Redis, a worker with a long job, new pods for a failing one."""
    (api,) = pod_of(workload("sublet-api"))["containers"]
    assert [api[kind]["httpGet"]["path"] for kind in ("readinessProbe", "livenessProbe")] == [
        "/readyz",
        "/healthz",
    ]
    assert options_of(pod_of(workload("sublet-worker"))).stall > Options().timeout
    assert workload("sublet-tick")["spec"]["jobTemplate"]["spec"]["backoffLimit"] == 0
    scaled = workload("sublet-drain")["spec"]
    assert scaled["jobTargetRef"]["backoffLimit"] == 0
    assert scaled["rollout"]["strategy"] == "gradual"


def test_the_token_can_be_read_from_the_secret_as_documented():
    tokens = secret_of(SHELL)["tokens"]
    (line,) = re.findall(r"^ME=.*get secret.*$", PAGE, re.MULTILINE)
    stand_in = f"kubectl() {{ printf %s '{base64.b64encode(tokens.encode()).decode()}'; }}\n"
    done = subprocess.run(
        ["bash", "-c", f'{stand_in}{line}\necho "$ME"'], capture_output=True, text=True, timeout=SECONDS
    )
    assert done.stdout.strip() == re.search(r"^me:admin:(\w+)$", tokens, re.MULTILINE)[1]


def test_time_limits_do_not_contradict_each_other():
    job = kind_of(PLAIN, "ScaledJob")["spec"]["jobTargetRef"]
    assert (
        options_of(pod_of(kind_of(PLAIN, "ScaledJob"))).seconds + 900 <= job["activeDeadlineSeconds"]
    )  # starting a node, and pulling an image
    tick = kind_of(PLAIN, "CronJob")["spec"]
    assert (
        options_of(pod_of(kind_of(PLAIN, "CronJob"))).seconds + 10
        <= 60
        < tick["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    )
    assert (tick["schedule"], tick["concurrencyPolicy"]) == ("* * * * *", "Forbid")
    assert 10 <= tick["startingDeadlineSeconds"] < 60  # the controller checks every ten seconds
