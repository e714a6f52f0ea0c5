"""`GET /jobs/{id}/stream`: what a running task emits, as server-sent events, or a page of JSON."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from sublet.errors import Invalid, Unavailable
from sublet.protocol.reads import json_of
from sublet.steps.chunks import StreamEntry, StreamPage, newest_entry
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.events import (
    EVENT_STREAM,
    RETRY_MS,
    RETRY_SECONDS,
    STREAM_SECONDS,
    STREAMS_MAX,
)
from sublet_functions.handlers.within import check_job
from sublet_functions.http.problems import Problem, invalid_problem
from sublet_functions.http.response import Response, encode, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.steps import StreamQuery

KEEP_ALIVE = 15.0
"""After so many seconds without an event, a stream sends a comment."""
_CURSOR = re.compile(r"([0-9]{1,14})(-end)?")


async def get_stream(call: Call[Empty, StreamQuery]) -> Response:
    """Stream the chunks that a job's task emits until the job has ended, at most 5 minutes, if the client accepts
    `text/event-stream`; else return a page of them. Their values are null unless the token sees payloads (`GET /whoami`).
    """
    await check_job(call)
    last_id = call.request.headers.get("last-event-id")
    where = ("header", "Last-Event-ID") if last_id else ("query", "after")
    after, has_ended = _cursor(last_id or call.query.after or "0", where)
    if call.query.last and not after:
        store, job_id = call.store, call.path["id"]
        newest = await store.run(newest_entry(store.operations.base_of_job(job_id), job_id))
        after = max(0, newest - call.query.last)
    if EVENT_STREAM not in call.request.headers.get("accept", "").lower():
        return json_response(await _page(call, after))
    streams = call.store.streams
    if len(streams.subscribers) >= STREAMS_MAX:
        raise Problem(
            "busy",
            f"this server has {STREAMS_MAX} open streams of jobs, its limit: retry later, or read pages: the same URL without "
            "the header Accept: text/event-stream",
        )
    until = time.monotonic() + (STREAM_SECONDS if call.request.streams else 0.0)
    pages = call.store.stream(call.path["id"], after, until - time.monotonic())
    first = await anext(pages)
    if has_ended and first.is_over and not first.entries:
        return Response(204, b"", {})  # a browser then does not connect again
    stream = _stream(call, first, pages, until)
    streams.subscribers.add(stream)
    headers = {"Content-Type": EVENT_STREAM, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return Response(200, stream, headers)


def _cursor(text: str, where: tuple[str, str]) -> tuple[int, bool]:
    match = _CURSOR.fullmatch(text)
    if match is None:
        error = Invalid(
            f"event id {text[:40]!r}: use the id of an event of this stream, or the cursor of a page"
        )
        raise invalid_problem(error, *where)
    return int(match[1]), match[2] is not None


async def _page(call: Call[Empty, StreamQuery], after: int) -> dict[str, Any]:
    missed = False
    async with aclosing(
        call.store.stream(call.path["id"], after, call.query.wait, call.query.limit)
    ) as pages:
        async for page in pages:
            missed = missed or page.missed
            if any(entry.chunk for entry in page.entries) or page.is_over:
                break
    return {
        "id": call.path["id"],
        "state": page.state,
        "chunks": [
            {"id": str(entry.id), "attempt": entry.attempt, "value": _value(call, entry)}
            for entry in page.entries
            if entry.chunk
        ],
        "cursor": str(page.cursor),
        "missed": missed,
    }


def _value(call: Call[Empty, StreamQuery], entry: StreamEntry) -> Any:
    return json_of(entry.chunk) if call.principal.sees_payloads else None


async def _stream(
    call: Call[Empty, StreamQuery], page: StreamPage, pages: AsyncGenerator[StreamPage, None], until: float
) -> AsyncIterator[bytes]:
    job_id, sent_at = call.path["id"], time.monotonic()
    yield b"retry: %d\n\n" % RETRY_MS
    try:
        while True:
            data = b"".join(_events(call, page))
            if page.is_over:
                told = {"id": job_id, "state": page.state, "job": f"{call.request.prefix}/jobs/{job_id}"}
                yield data + _event(f"{page.cursor}-end", "end", told)
                return
            if data or time.monotonic() - sent_at >= KEEP_ALIVE:
                yield data or b":\n\n"
                sent_at = time.monotonic()
            try:
                page = await anext(pages)
            except StopAsyncIteration:
                return
            except Unavailable:  # after a 503 a browser does not connect again
                await asyncio.sleep(RETRY_SECONDS)
                pages = call.store.stream(job_id, page.cursor, max(0.0, until - time.monotonic()))
                page = page._replace(entries=[], missed=False, more=True)
    finally:
        await pages.aclose()


def _events(call: Call[Empty, StreamQuery], page: StreamPage) -> list[bytes]:
    events = []
    if page.missed and page.entries:
        events.append(_event("", "trimmed", {"attempt": page.entries[0].attempt}))
    for entry in page.entries:
        if entry.chunk:
            events.append(_event(str(entry.id), "chunk", _value(call, entry)))
        else:
            events.append(_event(str(entry.id), "attempt", {"attempt": entry.attempt}))
    return events


def _event(id_: str, name: str, data: Any) -> bytes:
    number = b"id: %s\n" % id_.encode() if id_ else b""
    return b"%sevent: %s\ndata: %s\n\n" % (number, name.encode(), encode(data))
