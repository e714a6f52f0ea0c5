"""The index of the jobs of each tag, and lists that read it."""

import re
from datetime import UTC, datetime

import pytest

from sublet.model import State
from sublet.protocol import keys, tag_index
from sublet.protocol.scripts import source


@pytest.fixture
def follow(store):
    async def carry_out(plan, **more):
        return await store.follow(getattr(store.operations, plan)(**more))

    return carry_out


async def pages(follow, limit, **filters):
    found, cursor = [], None
    while True:
        page = await follow("list_jobs", limit=limit, cursor=cursor, **filters)
        found.append([job.id for job in page.jobs])
        cursor = page.cursor
        if cursor is None:
            return found


def index(desk, tag):
    return desk.raw.zrange(keys.tag(desk.base, tag), 0, -1)


def tags(desk):
    return desk.raw.zrange(keys.tags(desk.base), 0, -1)


def delete(desk, *job_ids):
    for job_id in job_ids:
        desk.raw.delete(keys.job(desk.base, job_id))


def fill(desk, tag, count):
    """Jobs of a tag, one ms apart."""
    now = desk.now() - count
    for i in range(count):
        desk.raw.hset(
            keys.job(desk.base, f"old{i:05}"),
            mapping={"state": "dead", "spec": f"q t {now + i} tags={tag}\n"},
        )
    desk.raw.zadd(keys.tag(desk.base, tag), {f"old{i:05}": now + i for i in range(count)})
    desk.raw.zadd(keys.tags(desk.base), {tag: now})


def submitted_at(desk, job_id, tag, ms):
    """Change the time of a job's submission."""
    spec = re.sub(r"^(\S+ \S+) \d+", rf"\1 {ms}", desk.raw.hget(keys.job(desk.base, job_id), "spec"))
    desk.raw.hset(keys.job(desk.base, job_id), "spec", spec)
    desk.raw.zadd(keys.tag(desk.base, tag), {job_id: ms})


async def test_a_submit_adds_the_job_to_the_index_of_each_tag(desk):
    await desk.submit("a", rules="tags=tenant:acme,import")
    await desk.submit("b", rules="priority=5 tags=import", queue="r")
    await desk.submit("late", rules="delay=1000 tags=7")
    await desk.submit("plain")
    await desk.submit("untagged", rules="priority=5")
    assert index(desk, "import") == ["a", "b"]
    assert (index(desk, "tenant:acme"), index(desk, "7")) == (["a"], ["late"])
    assert sorted(tags(desk)) == ["7", "import", "tenant:acme"]
    assert desk.raw.zscore(keys.tag(desk.base, "import"), "a") == int(
        desk.raw.hget(keys.job(desk.base, "a"), "spec").split()[2]
    )


async def test_a_refused_or_repeated_submit_adds_nothing(desk):
    await desk.submit("a", rules="key=k")
    await desk.submit("a", rules="tags=x")
    await desk.submit("b", rules="key=k tags=x")
    await desk.submit("c", rules="tags=x,x")
    assert (index(desk, "x"), tags(desk)) == ([], [])


async def test_the_job_of_an_occurrence_is_in_the_index(desk):
    await desk.put("nightly", rules="tags=report")
    (one,) = (await desk.pick()).picks
    assert await desk.fire(one, 1000, then=2000) == "fired 1"
    assert index(desk, "report") == ["0-nightly:1000"]
    assert tags(desk) == ["report"]


async def test_submits_of_a_tag_remove_deleted_jobs_from_its_index(desk):
    for i in range(40):
        await desk.submit(f"old{i}", rules="tags=x")
    delete(desk, *(f"old{i}" for i in range(1, 40)))
    for i in range(60):
        await desk.submit(f"new{i}", rules="tags=x")
    left = index(desk, "x")
    assert {"old0", *(f"new{i}" for i in range(60))} <= set(left)
    assert len(left) < 75, "a job that lives long must not hide deleted ones behind it"


async def test_prunes_remove_deleted_jobs_and_empty_tags(desk):
    for i in range(30):
        await desk.submit(f"a{i}", rules="tags=left,shared")
    await desk.submit("b", rules="tags=shared")
    delete(desk, *(f"a{i}" for i in range(30)))
    for _ in range(4):
        await desk.prune()
    assert (index(desk, "left"), index(desk, "shared"), tags(desk)) == ([], ["b"], ["shared"])


async def test_an_index_has_the_newest_ten_thousand_jobs(desk):
    fill(desk, "x", 10_001)
    await desk.submit("a", "b", rules="tags=x")
    found = index(desk, "x")
    assert (len(found), found[:2], sorted(found[-2:])) == (10_001, ["*", "old00003"], ["a", "b"])
    first, second = desk.raw.zrange(keys.tag(desk.base, "x"), 0, 1, withscores=True)
    assert first[1] == second[1]


async def test_a_partition_has_the_indexes_of_the_last_ten_thousand_tags(desk):
    await desk.submit("mine", rules="tags=first")
    desk.raw.zadd(keys.tags(desk.base), {"first": 1} | {f"t{i}": 2 + i for i in range(10_001)})
    await desk.submit("a", rules="tags=x,y")
    found = tags(desk)
    assert (len(found), found[:2], "x" in found, "y" in found) == (10_002, ["*", "t2"], True, True)
    assert index(desk, "first") == []
    for i in range(5):
        await desk.submit(f"b{i}", rules="tags=x,y")
    assert (len(tags(desk)), tags(desk)[0]) == (10_002, "*")
    assert f"OLDER = '{tag_index.OLDER}' " in source("lib/tags")


@pytest.mark.parametrize("name", ["tags", "tag:x"])
async def test_a_key_of_a_wrong_type_is_passed_over(desk, name):
    desk.raw.set(f"{desk.base}:{name}", "foreign")
    (done,) = await desk.submit("a", rules="tags=x,y")
    assert done.created
    assert await desk.prune() is not None
    assert index(desk, "y") == ["a"]


# lists


async def test_a_list_of_a_tag_is_newest_first_and_has_the_other_filters(desk, follow):
    for i in range(6):
        await desk.submit(f"j{i}", queue=f"q{i % 2}", task=f"t{i % 3}", rules="tags=x")
        desk.elapse(1)
    await desk.submit("other")
    await desk.operate("cancel", "j4")
    assert await pages(follow, 50, tag="x") == [["j5", "j4", "j3", "j2", "j1", "j0"]]
    assert await pages(follow, 50, tag="x", queue="q1") == [["j5", "j3", "j1"]]
    assert await pages(follow, 50, tag="x", task="t1", state=State.QUEUED) == [["j1"]]
    assert await pages(follow, 50, tag="x", state=(State.DEAD, State.CANCELLED)) == [["j4"]]
    assert await pages(follow, 50, tag="none") == [[]]


@pytest.mark.parametrize("limit", [1, 2, 7])
async def test_pages_of_a_tag_have_each_job_once_while_others_are_submitted(desk, follow, limit):
    await desk.submit(*(f"same{i}" for i in range(7)), rules="tags=x")
    before = desk.now() - 1000
    for i in range(7):
        submitted_at(desk, f"same{i}", "x", before)
    await desk.submit("last", rules="tags=x")
    found, cursor = [], None
    for n in range(20):
        page = await follow("list_jobs", tag="x", limit=limit, cursor=cursor)
        found += [job.id for job in page.jobs]
        cursor = page.cursor
        if cursor is None:
            break
        await desk.submit(f"new{n}", rules="tags=x")
    assert (found[0], sorted(found[1:])) == ("last", [f"same{i}" for i in range(7)])


async def test_a_page_of_a_tag_examines_a_thousand_jobs(desk, follow):
    fill(desk, "x", 1500)
    first = await follow("list_jobs", tag="x", state=State.QUEUED)
    assert (first.jobs, first.cursor is not None) == ((), True)
    second = await follow("list_jobs", tag="x", state=State.QUEUED, cursor=first.cursor)
    assert (second.jobs, second.cursor) == ((), None)


async def test_an_entry_of_a_job_that_lacks_the_tag_is_omitted(desk, follow):
    await desk.submit("a")
    desk.raw.zadd(keys.tag(desk.base, "x"), {"a": 1, "gone": 2})
    assert await pages(follow, 50, tag="x") == [[]]


@pytest.mark.parametrize("limit", [1, 2, 7])
async def test_jobs_that_an_index_lacks_are_found_in_the_structures(desk, follow, limit):
    first = desk.now() - 1000
    for i in range(6):
        await desk.submit(f"j{i}", rules="tags=x")
        submitted_at(desk, f"j{i}", "x", first + i)
    desk.raw.zrem(keys.tag(desk.base, "x"), "j0", "j1", "j2")
    desk.raw.zadd(keys.tag(desk.base, "x"), {tag_index.OLDER: first + 3})
    await desk.submit("other")
    await desk.prune()
    found = [one for page in await pages(follow, limit, tag="x") for one in page]
    assert found == ["j5", "j4", "j0", "j1", "j2", "j3"]
    assert await pages(follow, 50, tag="x", state=State.DEAD) == [[]]
    assert await pages(follow, 50, tag="x", until=datetime.fromtimestamp((first + 2) / 1000, UTC)) == [
        ["j0", "j1"]
    ]


async def test_a_tag_whose_index_was_deleted_is_searched_in_all_jobs(desk, follow):
    await desk.submit("a", "b", rules="tags=x")
    for job_id in "ab":
        submitted_at(desk, job_id, "x", desk.now() - 1000)
    desk.raw.zadd(
        keys.tags(desk.base), {"x": desk.now() - 1000} | {f"t{i}": desk.now() for i in range(10_000)}
    )
    await desk.submit("c", rules="tags=y")
    assert (index(desk, "x"), await pages(follow, 1, tag="x")) == ([], [["a"], ["b"], []])
    await desk.prune()
    await desk.submit("d", rules="tags=x")
    assert await pages(follow, 50, tag="x") == [["d", "a", "b"]]
