"""A proxy on loopback between a client and its server."""

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
NOSCRIPT = b"-NOSCRIPT No matching script. Please use EVAL.\r\n"
LOADING = b"-LOADING Redis is loading the dataset in memory\r\n"
REQUEST_LOST, REPLY_LOST, FORGOTTEN, REFUSED = "request lost", "reply lost", "script forgotten", "refused"
SILENT = "reply kept back"
"""A fault: the connection stays open but carries nothing more: only a timeout detects it."""
HANDSHAKE = {"HELLO", "AUTH", "SELECT", "CLIENT", "PING", "QUIT", "COMMAND"}


@dataclass
class Seen:
    """A command that reached the proxy. `verb`: its script; `fate`: its fault; empty without one."""

    at: float
    name: str
    verb: str
    args: list[str]
    reply: Any = None
    replied_at: float | None = None
    fate: str = ""
    link: int = 0

    @property
    def refused(self) -> str:
        """The message of the server's error reply; empty after another reply, or without any."""
        return self.reply if isinstance(self.reply, ErrorReply) else ""

    def given(self) -> list[str]:
        """Return the ids of a claim's jobs; empty for other commands."""
        many = self.verb == "claim" and isinstance(self.reply, list)
        return [text(self.reply[i]) for i in range(3, len(self.reply), 6)] if many else []

    def given_schedules(self, name: str) -> bool:
        """Whether the reply of a pick has this schedule."""
        return self.verb == "pick" and isinstance(self.reply, list) and name.encode() in self.reply[2::5]

    def token(self) -> str:
        """Return the token that a claim gave to its jobs; empty without jobs."""
        return text(self.reply[0]) if self.given() else ""


@dataclass
class Fault:
    """A fault to inject, of the kind `fate`, into the first command of a verb for which `when` is true."""

    verb: str
    fate: str
    when: Callable[[Seen], bool] = lambda seen: True
    spent: bool = field(default=False, init=False)


def text(value: Any) -> str:
    """Return a part of a reply as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class Proxy:
    """Listens on a port, and passes on what comes from the client and the server. Records each command in
    `log`, and injects `faults`. After a SUBSCRIBE or MONITOR, a connection takes no more commands.
    """

    def __init__(self, server_url: str) -> None:
        self._server_url = server_url
        self._parts = urlsplit(server_url)
        if self._parts.scheme not in ("redis", "unix"):
            raise Invalid(
                f"a server URL with {self._parts.scheme}:// is not possible here, as the proxy supports neither TLS nor clusters nor sentinels: use redis:// or unix://"
            )
        self.log: list[Seen] = []
        self.faults: list[Fault] = []
        self.forgetful = False
        """Whether to answer NOSCRIPT as if the server forgot each script after one call."""
        self.loading = False
        """Whether to answer each script call with LOADING."""
        self._verbs = {script(name).sha: name for name in NAMES}
        self.broken: set[int] = set()
        """Numbers of connections that a fault or `leave` broke: the client may not have read their last
        replies.
        """
        self._opened = 0
        self._known: Counter[str] = Counter()
        self._links: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._port = 0

    async def listen(self) -> None:
        """Accept connections; after `leave`, again on the same port."""
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self._port, limit=LIMIT)
        self._port = self._listener.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        """The proxy's URL for the client, with the server's user, password and database."""
        user, at, _ = self._parts.netloc.rpartition("@")
        path = self._parts.path if self._parts.scheme == "redis" else ""
        return urlunsplit(("redis", f"{user}{at}127.0.0.1:{self._port}", path, "", ""))

    async def leave(self) -> None:
        """Close all connections, and accept no more until `listen`."""
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
            pass  # closing the other end reports it
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
        """Log a client's command, and return it."""
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
        """Whether to answer NOSCRIPT: a forgetful proxy allows one EVALSHA for each SCRIPT LOAD."""
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
        """Whether to inject a fault of the kind `fate` into this command. Each fault is used once."""
        for fault in self.faults:
            if not fault.spent and fault.verb == seen.verb and fault.fate == fate and fault.when(seen):
                fault.spent, seen.fate = True, fate
                self.broken.add(seen.link)
                return True
        return False


class _Link:
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
        """Pass on commands, each after the previous reply."""
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
        """Close the server's connection, too: a read blocked on it would consume a wake-up."""
        with contextlib.suppress(OSError):
            self._server_writer.write_eof()

    async def _pass_on(self, raw: bytes, words: list[bytes]) -> bool:
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
        while answer.startswith(b">"):
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
        while (command := await self._commands.get()) is not None:
            self._proxy.note(command[1], self._number).fate = REQUEST_LOST

    async def _relay(self) -> None:
        while True:
            answer, _ = await read_reply(self._server_reader)
            self._writer.write(answer)
