"""What a stretch of work costs the server: its CPU time, the commands it ran, the bytes it moved, the memory that it keeps.

Reads Redis's own account (`INFO`) before and after, over a connection of its own; needs nothing but the standard library.
"""

import secrets
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO
from urllib.parse import urlsplit

SCRIPTS = ("eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro")
PATIENCE = 30.0
"""Seconds that the server may take to answer."""


@dataclass
class Counted:
    """What the server did while it was counted; all zero until then."""

    redis_us: float = 0.0
    """µs of CPU, user and system, of the thread that runs the commands (of the whole server where that is not told apart)."""
    commands: int = 0
    """Commands that ran, those within scripts included."""
    scripts: int = 0
    """Of these, the calls of scripts and functions."""
    bytes_moved: int = 0
    """Bytes that came in and went out."""
    memory: int = 0
    """By how many bytes `used_memory` grew."""


@dataclass
class Heard:
    """Which commands the server was heard to run; none until the listening is over."""

    sent: int = 0
    """Those that clients sent: a script is one."""
    inside: int = 0
    """Those that ran within scripts."""


class Meter:
    """Counts at one server, `redis://host:port/0`. Raises OSError when it cannot be reached, or does not answer in 30 s."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def counting(self) -> Iterator[Counted]:
        """Count what is done within; the figures are there when the block ends, also by an error."""
        counted, before = Counted(), self.read()
        try:
            yield counted
        finally:
            after = self.read()
            counted.redis_us = after.redis_us - before.redis_us
            counted.commands = (
                after.commands - before.commands - 1
            )  # its own, which asked for the figures before
            counted.scripts = after.scripts - before.scripts
            counted.bytes_moved = after.bytes_moved - before.bytes_moved
            counted.memory = after.memory - before.memory

    @contextmanager
    def listening(self) -> Iterator[Heard]:
        """Tell the commands that clients send from those within scripts, by MONITOR, which slows the server down.

        The figures are there when the block ends.
        """
        heard, end = Heard(), secrets.token_hex(8)
        with _connected(self.url) as (line, lines):
            line.sendall(_packed("MONITOR"))
            lines.readline()
            listener = threading.Thread(target=_listen, args=(lines, end.encode(), heard))
            listener.start()
            try:
                yield heard
            finally:
                ask(self.url, "ECHO", end)
                listener.join()

    def read(self) -> Counted:
        """The server's account since its start; its own question costs the server some 0.1 ms and 6 kB."""
        told = _told(ask(self.url, "INFO", "everything"))
        calls = {name[8:]: _calls(value) for name, value in told.items() if name.startswith("cmdstat_")}
        thread = "_main_thread" if "used_cpu_user_main_thread" in told else ""
        cpu = float(told[f"used_cpu_user{thread}"]) + float(told[f"used_cpu_sys{thread}"])
        moved = int(told["total_net_input_bytes"]) + int(told["total_net_output_bytes"])
        scripts = sum(calls.get(name, 0) for name in SCRIPTS)
        return Counted(cpu * 1e6, sum(calls.values()), scripts, moved, int(told["used_memory"]))


def ask(url: str, *words: str) -> str:
    """Send one command to the server and return its answer; an error of the server is raised as a RuntimeError."""
    with _connected(url) as (line, lines):
        line.sendall(_packed(*words))
        head = lines.readline().decode().strip()
        if head.startswith("-"):
            raise RuntimeError(head[1:])
        return lines.read(int(head[1:])).decode() if head.startswith("$") and head != "$-1" else head[1:]


@contextmanager
def _connected(url: str) -> "Iterator[tuple[socket.socket, BinaryIO]]":
    place = urlsplit(url)
    address = (place.hostname or "127.0.0.1", place.port or 6379)
    with socket.create_connection(address, PATIENCE) as line, line.makefile("rb") as lines:
        yield line, lines


def _packed(*words: str) -> bytes:
    return f"*{len(words)}\r\n".encode() + b"".join(
        b"$%d\r\n%b\r\n" % (len(w.encode()), w.encode()) for w in words
    )


def _listen(lines: BinaryIO, end: bytes, heard: Heard) -> None:
    """Count the server's lines, `+1732231234.5 [0 127.0.0.1:4711] "GET" "key"`, until one has the word that ends it."""
    with suppress(OSError):  # it hears nothing for long, or is hung up on
        for line in lines:
            if end in line:
                return
            within = line.partition(b"] ")[0].endswith(b" lua")
            heard.inside, heard.sent = heard.inside + within, heard.sent + (not within)


def _told(text: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))


def _calls(stat: str) -> int:
    return int(stat.partition("calls=")[2].partition(",")[0])
