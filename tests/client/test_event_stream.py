"""The stream of moves and its subscribers: nothing is missed, nothing comes twice, and many cost what one does."""

import asyncio
import contextlib

import pytest

from sublet import Invalid, Unavailable
from sublet.connection.settings import Settings
from sublet.model import State, Submission
from sublet.protocol import keys
from sublet.store import events
from sublet.store.events import NOTHING, EventStream, cursor_text
from sublet.store.store import Store

SECONDS = 20.0


def jobs_of(moves):
    return [job for move in moves for job in move.jobs]


async def submit(store, *ids, queue="q"):
    partition = int(store.operations.base_of_queue(queue).strip("{}").rpartition(":")[2])
    await store.submit([Submission(f"{partition}-{i}", queue, "t", "", b"{}") for i in ids])


async def one_by_one(store, n, queue="q"):
    for i in range(n):
        await submit(store, f"{queue}{i}", queue=queue)
    return [f"0-{queue}{i}" for i in range(n)]


async def all_after(subscriber, cursor, count=events.PAGE):
    """Everything after a place, page by page."""
    found, pages = [], 0
    while True:
        page = await subscriber.read(cursor, count)
        found, cursor, pages = found + page.events, page.cursor, pages + 1
        assert len(page.events) <= count
        assert not page.missed
        if not page.more:
            return found, cursor, pages


def reads_of(raw):
    return [client for client in raw.client_list() if client["cmd"] == "xread" and "b" in client["flags"]]


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_listener_gets_every_move_with_its_reason(store):
    subscriber = store.event_stream()
    begin = await subscriber.now()
    await submit(store, "a", "b")
    await store.claim(worker="w1", queues=["q"], n=2, lease=30)
    page = await subscriber.read(begin)
    assert [(move.jobs, move.state, move.code) for move in page.events] == [
        (("0-a", "0-b"), State.QUEUED, "submitted"),
        (("0-a", "0-b"), State.RUNNING, "w1"),
    ]
    assert page.cursor == subscriber.cursor(page.events[-1].id)
    assert not page.missed


async def test_every_id_is_a_place_to_go_on_from(store):
    ids, subscriber = await one_by_one(store, 7), store.event_stream()
    found, cursor, pages = await all_after(subscriber, subscriber.cursor("0"), 3)
    assert (jobs_of(found), pages) == (ids, 3)
    assert found[-1].id == cursor_text(cursor)
    for i, move in enumerate(found):
        rest, _, _ = await all_after(subscriber, subscriber.cursor(move.id), 2)
        assert jobs_of(rest) == ids[i + 1 :]


async def test_partitions_are_told_as_one_stream(place, raw):
    """Whichever of its ids a subscriber goes on from, it has seen exactly what comes before."""
    settings = Settings(place.settings.redis_url, place.settings.namespace, partitions=3)
    store = Store(settings, client=place.client(), blocking=place.client())
    subscriber = store.event_stream()
    for i in range(6):
        for queue in "abcd":
            await submit(store, f"{queue}{i}", queue=queue)
    found, _, _ = await all_after(subscriber, subscriber.cursor("0"), 5)
    ids = jobs_of(found)
    assert len(set(ids)) == len(ids) == 24
    assert len({id_[0] for id_ in ids}) > 1
    for i, move in enumerate(found):
        rest, _, _ = await all_after(subscriber, subscriber.cursor(move.id), 5)
        assert sorted(jobs_of(rest)) == sorted(ids[i + 1 :])
    page = await subscriber.read(await subscriber.now())
    for queue in "abcd":
        waiting = asyncio.create_task(subscriber.wait(page.version, SECONDS))
        await asyncio.sleep(0)
        await submit(store, f"more-{queue}", queue=queue)
        assert await waiting
        page = await subscriber.read(page.cursor)
        while not page.events:
            assert await subscriber.wait(page.version, SECONDS)
            page = await subscriber.read(page.cursor)
        assert jobs_of(page.events)[0].endswith(f"-more-{queue}")
    await store.aclose()


async def test_what_comes_between_the_look_and_the_wait_is_heard(store):
    """Also when the blocking read that another subscriber began knows of it already."""
    subscriber = store.event_stream()
    page = await subscriber.read(await subscriber.now())
    await submit(store, "a")
    assert await subscriber.wait(page.version, SECONDS)
    other = await subscriber.read(page.cursor)
    while jobs_of(other.events) != ["0-a"]:
        assert await subscriber.wait(other.version, SECONDS)
        other = await subscriber.read(page.cursor)
    late = await subscriber.read(other.cursor)
    assert not await subscriber.wait(late.version, 0.05)  # a reading is under way, from here
    await submit(store, "b")
    await until(lambda: subscriber.version != late.version)
    assert await subscriber.wait(late.version, SECONDS)
    assert jobs_of((await subscriber.read(late.cursor)).events) == ["0-b"]


async def test_a_read_that_is_older_than_the_news_is_not_shared(store):
    """Else a subscriber that was told of a move could be given a page from before it, and wait for the next one."""
    gate, answered = asyncio.Event(), []

    async def slowly(call):
        answer = await store.run(call)
        answered.append(call)
        await gate.wait()
        return answer

    subscriber = EventStream(store.settings, slowly, store._blocking)
    begin = (NOTHING,)
    old = [asyncio.create_task(subscriber.read(begin)) for _ in range(3)]
    await until(lambda: answered)
    await submit(store, "a")
    assert await subscriber.wait(subscriber.version, SECONDS)
    new = asyncio.create_task(subscriber.read(begin))
    await until(lambda: len(answered) == 2)
    gate.set()
    assert [page.events for page in await asyncio.gather(*old)] == [[]] * 3
    assert jobs_of((await new).events) == ["0-a"]
    await subscriber.aclose()


async def test_an_id_that_is_no_longer_kept_is_told(store, raw, base):
    ids, subscriber = await one_by_one(store, 6), store.event_stream()
    found, _, _ = await all_after(subscriber, subscriber.cursor("0"))
    raw.xtrim(keys.events(base), maxlen=3, approximate=False)
    lost = await subscriber.read(subscriber.cursor(found[1].id))
    assert (lost.missed, jobs_of(lost.events)) == (True, ids[3:])
    kept = await subscriber.read(subscriber.cursor(found[3].id))
    assert (kept.missed, jobs_of(kept.events)) == (False, ids[4:])
    assert not (await subscriber.read(lost.cursor)).missed  # once
    oldest = await subscriber.read(subscriber.cursor("0"))
    assert (oldest.missed, jobs_of(oldest.events)) == (False, ids[3:])


async def test_who_was_there_before_the_first_move_is_told_as_well(store, raw, base):
    subscriber = store.event_stream()
    begin = await subscriber.now()
    assert begin == subscriber.cursor("0-0") == (await subscriber.read(subscriber.cursor("0"))).cursor
    ids = await one_by_one(store, 4)
    page = await subscriber.read(begin)
    assert (page.missed, jobs_of(page.events)) == (False, ids)
    raw.xtrim(keys.events(base), maxlen=2, approximate=False)
    page = await subscriber.read(begin)
    assert (page.missed, jobs_of(page.events)) == (True, ids[2:])


async def test_a_stream_that_began_anew_is_told_and_followed(store, raw, base):
    """Redis was flushed, or a failover lost the last moves: the subscriber's id is of the future."""
    await one_by_one(store, 2)
    subscriber = store.event_stream()
    ahead = subscriber.cursor("99999999999999-0")
    page = await subscriber.read(ahead)
    assert (page.missed, page.events, page.cursor) == (True, [], await subscriber.now())
    raw.delete(keys.events(base))
    page = await subscriber.read(page.cursor)
    assert (page.missed, page.events, page.cursor) == (True, [], (NOTHING,))
    await submit(store, "new")
    page = await subscriber.read(page.cursor)
    assert (page.missed, jobs_of(page.events)) == (False, ["0-new"])


async def test_what_no_script_has_written_is_passed_over(store, raw, base):
    await submit(store, "a")
    good = {"jobs": "0-a", "state": "queued", "code": "x"}
    spoiled = [{"state": "queued\r\ndata: evil"}, {"jobs": "0-a\nid: 7"}, {"jobs": ""}, {"code": b"\xff"}]
    for change in spoiled:
        raw.xadd(keys.events(base), good | change)
    last = raw.xadd(keys.events(base), {"other": "words"})
    page = await store.event_stream().read(store.event_stream().cursor("0"))
    assert (jobs_of(page.events), cursor_text(page.cursor)) == (["0-a"], last)


@pytest.mark.parametrize(
    "text",
    ["", "-", "x", "1", "1-", "-1", "1-1-1", "1-1,1-1", "0,0", "1-1\n", "\r\n", "+", "$", "(1-1", "1-18446744073709551616",
     "123456789012345678901-0", "१-१", "1 -1", "1-1," * 2000, "{sublet:0}/queue:q/3"],
)  # fmt: skip
async def test_what_can_be_no_id_is_refused(store, text):
    with pytest.raises(Invalid, match="event id"):
        store.event_stream().cursor(text)


async def test_the_largest_id_there_can_be_is_one(store):
    ahead = store.event_stream().cursor("18446744073709551615-18446744073709551615")
    assert (await store.event_stream().read(ahead)).cursor == (NOTHING,)


@pytest.mark.real_server
async def test_many_listeners_cost_one_blocking_read_and_shared_pages(store, raw):
    asked = []

    async def counted(call):
        asked.append(call)
        return await store.run(call)

    subscriber = EventStream(store.settings, counted)
    begin = await subscriber.now()
    asked.clear()

    async def listen():
        page = await subscriber.read(begin)
        while not page.events:
            assert await subscriber.wait(page.version, SECONDS)
            page = await subscriber.read(page.cursor)
        return jobs_of(page.events)

    before = len(raw.client_list())
    listening = [asyncio.create_task(listen()) for _ in range(300)]
    await until(lambda: reads_of(raw))
    assert len(reads_of(raw)) == 1
    assert len(raw.client_list()) <= before + 2
    await submit(store, "a")
    assert await asyncio.gather(*listening) == [["0-a"]] * 300
    assert len(asked) < 20
    await subscriber.aclose()


@pytest.mark.real_server
async def test_a_listener_that_goes_leaves_the_blocking_read_alone(store, raw):
    subscriber = store.event_stream()
    while await subscriber.wait(subscriber.version, 0.05):
        pass  # where the stream stands is news to who has just come
    await until(lambda: reads_of(raw))
    (reading,) = reads_of(raw)
    going = asyncio.create_task(subscriber.wait(subscriber.version, SECONDS))
    await asyncio.sleep(0)
    going.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await going
    heard = subscriber.version
    assert [client["id"] for client in reads_of(raw)] == [reading["id"]]
    await submit(store, "a")
    await until(lambda: subscriber.version != heard)  # it was heard, though nobody listened
    await until(lambda: not reads_of(raw))  # and nobody reads on


@pytest.mark.real_server
async def test_a_broken_connection_costs_a_moment(store, raw, monkeypatch):
    monkeypatch.setattr(events, "REST", 0.01)
    subscriber = store.event_stream()
    page = await subscriber.read(await subscriber.now())
    waiting = asyncio.create_task(subscriber.wait(page.version, SECONDS))
    await until(lambda: reads_of(raw))
    raw.client_kill_filter(_id=reads_of(raw)[0]["id"])
    await submit(store, "a")
    assert await waiting
    found = await subscriber.read(page.cursor)
    while not found.events:  # the first news may be where the stream stood when the reader came
        assert await subscriber.wait(found.version, SECONDS)
        found = await subscriber.read(page.cursor)
    assert jobs_of(found.events) == ["0-a"]


async def test_a_server_that_is_away_is_told_by_the_listeners_own_reads(monkeypatch):
    monkeypatch.setattr(events, "REST", 0.01)
    store = Store(Settings("redis://127.0.0.1:1", timeout=0.2))
    subscriber = store.event_stream()
    assert not await subscriber.wait(subscriber.version, 0.1)
    for _ in range(2):  # a read that failed is not shared with those who come later
        with pytest.raises(Unavailable):
            await subscriber.read((NOTHING,))
    await store.aclose()


async def test_closing_tells_all_who_wait(store):
    subscriber = store.event_stream()
    page = await subscriber.read(await subscriber.now())
    while not page.version:  # where the stream stands is news to who has just come
        await subscriber.wait(page.version, SECONDS)
        page = await subscriber.read(page.cursor)
    waiting = [asyncio.create_task(subscriber.wait(page.version, SECONDS)) for _ in range(3)]
    await asyncio.sleep(0.01)
    subscriber.close()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await subscriber.wait(subscriber.version, SECONDS)
