"""Each verb on a server whose memory is full: verbs that free memory work, verbs that need memory are refused and leave no trace.

The tests fill the memory of a server of their own, with submits until one is refused. Clients do not check
the server's memory (`memory=1`), as clients in other languages may not; only the last tests use clients that
do.
"""

import asyncio
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from sublet import App, Context, Options, SyncClient
from sublet.connection.settings import Settings
from sublet.connection.transport import SyncTransport, Transport
from sublet.errors import NoNamespace, OutOfMemory
from sublet.model import Beat, Completion, Failure, Lease, Note, Release, State, Submission
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import NAMES
from sublet.store.store import Store
from sublet.submission.admission import Admission
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support import tasks
from tests.support.verb_scenes import claim_id, elsewhere, plain, reply_of, running, stage, stored

pytestmark = pytest.mark.real_server
ROOM = 2 << 20
"""Bytes that a test may fill."""
BEYOND = 512 << 10
"""Bytes by which the server exceeds its limit then: more than the variation of clients' buffers."""
REFUSED = {"submit", "schedule", "fire", "publish", "note", "emit", "call"}
"""The verbs that only need memory; for `init` the namespace does not exist yet."""


@pytest.fixture(scope="module")
def own_url(new_server, backend) -> str:
    """A server of each kind, for these tests only."""
    return new_server(backend).url


@pytest.fixture
def place(own_url, place) -> Any:
    return place._replace(
        settings=Settings(redis_url=own_url, namespace=f"full-{uuid.uuid4().hex[:12]}", memory=1)
    )


class Filler:
    """Fills a server with jobs of a namespace of its own, until one more is refused."""

    def __init__(self, settings: Settings) -> None:
        self.settings = replace(settings, namespace=f"filler-{uuid.uuid4().hex[:12]}")
        self.raw = redis.Redis.from_url(settings.redis_url)

    def used(self) -> int:
        return self.raw.info("memory")["used_memory"]

    def has_shrunk_to(self, size: int) -> None:
        """Wait until it holds: a server frees the buffers of idle clients with a delay."""
        tasks.eventually(lambda: self.used() < size)

    def fill(self, size: int = 1000, room: int = ROOM) -> int:
        """Set the limit this much above the used memory, and submit jobs of this size until one is refused. Return their number."""
        payload, self.refusal = b'{"a":1}'.ljust(size), ""
        with SyncClient(self.settings) as client:
            client.submit_all(self.jobs(1, payload))
            taken = 1
            self.raw.config_set("maxmemory", self.used() + room)
            client.store.operations.admission = Admission(
                self.settings.memory
            )  # otherwise it would still assume no limit
            try:
                for _ in range(room // size):
                    taken += len(client.submit_all(self.jobs(20, payload)))
                raise AssertionError("a server with a limit took everything")
            except OutOfMemory as error:
                self.refusal = str(error)  # the loop ends when the condition holds
        return taken

    def most(self) -> int:
        """The limit."""
        return int(self.raw.config_get("maxmemory")["maxmemory"])

    def jobs(self, n: int, payload: bytes) -> list[Submission]:
        return [Submission(f"0-{uuid.uuid4().hex}", "q", "add", "", payload) for _ in range(n)]

    def overfill(self) -> None:
        """Exceed the limit, so that the server stays full."""
        script = "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1])"
        self.raw.eval(script, 1, f"{{{self.settings.namespace}:0}}:ballast", b"x" * BEYOND)
        assert self.used() > self.most() + BEYOND // 2

    def close(self) -> None:
        self.raw.config_set("maxmemory", 0)
        found = list(self.raw.scan_iter(match=f"{{{self.settings.namespace}:*", count=1000))
        for i in range(0, len(found), 1000):
            self.raw.unlink(*found[i : i + 1000])
        self.raw.close()


@pytest.fixture
def filler(place) -> Iterator[Filler]:
    filler = Filler(place.settings)
    yield filler
    filler.close()


@pytest.fixture
def fill(filler) -> Any:
    """Fills the server, and slightly more."""

    def full() -> None:
        filler.fill()
        filler.overfill()

    return full


async def test_an_existing_schedule_can_be_paused_on_a_full_server(desk, fill):
    await desk.put("sched", 0, occurrence=desk.now() + 60_000)
    fill()
    assert await desk.put("sched", 1, occurrence=None, paused=True) == "changed"
    with pytest.raises(OutOfMemory):
        await desk.put("another", 0, occurrence=desk.now() + 60_000)


@pytest.mark.parametrize("verb", [name for name in NAMES if name not in REFUSED])
async def test_a_verb_does_on_a_full_server_what_it_does_on_an_empty_one(desk, fill, verb):
    calm = elsewhere(desk)
    await calm.run(verbs.init(calm.base))
    since, other = desk.now(), await stage(verb, calm)
    expected, world = plain(await calm.run(other.call), calm, since), stored(calm, since)
    since, here = desk.now(), await stage(verb, desk)
    if verb == "init":
        desk.raw.hset(desk.base, mapping={"layout": "1", "partitions": "1"})
    fill()
    desk.raw.script_flush()  # so that the script is loaded before the server is full
    assert plain(await desk.run(here.call), desk, since) == expected
    assert stored(desk, since) == world
    assert plain(await reply_of(desk.run(here.call)), desk, since) == plain(
        other.again or await calm.run(other.call), calm, since
    )


async def test_a_running_job_can_be_cancelled_on_a_full_server(desk, fill):
    lease = await running(desk, "a")
    fill()
    assert await desk.operate("cancel", "a") == "requested"
    assert await desk.heartbeat(lease) == "CANCEL_REQUESTED"
    assert await desk.fail(lease, "cancelled", again=False) == "cancelled"


async def test_a_repeated_claim_flags_its_memo_on_a_full_server(desk, fill):
    lease = await running(desk, "a")
    fill()
    assert await desk.claim(claim_id=claim_id("a")) == [lease]
    assert desk.raw.get(keys.claim(desk.base, claim_id("a"))) == f"{lease.token} a +"
    assert await desk.release(lease, reason="the claimer left", code="abandoned") == "LEASE_LOST"
    assert await desk.complete(lease) == "completed"


async def test_an_empty_claim_sets_its_alarm_on_a_full_server(desk, fill):
    await desk.submit("soon", rules="delay=600000")
    fill()
    desk.elapse(598.1)
    claimed = await desk.ask()
    assert (claimed.leases, claimed.next_in < 2) == ([], True), "no other worker has this alarm"


@pytest.mark.parametrize("kind", [Transport, SyncTransport], ids=["async", "sync"])
@pytest.mark.parametrize("verb", sorted(REFUSED | {"init"}))
async def test_a_verb_that_needs_memory_is_refused_and_leaves_no_trace(desk, place, fill, verb, kind):
    here = await stage(verb, desk)
    fill()
    before, transport = desk.everything(), kind(place.settings)
    with pytest.raises(OutOfMemory, match=r"Redis is full \(maxmemory\) and stores no new job"):
        await (transport.run(here.call) if kind is Transport else asyncio.to_thread(transport.run, here.call))
    assert desk.everything() == before
    await transport.aclose() if kind is Transport else transport.close()


async def test_a_submit_that_stores_nothing_is_answered_on_a_full_server(desk, fill):
    """An existing job, an invalid rule and an empty call need no memory."""
    await desk.submit("a", rules="key=k")
    fill()
    before = desk.everything()
    jobs = [
        Submission("a", "q", "t", "", b""),
        Submission("b", "q", "t", "key=k", b""),
        Submission("c", "q", "t", "no=1", b""),
    ]
    same, key, wrong = await desk.run(verbs.submit(desk.base, jobs))
    assert (same.created, key.id, wrong.partition(":")[0]) == (False, "a", "INVALID rule no=1")
    assert await desk.run(verbs.submit(desk.base, [])) == []
    assert desk.everything() == before


async def test_whole_batches_end_on_a_full_server_with_any_outcome(desk, fill):
    """Results, progress and failures need memory; the attempts that they end free more."""
    for start in range(0, 300, 100):
        await desk.submit(*(f"j{i}" for i in range(start, start + 100)), payload=b"x" * 2000)
    fill()
    leases: list[Lease] = [lease for _ in range(3) for lease in await desk.claim(100)]
    assert len(leases) == 300
    ends = await desk.run(
        verbs.heartbeat(desk.base, [Beat(lease, b"p" * 1024) for lease in leases[:200]], lease=60)
    )
    assert all(isinstance(end, int) for end in ends)
    done = await desk.run(
        verbs.complete(desk.base, [Completion(lease, b"r" * 1000) for lease in leases[:50]])
    )
    done += await desk.run(
        verbs.complete(desk.base, [Completion(lease, b"r" * 1000) for lease in leases[50:100]])
    )
    failed = [
        await desk.fail(lease, "Boom", "m" * 1024, "d" * 4096, again=False) for lease in leases[100:150]
    ]
    worst = [Failure(lease, "Boom", "m" * 1024, "d" * 4096, False) for lease in leases[150:200]]
    failed += await desk.run(verbs.fail(desk.base, worst))
    back = await desk.run(verbs.release(desk.base, [Release(lease, 0, "later") for lease in leases[200:]]))
    assert (set(done), set(failed), set(back)) == ({"completed"}, {"dead"}, {"queued"})
    assert [len(desk.members(name)) for name in ("running", "completed", "dead", "queue:q")] == [
        0,
        100,
        100,
        100,
    ]


async def test_a_full_server_refuses_notes_that_need_more_memory_and_their_jobs_go_on(desk, fill):
    """Otherwise the memory that checkpoints take had no bound: each claim brings more leases."""
    await desk.submit("a", "b", payload=b"x" * 2000)
    a, b = await desk.claim(2)
    await desk.note(a, b"c" * 100, b"l" * 100)
    fill()
    assert await desk.note(a, b"d" * 100, b"m" * 99) == "noted", "a replacement needs no memory"
    before = desk.everything()
    for larger in (Note(a, b"d" * 101), Note(a, b"", b"m" * 100), Note(b, b"1")):
        with pytest.raises(OutOfMemory):
            await desk.run(verbs.note(desk.base, [Note(a, b"e"), larger]))
    assert desk.everything() == before
    assert (desk.job("a")["checkpoint"], await desk.complete(a)) == ("d" * 100, "completed")
    assert await desk.release(b) == "queued"


async def test_a_full_server_refuses_new_workers_and_renews_known_ones(desk, fill):
    await desk.enlist("w", "1")
    fill()
    before = desk.everything()
    with pytest.raises(OutOfMemory):
        await desk.enlist("new", about=b"x" * 4096)
    assert desk.everything() == before
    assert await desk.enlist("w", "1", about=b'{"completed": 1}') == "work"
    assert await desk.enlist("w", "2") == "work", "a restart under a known name"
    assert desk.enlisted() == ["w"]


async def test_a_worker_works_on_a_full_server_without_a_registration(filler, caplog):
    """Its checkpoints and logs are not stored then; its jobs end."""
    app = App()

    @app.task(queue="steps")
    async def step(ctx: Context) -> None:
        ctx.checkpoint("half-way")
        ctx.log("half-way")

    with SyncClient(filler.settings) as client:
        client.submit("step", options=Options(queue="steps"))
        filler.fill()
        filler.overfill()
        store = Store(filler.settings)
        async with asyncio.timeout(60):
            summary = await Worker(app, store, WorkerConfig(slots=2)).run(drain=True)
        assert summary.completed == 1
    assert "this worker works without a registration, and tries again: Redis is full" in caplog.text
    assert "cannot store checkpoints and logs: Redis is full" in caplog.text
    await store.aclose()


async def work_off(store: Store) -> int:
    """Claim and complete until the queue is empty. Return the number of jobs."""
    done = 0
    while leases := (await store.claim(worker="w", queues=["q"], n=100, lease=30)).leases:
        assert set(await store.settle([Completion(lease, b"1") for lease in leases])) == {"completed"}
        done += len(leases)
    return done


@pytest.mark.parametrize("size", [1000, 20_000], ids=["inline", "of_its_own"])
async def test_running_the_jobs_frees_memory_for_new_ones(filler, size):
    """For a payload behind the header, and for one in a field of its own."""
    taken = filler.fill(size)
    full, store = filler.used(), Store(filler.settings)
    assert await work_off(store) == taken > 20
    filler.has_shrunk_to(full - taken * size // 2)
    assert [job.created for job in await store.submit(filler.jobs(20, b"{}".ljust(size)))] == [True] * 20
    await store.aclose()


async def test_running_small_jobs_frees_memory_if_few_finished_jobs_are_kept(filler):
    """A completed job takes half a KiB: with smaller jobs, the number of kept jobs decides."""
    store = Store(filler.settings)
    await store.run(verbs.configure(store.operations.bases[0], "*", 0, "completed=100"))
    taken, full = filler.fill(100), filler.used()
    assert await work_off(store) == taken > 1000
    filler.has_shrunk_to(full - taken * 100)
    assert (await store.follow(store.operations.stats()))[0].states[State.COMPLETED] <= 200
    assert [job.created for job in await store.submit(filler.jobs(20, b"{}".ljust(100)))] == [True] * 20
    await store.aclose()


async def test_pruning_frees_the_remaining_memory(desk, filler):
    """The memory of a completed job is freed after its retention."""
    store = Store(filler.settings)
    taken, full = filler.fill(), filler.used()
    assert await work_off(store) == taken
    there = elsewhere(desk, store.operations.bases[0])
    there.elapse(86_401)
    while (await store.follow(store.operations.prune()))[1]:
        pass
    assert desk.raw.keys(f"{there.base}:job:*") == []
    filler.has_shrunk_to(full - taken * 1000)
    await store.aclose()


async def test_a_worker_empties_the_queues_of_a_full_server(filler):
    """A real worker, with its heartbeats and background calls; afterwards the server stores jobs again."""
    taken, store = filler.fill(), Store(filler.settings)
    filler.overfill()
    with SyncClient(filler.settings) as client:
        with pytest.raises(OutOfMemory, match=r"^Redis is full .*add workers, or raise maxmemory"):
            client.submit("add", {"a": 1})
        async with asyncio.timeout(60):
            summary = await Worker(tasks.app, store, WorkerConfig(queues=["q"], slots=20)).run(drain=True)
        assert (summary.completed, summary.failed, summary.released, summary.refused) == (taken, 0, 0, 0)
        filler.has_shrunk_to(filler.most())
        assert client.submit("add", {"a": 3}).created
        assert client.stats()[0].states[State.COMPLETED] == taken
    await store.aclose()


async def test_a_missing_namespace_is_reported_on_a_full_server(place, fill):
    """A worker that starts on a full server without a namespace gets the refusal of `init`."""
    fill()
    transport = Transport(place.settings)
    with pytest.raises(NoNamespace):
        await transport.run(
            verbs.claim("{nowhere:0}", claim_id=claim_id("a"), worker="w", lease=30, n=1, queues=["q"])
        )
    store = Store(place.settings)
    with pytest.raises(OutOfMemory):
        await store.claim(worker="w", queues=["q"], n=1, lease=30)
    await store.aclose()
    await transport.aclose()


async def test_the_end_of_a_job_claimed_before_the_server_was_full_is_published(desk, fill):
    lease = await running(desk, "a", "key=k")
    fill()
    await desk.watch("a")
    with desk.raw.pubsub(ignore_subscribe_messages=True) as ears:
        ears.subscribe(f"{desk.base}:ended")
        tasks.eventually(lambda: f"{desk.base}:ended" in [name for name in desk.raw.pubsub_channels()])
        assert await desk.complete(lease) == "completed"
        received: list[Any] = []
        tasks.eventually(lambda: bool(received.append(ears.get_message(timeout=0.1)) or received[-1]))
        assert received[-1]["data"] == "a"


# with a check of the memory first


@pytest.fixture
def watched(place) -> Iterator[Filler]:
    """A server whose submitters use three quarters of its memory at most, and its filler."""
    filler = Filler(replace(place.settings, memory=0.75))
    yield filler
    filler.close()


async def test_submitters_that_check_the_memory_never_fill_the_server(watched):
    """Running jobs go on, though they need memory: the rest is for them."""
    taken = watched.fill(room=watched.used())
    assert "(SUBLET_MEMORY)" in watched.refusal
    assert 0.6 * watched.most() < watched.used() < 0.85 * watched.most(), (
        "the server itself would have accepted more"
    )
    store = Store(watched.settings)
    async with asyncio.timeout(60):
        summary = await Worker(tasks.app, store, WorkerConfig(queues=["q"], slots=20)).run(drain=True)
    assert (summary.completed, summary.failed, summary.released, summary.refused) == (taken, 0, 0, 0)
    watched.has_shrunk_to(round(0.7 * watched.most()))
    assert [job.created for job in await store.submit(watched.jobs(20, b"{}"))] == [True] * 20, (
        "at once, not a second later"
    )
    await store.aclose()


@pytest.mark.parametrize("size", [100, 20_000, 200_000])
async def test_many_concurrent_submitters_stay_below_the_limit(watched, size):
    """Each client has read the memory at its own moment, and does not know the others."""
    payload = b"{}".ljust(size)
    watched.raw.config_set("maxmemory", watched.used() + (32 << 20))
    stores = [Store(watched.settings) for _ in range(8)]
    await stores[0].prepare()

    async def send(store: Store) -> str:
        for _ in range((32 << 20) // size):
            try:
                await store.submit(watched.jobs(min(200, 500_000 // size), payload))
            except OutOfMemory as error:
                return str(error)
        return ""

    output = await asyncio.gather(*map(send, stores))
    assert all("(SUBLET_MEMORY)" in words for words in output)
    assert watched.used() < 0.85 * watched.most()
    for store in stores:
        await store.aclose()
