"""Measure the server's load by Redis's `INFO` before and after. Needs only the standard library."""

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


@dataclass
class Counted:
    """The load of the server; all zero until the counting ends."""

    redis_us: float = 0.0
    """µs of CPU, user and system, of the thread that runs the commands (else of the whole server)."""
    commands: int = 0
    scripts: int = 0
    bytes_moved: int = 0
    memory: int = 0


@dataclass
class CommandCounts:
    """Executed commands; 0 until the monitoring has ended."""

    sent: int = 0
    inside: int = 0


class Meter:
    """Counts at one server, `redis://host:port/0`. Raises OSError: unreachable, or no answer in 30 s."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def counting(self) -> Iterator[Counted]:
        counted, before = Counted(), self.read()
        try:
            yield counted
        finally:
            after = self.read()
            counted.redis_us = after.redis_us - before.redis_us
            counted.commands = (
                after.commands - before.commands - 1
            )  # without the call that read the figures before
            counted.scripts = after.scripts - before.scripts
            counted.bytes_moved = after.bytes_moved - before.bytes_moved
            counted.memory = after.memory - before.memory

    @contextmanager
    def monitoring(self) -> Iterator[CommandCounts]:
        counts, end = CommandCounts(), secrets.token_hex(8)
        with _connected(self.url) as (line, lines):
            line.sendall(_packed("MONITOR"))
            lines.readline()
            listener = threading.Thread(target=_count_monitored, args=(lines, end.encode(), counts))
            listener.start()
            try:
                yield counts
            finally:
                ask(self.url, "ECHO", end)
                listener.join()

    def read(self) -> Counted:
        told = _told(ask(self.url, "INFO", "everything"))
        calls = {name[8:]: _calls(value) for name, value in told.items() if name.startswith("cmdstat_")}
        thread = "_main_thread" if "used_cpu_user_main_thread" in told else ""
        cpu = float(told[f"used_cpu_user{thread}"]) + float(told[f"used_cpu_sys{thread}"])
        moved = int(told["total_net_input_bytes"]) + int(told["total_net_output_bytes"])
        scripts = sum(calls.get(name, 0) for name in SCRIPTS)
        return Counted(cpu * 1e6, sum(calls.values()), scripts, moved, int(told["used_memory"]))


def ask(url: str, *words: str) -> str:
    """Send one command; return the answer. Raises RuntimeError for an error of the server."""
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


def _count_monitored(lines: BinaryIO, end: bytes, counts: CommandCounts) -> None:
    with suppress(OSError):  # a timeout, or the server closed the connection
        for line in lines:
            if end in line:
                return
            within = line.partition(b"] ")[0].endswith(b" lua")
            counts.inside, counts.sent = counts.inside + within, counts.sent + (not within)


def _told(text: str) -> dict[str, str]:
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line and not line.startswith("#"))


def _calls(stat: str) -> int:
    return int(stat.partition("calls=")[2].partition(",")[0])
