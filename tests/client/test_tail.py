"""The stream of moves and its listeners: nothing is missed, nothing comes twice, and many cost what one does."""

import asyncio
import contextlib

import pytest

from sublet import Invalid, Unavailable
from sublet.connection.settings import Settings
from sublet.model import State, Submission
from sublet.protocol import keys
from sublet.store import events
from sublet.store.events import NOTHING, Tail, show
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


async def all_after(listener, cursor, count=events.PAGE):
    """Everything after a place, page by page."""
    found, pages = [], 0
    while True:
        page = await listener.read(cursor, count)
        found, cursor, pages = found + page.moves, page.cursor, pages + 1
        assert len(page.moves) <= count
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
    listener = store.tail()
    begin = await listener.now()
    await submit(store, "a", "b")
    await store.claim(worker="w1", queues=["q"], n=2, lease=30)
    page = await listener.read(begin)
    assert [(move.jobs, move.state, move.code) for move in page.moves] == [
        (("0-a", "0-b"), State.QUEUED, "submitted"),
        (("0-a", "0-b"), State.RUNNING, "w1"),
    ]
    assert page.cursor == listener.cursor(page.moves[-1].id)
    assert not page.missed


async def test_every_id_is_a_place_to_go_on_from(store):
    ids, listener = await one_by_one(store, 7), store.tail()
    found, cursor, pages = await all_after(listener, listener.cursor("0"), 3)
    assert (jobs_of(found), pages) == (ids, 3)
    assert found[-1].id == show(cursor)
    for i, move in enumerate(found):
        rest, _, _ = await all_after(listener, listener.cursor(move.id), 2)
        assert jobs_of(rest) == ids[i + 1 :]


async def test_partitions_are_told_as_one_stream(place, raw):
    """Whichever of its ids a listener goes on from, it has seen exactly what comes before."""
    settings = Settings(place.settings.redis_url, place.settings.namespace, partitions=3)
    store = Store(settings, client=place.client(), blocking=place.client())
    listener = store.tail()
    for i in range(6):
        for queue in "abcd":
            await submit(store, f"{queue}{i}", queue=queue)
    found, _, _ = await all_after(listener, listener.cursor("0"), 5)
    ids = jobs_of(found)
    assert len(set(ids)) == len(ids) == 24
    assert len({id_[0] for id_ in ids}) > 1
    for i, move in enumerate(found):
        rest, _, _ = await all_after(listener, listener.cursor(move.id), 5)
        assert sorted(jobs_of(rest)) == sorted(ids[i + 1 :])
    page = await listener.read(await listener.now())
    for queue in "abcd":
        waiting = asyncio.create_task(listener.wait(page.heard, SECONDS))
        await asyncio.sleep(0)
        await submit(store, f"more-{queue}", queue=queue)
        assert await waiting
        page = await listener.read(page.cursor)
        while not page.moves:
            assert await listener.wait(page.heard, SECONDS)
            page = await listener.read(page.cursor)
        assert jobs_of(page.moves)[0].endswith(f"-more-{queue}")
    await store.aclose()


async def test_what_comes_between_the_look_and_the_wait_is_heard(store):
    """Also when the blocking read that another listener began knows of it already."""
    listener = store.tail()
    page = await listener.read(await listener.now())
    await submit(store, "a")
    assert await listener.wait(page.heard, SECONDS)
    other = await listener.read(page.cursor)
    while jobs_of(other.moves) != ["0-a"]:
        assert await listener.wait(other.heard, SECONDS)
        other = await listener.read(page.cursor)
    late = await listener.read(other.cursor)
    assert not await listener.wait(late.heard, 0.05)  # a reading is under way, from here
    await submit(store, "b")
    await until(lambda: listener.heard != late.heard)
    assert await listener.wait(late.heard, SECONDS)
    assert jobs_of((await listener.read(late.cursor)).moves) == ["0-b"]


async def test_a_read_that_is_older_than_the_news_is_not_shared(store):
    """Else a listener that was told of a move could be given a page from before it, and wait for the next one."""
    gate, answered = asyncio.Event(), []

    async def slowly(call):
        answer = await store.run(call)
        answered.append(call)
        await gate.wait()
        return answer

    listener = Tail(store.settings, slowly, store._blocking)
    begin = (NOTHING,)
    old = [asyncio.create_task(listener.read(begin)) for _ in range(3)]
    await until(lambda: answered)
    await submit(store, "a")
    assert await listener.wait(listener.heard, SECONDS)
    new = asyncio.create_task(listener.read(begin))
    await until(lambda: len(answered) == 2)
    gate.set()
    assert [page.moves for page in await asyncio.gather(*old)] == [[]] * 3
    assert jobs_of((await new).moves) == ["0-a"]
    await listener.aclose()


async def test_an_id_that_is_no_longer_kept_is_told(store, raw, base):
    ids, listener = await one_by_one(store, 6), store.tail()
    found, _, _ = await all_after(listener, listener.cursor("0"))
    raw.xtrim(keys.events(base), maxlen=3, approximate=False)
    lost = await listener.read(listener.cursor(found[1].id))
    assert (lost.missed, jobs_of(lost.moves)) == (True, ids[3:])
    kept = await listener.read(listener.cursor(found[3].id))
    assert (kept.missed, jobs_of(kept.moves)) == (False, ids[4:])
    assert not (await listener.read(lost.cursor)).missed  # once
    oldest = await listener.read(listener.cursor("0"))
    assert (oldest.missed, jobs_of(oldest.moves)) == (False, ids[3:])


async def test_who_was_there_before_the_first_move_is_told_as_well(store, raw, base):
    listener = store.tail()
    begin = await listener.now()
    assert begin == listener.cursor("0-0") == (await listener.read(listener.cursor("0"))).cursor
    ids = await one_by_one(store, 4)
    page = await listener.read(begin)
    assert (page.missed, jobs_of(page.moves)) == (False, ids)
    raw.xtrim(keys.events(base), maxlen=2, approximate=False)
    page = await listener.read(begin)
    assert (page.missed, jobs_of(page.moves)) == (True, ids[2:])


async def test_a_stream_that_began_anew_is_told_and_followed(store, raw, base):
    """Redis was flushed, or a failover lost the last moves: the listener's id is of the future."""
    await one_by_one(store, 2)
    listener = store.tail()
    ahead = listener.cursor("99999999999999-0")
    page = await listener.read(ahead)
    assert (page.missed, page.moves, page.cursor) == (True, [], await listener.now())
    raw.delete(keys.events(base))
    page = await listener.read(page.cursor)
    assert (page.missed, page.moves, page.cursor) == (True, [], (NOTHING,))
    await submit(store, "new")
    page = await listener.read(page.cursor)
    assert (page.missed, jobs_of(page.moves)) == (False, ["0-new"])


async def test_what_no_script_has_written_is_passed_over(store, raw, base):
    await submit(store, "a")
    good = {"jobs": "0-a", "state": "queued", "code": "x"}
    spoiled = [{"state": "queued\r\ndata: evil"}, {"jobs": "0-a\nid: 7"}, {"jobs": ""}, {"code": b"\xff"}]
    for change in spoiled:
        raw.xadd(keys.events(base), good | change)
    last = raw.xadd(keys.events(base), {"other": "words"})
    page = await store.tail().read(store.tail().cursor("0"))
    assert (jobs_of(page.moves), show(page.cursor)) == (["0-a"], last)


@pytest.mark.parametrize(
    "text",
    ["", "-", "x", "1", "1-", "-1", "1-1-1", "1-1,1-1", "0,0", "1-1\n", "\r\n", "+", "$", "(1-1", "1-18446744073709551616",
     "123456789012345678901-0", "१-१", "1 -1", "1-1," * 2000, "{sublet:0}/queue:q/3"],
)  # fmt: skip
async def test_what_can_be_no_id_is_refused(store, text):
    with pytest.raises(Invalid, match="event id"):
        store.tail().cursor(text)


async def test_the_largest_id_there_can_be_is_one(store):
    ahead = store.tail().cursor("18446744073709551615-18446744073709551615")
    assert (await store.tail().read(ahead)).cursor == (NOTHING,)


@pytest.mark.real_server
async def test_many_listeners_cost_one_blocking_read_and_shared_pages(store, raw):
    asked = []

    async def counted(call):
        asked.append(call)
        return await store.run(call)

    listener = Tail(store.settings, counted)
    begin = await listener.now()
    asked.clear()

    async def listen():
        page = await listener.read(begin)
        while not page.moves:
            assert await listener.wait(page.heard, SECONDS)
            page = await listener.read(page.cursor)
        return jobs_of(page.moves)

    before = len(raw.client_list())
    listening = [asyncio.create_task(listen()) for _ in range(300)]
    await until(lambda: reads_of(raw))
    assert len(reads_of(raw)) == 1
    assert len(raw.client_list()) <= before + 2
    await submit(store, "a")
    assert await asyncio.gather(*listening) == [["0-a"]] * 300
    assert len(asked) < 20
    await listener.aclose()


@pytest.mark.real_server
async def test_a_listener_that_goes_leaves_the_blocking_read_alone(store, raw):
    listener = store.tail()
    while await listener.wait(listener.heard, 0.05):
        pass  # where the stream stands is news to who has just come
    await until(lambda: reads_of(raw))
    (reading,) = reads_of(raw)
    going = asyncio.create_task(listener.wait(listener.heard, SECONDS))
    await asyncio.sleep(0)
    going.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await going
    heard = listener.heard
    assert [client["id"] for client in reads_of(raw)] == [reading["id"]]
    await submit(store, "a")
    await until(lambda: listener.heard != heard)  # it was heard, though nobody listened
    await until(lambda: not reads_of(raw))  # and nobody reads on


@pytest.mark.real_server
async def test_a_broken_connection_costs_a_moment(store, raw, monkeypatch):
    monkeypatch.setattr(events, "REST", 0.01)
    listener = store.tail()
    page = await listener.read(await listener.now())
    waiting = asyncio.create_task(listener.wait(page.heard, SECONDS))
    await until(lambda: reads_of(raw))
    raw.client_kill_filter(_id=reads_of(raw)[0]["id"])
    await submit(store, "a")
    assert await waiting
    found = await listener.read(page.cursor)
    while not found.moves:  # the first news may be where the stream stood when the reader came
        assert await listener.wait(found.heard, SECONDS)
        found = await listener.read(page.cursor)
    assert jobs_of(found.moves) == ["0-a"]


async def test_a_server_that_is_away_is_told_by_the_listeners_own_reads(monkeypatch):
    monkeypatch.setattr(events, "REST", 0.01)
    store = Store(Settings("redis://127.0.0.1:1", timeout=0.2))
    listener = store.tail()
    assert not await listener.wait(listener.heard, 0.1)
    for _ in range(2):  # a read that failed is not shared with those who come later
        with pytest.raises(Unavailable):
            await listener.read((NOTHING,))
    await store.aclose()


async def test_closing_tells_all_who_wait(store):
    listener = store.tail()
    page = await listener.read(await listener.now())
    while not page.heard:  # where the stream stands is news to who has just come
        await listener.wait(page.heard, SECONDS)
        page = await listener.read(page.cursor)
    waiting = [asyncio.create_task(listener.wait(page.heard, SECONDS)) for _ in range(3)]
    await asyncio.sleep(0.01)
    listener.close()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await listener.wait(listener.heard, SECONDS)
