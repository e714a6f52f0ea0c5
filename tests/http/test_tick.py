"""The tick: it fires schedules and summons workers besides the maintenance, even if one of them fails."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from itertools import takewhile

import pytest
import redis

from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings, connect_sync
from sublet.errors import OutOfMemory
from sublet.model import State
from sublet.operations import pools
from sublet.protocol import keys, server_info
from sublet.scaling import sync_summoner
from sublet.scaling.summoner import Summoned, Summoner
from sublet.schedules.firing import schedule
from sublet.store.store import Store
from sublet_functions import tick
from sublet_functions.api.dispatch import Api
from sublet_functions.http.auth import Tokens
from sublet_functions.http.request import Request
from sublet_functions.tick import TickSummary, one_round, run_tick
from tests.support.processes import children_of, on_linux, until
from tests.support.recording_invoker import POOL, Recorder, jobs

pytest_plugins = ["tests.support.command_line"]
SECRET = "a-secret-of-sixteen"
PLAN = b'{"when":{"every":3600}}'


@pytest.fixture
def due(store):
    """Create a schedule with an occurrence that was due within the last hour."""

    async def due():
        await store.prepare()
        now = round((await store.run(server_info.clock())).timestamp() * 1000)
        occurrence = now // 3_600_000 * 3_600_000
        how = dict(queue="q", task="t", rules="", overlap="allow", paused=False, payload=b"{}")
        await store.run(
            schedule(
                store.operations.bases[0],
                "hourly",
                0,
                plan=PLAN,
                occurrence=occurrence,
                due=occurrence,
                **how,
            )
        )

    return due


async def queued(store):
    return (await store.follow(store.operations.stats()))[0].states[State.QUEUED]


async def test_a_round_fires_a_due_occurrence_once(store, due):
    await due()
    done = TickSummary()
    for _ in range(2):
        assert await store.follow(one_round(store.operations, "tick", done)) == (False, None)
    assert (done.fired, done.rounds, await queued(store)) == (1, 2, 1)


async def test_a_read_of_the_statistics_fires_due_occurrences(store, due):
    await due()
    await store.follow(store.operations.maintain("stats"))
    assert await queued(store) == 1


async def test_a_tick_over_http_fires_summons_and_records_its_token_name(store, due, monkeypatch):
    monkeypatch.setenv("SUBLET_TOKENS", f"cron:tick,read:{SECRET}")
    invoker = Recorder()
    store.summoner = Summoner(store, {"http": invoker})
    api = Api(store, Tokens.read())
    await due()
    await store.follow(pools.put(store.operations.bases, POOL))
    headers = {"authorization": f"Bearer {SECRET}", "host": "localhost"}
    reply = await api.answer(Request("POST", "/tick", headers=headers))
    assert b'"fired":1,"summoned":1,"unreached":0,"rounds":1' in reply.body
    assert len(invoker.summons) == 1
    found = await api.answer(Request("GET", "/stats", headers=headers))
    assert b'"maintenance_by":"http:cron"' in found.body
    await store.summoner.aclose()


async def test_a_full_server_does_not_stop_a_tick_from_summoning(store, due, monkeypatch):
    """A full server refuses the schedule's job: its workers free the memory."""

    def full(*_):
        raise OutOfMemory("full")
        yield

    invoker = Recorder()
    store.summoner = Summoner(store, {"http": invoker})
    await due()
    await store.submit(jobs(1))
    await store.follow(pools.put(store.operations.bases, POOL))
    monkeypatch.setattr(type(store.operations), "fire", full)
    reply = await Api(store, Tokens()).answer(Request("POST", "/tick", headers={"host": "localhost"}))
    assert (reply.status, len(invoker.summons)) == (507, 1)
    await store.summoner.aclose()


@pytest.mark.real_server
def test_a_tick_from_a_shell_fires_and_summons(place, monkeypatch):
    asked = []

    def summon_once(settings, transport):
        asked.append(settings)
        return Summoned(pools=1, summoned=2, failed=1)

    monkeypatch.setattr(sync_summoner, "summon_once", summon_once)
    with SyncClient(place.settings) as client:
        client.submit("t")
        done = run_tick(client, by="tick")
        assert (done.summoned, done.unreached, asked) == (0, 0, [])
        client.store.follow(pools.put(client.store.operations.bases, POOL))
        done = run_tick(client, by="tick")
    assert (done.summoned, done.unreached, len(asked)) == (2, 1, 1)


@pytest.mark.parametrize(
    ("passed", "pause"), [(0.1, 4.9), (49.99, 0.01), (50.1, 4.9), (7.0, 3.0), (55.1, None), (54.9, 0.1)]
)
def test_rounds_begin_at_fixed_intervals_until_the_duration_ends(monkeypatch, passed, pause):
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + passed)
    assert tick.pause_until_next_round(1000.0, 5.0, 55.0) == (None if pause is None else pytest.approx(pause))


async def ticked(settings):
    api = Api(Store(settings), Tokens())
    reply = await api.answer(Request("POST", "/tick", headers={"host": "localhost"}))
    await api.aclose()
    return reply.status


@pytest.mark.parametrize("way", ["shell", "core"])
def test_a_tick_with_nothing_to_do_is_three_commands(new_server, way):
    """…also for a new process: it sends no other command. A Redis that bills by command counts each."""
    server = new_server("valkey")
    settings = Settings(redis_url=server.url, namespace=f"n{way}")
    environment = {**os.environ, "SUBLET_REDIS_URL": server.url, "SUBLET_NAMESPACE": settings.namespace}
    words = [sys.executable, "-m", "sublet", "tick"]
    subprocess.run([*words[:3], "submit", "t"], env=environment, check=True, capture_output=True)
    subprocess.run(words, env=environment, check=True, capture_output=True)  # loads the scripts
    with connect_sync(settings) as redis, redis.monitor() as monitor:
        if way == "shell":
            subprocess.run(words, env=environment, check=True, capture_output=True)
        else:
            assert asyncio.run(ticked(settings)) == 200
        redis.ping()
        seen = takewhile(lambda line: line["command"] != "PING", iter(monitor.next_command, None))
        sent = [line["command"].split()[0] for line in seen if line["client_type"] != "lua"]
    assert sent[:3] == ["EVALSHA"] * 3, "a reap, a prune and a sample"
    assert len(sent) == 3 or "HSCAN" in sent, "or another minute has begun, and the queued jobs are counted"


@on_linux
def test_a_tick_as_pid_1_of_a_container_ends_at_sigterm(shell):
    alone = ["unshare", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("no pid namespaces here")
    shell.ok("submit", "add", '{"a": 1}')
    process = subprocess.Popen(
        [*alone, *shell.command, "tick", "--for", "5m"], cwd=shell.folder, env=shell.env
    )
    try:
        (own,) = until(lambda: children_of(process.pid))
        with redis.Redis.from_url(shell.env["SUBLET_REDIS_URL"]) as raw:
            until(lambda: raw.hget(keys.base(shell.env["SUBLET_NAMESPACE"]), "maintenance"))
        os.kill(own, signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait(30)
