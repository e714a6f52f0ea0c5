"""`GET /server`: the state of Redis, and the doctor's findings about it, in plain words and without a host's name."""

import pytest

from sublet.connection.settings import Settings
from sublet.connection.transport import follow_sync
from sublet.errors import Forbidden, Unfit
from sublet.operations.diagnosis import server_checks
from sublet.operations.diagnosis.server_report import COMMANDS, report
from sublet.store.store import Store
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from tests.support.http_server import SECRET
from tests.support.route_samples import asker

pytest_plugins = ["tests.support.http_settings", "tests.support.api_fixtures"]

HEALTHY = {"redis_version": "8.2.9", "redis_mode": "standalone", "role": "master", "maxmemory_policy": "noeviction", "used_memory": 3 << 20,
           "maxmemory": 1 << 30, "aof_enabled": 1, "connected_clients": 3, "maxclients": 10_000, "uptime_in_seconds": 90_000,
           "slave0": "ip=10.0.0.7,port=6379,state=online,offset=1,lag=0"}  # fmt: skip
SETTINGS = Settings(redis_url="rediss://ada:secret-of-ada@redis.internal:6380/0")


def reported(config=None, **info):
    """The report of one server that answers this; `config` may be an error."""

    def run(call):
        if ("INFO",) in call.commands:
            return call.read([b"1", (1893456000, 0), HEALTHY | info])
        if isinstance(config, Exception):
            raise config
        values = {"save": "", "appendfsync": "everysec", "maxclients": "10000"} | (config or {})
        asked = [command[2] for command in call.commands[1:]]
        return call.read([b"1", *([name.encode(), values[name].encode()] for name in asked)])

    found = follow_sync(run, report(SETTINGS, ["{sublet:0}"]))
    return found.level, found.servers[0]


async def test_a_real_server_is_described(asked):
    answer = await asked("GET", "/server")
    assert answer.status == 200
    (server,) = answer.json()["servers"]
    assert server["product"] in ("redis", "valkey")
    assert server["version"][0].isdigit()
    assert (server["mode"], server["is_replica"], server["replicas"]) == ("standalone", False, 0)
    assert server["used_memory_bytes"] > 100_000
    assert server["eviction_policy"] == "noeviction"
    assert server["persistence"] in ("aof", "snapshots", "none")
    checks = {check["subject"]: check for check in server["checks"]}
    assert checks.keys() == {
        "server",
        "security",
        "eviction",
        "memory",
        "persistence",
        "durability",
        "connections",
    }
    assert (
        checks["eviction"]["text"]
        == "noeviction: when memory is short, new jobs are refused and none is lost"
    )
    assert answer.json()["level"] in {check["level"] for check in checks.values()}


def test_a_healthy_server_has_the_level_ok():
    level, server = reported()
    assert (level, {check.level for check in server.checks}) == ("ok", {"ok"})
    assert (server.product, server.version, server.replicas, server.is_replica) == (
        "redis",
        "8.2.9",
        1,
        False,
    )
    assert (server.used_memory_bytes, server.maxmemory_bytes) == (3 << 20, 1 << 30)
    assert (server.persistence, server.appendfsync, server.uptime_seconds) == ("aof", "everysec", 90_000)


@pytest.mark.parametrize(
    ("info", "level", "text"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, "bad", "allkeys-lru: when memory is short, jobs are evicted"),
        ({"used_memory": 1 << 30}, "bad", "1.0 GiB of 1.0 GiB used (100%): new jobs are refused"),
        ({"aof_enabled": 0}, "bad", "none: every job is lost when the server restarts"),
        ({"used_memory": 900 << 20}, "warn", "900.0 MiB of 1.0 GiB used (88%)"),
        ({"redis_version": "7.0.15"}, "warn", "7.0.15 is below 7.2."),
    ],
)
def test_the_level_is_that_of_the_worst_check(info, level, text):
    found, server = reported(**info)
    assert found == level
    (wrong, *_) = (check for check in server.checks if check.level == level)
    assert wrong.text.startswith(text)
    assert wrong.advice


@pytest.mark.parametrize("error", [Forbidden("NOPERM"), Unfit("unknown command 'CONFIG'")])
def test_a_server_without_config_is_described_as_far_as_info_goes(error):
    level, server = reported(error)
    assert (level, server.persistence, server.appendfsync) == ("ok", "aof", None)


def test_no_answer_names_a_host_a_user_or_a_password():
    for info in ({}, {"role": "slave", "master_host": "redis.internal"}, {"redis_mode": "cluster"}):
        text = reported(**info)[1].model_dump_json()
        for secret in ("internal", "6380", "ada", "10.0.0.7"):
            assert secret not in text, (secret, text)


def test_the_doctor_has_the_same_checks():
    from sublet.cli.operations.checks import CHECKS

    assert CHECKS[: len(server_checks.CHECKS)] == server_checks.CHECKS


async def test_the_read_takes_few_commands_and_clients_share_it(settings):
    store = Store(settings)
    core = asker(Api(store, Tokens(f"eye:read:{SECRET}")))
    sent = []
    run = store._transport.run

    async def count(call):
        sent.extend(call.commands)
        return await run(call)

    store._transport.run = count
    for _ in range(5):
        answer = await core("GET", "/server", token=SECRET, sublet_shared="20, 20")
        assert answer.status == 200
    assert len(sent) <= COMMANDS + 1
    assert await store.follow_existing(store.operations.exists()) is False, "it creates nothing"
    await store.aclose()
