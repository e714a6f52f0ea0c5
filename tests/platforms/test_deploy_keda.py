"""KEDA without a cluster: its triggers query a real API and a real Redis, and its rules compute the number of
pods."""

import math
import re
from itertools import takewhile
from urllib.parse import urlsplit

import yaml

from tests.support.clusters import EVERY, PLAIN, TEMPLATE, ask, options_of, pod_of, triggers
from tests.support.manifests import kind_of
from tests.support.paths import ROOT
from tests.support.processes import until

pytest_plugins = ["tests.support.clusters"]
PAGE = "\n".join((ROOT / "docs" / "platforms" / f"{name}.md").read_text() for name in ("kubernetes", "keda"))
SUM = kind_of(PLAIN, "ScaledObject")["spec"].get("advanced", {}).get("scalingModifiers")
"""How the numbers of both triggers become one."""

LENGTH = """
local length = {list = 'LLEN', zset = 'ZCARD', set = 'SCARD', hash = 'HLEN'}
local verb = length[redis.call('TYPE', KEYS[1]).ok]
return verb and redis.call(verb, KEYS[1]) or 0
"""
"""The length of `listName` according to KEDA's redis scaler."""


class Keda:
    """KEDA's results for the template's triggers, by its own rules, with this server's answers."""

    def __init__(self, cluster, port):
        self.cluster, self.port = cluster, port

    def token(self, trigger):
        auth = kind_of(self.cluster.documents, "TriggerAuthentication", trigger["authenticationRef"]["name"])
        (ref,) = [one for one in auth["spec"]["secretTargetRef"] if one["parameter"] == "token"]
        return self.cluster.node.secrets[ref["name"]][ref["key"]]

    def number(self, trigger):
        """The number that a trigger finds."""
        metadata = trigger["metadata"]
        if trigger["type"] == "redis":
            return self.cluster.redis.eval(LENGTH, 1, metadata["listName"])
        where = urlsplit(metadata["url"])
        status, found = ask(self.port, f"{where.path}?{where.query}".rstrip("?"), self.token(trigger))
        assert status == 200, found
        for part in metadata["valueLocation"].split("."):
            found = found[part]
        assert isinstance(found, int | float)
        return found

    def wanted(self, triggers, modifiers=None):
        """The number of pods that an autoscaler wants; 0 while no number exceeds the activation value."""
        if modifiers:
            return by_formula(modifiers, {one["name"]: self.number(one) for one in triggers})
        found = [
            (self.number(one), float(one["metadata"].get("targetValue") or one["metadata"]["listLength"]))
            for one in triggers
        ]
        return (
            max(math.ceil(number / target) for number, target in found)
            if any(number > 0 for number, _ in found)
            else 0
        )


def by_formula(modifiers, numbers):
    """The number of pods where a formula combines all numbers; it contains only names and sums."""
    words = modifiers["formula"].split()
    assert set(words[1::2]) <= {"+"}
    return math.ceil(sum(numbers[word] for word in words[::2]) / float(modifiers["target"]))


def fresh(strategy, wanted, running, pending, most=10):
    """The number of pods that a ScaledJob starts, from the wanted, running and pending ones."""
    if strategy == "accurate":
        return most - running if wanted + running > most else wanted - pending
    return wanted - running


def test_the_triggers_url_and_token_exist():
    """The URL is that of the Service in the namespace of the kustomization: KEDA runs in another one."""
    namespace = yaml.safe_load((TEMPLATE / "k8s" / "kustomization.yaml").read_text())["namespace"]
    service, pod = kind_of(PLAIN, "Service", "sublet-api"), kind_of(PLAIN, "Deployment", "sublet-api")
    (port,) = service["spec"]["ports"]
    (inner,) = pod_of(pod)["containers"][0]["ports"]
    env = {one["name"]: one.get("value") for one in pod_of(pod)["containers"][0]["env"]}
    assert (port["targetPort"], str(inner["containerPort"]), env["SUBLET_HOST"]) == (
        inner["name"],
        env["SUBLET_PORT"],
        "0.0.0.0",
    )
    assert service["spec"]["selector"].items() <= pod["spec"]["template"]["metadata"]["labels"].items()
    for kind in ("ScaledObject", "ScaledJob"):
        for one in triggers(kind, "metrics-api"):
            where = urlsplit(one["metadata"]["url"])
            assert where.netloc == f"sublet-api.{namespace}.svc:{port['port']}"
            (asked,) = kind_of(PLAIN, "TriggerAuthentication", one["authenticationRef"]["name"])["spec"][
                "secretTargetRef"
            ]
            assert (asked["parameter"], one["metadata"]["authMode"]) == ("token", "bearer")
    assert kind_of(PLAIN, "ScaledObject")["spec"]["scaleTargetRef"]["name"] == "sublet-worker"
    assert (
        "replicas" not in kind_of(PLAIN, "Deployment", "sublet-worker")["spec"]
    )  # a deploy must not undo KEDA's scaling


def test_jobs_waiting_behind_a_full_pod_start_another():
    """A full pod stays without waiting jobs. Of two triggers without a formula the larger would count: one
    pod for both.
    """
    slots = options_of(pod_of(kind_of(PLAIN, "Deployment", "sublet-worker"))).slots
    assert by_formula(SUM, {"ready": slots, "running": slots}) == 2
    assert by_formula(SUM, {"ready": 0, "running": slots}) == by_formula(SUM, {"ready": 1, "running": 0}) == 1
    assert {name: type(one) for name, one in SUM.items()} == {
        "formula": str,
        "target": str,
    }  # as on KEDA's page; the schema lacks it
    scaled = kind_of(PLAIN, "ScaledObject")["spec"]["triggers"]
    assert {one["name"]: one["metadata"]["valueLocation"] for one in scaled} == {
        "ready": "ready",
        "running": "running",
    }


def test_one_job_starts_a_pod_and_each_number_is_requested_once():
    """`activationTargetValue` is unset, and results are cached for the autoscaler."""
    for kind in ("ScaledObject", "ScaledJob"):
        for one in triggers(kind, "metrics-api"):
            assert set(one["metadata"]) == {"url", "valueLocation", "targetValue", "authMode"}
            assert one.get("useCachedMetrics", False) == (kind == "ScaledObject")


def test_targets_are_the_slots_of_a_pod():
    for kind, pod in (
        ("ScaledObject", kind_of(PLAIN, "Deployment", "sublet-worker")),
        ("ScaledJob", kind_of(PLAIN, "ScaledJob")),
    ):
        found = [one["metadata"] for one in kind_of(EVERY, kind)["spec"]["triggers"]]
        targets = [
            one.get("targetValue") or one["listLength"]
            for one in found
            if one.get("valueLocation") != "sum.wanted"
        ]
        assert set(targets) == {str(options_of(pod_of(pod)).slots)}
    assert SUM["target"] == str(options_of(pod_of(kind_of(PLAIN, "Deployment", "sublet-worker"))).slots)


def test_the_triggers_follow_waiting_running_and_ended_jobs(cluster):
    _, port = cluster.api()
    keda = Keda(cluster, port)
    stats = kind_of(PLAIN, "ScaledObject")["spec"]["triggers"]
    per_job, by_redis = triggers("ScaledJob", "metrics-api"), triggers("ScaledJob", "redis")
    assert (
        keda.wanted(stats, SUM) == keda.wanted(per_job) == keda.wanted(by_redis) == 0
    )  # the namespace is empty
    cluster.hold(13)
    assert [keda.number(one) for one in stats] == [13, 0]
    assert keda.wanted(stats, SUM) == keda.wanted(per_job) == keda.wanted(by_redis) == 2
    cluster.worker()
    until(lambda: [keda.number(one) for one in stats] == [3, 10])
    assert keda.wanted(stats, SUM) == 2  # one busy pod, and one for the waiting jobs
    assert keda.wanted(per_job) == keda.wanted(by_redis) == 1
    strategy = kind_of(PLAIN, "ScaledJob")["spec"]["scalingStrategy"]["strategy"]
    assert fresh(strategy, wanted=1, running=1, pending=0) == 1  # for the waiting jobs
    assert fresh("default", wanted=1, running=1, pending=0) == 0  # which would start none for them
    assert fresh(strategy, wanted=1, running=2, pending=1) == 0  # it is starting
    cluster.let_go()
    until(lambda: [keda.number(one) for one in stats] == [0, 0])
    assert keda.wanted(stats, SUM) == keda.wanted(per_job) == keda.wanted(by_redis) == 0
    assert (
        ask(port, "/jobs", keda.token(stats[0]), b'{"task": "hello"}')[0] == 403
    )  # its token has the role read only


def test_a_triggers_request_promotes_due_jobs(cluster):
    """Without other clients, KEDA finds due jobs."""
    _, port = cluster.api()
    keda, (ready,) = Keda(cluster, port), triggers("ScaledJob", "metrics-api")
    cluster.submit("hello", {"name": "x"}, "--delay 1s")
    assert keda.number(ready) == 0
    until(lambda: keda.number(ready) == 1)


def test_a_request_sends_as_many_commands_as_documented(cluster):
    api, port = cluster.api()
    cluster.node.run(api, "sublet pools set default --queues default --invoker none")
    polls = 60 // kind_of(PLAIN, "ScaledObject")["spec"]["pollingInterval"]
    for path, found in (
        ("/stats", r"a trigger of `/stats`, every 10 s \| (\d+)"),
        ("/pools/default", r"a pool's number, every 10 s \| (\d+)"),
    ):
        ask(port, path, cluster.secret["keda-token"])  # loads the scripts
        with cluster.redis.monitor() as monitor:
            ask(port, path, cluster.secret["keda-token"])
            cluster.redis.echo("the end")
            sent = [
                *takewhile(lambda line: line["command"] != "ECHO the end", iter(monitor.next_command, None))
            ]
        own = [
            line for line in sent if line["client_type"] != "lua" and not line["command"].startswith("HELLO")
        ]  # without the handshake
        assert len(own) * polls <= int(re.search(found, PAGE)[1])


def test_a_trigger_may_use_the_number_of_a_pool(cluster):
    api, port = cluster.api()
    text = (TEMPLATE / "k8s" / "keda-scaledobject.yaml").read_text()
    command, flag = re.search(r"#   (sublet pools set .*?)  +\(and (\S+) in worker", text).groups()
    cluster.node.run(api, command)
    keda = Keda(cluster, port)
    (wanted,) = [
        one
        for one in triggers("ScaledObject", "metrics-api")
        if one["metadata"]["valueLocation"] == "sum.wanted"
    ]
    assert f"sublet-api -- {command}" in PAGE
    assert keda.wanted([wanted]) == 0
    cluster.hold(3)
    assert keda.wanted([wanted]) == 1
    worker = cluster.worker(flag)
    until(lambda: ask(port, "/pools/default", keda.token(wanted))[1]["sum"]["crew"] == 1)
    worker.until('"started"')
    assert keda.wanted([wanted]) == 1
