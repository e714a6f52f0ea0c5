"""Many queues: lists and statistics read their names in pages, and a namespace has a bounded number."""

import pytest

from sublet.connection.transport import follow
from sublet.errors import Invalid, QueueFull
from sublet.model import State, Submission
from sublet.options import Options
from sublet.protocol import keys, queue_names, verbs
from sublet.schedules import operations as schedules
from sublet.schedules.definition import new_schedule
from sublet.schedules.recurrence import Recurrence
from sublet_functions.handlers.statistics import read_statistics

pytestmark = pytest.mark.real_server


def name_queues(desk, count, settings=""):
    if count:
        desk.raw.hset(keys.queues(desk.base), mapping={f"tenant-{i}": settings for i in range(count)})


async def walk(store, plan):
    """Run a plan. Returns its result, and the commands that it sent, by round trip."""
    sent = []

    async def run(call):
        sent.append(call.commands)
        return await store.run(call)

    return await follow(run, plan), sent


async def pages(store, **filters):
    """All pages of a list, and for each the commands that it sent, by round trip."""
    found, cursor = [], None
    while not found or cursor:
        page, sent = await walk(store, store.operations.list_jobs(cursor=cursor, **filters))
        found.append((page, sent))
        cursor = page.cursor
    return found


async def test_a_page_of_jobs_looks_at_a_bounded_number_of_queues(desk, store):
    name_queues(desk, 5_000)
    for i in range(0, 5_000, 1_000):
        await desk.submit(f"0-j{i}", f"0-k{i}", queue=f"tenant-{i}")
    found = await pages(store, state=State.QUEUED)
    assert sorted(job.id for page, _ in found for job in page.jobs) == sorted(
        f"0-{letter}{i}" for letter in "jk" for i in range(0, 5_000, 1_000)
    )
    assert 3 <= len(found) <= 11, "a page looks at about a thousand names, for jobs without and with a group"
    for _, sent in found:
        assert len(sent) <= 4 + 6, "names, whether any has jobs, ids, jobs; lengths in up to six parts"
        assert sum(map(len, sent)) < 2_500
        assert {command[0] for commands in sent for command in commands} <= {
            "HSCAN",
            "EXISTS",
            "ZCARD",
            "ZMSCORE",
            "ZRANGE",
            "HMGET",
            "ZSCORE",
        }


@pytest.mark.parametrize(("limit", "lengths"), [(1, 8), (40, 8), (41, 136), (1000, 300)])
async def test_a_page_reads_the_lengths_of_few_queues_if_they_have_enough_jobs(desk, store, limit, lengths):
    await store.submit([store.operations.submission("t", b"{}", f"q-{n % 300}", "") for n in range(1500)])
    page, sent = await walk(store, store.operations.list_jobs(State.QUEUED, limit=limit))
    assert len(page.jobs) == limit
    assert sum(command[0] == "ZCARD" for commands in sent for command in commands) == lengths
    rest, _ = await walk(store, store.operations.list_jobs(State.QUEUED, limit=1000, cursor=page.cursor))
    assert len({job.id for job in (*page.jobs, *rest.jobs)}) == min(1500, limit + 1000)


@pytest.mark.parametrize("limit", [1, 7, 200])
async def test_every_queued_job_is_on_one_page_whatever_its_size(desk, store, limit):
    name_queues(desk, 1_500)
    for i in range(5):
        await desk.submit(*(f"0-{i}-{n:02}" for n in range(12)), queue=f"tenant-{i * 300}")
    await desk.submit("0-late", queue="tenant-3", rules="delay=100000")
    found = await pages(store, limit=limit)
    ids = [job.id for page, _ in found for job in page.jobs]
    assert ids[0] == "0-late", "by state"
    assert sorted(ids[1:]) == [f"0-{i}-{n:02}" for i in range(5) for n in range(12)]
    assert all(len(page.jobs) <= limit for page, _ in found)
    for i in range(5):
        assert [one for one in ids if one.startswith(f"0-{i}-")] == [f"0-{i}-{n:02}" for n in range(12)]


async def test_a_page_of_jobs_with_a_filter_reads_a_thousand_jobs(desk, store):
    await desk.submit(*(f"0-a{i:03}" for i in range(200)), queue="a")
    await desk.submit(*(f"0-b{i:03}" for i in range(200)), queue="b", task="rare")
    (page, sent), *others = await pages(store, state=State.QUEUED, task="rare", limit=150)
    assert [job.id for job in page.jobs] == [f"0-b{i:03}" for i in range(150)]
    assert len(sent) <= 4 + 4 + 1, "the jobs, and the settings of their queues"
    assert [job.id for more, _ in others for job in more.jobs] == [f"0-b{i:03}" for i in range(150, 200)]


async def test_a_page_of_schedules_takes_one_command_for_each(desk, store):
    every = Recurrence(every=3600)
    for n in range(12):
        wanted = new_schedule(f"s-{n:02}", every, "t", b"{}", Options())
        await store.follow(schedules.put(store.operations, wanted))
    found, sent = await walk(store, schedules.page(store.operations, "s-01", 5))
    assert [schedule.name for schedule in found.schedules] == [f"s-{n:02}" for n in range(2, 7)]
    assert all(schedule.next_at for schedule in found.schedules)
    assert sum(map(len, sent)) <= 5 + 2


async def test_no_command_of_the_statistics_reads_thousands_of_counts(desk, store, monkeypatch):
    await store.submit([store.operations.submission("t", b"{}", f"q-{n}", "") for n in range(300)])
    sent, run = [], store.run

    async def counted(call):
        sent.extend(call.commands)
        return await run(call)

    monkeypatch.setattr(store, "run", counted)
    assert len((await read_statistics(store)).queues) == 300
    assert max(map(len, sent)) < 2_500, "Redis runs nothing else meanwhile"


@pytest.mark.parametrize(
    "cursor", ["x", "{b}", "{b}/queued", "{b}/queued/0", "{b}/queued/0/a b/0", "{b}/queued/0//0/0", "{b}/queued/-1//0", "{b}/queued/0//x",
               "{b}/queued/18446744073709551616//0", "{b}/queued/0//1000000000000000", "{b}/running/0//0", "/queued/0//0"],
)  # fmt: skip
async def test_an_invalid_cursor_is_refused(desk, store, cursor):
    with pytest.raises(
        Invalid, match=r"^cursor .*: use the cursor of the page before, with the same filters$"
    ):
        await store.follow(store.operations.list_jobs(cursor=cursor.replace("{b}", desk.base)))
    with pytest.raises(Invalid, match=r"^cursor .*: use the cursor of the page before$"):
        await store.follow(store.operations.queue_page(50, cursor.replace("{b}", desk.base)))


@pytest.mark.parametrize("count", [0, 130, 900, 4_000])
async def test_pages_of_queues_have_each_queue_once(desk, store, count):
    name_queues(desk, count)
    await desk.submit("a", queue="tenant-1")
    found, cursor, pages = [], None, 0
    while not pages or cursor:
        (page, cursor), sent = await walk(store, store.operations.queue_page(100, cursor))
        found += [queue.name for queue in page]
        pages += 1
        assert len(page) <= 100
        assert sum(map(len, sent)) <= 12 + 202
        assert "HKEYS" not in {command[0] for commands in sent for command in commands}
    assert sorted(found) == sorted({f"tenant-{i}" for i in range(count)} | {"tenant-1"})
    assert count > 1_000 or found == sorted(found)
    assert [each.name for each in await store.follow(store.operations.queues())] == sorted(found)


async def test_statistics_count_the_jobs_of_all_queues(desk, store):
    name_queues(desk, 3_000)
    await desk.submit(*"abc", queue="tenant-7")
    await desk.submit("d", queue="tenant-2999")
    (found,), sent = await walk(store, store.operations.stats())
    assert (found.states[State.QUEUED], found.totals["submitted"]) == (4, 4)
    assert max(map(len, sent)) <= 2_100
    assert await store.follow(queue_names.names(desk.base)) == sorted(f"tenant-{i}" for i in range(3_000))


async def test_a_job_for_one_queue_too_many_is_refused(desk, store):
    await desk.operate_queue("configure", "*", 0, "queues=4")
    await desk.submit("a", queue="known")  # with the settings of the namespace, two fields
    answers = [(await desk.submit(name, queue=name))[0] for name in ("one", "two", "three")]
    assert [getattr(answer, "created", answer) for answer in answers] == [
        True, True, "QUEUE_FULL queue three is new, and there are 4 queues, the most",
    ]  # fmt: skip
    assert not desk.raw.hexists(keys.queues(desk.base), "three")
    assert desk.counter("queue_full") == 1
    assert (await desk.submit("b", queue="known"))[0].created, "a known queue has no such limit"
    with pytest.raises(
        QueueFull, match=r"the most; .*: use fewer queues, or raise the limit \(sublet configure\)$"
    ):
        await store.submit([store.operations.submission("t", b"{}", "three", "")])
    await store.follow(store.operations.configure("*", queues=None))
    assert (await desk.submit("c", queue="three"))[0].created


async def test_the_queues_of_one_call_count_together(desk):
    await desk.operate_queue("configure", "*", 0, "queues=3")
    jobs = [Submission(f"j{i}", f"q{i // 2}", "t", "", b"{}") for i in range(8)]
    answers = await desk.run(verbs.submit(desk.base, jobs))
    assert [getattr(answer, "created", False) for answer in answers] == [True] * 4 + [False] * 4


async def test_a_hundred_thousand_queues_are_the_most_without_a_setting(desk):
    for start in range(0, 100_000, 10_000):
        desk.raw.hset(keys.queues(desk.base), mapping={f"t-{i}": "" for i in range(start, start + 10_000)})
    assert (await desk.submit("a", queue="new"))[0].startswith(
        "QUEUE_FULL queue new is new, and there are 100000 queues"
    )
    assert (await desk.submit("a", queue="t-5"))[0].created
