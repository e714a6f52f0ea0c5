"""KEDA without a cluster: what its triggers ask is asked of a real API and a real Redis, and its own rules make pods of it."""

import math
import re
from itertools import takewhile
from urllib.parse import urlsplit

import yaml

from tests.support.clusters import EVERY, PLAIN, TEMPLATE, ask, pod_of, told, triggers
from tests.support.manifests import kind_of
from tests.support.pods import ROOT
from tests.support.processes import until

pytest_plugins = ["tests.support.clusters"]
PAGE = "\n".join((ROOT / "docs" / "platforms" / f"{name}.md").read_text() for name in ("kubernetes", "keda"))
SUM = kind_of(PLAIN, "ScaledObject")["spec"].get("advanced", {}).get("scalingModifiers")
"""How one number is made of those of both triggers."""

LENGTH = """
local length = {list = 'LLEN', zset = 'ZCARD', set = 'SCARD', hash = 'HLEN'}
local verb = length[redis.call('TYPE', KEYS[1]).ok]
return verb and redis.call(verb, KEYS[1]) or 0
"""
"""What KEDA's redis scaler takes for the length of `listName`."""


class Keda:
    """What KEDA makes of the template's triggers, by its own rules, and this server's answers."""

    def __init__(self, cluster, port):
        self.cluster, self.port = cluster, port

    def token(self, trigger):
        auth = kind_of(self.cluster.documents, "TriggerAuthentication", trigger["authenticationRef"]["name"])
        (ref,) = [one for one in auth["spec"]["secretTargetRef"] if one["parameter"] == "token"]
        return self.cluster.node.secrets[ref["name"]][ref["key"]]

    def number(self, trigger):
        """The number that a trigger finds."""
        said = trigger["metadata"]
        if trigger["type"] == "redis":
            return self.cluster.redis.eval(LENGTH, 1, said["listName"])
        where = urlsplit(said["url"])
        status, found = ask(self.port, f"{where.path}?{where.query}".rstrip("?"), self.token(trigger))
        assert status == 200, found
        for part in said["valueLocation"].split("."):
            found = found[part]
        assert isinstance(found, int | float)
        return found

    def wanted(self, triggers, modifiers=None):
        """Pods that an autoscaler wants by some triggers; none, while no number is greater than that of its activation."""
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
    """Pods that are wanted where a formula makes one number of all: of the names in it, and nothing but sums."""
    words = modifiers["formula"].split()
    assert set(words[1::2]) <= {"+"}
    return math.ceil(sum(numbers[word] for word in words[::2]) / float(modifiers["target"]))


def fresh(strategy, wanted, running, pending, most=10):
    """Pods that a ScaledJob starts, where so many are wanted, so many run, and so many of these have not begun."""
    if strategy == "accurate":
        return most - running if wanted + running > most else wanted - pending
    return wanted - running


def test_what_keda_asks_is_there():
    """The URL is that of the Service, in the namespace of the kustomization: KEDA is in another one."""
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
    )  # a deploy must not undo what KEDA did


def test_jobs_that_wait_behind_a_full_pod_get_another_one():
    """And a full pod stays when none wait. Of two triggers without a formula the greater would count: one pod for both."""
    slots = told(pod_of(kind_of(PLAIN, "Deployment", "sublet-worker"))).slots
    assert by_formula(SUM, {"ready": slots, "running": slots}) == 2
    assert by_formula(SUM, {"ready": 0, "running": slots}) == by_formula(SUM, {"ready": 1, "running": 0}) == 1
    assert {name: type(one) for name, one in SUM.items()} == {
        "formula": str,
        "target": str,
    }  # as KEDA's page has it, and no schema
    scaled = kind_of(PLAIN, "ScaledObject")["spec"]["triggers"]
    assert {one["name"]: one["metadata"]["valueLocation"] for one in scaled} == {
        "ready": "ready",
        "running": "running",
    }


def test_one_job_is_enough_to_start_a_pod_and_each_number_is_asked_for_once():
    """So no `activationTargetValue`, and what was found is kept for the autoscaler."""
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
        assert set(targets) == {str(told(pod_of(pod)).slots)}
    assert SUM["target"] == str(told(pod_of(kind_of(PLAIN, "Deployment", "sublet-worker"))).slots)


def test_keda_sees_jobs_come_and_run_and_end(cluster):
    _, port = cluster.api()
    keda = Keda(cluster, port)
    stats = kind_of(PLAIN, "ScaledObject")["spec"]["triggers"]
    per_job, by_redis = triggers("ScaledJob", "metrics-api"), triggers("ScaledJob", "redis")
    assert (
        keda.wanted(stats, SUM) == keda.wanted(per_job) == keda.wanted(by_redis) == 0
    )  # and nothing was ever stored here
    cluster.hold(13)
    assert [keda.number(one) for one in stats] == [13, 0]
    assert keda.wanted(stats, SUM) == keda.wanted(per_job) == keda.wanted(by_redis) == 2
    cluster.worker()
    until(lambda: [keda.number(one) for one in stats] == [3, 10])
    assert keda.wanted(stats, SUM) == 2  # one that is busy, and one for those that wait
    assert keda.wanted(per_job) == keda.wanted(by_redis) == 1
    strategy = kind_of(PLAIN, "ScaledJob")["spec"]["scalingStrategy"]["strategy"]
    assert fresh(strategy, wanted=1, running=1, pending=0) == 1  # for those that wait
    assert fresh("default", wanted=1, running=1, pending=0) == 0  # which would leave them waiting
    assert fresh(strategy, wanted=1, running=2, pending=1) == 0  # it is on its way
    cluster.let_go()
    until(lambda: [keda.number(one) for one in stats] == [0, 0])
    assert keda.wanted(stats, SUM) == keda.wanted(per_job) == keda.wanted(by_redis) == 0
    assert (
        ask(port, "/jobs", keda.token(stats[0]), b'{"task": "hello"}')[0] == 403
    )  # its token is for looking alone


def test_to_ask_for_the_number_is_a_tick_as_well(cluster):
    """Where nobody else comes by, KEDA finds what has fallen due."""
    _, port = cluster.api()
    keda, (ready,) = Keda(cluster, port), triggers("ScaledJob", "metrics-api")
    cluster.submit("hello", {"name": "x"}, "--delay 1s")
    assert keda.number(ready) == 0
    until(lambda: keda.number(ready) == 1)


def test_an_answer_costs_as_many_commands_as_the_page_says(cluster):
    api, port = cluster.api()
    cluster.node.run(api, "sublet pools set default --queues default --invoker none")
    polls = 60 // kind_of(PLAIN, "ScaledObject")["spec"]["pollingInterval"]
    for path, found in (
        ("/stats", r"a trigger of `/stats`, every 10 s \| (\d+)"),
        ("/pools/default", r"a pool's number, every 10 s \| (\d+)"),
    ):
        ask(port, path, cluster.secret["keda-token"])  # scripts are loaded
        with cluster.redis.monitor() as monitor:
            ask(port, path, cluster.secret["keda-token"])
            cluster.redis.echo("that was all")
            sent = [
                *takewhile(
                    lambda line: line["command"] != "ECHO that was all", iter(monitor.next_command, None)
                )
            ]
        own = [
            line for line in sent if line["client_type"] != "lua" and not line["command"].startswith("HELLO")
        ]  # that is ours
        assert len(own) * polls <= int(re.search(found, PAGE)[1])


def test_a_pools_number_can_be_asked_for_instead(cluster):
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
