"""A namespace of several partitions: each queue is in one, ids name it, and the store reads all."""

import asyncio
from dataclasses import replace

import pytest

from sublet.client.sync_client import SyncClient
from sublet.connection.transport import SyncTransport
from sublet.errors import Invalid, Unfit
from sublet.model import Beat, Completion, Failure, Release, Standing, State, Submission
from sublet.protocol import keys, verbs
from sublet.store.store import Store
from sublet.store.sync_store import SyncStore

QUEUES = [f"queue-{i}" for i in range(12)]


@pytest.fixture
async def wide(place, raw):
    store = Store(replace(place.settings, partitions=3), client=place.client(), blocking=place.client())
    yield store
    await store.aclose()


async def submit(store, n=1, rules=""):
    """`n` jobs in each queue; their ids."""
    jobs = [store.operations.submission("t", b"{}", queue, rules) for queue in QUEUES for _ in range(n)]
    return [submitted.id for submitted in await store.submit(jobs)]


async def test_each_partition_has_its_own_base(wide, raw):
    await wide.prepare()
    assert sorted(raw.keys(f"{{{wide.settings.namespace}:*")) == sorted(wide.operations.bases)
    assert len(wide.operations.bases) == 3


@pytest.mark.parametrize("number", [1, 2, 4])
async def test_another_partition_count_is_refused_before_anything_is_stored(wide, place, raw, number):
    await wide.prepare()
    forgetful = Store(
        replace(place.settings, partitions=number), client=place.client(), blocking=place.client()
    )
    with pytest.raises(Unfit, match=f"has 3 partitions, but SUBLET_PARTITIONS is {number}: set it to 3"):
        await submit(forgetful)
    await forgetful.aclose()
    assert sorted(raw.keys(f"{{{wide.settings.namespace}:*")) == sorted(wide.operations.bases)


async def test_a_queue_in_a_wrong_partition_does_not_block_correct_clients(wide, place):
    await wide.prepare()
    stray = next(
        queue for queue in QUEUES if wide.operations.base_of_queue(queue) != wide.operations.bases[0]
    )
    await wide.run(verbs.submit(wide.operations.bases[0], [Submission("0-stray", stray, "t", "", b"{}")]))
    other = Store(wide.settings, client=place.client(), blocking=place.client())
    assert len(await submit(other)) == len(QUEUES)
    await other.follow(other.operations.cancel("0-stray"))
    await other.aclose()


async def test_an_existing_partition_has_the_count_for_a_missing_one(wide, place, raw):
    await wide.prepare()
    raw.delete(wide.operations.bases[0])
    forgetful = Store(replace(place.settings, partitions=4), client=place.client(), blocking=place.client())
    with pytest.raises(Unfit, match="has 3 partitions"):
        await submit(forgetful)
    await forgetful.aclose()
    assert not raw.exists(wide.operations.bases[0])
    right = Store(wide.settings, client=place.client(), blocking=place.client())
    await submit(right)
    await right.aclose()
    assert raw.hget(wide.operations.bases[0], "partitions") == "3"


@pytest.mark.parametrize("number", [1, 2, 4])
async def test_a_tick_with_another_partition_count_fails(wide, place, number):
    await submit(wide, rules="delay=1")
    forgetful = Store(
        replace(place.settings, partitions=number), client=place.client(), blocking=place.client()
    )
    with pytest.raises(Unfit, match=f"has 3 partitions, but SUBLET_PARTITIONS is {number}"):
        await forgetful.follow_existing(forgetful.operations.reap("tick"))
    await forgetful.aclose()


@pytest.mark.parametrize("number", [1, 2])
async def test_waiting_for_a_result_with_another_partition_count_raises_unfit_instead_of_not_found(
    wide, place, number
):
    lost = next(job_id for job_id in await submit(wide) if int(job_id[0]) % number != int(job_id[0]))
    settings = replace(place.settings, partitions=number)
    with SyncClient(store=SyncStore(settings, SyncTransport(settings, place.sync_client()))) as forgetful:
        for _ in range(2):
            with pytest.raises(Unfit, match=f"has 3 partitions, but SUBLET_PARTITIONS is {number}"):
                await asyncio.to_thread(forgetful.result, lost, 0.1)


async def test_a_job_is_in_the_partition_of_its_queue_and_its_id_names_it(wide, raw):
    for queue, job_id in zip(QUEUES, await submit(wide), strict=True):
        base = wide.operations.base_of_queue(queue)
        assert raw.zrange(keys.queue(base, queue), 0, -1) == [job_id]
        assert wide.operations.base_of_job(job_id) == base
    assert all(raw.hlen(keys.queues(base)) for base in wide.operations.bases)


async def test_a_callers_id_is_prefixed_with_its_partition(wide):
    for queue in QUEUES:
        partition = keys.partition_of_queue(queue, 3)
        assert wide.operations.submission("t", b"", queue, "", "mine").id == f"{partition}-mine"
        assert wide.operations.submission("t", b"", queue, "", f"{partition}-mine").id == f"{partition}-mine"
        most = 64 - len(f"{partition}-")
        assert len(wide.operations.submission("t", b"", queue, "", "x" * most).id) == 64
        for wrong in ("", f"{partition}-", "x" * (most + 1)):
            with pytest.raises(Invalid, match=f"use 1 to {most} of"):
                wide.operations.submission("t", b"", queue, "", wrong)


async def test_the_answers_of_a_submit_are_in_its_order(wide):
    jobs = [wide.operations.submission("t", b"{}", queue, "", f"j{i}") for i, queue in enumerate(QUEUES)]
    assert [s.id for s in await wide.submit(jobs)] == [job.id for job in jobs]
    assert [s.created for s in await wide.submit(jobs[::-1])] == [False] * len(QUEUES)


async def test_a_worker_claims_from_all_partitions_and_settles_in_any_order(wide):
    ids = await submit(wide)
    claimed = await wide.claim(worker="w", queues=QUEUES, n=len(QUEUES), lease=30)
    leases = sorted(claimed.leases, key=lambda lease: lease.id[2:])
    assert sorted(lease.id for lease in leases) == sorted(ids)
    assert all(
        isinstance(answer, int)
        for answer in await wide.heartbeat([Beat(lease) for lease in leases], lease=60)
    )
    kinds = [
        lambda lease: Completion(lease, b"1"),
        lambda lease: Failure(lease, "Boom", again=False),
        Release,
    ]
    endings = [kinds[i % 3](lease) for i, lease in enumerate(leases)]
    assert await wide.settle(endings) == ["completed", "dead", "queued"] * 4
    for i, lease in enumerate(leases):
        assert (await wide.follow(wide.operations.get(lease.id))).state == ("completed", "dead", "queued")[
            i % 3
        ]


async def test_a_claim_takes_at_most_n_jobs(wide):
    await submit(wide, n=2)
    claimed = await wide.claim(worker="w", queues=QUEUES, n=5, lease=30)
    assert len(claimed.leases) == 5
    assert sum(stats.states[State.RUNNING] for stats in await wide.follow(wide.operations.stats())) == 5


async def test_a_repeated_claim_takes_nothing_where_the_first_found_nothing(wide):
    first, second = (
        QUEUES[0],
        next(
            q for q in QUEUES if wide.operations.base_of_queue(q) != wide.operations.base_of_queue(QUEUES[0])
        ),
    )

    async def claim(n=1):
        claimed = await wide.claim(worker="w", queues=[first, second], n=n, lease=30, claim_id="c" * 22)
        return [lease.id for lease in claimed.leases]

    (x,) = await wide.submit([wide.operations.submission("t", b"{}", second, "")])
    assert await claim() == [x.id]
    await wide.submit([wide.operations.submission("t", b"{}", queue, "") for queue in (first, second)])
    assert await claim() == await claim(n=5) == await claim(n=0) == [x.id]


async def test_a_claim_with_a_callers_id_takes_from_all_partitions(wide):
    ids = await submit(wide)
    for _ in range(2):
        claimed = await wide.claim(worker="w", queues=QUEUES, n=len(QUEUES), lease=30, claim_id="c" * 22)
        assert sorted(lease.id for lease in claimed.leases) == sorted(ids)


async def test_a_repeated_claim_is_not_released_in_any_partition(wide):
    """The repeat of a cancelled claim: its caller got its jobs from another partition."""
    ids = await submit(wide)
    how = {"worker": "w", "queues": QUEUES, "lease": 30, "claim_id": "c" * 22}
    leases = (await wide.claim(n=len(QUEUES), **how)).leases
    assert sorted(lease.id for lease in (await wide.claim(n=1, **how)).leases) == sorted(ids)
    await wide.give_back(leases, "the claimer left")
    assert set(await wide.settle([Completion(lease, b"1") for lease in leases])) == {"completed"}


async def test_operators_verbs_and_waiters_find_their_job(wide):
    ids = await submit(wide)
    for job_id in ids:
        assert await wide.follow(wide.operations.cancel(job_id)) == "cancelled"
        assert await wide.watch(job_id, wait=0) == Standing(State.CANCELLED, b"", "")


async def test_pages_go_through_all_partitions(wide):
    ids = await submit(wide, n=3)
    found, cursor = [], None
    while True:
        page = await wide.follow(wide.operations.list_jobs(limit=7, cursor=cursor))
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(found) == sorted(ids)
    assert [q.queued for q in await wide.follow(wide.operations.queues())] == [3] * len(QUEUES)


async def test_reap_and_prune_cover_all_partitions(wide):
    await submit(wide, rules="timeout=none")
    leases = (await wide.claim(worker="w", queues=QUEUES, n=100, lease=0)).leases
    assert len(leases) == len(QUEUES)
    assert (await wide.follow(wide.operations.reap("tick")))[:3] == (len(QUEUES), 0, False)
    assert await wide.follow(wide.operations.prune()) == (0, False)


async def test_an_id_with_an_unknown_partition_is_searched_in_an_existing_one(wide):
    assert wide.operations.base_of_job("7-x") in wide.operations.bases
    assert wide.operations.base_of_job("x") == wide.operations.bases[0]
    with pytest.raises(Invalid):
        wide.operations.base_of_job("no good")


@pytest.mark.parametrize(
    ("job_id", "partition"),
    [("2-x", 2), ("12-x", 12), ("x", 0), ("-x", 0), ("a-1", 0), ("2", 0), ("²-x", 0), ("123456-x", 0)],
)
def test_the_partition_is_the_number_before_the_dash(job_id, partition):
    assert keys.partition_of_id(job_id) == partition


def test_one_base_is_one_hash_tag():
    assert keys.base("ns", 3) == "{ns:3}"
    assert all(
        key.startswith("{ns:3}:")
        for key in (keys.job("{ns:3}", "x"), keys.alarm("{ns:3}"), keys.lock("{ns:3}", "q", "k"))
    )


async def test_a_claim_over_partitions_returns_the_earliest_next_time(place, raw):
    store = Store(replace(place.settings, partitions=2), client=place.client(), blocking=place.client())
    queues = sorted((f"q{i}" for i in range(8)), key=store.operations.base_of_queue)
    near = store.operations.submission("t", b"{}", queues[0], "delay=1500")
    await store.submit([near])
    assert store.operations.base_of_queue(queues[0]) != store.operations.base_of_queue(queues[-1])
    assert (await store.claim(worker="w", queues=[queues[0], queues[-1]], n=1, lease=30)).next_in < 2
    await store.aclose()
