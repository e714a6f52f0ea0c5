"""The pods of the template for Kubernetes: what of their files a schema lets pass, and nobody would notice on a good day."""

import base64
import re
import subprocess

import pytest

from sublet.options import Options
from tests.support.clusters import PLAIN, SHELL, pod_of, told
from tests.support.manifests import kind_of
from tests.support.pods import ROOT, SECONDS, secret_of

PAGE = (ROOT / "docs" / "platforms" / "kubernetes.md").read_text()
WORKLOADS = ("Deployment", "StatefulSet", "CronJob", "ScaledJob")
PODS = [(one["metadata"]["name"], pod_of(one)) for one in PLAIN if one["kind"] in WORKLOADS]
OF_EACH_POD = pytest.mark.parametrize("spec", [spec for _, spec in PODS], ids=[name for name, _ in PODS])


@OF_EACH_POD
def test_a_pod_is_not_root_and_writes_nothing_and_hears_of_its_end(spec):
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
        )  # a process 1 hears no signal that it does not ask for, and must bury orphans
        assert (getattr(told(spec), "grace", None) or 0) + 5 <= spec["terminationGracePeriodSeconds"]


def mebibytes(words):
    number, unit = re.fullmatch(r"(\d+)(\w+)", words).groups()
    return int(number) * {"mb": 1, "gb": 1024, "Mi": 1, "Gi": 1024}[unit]


def test_selectors_select_the_pods_that_are_meant():
    labels = {}
    for one in PLAIN:
        if one["kind"] in ("Deployment", "StatefulSet"):
            own = labels[one["metadata"]["name"]] = one["spec"]["template"]["metadata"]["labels"]
            assert one["spec"]["selector"]["matchLabels"] == own, "the cluster would refuse it"
    for one in PLAIN:
        if one["kind"] == "Service":
            name, selector = one["metadata"]["name"], one["spec"]["selector"].items()
            assert [pod for pod, own in labels.items() if selector <= own.items()] == [name]
            named = {port["name"] for port in pod_of(workload(name))["containers"][0]["ports"]}
            assert {port["targetPort"] for port in one["spec"]["ports"]} <= named


def workload(name):
    (one,) = [one for one in PLAIN if one["kind"] in WORKLOADS and one["metadata"]["name"] == name]
    return one


def test_redis_keeps_its_data_on_its_disk_and_within_its_memory():
    document = workload("sublet-redis")
    spec = pod_of(document)
    (container,), words = spec["containers"], spec["containers"][0]["command"]
    said = dict(zip(words[1::2], words[2::2], strict=True))
    ((mount,), (claim,)) = container["volumeMounts"], document["spec"]["volumeClaimTemplates"]
    assert (mount["mountPath"], mount["name"]) == (said["--dir"], claim["metadata"]["name"])
    user = spec["securityContext"]
    assert user["fsGroup"] == user["runAsGroup"], "the disk is root's otherwise"
    assert mebibytes(said["--maxmemory"]) * 2 <= mebibytes(container["resources"]["limits"]["memory"])
    assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]


def test_pods_have_the_memory_that_the_page_counts():
    each, more = map(
        int, re.search(r"A\s+worker\s+needs\s+(\d+)\s+MiB,\s+each\s+process\s+(\d+)\s+MiB", PAGE).groups()
    )
    for name in ("sublet-worker", "sublet-drain"):
        spec = pod_of(workload(name))
        need, found = each + more * told(spec).processes, spec["containers"][0]["resources"]
        assert need <= mebibytes(found["requests"]["memory"])
        assert 2 * need <= mebibytes(found["limits"]["memory"])
    for name in ("sublet-api", "sublet-tick"):
        assert mebibytes(pod_of(workload(name))["containers"][0]["resources"]["limits"]["memory"]) >= 2 * each


def test_nobody_is_ended_for_what_is_not_its_fault():
    """An API that would be restarted whenever Redis is away, a worker with a job that takes its time, pods for one bad one."""
    (api,) = pod_of(workload("sublet-api"))["containers"]
    assert [api[kind]["httpGet"]["path"] for kind in ("readinessProbe", "livenessProbe")] == [
        "/readyz",
        "/healthz",
    ]
    assert told(pod_of(workload("sublet-worker"))).stall > Options().timeout
    assert workload("sublet-tick")["spec"]["jobTemplate"]["spec"]["backoffLimit"] == 0
    scaled = workload("sublet-drain")["spec"]
    assert scaled["jobTargetRef"]["backoffLimit"] == 0
    assert scaled["rollout"]["strategy"] == "gradual"


def test_a_token_that_is_in_no_shell_any_more_is_got_back_as_the_page_says():
    tokens = secret_of(SHELL)["tokens"]
    (line,) = re.findall(r"^ME=.*get secret.*$", PAGE, re.MULTILINE)
    stand_in = f"kubectl() {{ printf %s '{base64.b64encode(tokens.encode()).decode()}'; }}\n"
    said = subprocess.run(
        ["bash", "-c", f'{stand_in}{line}\necho "$ME"'], capture_output=True, text=True, timeout=SECONDS
    )
    assert said.stdout.strip() == re.search(r"^me:admin:(\w+)$", tokens, re.MULTILINE)[1]


def test_time_limits_do_not_contradict_each_other():
    job = kind_of(PLAIN, "ScaledJob")["spec"]["jobTargetRef"]
    assert (
        told(pod_of(kind_of(PLAIN, "ScaledJob"))).seconds + 900 <= job["activeDeadlineSeconds"]
    )  # a node starts, an image comes
    tick = kind_of(PLAIN, "CronJob")["spec"]
    assert (
        told(pod_of(kind_of(PLAIN, "CronJob"))).seconds + 10
        <= 60
        < tick["jobTemplate"]["spec"]["activeDeadlineSeconds"]
    )
    assert (tick["schedule"], tick["concurrencyPolicy"]) == ("* * * * *", "Forbid")
    assert 10 <= tick["startingDeadlineSeconds"] < 60  # the controller looks every ten seconds
