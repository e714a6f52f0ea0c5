"""Request bodies: read within limits, large ones in turn, and parsed."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from pydantic import BaseModel, ValidationError

from sublet_functions.http.limits import Limits
from sublet_functions.http.memory import body_budget, share_of
from sublet_functions.http.problems import Problem, cut_off_body, invalid_value, validation_problem
from sublet_functions.http.request import Count, Read, Request

log = logging.getLogger(__name__)

BODY_MAX = 1024 * 1024
BATCH_BODY_MAX = 8 * 1024 * 1024
LARGE = 8 * 1024
"""A body of so many bytes or more waits in a queue to be parsed; smaller ones take less than a millisecond."""
QUEUE_SECONDS = 10.0
SHORT = 0.001
"""If parsing took less CPU time than this (seconds), the queue's next body starts at once."""
LONG = 0.01
"""If parsing took this CPU time (seconds) or more, other requests, if any, get as much before the next body.
"""
CHECK_SECONDS = 0.002

EVENT_MEDIA_TYPE = "application/cloudevents"
EVENT_ATTRIBUTES = ("specversion", "id", "source", "type")
_EVENT_HEADERS = tuple(f"ce-{name}" for name in EVENT_ATTRIBUTES)
_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False)

M = TypeVar("M", bound=BaseModel)


class BodyStream(Protocol):
    """The part of aiohttp's StreamReader that BodyReader uses."""

    def is_eof(self) -> bool:
        """Whether the last byte has arrived."""
        ...

    def read_nowait(self, n: int = -1) -> bytes:
        """Return the bytes that have arrived, without waiting."""
        ...

    async def readany(self) -> bytes:
        """Wait for the next bytes and return them; empty at the end."""
        ...


class BodyReader:
    """Reads request bodies, within limits of size and time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._most = limits.held or body_budget()
        self._held = 0

    async def read(
        self,
        stream: BodyStream,
        headers: Mapping[str, str],
        send_continue: Callable[[], None],
        most: int,
        count: Count | None = None,
    ) -> bytes:
        """Return the whole body, of at most `most` bytes. If it is incomplete, call `send_continue` for
        `Expect: 100-continue`, and `count` with the size of each piece; at the end, with minus their sum.

        Raises Problem for a body that is too large, too slow or cut off, and if all arriving bodies
        together exceed `Limits.held`.
        """
        if stream.is_eof():
            whole = stream.read_nowait()
            if len(whole) > most:
                raise _too_large(most)
            return whole
        announced = headers.get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > most:
            raise Problem("too-large", f"the body has {announced[:20]} bytes: send at most {most:,}")
        if headers.get("expect", "").lower() == "100-continue":
            send_continue()
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return await self._read(stream, most, count)
        except TimeoutError:
            raise Problem(
                "timeout",
                f"the body did not arrive within {self._limits.body_seconds:g} s: send it faster, or less of it",
            ) from None

    async def _read(self, stream: BodyStream, most: int, count: Count | None) -> bytes:
        body = bytearray()
        try:
            while chunk := await _next_chunk(stream):
                self._held += len(chunk)
                body += chunk
                if count:
                    count(len(chunk))
                if len(body) > most:
                    raise _too_large(most)
                if self._held > self._most:
                    raise Problem(
                        "busy",
                        "too many large bodies are arriving at this server: send the request again later",
                    )
            return bytes(body)
        finally:
            self._held -= len(body)
            if count:
                count(-len(body))


async def _next_chunk(stream: BodyStream) -> bytes:
    try:
        return await stream.readany()
    except Exception as error:  # noqa: BLE001  aiohttp's own: a malformed chunk, or a broken connection
        log.debug("a body was cut off: %s", type(error).__name__)
        raise cut_off_body() from None


def _too_large(most: int) -> Problem:
    return Problem("too-large", f"the body has more than {most:,} bytes: send at most that")


class BodyQueues:
    """Queues of large bodies, because parsing one blocks the event loop for up to 0.5 s.

    Each token's name has a queue, and another for its heartbeats. Between two bodies of a queue, other
    requests get CPU time.
    """

    def __init__(self, most: int = 0, share: int = 0) -> None:
        """`most`: bytes of all waiting bodies; `share`: of one name's waiting or arriving ones. 0:
        by memory.
        """
        self._most = most or body_budget()
        self._share = share or share_of(self._most)
        self._queues: WeakValueDictionary[str, _Queue] = WeakValueDictionary()
        self._arriving: dict[str, int] = {}
        self._waiting = 0

    def enter(self, name: str, read: Read) -> QueuedBody:
        """Return a context manager for one body: it gives a function that reads and parses it. A large one, once
        read, waits in the queue `name` to be parsed.
        """
        return QueuedBody(self, name, read)

    def count(self, name: str, size: int) -> None:
        """Add `size`, maybe negative, to the bytes of a name's arriving bodies. Raises Problem for
        too many.
        """
        total = self._arriving.get(name, 0) + size
        self._arriving[name] = total
        if not total:
            del self._arriving[name]
        if size > 0 and total > self._share:
            raise Problem("busy", "too many large bodies of this token are arriving: send fewer at a time")

    async def wait(self, name: str, size: int) -> _Queue:
        """Wait until a body of `size` bytes may be parsed; return the queue `name`, whose `leave` the caller
        must call.

        Raises Problem if too many bytes wait, or after 10 s.
        """
        queue = self._queues.get(name) or self._queues.setdefault(name, _Queue())
        if queue.waiting and queue.waiting + size > self._share:
            raise Problem("busy", "too many large bodies of this token are waiting: send fewer at a time")
        if self._waiting + size > self._most:
            raise Problem(
                "busy", "too many large bodies are waiting at this server: send the request again later"
            )
        queue.waiting += size
        self._waiting += size
        try:
            async with asyncio.timeout(QUEUE_SECONDS):
                await queue.turn.acquire()
        except TimeoutError:
            raise Problem(
                "busy",
                f"the body waited {QUEUE_SECONDS:g} s behind other large bodies of this token: send fewer at a time",
            ) from None
        finally:
            queue.waiting -= size
            self._waiting -= size
        return queue


class QueuedBody:
    """A context manager for one body: a large one, once read, waits its turn to be parsed. Its end passes the
    turn on."""

    __slots__ = ("_began", "_name", "_queue", "_queues", "_read")

    def __init__(self, queues: BodyQueues, name: str, read: Read) -> None:
        self._queues = queues
        self._name = name
        self._read = read
        self._queue: _Queue | None = None
        self._began = 0.0

    def __enter__(self) -> Read:
        return self.read

    async def read(self, most: int, count: Count | None = None, /) -> bytes:
        """Return the whole body, a large one after waiting in its queue. Raises Problem."""
        raw = await self._read(most, count or partial(self._queues.count, self._name))
        if len(raw) >= LARGE and self._queue is None:
            self._queue = await self._queues.wait(self._name, len(raw))
            self._began = time.thread_time()
        return raw

    def __exit__(self, *_: object) -> None:
        if self._queue:
            # CPU time: other processes must not count against the client
            self._queue.leave(time.thread_time() - self._began)


class _Queue:
    __slots__ = ("__weakref__", "turn", "waiting")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.waiting = 0

    def leave(self, took: float) -> None:
        """Start the queue's next body as SHORT and LONG define; `took`: CPU seconds of parsing."""
        if took < SHORT:
            self.turn.release()
        else:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._pause, loop, took)  # by then this body's handler waits for Redis

    def _pause(self, loop: asyncio.AbstractEventLoop, left: float) -> None:
        if left < LONG:
            self.turn.release()
        else:
            loop.call_later(CHECK_SECONDS, self._check, loop, time.thread_time(), left)

    def _check(self, loop: asyncio.AbstractEventLoop, since: float, left: float) -> None:
        used = time.thread_time() - since
        if used >= left or used < CHECK_SECONDS / 2:
            self.turn.release()
        else:
            loop.call_later(CHECK_SECONDS, self._check, loop, since + used, left - used)


def media_type(headers: Mapping[str, str]) -> str:
    """Return a body's media type, lower-case, without parameters; empty without Content-Type."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def is_event(headers: Mapping[str, str]) -> bool:
    """Whether a request has a CloudEvent's media type, or a header ce-specversion, -id, -source or -type."""
    return media_type(headers).startswith(EVENT_MEDIA_TYPE) or any(map(headers.__contains__, _EVENT_HEADERS))


async def read_body(request: Request, most: int) -> bytes:
    """Return a request's body. Raises Problem if it is compressed, too large, too slow or cut off, or if too
    many large ones arrive or wait.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem("unsupported-media-type", "Content-Encoding: send the body uncompressed")
    raw = await request.read(most) if request.read else request.body
    if len(raw) > most:
        raise Problem("too-large", f"the body has {len(raw):,} bytes: send at most {most:,}")
    return raw


async def parse_body(request: Request, model: type[M], most: int) -> M:
    """Return a request's body as `model`. An empty body, of any media type, is `{}`.

    Raises Problem as `read_body`, and for a media type or body that is not JSON, or invalid.
    """
    raw = await read_body(request, most)
    if raw:
        _check_media_type(request.headers.get("content-type", "").lower())
    else:
        raw = b"{}"
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise validation_problem(error, "body", value=raw) from None


def _check_media_type(header: str) -> None:
    kind, _, parameters = header.partition(";")
    charset = parameters.strip().removeprefix("charset=").strip('"')
    is_json = kind.strip() in ("application/json", "application/merge-patch+json")
    if not is_json or charset not in ("", "utf-8"):
        raise Problem(
            "unsupported-media-type", "send the body as JSON in UTF-8, with Content-Type: application/json"
        )


def stored_json(value: Any, most: int, *where: str | int) -> bytes:
    """Encode a value as JSON, to be stored. Raises Problem for over `most` bytes, numbers that are not
    finite, invalid Unicode and deep nesting. `where`: the value's place in the request.
    """
    try:
        text = _JSON.encode(value).encode()
    except (ValueError, RecursionError) as error:
        raise Problem(
            "invalid",
            f"{where[-1]}: use finite numbers, valid Unicode and less nesting ({error})",
            errors=[invalid_value(str(error), *where)],
        ) from None
    if len(text) > most:
        raise Problem(
            "invalid",
            f"{where[-1]} has {len(text):,} bytes as JSON: at most {most:,}; store the data elsewhere and send a reference",
            errors=[invalid_value(f"{len(text):,} bytes as JSON, at most {most:,}", *where)],
        )
    return text
