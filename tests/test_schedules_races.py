"""Many who fire the same schedules at once, on one real server: each slot gets its job once, and an order is an order."""

import collections
import contextlib
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from jobs import Options, Recurrence, SyncClient, keys, timetable
from jobs.config import Settings
from jobs.recurring import new_schedule
from jobs.schedules import pick
from jobs.transport import follow_sync

pytest_plugins = ["tests.served"]

ROOT = Path(__file__).parent.parent
FIRER = """
import sys, threading
from jobs import SyncClient
from jobs.config import Settings

url, namespace, host = sys.argv[1:]
client = SyncClient(Settings(url, namespace, partitions=2))
client.queues()
print("ready", flush=True)
sys.stdin.readline()
fired = []

def fire(n):
    for _ in range(30):
        fired.append(client.follow(client.layout.fire(f"{host}-{n}")))

threads = [threading.Thread(target=fire, args=(n,)) for n in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(fired), flush=True)
"""
NAMES, SLOTS = [f"s{i}" for i in range(8)], 40


@pytest.fixture
def raw(settings):
    with redis.Redis.from_url(settings.redis_url, decode_responses=True) as raw:
        yield raw


@pytest.fixture
def client(settings):
    with SyncClient(Settings(settings.redis_url, settings.namespace, partitions=2)) as client:
        yield client


def come(raw, client, name, slots):
    """Let so many slots of a schedule have come, one a second, the last one just now."""
    base = client.layout.of_queue(client.schedules.get(name).queue)
    first = (raw.time()[0] - slots + 1) * 1000
    raw.hset(keys.schedule(base, name), "slot", first)
    raw.zadd(keys.schedules(base), {name: first})
    return first


def fired(raw, client):
    """How often each job was submitted, by its id."""
    entries = [fields for base in client.layout.bases for _, fields in raw.xrange(keys.events(base))]
    return collections.Counter(job for one in entries if one["code"] == "fired" for job in one["jobs"].split())


def test_twenty_firers_in_four_processes_fire_each_slot_once(client, raw, settings):
    for i, name in enumerate(NAMES):
        client.schedules.put(name, Recurrence(every=1.0, missed="all", most=100), "t", options=Options(queue=f"q{i}"))
    command = [sys.executable, "-c", FIRER, settings.redis_url, settings.namespace]
    hosts = [
        subprocess.Popen([*command, f"host{i}"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for i in range(4)
    ]
    try:
        assert [host.stdout.readline() for host in hosts] == ["ready\n"] * 4
        slots = {name: come(raw, client, name, SLOTS) for name in NAMES}
        for host in hosts:
            host.stdin.write("go\n")
            host.stdin.flush()
        told = [int(host.communicate(timeout=60)[0]) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
            host.communicate()
    times = fired(raw, client)
    assert set(times.values()) == {1}
    assert sum(told) == len(times), "and each is told of by one of them"
    for name, first in slots.items():
        found = client.schedules.get(name)
        made = sorted(int(job.rpartition(":")[2]) for job in times if job.partition("-")[2].startswith(f"{name}:"))
        assert made[:SLOTS] == [first + 1000 * i for i in range(SLOTS)]
        assert (found.fired, found.slots_missed) == (len(made), 0)


def test_one_that_was_picked_by_somebody_who_died_is_fired_by_the_next(client, raw):
    client.schedules.put("a", Recurrence(every=60.0), "t")
    come(raw, client, "a", 1)
    base = client.layout.of_queue("default")
    dead = client.transport.run(pick(base))
    assert [one.name for one in dead.picks] == ["a"]
    assert client.follow(client.layout.fire("me")) == 0, "it is the other's, for 2 s"
    assert 0 < raw.zscore(keys.schedules(base), "a") - dead.now <= 2000
    raw.zincrby(keys.schedules(base), -2000, "a")
    assert client.follow(client.layout.fire("me")) == 1
    assert client.schedules.get("a").fired_by == "me"


@contextlib.contextmanager
def firing(client, threads=8):
    """Threads that fire whatever has come, all the while."""
    over = threading.Event()

    def fire(n):
        while not over.is_set():
            client.follow(client.layout.fire(f"firer-{n}"))

    with ThreadPoolExecutor(threads) as pool:
        working = [pool.submit(fire, n) for n in range(threads)]
        try:
            yield
        finally:
            over.set()
        for each in working:
            each.result(30)


def put(client, queue="q0"):
    return client.schedules.put("a", Recurrence(every=1.0, missed="all", most=100), "t", options=Options(queue=queue))


@pytest.mark.parametrize("order", ["pause", "remove"])
def test_after_an_order_is_answered_no_slot_is_fired_any_more(client, raw, order):
    """However many are at it."""
    put(client)
    with firing(client):
        for _ in range(5):
            come(raw, client, "a", 20)
            getattr(client.schedules, order)("a")
            before = fired(raw, client)
            for _ in range(3):  # the others go on asking, too
                client.follow(client.layout.fire("me"))
            assert fired(raw, client) == before
            assert (client.schedules.resume("a") if order == "pause" else put(client)) in ("resumed", "created")


def test_a_move_to_another_partition_loses_no_slot_and_fires_none_twice(client, raw):
    """Somebody fires in the very moment between the look and the removal."""
    there = next(f"q{i}" for i in range(99) if client.layout.of_queue(f"q{i}") != client.layout.of_queue("q0"))
    moved = new_schedule("a", Recurrence(every=3600.0), "t", b"{}", Options(queue=there))
    for meddle in (True, False):
        client.schedules.put("a", Recurrence(every=3600.0), "t", options=Options(queue="q0"))
        now = raw.time()[0] * 1000
        slot = now - now % 3_600_000
        raw.hset(keys.schedule(client.layout.of_queue("q0"), "a"), "slot", slot)
        raw.zadd(keys.schedules(client.layout.of_queue("q0")), {"a": slot})
        before = []

        def run(call, meddle=meddle, before=before):
            if meddle and not before and call.commands[0][0] == "EVALSHA":  # the removal is the first that is no read
                before.append(client.follow(client.layout.fire("me")))
            return client.transport.run(call)

        assert follow_sync(run, timetable.put(client.layout, moved)) == "changed"
        assert before == ([1] if meddle else [])
        assert client.follow(client.layout.fire("me")) == (0 if meddle else 1)
        times = fired(raw, client)
        assert list(times.values()) == [1]
        assert [int(job.rpartition(":")[2]) for job in times] == [slot]
        raw.delete(
            *(keys.events(base) for base in client.layout.bases), *(keys.job(client.layout.of_id(job), job) for job in times)
        )
        client.schedules.remove("a")


class Crash(Exception):
    """Whoever moved a schedule is gone."""


def moved_until(client, wanted, writes):
    """Put a schedule, and die before a write. Did it come to that?"""
    left = writes

    def run(call):
        nonlocal left
        if call.commands[0][0] == "EVALSHA":
            if left == 0:
                raise Crash
            left -= 1
        return client.transport.run(call)

    try:
        follow_sync(run, timetable.put(client.layout, wanted))
    except Crash:
        return True
    return False


@pytest.mark.parametrize("heal", ["fire", "put", "sync"])
def test_a_move_that_dies_at_any_step_leaves_one_that_fires_once_and_the_next_one_finishes_it(client, raw, heal):
    there = next(f"q{i}" for i in range(99) if client.layout.of_queue(f"q{i}") != client.layout.of_queue("q0"))
    wanted, writes = new_schedule("a", Recurrence(every=3600.0), "t", b"{}", Options(queue=there)), 0
    while True:
        client.schedules.put("a", Recurrence(every=3600.0), "t", options=Options(queue="q0"))
        now = raw.time()[0] * 1000
        slot = now - now % 3_600_000
        raw.hset(keys.schedule(client.layout.of_queue("q0"), "a"), "slot", slot)
        raw.zadd(keys.schedules(client.layout.of_queue("q0")), {"a": slot})
        crashed = moved_until(client, wanted, writes)
        assert [one.name for one in client.schedules.list()] == ["a"]
        if heal == "put":
            follow_sync(client.transport.run, timetable.put(client.layout, wanted))
        if heal == "sync":
            client.schedules.sync([wanted], source="code")
        assert sum(client.follow(client.layout.fire("me")) for _ in range(2)) == 1, f"died before write {writes}"
        assert list(fired(raw, client).values()) == [1], f"died before write {writes}"
        holds = [base for base in client.layout.bases if raw.exists(keys.schedule(base, "a"))]
        assert len(holds) == 1
        assert holds == [client.layout.of_queue(client.schedules.get("a").queue)]
        times = fired(raw, client)
        raw.delete(
            *(keys.events(base) for base in client.layout.bases), *(keys.job(client.layout.of_id(job), job) for job in times)
        )
        client.schedules.remove("a")
        writes += 1
        if not crashed:
            break
    assert writes == 4, "put as one that arrives, removed, arrived"


def test_two_who_put_it_in_two_partitions_at_the_same_moment_leave_one(client, raw):
    client.schedules.put("other", Recurrence(every=3600.0), "t")
    queues = {client.layout.of_queue(f"q{i}"): f"q{i}" for i in range(20)}
    plans = [
        timetable.put(client.layout, new_schedule("a", Recurrence(every=3600.0), "t", b"{}", Options(queue=queue)))
        for queue in queues.values()
    ]
    replies = dict.fromkeys(plans)
    for _ in range(100):  # by turns, one call each
        for plan in list(replies):
            try:
                replies[plan] = client.transport.run(plan.send(replies[plan]))
            except StopIteration:
                del replies[plan]
    assert not replies
    assert [raw.exists(keys.schedule(base, "a")) for base in client.layout.bases] == [1, 0]


def test_orders_at_the_same_moment_are_all_carried_out(client):
    client.schedules.put("a", Recurrence(every=3600.0), "t")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: getattr(client.schedules, ("pause", "resume")[n % 2])("a"), range(8)))
    assert set(answers) == {"paused", "resumed"}
    assert client.schedules.pause("a") == "paused"
    assert client.schedules.get("a").state == "paused"
