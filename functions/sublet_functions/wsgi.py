"""The API as a WSGI application (PEP 3333): `sublet_functions.wsgi:app`, for gunicorn and other WSGI servers.

Each process has an event loop in a thread, started at the first request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import traceback
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from http import HTTPStatus
from wsgiref.util import is_hop_by_hop

from sublet_functions.adapters.hosted import Hosted
from sublet_functions.adapters.loop_thread import (
    Application,
    ClientDisconnected,
    LoopCall,
    LoopThread,
    LoopUnresponsive,
)
from sublet_functions.adapters.wsgi_environ import (
    Environ,
    cut,
    has_body,
    has_disconnected,
    headers_of,
    is_ending,
    path_of,
    prefix_of,
    read_body,
)
from sublet_functions.http.auth import Principal
from sublet_functions.http.limits import Limits
from sublet_functions.http.problems import Problem, internal_error
from sublet_functions.http.request import Count, Request
from sublet_functions.http.response import DISCARD_SECONDS, Response

log = logging.getLogger(__name__)

PIECE_SECONDS = 60.0
"""A stream without a next piece for so many seconds is broken off."""
BODY_SECONDS = Limits().body_seconds
SEND_SECONDS = Limits().send_seconds
"""A client that receives no piece for so many seconds is cut off, if the server gives the socket."""
PHRASES = {status.value: status.phrase for status in HTTPStatus}
BODILESS = (204, 304)


class ResponseAborted(Exception):
    """Raised to the server so that it breaks off a response that cannot be continued."""


class Wsgi:
    """The WSGI application. `make` makes the API, on the event loop (default: configured by the environment)."""

    def __init__(self, make: Callable[[], Application] | None = None) -> None:
        self._make = make or partial(Hosted, freezes=True)
        self._threads: dict[int, LoopThread] = {}

    def __call__(self, environ: Environ, start_response: Callable[..., object]) -> Iterable[bytes]:
        """Answer one request."""
        method = str(environ.get("REQUEST_METHOD", ""))
        is_head = method == "HEAD"
        try:
            call, response = self._answer(method, environ)
            status, headers = _head(response, is_head)
        except Exception as error:  # noqa: BLE001  one request must not end the server
            _log_unexpected(error)
            call, response = None, internal_error().response()
            status, headers = _head(response, is_head)
        start_response(status, headers)
        return ResponseIterator(call, response, is_head=is_head, cut=partial(cut, environ))

    def close(self) -> None:
        """End this process's event loop, and wait up to 12 s; a later request starts a new one."""
        thread = self._threads.pop(os.getpid(), None)
        if thread:
            thread.close()

    def ask(self, request: Request, principal: Principal | None = None) -> Response:
        """Answer a request that did not arrive by WSGI; the response's body is bytes. `principal`: the
        client, if it is authenticated. Raises LoopUnresponsive.
        """
        thread = self._thread()

        async def answer() -> Response:
            response = await thread.application.answer(request, principal)
            if not isinstance(response.body, bytes):
                response.body = b"".join([piece async for piece in response.body])
            return response

        return LoopCall(thread).run(answer())

    def _answer(self, method: str, environ: Environ) -> tuple[LoopCall | None, Response]:
        try:
            thread = self._thread()
            has_left = partial(has_disconnected, environ)
            call = LoopCall(thread, has_left)

            async def read(most: int, _: Count | None = None, /) -> bytes:
                try:
                    # read_body has the same limit, but may block in a read
                    async with asyncio.timeout(BODY_SECONDS + 1):
                        return await call.in_thread(partial(read_body, environ, most, BODY_SECONDS))
                except TimeoutError:
                    cut(environ, socket.SHUT_RD)
                    raise Problem(
                        "timeout",
                        f"the body did not arrive within {BODY_SECONDS:g} s: send it faster, or less of it",
                    ) from None

            request = Request(
                method,
                path_of(environ),
                str(environ.get("QUERY_STRING", "")),
                headers_of(environ),
                read=read if has_body(environ) else None,
                # one stream would block a single-threaded server
                streams=bool(environ.get("wsgi.multithread")),
                prefix=prefix_of(environ),
            )
            response = call.run(thread.application.answer(request), undo=Response.discard)
            if response.on_unsent and has_left():
                LoopCall(thread).run(response.discard(), 2 * DISCARD_SECONDS)
                raise ClientDisconnected
            return call, response
        except ClientDisconnected:
            return None, Problem("timeout", "the client has disconnected").response()
        except LoopUnresponsive as error:
            log.error("a request was not answered: %s", error)
            return None, Problem(
                "busy", "this process is ending, or its event loop does not respond: send the request again"
            ).response()

    def _thread(self) -> LoopThread:
        pid = os.getpid()
        thread = self._threads.get(pid) or self._threads.setdefault(pid, LoopThread(self._make, is_ending))
        thread.start()
        return thread


class ResponseIterator:
    """The pieces of a response's body. If the server calls `close` before the end, the response was not delivered."""

    def __init__(
        self, call: LoopCall | None, response: Response, *, is_head: bool, cut: Callable[[], None]
    ) -> None:
        self._call = call
        self._response = response
        self._cut = cut
        self._pieces = response.body if not isinstance(response.body, bytes) else None
        self._whole = response.body if isinstance(response.body, bytes) and not is_head else b""
        self._over = not self._whole and self._pieces is None
        self._start_deadline()

    def __iter__(self) -> ResponseIterator:
        return self

    def __next__(self) -> bytes:
        if self._whole:
            piece, self._whole = self._whole, b""
            return piece
        if self._pieces is not None and self._call and not self._over:
            self._call.thread.clear_deadline(self)
            try:
                return self._next_piece(self._call, self._pieces)
            finally:
                self._start_deadline()
        self._over = True
        raise StopIteration

    def _next_piece(self, call: LoopCall, pieces: AsyncIterator[bytes]) -> bytes:
        def is_over() -> bool:
            return (call.thread.check_ending() and not self._response.finite) or call.has_left()

        try:
            piece = b""
            if not is_over():
                piece = LoopCall(call.thread, is_over).run(_next_nonempty(pieces), PIECE_SECONDS)
        except ClientDisconnected:
            piece = b""
        except Exception as error:  # noqa: BLE001  of the stream's iterator: the response breaks
            _log_unexpected(error)
            self.close()
            raise ResponseAborted(type(error).__name__) from None
        if piece:
            return piece
        self.close()
        raise StopIteration

    def _start_deadline(self) -> None:
        if self._call:
            with contextlib.suppress(LoopUnresponsive):
                self._call.thread.set_deadline(self, SEND_SECONDS, self._cut)

    def close(self) -> None:
        """End the request: close a stream, and undo a response that was not delivered (a claim releases its jobs)."""
        if self._call:
            self._call.thread.clear_deadline(self)
        over, self._over = self._over, True
        if over or not self._call:
            return
        try:
            LoopCall(self._call.thread).run(self._response.discard(), 2 * DISCARD_SECONDS)
        except LoopUnresponsive as error:
            log.warning(
                "an undelivered response was not cleaned up: %s; leases in it end when they expire", error
            )


async def _next_nonempty(pieces: AsyncIterator[bytes]) -> bytes:
    async for piece in pieces:
        if piece:
            return piece
    return b""


def _head(response: Response, is_head: bool) -> tuple[str, list[tuple[str, str]]]:
    headers = [(name, value) for name, value in response.headers.items() if not is_hop_by_hop(name)]
    body = response.body
    if isinstance(body, bytes) and response.status not in BODILESS and (body or not is_head):
        headers.append(("Content-Length", str(len(body))))
    if any(char in "\r\n\0" for _, value in headers for char in value):
        raise ValueError("a header of the response contains a line break or NUL")
    encoded = [(name, value.encode("latin-1", "replace").decode("latin-1")) for name, value in headers]
    return f"{response.status} {PHRASES.get(response.status, 'Status')}", encoded


def _log_unexpected(error: Exception) -> None:
    place = traceback.extract_tb(error.__traceback__)[-1]
    file = os.path.basename(place.filename)
    log.error("a request failed: unexpected %s at %s:%d", type(error).__name__, file, place.lineno or 0)


app = Wsgi()
