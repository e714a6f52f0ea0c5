"""Many who fire the same schedules at once, on one real server: each occurrence gets its job once, and an order is an order."""

import collections
import contextlib
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import redis

from sublet import Options, Recurrence, SyncClient
from sublet.connection.settings import Settings
from sublet.errors import Changed, NotFound
from sublet.protocol import keys
from sublet.protocol.plan import follow_sync
from sublet.schedules import operations
from sublet.schedules.definition import new_schedule
from sublet.schedules.firing import ARRIVES, pick, schedule
from sublet.schedules.moves import settle
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.served"]

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
        fired.append(client.follow(client.operations.fire(f"{host}-{n}")))

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
    """Let so many occurrences of a schedule have come, one a second, the last one just now."""
    base = client.operations.of_queue(client.schedules.get(name).queue)
    first = (raw.time()[0] - occurrences + 1) * 1000
    raw.hset(keys.schedule(base, name), "occurrence", first)
    raw.zadd(keys.schedules(base), {name: first})
    return first


def fired(raw, client):
    """How often each job was submitted, by its id."""
    entries = [fields for base in client.operations.bases for _, fields in raw.xrange(keys.events(base))]
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
        told = [int(host.communicate(timeout=60)[0]) for host in hosts]
    finally:
        for host in hosts:
            host.kill()
            host.communicate()
    times = fired(raw, client)
    assert set(times.values()) == {1}
    assert sum(told) == len(times), "and each is told of by one of them"
    for name, first in occurrences.items():
        found = client.schedules.get(name)
        made = sorted(
            int(job.rpartition(":")[2]) for job in times if job.partition("-")[2].startswith(f"{name}:")
        )
        assert made[:OCCURRENCES] == [first + 1000 * i for i in range(OCCURRENCES)]
        assert (found.fired, found.occurrences_missed) == (len(made), 0)


def test_one_that_was_picked_by_somebody_who_died_is_fired_by_the_next(client, raw):
    client.schedules.put("a", Recurrence(every=60.0), "t")
    come(raw, client, "a", 1)
    base = client.operations.of_queue("default")
    dead = client.transport.run(pick(base))
    assert [one.name for one in dead.picks] == ["a"]
    assert client.follow(client.operations.fire("me")) == 0, "it is the other's, for 2 s"
    assert 0 < raw.zscore(keys.schedules(base), "a") - dead.now <= 2000
    raw.zincrby(keys.schedules(base), -2000, "a")
    assert client.follow(client.operations.fire("me")) == 1
    assert client.schedules.get("a").fired_by == "me"


@contextlib.contextmanager
def firing(client, threads=8):
    """Threads that fire whatever has come, all the while."""
    over = threading.Event()

    def fire(n):
        while not over.is_set():
            client.follow(client.operations.fire(f"firer-{n}"))

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
def test_after_an_order_is_answered_no_occurrence_is_fired_any_more(client, raw, order):
    """However many are at it."""
    put(client)
    with firing(client):
        for _ in range(5):
            come(raw, client, "a", 20)
            getattr(client.schedules, order)("a")
            before = fired(raw, client)
            for _ in range(3):  # the others go on asking, too
                client.follow(client.operations.fire("me"))
            assert fired(raw, client) == before
            assert (client.schedules.resume("a") if order == "pause" else put(client)) in (
                "resumed",
                "created",
            )


def test_a_move_to_another_partition_loses_no_occurrence_and_fires_none_twice(client, raw):
    """Somebody fires in the very moment between the look and the removal."""
    there = next(
        f"q{i}" for i in range(99) if client.operations.of_queue(f"q{i}") != client.operations.of_queue("q0")
    )
    moved = new_schedule("a", Recurrence(every=3600.0), "t", b"{}", Options(queue=there))
    for meddle in (True, False):
        client.schedules.put("a", Recurrence(every=3600.0), "t", options=Options(queue="q0"))
        now = raw.time()[0] * 1000
        occurrence = now - now % 3_600_000
        raw.hset(keys.schedule(client.operations.of_queue("q0"), "a"), "occurrence", occurrence)
        raw.zadd(keys.schedules(client.operations.of_queue("q0")), {"a": occurrence})
        before = []

        def run(call, meddle=meddle, before=before):
            if (
                meddle and not before and call.commands[0][0] == "EVALSHA"
            ):  # the removal is the first that is no read
                before.append(client.follow(client.operations.fire("me")))
            return client.transport.run(call)

        assert follow_sync(run, operations.put(client.operations, moved)) == "changed"
        assert before == ([1] if meddle else [])
        assert client.follow(client.operations.fire("me")) == (0 if meddle else 1)
        times = fired(raw, client)
        assert list(times.values()) == [1]
        assert [int(job.rpartition(":")[2]) for job in times] == [occurrence]
        raw.delete(
            *(keys.events(base) for base in client.operations.bases),
            *(keys.job(client.operations.of_id(job), job) for job in times),
        )
        client.schedules.remove("a")


def with_meddling(client, plan, at, meddle, late=timedelta()):
    """Carry a plan out; right before its call number `at`, somebody else does something. Was it so long?

    With `late` it takes the time for what it was so long ago, and after each call of it all that is due is fired.
    """
    calls = 0

    def run(call):
        nonlocal calls
        calls += 1
        if calls == at:
            meddle()
        answer = client.transport.run(call)
        if late:
            client.follow(client.operations.fire("me"))
        return answer - late if call.commands[0] == ("TIME",) else answer

    follow_sync(run, plan)
    return calls >= at


def at_each_call(client, make, meddle, check, late=timedelta()):
    """The same again and again, with the meddling before the first call of the plan, the second, and so on."""
    at = 1
    while with_meddling(client, make(), at, meddle, late):
        check(at)
        at += 1
    assert at > 3


def hourly(queue, payload=b"{}"):
    return new_schedule("a", Recurrence(every=3600.0, missed="all"), "t", payload, Options(queue=queue))


def elsewhere(client):
    """A queue of another partition than `q0` is in."""
    return next(
        f"q{i}" for i in range(99) if client.operations.of_queue(f"q{i}") != client.operations.of_queue("q0")
    )


def set_back(raw, client, hours=1):
    """Let the occurrence of the schedule be one that came hours ago; when that was."""
    base = client.operations.of_queue(client.schedules.get("a").queue)
    occurrence = (raw.time()[0] // 3600 - hours) * 3_600_000
    raw.hset(keys.schedule(base, "a"), "occurrence", occurrence)
    raw.zadd(keys.schedules(base), {"a": occurrence})
    return occurrence


def test_a_put_never_sets_back_what_was_fired_since_it_looked(client, raw):
    """Not even where the occurrence's job is forgotten, whose id keeps another from being made."""
    client.follow(operations.put(client.operations, hourly("q0")))
    payloads, occurrences = iter(range(1, 99)), []

    def make():
        occurrences.append(set_back(raw, client))
        return operations.put(client.operations, hourly("q0", b"%d" % next(payloads)))

    def meddle():
        client.follow(client.operations.fire("me"))
        raw.delete(
            *(keys.job(base, f"{n}-a:{occurrences[-1]}") for n, base in enumerate(client.operations.bases))
        )

    def check(at):
        client.follow(client.operations.fire("me"))
        times = fired(raw, client)
        assert set(times.values()) == {1}, f"before call {at}"
        raw.delete(*(keys.events(base) for base in client.operations.bases))

    at_each_call(client, make, meddle, check)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("order", ["pause", "resume", "remove"])
def test_an_order_finds_a_schedule_wherever_it_moves_meanwhile(client, order, first):
    queues = ("q0", elsewhere(client))
    there = dict(zip(queues, reversed(queues), strict=True))
    wanted = {"pause": ["paused"], "resume": ["active"], "remove": []}[order]

    def make():
        client.follow(operations.put(client.operations, hourly(queues[first])))
        (client.schedules.resume if order == "pause" else client.schedules.pause)("a")
        return getattr(operations, order)(client.operations, "a")

    def meddle():
        for one in client.schedules.list():
            client.follow(operations.put(client.operations, hourly(there[one.queue])))

    def check(at):
        assert [one.state for one in client.schedules.list()] == wanted, f"before call {at}"

    at_each_call(client, make, meddle, check)


@pytest.mark.parametrize("first", [0, 1])
def test_a_put_forgets_no_occurrence_where_others_move_it_meanwhile(client, raw, first):
    queues, payloads, occurrences = ("q0", elsewhere(client)), iter(range(1, 99)), []

    def make():
        client.follow(operations.put(client.operations, hourly(queues[first])))
        occurrences.append(set_back(raw, client, hours=5))
        return operations.put(client.operations, hourly(queues[first], b"%d" % next(payloads)))

    def check(at):
        (one,) = (
            raw.hgetall(keys.schedule(base, "a"))
            for base in client.operations.bases
            if raw.exists(keys.schedule(base, "a"))
        )
        assert int(one["occurrence"]) == occurrences[-1], f"before call {at}"

    at_each_call(
        client,
        make,
        lambda: client.follow(operations.put(client.operations, hourly(queues[1 - first]))),
        check,
    )


def test_who_moves_it_alike_at_the_same_moment_forgets_no_occurrence_and_fires_none_twice(client, raw):
    """A rolling deploy: each process puts the same schedule in the same new queue, and fires; a call of one of them at a time."""
    rng = random.Random(7)
    for _ in range(100):
        client.follow(operations.put(client.operations, hourly("q0")))
        occurrence = set_back(raw, client, hours=5)
        plans = [operations.put(client.operations, hourly(elsewhere(client))) for _ in range(3)]
        plans += [client.operations.fire(f"firer-{n}") for n in range(6)]
        answers = dict.fromkeys(plans)
        while answers:
            plan = rng.choice([*answers])
            answer = answers.pop(plan)
            with contextlib.suppress(StopIteration):
                call = plan.throw(answer) if isinstance(answer, Exception) else plan.send(answer)
                try:
                    answers[plan] = client.transport.run(call)
                except (Changed, NotFound) as error:
                    answers[plan] = error
        (one,) = (
            raw.hgetall(keys.schedule(base, "a"))
            for base in client.operations.bases
            if raw.exists(keys.schedule(base, "a"))
        )
        assert one["queue"] == elsewhere(client)
        client.follow(client.operations.fire("me"))
        times = fired(raw, client)
        assert sorted(int(job.rpartition(":")[2]) for job in times) == [
            occurrence + 3_600_000 * n for n in range(6)
        ]
        assert set(times.values()) == {1}
        raw.delete(
            *(keys.events(base) for base in client.operations.bases),
            *(keys.job(client.operations.of_id(job), job) for job in times),
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
        follow_sync(run, operations.put(client.operations, wanted))
    except Crash:
        return True
    return False


@pytest.mark.parametrize("heal", ["fire", "put", "sync"])
def test_a_move_that_dies_at_any_step_leaves_one_that_fires_once_and_the_next_one_finishes_it(
    client, raw, heal
):
    there = next(
        f"q{i}" for i in range(99) if client.operations.of_queue(f"q{i}") != client.operations.of_queue("q0")
    )
    wanted, writes = new_schedule("a", Recurrence(every=3600.0), "t", b"{}", Options(queue=there)), 0
    while True:
        client.schedules.put("a", Recurrence(every=3600.0), "t", options=Options(queue="q0"))
        now = raw.time()[0] * 1000
        occurrence = now - now % 3_600_000
        raw.hset(keys.schedule(client.operations.of_queue("q0"), "a"), "occurrence", occurrence)
        raw.zadd(keys.schedules(client.operations.of_queue("q0")), {"a": occurrence})
        crashed = moved_until(client, wanted, writes)
        assert [one.name for one in client.schedules.list()] == ["a"]
        if heal == "put":
            follow_sync(client.transport.run, operations.put(client.operations, wanted))
        if heal == "sync":
            client.schedules.sync([wanted], source="code")
        assert sum(client.follow(client.operations.fire("me")) for _ in range(2)) == 1, (
            f"died before write {writes}"
        )
        assert list(fired(raw, client).values()) == [1], f"died before write {writes}"
        holds = [base for base in client.operations.bases if raw.exists(keys.schedule(base, "a"))]
        assert len(holds) == 1
        assert holds == [client.operations.of_queue(client.schedules.get("a").queue)]
        times = fired(raw, client)
        raw.delete(
            *(keys.events(base) for base in client.operations.bases),
            *(keys.job(client.operations.of_id(job), job) for job in times),
        )
        client.schedules.remove("a")
        writes += 1
        if not crashed:
            break
    assert writes == 5, "put as one that arrives, and once more, the old one removed, arrived"


def test_a_move_with_other_times_that_dies_fires_no_occurrence_twice_either(client, raw):
    wanted = new_schedule(
        "a", Recurrence(every=7200.0, missed="all"), "t", b"{}", Options(queue=elsewhere(client))
    )
    for writes in (1, 2):
        client.follow(operations.put(client.operations, hourly("q0")))
        set_back(raw, client, hours=5)
        assert moved_until(client, wanted, writes)
        home = client.operations.of_queue(elsewhere(client))
        early = (raw.time()[0] // 7200 - 2) * 7_200_000  # as if it had died hours ago
        raw.hset(keys.schedule(home, "a"), "occurrence", early)
        raw.zadd(keys.schedules(home), {"a": early})
        while client.follow(client.operations.fire("me")):
            pass
        times = fired(raw, client)
        occurrences = [int(job.rpartition(":")[2]) for job in times]
        assert occurrences
        assert len(occurrences) == len(set(occurrences)), f"died before write {writes}"
        raw.delete(
            *(keys.events(base) for base in client.operations.bases),
            *(keys.job(client.operations.of_id(job), job) for job in times),
        )
        client.schedules.remove("a")


@pytest.mark.parametrize("arriving", [0, 1, 2])
def test_of_two_the_one_that_is_furthest_stays(client, raw, arriving):
    """Whatever the partition: what it has fired, the other has not."""
    client.follow(client.operations.prepare())
    occurrences = [(raw.time()[0] // 3600 + n) * 3_600_000 for n in (2, 5)]
    for n, (base, occurrence) in enumerate(zip(client.operations.bases, occurrences, strict=True)):
        plan = hourly("q0").plan
        plan = plan[:-1] + ARRIVES if n < arriving else plan
        call = schedule(base, "a", 0, plan=plan, queue="q0", task="t", rules="", overlap="allow", paused=False, occurrence=occurrence,
                        due=occurrence, payload=b"")  # fmt: skip
        client.transport.run(call)
    client.follow(settle(client.operations.bases, "a"))
    (one,) = (
        raw.hgetall(keys.schedule(base, "a"))
        for base in client.operations.bases
        if raw.exists(keys.schedule(base, "a"))
    )
    assert int(one["occurrence"]) == occurrences[1]
    assert "arrives" not in one["plan"]


def test_who_resumes_what_moves_with_other_times_has_it_resumed(client):
    wanted = new_schedule("a", Recurrence(every=7200.0), "t", b"{}", Options(queue=elsewhere(client)))

    def make():
        client.follow(operations.put(client.operations, hourly("q0")))
        client.schedules.pause("a")
        return operations.put(client.operations, wanted)

    def check(at):
        assert client.schedules.get("a").state == "active", f"before call {at}"

    at_each_call(client, make, lambda: client.schedules.resume("a"), check)


def test_two_who_put_it_in_two_partitions_at_the_same_moment_leave_one(client, raw):
    client.schedules.put("other", Recurrence(every=3600.0), "t")
    queues = {client.operations.of_queue(f"q{i}"): f"q{i}" for i in range(20)}
    plans = [
        operations.put(
            client.operations, new_schedule("a", Recurrence(every=3600.0), "t", b"{}", Options(queue=queue))
        )
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
    assert sum(raw.exists(keys.schedule(base, "a")) for base in client.operations.bases) == 1


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("paused", [False, True])
def test_a_new_one_whose_put_is_slow_fires_no_occurrence_again_and_takes_a_pause_along(
    client, raw, first, paused
):
    """It looked an hour ago. Since then somebody has put it in another partition, and its occurrence was fired, or it was paused."""
    queues = ("q0", elsewhere(client))

    def meddle():
        client.follow(operations.put(client.operations, hourly(queues[first])))
        if paused:
            client.schedules.pause("a")
        elif not fired(raw, client):
            set_back(raw, client, hours=0)
            client.follow(client.operations.fire("me"))

    def check(at):
        client.follow(client.operations.fire("me"))
        occurrences = collections.Counter(job.partition("-")[2] for job in fired(raw, client).elements())
        assert [*occurrences.values()] in ([[1], []] if paused else [[1]]), f"before call {at}"
        assert [one.state for one in client.schedules.list()] == ["paused" if paused else "active"], (
            f"before call {at}"
        )
        client.schedules.remove("a")
        for key in [
            key
            for base in client.operations.bases
            for key in (keys.events(base), *raw.scan_iter(f"{base}:job:*"))
        ]:
            raw.delete(key)

    late = timedelta(hours=1)
    at_each_call(
        client, lambda: operations.put(client.operations, hourly(queues[1 - first])), meddle, check, late
    )


def test_orders_at_the_same_moment_are_all_carried_out(client):
    client.schedules.put("a", Recurrence(every=3600.0), "t")
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(lambda n: getattr(client.schedules, ("pause", "resume")[n % 2])("a"), range(8))
        )
    assert set(answers) == {"paused", "resumed"}
    assert client.schedules.pause("a") == "paused"
    assert client.schedules.get("a").state == "paused"
