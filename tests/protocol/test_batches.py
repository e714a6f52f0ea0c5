"""Many items are split into calls of bounded size, and the answers have the order of the items."""

from sublet.model import Beat, Completion, Failure, Release, Submission
from sublet.protocol import verbs
from sublet.submission.batches import batches


def test_a_call_takes_200_items_and_512_kib():
    assert [len(batch) for batch in verbs.batches(range(450), lambda _: 0)] == [200, 200, 50]
    assert [len(batch) for batch in verbs.batches(range(5), lambda _: 200 * 1024)] == [2, 2, 1]
    assert list(verbs.batches([1, 10**9, 2], lambda size: size)) == [[1], [10**9], [2]]
    assert list(verbs.batches([], len)) == []


def sizes(count, queues=1, rules="", payload=b"{}"):
    jobs = [Submission(f"j{n}", f"q{n % queues}", "t", rules, payload) for n in range(count)]
    found = list(batches(jobs))
    assert [job for batch in found for job in batch] == jobs
    assert [list(batches(batch)) for batch in found] == [[batch] for batch in found], "each is one call"
    return [len(batch) for batch in found]


def test_a_submit_takes_fewer_jobs_of_many_queues_or_with_tags_or_groups():
    assert sizes(450) == [200, 200, 50]
    assert sizes(450, rules="priority=3 key=k") == [200, 200, 50]
    assert sizes(5, payload=b"x" * 200 * 1024) == [2, 2, 1]
    assert sizes(400, queues=2)[0] == 196
    assert sizes(200, queues=200) == [45, 45, 45, 45, 20]
    assert sizes(200, rules="tags=a,b,c,d,e") == [57, 57, 57, 29]
    assert sizes(200, rules="priority=1 tags=a keep=1") == [133, 67]
    assert sizes(200, rules="priority=1 group=acme") == [100, 100]
    assert sizes(0) == []


async def submit(store, n, queue="q"):
    jobs = [store.operations.submission("t", b"{}", queue, "") for _ in range(n)]
    return [submitted.id for submitted in await store.submit(jobs)]


async def claim(store, n, queue="q"):
    leases = []
    while len(leases) < n:
        leases += (await store.claim(worker="w", queues=[queue], n=100, lease=30)).leases
    return leases


async def test_replies_have_the_order_of_the_outcomes(store):
    await submit(store, 450)
    leases = await claim(store, 450)
    kinds = [
        lambda lease: Completion(lease, b"1"),
        lambda lease: Failure(lease, "Boom"),
        lambda lease: Release(lease),
    ]
    endings = [kinds[i % 3](lease) for i, lease in enumerate(leases)]
    endings[7] = Completion(leases[7]._replace(token="1.stale"), b"1")
    words = [answer.split()[0] for answer in await store.settle(endings)]
    expected = [("completed", "scheduled", "queued")[i % 3] for i in range(450)]
    expected[7] = "LEASE_LOST"
    assert words == expected


async def test_large_results_are_split_into_several_calls(store):
    await submit(store, 5)
    leases, result = await claim(store, 5), b'"' + b"x" * 200_000 + b'"'
    sent = []
    run = store.run

    async def counted(call):
        sent.append(len(call.commands[0]))
        return await run(call)

    store.run = counted
    assert await store.settle([Completion(lease, result) for lease in leases]) == ["completed"] * 5
    assert len(sent) == 3
    assert (await store.follow(store.operations.get(leases[4].id))).result == "x" * 200_000


async def test_any_number_of_heartbeats_can_be_sent(store):
    await submit(store, 250)
    leases = await claim(store, 250)
    answers = await store.heartbeat([Beat(lease) for lease in leases], lease=60)
    assert len(answers) == 250
    assert all(isinstance(answer, int) for answer in answers)


async def test_an_id_listed_twice_is_created_once(store):
    job = store.operations.submission("t", b"{}", "q", "")
    assert [submitted.created for submitted in await store.submit([job, job])] == [True, False]
