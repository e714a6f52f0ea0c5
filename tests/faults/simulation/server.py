"""A Redis in this thread with a simulated clock: fakeredis, which runs the real Lua, driven command by command.

fakeredis reads the time in one place, `time.time`, for TIME and for keys that expire; `Clock.rules` replaces
it. Three shortcuts make it four times as fast as through redis-py, and change nothing that a script can see:
commands go to its socket directly, a script is compiled once, and garbage collection is left to Lua.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import fakeredis
import redis
from fakeredis._core._database import Item
from fakeredis._socket import FakeSocket
from fakeredis.model import ExpiringMembersSet, Hash, XStream, ZSet
from redis.exceptions import NoScriptError

from sublet.protocol import keys
from sublet.protocol.scripts import Call
from tests.faults.simulation.streams import Entry, Stream

Saved = tuple[tuple[bytes, str, Any, float | None], ...]
"""What `Redis.save` makes: key, type, content, and when it expires."""
FLOW = ("waiting", "turns", "full", "tokens", "places", "tat", "flow", "groups")
"""The kinds of keys that flow control has for itself. (`grouped` is a queue's jobs with groups.)"""
EDGES = ("downstream", "broken", "upstream", "members", "workflow")
"""The kinds of keys that workflows have."""
START = 1_900_000_000_000
"""When every simulation begins, in ms since 1970."""
ROOM = "local ROOM = 50"
"""How a script says how many edges a call settles."""


class Clock:
    """Time in whole ms, so that rounding decides nothing. It passes on request; the server's time may differ."""

    def __init__(self) -> None:
        self.now = START
        self.skew = 0

    def time(self) -> float:
        """The value of `time.time` while this clock is installed."""
        return (self.now + self.skew) / 1000

    @contextlib.contextmanager
    def rules(self) -> Iterator[None]:
        """Install this clock in place of the real one."""
        real, time.time = time.time, self.time
        try:
            yield
        finally:
            time.time = real


class Chunks:
    """Lua's runtime as fakeredis uses it, without compiling a script again, collecting after each, or counting globals midway.
    Scripts settle `room` edges in a call.
    """

    def __init__(self, runtime: Any, room: int) -> None:
        self.room = room
        self._runtime, self._compiled, self._running = runtime, {}, False
        self.table_from, self.eval, self.require = runtime.table_from, runtime.eval, runtime.require
        self.compile, self._globals = runtime.compile, runtime.globals

    def execute(self, text: bytes | str) -> Any:
        """Run a script; fakeredis asks for a collection after each, which is left out."""
        if text == "collectgarbage()":
            return None
        chunk = self._compiled.get(text)
        if chunk is None:
            whole = text.decode() if isinstance(text, bytes) else text
            assert ROOM in whole or "make_edges" not in whole, "the script has changed: replace the new text"
            chunk = self._compiled[text] = self.compile(
                whole.replace(ROOM, f"local ROOM = {self.room}").encode()
            )
        self._running = True
        try:
            return chunk()
        finally:
            self._running = False

    def globals(self) -> Any:
        """The globals, once a script has ended; fakeredis also looks at every command of it, which is left out."""
        return {} if self._running else self._globals()


class Socket(FakeSocket):  # type: ignore[misc]  # fakeredis's commands
    """fakeredis's connection, whose scripts run on `Chunks`."""

    def _lua_redis_call(self, runtime: Any, expected: Any, name: bytes, *words: Any) -> Any:
        return super()._lua_redis_call(self._server._lua_runtime, expected, name, *words)


@dataclass
class Look:
    """All that is stored in a namespace at one moment, as text."""

    now: int
    jobs: dict[str, dict[str, str]] = field(default_factory=dict)
    shelves: dict[str, dict[str, float]] = field(default_factory=dict)
    """Structure → id → score; the queues as `queue:<name>`."""
    locks: dict[str, tuple[str, float | None]] = field(default_factory=dict)
    """`<queue>|<key>` → the job that holds it, and the ms when the lock ends by itself, if it does."""
    wake_ups: dict[str, int] = field(default_factory=dict)
    claims: set[str] = field(default_factory=set)
    """The claim ids that are remembered."""
    register: dict[str, float] = field(default_factory=dict)
    """The registered workers, by last heartbeat."""
    cards: dict[str, dict[str, str]] = field(default_factory=dict)
    """The registration of each."""
    schedules: dict[str, dict[str, str]] = field(default_factory=dict)
    occurrences: dict[str, float] = field(default_factory=dict)
    """Schedule → when its next occurrence is to be fired."""
    flow: dict[str, Any] = field(default_factory=dict)
    """What flow control stores beside the jobs, by its key without the base: sorted sets, hashes, sets and texts."""
    edges: dict[str, dict[str, Any]] = field(default_factory=lambda: {kind: {} for kind in EDGES})
    """What workflows store beside the jobs: kind of key → job or workflow → list, hash or sorted set."""
    streams: dict[str, Stream] = field(default_factory=dict)
    unsettled: dict[str, float] = field(default_factory=dict)
    """The jobs and workflows (after `/`) whose edges are due, with the moment."""
    marked: set[str] = field(default_factory=set)
    """The same, as they are counted."""
    hashes: dict[str, dict[str, str]] = field(default_factory=dict)
    """The partition's own hashes by the rest of their key; the base itself is ``."""


class Redis:
    """One server with one namespace."""

    def __init__(self, clock: Clock, base: str, room: int = 50) -> None:
        self.clock, self.base = clock, base
        self._server = fakeredis.FakeServer()
        self._socket = Socket(self._server, 0, client_class=redis.Redis, client_info={"user": b"default"})
        self._socket._get_server_runtime(self._server)
        self._server._lua_runtime = Chunks(self._server._lua_runtime, room)
        self._db = self._server.dbs[0]

    def command(self, *words: Any) -> Any:
        """Run one command. An error of Redis's is raised, as redis-py would raise it."""
        self._socket._process_command(
            [word if isinstance(word, bytes) else str(word).encode() for word in words]
        )
        reply = self._socket.responses.get_nowait()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def ask(self, call: Call[Any]) -> Any:
        """Run a call as a transport without faults does, and read its reply."""
        try:
            return call.read(self.raw(call.commands))
        except NoScriptError:
            return call.read(self.raw((call.with_text(),)))

    def raw(self, commands: tuple[tuple[Any, ...], ...]) -> Any:
        """Run a call's commands; the reply as its reader expects it."""
        replies = [self.command(*words) for words in commands]
        return replies if len(replies) > 1 else replies[0]

    def events(self) -> list[dict[str, str]]:
        """The events since the last read. Reading empties the stream, so that it need not be saved and restored."""
        entries = self.command("XRANGE", keys.events(self.base), "-", "+")
        if entries:
            self.command("DEL", keys.events(self.base))
        return [dict(zip(*[iter(word.decode() for word in words)] * 2, strict=True)) for _, words in entries]

    def save(self) -> Saved:
        """All stored data, frozen: to compare and to restore."""
        self._db.time = self.clock.time()
        return tuple(
            sorted((name, *_frozen(self._db[name].value), self._db[name].expireat) for name in list(self._db))
        )

    def restore(self, saved: Saved) -> None:
        """Restore stored data."""
        self._db._dict.clear()
        self._db._expiry_heap.clear()
        for name, kind, value, expires in saved:
            item = Item(_thawed(kind, value))
            item.expireat = expires
            self._db[name] = item

    def look(self) -> Look:
        """All that is stored, read from fakeredis's own dictionary: commands would take longer than the script did."""
        look = Look(self.clock.now + self.clock.skew)
        self._db.time = self.clock.time()
        for name in list(self._db):
            item = self._db[name]
            kind, _, rest = name.decode().removeprefix(self.base).removeprefix(":").partition(":")
            value = item.value
            if kind == "job":
                look.jobs[rest] = _text(value)
            elif kind == "key":
                look.locks[rest] = (value.decode(), item.expireat and round(item.expireat * 1000))
            elif kind == "claim":
                look.claims.add(rest)
            elif kind == "wake":
                look.wake_ups[rest] = len(value)
            elif kind == "workers":
                look.register = {name.decode(): score for name, score in value.items()}
            elif kind == "worker":
                look.cards[rest] = _text(value)
            elif kind == "schedule":
                look.schedules[rest] = _text(value)
            elif kind == "schedules":
                look.occurrences = {name.decode(): score for name, score in value.items()}
            elif kind in FLOW:
                look.flow[f"{kind}:{rest}"] = _plain(value)
            elif kind == "stream":
                look.streams[rest] = Stream(_entries(value), item.expireat and round(item.expireat * 1000))
            elif kind == "unsettled":
                look.marked = _plain(value)
            elif kind in EDGES:
                look.edges[kind][rest] = _plain(value)
            elif isinstance(value, ZSet):
                look.shelves[f"{kind}:{rest}" if rest else kind] = _plain(value)
            elif isinstance(value, Hash):
                look.hashes[kind] = _text(value)
        due = look.shelves.get("scheduled", {})
        look.unsettled = {i[1:]: due.pop(i) for i in [i for i in due if i.startswith(">")]}
        return look


def _text(value: Hash) -> dict[str, str]:
    return {name.decode(): text.decode() for name, text in value.items()}


def _plain(value: Any) -> Any:
    """A value as text; a score as a number."""
    if isinstance(value, ZSet):
        return {i.decode(): score for i, score in value.items()}
    if isinstance(value, ExpiringMembersSet):
        return {i.decode() for i in value}
    if isinstance(value, list):
        return [word.decode() for word in value]
    return _text(value) if isinstance(value, Hash) else value.decode()


def _entries(value: XStream) -> tuple[Entry, ...]:
    rows = ((key.ts, *value._values_dict[key]) for key in value._ids)
    return tuple(Entry(number, int(attempt), chunk.decode()) for number, attempt, chunk in rows)


def _frozen(value: Any) -> tuple[str, Any]:
    if isinstance(value, ExpiringMembersSet):
        return "set", tuple(sorted(value))
    if isinstance(value, Hash | ZSet):
        return type(value).__name__, tuple(sorted(value.items()))
    return ("bytes", value) if isinstance(value, bytes) else ("list", tuple(value))


def _thawed(kind: str, value: Any) -> Any:
    if kind == "Hash":
        made = Hash()
        made.update(dict(value), clear_expiration=True)
        return made
    if kind == "ZSet":
        made = ZSet()
        for member, score in value:
            made.add(member, score)
        return made
    if kind == "set":
        return ExpiringMembersSet(dict.fromkeys(value))
    return list(value) if kind == "list" else value
