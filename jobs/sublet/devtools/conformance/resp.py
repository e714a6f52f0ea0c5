"""Read Redis's wire protocol frame by frame."""

import asyncio
from typing import Any

LINE = b"\r\n"


class ErrorReply(str):
    """The text of an error reply."""


async def read_command(reader: asyncio.StreamReader) -> tuple[bytes, list[bytes]]:
    """Read one command. Return its bytes and words. Raises IncompleteReadError at the end of the stream."""
    head = await reader.readuntil(LINE)
    if not head.startswith(b"*"):
        return head, head.split()
    raw, words = [head], []
    for _ in range(int(head[1:])):
        size = await reader.readuntil(LINE)
        word = await reader.readexactly(int(size[1:]) + 2)
        raw += [size, word]
        words.append(word[:-2])
    return b"".join(raw), words


async def read_reply(reader: asyncio.StreamReader) -> tuple[bytes, Any]:
    """Read one reply of RESP2 or RESP3. Return its raw bytes and its value: int, None, list (a map: flat),
    ErrorReply, else bytes.
    """
    head = await reader.readuntil(LINE)
    kind, rest = head[:1], head[1:-2]
    if kind in b"$=!":
        return await _bulk(reader, kind, head, int(rest))
    if kind in b"*~>%|":
        return await _many(reader, kind, head, int(rest))
    if kind == b"-":
        return head, ErrorReply(rest.decode(errors="replace"))
    if kind == b":":
        return head, int(rest)
    return head, None if kind == b"_" else rest


async def _bulk(reader: asyncio.StreamReader, kind: bytes, head: bytes, size: int) -> tuple[bytes, Any]:
    if size < 0:
        return head, None
    body = await reader.readexactly(size + 2)
    return head + body, ErrorReply(body[:-2].decode(errors="replace")) if kind == b"!" else body[:-2]


async def _many(reader: asyncio.StreamReader, kind: bytes, head: bytes, size: int) -> tuple[bytes, Any]:
    raw, values = [head], []
    for _ in range(size * (2 if kind in b"%|" else 1)):
        part, value = await read_reply(reader)
        raw.append(part)
        values.append(value)
    if kind == b"|":
        part, values = await read_reply(reader)
        raw.append(part)
    return b"".join(raw), None if size < 0 else values
