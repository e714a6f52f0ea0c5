"""`GET /events`: every move of every job, as a page of JSON or as a stream of server-sent events (WHATWG HTML, 9.2).

Both go by the same ids, so a client may change from one to the other. Nothing in a stream can break its framing, whatever a
foreign client may have written to Redis: an id is made of digits, an event's name is a state, and JSON escapes the rest.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from sublet.errors import Invalid, Unavailable
from sublet.model import State
from sublet.store.events import PAGE, Cursor, EventPage, EventStream, JobEvent, cursor_text
from sublet_functions.api.parsing import fault
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import Problem, encode, json_reply, moment
from sublet_functions.schemas.fields import Id, Wait
from sublet_functions.schemas.query import Nothing, Query
from sublet_functions.schemas.responses import Answer

EVENT_STREAM = "text/event-stream"
STREAMS_MAX = 1000
"""Streams that one process holds open at a time."""
STREAM_PAGE = 100
"""Events that a stream holds in memory at most, on their way to a client that is slow."""
STREAM_SECONDS = 300.0
"""How long a stream goes on; its client comes again by itself, and goes on where it was."""
KEEP_ALIVE = 15.0
"""Seconds of silence after which a stream says that it is there, and where."""
RETRY_MS = 2000
"""What a client is told to wait before it comes again."""
REST = 1.0
"""Seconds that a stream rests when Redis is away."""
ROUNDS = 1000
"""Pages and news, at most, that one request for a page goes through before it answers."""


class EventsQuery(Query):
    """Which events. `limit` and `wait` are for pages; a stream goes on."""

    after: Annotated[str, Field(max_length=4096)] | None = Field(
        None,
        description="An event's id, or the cursor of the page before; 0 for the oldest kept. Without it: from now on.",
    )
    limit: Annotated[int, Field(ge=1, le=PAGE)] = Field(100, description="How many at most.")
    wait: Wait = Field(0.0, description="Seconds to wait for the first one.")
    job: Id | None = Field(None, description="Only those that speak of this job.")
    state: State | None = Field(None, description="Only moves to this state.")


class Event(Answer):
    """One move of some jobs, at most ten."""

    id: str = Field(
        description="Where you are when you have this event: give it as `after`, or as Last-Event-ID."
    )
    at: datetime
    jobs: list[str]
    state: State
    code: str = Field(description="Why: `submitted`, the worker's name, a failure's code, …")


class EventsPage(Answer):
    """Some events, in their order; there may be none."""

    events: list[Event]
    cursor: str = Field(description="Where to go on.")
    missed: bool = Field(
        description="Events after the id that you named are no longer kept: look at the jobs themselves."
    )


async def events(call: Call[Nothing, EventsQuery]) -> Reply:
    """A page of events or, if the caller accepts it, a stream of them."""
    event_stream, headers = call.store.event_stream(), call.request.headers
    last = headers.get("last-event-id")
    where = ("header", "last-event-id") if last else ("query", "after")
    text = last or call.query.after
    after = await event_stream.now() if text is None else _cursor(event_stream, text, where)
    if EVENT_STREAM not in headers.get("accept", "").lower():
        return json_reply(await _poll(event_stream, after, call.query))
    return await _open(event_stream, after, call.query, STREAM_SECONDS if call.request.streams else 0.0)


def _cursor(event_stream: EventStream, text: str, where: tuple[str, str]) -> Cursor:
    try:
        return event_stream.cursor(text)
    except Invalid as error:
        raise Problem("invalid", str(error), errors=[fault(str(error), *where)]) from error


def _wanted(moves: Iterable[JobEvent], query: EventsQuery) -> list[JobEvent]:
    return [m for m in moves if query.state in (None, m.state) and (query.job is None or query.job in m.jobs)]


def _event(move: JobEvent) -> dict[str, Any]:
    return {
        "id": move.id,
        "at": moment(move.at_ms),
        "jobs": move.jobs,
        "state": move.state.value,
        "code": move.code,
    }


async def _poll(event_stream: EventStream, after: Cursor, query: EventsQuery) -> dict[str, Any]:
    """The first events after a place, as soon as there is one or `wait` is over."""
    until = time.monotonic() + query.wait
    cursor, found, missed = cursor_text(after), list[JobEvent](), False
    for _ in range(ROUNDS):
        page = await event_stream.read(after, PAGE if query.job or query.state else query.limit)
        found, missed = _wanted(page.events, query)[: query.limit], page.missed
        after = page.cursor
        cursor = found[-1].id if len(found) == query.limit else cursor_text(after)
        if found or missed:
            break
        left = until - time.monotonic()
        if not page.more and (
            left <= 0 or event_stream.closed or not await event_stream.wait(page.version, left)
        ):
            break
    return {"events": [_event(move) for move in found], "cursor": cursor, "missed": missed}


async def _open(event_stream: EventStream, after: Cursor, query: EventsQuery, seconds: float) -> Reply:
    """A stream of the events after a place; the first page is read here, so that what is wrong is still told by a status."""
    if len(event_stream.subscribers) >= STREAMS_MAX:
        raise Problem(
            "busy", f"{STREAMS_MAX} streams of events are open here: come again, or poll with ?after="
        )
    stream = _stream(event_stream, await event_stream.read(after, STREAM_PAGE), query, seconds)
    event_stream.subscribers.add(stream)
    headers = {"Content-Type": EVENT_STREAM, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Reply(200, stream, headers)


async def _stream(
    event_stream: EventStream, page: EventPage, query: EventsQuery, seconds: float
) -> AsyncIterator[bytes]:
    """Tell of every event, and of silence. Ends after so many seconds, or with the server."""
    until = time.monotonic() + seconds
    yield f"retry: {RETRY_MS}\nid: {cursor_text(page.begin)}\n\n".encode()
    spoke, fresh = time.monotonic(), True
    while True:
        told = b""
        if fresh:
            async with event_stream.turn:
                told = _told(page, query)
                await asyncio.sleep(0)
        now = time.monotonic()
        over = event_stream.closed or now >= until
        if told or over or now - spoke >= KEEP_ALIVE:
            yield (
                told or f":\nid: {cursor_text(page.cursor)}\n\n".encode()
            )  # filters pass over events: tell at least how far
            spoke = time.monotonic()
        if over:
            return
        if not (fresh and page.more):
            await event_stream.wait(page.version, max(0.0, min(spoke + KEEP_ALIVE, until) - time.monotonic()))
        try:
            page, fresh = await event_stream.read(page.cursor, STREAM_PAGE), True
        except Unavailable:  # the stream stays open: a browser that is sent a 503 never comes again
            fresh = False
            await event_stream.wait(event_stream.version, REST)


def _told(page: EventPage, query: EventsQuery) -> bytes:
    """A page as server-sent events: made once for all who want the whole of it."""
    if query.job or query.state:
        return _made(page, query)
    if page.rendered is None:
        page.rendered = _made(page, query)
    return page.rendered


def _made(page: EventPage, query: EventsQuery) -> bytes:
    lines = []
    if page.missed:
        lines.append(_block(cursor_text(page.begin), "missed", {"cursor": cursor_text(page.begin)}))
    for move in _wanted(page.events, query):
        lines.append(_block(move.id, move.state.value, _event(move)))
    return b"".join(lines)


def _block(id_: str, name: str, data: Any) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id_.encode(), name.encode(), encode(data))
