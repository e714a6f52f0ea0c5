"""The pipelined connection: replies reach their callers, and every failure reaches all waiting calls."""

import asyncio
import contextlib
import os
import select
import socket
import threading

import pytest
from redis.exceptions import ConnectionError, InvalidResponse, ResponseError, TimeoutError

from sublet.client.client import Client
from sublet.connection.pipeline import POOL_EMPTY, ClientPipeline, Pipeline, SyncPipeline
from sublet.connection.settings import Settings, connect, connect_sync
from sublet.protocol import keys
from sublet.store.store import Store
from tests.faults.chaos.proxy import Fault, Proxy

pytestmark = pytest.mark.real_server


@pytest.fixture
def proxy(place):
    with Proxy(place.settings) as proxy:
        yield proxy


@pytest.fixture
async def make():
    """Makes pipelines; they are closed after the test."""
    made = []

    def line(settings, kind=Pipeline):
        client = connect(settings)
        made.append((kind(client.connection_pool if kind is Pipeline else client), client))
        return made[-1][0]

    yield line
    for each, client in made:
        await each.aclose(at_once=True)
        await client.aclose()


def ask(line, *commands):
    """Send commands at once; return a future for each reply."""
    futures = [asyncio.get_running_loop().create_future() for _ in commands]
    line.send([(command, future.set_result) for command, future in zip(commands, futures, strict=True)])
    return futures


async def answers(*futures):
    async with asyncio.timeout(20):
        return list(await asyncio.gather(*futures))


def is_echo(request):
    return request.words[0] == b"ECHO"


@pytest.mark.parametrize("kind", [Pipeline, ClientPipeline])
async def test_each_reply_reaches_its_caller(place, make, kind):
    """A thousand, in batches of all sizes, before and after the connection is open; an error affects only
    its own call.
    """
    line, futures, wanted = make(place.settings, kind), [], []
    for size in range(1, 45):
        batch = [("ECHO", f"{size}-{i}") for i in range(size)]
        futures += ask(line, *batch, ("ECHO",))
        wanted += [words[1].encode() for words in batch] + [ResponseError]
        if size % 10 == 0:
            await asyncio.sleep(0.001)
    found = await answers(*futures)
    assert [type(reply) if isinstance(reply, ResponseError) else reply for reply in found] == wanted


async def test_an_unencodable_argument_fails_only_its_own_call(place, make):
    line = make(place.settings)
    await answers(*ask(line, ("PING",)))
    one, other, third = await answers(*ask(line, ("ECHO", "a"), ("ECHO", object()), ("ECHO", "c")))
    assert (one, type(other), third) == (b"a", TypeError, b"c")


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.LOSE_REPLY, Fault.LOSE_REQUEST])
async def test_a_broken_pipeline_fails_all_waiting_calls_and_reconnects(proxy, make, fault):
    line = make(proxy.settings)
    for _ in range(3):
        proxy.next(fault, is_echo)
        first, second = ask(line, ("ECHO", "a"), ("ECHO", "b"))
        third = ask(line, ("ECHO", "c"))
        lost = await answers(first, second, *third)
        assert [type(reply) for reply in lost[:2]] == [ConnectionError] * 2
        assert await answers(*ask(line, ("ECHO", "d"))) == [b"d"], (
            "the late end of the old connection does not break the new one"
        )


async def test_a_pipeline_without_replies_times_out(proxy, make):
    line = make(Settings(redis_url=proxy.settings.redis_url, timeout=0.2))
    await answers(*ask(line, ("PING",)))
    proxy.next(Fault.SILENCE, is_echo)
    assert [type(reply) for reply in await answers(*ask(line, ("ECHO", "a"), ("PING",)))] == [
        TimeoutError
    ] * 2
    assert await answers(*ask(line, ("ECHO", "b"))) == [b"b"]


async def test_an_idle_pipeline_does_not_time_out(place, make):
    line = make(Settings(redis_url=place.settings.redis_url, timeout=0.05))
    for _ in range(3):
        assert await answers(*ask(line, ("ECHO", "a"))) == [b"a"]
        await asyncio.sleep(0.12)
    assert line._transport is not None, "the connection was kept"


async def test_an_unexpected_reply_closes_the_pipeline(make):
    """Reading on would give each caller the reply of another."""

    def serve(listener):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    while b"ECHO" not in client.recv(4096):
                        client.sendall(b"+OK\r\n+OK\r\n")
                    client.sendall(b"$1\r\na\r\n$1\r\nb\r\n")
                    client.recv(4096)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        line = make(Settings(redis_url=f"redis://127.0.0.1:{listener.getsockname()[1]}"))
        (reply,) = await answers(*ask(line, ("ECHO", "a")))
        assert reply in (b"a", b"OK") or isinstance(reply, InvalidResponse)
        assert line._transport is None


async def test_a_pipeline_closes_after_the_outstanding_replies(proxy, make):
    line = make(proxy.settings)
    proxy.next(Fault.HOLD, is_echo)
    (reply,) = ask(line, ("ECHO", "a"))
    closing = asyncio.create_task(line.aclose())
    await asyncio.sleep(0.05)
    assert not closing.done()
    proxy.release()
    assert await answers(reply, closing) == [b"a", None]


@pytest.mark.parametrize("kind", [Pipeline, ClientPipeline])
async def test_a_pipeline_closes_at_once_on_request(place, make, kind):
    line = make(place.settings, kind)
    (reply,) = ask(line, ("BLPOP", f"{{{place.settings.namespace}:0}}:none", 10))
    async with asyncio.timeout(5):
        await line.aclose(at_once=True)
    assert not reply.done() or isinstance(reply.result(), ConnectionError)


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4, 5, 6, 8, 12])
@pytest.mark.parametrize("given", [True, False])
async def test_a_claim_cancelled_at_any_moment_releases_its_jobs(place, raw, base, turns, given):
    store = Store(place.settings, client=connect(place.settings) if given else None)
    client = Client(store=store)
    await store.claim(
        worker="w", queues=["default"], n=1, lease=1
    )  # the server has the script: the next claim takes effect
    handles = [await client.submit("t") for _ in range(3)]
    claiming = asyncio.create_task(store.claim(worker="w", queues=["default"], n=2, lease=600))
    for _ in range(turns):
        await asyncio.sleep(0)
    claiming.cancel()
    await asyncio.wait([claiming], timeout=10)
    await store.aclose()  # which waits until they are released
    jobs = [raw.hmget(keys.job(base, handle.id), "state", "tries_left") for handle in handles]
    taken = 0 if claiming.cancelled() else 2
    assert [state for state, _ in jobs] == ["running"] * taken + ["queued"] * (3 - taken)
    assert all(tries in (None, "3") for state, tries in jobs if state == "queued"), (
        "the attempt does not count"
    )


# without an event loop


@pytest.fixture
def connections(place):
    client = connect_sync(place.settings)
    yield SyncPipeline(client.connection_pool)
    client.close()


def test_a_connection_closed_by_the_server_is_replaced_before_use(connections, raw):
    assert connections.execute(("ECHO", "a")) == b"a"
    (first,) = connections._idle
    peer = int(connections.execute(("CLIENT", "ID")))
    raw.client_kill_filter(_id=peer)
    assert select.select([first._sock], [], [], 10)[0], "the end of the connection has arrived"
    assert connections.execute(("ECHO", "b")) == b"b"
    assert connections._idle == [first]


def test_an_unread_reply_is_not_returned_to_the_next_call(connections, monkeypatch):
    """An interrupt may come between a command and its reply."""
    assert connections.execute(("ECHO", "a")) == b"a"
    (connection,) = connections._idle
    with monkeypatch.context() as patch:
        patch.setattr(connection, "read_response", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            connections.execute(("BLPOP", "never-pushed", 1))  # its reply is still to come at the next call
    assert connections.execute(("ECHO", "b")) == b"b"
    assert connections.execute(("ECHO", "c")) == b"c"


def test_an_interrupt_during_a_connection_check_leaks_no_connection(connections, monkeypatch):
    assert connections.execute(("ECHO", "a")) == b"a"
    (connection,) = connections._idle
    with monkeypatch.context() as patch:
        patch.setattr(connection, "can_read", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            connections.execute(("ECHO", "b"))
    assert connections._idle == [connection]
    assert connections.execute(("ECHO", "c")) == b"c"
    assert connections._permits._value == connections._pool.max_connections


def test_other_threads_detect_a_fork_until_all_is_replaced(connections, monkeypatch):
    seen = []
    make = threading.Semaphore
    connections._process = -1
    monkeypatch.setattr(
        "sublet.connection.pipeline.threading.Semaphore",
        lambda n: seen.append((connections._process, connections._idle)) or make(n),
    )
    assert connections.execute(("ECHO", "a")) == b"a"
    assert [process for process, _ in seen] == [-1]
    assert connections._process == os.getpid()


def test_a_forked_process_does_not_use_its_parents_connections(connections):
    assert connections.execute(("ECHO", "a")) == b"a"
    (parents,), connections._process = connections._idle, -1
    assert connections.execute(("ECHO", "b")) == b"b"
    assert len(connections._idle) == 1
    assert connections._idle[0] is not parents


def test_each_thread_gets_its_own_answers_over_a_limited_pool(connections, raw):
    """Twice as many threads as there may be connections."""
    most = connections._pool.max_connections
    start, found = threading.Barrier(2 * most), {}

    def work(number):
        start.wait(10)
        found[number] = [connections.execute(("ECHO", f"{number}-{i}")).decode() for i in range(20)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2 * most)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == {number: [f"{number}-{i}" for i in range(20)] for number in range(2 * most)}
    assert 0 < len(connections._idle) <= most


def test_a_wait_for_a_free_connection_times_out(connections):
    connections._permits, connections._pool.timeout = threading.Semaphore(0), 0.01
    with pytest.raises(ConnectionError, match=POOL_EMPTY):
        connections.execute(("ECHO", "a"))
