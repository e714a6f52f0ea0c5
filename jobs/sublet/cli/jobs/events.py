"""`events`: follow the changes of jobs' states; `stream`: a job's chunks."""

import asyncio
import sys
import time
from argparse import Namespace
from datetime import UTC, datetime
from typing import Any

from sublet.cli.jobs.ids import typed
from sublet.cli.jobs.query import find_job
from sublet.cli.output import STATE_COLOURS, clean, compact, fit, note, paint, put, write
from sublet.cli.session import client_of, settings_of
from sublet.connection.routing import RoutingTransport, transport_for
from sublet.connection.settings import Settings, check
from sublet.connection.transport import follow
from sublet.errors import Forbidden, Unavailable, Unfit
from sublet.model import State, format_moment
from sublet.operations.operations import Operations
from sublet.protocol import reads
from sublet.steps.chunks import Chunk, StreamPage
from sublet.store.events import Cursor, EventPage, EventStream, JobEvent, cursor_text

PAGE = 500
WAIT = 15.0
PAUSE = 0.5
"""Seconds between two checks for a missing namespace, or for a server that does not answer."""


def events(args: Namespace) -> int:
    """Print the changes of jobs' states, by default from now on, until Ctrl-C, or for --for. Raises Invalid."""
    settings = settings_of(args)
    check(settings)
    if args.queue is not None:
        Operations(settings).check_queue(args.queue)
    asyncio.run(_run(args, settings))
    return 0


async def _run(args: Namespace, settings: Settings) -> None:
    subscriber = Subscriber(args, settings)
    try:
        async with asyncio.timeout(args.seconds) as limit:
            await subscriber.follow()
    except TimeoutError:
        if not limit.expired():
            raise
    finally:
        await subscriber.aclose()


class Subscriber:
    """Prints the events that the arguments select."""

    def __init__(self, args: Namespace, settings: Settings) -> None:
        self._args, self._settings = args, settings
        self._operations = Operations(settings)
        self._transport = transport_for(settings)
        routes = self._transport if isinstance(self._transport, RoutingTransport) else None
        self._stream = EventStream(settings, self._transport.run, routes=routes)
        self._is_away = False

    async def follow(self) -> None:
        """Print events until cancelled; wait for a missing namespace, or if Redis goes away. Raises
        Unavailable if Redis is away at the start; Forbidden and Unfit at any time.
        """
        after = await self._start()
        while True:
            try:
                page = await self._stream.read(after, PAGE)
                await self._print(page)
            except (Forbidden, Unfit):
                raise
            except Unavailable as error:
                self._note_outage(str(error))
                await asyncio.sleep(PAUSE)
                continue
            self._note_outage("")
            after = page.cursor
            if not page.more:
                await self._stream.wait(page.version, WAIT)

    async def _start(self) -> Cursor:
        start = None if self._args.after is None else self._stream.cursor(self._args.after)
        is_new = False
        while not await follow(self._transport.run, self._operations.exists()):
            if not is_new:
                note(f"there is no namespace {self._settings.namespace} yet: the first job creates it")
            is_new = True
            await asyncio.sleep(PAUSE)
        return start or (self._stream.cursor("0") if is_new else await self._stream.now())

    def _note_outage(self, words: str) -> None:
        if bool(words) != self._is_away:
            note(f"{words}; waiting for it" if words else "the server answers again")
        self._is_away = bool(words)

    async def _print(self, page: EventPage) -> None:
        found = [event for event in page.events if self._args.state in (None, event.state.value)]
        if self._args.queue is not None and found:
            found = await self._of_queue(found)
        if page.missed:
            self._print_missed(page)
        for event in found:
            self._print_event(event)
        sys.stdout.flush()

    async def _of_queue(self, found: list[JobEvent]) -> list[JobEvent]:
        base = self._operations.base_of_queue(self._args.queue)
        ids = {job for event in found for job in event.jobs if self._operations.base_of_job(job) == base}
        queues = await self._transport.run(reads.queues_of(base, sorted(ids))) if ids else {}
        kept = [
            event._replace(jobs=tuple(job for job in event.jobs if queues.get(job) == self._args.queue))
            for event in found
        ]
        return [event for event in kept if event.jobs]

    def _print_missed(self, page: EventPage) -> None:
        if self._args.json:
            write(compact({"missed": True, "cursor": cursor_text(page.begin)}))
        else:
            note(
                "events were missed: the server keeps the last 10,000 of each partition, or has lost its data"
            )

    def _print_event(self, event: JobEvent) -> None:
        if self._args.json:
            write(compact(_as_json(event)))
            return
        at = time.strftime("%H:%M:%S", time.localtime(event.at_ms / 1000))
        state = paint(event.state.value.ljust(9), STATE_COLOURS[event.state])
        code = "" if event.code == event.state else event.code
        for job in event.jobs:
            write(f"{at}  {state}  {fit(f'{job}  {clean(code)}'.rstrip(), 21)}")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._stream.aclose()
        await self._transport.aclose()


def _as_json(event: JobEvent) -> dict[str, Any]:
    return {
        "id": event.id,
        "at": format_moment(datetime.fromtimestamp(event.at_ms / 1000, UTC)),
        "jobs": event.jobs,
        "state": event.state.value,
        "code": event.code,
    }


def stream(args: Namespace) -> int:
    """Print the chunks of a job until it has ended, or for --for. Return 1 if it ended dead or cancelled, or
    was deleted, else 0.
    """
    with client_of(settings_of(args)) as client:
        job_id, attempt = find_job(client, typed(args.id)).id, 0
        page: StreamPage | None = None
        for page in client.store.stream(job_id, args.after, args.seconds or 1e9):
            for chunk in page.chunks():
                if not args.json:
                    _note_gap(chunk, attempt)
                attempt = chunk.attempt
                _print_chunk(chunk, args.json)
            sys.stdout.flush()
    if page is None or not page.is_over:
        return 0
    if args.json:
        write(compact({"state": page.state, "cursor": page.cursor}))
    else:
        write()
        note(f"{job_id} is {page.state or 'deleted'}")
    return int(page.state is not State.COMPLETED)


def _note_gap(chunk: Chunk, attempt: int) -> None:
    if chunk.missed:
        note("chunks are missing: the stream keeps the newest 10,000, and 8 MiB")
    if attempt and chunk.attempt != attempt:
        write()
        note(f"attempt {chunk.attempt} begins:")


def _print_chunk(chunk: Chunk, as_json: bool) -> None:
    if as_json:
        write(compact(chunk._asdict()))
    elif isinstance(chunk.value, str):
        *lines, last = chunk.value.split("\n")
        put(*lines)
        put(last, end="")
    else:
        write(compact(chunk.value))
