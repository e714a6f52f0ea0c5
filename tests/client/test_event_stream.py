"""The event stream and its subscribers: no event is missed or repeated, and many subscribers cost as much as
one."""

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
    """Everything after a cursor, page by page."""
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


@pytest.mark.real_server
@pytest.mark.parametrize("begins", ["before", "after"])
async def test_a_hurried_subscriber_does_not_wait(store, begins):
    """Also one that asks for the stream after the hurry."""
    if begins == "before":
        subscriber = store.event_stream()
        assert await subscriber.wait(subscriber.version, SECONDS)  # it has looked
        waiting = asyncio.create_task(subscriber.wait(subscriber.version, 600))
        await until(lambda: subscriber._waiting)
        store.hurry()
    else:
        store.hurry()
        subscriber = store.event_stream()
        waiting = asyncio.create_task(subscriber.wait(subscriber.version, 600))
    async with asyncio.timeout(SECONDS):
        assert await waiting
        assert await subscriber.wait(subscriber.version, 600)
    assert subscriber.closed
    assert (await subscriber.read(await subscriber.now())).events == []


async def test_a_subscriber_gets_every_event_with_its_reason(store):
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


async def test_every_id_is_a_valid_cursor(store):
    ids, subscriber = await one_by_one(store, 7), store.event_stream()
    found, cursor, pages = await all_after(subscriber, subscriber.cursor("0"), 3)
    assert (jobs_of(found), pages) == (ids, 3)
    assert found[-1].id == cursor_text(cursor)
    for i, move in enumerate(found):
        rest, _, _ = await all_after(subscriber, subscriber.cursor(move.id), 2)
        assert jobs_of(rest) == ids[i + 1 :]


async def test_partitions_are_read_as_one_stream(place, raw):
    """From any of its ids a subscriber has read exactly the events before."""
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


async def test_an_event_between_the_read_and_the_wait_is_not_missed(store):
    """Also when the blocking read of another subscriber has returned it already."""
    subscriber = store.event_stream()
    page = await subscriber.read(await subscriber.now())
    await submit(store, "a")
    assert await subscriber.wait(page.version, SECONDS)
    other = await subscriber.read(page.cursor)
    while jobs_of(other.events) != ["0-a"]:
        assert await subscriber.wait(other.version, SECONDS)
        other = await subscriber.read(page.cursor)
    late = await subscriber.read(other.cursor)
    assert not await subscriber.wait(late.version, 0.05)  # a read is under way, from here
    await submit(store, "b")
    await until(lambda: subscriber.version != late.version)
    assert await subscriber.wait(late.version, SECONDS)
    assert jobs_of((await subscriber.read(late.cursor)).events) == ["0-b"]


async def test_a_read_from_before_an_event_is_not_shared_after_it(store):
    """Otherwise a subscriber that was woken could get a page from before the event, and wait for the next one."""
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


async def test_a_trimmed_id_is_reported_as_missed_events(store, raw, base):
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


async def test_a_subscriber_from_before_the_first_event_learns_of_missed_events(store, raw, base):
    subscriber = store.event_stream()
    begin = await subscriber.now()
    assert begin == subscriber.cursor("0-0") == (await subscriber.read(subscriber.cursor("0"))).cursor
    ids = await one_by_one(store, 4)
    page = await subscriber.read(begin)
    assert (page.missed, jobs_of(page.events)) == (False, ids)
    raw.xtrim(keys.events(base), maxlen=2, approximate=False)
    page = await subscriber.read(begin)
    assert (page.missed, jobs_of(page.events)) == (True, ids[2:])


async def test_a_recreated_stream_is_reported_and_followed(store, raw, base):
    """Redis was flushed, or a failover lost the last events: the subscriber's id is in the future."""
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


async def test_foreign_entries_are_skipped(store, raw, base):
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
async def test_an_invalid_cursor_is_refused(store, text):
    with pytest.raises(Invalid, match="event id"):
        store.event_stream().cursor(text)


async def test_the_largest_id_is_valid(store):
    ahead = store.event_stream().cursor("18446744073709551615-18446744073709551615")
    assert (await store.event_stream().read(ahead)).cursor == (NOTHING,)


@pytest.mark.real_server
async def test_many_subscribers_share_one_blocking_read_and_pages(store, raw):
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
async def test_later_events_come_together_if_all_subscribers_accept_it(store, raw):
    subscriber = store.event_stream()
    page = await subscriber.read(await subscriber.now())
    while await subscriber.wait(subscriber.version, 0.05):
        pass  # the first read of the position counts as news
    first = asyncio.create_task(subscriber.wait(subscriber.version, SECONDS, 600))
    await until(lambda: reads_of(raw))
    await submit(store, "a")
    assert await first, "the first event comes at once"
    await submit(store, "b")
    await submit(store, "c")
    patient = asyncio.create_task(subscriber.wait(subscriber.version, SECONDS, 600))
    for _ in range(3):
        await raw_turn(store)
    assert not patient.done()
    assert reads_of(raw) == [], "and nothing is read meanwhile"
    assert await subscriber.wait(subscriber.version, SECONDS), "until one comes that does not accept it"
    assert await patient
    assert jobs_of((await subscriber.read(page.cursor)).events) == ["0-a", "0-b", "0-c"]


async def raw_turn(store):
    """A round trip, in which other tasks run."""
    await store.run(events.entries_after(store.operations.bases[0], NOTHING, 1))


async def test_a_read_after_a_stored_event_is_one_command(store):
    sent = []

    async def counted(call):
        sent.extend(command[0] for command in call.commands)
        return await store.run(call)

    subscriber = EventStream(store.settings, counted, store._blocking)
    await submit(store, "a")
    page = await subscriber.read(await subscriber.now())
    sent.clear()
    await submit(store, "b")
    assert jobs_of((await subscriber.read(page.cursor)).events) == ["0-b"]
    assert sent == ["XRANGE"]
    await subscriber.aclose()


@pytest.mark.real_server
async def test_a_cancelled_subscriber_does_not_cancel_the_blocking_read(store, raw):
    subscriber = store.event_stream()
    while await subscriber.wait(subscriber.version, 0.05):
        pass  # the first read of the position counts as news
    await until(lambda: reads_of(raw))
    (reading,) = reads_of(raw)
    going = asyncio.create_task(subscriber.wait(subscriber.version, SECONDS))
    await asyncio.sleep(0)
    going.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await going
    version = subscriber.version
    assert [client["id"] for client in reads_of(raw)] == [reading["id"]]
    await submit(store, "a")
    await until(lambda: subscriber.version != version)  # it was read, without subscribers
    await until(lambda: not reads_of(raw))  # and the reading has stopped


@pytest.mark.real_server
async def test_reading_continues_after_a_broken_connection(store, raw, monkeypatch):
    monkeypatch.setattr(events, "REST", 0.01)
    subscriber = store.event_stream()
    page = await subscriber.read(await subscriber.now())
    waiting = asyncio.create_task(subscriber.wait(page.version, SECONDS))
    await until(lambda: reads_of(raw))
    raw.client_kill_filter(_id=reads_of(raw)[0]["id"])
    await submit(store, "a")
    assert await waiting
    found = await subscriber.read(page.cursor)
    while not found.events:  # the first news may be the position of the stream at the start of the reader
        assert await subscriber.wait(found.version, SECONDS)
        found = await subscriber.read(page.cursor)
    assert jobs_of(found.events) == ["0-a"]


async def test_an_unavailable_server_raises_in_the_subscribers_own_reads(monkeypatch):
    monkeypatch.setattr(events, "REST", 0.01)
    store = Store(Settings("redis://127.0.0.1:1", timeout=0.2))
    subscriber = store.event_stream()
    assert not await subscriber.wait(subscriber.version, 0.1)
    for _ in range(2):  # a read that failed is not shared with later subscribers
        with pytest.raises(Unavailable):
            await subscriber.read((NOTHING,))
    await store.aclose()


async def test_closing_ends_all_waits(store):
    subscriber = store.event_stream()
    page = await subscriber.read(await subscriber.now())
    while not page.version:  # the first read of the position counts as news
        await subscriber.wait(page.version, SECONDS)
        page = await subscriber.read(page.cursor)
    waiting = [asyncio.create_task(subscriber.wait(page.version, SECONDS)) for _ in range(3)]
    await asyncio.sleep(0.01)
    subscriber.close()
    assert await asyncio.gather(*waiting) == [True] * 3
    assert await subscriber.wait(subscriber.version, SECONDS)


async def test_a_subscriber_is_woken_when_reads_fail_and_when_they_succeed_again(store, monkeypatch):
    monkeypatch.setattr(events, "REST", 0.01)
    subscriber, is_broken = store.event_stream(), True
    real = events._send

    def send(line, *commands):
        if not is_broken:
            return real(line, *commands)
        failed = asyncio.get_running_loop().create_future()
        failed.set_result(ConnectionError("gone"))
        return [failed for _ in commands]

    monkeypatch.setattr(events, "_send", send)
    assert await subscriber.wait(subscriber.version, SECONDS, failing=False)
    assert subscriber.is_failing
    assert not await subscriber.wait(subscriber.version, 0.05, failing=True)
    is_broken = False
    assert await subscriber.wait(subscriber.version, SECONDS, failing=True)
    await until(lambda: not subscriber.is_failing)
