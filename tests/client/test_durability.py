"""The wait of a submit: replicas whose stream is cut, a primary that dies, a disk that is not written."""

import asyncio
import contextlib
import time
import uuid
from dataclasses import replace
from textwrap import indent
from types import SimpleNamespace

import pytest

from sublet import App
from sublet.client.client import Client
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import DURABILITIES, Settings
from sublet.errors import Demoted, Forbidden, Invalid, NotDurable, OutOfMemory, QueueFull, Unconfirmed, Unfit
from sublet.model import Submission, Submitted
from sublet.options import Options, check_durability
from sublet.protocol import keys
from sublet.protocol.server_info import Memory
from sublet.store.store import Store
from sublet.submission.admission import Admission
from sublet.submission.durability import waits
from tests.conftest import REAL
from tests.faults.chaos.proxy import Fault, Proxy
from tests.support.pages import blocks
from tests.support.paths import ROOT
from tests.support.replicas import pair

BOUND = 3.0
"""Seconds in which an answer must come, where the server waits for 0.75: two of these, with a margin for a
busy machine."""


@pytest.fixture(scope="module", params=REAL)
def both(request, tmp_path_factory):
    """A primary and its replica."""
    with pair(tmp_path_factory.mktemp(request.param), request.param) as found:
        found.name = request.param
        yield found


@pytest.fixture
def here(both):
    """The settings of a fresh namespace there, with `replicated`. The stream is whole again afterwards."""
    yield replace(both.settings, namespace=uuid.uuid4().hex[:12], durability="replicated")
    both.heal()
    assert both.in_step(10_000)


@pytest.fixture(params=["async", "sync"])
def submit(request, here):
    """Submits over a fresh connection, from an event loop and without one."""

    async def send(jobs, settings=here):
        if request.param == "sync":
            with SyncClient(settings) as client:
                return await asyncio.to_thread(client.submit_all, jobs)
        store = Store(settings)
        try:
            return await store.submit(jobs)
        finally:
            await store.aclose()

    return send


def job(name, queue="q", durability="", rules=""):
    return Submission(f"0-{name}", queue, "t", rules, b"{}", durability)


def stored(server, settings, name):
    return server.exists(keys.job(keys.base(settings.namespace), f"0-{name}"))


# ── replicas ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_replicated_is_acknowledged_when_a_replica_has_it(both, here, submit):
    for name in ("a", "b", "c"):
        assert (await submit([job(name)]))[0].created
        assert stored(both.replica, here, name)


async def test_a_cut_stream_is_unconfirmed_in_bounded_time_and_a_repeat_is_acknowledged_once(
    both, here, submit
):
    await submit([job("before")])
    both.cut()
    for _ in range(2):  # the second one writes nothing itself
        begin = time.monotonic()
        with pytest.raises(
            Unconfirmed,
            match=r"only 0 of 1 replicas have it after 0\.75 s: .* connect a replica .* again, under the same id 0-a$",
        ):
            await submit([job("a")])
        assert time.monotonic() - begin < BOUND
    assert stored(both.primary, here, "a")
    assert not stored(both.replica, here, "a")
    both.heal()
    assert await submit([job("a")]) == [Submitted("0-a", False)]
    assert stored(both.replica, here, "a")
    assert both.primary.zrange(keys.queue(keys.base(here.namespace), "q"), 0, -1) == ["0-before", "0-a"]


async def test_the_reported_id_exists_where_another_job_has_the_key(both, here, submit):
    """A repeat under that id is that job, with and without its key."""
    await submit([job("first", rules="key=k")])
    both.cut()
    for jobs, words in (
        ([job("b", rules="key=k")], r"under its deduplication key's id 0-first$"),
        ([job("c", rules="key=k"), job("d")], r"under the same ids: 0-d and 1 more$"),
        ([job("first", rules="key=k")], r"under the same id 0-first$"),
    ):
        with pytest.raises(Unconfirmed, match=words):
            await submit(jobs)
    both.heal()
    for rules in ("key=k", ""):
        assert await submit([job("first", rules=rules)]) == [Submitted("0-first", False)]
    assert both.primary.zrange(keys.queue(keys.base(here.namespace), "q"), 0, -1) == ["0-first", "0-d"]


async def test_more_replicas_than_exist_is_unconfirmed(here, submit):
    with pytest.raises(Unconfirmed, match="only 1 of 2 replicas"):
        await submit([job("a")], replace(here, replicas=2))


@pytest.mark.parametrize("name", REAL)
async def test_a_failover_loses_no_replicated_job(name, tmp_path):
    """The stream is cut during the submits, and a moment later the primary is killed; the replica takes over."""
    with pair(tmp_path, name) as both:
        store = Store(replace(both.settings, namespace="n", durability="replicated"))
        acknowledged, unknown, plain = [], [], []

        async def produce(producer):
            for number in range(40):
                one = job(f"{producer}.{number}")
                while one.id not in acknowledged:
                    try:
                        await store.submit([one])
                        acknowledged.append(one.id)
                    except Unconfirmed:
                        if len(acknowledged) >= 100:
                            unknown.append(one.id)
                            return
                if len(acknowledged) == 100:
                    both.cut()

        await asyncio.gather(*map(produce, range(10)))
        for number in range(50):
            plain.append(job(f"plain.{number}", durability="none"))
            await store.submit([plain[-1]])
        both.lose_primary()
        base = keys.base("n")
        there = set(both.replica.zrange(keys.queue(base, "q"), 0, -1))
        assert len(acknowledged) >= 100
        assert len(unknown) == 10
        assert set(acknowledged) <= there
        assert (
            not {one.id for one in plain} & there
        )  # all fifty were acknowledged, and are lost: the test can fail
        await store.aclose()


@pytest.mark.parametrize("name", REAL)
async def test_a_demoted_primary_acknowledges_nothing(name, tmp_path):
    """A repeated submit needs no write, so that its script would run on a replica, too."""
    with pair(tmp_path, name) as both:
        settings = replace(both.settings, namespace="n", durability="replicated")
        store, client = Store(settings), SyncClient(settings)
        await store.submit([job("a")])
        await asyncio.to_thread(client.submit_all, [job("a")])
        both.primary.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(Demoted):
            await store.submit([job("a")])
        with pytest.raises(Demoted):
            await asyncio.to_thread(client.submit_all, [job("a")])
        await store.aclose()
        client.close()


async def test_an_ordinary_submit_is_not_delayed_by_a_wait(both, here):
    store = Store(here)
    await store.submit([job("first")])
    both.cut()
    waiting = asyncio.create_task(store.submit([job("sure")]))
    while not stored(both.primary, here, "sure"):
        await asyncio.sleep(0)
    for number in range(20):
        await store.submit([job(f"plain.{number}", durability="none")])
    assert not waiting.done()
    with pytest.raises(Unconfirmed):
        await waiting
    await store.aclose()


async def test_a_workflow_that_is_not_confirmed_is_stored_and_can_be_awaited(both, here):
    async with Client(here) as client:
        await client.store.submit([job("first")])
        both.cut()
        with pytest.raises(Unconfirmed):  # the end of the block raises
            async with client.workflow() as flow:
                handle = flow.add(job("only"))
        assert (await handle.get()).workflow == flow.id
        with pytest.raises(TimeoutError):
            await flow.result(timeout=0.05)


async def test_submits_of_one_turn_share_a_wait_and_later_ones_share_the_next(both, here):
    store = Store(here)
    await store.submit([job("first")])
    before = both.waits()
    await asyncio.gather(*(store.submit([job(f"a{n}")]) for n in range(100)))
    assert both.waits() - before == 1
    both.cut()
    first = [asyncio.create_task(store.submit([job(f"b{n}")])) for n in range(10)]
    while not stored(both.primary, here, "b9"):
        await asyncio.sleep(0)
    later = [asyncio.create_task(store.submit([job(f"c{n}")])) for n in range(10)]
    await asyncio.wait(first)
    both.heal()
    ends = await asyncio.gather(*first, *later, return_exceptions=True)
    assert [type(end) for end in ends[:10]] == [Unconfirmed] * 10
    assert [end[0].created for end in ends[10:]] == [True] * 10
    assert both.waits() - before == 3
    await store.aclose()


async def test_many_jobs_share_few_waits(both, here, submit):
    await submit([job("first")])
    before = both.waits()
    answers = await submit([job(f"{n}") for n in range(7000)])
    assert [answer.id for answer in answers] == [f"0-{n}" for n in range(7000)]
    assert both.waits() - before == 2
    assert stored(both.replica, here, "6999")


async def test_each_partition_is_confirmed(both, here, submit):
    wide = replace(here, partitions=4)
    queues = ["one", "two", "three", "four", "five"]
    bases = {keys.partition_of_queue(queue, 4) for queue in queues}
    assert len(bases) > 1
    jobs = [job(f"{n}", queue) for n, queue in enumerate(queues)]
    assert [answer.created for answer in await submit(jobs, wide)] == [True] * 5
    for one in jobs:
        base = keys.base(wide.namespace, keys.partition_of_queue(one.queue, 4))
        assert both.replica.exists(keys.job(base, one.id))
    both.cut()
    with pytest.raises(Unconfirmed):
        await submit(jobs, wide)


async def test_an_unavailable_partition_does_not_confirm_for_another(both, here):
    """A wait without a write before it returns at once."""
    wide = replace(here, partitions=2)
    queues = {keys.partition_of_queue(name, 2): name for name in "abcdefgh"}
    store = Store(wide)
    both.cut()
    await store.submit([job("a", queues[0], durability="none"), job("b", queues[1], durability="none")])
    both.primary.delete(keys.base(here.namespace, 1))
    ways = (store.submit([job("a", queues[0])]), store.submit([job("c", queues[1])]))
    assert [type(end) for end in await asyncio.gather(*ways, return_exceptions=True)] == [Unconfirmed] * 2
    await store.aclose()


async def test_a_full_server_confirms_stored_jobs(both, here, submit):
    """A repeated submit needs no memory, nor does its wait."""
    settings = replace(here, memory=1.0)
    await submit([job("a")], settings)
    both.primary.config_set("maxmemory", "1")
    try:
        assert await submit([job("a")], settings) == [Submitted("0-a", False)]
        both.cut()
        with pytest.raises(Unconfirmed):
            await submit([job("a")], settings)
    finally:
        both.primary.config_set("maxmemory", "0")


@pytest.mark.parametrize("way", ["async", "sync"])
async def test_of_many_scripts_a_full_server_refuses_those_that_need_memory(both, here, way):
    settings = replace(here, memory=1.0)
    store, client = Store(settings), SyncClient(settings)
    old, new = [job(f"a{n}") for n in range(200)], [job(f"b{n}") for n in range(200)]

    async def each(jobs):
        plan = store.operations.submit_each(jobs)
        return await (store.follow(plan) if way == "async" else asyncio.to_thread(client.store.follow, plan))

    await each(old)
    both.primary.config_set("maxmemory", "1")
    try:
        answers = await each([*old, *new])
    finally:
        both.primary.config_set("maxmemory", "0")
    assert answers[:200] == [Submitted(one.id, False) for one in old]
    assert [type(answer) for answer in answers[200:]] == [OutOfMemory] * 200
    await store.aclose()
    client.close()


async def test_many_scripts_that_share_a_wait_stop_at_the_limit(both, here, monkeypatch):
    """There is memory for the first few; the server itself would have to refuse the last."""
    store = Store(here)
    await store.submit([job("first")])
    run, queue = store._transport.run, keys.queue(keys.base(here.namespace), "q")

    async def answer(call):
        if ("INFO", "memory") not in call.commands:
            return await run(call)
        return Memory("noeviction", 89_000_000 + 251_000 * both.primary.zcard(queue), 100_000_000)

    monkeypatch.setattr(store._transport, "run", answer)
    store.operations.admission = Admission(0.9)
    jobs = [Submission(f"0-{n}", "q", "t", "", b"x" * 250_000, "") for n in range(60)]
    answers = await store.follow(store.operations.submit_each(jobs))
    assert [isinstance(answer, OutOfMemory) for answer in answers] == [False] * 4 + [True] * 56
    assert both.primary.zcard(queue) == 5
    await store.aclose()


async def test_a_refusal_does_not_wait_for_replicas(both, here, submit):
    with SyncClient(here) as client:
        await asyncio.to_thread(client.configure, "q", jobs=1)
    await submit([job("a")])
    both.cut()
    with pytest.raises(QueueFull):
        await submit([job("b")])


async def test_a_wait_creates_no_namespace(both, here):
    """Without a namespace, and without memory for one, the wait's own write must not leave half of one."""
    with SyncClient(here) as client:
        await asyncio.to_thread(client.submit_all, [job("a")])
        both.primary.flushall()
        both.primary.config_set("maxmemory-policy", "allkeys-lru")
        try:
            with pytest.raises(Unfit):
                await asyncio.to_thread(client.submit_all, [job("b")])
            assert not both.primary.exists(keys.base(here.namespace))
        finally:
            both.primary.config_set("maxmemory-policy", "noeviction")
        assert (await asyncio.to_thread(client.submit_all, [job("b")]))[0].created
    assert stored(both.replica, here, "b")


async def test_a_script_that_the_server_lost_is_loaded_again(both, here):
    store = Store(here)
    await store.submit([job("a")])
    both.primary.script_flush()
    assert all(answer.created for answer in await store.submit([job(f"b{n}") for n in range(450)]))
    both.primary.script_flush()
    with SyncClient(here) as client:
        assert all(
            answer.created
            for answer in await asyncio.to_thread(client.submit_all, [job(f"c{n}") for n in range(450)])
        )
    await store.aclose()


@pytest.mark.parametrize("fault", [Fault.LOSE_REQUEST, Fault.LOSE_REPLY, Fault.SILENCE, Fault.CUT])
@pytest.mark.parametrize("command", [b"EVALSHA", b"WAIT"])
async def test_a_wait_with_a_lost_answer_is_repeated(both, here, submit, fault, command):
    await submit([job("first")])
    with Proxy(here) as proxy:
        proxy.next(fault, lambda request: request.words[0].upper() == command)
        (answer,) = await submit([job("a")], replace(here, redis_url=proxy.settings.redis_url))
        assert answer.id == "0-a"
        assert proxy.sent(lambda request: request.words[0].upper() == b"WAIT") >= (
            2 if command == b"WAIT" else 1
        )
    assert stored(both.replica, here, "a")


async def test_a_wait_adds_its_time_to_the_timeout_of_a_call(both, here, submit):
    """The server waits for 0.75 s, and a call may take 1 s beside: 1.25 s without a reply is not a lost
    connection.
    """
    await submit([job("first")])
    with Proxy(here) as proxy:
        proxy.next(Fault.HOLD, lambda request: request.words[0].upper() == b"WAIT")
        waiting = asyncio.create_task(submit([job("a")], replace(here, redis_url=proxy.settings.redis_url)))
        await asyncio.wait([waiting], timeout=1.25)
        proxy.release()
        assert (await waiting)[0].created
        assert proxy.sent(lambda request: request.words[0].upper() == b"WAIT") == 1


async def test_a_cancelled_submit_cancels_no_other(both, here):
    store = Store(here)
    await store.submit([job("first")])
    both.cut()
    ways = [asyncio.create_task(store.submit([job(f"{n}")])) for n in range(3)]
    while not stored(both.primary, here, "2"):
        await asyncio.sleep(0)
    ways.append(asyncio.create_task(store.submit([job("later")])))
    await asyncio.sleep(0)
    ways[0].cancel()
    ways[3].cancel()
    both.heal()
    assert all(answers[0].created for answers in await asyncio.gather(*ways[1:3]))
    await store.aclose()
    assert ways[0].cancelled()
    assert ways[3].cancelled()
    assert not stored(both.primary, here, "later")  # it is cancelled, and was not yet sent


async def test_closing_lets_a_wait_end(both, here):
    store = Store(here)
    await store.submit([job("first")])
    both.cut()
    ways = [asyncio.create_task(store.submit([job("a")]))]
    while not stored(both.primary, here, "a"):
        await asyncio.sleep(0)
    ways.append(asyncio.create_task(store.submit([job("b")])))
    await asyncio.sleep(0)
    await store.aclose()
    before = both.waits()
    assert [type(end) for end in await asyncio.gather(*ways, return_exceptions=True)] == [Unconfirmed] * 2
    assert both.waits() == before  # nothing was sent after the end


# ── the disk ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A Valkey and its replica with append-only files."""
    if "valkey" not in REAL:
        pytest.skip("no Valkey here")
    with pair(tmp_path_factory.mktemp("kept"), "valkey", persistent=True) as found:
        yield found


@pytest.fixture
def writing(kept):
    """Delays the disk: a new append-only file is begun, which does not count before it contains all data."""

    def hold(held):
        if held:
            kept.primary.config_set("rdb-key-save-delay", 10_000_000)
            kept.primary.config_set("appendonly", "no")
            kept.primary.config_set("appendonly", "yes")
            return
        kept.primary.config_set("rdb-key-save-delay", 0)
        kept.primary.config_set("appendonly", "no")
        kept.primary.config_set("appendonly", "yes")

    kept.primary.config_set("appendfsync", "always")
    yield hold
    hold(False)


@pytest.mark.parametrize("way", ["async", "sync"])
async def test_fsync_is_acknowledged_after_the_write_to_the_file_and_otherwise_unconfirmed(
    kept, writing, way
):
    """The server's own report of its file is tested; the behaviour of a disk is not."""
    settings = replace(kept.settings, namespace=f"disk-{way}", durability="fsync")
    store, client = Store(settings), SyncClient(settings)

    async def submit(name):
        return await (
            store.submit([job(name)]) if way == "async" else asyncio.to_thread(client.submit_all, [job(name)])
        )

    assert (await submit("first"))[0].created
    writing(True)
    for _ in range(2):
        begin = time.monotonic()
        with pytest.raises(Unconfirmed, match=r"its disk does not have it after 0\.75 s"):
            await submit("a")
        assert time.monotonic() - begin < BOUND
    writing(False)
    for _ in range(20):  # until the new file is whole
        with contextlib.suppress(Unconfirmed):
            assert await submit("a") == [Submitted("0-a", False)]
            break
    else:
        raise AssertionError("never confirmed")
    await store.aclose()
    client.close()


@pytest.mark.parametrize("how", ["everysec", "no"])
async def test_a_server_with_everysec_is_unfit_for_fsync(kept, submit, writing, how):
    """Valkey 9.1 counts under `everysec` writes that are not yet on disk."""
    kept.primary.config_set("appendfsync", how)
    settings = replace(kept.settings, namespace="unfit", durability="fsync")
    with pytest.raises(
        NotDurable, match=r"durability fsync needs appendfsync always: .* run CONFIG SET appendfsync always$"
    ):
        await submit([job(f"a-{how}")], settings)
    assert not stored(kept.primary, settings, f"a-{how}")


async def test_a_server_is_asked_once_a_minute_and_again_after_a_failed_wait(kept, writing):
    def asked():
        return kept.primary.info("commandstats").get("cmdstat_command|info", {"calls": 0})["calls"]

    async def sure(name):
        with contextlib.suppress(Unconfirmed):  # the file of the test before may not be whole yet
            await store.submit([job(name)])

    settings = replace(kept.settings, namespace=uuid.uuid4().hex[:12], durability="fsync")
    store, before = Store(settings), asked()
    for name in "abc":
        await sure(name)
    assert asked() == before + 1
    kept.primary.config_set("appendfsync", "everysec")
    with pytest.raises(
        NotDurable, match=r"\. Redis has stored the submit all the same: .* under the same id 0-d$"
    ):
        await sure("d")
    with pytest.raises(NotDurable):
        await sure("e")
    assert (stored(kept.primary, settings, "d"), stored(kept.primary, settings, "e")) == (1, 0)
    kept.primary.config_set("appendfsync", "always")
    await sure("e")
    assert stored(kept.primary, settings, "e")
    await store.aclose()


async def test_a_user_without_the_right_to_read_appendfsync_stores_nothing(kept, writing, submit):
    kept.primary.execute_command("ACL", "SETUSER", "blind", "on", ">secret", "~*", "&*", "+@all", "-config")
    url = kept.settings.redis_url.replace("unix://", "unix://blind:secret@")
    settings = replace(kept.settings, redis_url=url, namespace=uuid.uuid4().hex[:12], durability="fsync")
    for name in "ab":
        with pytest.raises(Forbidden):
            await submit([job(name)], settings)
        assert not stored(kept.primary, settings, name)
    kept.primary.execute_command("ACL", "SETUSER", "blind", "+config", "-command")
    with contextlib.suppress(Unconfirmed):
        await submit([job("c")], settings)  # its own report decides whether it supports WAITAOF
    assert stored(kept.primary, settings, "c")


@pytest.mark.parametrize("denied", ["WAITAOF", "CONFIG GET"])
async def test_a_denied_waitaof_reports_the_ids_of_stored_jobs(kept, writing, denied):
    """The right is removed after the server was checked: the job is stored, without a confirmation."""
    kept.primary.execute_command("ACL", "SETUSER", "hasty", "reset", "on", ">secret", "~*", "&*", "+@all")
    url = kept.settings.redis_url.replace("unix://", "unix://hasty:secret@")
    settings = replace(kept.settings, redis_url=url, namespace=uuid.uuid4().hex[:12], durability="fsync")
    store = Store(settings)
    with contextlib.suppress(Unconfirmed):  # the file of the test before may not be whole yet
        await store.submit([job("a")])
    kept.primary.execute_command("ACL", "SETUSER", "hasty", f"-{denied.split()[0].lower()}")
    with pytest.raises(
        Unconfirmed, match=rf"NOPERM: {denied}\).*SUBLET_DURABILITY=fsync.* under the same id 0-b$"
    ):
        await store.submit([job("b")])
    assert stored(kept.primary, settings, "b")
    await store.aclose()


async def test_a_batch_waits_for_the_durability_of_all_its_jobs(kept, writing):
    store = Store(replace(kept.settings, namespace="both"))
    mixed = [job("a", durability="fsync"), job("b", durability="replicated"), job("c")]
    while True:  # until the file of the test before is whole
        before = kept.waits()
        with contextlib.suppress(Unconfirmed):
            await store.submit(mixed)
            break
    assert kept.waits() - before == 2
    kept.cut()
    with pytest.raises(Unconfirmed, match="replicas"):
        await store.submit(mixed)
    kept.heal()
    writing(True)
    with pytest.raises(Unconfirmed, match="disk"):
        await store.submit(mixed)
    await store.aclose()


async def test_a_server_without_a_file_or_without_waitaof_is_unfit(both, submit, here):
    both.primary.config_set("appendfsync", "everysec")
    words = (
        "needs appendonly yes and appendfsync always: "
        if both.name == "valkey"
        else "needs Redis 7.2 or Valkey"
    )
    with pytest.raises(
        NotDurable, match=f"{words}.*; run CONFIG SET appendonly yes, CONFIG SET appendfsync always$"
    ):
        await submit([job("a", durability="fsync")])
    assert not stored(both.primary, here, "a")


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_durability_is_set_by_a_task_or_by_one_submit(both, here):
    app = App(settings=replace(here, durability="none"))

    @app.task(durability="replicated")
    async def sure(n: int) -> None: ...

    @app.task
    async def plain(n: int) -> None: ...

    await plain.submit(n=0)
    both.cut()
    await plain.submit(n=1)
    await sure.options(durability="none").submit(n=1)
    for task in (sure, plain.options(durability="replicated")):
        with pytest.raises(Unconfirmed):
            await task.submit(n=2)
        with pytest.raises(Unconfirmed):
            await asyncio.to_thread(task.submit_sync, n=3)
    again = sure.job(n=4)
    with pytest.raises(Unconfirmed):
        await app.client.submit_all([again])
    both.heal()
    assert (await app.client.submit_all([again]))[0] == Submitted(again.id, False)
    await app.aclose()


def test_an_unknown_durability_is_refused_with_the_reason():
    for word in DURABILITIES:
        check_durability(word)
    assert not Options(durability="fsync").rules()  # the scripts do not get it
    with pytest.raises(Invalid, match="durability 'disk': use none, replicated, fsync"):
        Options(durability="disk").rules()
    with pytest.raises(Invalid, match="durability 'disk'"):
        App(settings=Settings()).task(name="t", run="thread", durability="disk")(lambda: None)
    with pytest.raises(
        Invalid, match="replicas=0: durability replicated needs at least 1: set SUBLET_REPLICAS"
    ):
        waits(Settings(durability="replicated", replicas=0), {"replicated"})
    assert waits(Settings(durability="replicated", timeout=0.0001), {"replicated"}) == (
        ("WAIT", 1, 1),
    )  # 0 would have no end
    assert waits(Settings(replicas=0), {"none"}) == ()


@pytest.mark.parametrize("vain", [0, 2, 3])
async def test_the_pages_snippet_retries_and_reports_a_failure(vain, monkeypatch):
    (_, text), *_ = blocks("python", (ROOT / "docs" / "guides" / "durability.md").read_text())
    loop = text[text.index("for pause in") :]
    reported, pauses = [], []

    async def submit_all(jobs):
        reported.append(jobs)
        if len(reported) <= vain:
            raise Unconfirmed("too few")

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    names = {"asyncio": asyncio, "Unconfirmed": Unconfirmed, "job": "it"}
    names["app"] = SimpleNamespace(client=SimpleNamespace(submit_all=submit_all))
    exec(f"async def go():\n{indent(loop, '    ')}", names)  # noqa: S102  # the page's own snippet
    with pytest.raises(Unconfirmed) if vain == 3 else contextlib.nullcontext():
        await names["go"]()
    assert (reported, pauses) == ([["it"]] * min(vain + 1, 3), [1, 5][:vain])


async def test_a_sandbox_has_neither_replicas_nor_a_disk():
    from sublet.testing import Sandbox

    app = App()

    @app.task(durability="fsync")
    async def sure() -> str:
        return "done"

    async with Sandbox(app):
        assert await sure.submit()
