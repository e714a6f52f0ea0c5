"""Concurrent firing and changes of schedules on a real server: each occurrence gets one job, and no change is lost."""

import collections
import contextlib
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from sublet import Options, Recurrence, SyncClient
from sublet.connection.settings import Settings
from sublet.connection.transport import follow_sync
from sublet.errors import Changed, NotFound, WrongState
from sublet.protocol import keys
from sublet.schedules import operations
from sublet.schedules.definition import new_schedule
from sublet.schedules.firing import pick, schedule
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.http_settings"]

FIRER = """
import sys, threading
from sublet import SyncClient
from sublet.connection.settings import Settings

url, namespace, host = sys.argv[1:]
client = SyncClient(Settings(url, namespace, partitions=2))
client.queues()
print("ready", flush=True)
sys.stdin.readline()
fired = []

def fire(n):
    for _ in range(30):
        fired.append(client.store.follow(client.store.operations.fire(f"{host}-{n}")))

threads = [threading.Thread(target=fire, args=(n,)) for n in range(5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(fired), flush=True)
"""
NAMES, OCCURRENCES = [f"s{i}" for i in range(8)], 40


@pytest.fixture
def raw(settings):
    with redis.Redis.from_url(settings.redis_url, decode_responses=True) as raw:
        yield raw


@pytest.fixture
def client(settings):
    with SyncClient(Settings(settings.redis_url, settings.namespace, partitions=2)) as client:
        yield client


def come(raw, client, name, occurrences):
    """Make so many occurrences of a schedule due, one a second, the last one now."""
    base = client.store.operations.base_of_queue(client.schedules.get(name).queue)
    first = (raw.time()[0] - occurrences + 1) * 1000
    raw.hset(keys.schedule(base, name), "occurrence", first)
    raw.zadd(keys.schedules(base), {name: first})
    return first


def fired(raw, client):
    """How often each job was submitted, by its id."""
    entries = [
        fields for base in client.store.operations.bases for _, fields in raw.xrange(keys.events(base))
    ]
    return collections.Counter(
        job for one in entries if one["code"] == "fired" for job in one["jobs"].split()
    )


def test_twenty_firers_in_four_processes_fire_each_occurrence_once(client, raw, settings):
    for i, name in enumerate(NAMES):
        client.schedules.put(
            name, Recurrence(every=1.0, missed="all", most=100), "t", options=Options(queue=f"q{i}")
        )
    command = [sys.executable, "-c", FIRER, settings.redis_url, settings.namespace]
    hosts = [
        subprocess.Popen(
            [*command, f"host{i}"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for i in range(4)
    ]
    try:
        assert [host.stdout.readline() for host in hosts] == ["ready\n"] * 4
        occurrences = {name: come(raw, client, name, OCCURRENCES) for name in NAMES}
        for host in hosts:
            host.stdin.write("go\n")
            host.stdin.flush()
        shown = [int(host.communicate(timeout=60)[0]) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
            host.communicate()
    times = fired(raw, client)
    assert set(times.values()) == {1}
    assert sum(shown) == len(times), "and one caller reports each of them"
    for name, first in occurrences.items():
        found = client.schedules.get(name)
        made = sorted(
            int(job.rpartition(":")[2]) for job in times if job.partition("-")[2].startswith(f"{name}:")
        )
        assert made[:OCCURRENCES] == [first + 1000 * i for i in range(OCCURRENCES)]
        assert (found.fired, found.occurrences_missed) == (len(made), 0)


def test_a_schedule_picked_by_a_caller_that_died_is_fired_by_the_next(client, raw):
    client.schedules.put("a", Recurrence(every=60.0), "t")
    come(raw, client, "a", 1)
    base = client.store.operations.base_of_queue("default")
    dead = client.store.transport.run(pick(base))
    assert [one.name for one in dead.picks] == ["a"]
    assert client.store.follow(client.store.operations.fire("me")) == 0, "the other caller has it, for 2 s"
    assert 0 < raw.zscore(keys.schedules(base), "a") - dead.now <= 2000
    raw.zincrby(keys.schedules(base), -2000, "a")
    assert client.store.follow(client.store.operations.fire("me")) == 1
    assert client.schedules.get("a").fired_by == "me"


@contextlib.contextmanager
def firing(client, threads=8):
    """Threads that fire due occurrences continuously."""
    over = threading.Event()

    def fire(n):
        while not over.is_set():
            client.store.follow(client.store.operations.fire(f"firer-{n}"))

    with ThreadPoolExecutor(threads) as pool:
        working = [pool.submit(fire, n) for n in range(threads)]
        try:
            yield
        finally:
            over.set()
        for each in working:
            each.result(30)


def put(client, queue="q0"):
    return client.schedules.put(
        "a", Recurrence(every=1.0, missed="all", most=100), "t", options=Options(queue=queue)
    )


@pytest.mark.parametrize("order", ["pause", "remove"])
def test_no_occurrence_is_fired_after_a_pause_or_removal_is_answered(client, raw, order):
    """With any number of callers."""
    put(client)
    with firing(client):
        for _ in range(5):
            come(raw, client, "a", 20)
            getattr(client.schedules, order)("a")
            before = fired(raw, client)
            for _ in range(3):  # the other threads go on firing
                client.store.follow(client.store.operations.fire("me"))
            assert fired(raw, client) == before
            assert (client.schedules.resume("a") if order == "pause" else put(client)) in (
                "resumed",
                "created",
            )


def with_interference(client, plan, at, interfere):
    """Follow a plan, with a change by another client right before its call number `at`. Return whether it
    made so many calls.
    """
    calls = 0

    def run(call):
        nonlocal calls
        calls += 1
        if calls == at:
            interfere()
        return client.store.transport.run(call)

    follow_sync(run, plan)
    return calls >= at


def at_each_call(client, make, interfere, check):
    """Repeat a plan, with the interference before its first call, then before its second, and so on."""
    at = 1
    while with_interference(client, make(), at, interfere):
        check(at)
        at += 1
    assert at > 3


def hourly(queue, payload=b"{}"):
    return new_schedule("a", Recurrence(every=3600.0, missed="all"), "t", payload, Options(queue=queue))


def set_back(raw, client, hours=1):
    """Set the schedule's occurrence to hours ago; return that moment."""
    base = client.store.operations.base_of_queue(client.schedules.get("a").queue)
    occurrence = (raw.time()[0] // 3600 - hours) * 3_600_000
    raw.hset(keys.schedule(base, "a"), "occurrence", occurrence)
    raw.zadd(keys.schedules(base), {"a": occurrence})
    return occurrence


def test_a_put_never_sets_back_a_concurrent_firing(client, raw):
    """Also where the occurrence's job is deleted, whose id prevents a second one."""
    client.store.follow(operations.put(client.store.operations, hourly("q0")))
    payloads, occurrences = iter(range(1, 99)), []

    def make():
        occurrences.append(set_back(raw, client))
        return operations.put(client.store.operations, hourly("q0", b"%d" % next(payloads)))

    def interfere():
        client.store.follow(client.store.operations.fire("me"))
        raw.delete(
            *(
                keys.job(base, f"{n}-a:{occurrences[-1]}")
                for n, base in enumerate(client.store.operations.bases)
            )
        )

    def check(at):
        client.store.follow(client.store.operations.fire("me"))
        times = fired(raw, client)
        assert set(times.values()) == {1}, f"before call {at}"
        raw.delete(*(keys.events(base) for base in client.store.operations.bases))

    at_each_call(client, make, interfere, check)


def test_two_clients_that_create_a_schedule_in_two_partitions_at_the_same_moment_leave_one(client, raw):
    client.store.follow(client.store.operations.prepare())
    queues = {client.store.operations.base_of_queue(f"q{i}"): f"q{i}" for i in range(20)}
    draw, refused = random.Random(7), 0
    for _ in range(100):
        plans = [operations.put(client.store.operations, hourly(queue)) for queue in queues.values()]
        replies, outcomes = dict.fromkeys(plans), {}
        while replies:  # one call at a time, in any order
            plan = draw.choice([*replies])
            reply = replies.pop(plan)
            try:
                call = plan.throw(reply) if isinstance(reply, Exception) else plan.send(reply)
            except StopIteration as done:
                outcomes[plan] = done.value
                continue
            except WrongState as error:
                outcomes[plan] = error
                continue
            try:
                replies[plan] = client.store.transport.run(call)
            except (Changed, NotFound) as error:
                replies[plan] = error
        assert sum(raw.exists(keys.schedule(base, "a")) for base in client.store.operations.bases) == 1
        assert "created" in outcomes.values()
        refused += sum(isinstance(outcome, WrongState) for outcome in outcomes.values())
        client.schedules.remove("a")
    assert refused > 10


@pytest.mark.parametrize("heal", ["put", "pause", "remove"])
def test_a_duplicate_in_another_partition_is_removed_by_the_next_operation(client, raw, heal):
    """A client may crash between creating a schedule and looking for duplicates."""
    client.store.follow(client.store.operations.prepare())
    for base in client.store.operations.bases:
        call = schedule(base, "a", 0, plan=hourly("q0").plan, queue="q0", task="t", rules="", overlap="allow", paused=False,
                        occurrence=None, due=None, payload=b"{}")  # fmt: skip
        client.store.transport.run(call)
    assert [one.name for one in client.schedules.list()] == ["a"], "a list shows one of them"
    if heal == "put":
        client.store.follow(
            operations.put(
                client.store.operations, hourly(_queue_of(client, client.store.operations.bases[0]))
            )
        )
    else:
        getattr(client.schedules, heal)("a")
    left = [base for base in client.store.operations.bases if raw.exists(keys.schedule(base, "a"))]
    assert left == ([] if heal == "remove" else client.store.operations.bases[:1])


def _queue_of(client, base):
    return next(f"q{i}" for i in range(99) if client.store.operations.base_of_queue(f"q{i}") == base)


def test_simultaneous_changes_are_all_made(client):
    client.schedules.put("a", Recurrence(every=3600.0), "t")
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: getattr(client.schedules, ("pause", "resume")[n % 2])("a"), range(8))
        )
    assert set(answers) == {"paused", "resumed"}
    assert client.schedules.pause("a") == "paused"
    assert client.schedules.get("a").state == "paused"


def test_jobs_before_an_occurrence_that_waits_are_counted(client, raw):
    """A queue that becomes full, or an overlap that waits, after some jobs of the call."""
    for name, queue, overlap in (("full", "small", "allow"), ("waits", "default", "queue")):
        client.schedules.put(
            name, Recurrence(every=1.0, missed="all", overlap=overlap), "t", options=Options(queue=queue)
        )
        come(raw, client, name, 5)
    client.store.follow(client.store.operations.configure("small", jobs=2))
    assert client.store.follow(client.store.operations.fire("me")) == 3
    assert (client.schedules.get("full").fired, client.schedules.get("waits").fired) == (2, 1)


def test_a_plan_that_cannot_be_read_is_left_to_other_callers(client, raw):
    client.schedules.put("newer", Recurrence(every=60.0), "t")
    client.schedules.put("known", Recurrence(every=60.0), "t")
    base = client.store.operations.base_of_queue("default")
    raw.hset(keys.schedule(base, "newer"), "plan", '{"when": {"moon": "full"}}')
    for fired in (1, 0, 0):
        first = come(raw, client, "newer", 1)
        if fired:
            come(raw, client, "known", 1)
        assert client.store.follow(client.store.operations.fire("old")) == fired
    assert raw.zscore(keys.schedules(base), "newer") == first, "it is not kept from others"
