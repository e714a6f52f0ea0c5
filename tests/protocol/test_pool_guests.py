"""Guests of a pool: workers with an owner (a token) that no open summons brought."""

import uuid

from sublet.operations.pools import Elsewhere

TEN = "queues=q invoker=http slots=10"


async def guests(desk, n, settings=TEN, **how):
    """A pool with so many guests."""
    await desk.pool("p", 0, settings)
    for i in range(n):
        assert await desk.join(f"g{i}", owner="fleet", **how) == "work"


async def jobs(desk, n, **how):
    await desk.submit(*(f"j{i}" for i in range(n)), **how)


async def crew(desk, **how):
    return (await desk.summon(**how)).sum["crew"]


async def test_guests_that_do_nothing_do_not_count(desk):
    await guests(desk, 20)
    await jobs(desk, 100)
    found = (await desk.summon()).sum
    assert (found["crew"], found["wanted"], found["owed"]) == (0, 2, 2)
    assert await crew(desk) == 0


async def test_guests_count_as_far_as_jobs_run(desk):
    await guests(desk, 3)
    await jobs(desk, 100)
    for more, counted in ((1, 1), (9, 1), (1, 2), (9, 2), (10, 3), (10, 3)):
        await desk.claim(more)
        assert await crew(desk) == counted
    desk.elapse(13)
    assert await crew(desk) == 0, "they are silent"


async def test_jobs_that_run_in_other_partitions_show_guests(desk):
    await guests(desk, 3, "queues=q,r invoker=http slots=10")
    assert await crew(desk, elsewhere=[Elsewhere("r", 0, 15, 0, 0, 0)]) == 2


async def test_members_and_guests_share_the_running_jobs(desk):
    await guests(desk, 5)
    for i in range(2):
        await desk.join(f"m{i}")
    await jobs(desk, 60)
    assert await crew(desk) == 2
    await desk.claim(20)
    assert await crew(desk) == 2, "two workers may run these"
    await desk.claim(20)
    assert await crew(desk) == 4


async def test_a_summoned_worker_with_a_token_counts_at_once_and_later(desk):
    await desk.pool("p", 0, TEN)
    await jobs(desk, 1)
    summons = uuid.uuid4().hex
    assert (await desk.summon(1, summons=summons)).given == 1
    for seconds in (0, 5, 5):
        desk.elapse(seconds)
        assert await desk.join("w", f"{summons}.1", owner="fleet") == "work"
        assert await crew(desk) == 1
    desk.elapse(20)
    assert await crew(desk) == 0
    await desk.join("w", f"{summons}.1", owner="fleet")
    assert await crew(desk) == 1, "a worker that was frozen is a member still"


async def test_a_forged_summons_takes_no_place(desk):
    await desk.pool("p", 0, TEN)
    await jobs(desk, 100)
    summons = uuid.uuid4().hex
    assert (await desk.summon(5, summons=summons)).given == 2
    for i in range(20):
        await desk.join(f"forged{i}", f"{uuid.uuid4().hex}.1", owner="fleet")
    found = (await desk.summon()).sum
    assert (found["crew"], found["summoned"]) == (0, 2)
    for i in (1, 2):
        assert await desk.join(f"w{i}", f"{summons}.{i}", owner="fleet") == "work"
    assert await crew(desk) == 2


async def test_idle_guests_leave(desk):
    await guests(desk, 3, "queues=q invoker=http min=1 linger=0")
    words = [(await desk.summon(leaver=f"g{i}")).word for i in range(3)]
    assert words == ["leave", "leave", "stay"]


async def test_members_do_not_leave_because_of_guests(desk):
    await guests(desk, 50, "queues=q invoker=http min=2 linger=0")
    for i in range(2):
        await desk.join(f"m{i}")
    assert [(await desk.summon(leaver=f"m{i}")).word for i in range(2)] == ["stay", "stay"]


async def test_all_count_in_a_pool_whose_workers_another_system_starts(desk):
    await guests(desk, 3, "queues=q invoker=none slots=10")
    assert await crew(desk) == 3
    await desk.pool("p", 1, TEN)
    for i in range(3):
        await desk.join(f"g{i}", owner="fleet")
    assert await crew(desk) == 0, "from the next heartbeat on, they are guests"


async def test_silent_guests_are_removed_after_a_day(desk):
    await guests(desk, 3)
    desk.elapse(25 * 3600)
    await desk.join("g0", owner="fleet")
    assert desk.raw.zrange(f"{desk.base}:crew:p", 0, -1) == ["g0"]
