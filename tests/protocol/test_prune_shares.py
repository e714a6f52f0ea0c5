"""prune: which of too many finished jobs are deleted. See also test_prune.py."""

import pytest

from sublet.protocol import keys


def store_finished(desk, state, queue, n, *, finished_at, kept_until):
    """Store `n` finished jobs of a queue, as the scripts do."""
    pipe = desk.raw.pipeline(transaction=False)
    for i in range(n):
        spec = f"{queue} t 1700000000000"
        fields = {"state": state, "spec": spec, "finished_at": finished_at + i}
        pipe.hset(keys.job(desk.base, f"{queue}{i}"), mapping=fields)
        pipe.zadd(keys.structure(desk.base, state), {f"{queue}{i}": kept_until + i})
    pipe.execute()


def kept(desk, state, queue):
    return [one for one in desk.members(state) if one.startswith(queue)]


@pytest.mark.parametrize("state", ["completed", "dead", "cancelled"])
async def test_a_flood_of_one_queue_does_not_displace_the_results_of_others(desk, state):
    """Its jobs are younger, and have the longer retention: by both, the others would go first."""
    await desk.operate_queue("configure", "*", None, f"{state}=500")
    store_finished(desk, state, "quiet", 50, finished_at=1_700_000_000_000, kept_until=8_000_000_000_000)
    store_finished(desk, state, "flood", 1450, finished_at=1_750_000_000_000, kept_until=9_000_000_000_000)
    while (await desk.prune(20))[1]:
        pass
    assert (len(kept(desk, state, "quiet")), len(desk.members(state))) == (50, 500)
    ages = sorted(int(one.removeprefix("flood")) for one in kept(desk, state, "flood"))
    assert sum(ages) / len(ages) > 1450 / 2 + 100, "of the flood, the oldest are deleted, about"


async def test_without_a_queue_of_more_than_half_the_oldest_are_deleted(desk):
    await desk.operate_queue("configure", "*", None, "dead=6")
    for n, queue in enumerate("abcdef"):
        long = {"kept_until": (9 - n) * 10**12, "finished_at": 1_700_000_000_000 + n}
        store_finished(desk, "dead", queue, 2, **long)
    while (await desk.prune(1))[1]:
        pass
    assert sum(one[0] in "def" for one in desk.members("dead")) >= 5, "about: some are drawn"


@pytest.mark.real_server
async def test_a_completion_above_the_number_kept_makes_room_for_the_next(desk):
    """The next ones delete nothing, and are plain."""
    pipe = desk.raw.pipeline(transaction=False)
    pipe.zadd(
        keys.structure(desk.base, "completed"), {f"old{i}": 9_000_000_000_000 + i for i in range(100_000)}
    )
    pipe.execute()
    await desk.submit(*(f"j{i}" for i in range(3)))
    leases = await desk.claim(3)
    for lease, n in zip(leases, (99_900, 99_901, 99_902), strict=True):
        assert await desk.complete(lease) == "completed"
        assert len(desk.members("completed")) == n
    assert desk.counter("forgotten_results") == 101
    assert {"j0", "j1", "j2"} <= set(desk.members("completed"))
