"""A proxy on loopback between a client and its server: it sees each command, and loses, refuses or forgets on demand."""

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from sublet.devtools.conformance.resp import ErrorReply, read_command, read_reply
from sublet.errors import Invalid
from sublet.protocol.scripts import NAMES, script

LIMIT = 16 * 1024 * 1024
"""Bytes that a stream may hold before its sender must wait."""
NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
LOADING = b"-LOADING Redis is loading the dataset in memory\r\n"
REQUEST_LOST, REPLY_LOST, FORGOTTEN, REFUSED = "request lost", "reply lost", "script forgotten", "refused"
SILENT = "reply kept back"
"""The connection stays open after the command, and nothing more comes on it: only a deadline tells."""
HANDSHAKE = {"HELLO", "AUTH", "SELECT", "CLIENT", "PING", "QUIT", "COMMAND"}
"""What a client says to set up a connection."""


@dataclass
class Seen:
    """A command that came by: when, what, and what became of it."""

    at: float
    name: str
    """Redis's command, in capitals."""
    verb: str
    """Ours, if it is one of our scripts."""
    args: list[str]
    """The verb's arguments; of another command, its words after the name. Bytes that are no UTF-8 are replaced."""
    reply: Any = None
    replied_at: float | None = None
    fate: str = ""
    """What the proxy did to it; empty when it was passed on and answered."""
    link: int = 0
    """The connection on which it came."""

    @property
    def refused(self) -> str:
        """The words of an error reply."""
        return self.reply if isinstance(self.reply, ErrorReply) else ""

    def given(self) -> list[str]:
        """The ids of the jobs that a claim's reply brings."""
        many = self.verb == "claim" and isinstance(self.reply, list)
        return [text(self.reply[i]) for i in range(3, len(self.reply), 6)] if many else []

    def token(self) -> str:
        """The token that a claim's reply brings."""
        return text(self.reply[0]) if self.given() else ""


@dataclass
class Fault:
    """Something to go wrong once: with the first command of a verb of which `when` is true."""

    verb: str
    fate: str
    when: Callable[[Seen], bool] = lambda seen: True
    spent: bool = field(default=False, init=False)


def text(value: Any) -> str:
    """A part of a reply as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class Proxy:
    """Listens on a port of its own, and passes each connection on to one of its own to the server."""

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._parts = urlsplit(server_url)
        if self._parts.scheme not in ("redis", "unix"):
            raise Invalid("a server behind TLS cannot be listened to: use redis:// or unix://")
        self.log: list[Seen] = []
        self.faults: list[Fault] = []
        self.forgetful = False
        """Forget each script as soon as it has run once."""
        self.loading = False
        """Answer each script with LOADING."""
        self._verbs = {script(name).sha: name for name in NAMES}
        self.broken: set[int] = set()
        """The connections that we broke: what was answered on one shortly before may not have been read."""
        self._opened = 0
        self._known: Counter[str] = Counter()
        self._links: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._port = 0

    async def listen(self) -> None:
        """Take connections, from now on or again."""
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self._port, limit=LIMIT)
        self._port = self._listener.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        """Where the client finds its server: user, password and database are those of the real one."""
        user, at, _ = self._parts.netloc.rpartition("@")
        path = self._parts.path if self._parts.scheme == "redis" else ""
        return urlunsplit(("redis", f"{user}{at}127.0.0.1:{self._port}", path, "", ""))

    async def leave(self) -> None:
        """Drop all connections, and take none."""
        if self._listener:
            self._listener.close()
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers, number = [writer], self._opened
        self._opened += 1
        try:
            server_reader, server_writer = await self._connect()
            writers.append(server_writer)
            await _Link(self, number, reader, writer, server_reader, server_writer).run()
        except asyncio.CancelledError:
            self.broken.add(number)
            raise
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            pass  # one of the two sides went, or does not speak the protocol: the other one is told by the end of its connection
        finally:
            for each in writers:
                each.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._parts.scheme == "unix":
            return await asyncio.open_unix_connection(unquote(self._parts.path), limit=LIMIT)
        return await asyncio.open_connection(
            self._parts.hostname or "127.0.0.1", self._parts.port or 6379, limit=LIMIT
        )

    def note(self, words: list[bytes], link: int) -> Seen:
        """Write down a command that came in."""
        name = text(words[0]).upper() if words else ""
        verb, args = "", [text(word) for word in words[1:]]
        if name in ("EVAL", "EVALSHA") and len(words) > 3:
            sha = (
                hashlib.sha1(words[1], usedforsecurity=False).hexdigest()
                if name == "EVAL"
                else text(words[1]).lower()
            )
            verb, args = self._verbs.get(sha, ""), [text(word) for word in words[4:]]
            args = args if verb else [sha, *args]
        seen = Seen(asyncio.get_running_loop().time(), name, verb, args, link=link)
        self.log.append(seen)
        return seen

    def forgets(self, seen: Seen, words: list[bytes]) -> bool:
        """Is this a script that is not known (any more)?"""
        if seen.name == "SCRIPT" and len(words) > 2 and words[1].upper() == b"LOAD":
            self._known[hashlib.sha1(words[2], usedforsecurity=False).hexdigest()] += 1
        if seen.name != "EVALSHA" or not self.forgetful:
            return False
        sha = text(words[1]).lower()
        self._known[sha] -= 1
        if self._known[sha] >= 0:
            return False
        self._known[sha] = 0
        return True

    def strikes(self, seen: Seen, fate: str) -> bool:
        """Does a fault of this kind meet this command?"""
        for fault in self.faults:
            if not fault.spent and fault.verb == seen.verb and fault.fate == fate and fault.when(seen):
                fault.spent, seen.fate = True, fate
                self.broken.add(seen.link)
                return True
        return False


class _Link:
    """One connection of the client's, and ours to the server."""

    def __init__(
        self,
        proxy: Proxy,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        self._proxy, self._number, self._reader, self._writer = proxy, number, reader, writer
        self._server_reader, self._server_writer = server_reader, server_writer
        self._commands: asyncio.Queue[tuple[bytes, list[bytes]] | None] = asyncio.Queue()
        self._said_all = False

    async def run(self) -> None:
        """Pass on command by command, each when the one before it was answered."""
        listening = asyncio.get_running_loop().create_task(self._listen())
        try:
            while (command := await self._commands.get()) is not None and await self._pass_on(*command):
                pass
        finally:
            listening.cancel()

    async def _listen(self) -> None:
        with contextlib.suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            while True:
                self._commands.put_nowait(await read_command(self._reader))
        self._said_all = True
        if self._commands.empty():
            self._hang_up()
        self._commands.put_nowait(None)

    def _hang_up(self) -> None:
        """Let the server know that the client is gone: blocked on this connection, it would take a marker for nobody."""
        with contextlib.suppress(OSError):
            self._server_writer.write_eof()

    async def _pass_on(self, raw: bytes, words: list[bytes]) -> bool:
        """Have one command answered, as far as it is to be. False when the connection is over."""
        proxy, seen = self._proxy, self._proxy.note(words, self._number)
        if proxy.strikes(seen, REQUEST_LOST):
            return False
        if proxy.loading and seen.name in ("EVAL", "EVALSHA"):
            seen.fate, seen.reply = REFUSED, ErrorReply("LOADING")
            self._writer.write(LOADING)
            return True
        if proxy.forgets(seen, words):
            seen.fate = FORGOTTEN
            self._writer.write(NOSCRIPT)
            return True
        self._server_writer.write(raw)
        if self._said_all and self._commands.qsize() == 1:
            self._hang_up()
        if seen.name.endswith("SUBSCRIBE") or seen.name == "MONITOR":
            await self._relay()
        answer, seen.reply = await read_reply(self._server_reader)
        while answer.startswith(b">"):  # news that nobody asked for
            self._writer.write(answer)
            answer, seen.reply = await read_reply(self._server_reader)
        seen.replied_at = asyncio.get_running_loop().time()
        if proxy.strikes(seen, REPLY_LOST):
            return False
        if proxy.strikes(seen, SILENT):
            await self._hold()
            return False
        self._writer.write(answer)
        await self._writer.drain()
        return True

    async def _hold(self) -> None:
        """Say nothing more until the client gives this connection up; what it still sends is lost."""
        while (command := await self._commands.get()) is not None:
            self._proxy.note(command[1], self._number).fate = REQUEST_LOST

    async def _relay(self) -> None:
        """A connection that listens to channels: the two sides no longer take turns."""
        while True:
            answer, _ = await read_reply(self._server_reader)
            self._writer.write(answer)
