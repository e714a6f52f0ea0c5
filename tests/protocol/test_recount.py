"""recount: the backlog of each queue equals its unfinished jobs, also while jobs come and go."""

import asyncio

import pytest

from sublet.connection.transport import follow
from sublet.errors import Changed, Invalid, TooMany
from sublet.operations.consistency.recount import recount
from sublet.protocol import keys, reads, verbs


def stamp(desk):
    found = desk.raw.xrevrange(keys.events(desk.base), count=1)
    return found[0][0] if found else ""


async def send(desk, *queues, how="mend", last=None):
    return await desk.run(verbs.recount(desk.base, how, stamp(desk) if last is None else last, queues))


def numbers(desk):
    return desk.raw.hgetall(keys.backlog(desk.base))


async def several(desk):
    """Jobs in each unfinished state, with small and large payloads, in two queues. Returns the right backlog."""
    await desk.submit("a", "b", payload=b"x" * 50)
    await desk.submit("c", payload=b"x" * 2000, rules="delay=60000")
    await desk.submit("d", queue="r", payload=b"xy")
    await desk.running("e", "priority=9")
    await desk.complete(await desk.running("f", "priority=9"))
    return numbers(desk)


async def test_a_correct_count_is_left_unchanged(desk):
    await several(desk)
    before = desk.everything()
    found = await follow(desk.run, recount(desk.base))
    assert (found.jobs, found.found, found.busy) == (5, [], False)
    assert desk.everything() == before


@pytest.mark.parametrize("wrong", [{"q jobs": "9"}, {"q bytes": "1"}, {"q running": "0"}, {"r jobs": "-1"}, {"q jobs": "spoiled"},
                                   {"gone jobs": "3", "gone bytes": "70"}, {"gone running": "1"}])  # fmt: skip
async def test_a_wrong_count_is_recounted(desk, wrong):
    right = await several(desk)
    desk.raw.hset(keys.backlog(desk.base), mapping=wrong)
    found = await follow(desk.run, recount(desk.base, "look"))
    assert numbers(desk) == right | wrong
    assert await follow(desk.run, recount(desk.base)) == found
    assert [queue for queue, _ in found.found] == [next(iter(wrong)).split()[0]]
    assert numbers(desk) == right


async def test_a_count_that_is_not_valid_utf8_is_recounted(desk):
    right = await several(desk)
    desk.raw.hset(keys.backlog(desk.base), "q jobs", b"\xff")
    ((queue, words),) = (await follow(desk.run, recount(desk.base))).found
    assert (queue, words.split()[:2]) == ("q", ["recounted", "?"])
    assert numbers(desk) == right


async def test_a_lost_backlog_is_restored(desk):
    right = await several(desk)
    desk.raw.delete(keys.backlog(desk.base))
    assert [queue for queue, _ in (await follow(desk.run, recount(desk.base))).found] == ["q", "r"]
    assert {name: n for name, n in numbers(desk).items() if n != "0"} == right


async def test_a_count_from_before_a_change_is_refused(desk):
    await desk.submit("a")
    last = stamp(desk)
    await desk.submit("b")
    with pytest.raises(Changed, match="count again"):
        await send(desk, ("q", 1, 2, 0), last=last)
    assert await send(desk, ("q", 2, 4, 0)) == ["sound"]
    assert await send(desk, ("q", 2, 5, 0), how="look") == ["recounted 2 4 0"]
    assert await send(desk, ("q", 2, 5, 0)) == ["recounted 2 4 0"]
    assert await send(desk, ("q", 2, 5, 0)) == ["sound"]


async def test_an_invalid_count_is_refused(desk):
    for queues in ([("q q", 1, 1, 1)], [("q", -1, 1, 1)], [("q", 1, "x", 1)], [("q", 1, 1, 1.5)]):
        with pytest.raises(Invalid):
            await send(desk, *queues)
    with pytest.raises(Invalid):
        await send(desk, how="try")
    with pytest.raises(TooMany):
        await send(desk, *[("q", 1, 1, 1)] * 101)


async def test_while_jobs_come_and_go_the_count_is_exact(desk):
    """Between any two calls of the count, other clients submit, claim and complete; the written numbers are right."""
    await several(desk)
    desk.raw.hset(keys.backlog(desk.base), mapping={"q jobs": 70, "q bytes": 7, "r running": 7})
    calls, busy = 0, True

    async def run(call):
        nonlocal calls
        calls += 1
        if calls < 12 and call.commands[0][0] != "EVALSHA":
            await desk.submit(f"n{calls}", queue="r", payload=b"x" * calls)
            (lease,) = await desk.claim(1, queues=("q", "r"))
            await (desk.complete(lease) if calls % 2 else desk.release(lease, 60))
        return await desk.run(call)

    found = await follow(run, recount(desk.base))
    busy = found.busy
    assert not busy
    assert {queue for queue, _ in found.found} == {"q", "r"}
    assert (await follow(desk.run, recount(desk.base, "look"))).found == []


async def test_with_too_many_changes_a_recount_fails_and_leaves_the_numbers(desk):
    await several(desk)
    desk.raw.hset(keys.backlog(desk.base), "q jobs", 70)

    new = (f"n{i}" for i in range(10_000))

    async def run(call):
        if call.commands[0][0] == "EVALSHA":
            await desk.submit(next(new), queue="r")
        return await desk.run(call)

    async with asyncio.timeout(30):
        found = await follow(run, recount(desk.base))
    assert (found.busy, found.found) == (True, [])
    assert numbers(desk)["q jobs"] == "70"


async def test_events_lost_meanwhile_are_detected(desk):
    """The stream is capped: after lost events the count starts again."""
    await several(desk)
    desk.raw.hset(keys.backlog(desk.base), "q jobs", 70)
    asked = 0

    async def run(call):
        nonlocal asked
        asked += call.commands[0][0] == "XRANGE"
        if asked == 1 and call.commands[0][0] == "XRANGE":
            await desk.operate("cancel", "a")
            await desk.submit("o", queue="r")
            desk.raw.xtrim(keys.events(desk.base), maxlen=1, approximate=False)
        return await desk.run(call)

    assert (await follow(run, recount(desk.base))).busy is False
    assert (await follow(desk.run, recount(desk.base, "look"))).found == []


def pass_by(desk, n, keep=10_000):
    """That many events of jobs of other queues, in a stream that keeps that many."""
    with desk.raw.pipeline(transaction=False) as pipe:
        for i in range(n):
            pipe.xadd(keys.events(desk.base), {"jobs": f"gone{i}", "state": "completed", "code": "completed"})
        pipe.xtrim(keys.events(desk.base), maxlen=keep, approximate=False)
        pipe.execute()


@pytest.mark.parametrize("always", [False, True])
async def test_repairs_before_a_change_are_reported(desk, always):
    """More queues than one call takes, all wrong, and a job moves after the first call: once, or each time."""
    for i in range(150):
        await desk.submit(f"j{i}", queue=f"q{i:03d}")
    right = numbers(desk)
    desk.raw.hset(keys.backlog(desk.base), mapping={f"q{i:03d} jobs": 7 for i in range(150)})
    sent = 0

    async def run(call):
        nonlocal sent
        if call.commands[0][0] == "EVALSHA":
            sent += 1
            if sent == 2 or (always and sent > 2):
                pass_by(desk, 1)
        return await desk.run(call)

    found = await follow(run, recount(desk.base))
    assert found.busy is always
    assert [queue for queue, _ in found.found] == [f"q{i:03d}" for i in range(100 if always else 150)]
    wrong = {name for name, n in right.items() if numbers(desk)[name] != n}
    assert wrong == ({f"q{i:03d} jobs" for i in range(100, 150)} if always else set())


async def test_thousands_of_changes_are_followed(desk):
    await several(desk)
    desk.raw.hset(keys.backlog(desk.base), "q jobs", 70)
    walked = 0

    async def run(call):
        nonlocal walked
        if call.commands[0][0] == "ZSCAN":
            walked += 1
            pass_by(desk, 2000)
        return await desk.run(call)

    found = await follow(run, recount(desk.base))
    assert (found.busy, [queue for queue, _ in found.found]) == (False, ["q"])
    assert walked == 4, "one walk is enough"


async def test_a_long_walk_reads_the_events_before_they_are_trimmed(desk):
    """More events occur than the stream keeps, and one of the first is of a job that has moved."""
    for i in range(30):
        await desk.submit(f"j{i}", queue=f"q{i:03d}")
    desk.raw.hset(keys.backlog(desk.base), "q029 jobs", 70)
    walked = 0

    async def run(call):
        nonlocal walked
        answer = await desk.run(call)
        if call.commands[0][0] == "ZSCAN":
            walked += 1
            if walked == 3:
                await desk.submit("late", queue="q000")
            pass_by(desk, 50, keep=500)
        return answer

    found = await follow(run, recount(desk.base))
    assert (found.busy, [queue for queue, _ in found.found]) == (False, ["q029"])
    assert walked == 32, "one walk is enough"
    assert numbers(desk)["q000 jobs"] == "2"
    assert (await follow(desk.run, recount(desk.base, "look"))).found == []


# jobs that are missing


async def test_a_job_that_is_missing_is_counted_until_a_recount(desk):
    """Its queue is unknown, so the numbers of that queue stay too high."""
    await desk.running("held", lease=10)
    await desk.submit("late", queue="r", rules="delay=1000")
    await desk.submit("waits", queue="s")
    await desk.submit("sound", queue="s", rules="delay=1000")
    for name in ("held", "late", "waits"):
        desk.raw.delete(keys.job(desk.base, name))
    desk.elapse(20)
    assert (desk.counter("missing"), await desk.run(reads.uncounted(desk.base))) == (0, 0)
    assert await desk.claim(1, queues=("s",)) == []
    assert desk.counter("missing") == 3, "one that ran, one that was due, one in the queue"
    assert await desk.run(reads.uncounted(desk.base)) == 3
    assert numbers(desk)["q jobs"] == numbers(desk)["q running"] == numbers(desk)["r jobs"] == "1"
    assert [lease.id for lease in await desk.claim(9, queues=("q", "r", "s"))] == ["sound"]
    assert desk.counter("missing") == 3

    await follow(desk.run, recount(desk.base, "look"))
    assert await desk.run(reads.uncounted(desk.base)) == 3
    await follow(desk.run, recount(desk.base))
    assert {name for name in numbers(desk) if name.endswith(" jobs")} == {"s jobs"}
    assert (desk.counter("missing"), await desk.run(reads.uncounted(desk.base))) == (3, 0)
    before = desk.everything()
    await follow(desk.run, recount(desk.base))
    assert desk.everything() == before


async def test_a_reap_counts_missing_jobs(desk):
    await desk.running("held", lease=10)
    desk.raw.delete(keys.job(desk.base, "held"))
    desk.raw.zadd(keys.structure(desk.base, "scheduled"), {"nobody": 1})
    desk.elapse(20)
    await desk.reap()
    assert (desk.counter("missing"), desk.members("running"), desk.members("scheduled")) == (2, [], [])


async def test_only_the_last_call_of_a_recount_finishes_it(desk):
    desk.raw.hset(desk.base, "missing", 2)
    desk.raw.hset(keys.backlog(desk.base), mapping={f"q{i} jobs": 1 for i in range(150)})
    sent = []

    async def run(call):
        sent.append(call)
        if len([each for each in sent if each.text]) == 2:
            assert await desk.run(reads.uncounted(desk.base)) == 2, "a hundred queues are recounted"
        return await desk.run(call)

    assert len((await follow(run, recount(desk.base))).found) == 150
    assert await desk.run(reads.uncounted(desk.base)) == 0
