"""`GET /events`: pages and streams with the same ids; no event is missing, and none occurs twice."""

import asyncio
import json
import re
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet import Unavailable
from sublet.connection.settings import Settings
from sublet.model import State, Submission
from sublet.protocol import keys
from sublet.store import events as tails
from sublet.store.events import EventPage, JobEvent
from sublet.store.store import Store
from sublet_functions.handlers import events as module
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.events import events
from sublet_functions.http.auth import Principal
from sublet_functions.http.problems import Problem
from sublet_functions.http.request import Request
from sublet_functions.schemas.query import Empty, EventsQuery
from sublet_functions.schemas.responses import EventsPage

SECONDS = 20.0


@pytest.fixture
def ask(store):
    """Send a request directly to the handler."""

    async def ask(headers=None, **query):
        request = Request("GET", "/events", headers=headers or {})
        return await events(
            Call(
                store,
                Principal("reader", frozenset()),
                request,
                Empty(),
                EventsQuery.model_validate(query),
                {},
            )
        )

    return ask


@pytest.fixture
def page(ask):
    async def page(**query):
        reply = await ask(**query)
        assert (reply.status, reply.headers["Content-Type"]) == (200, "application/json")
        return EventsPage.model_validate_json(reply.body, strict=True)

    return page


@pytest.fixture
def listen(ask):
    """Open a stream."""

    async def listen(last_id="", **query):
        headers = {"accept": "text/event-stream", "last-event-id": last_id}
        reply = await ask(headers, **query)
        assert (reply.status, reply.headers["Content-Type"]) == (200, "text/event-stream")
        return reply.body

    return listen


async def submit(store, *ids):
    await store.submit([Submission(f"0-{i}", "q", "t", "", b"{}") for i in ids])


async def one_by_one(store, n, first=0):
    for i in range(first, first + n):
        await submit(store, i)
    return [f"0-{i}" for i in range(first, first + n)]


class Reader:
    """Parses a stream by the standard (WHATWG HTML, 9.2.6), independently of the writer."""

    def __init__(self):
        self.events, self.last_id, self.retry, self.comments = [], "", None, 0
        self._text = ""

    def feed(self, piece):
        *blocks, self._text = re.split(r"(?:\r\n|\n|\r){2}", self._text + piece.decode())
        for block in blocks:
            self._block(block)

    def _block(self, block):
        name, data = "message", []
        for line in re.split(r"\r\n|\n|\r", block):
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "":
                self.comments += 1
            elif field == "id":
                self.last_id = value
            elif field == "event":
                name = value
            elif field == "data":
                data.append(value)
            elif field == "retry":
                self.retry = int(value)
            else:
                raise AssertionError(f"no such field: {line!r}")
        if data:
            self.events.append((self.last_id, name, json.loads("\n".join(data))))

    @property
    def jobs(self):
        return [job for _, name, data in self.events if name != "missed" for job in data["jobs"]]


async def take(stream, reader, n):
    """Read on until the reader has `n` events."""
    async with asyncio.timeout(SECONDS):
        while len(reader.events) < n:
            reader.feed(await anext(stream))


async def to_the_end(stream, reader):
    async with asyncio.timeout(SECONDS):
        async for piece in stream:
            reader.feed(piece)


# pages


async def test_a_page_lists_the_jobs_time_state_and_code_of_each_event(store, page):
    await submit(store, "a", "b")
    before = datetime.now().astimezone()
    await store.claim(worker="w1", queues=["q"], n=2, lease=30)
    found = await page(after="0")
    assert [(e.jobs, e.state, e.code) for e in found.events] == [
        (["0-a", "0-b"], State.QUEUED, "submitted"),
        (["0-a", "0-b"], State.RUNNING, "w1"),
    ]
    assert abs((found.events[1].at - before).total_seconds()) < SECONDS
    assert found.cursor == found.events[-1].id
    assert not found.missed


async def test_without_an_id_a_page_begins_now(store, page):
    await submit(store, "a")
    begin = await page()
    assert begin.events == []
    await submit(store, "b")
    assert [e.jobs for e in (await page(after=begin.cursor)).events] == [["0-b"]]
    assert [e.jobs for e in (await page(after=begin.cursor)).events] == [["0-b"]]  # two requests, two replies


async def test_pages_follow_one_another_without_gap_or_repeat(store, page):
    ids, cursor, found = await one_by_one(store, 11), "0", []
    for _ in range(4):
        some = await page(after=cursor, limit=3)
        cursor = some.cursor
        found += [job for event in some.events for job in event.jobs]
    assert found == ids
    assert (await page(after=cursor)).cursor == cursor


async def test_a_page_waits_for_the_first_event(store, page):
    begin = await page()
    waiting = asyncio.create_task(page(after=begin.cursor, wait=20))
    await asyncio.sleep(0.05)
    await submit(store, "a")
    assert [e.jobs for e in (await waiting).events] == [["0-a"]]
    assert (await page(wait=0.05)).events == []


async def test_a_page_can_be_filtered_by_job_or_state(store, page, monkeypatch):
    monkeypatch.setattr(module, "PAGE", 4)
    await one_by_one(store, 10)
    await store.claim(worker="w", queues=["q"], n=1, lease=30)
    found = await page(after="0", job="0-9")
    assert [e.jobs for e in found.events] == [["0-9"]]
    found = await page(after="0", state="running")
    assert [(e.jobs, e.code) for e in found.events] == [(["0-0"], "w")]
    assert (await page(after=found.cursor, state="running")).events == []
    some = await page(after="0", state="queued", limit=3)
    more = await page(after=some.cursor, state="queued", limit=3)
    assert [e.jobs[0] for e in some.events + more.events][:4] == ["0-0", "0-1", "0-2", "0-3"]
    waiting = asyncio.create_task(page(job="0-1", state="running", wait=20))
    await asyncio.sleep(0.05)
    await submit(store, "other")
    await store.claim(worker="w", queues=["q"], n=1, lease=30)
    assert [e.jobs for e in (await waiting).events] == [["0-1"]]


async def test_a_page_reports_trimmed_events(store, page, raw, base):
    await one_by_one(store, 6)
    first = (await page(after="0")).events[0].id
    raw.xtrim(keys.events(base), maxlen=2, approximate=False)
    found = await page(after=first)
    assert (found.missed, [e.jobs for e in found.events]) == (True, [["0-4"], ["0-5"]])
    assert not (await page(after=found.cursor)).missed
    gone = await page(after="99999999999999-0", wait=20)
    assert (gone.missed, gone.events, gone.cursor) == (True, [], found.cursor)


@pytest.mark.parametrize("bad", ["x", "1-1\r\nid: 2", "1-1,1-1", "18446744073709551616-0", "-"])
async def test_an_invalid_id_is_refused_with_its_position(ask, bad):
    for headers, error in (
        ({}, ("parameter", "after")),
        ({"last-event-id": bad}, ("header", "Last-Event-ID")),
    ):
        with pytest.raises(Problem) as refused:
            await ask(headers, after=bad)
        assert refused.value.response().status == 422
        assert [next(iter(each.items())) for each in refused.value.document()["errors"]] == [error]


@pytest.mark.parametrize(
    "bad",
    [{"limit": 0}, {"limit": 501}, {"wait": 21}, {"state": "lost"}, {"job": "a b"}, {"after": "1" * 5000}],
)
def test_an_invalid_query_is_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        EventsQuery.model_validate(bad)


# streams


async def test_a_stream_sends_old_and_new_events_with_their_ids(store, listen):
    ids, reader = await one_by_one(store, 3), Reader()
    stream = await listen(after="0")
    await take(stream, reader, 3)
    await submit(store, "new", "newer")
    await take(stream, reader, 4)
    assert reader.jobs == [*ids, "0-new", "0-newer"]
    assert reader.retry == 2000
    assert {name for _, name, _ in reader.events} == {"queued"}
    assert all(data["id"] == id_ for id_, _, data in reader.events)
    assert set(reader.events[0][2]) == {"id", "at", "jobs", "state", "code"}
    await stream.aclose()


async def test_a_stream_resumes_where_the_last_one_broke(store, listen, page):
    """A stream resumes after any event, and the header wins over the query, which a browser sends unchanged."""
    ids, reader = await one_by_one(store, 5), Reader()
    for i in range(5):
        stream = await listen(last_id=reader.last_id, after="0")
        last = Reader()
        await take(stream, last, 1)  # more may have been sent and lost
        first_id, *first = last.events[0]
        reader.events.append((first_id, *first))
        reader.last_id = first_id
        assert reader.jobs == ids[: i + 1]
        await stream.aclose()
    assert (await page(after=reader.last_id)).events == []


async def test_a_stream_that_breaks_before_its_first_event_misses_nothing(store, listen):
    reader = Reader()
    stream = await listen()
    reader.feed(await anext(stream))
    await stream.aclose()
    assert reader.last_id
    assert reader.events == []
    ids = await one_by_one(store, 2)
    await take(await listen(last_id=reader.last_id), reader, 2)
    assert reader.jobs == ids


async def test_a_stream_reports_trimmed_events_and_continues(store, listen, raw, base):
    await one_by_one(store, 6)
    reader = Reader()
    await take(await listen(after="0"), reader, 6)
    raw.xtrim(keys.events(base), maxlen=2, approximate=False)
    late = Reader()
    stream = await listen(last_id=reader.events[0][0])
    await take(stream, late, 3)
    await submit(store, "new")
    await take(stream, late, 4)
    assert [name for _, name, _ in late.events] == ["missed", "queued", "queued", "queued"]
    assert late.jobs == ["0-4", "0-5", "0-new"]
    ahead = Reader()
    stream = await listen(last_id="99999999999999-0")
    await take(stream, ahead, 1)
    assert (ahead.events[0][1], ahead.last_id) == ("missed", late.last_id)


async def test_an_idle_stream_sends_keepalives_with_its_position(store, listen, page, monkeypatch):
    monkeypatch.setattr(module, "KEEP_ALIVE", 0.05)
    reader = Reader()
    stream = await listen(after="0", state="dead")
    await one_by_one(store, 3)
    here = (await page()).cursor
    async with asyncio.timeout(SECONDS):
        while reader.last_id != here:
            reader.feed(await anext(stream))
    assert reader.comments
    assert reader.events == []


async def test_a_stream_ends_after_some_minutes_with_its_position(store, listen, page, monkeypatch):
    monkeypatch.setattr(module, "STREAM_SECONDS", 0.05)
    reader = Reader()
    stream = await listen(after="0", job="0-none")
    await one_by_one(store, 3)
    await to_the_end(stream, reader)
    assert reader.last_id in ("0-0", (await page()).cursor)


async def test_streams_and_pages_end_when_the_server_stops(store, listen, page):
    stream, reader = await listen(), Reader()
    ending = asyncio.create_task(to_the_end(stream, reader))
    waiting = asyncio.create_task(page(wait=20))
    await asyncio.sleep(0.05)
    store.event_stream().close()
    await ending
    assert (await waiting).events == []
    await to_the_end(await listen(), reader)


async def test_the_number_of_streams_of_a_process_is_limited(store, listen, ask, monkeypatch):
    monkeypatch.setattr(module, "STREAMS_MAX", 2)
    first = await listen()
    second = await listen()
    await anext(first)
    with pytest.raises(Problem) as refused:
        await listen()
    reply = refused.value.response()
    assert (reply.status, int(reply.headers["Retry-After"]) > 0) == (503, True)
    assert (await ask()).status == 200  # a page is not a stream
    await first.aclose()
    del first
    third = await listen()
    await anext(third)
    del second  # the client had hung up, so it was not read
    assert await listen()


async def test_subscribers_at_the_same_position_share_one_page(store, listen, monkeypatch):
    """Each event is read and encoded once, though each subscriber has its own pace; old events are not sent."""
    monkeypatch.setattr(module, "STREAM_PAGE", 4)
    monkeypatch.setattr(tails, "KEPT_SECONDS", SECONDS)
    made, kept = [], store.event_stream()._kept
    make = module._encode_events
    monkeypatch.setattr(
        module, "_encode_events", lambda page, query: made.append(len(page.events)) or make(page, query)
    )
    ids = await one_by_one(store, 12)
    for query in ({}, {}, {"state": "queued"}):
        reader, stream = Reader(), await listen(after="0", **query)
        await take(stream, reader, 12)
        assert reader.jobs == ids
        await stream.aclose()
    assert [n for n in made if n] == [4] * 6  # the filtered one encodes its own
    kept.clear()
    monkeypatch.setattr(tails, "KEPT_SECONDS", 0.05)
    await take(await listen(after="0"), Reader(), 12)
    async with asyncio.timeout(SECONDS):
        while kept:
            await asyncio.sleep(0.02)


async def test_many_subscribers_do_not_block_other_tasks(store, listen, monkeypatch):
    """After sending to a few subscribers, other tasks get a turn."""
    streams = [await listen() for _ in range(40)]
    for stream in streams:
        await anext(stream)
    shown, turn, tell = [], 0, module._encode_page
    monkeypatch.setattr(module, "_encode_page", lambda page, query: shown.append(turn) or tell(page, query))
    hearing = [asyncio.ensure_future(anext(stream)) for stream in streams]
    submitting = asyncio.create_task(submit(store, "a"))
    async with asyncio.timeout(SECONDS):
        while not all(one.done() for one in (submitting, *hearing)):
            turn += 1
            await asyncio.sleep(0)
    assert len(shown) >= len(streams)
    assert max(map(shown.count, set(shown))) <= 2 * tails.TURNS
    for stream in streams:
        await stream.aclose()


async def test_a_stream_outlives_an_outage(store, listen, monkeypatch):
    """A browser does not reconnect after a 503."""
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(module, "KEEP_ALIVE", 0.02)
    subscriber, reader = store.event_stream(), Reader()
    stream = await listen()
    reader.feed(await anext(stream))
    read, failures = subscriber.read, []

    async def fail(*args):
        failures.append(args)
        raise Unavailable("away")

    monkeypatch.setattr(subscriber, "read", fail)
    await submit(store, "a")
    async with asyncio.timeout(SECONDS):
        while len(failures) < 3:
            reader.feed(await anext(stream))
    assert reader.events == []
    monkeypatch.setattr(subscriber, "read", read)
    await take(stream, reader, 1)
    assert reader.jobs == ["0-a"]
    await stream.aclose()


async def test_a_stream_is_refused_without_redis(monkeypatch):
    store = Store(Settings("redis://127.0.0.1:1", timeout=0.2))
    request = Request("GET", "/events", headers={"accept": "text/event-stream"})
    with pytest.raises(Unavailable):
        await events(
            Call(store, Principal("reader", frozenset()), request, Empty(), EventsQuery(after="0"), {})
        )
    await store.aclose()


TEXT = st.text(max_size=40)


@given(
    moves=st.lists(st.tuples(st.lists(TEXT, max_size=3), st.sampled_from(State), TEXT), max_size=3),
    missed=st.booleans(),
)
def test_no_text_can_break_the_frame_of_a_stream(moves, missed):
    """Even events that no Sublet script would write are passed on unchanged."""
    shown = [
        JobEvent(f"1-{i}", 1_700_000_000_000, tuple(jobs), state, code)
        for i, (jobs, state, code) in enumerate(moves)
    ]
    page, reader = EventPage(shown, ((0, 5),), ((1, 9),), missed, False, 1), Reader()
    reader.feed(module._encode_page(page, EventsQuery()))
    assert reader._text == ""
    assert (reader.comments, reader.retry) == (0, None)
    if missed:
        assert reader.events.pop(0) == ("0-5", "missed", {"cursor": "0-5"})
    found = [(id_, name, tuple(data["jobs"]), data["code"]) for id_, name, data in reader.events]
    assert found == [(move.id, move.state.value, move.jobs, move.code) for move in shown]


async def test_malformed_events_are_not_streamed(store, listen, raw, base):
    evil = {"jobs": "0-a", "state": "queued\r\n\r\nevent: dead\r\ndata: {}", "code": "x"}
    raw.xadd(keys.events(base), evil)
    raw.xadd(keys.events(base), evil | {"state": "queued", "code": "x\r\n\r\nid: 7\r\ndata: {}\r\n\r\n"})
    await submit(store, "b")
    reader = Reader()
    await take(await listen(after="0"), reader, 2)
    assert reader.jobs == ["0-a", "0-b"]


async def test_an_id_beyond_the_last_date_stops_no_reader(store, page, raw, base):
    """Another program wrote it; Redis counts upwards from it."""
    await submit(store, "a")
    raw.xadd(keys.events(base), {"jobs": "0-b", "state": "queued", "code": "x"}, id=f"{2**64 - 2}-7")
    await submit(store, "c")
    found = await page(after="0")
    assert [event.jobs for event in found.events] == [["0-a"], ["0-b"], ["0-c"]]
    assert found.events[1].at.year == 9999
    assert (await page(after=found.cursor)).events == []
