"""What an index of tags costs: each call runs a bounded number of commands, however many tags and jobs there are."""

import pytest

from sublet.model import Submission
from sublet.protocol import keys, verbs

pytestmark = pytest.mark.real_server
JOBS, TAGS = 100_000, 10_000
KEPT = 10_000


@pytest.fixture
def cost(raw, desk):
    """Run a call and count the commands of its script."""

    async def count(call):
        raw.config_resetstat()
        await desk.run(call)
        stats = raw.info("commandstats")
        return sum(one["calls"] for name, one in stats.items() if not name.startswith(("cmdstat_config", "cmdstat_info", "cmdstat_evalsha")))  # fmt: skip

    return count


@pytest.fixture
def submit(desk, cost):
    """Submit jobs with these rules; returns the number of commands."""
    made = iter(range(10**6))

    async def some(*rules):
        jobs = [Submission(f"new{next(made)}", "q", "t", each, b"{}") for each in rules]
        return await cost(verbs.submit(desk.base, jobs))

    return some


def fill(desk, tag, count, *, exist=False):
    """An index of jobs that were deleted, or exist."""
    now = desk.now() - count
    for start in range(0, count, 5000):
        ids = {f"{tag}{i:06}": now + i for i in range(start, min(count, start + 5000))}
        desk.raw.zadd(keys.tag(desk.base, tag), ids)
        if exist:
            with desk.raw.pipeline(transaction=False) as pipe:
                for job_id, ms in ids.items():
                    pipe.hset(
                        keys.job(desk.base, job_id),
                        mapping={"state": "dead", "spec": f"q t {ms} tags={tag}\n"},
                    )
                pipe.execute()
    desk.raw.zadd(keys.tags(desk.base), {tag: now})


async def test_a_job_without_tags_runs_no_command_for_tags(desk, submit):
    await submit("", "")
    plain, ruled = await submit(""), await submit("priority=1")
    for tag in ("a", "b"):
        fill(desk, tag, 1000)
    assert (await submit(""), await submit("priority=1")) == (plain, ruled)
    assert plain < ruled
    assert desk.raw.zcard(keys.tags(desk.base)) == 2


@pytest.mark.parametrize("exist", [False, True], ids=["deleted", "kept"])
async def test_a_tag_of_a_hundred_thousand_jobs_costs_no_more_than_one_of_ten(desk, submit, exist):
    await submit("priority=1")
    fill(desk, "few", 10, exist=True)
    fill(desk, "many", JOBS, exist=exist)
    without, few = await submit("priority=1"), await submit("priority=1 tags=few")
    assert few - without <= 12
    for _ in range(310):
        assert await submit("priority=1 tags=many") <= few + 4
    assert desk.raw.zcard(keys.tag(desk.base, "many")) <= KEPT + 1
    batch = await submit(*["priority=1 tags=many"] * 200) - await submit(*["priority=1"] * 200)
    assert batch <= 10 + 2 * (200 + 1)


async def test_ten_thousand_tags_cost_a_submit_a_bounded_number_of_commands(desk, submit, store):
    await submit("priority=1")
    desk.raw.zadd(keys.tags(desk.base), {f"t{i}": i for i in range(TAGS)})
    rules = [f"priority=1 tags={','.join(f'new{i}.{k}' for k in range(5))}" for i in range(200)]
    all_tags = {f"new{i}.{k}" for i in range(200) for k in range(5)}
    before = await submit(*["priority=1"] * 200)
    for name in ("new", "other"):
        cost = await submit(*(one.replace("new", name) for one in rules)) - before
        assert cost <= 10 + 100 * 3 + 20 * (6 + 2 * (1 + 10))
    assert desk.raw.zcard(keys.tags(desk.base)) <= TAGS + 2
    with_index = {tag.rpartition(":")[2] for tag in desk.raw.scan_iter(f"{desk.base}:tag:*", count=1000)}
    assert len(with_index) == 200
    page = await store.follow(store.operations.list_jobs(tag=min(all_tags - with_index)))
    assert len(page.jobs) == 1, "the others are found without an index"


async def test_a_prune_among_ten_thousand_tags_looks_at_ten(desk, cost):
    await cost(verbs.prune(desk.base, limit=200))
    before = await cost(verbs.prune(desk.base, limit=200))
    desk.raw.zadd(keys.tags(desk.base), {f"t{i}": i for i in range(TAGS)})
    for i in range(50):
        fill(desk, f"t{i}", 1000)
        desk.raw.zadd(keys.tags(desk.base), {f"t{i}": i})
    assert await cost(verbs.prune(desk.base, limit=200)) - before <= 5 + 10 * (5 + 200)
    for _ in range(100):
        await cost(verbs.prune(desk.base, limit=200))
    assert not desk.raw.exists(keys.tag(desk.base, "t0")), "it had deleted jobs alone"


async def test_batches_of_a_tag_keep_its_index_near_the_jobs_that_exist(desk, submit):
    """Batches add more jobs than a single submit looks for."""
    for n in range(60):
        await submit(*["tags=x"] * 200)
        first = desk.raw.zrange(keys.tag(desk.base, "x"), 0, -1)
        gone = [one for one in first if int(one.removeprefix("new")) < (n - 1) * 200]
        if gone:
            desk.raw.delete(*(keys.job(desk.base, one) for one in gone))
    assert desk.raw.zcard(keys.tag(desk.base, "x")) < 1200
