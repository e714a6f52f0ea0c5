"""The event stream of a namespace, for all its subscribers in this process.

One blocking read (of a cluster: per partition) notices new events for all. Subscribers read pages by
themselves, so that a slow one delays no other.
"""

import asyncio
import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from weakref import WeakSet

from sublet.connection.blocking import PartitionPipeline, Run, blocking_pipeline
from sublet.connection.routing import RoutingTransport
from sublet.connection.settings import BLOCK_SECONDS, Settings, connect
from sublet.errors import Invalid
from sublet.model import State
from sublet.protocol import keys
from sublet.protocol.reads import pairs, together
from sublet.protocol.scripts import Call

PAGE = 500
SPACING = 0.02
"""By default, seconds between two blocking reads, so that events of that time make one page."""
TURNS = 4
KEPT_SECONDS = 1.0
KEPT_PAGES = 64
REST = 0.5

EntryId = tuple[int, int]
"""The id of an entry in a Redis stream: ms since 1970, sequence number."""
Cursor = tuple[EntryId | None, ...]
"""A position in the stream: per partition the last entry read, or None for the beginning."""

LATEST_MS = 253_402_300_799_999
"""The last ms of the year 9999. The moment of a later entry is set to it."""
NOTHING: EntryId = (0, 0)

_ENTRY_ID = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")


class JobEvent(NamedTuple):
    """One change of state, of up to ten jobs. `id`: the cursor to read on from; `code`: the cause (of the
    state `running`: the worker's name).
    """

    id: str
    at_ms: int
    jobs: tuple[str, ...]
    state: State
    code: str


@dataclass(slots=True)
class EventPage:
    """The events after a cursor."""

    events: list[JobEvent]
    begin: Cursor
    """The cursor before this page: the caller's, unless events were missed."""
    cursor: Cursor
    missed: bool
    """Whether events after the caller's cursor were deleted, or the cursor is of another stream."""
    more: bool
    """Whether to read again at once: there may be more."""
    version: int
    """The stream's `version` at the read, for `EventStream.wait`. It grows when events arrive."""
    rendered: bytes | None = None
    """The page as bytes to send; None until a subscriber has made them."""
    queues: dict[str, str] | None = None
    """Job id → queue, of the page's jobs; None until a subscriber has read the queues."""


Entry = tuple[EntryId, dict[str, bytes]]
"""An entry's id and fields."""


class Entries(NamedTuple):
    """Entries of a partition's stream after `begin`. `missed`: entries that the caller had not read were
    deleted, or the stream is another.
    """

    begin: EntryId | None
    entries: list[Entry]
    missed: bool


class EventStream:
    """Reads a namespace's state changes for all subscribers in this process. For one event loop."""

    def __init__(
        self, settings: Settings, run: Run, client: Any = None, routes: RoutingTransport | None = None
    ) -> None:
        self._client = None if routes else client or connect(settings, blocking=True)
        self._run = run
        self._bases = [keys.base(settings.namespace, p) for p in range(settings.partitions)]
        self._lines = (
            [PartitionPipeline(routes, base) for base in self._bases]
            if routes
            else [blocking_pipeline(settings, self._client, client)]
        )
        self._following: list[asyncio.Task[None] | None] = [None] * len(self._lines)
        self._newest: dict[str, bytes] = {}
        self.version = 0
        self._waiting: dict[asyncio.Future[None], float] = {}
        """Subscribers, each with the seconds between two reads that it accepts."""
        self._alerted: dict[asyncio.Future[None], bool] = {}
        """Subscribers to wake when `is_failing` is no longer this."""
        self._failing: set[str] = set()
        self._arrival = asyncio.Event()
        self._reads: dict[tuple[Cursor, int, int], asyncio.Future[EventPage]] = {}
        self._kept: dict[tuple[Cursor, int], EventPage] = {}
        self.turn = asyncio.Semaphore(TURNS)
        """Acquire it to render a page."""
        self.subscribers: WeakSet[Any] = WeakSet()
        self.closed = False

    @property
    def is_failing(self) -> bool:
        """Whether two or more reads of a partition's stream in a row have failed."""
        return bool(self._failing)

    def cursor(self, text: str) -> Cursor:
        """Parse the text of a cursor; `0` is before the oldest event. Raises Invalid."""
        words = text.split(",") if text != "0" else ["0"] * len(self._bases)
        if len(words) != len(self._bases) or not all(map(_is_entry_id, words)):
            raise Invalid(
                f"event id {text[:80]!r}: use the id of an event, the cursor of a page, or 0 for the oldest kept"
            )
        return tuple(None if word == "0" else _entry_id(word) for word in words)

    async def now(self) -> Cursor:
        """Return the cursor after the newest event."""
        newest = await asyncio.gather(*(self._run(_newest(base)) for base in self._bases))
        return tuple(newest)

    async def read(self, after: Cursor, count: int = PAGE) -> EventPage:
        """Read up to `count` events after a cursor. Subscribers at the same cursor share one read. Raises
        Unavailable.
        """
        kept = self._kept.get((after, count))
        if kept:
            return kept
        # an older read may miss the newest events
        asked = (after, count, self.version)
        reading = self._reads.get(asked)
        if reading is None:
            reading = self._reads[asked] = asyncio.ensure_future(self._read(*asked))
            reading.add_done_callback(partial(self._done, asked))
        return await asyncio.shield(reading)

    def _done(self, asked: tuple[Cursor, int, int], reading: "asyncio.Future[EventPage]") -> None:
        del self._reads[asked]
        if reading.cancelled() or reading.exception():
            return
        page, (after, count, _) = reading.result(), asked
        if page.more and len(self._kept) < KEPT_PAGES:
            self._kept[after, count] = page
            asyncio.get_running_loop().call_later(KEPT_SECONDS, self._kept.pop, (after, count), None)

    async def _read(self, after: Cursor, count: int, version: int) -> EventPage:
        reads = (self._read_one(base, last, count) for base, last in zip(self._bases, after, strict=True))
        found = await asyncio.gather(*reads)
        at = [one.begin for one in found]
        begin = tuple(at)
        events = []
        rows = sorted((entry, p) for p, one in enumerate(found) for entry, _ in one.entries)
        fields = [dict(one.entries) for one in found]
        for entry, p in rows[:count]:
            at[p] = entry
            event = _event(cursor_text(at), entry, fields[p][entry])
            if event:
                events.append(event)
        more = len(rows) > count or any(len(one.entries) == count for one in found)
        return EventPage(events, begin, tuple(at), any(one.missed for one in found), more, version)

    async def _read_one(self, base: str, after: EntryId | None, count: int) -> Entries:
        if after is not None and after != NOTHING:
            following: list[Entry] | None = await self._run(entries_following(base, after, count))
            if following is not None:
                return Entries(after, following, False)
        found: Entries = await self._run(entries_after(base, after, count))
        if after == NOTHING and found.entries and await self._run(_trimmed(base)):
            return Entries(None, found.entries, True)
        return found

    async def wait(
        self, version: int, seconds: float, spacing: float = SPACING, *, failing: bool | None = None
    ) -> bool:
        """Wait up to `seconds` for events newer than `version`, that of the last page. True: read again, or
        the stream is closed. `spacing`: one blocking read in so many seconds suffices. `failing`: return True
        when `is_failing` is not this.
        """
        if self.version != version or self.closed:
            return True
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[woken] = spacing
        if failing is not None:
            self._alerted[woken] = failing
            self._alert()
        self._arrival.set()
        for i, line in enumerate(self._lines):
            if (following := self._following[i]) is None or following.done():
                bases = self._bases if len(self._lines) == 1 else [self._bases[i]]
                self._following[i] = asyncio.create_task(
                    self._follow(line, [keys.events(base) for base in bases])
                )
        try:
            async with asyncio.timeout(seconds):
                await woken
        except TimeoutError:
            return False
        else:
            return True
        finally:
            del self._waiting[woken]
            self._alerted.pop(woken, None)

    def _alert(self) -> None:
        _finish(woken for woken, known in self._alerted.items() if known is not self.is_failing)

    async def _follow(self, line: Any, streams: Sequence[str]) -> None:
        failures = 0
        while self._waiting:
            looks = [("XREVRANGE", key, "+", "-", "COUNT", 1) for key in streams]
            newest = await asyncio.gather(*_send(line, *looks))
            failed = any(isinstance(reply, Exception) for reply in newest)
            if not failed:
                self._update(
                    {
                        key: reply[0][0] if reply else b"0-0"
                        for key, reply in zip(streams, newest, strict=True)
                    }
                )
                if not failures:  # else report success at once
                    failed = not await self._block(line, streams)
            failures = failures + 1 if failed else 0
            (self._failing.add if failures > 1 else self._failing.discard)(streams[0])
            self._alert()
            await (asyncio.sleep(REST) if failed else self._rest())
        self._failing.discard(streams[0])

    async def _rest(self) -> None:
        now = asyncio.get_running_loop().time
        began = now()
        while (left := began + min(self._waiting.values(), default=SPACING) - now()) > 0:
            self._arrival.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._arrival.wait()

    async def _block(self, line: Any, streams: Sequence[str]) -> bool:
        known = [self._newest[key] for key in streams]
        command = ("XREAD", "BLOCK", BLOCK_SECONDS * 1000, "COUNT", 1, "STREAMS", *streams, *known)
        found = await _send(line, command)[0]
        if found and not isinstance(found, Exception):
            self._update({key.decode(): entries[0][0] for key, entries in found})
        return not isinstance(found, Exception)

    def _update(self, newest: dict[str, bytes]) -> None:
        if newest.items() - self._newest.items():
            self._newest |= newest
            self.version += 1
            self._wake()

    def _wake(self) -> None:
        _finish(self._waiting)

    def close(self) -> None:
        """Make all calls of `wait` return True, later ones at once."""
        self.closed = True
        self._wake()

    async def aclose(self) -> None:
        """Stop reading and close the connections."""
        self.close()
        ends: list[asyncio.Future[Any]] = [*self._reads.values(), *filter(None, self._following)]
        for following in filter(None, self._following):
            following.cancel()
        if ends:
            await asyncio.wait(ends)
        await asyncio.gather(*(line.aclose(at_once=True) for line in self._lines))
        if self._client:
            await self._client.aclose()


def _finish(waiting: "Iterable[asyncio.Future[None]]") -> None:
    for woken in waiting:
        if not woken.done():
            woken.set_result(None)


def cursor_text(cursor: Iterable[EntryId | None]) -> str:
    """Return the text of a cursor, as `EventStream.cursor` parses it."""
    return ",".join("0" if entry is None else f"{entry[0]}-{entry[1]}" for entry in cursor)


def entries_following(base: str, after: EntryId, count: int) -> Call[list[Entry] | None]:
    """Make the call that reads up to `count` entries after `after`; its reply is None if `after` does not
    exist.
    """

    def read(reply: Sequence[Any]) -> list[Entry] | None:
        entries = [(_entry_id(entry[0]), pairs(entry[1])) for entry in reply or ()]
        return entries[1:] if entries and entries[0][0] == after else None

    return Call((("XRANGE", keys.events(base), cursor_text([after]), "+", "COUNT", count + 1),), read)


def entries_after(base: str, after: EntryId | None, count: int) -> Call[Entries]:
    """Make the call that reads up to `count` entries after an id (None: from the oldest), and whether some after
    it were deleted.
    """
    key = keys.events(base)

    def read(reply: Sequence[Any]) -> Entries:
        entries, oldest, newest = (
            [(_entry_id(entry[0]), pairs(entry[1])) for entry in part or ()] for part in reply
        )
        if after is None:
            return Entries(None if newest else NOTHING, entries[:count], False)
        if entries and entries[0][0] == after:
            return Entries(after, entries[1:], False)
        if after != NOTHING and (
            not newest or after > newest[0][0]
        ):  # another stream, or one that lost its end
            return Entries(newest[0][0] if newest else NOTHING, [], True)
        if after != NOTHING and after < oldest[0][0]:
            return Entries(None, entries[:count], True)
        return Entries(after, entries[:count], False)

    start = "-" if after is None else cursor_text([after])
    commands = [("XRANGE", key, start, "+", "COUNT", count + 1), ("XRANGE", key, "-", "+", "COUNT", 1)]
    return together([*commands, ("XREVRANGE", key, "+", "-", "COUNT", 1)], read)


def _newest(base: str) -> Call[EntryId]:
    command = ("XREVRANGE", keys.events(base), "+", "-", "COUNT", 1)
    return Call((command,), lambda reply: _entry_id(reply[0][0]) if reply else NOTHING)


def _trimmed(base: str) -> Call[bool]:

    def read(reply: Any) -> bool:
        info = pairs(reply)
        return int(info.get("entries-added", info["length"])) > int(info["length"])

    return Call((("XINFO", "STREAM", keys.events(base)),), read)


def _is_entry_id(word: str) -> bool:
    return word == "0" or (_ENTRY_ID.fullmatch(word) is not None and max(_entry_id(word)) < 2**64)


def _entry_id(text: bytes | str) -> EntryId:
    ms, number = (text.decode() if isinstance(text, bytes) else text).split("-")
    return int(ms), int(number)


def _event(id_: str, entry: EntryId, fields: dict[str, bytes]) -> JobEvent | None:
    try:
        jobs = tuple(fields["jobs"].decode().split(" "))
        state, code = State(fields["state"].decode()), fields["code"].decode()
    except (KeyError, ValueError):
        return None
    return JobEvent(id_, min(entry[0], LATEST_MS), jobs, state, code) if all(map(keys.is_id, jobs)) else None


def _send(line: Any, *commands: tuple[Any, ...]) -> "list[asyncio.Future[Any]]":
    replies: list[asyncio.Future[Any]] = [asyncio.get_running_loop().create_future() for _ in commands]
    line.send([(command, partial(_resolve, reply)) for command, reply in zip(commands, replies, strict=True)])
    return replies


def _resolve(future: "asyncio.Future[Any]", reply: Any) -> None:
    if not future.done():
        future.set_result(reply)
