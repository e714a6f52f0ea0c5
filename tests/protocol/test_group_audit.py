"""Flow control at its size: 20,000 running jobs and 100,000 waiting groups, changed by hand; and the workers that a pool is owed."""

import pytest

from sublet.connection.transport import follow
from sublet.model import Submission
from sublet.operations import groups, statistics
from sublet.protocol import keys, verbs

RUNNING, WAITING, CHANGED = 20_000, 100_000, 300
WITHIN = 60.0
"""Seconds in which the audit mends changes by hand."""
HOLD_MS = 5.0
"""The server's CPU time of a claim, on average."""


async def submit(desk, names, tenants):
    """Submit a job of each group."""
    jobs = [
        Submission(name, "q", "t", f"group={group}", b"{}")
        for name, group in zip(names, tenants, strict=True)
    ]
    for i in range(0, len(jobs), 200):
        await desk.run(verbs.submit(desk.base, jobs[i : i + 200]))


def skip(desk, seconds):
    """Let time pass for the audit alone."""
    flow = keys.flow(desk.base, "q")
    due, rest = desk.raw.hget(flow, "cursors").split(" ", 1)
    desk.raw.hset(flow, "cursors", f"{int(due) - round(seconds * 1000)} {rest}")


def cpu_ms(raw):
    """The CPU time of the server's main thread."""
    info = raw.info("cpu")
    return 1000 * (info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"])


async def mend(desk, is_mended):
    """Claim as an idle worker does, when it is told to."""
    passed, spent = 0.0, []
    while not is_mended():
        before = cpu_ms(desk.raw)
        next_in = (await desk.ask(0)).next_in
        spent.append(cpu_ms(desk.raw) - before)
        skip(desk, next_in)
        passed += next_in
        assert passed <= WITHIN
    assert sum(spent) / len(spent) < HOLD_MS
    print(
        f"mended after {passed:.1f} s, {len(spent)} claims, {sum(spent) / len(spent):.2f} ms, at most {max(spent):.2f} ms"
    )


@pytest.fixture
async def large(desk):
    """A queue with as many running jobs as it may have, and many waiting groups."""
    await desk.operate_queue("configure", "q", None, f"concurrency={RUNNING} group_concurrency=10")
    await submit(desk, [f"r{n}" for n in range(RUNNING)], [f"r{n // 10}" for n in range(RUNNING)])
    for _ in range(RUNNING // 100):
        assert len(await desk.claim(100, lease=3600)) == 100
    await submit(desk, [f"w{n}" for n in range(WAITING)], [f"g{n}" for n in range(WAITING)])
    assert await desk.claim(100) == []
    return desk


@pytest.mark.timeout(400)
@pytest.mark.real_server
async def test_changes_by_hand_in_a_large_queue_are_mended_within_a_minute(large):
    desk, raw = large, large.raw
    places, turns = keys.places(desk.base, "q"), keys.turns(desk.base, "q")
    before, waiting = raw.hgetall(places), raw.zcard(turns)
    assert (len(before), waiting) == (RUNNING, WAITING)
    lost = sorted(before)[:CHANGED]
    raw.hset(places, mapping={f"ghost{n}": f"r{n}" for n in range(CHANGED)})
    for n in range(CHANGED):
        raw.sadd(keys.group_places(desk.base, "q", f"r{n}"), f"ghost{n}")
    await mend(desk, lambda: raw.hlen(places) == RUNNING)
    assert raw.scard(keys.group_places(desk.base, "q", "r0")) == 10

    raw.hdel(places, *lost)
    await mend(desk, lambda: raw.hlen(places) == RUNNING)
    raw.zrem(turns, *(f"g{n * 300}" for n in range(CHANGED)))
    await mend(desk, lambda: raw.zcard(turns) == WAITING)
    raw.delete(turns)
    await mend(desk, lambda: raw.zcard(turns) >= WAITING // 4)
    assert raw.hgetall(places) == before


@pytest.mark.timeout(400)
@pytest.mark.real_server
async def test_a_lost_and_an_added_place_are_both_mended_within_a_minute(large):
    """The numbers of places and of running jobs are equal then."""
    desk, raw, places = large, large.raw, keys.places(large.base, "q")
    before = raw.hgetall(places)
    raw.hdel(places, "r7")
    raw.hset(places, "ghost", "r0")
    await mend(desk, lambda: raw.hexists(places, "r7") and not raw.hexists(places, "ghost"))
    assert raw.hgetall(places) == before


@pytest.mark.real_server
async def test_a_place_in_the_set_of_a_group_alone_is_mended(desk):
    await desk.operate_queue("configure", "q", None, "group_concurrency=2")
    await submit(desk, ["a0", "a1", "a2", "b0"], ["a", "a", "a", "b"])
    own, others = (keys.group_places(desk.base, "q", group) for group in "ab")
    desk.raw.sadd(own, "ghost")
    assert [lease.id for lease in await desk.claim(9)] == ["a0", "b0"]
    desk.raw.sadd(own, "b0")
    desk.raw.srem(others, "b0")
    skip(desk, 1)
    assert await desk.claim(9) == [], "a seems to run two jobs"
    assert (desk.raw.smembers(own), desk.raw.smembers(others)) == ({"a0"}, {"b0"})
    assert [lease.id for lease in await desk.claim(9)] == ["a1"]


@pytest.mark.real_server
async def test_a_large_queue_asks_one_worker_to_claim_again_soon(desk):
    await desk.operate_queue("configure", "q", None, "concurrency=1")
    await submit(desk, ["first"], ["a"])
    assert (await desk.ask(0)).next_in == 2, "a small one costs no claim"
    await submit(desk, ["a", *(f"w{n}" for n in range(20_000))], ["a", *(f"g{n}" for n in range(20_000))])
    await desk.claim()
    skip(desk, 2)
    assert 0.5 < (await desk.ask()).next_in < 0.9
    assert (await desk.ask(worker="another")).next_in == 2, "the audit needs one worker"


@pytest.mark.timeout(400)
@pytest.mark.real_server
async def test_a_hundred_thousand_jobs_of_one_group_call_for_as_many_workers_as_may_run(desk):
    """By `summon`, and by the number that autoscalers such as KEDA read."""
    await desk.pool("p", 0, "queues=q invoker=none slots=10 max=100")
    await desk.operate_queue("configure", "q", None, "group_concurrency=5")
    await submit(desk, [f"w{n}" for n in range(WAITING)], ["tenant"] * WAITING)

    async def ready():
        (queue,) = await follow(
            desk.run, groups.with_held(desk.base, await follow(desk.run, statistics.queues(desk.base, ["q"])))
        )
        looked = (await desk.summon()).sum
        return queue.ready, looked["ready"], looked["wanted"]

    assert await ready() == (5, 5, 1)
    leases = await desk.claim(10)
    assert len(leases) == 5
    assert (await ready())[:2] == (0, 0)
    await desk.complete(leases[0])
    assert (await ready())[:2] == (1, 1)
