"""`GET /events`: changes of jobs' states, as a page of JSON or a stream of server-sent events (WHATWG HTML,
9.2).

Ids are digits, names are states or `missed`, JSON escapes the rest: stored data cannot break a stream's
framing.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

from sublet.errors import Invalid, Unavailable
from sublet.store.events import PAGE, SPACING, Cursor, EventPage, EventStream, JobEvent, cursor_text
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.within import queues_of
from sublet_functions.http.problems import Problem, invalid_problem
from sublet_functions.http.response import Response, encode, json_response, timestamp
from sublet_functions.http.shared_reads import HEADER, Patience
from sublet_functions.schemas.query import Empty, EventsQuery

EVENT_STREAM = "text/event-stream"
STREAMS_MAX = 1000
"""Most open event streams of one process."""
STREAM_PAGE = 100
"""Most events that a stream reads at once, and keeps for a slow client."""
STREAM_SECONDS = 300.0
"""After so many seconds a stream ends; the client connects again and continues."""
KEEP_ALIVE = 10.0
"""After so many seconds without an event, a stream sends its position."""
OUTAGE = b": Redis does not answer\n\n"
"""A comment, sent instead of a position while Redis does not answer."""
RETRY_MS = 2000
RETRY_SECONDS = 1.0
READS_MAX = 1000
"""Most reads of Redis for one page, if filters exclude most events."""


async def events(call: Call[Empty, EventsQuery]) -> Response:
    """Return a page of events after a position (by default now), waiting up to `wait` seconds for one; or
    stream them for 5 minutes if the client accepts `text/event-stream`.
    """
    event_stream, headers = call.store.event_stream(), call.request.headers
    last_id = headers.get("last-event-id")
    where = ("header", "Last-Event-ID") if last_id else ("query", "after")
    text = last_id or call.query.after
    after = await event_stream.now() if text is None else _cursor(event_stream, text, where)
    if EVENT_STREAM not in headers.get("accept", "").lower():
        return json_response(await _page(event_stream, after, call))
    shared = headers.get(HEADER.lower())
    spacing = max(SPACING, Patience.parse(shared).seconds if shared else 0.0)
    return await _open_stream(
        event_stream, after, call, STREAM_SECONDS if call.request.streams else 0.0, spacing
    )


def _cursor(event_stream: EventStream, text: str, where: tuple[str, str]) -> Cursor:
    try:
        return event_stream.cursor(text)
    except Invalid as error:
        raise invalid_problem(error, *where) from error


def _matching(events: Iterable[JobEvent], query: EventsQuery) -> list[JobEvent]:
    return [
        m for m in events if query.state in (None, m.state) and (query.job is None or query.job in m.jobs)
    ]


async def _read(
    event_stream: EventStream, after: Cursor, most: int, call: Call[Empty, EventsQuery]
) -> EventPage:
    page, scope = await event_stream.read(after, most), call.principal.scope
    if scope is None or not page.events:
        return page
    if page.queues is None:  # shared by all subscribers
        page.queues = await queues_of(call.store, [job for event in page.events for job in event.jobs])
    seen = []
    for event in page.events:
        jobs = tuple(job for job in event.jobs if page.queues.get(job, "") in scope)
        seen += [event._replace(jobs=jobs)] if jobs else []
    return replace(page, events=seen, rendered=None)


def _event(event: JobEvent) -> dict[str, Any]:
    return {
        "id": event.id,
        "at": timestamp(event.at_ms),
        "jobs": event.jobs,
        "state": event.state.value,
        "code": event.code,
    }


async def _page(event_stream: EventStream, after: Cursor, call: Call[Empty, EventsQuery]) -> dict[str, Any]:
    query, scope = call.query, call.principal.scope
    until = time.monotonic() + query.wait
    cursor, found, missed = cursor_text(after), list[JobEvent](), False
    for _ in range(READS_MAX):
        most = PAGE if query.job or query.state or scope is not None else query.limit
        page = await _read(event_stream, after, most, call)
        found = _matching(page.events, query)[: query.limit]
        missed = page.missed
        after = page.cursor
        cursor = found[-1].id if len(found) == query.limit else cursor_text(after)
        if found or missed:
            break
        left = until - time.monotonic()
        if not page.more and (
            left <= 0 or event_stream.closed or not await event_stream.wait(page.version, left)
        ):
            break
    return {"events": [_event(event) for event in found], "cursor": cursor, "missed": missed}


async def _open_stream(
    event_stream: EventStream,
    after: Cursor,
    call: Call[Empty, EventsQuery],
    seconds: float,
    spacing: float,
) -> Response:
    if len(event_stream.subscribers) >= STREAMS_MAX:
        raise Problem(
            "busy",
            f"this server has {STREAMS_MAX} open event streams, its limit: retry later, or read pages: "
            "the same URL without the header Accept: text/event-stream",
        )
    page = await _read(event_stream, after, STREAM_PAGE, call)
    stream = _stream(event_stream, page, call, seconds, spacing)
    event_stream.subscribers.add(stream)
    headers = {"Content-Type": EVENT_STREAM, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Response(200, stream, headers)


async def _stream(
    event_stream: EventStream,
    page: EventPage,
    call: Call[Empty, EventsQuery],
    seconds: float,
    spacing: float,
) -> AsyncIterator[bytes]:
    until = time.monotonic() + seconds
    yield f"retry: {RETRY_MS}\nid: {cursor_text(page.begin)}\n\n".encode()
    sent_at, is_new, is_out, was_out = time.monotonic(), True, False, False
    while True:
        data = b""
        if is_new:
            async with event_stream.turn:
                data = _encode_page(page, call.query)
                await asyncio.sleep(0)
        now = time.monotonic()
        over = event_stream.closed or now >= until
        if data or over or is_out is not was_out or now - sent_at >= KEEP_ALIVE:
            # filters may leave no data: send the progress
            position = f":\nid: {cursor_text(page.cursor)}\n\n".encode()
            yield data or (OUTAGE if is_out else position)
            sent_at = time.monotonic()
        if over:
            return
        was_out = is_out
        if is_out or not (is_new and page.more):
            left = RETRY_SECONDS if is_out else max(0.0, min(sent_at + KEEP_ALIVE, until) - time.monotonic())
            version = event_stream.version if is_out else page.version
            await event_stream.wait(version, left, spacing, failing=is_out)
        is_new, is_out = False, event_stream.is_failing
        if not is_out:
            try:
                page, is_new = await _read(event_stream, page.cursor, STREAM_PAGE, call), True
            except Unavailable:
                is_out = True


def _encode_page(page: EventPage, query: EventsQuery) -> bytes:
    if query.job or query.state:
        return _encode_events(page, query)
    if page.rendered is None:
        page.rendered = _encode_events(page, query)
    return page.rendered


def _encode_events(page: EventPage, query: EventsQuery) -> bytes:
    blocks = []
    if page.missed:
        blocks.append(_block(cursor_text(page.begin), "missed", {"cursor": cursor_text(page.begin)}))
    for event in _matching(page.events, query):
        blocks.append(_block(event.id, event.state.value, _event(event)))
    return b"".join(blocks)


def _block(id_: str, name: str, data: Any) -> bytes:
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (id_.encode(), name.encode(), encode(data))
