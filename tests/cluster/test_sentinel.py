"""A namespace on a primary with sentinels: when it is gone, a replica replaces it, and all clients follow."""

import asyncio
import time

import pytest

from sublet.client.client import Client
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.connection.topology import discover
from sublet.connection.transport import SyncTransport
from sublet.connection.url import MultiServerUrl
from sublet.errors import Demoted, Unavailable, Unfit
from sublet.model import Completion
from sublet.protocol import verbs
from sublet.steps.chunks import Emission
from sublet.store.store import Store
from tests.cluster.test_cluster import answers, so
from tests.faults.chaos.topologies import Sentinels

SECONDS = 20.0


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    with Sentinels.start(tmp_path_factory.mktemp("sentinels")) as started:
        yield started


@pytest.fixture
def settings(group):
    return Settings(redis_url=group.url, namespace="watched", partitions=2)


def blocked(node):
    """Is a client blocked in a BLPOP there?"""
    return any(client["cmd"] == "blpop" and "b" in client["flags"] for client in node.client.client_list())


async def work(store, seen, stop, errors):
    while not stop.is_set():
        try:
            claimed = await store.claim(worker="w", queues=["default"], n=10, lease=30, wait=1)
            await store.settle([Completion(lease, b"1") for lease in claimed.leases])
            seen.update((lease.id, time.monotonic()) for lease in claimed.leases)
        except Unavailable as error:
            errors.append(error)


@pytest.mark.parametrize("how", ["kill", "freeze"])
async def test_a_primary_that_dies_under_load_is_replaced(group, settings, how, capsys):
    acked, seen, errors, done = {}, {}, [], asyncio.Event()
    store, victim = Store(settings), group.primary_of()
    worker = asyncio.create_task(work(store, seen, done, errors))
    async with Client(settings) as client:
        try:
            async with asyncio.timeout(2 * SECONDS):
                gone_at = 0.0
                for i in range(100_000):
                    while True:
                        try:
                            handle = await client.submit("t", {}, job_id=f"{how}{i}")
                            break
                        except Unavailable as error:
                            errors.append(error)
                    acked[handle.id] = time.monotonic()
                    if i == 200:
                        gone_at = time.monotonic()
                        getattr(group, how)(victim)
                    if (
                        gone_at
                        and time.monotonic() > gone_at + 1
                        and any(at > gone_at + 1 for at in list(seen.values())[-1:])
                    ):
                        break
                back = max(seen.values()) - gone_at
                await client.result(handle.id, SECONDS)
        finally:
            done.set()
            await worker
            await store.aclose()
    lost = [job for job in acked if job not in seen]
    with capsys.disabled():
        print(
            f"\n{how}: work again after {back:.1f} s; {len(acked)} acknowledged, {len(lost)} lost, {len(errors)} errors"
        )
    getattr(group, "revive" if how == "kill" else "thaw")(victim)
    assert group.primary_of() is not victim
    await asyncio.to_thread(group.settle)
    assert back < 12
    assert errors == [] or back > 7, "within the time-out no caller gets an error"
    assert all(gone_at - 1 < acked[job] <= gone_at + 0.1 for job in lost), (
        "only writes that no replica had received are lost"
    )


async def test_all_clients_follow_a_commanded_failover(group, settings):
    """Waiters for jobs, results and chunks wait at the new one; no caller gets READONLY."""
    async with Client(settings) as client:
        before = await client.submit("t", {}, job_id="stays")
        (lease,) = (await client.store.claim(worker="w", queues=["default"], n=1, lease=60)).leases
        waiting = asyncio.create_task(
            client.store.claim(worker="w", queues=["default"], n=1, lease=60, wait=SECONDS)
        )
        result = asyncio.create_task(client.result(before.id, SECONDS))
        chunk = asyncio.create_task(anext(before.stream()))
        old = group.primary_of()
        await so(lambda: blocked(old), "it waits")
        await asyncio.to_thread(group.hand_over)
        await so(lambda: blocked(group.primary_of()), "it waits at the new one")
        began = time.monotonic()
        await client.store.emit(lease, Emission(0, [b'"a word"']))
        assert (await chunk).value == "a word"
        assert await client.store.settle([Completion(lease, b'"there"')]) == ["completed"]
        assert await result == "there"
        after = await client.submit("t", {}, job_id="more")
        assert [lease.id for lease in (await waiting).leases] == [after.id]
        assert time.monotonic() - began < 2.5
    await asyncio.to_thread(group.settle)


def test_a_sync_client_follows_the_new_primary(group, settings):
    with SyncClient(settings) as client:
        before = client.submit("t", {}, job_id="sync")
        group.hand_over()
        assert client.submit("t", {}, job_id="sync-2").created
        assert client.get(before.id).state == "queued"


def test_an_unknown_service_and_a_server_that_is_not_a_sentinel_are_errors(group):
    wrong = group.url.replace("/main", "/other")
    with (
        SyncClient(Settings(redis_url=wrong)) as client,
        pytest.raises(Unfit, match="has no service other"),
    ):
        client.stats()
    node = f"redis+sentinel://127.0.0.1:{group.nodes[0].port}/main"
    with (
        SyncClient(Settings(redis_url=node)) as client,
        pytest.raises(Unfit, match="is not a sentinel: use redis://"),
    ):
        client.stats()


def test_a_server_named_by_sentinels_must_be_the_primary():
    """A sentinel that was cut off names the old one for a while."""
    many = MultiServerUrl.read("rediss+sentinel://me:pw@a,b:7/main/3?sentinel_password=p%40ss")
    with pytest.raises(Demoted, match=r"names a server that is not a primary \(yet\): old:1"):
        answers(discover(many, "{x:0}", []), Unavailable("away"), [b"old", b"1"], "slave")
    asked, found = answers(discover(many, "{x:0}", []), [b"old", b"1"], "slave", [b"new", b"2"], "master")
    assert asked == [
        "rediss://:p%40ss@a:26379",
        "rediss://me:pw@old:1/3",
        "rediss://:p%40ss@b:7",
        "rediss://me:pw@new:2/3",
    ]
    assert found.urls == ["rediss://me:pw@new:2/3"]


def test_a_replica_is_refused_with_the_reason(group):
    group.settle()
    replica = next(node for node in group.nodes if node is not group.primary_of())
    transport = SyncTransport(Settings(redis_url=replica.url))
    with pytest.raises(Demoted, match="READONLY"):
        transport.run(verbs.init("{new:0}"))
    transport.close()
