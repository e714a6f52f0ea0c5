"""The script `claim` with patterns of queue names: which patterns are live, and what their wake-up lists hold."""

import pytest

from sublet.connection.transport import follow
from sublet.errors import Invalid, TooMany
from sublet.operations.consistency.audit import audit
from sublet.operations.consistency.recount import recount
from sublet.operations.consistency.repair import repair
from sublet.operations.drop import drop
from sublet.protocol import keys, verbs

PATTERN = "tenant-*"


@pytest.fixture
def told(raw, base):
    """The names on the wake-up list of a pattern."""
    return lambda pattern=PATTERN: raw.lrange(keys.wake(base, pattern), 0, -1)


@pytest.fixture
def live(raw, base):
    """The live patterns, each with the moment (ms) until which it is."""
    return lambda: dict(zip(*[iter((raw.hget(base, "patterns") or "").split())] * 2, strict=True))


async def test_a_submit_names_its_queue_once_on_the_lists_of_its_live_patterns(desk, told, raw, base):
    await desk.submit("a", queue="tenant-1")
    assert told() == [], "no pattern is live yet"
    assert await desk.claim(5, queues=(PATTERN, "*")) == [], "a pattern yields no job"
    await desk.submit("b", "c", queue="tenant-1")
    await desk.submit("d", queue="tenant-1")
    await desk.submit("e", queue="other")
    assert (told(), told("*")) == (["tenant-1"], ["tenant-1", "other"])
    assert 0 < raw.pttl(keys.wake(base, PATTERN)) <= 15_000


async def test_a_claim_renews_a_pattern_only_when_it_has_less_than_ten_seconds_left(desk, live, raw, base):
    await desk.claim(queues=(PATTERN,))
    assert desk.now() + 14_000 < int(live()[PATTERN]) <= desk.now() + 15_000
    raw.hset(base, "patterns", until := f"{PATTERN} {desk.now() + 12_000}")
    await desk.claim(queues=(PATTERN,))
    assert raw.hget(base, "patterns") == until
    raw.hset(base, "patterns", f"{PATTERN} {desk.now() + 9000} gone-* {desk.now() - 1}")
    await desk.claim(0, queues=("q", PATTERN))
    assert int(live()[PATTERN]) > desk.now() + 14_000
    assert "gone-*" not in live()


async def test_a_pattern_without_claims_gets_no_names(desk, told, raw, base):
    await desk.claim(queues=(PATTERN,))
    raw.hset(base, "patterns", f"{PATTERN} {desk.now() - 1}")
    await desk.submit("a", queue="tenant-1")
    assert told() == []


async def test_of_many_patterns_sixteen_are_live(desk, live):
    await desk.claim(queues=tuple(f"p{i}-*" for i in range(20)))
    assert list(live()) == [f"p{i}-*" for i in range(16)]
    await desk.claim(queues=("late-*",))
    assert len(live()) == 16


async def test_a_claim_that_leaves_jobs_names_the_queue_again_and_one_that_leaves_none_takes_it_off(
    desk, told, raw, base
):
    await desk.claim(queues=(PATTERN,))
    await desk.submit("a", "b", queue="tenant-1")
    assert raw.lpop(keys.wake(base, PATTERN)) == "tenant-1"
    assert len(await desk.claim(1, queues=(PATTERN, "tenant-1"))) == 1
    assert told() == ["tenant-1"]
    assert len(await desk.claim(1, queues=("tenant-1",))) == 1
    assert told() == []


async def test_jobs_that_return_name_their_queue_and_those_of_paused_queues_do_not(desk, told, raw, base):
    await desk.claim(queues=(PATTERN,))
    await desk.submit("a", queue="tenant-1")
    await desk.release(await desk.take("a", queues=("tenant-1",)))
    assert told() == ["tenant-1"]
    raw.delete(keys.wake(base, PATTERN))
    await desk.operate_queue("pause", "tenant-1")
    await desk.submit("b", queue="tenant-1")
    assert told() == []
    await desk.operate_queue("resume", "tenant-1")
    assert told() == ["tenant-1"]


async def test_a_list_holds_a_thousand_names(desk, told, raw, base):
    await desk.claim(queues=(PATTERN,))
    raw.rpush(keys.wake(base, PATTERN), *(f"tenant-{i}" for i in range(1000)))
    await desk.submit("a", queue="tenant-new")
    assert len(told()) == 1000


async def test_a_list_of_a_wrong_type_fails_no_verb_and_is_reported(desk, raw, base):
    await desk.claim(queues=(PATTERN,))
    raw.set(keys.wake(base, PATTERN), "not a list")
    await desk.submit("a", queue="tenant-1")
    assert len(await desk.claim(1, queues=(PATTERN, "tenant-1"))) == 1
    (fault,) = (await follow(desk.run, audit([base]))).faults
    assert (fault.name, fault.found) == (keys.wake(base, PATTERN), "foreign")


@pytest.mark.parametrize(
    "text", ["", "*", "a b c", "tenant-* soon", f"x* {'9' * 20}", "tenant-1 99999999999999"]
)
async def test_a_malformed_list_of_patterns_fails_no_verb_and_is_replaced(desk, told, live, raw, base, text):
    """Also one with moments too far ahead, as after the clock was set back: they would keep others out."""
    raw.hset(base, "patterns", text)
    await desk.submit("a", queue="tenant-1")
    await desk.claim(queues=(PATTERN,))
    assert list(live()) == [PATTERN]
    await desk.submit("b", queue="tenant-1")
    assert told() == ["tenant-1"]


async def patterns_with_work(desk):
    """Live patterns whose lists hold names of queues with waiting, running and finished jobs."""
    await desk.submit("z", queue="tenant-0")
    await desk.claim(queues=(PATTERN, "*"))
    await desk.submit("a", "b", queue="tenant-1")
    await desk.submit("c", queue="tenant-2")
    await desk.complete(await desk.take("a", queues=("tenant-1",)))
    await desk.take("b", queues=("tenant-1",))


async def test_live_patterns_are_consistent_and_maintenance_leaves_them(desk, told, live):
    await patterns_with_work(desk)
    before = desk.everything()
    seen, mended = await follow(desk.run, repair([desk.base]))
    assert (seen.whole, seen.faults, mended) == (True, [], [])
    counted = await follow(desk.run, recount(desk.base))
    assert (counted.jobs, counted.found) == (3, [])
    assert await desk.run(verbs.prune(desk.base, limit=200)) == (0, False)
    assert desk.everything() == before
    assert (list(live()), told(), told("*")) == ([PATTERN, "*"], ["tenant-2"], ["tenant-2"])


async def test_a_repair_of_a_lost_queue_wakes_a_worker_of_its_pattern(desk, told, raw, base):
    await patterns_with_work(desk)
    raw.delete(keys.queue(base, "tenant-2"), keys.wake(base, "tenant-2"), keys.wake(base, PATTERN))
    _, mended = await follow(desk.run, repair([base]))
    assert [fault.found.split(" ")[0] for fault in mended] == ["placed"]
    assert told() == ["tenant-2"]


async def test_a_drop_deletes_live_patterns_and_their_lists(desk, raw, base):
    await patterns_with_work(desk)
    assert raw.exists(keys.wake(base, PATTERN), keys.wake(base, "*")) == 2
    await follow(desk.run, drop(base[1:].rpartition(":")[0]))
    assert [key for key in raw.scan_iter(match=f"{base}*") if raw.pttl(key) == -1] == []
    assert raw.exists(keys.wake(base, PATTERN), keys.wake(base, "*")) == 0


@pytest.mark.parametrize("name", ["a*b", "**", "*a", "a b*", "x" * 128 + "*", ""])
async def test_an_invalid_pattern_is_refused(desk, name):
    await desk.submit("a")
    with pytest.raises(Invalid, match=r"a pattern \* after 0 to 127"):
        await desk.claim(queues=(name,))


async def test_patterns_count_among_the_queues_of_a_claim(desk):
    await desk.submit("a")
    with pytest.raises(TooMany, match="33 items"):
        await desk.claim(queues=(*(f"q{i}" for i in range(32)), PATTERN))
