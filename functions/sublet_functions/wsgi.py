"""The API as a WSGI application (PEP 3333): `sublet_functions.wsgi:app`, for gunicorn and whatever else calls such applications.

The core is asynchronous and WSGI is not. So each process has one event loop, in a thread of its own, which is made when the first
request comes. The thread that the server gives a request waits for what the loop makes of it, and does the rest itself: what it
was given, a body to be read and pieces to be sent, is for nobody else.

A caller who hangs up is noticed where the server lets us see the connection, and at the latest when its answer cannot be sent:
then a claim gives back what it took.
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
from sublet_functions.adapters.loop_thread import LAST_RESORT, Beside, Core, Errands, Left, Silent
from sublet_functions.adapters.wsgi_environ import (
    Environ,
    cut,
    has_body,
    has_left,
    headers_of,
    is_ending,
    path_of,
    read_body,
)
from sublet_functions.api.auth import Principal
from sublet_functions.api.request import Reply, Request
from sublet_functions.api.response import Problem
from sublet_functions.api.routes import SECURITY
from sublet_functions.server.limits import Limits
from sublet_functions.server.writer import undo

log = logging.getLogger(__name__)

PIECE_SECONDS = 60.0
"""Seconds that the next piece of a stream may take; all of ours say every 15 s that they are there."""
BODY_SECONDS = Limits().body_seconds
SEND_SECONDS = Limits().send_seconds
"""Seconds for the caller to take an answer, or a piece of one, where the server lets us see the connection."""
PHRASES = {status.value: status.phrase for status in HTTPStatus}
BODILESS = (204, 304)
"""Statuses whose answers have no body, and do not tell the length of one."""


class BrokenOff(Exception):
    """Raised to the server in the middle of an answer that cannot go on, so that nobody takes it for all of it."""


class Wsgi:
    """A WSGI application. `make` makes what answers, once in each process and on its loop: the API, as the environment says."""

    def __init__(self, make: Callable[[], Core] | None = None) -> None:
        self._make = make or partial(Hosted, prompt=True)
        self._loops: dict[int, Beside] = {}

    def __call__(self, environ: Environ, start_response: Callable[..., object]) -> Iterable[bytes]:
        """Answer one request."""
        method = str(environ.get("REQUEST_METHOD", ""))
        try:
            errands, reply = self._answer(method, environ)
            status, headers = _head(reply, bare=method == "HEAD")
        except Exception as error:  # noqa: BLE001  others must not suffer, and a caller must not see where
            _tell(error)
            errands, reply = None, _refusal("internal", "this is our fault, and the server's log says more")
            status, headers = _head(reply, bare=method == "HEAD")
        start_response(status, headers)
        return Delivery(errands, reply, bare=method == "HEAD", cut=partial(cut, environ))

    def close(self) -> None:
        """Have this process's loop end, which otherwise an orderly exit does."""
        beside = self._loops.pop(os.getpid(), None)
        if beside:
            beside.close()

    def ask(self, request: Request, who: Principal | None = None) -> Reply:
        """The whole answer to a request that did not come by WSGI. Raises Silent."""
        beside = self._beside()

        async def answer() -> Reply:
            reply = await beside.core.answer(request, who)
            if not isinstance(reply.body, bytes):
                reply.body = b"".join([piece async for piece in reply.body])
            return reply

        return Errands(beside).wait(answer())

    def _answer(self, method: str, environ: Environ) -> tuple[Errands | None, Reply]:
        """What there is to say, and who waits for the pieces of it."""
        try:
            beside = self._beside()
            left = partial(has_left, environ)
            errands = Errands(beside, left)

            async def read(most: int) -> bytes:
                try:
                    async with asyncio.timeout(
                        BODY_SECONDS + 1
                    ):  # the thread looks itself, but may be held up by the wire
                        return await errands.do(partial(read_body, environ, most, BODY_SECONDS))
                except TimeoutError:
                    cut(environ, socket.SHUT_RD)  # a server may read until it has all that it was asked for
                    raise Problem("timeout", f"the body was not here after {BODY_SECONDS:g} s") from None

            request = Request(
                method,
                path_of(environ),
                str(environ.get("QUERY_STRING", "")),
                headers_of(environ),
                read=read if has_body(environ) else None,
                streams=bool(environ.get("wsgi.multithread")),  # a stream would leave nobody to answer others
            )
            reply = errands.wait(beside.core.answer(request), undo=undo)
            if reply.unsent and left():
                Errands(beside).wait(undo(reply), 2 * LAST_RESORT)
                raise Left
            return errands, reply
        except Left:
            return None, _refusal("timeout", "the caller has hung up")
        except Silent as error:
            log.error("a request was not answered: %s", error)
            return None, _refusal("busy", "this process does not get to it: send the same again")

    def _beside(self) -> Beside:
        """This process's loop. One that was there before a fork is left alone: what it holds is the other process's."""
        pid = os.getpid()
        beside = self._loops.get(pid) or self._loops.setdefault(pid, Beside(self._make, is_ending))
        beside.start()
        return beside


class Delivery:
    """The body of an answer, piece by piece as the server asks. One that was not asked for to its end was not delivered."""

    def __init__(self, errands: Errands | None, reply: Reply, *, bare: bool, cut: Callable[[], None]) -> None:
        self._errands, self._reply, self._cut = errands, reply, cut
        self._pieces = reply.body if not isinstance(reply.body, bytes) else None
        self._whole = reply.body if isinstance(reply.body, bytes) and not bare else b""
        self._over = not self._whole and self._pieces is None
        self._goes()

    def __iter__(self) -> Delivery:
        return self

    def __next__(self) -> bytes:
        if self._whole:
            piece, self._whole = self._whole, b""
            return piece
        if self._pieces is not None and self._errands and not self._over:
            self._errands.beside.met(self)
            try:
                return self._next(self._errands, self._pieces)
            finally:
                self._goes()  # the end of a stream is sent, too
        self._over = True
        raise StopIteration

    def _next(self, errands: Errands, pieces: AsyncIterator[bytes]) -> bytes:
        def is_over() -> bool:
            return (errands.beside.heed() and not self._reply.finishes) or errands.left()

        try:
            piece = b"" if is_over() else Errands(errands.beside, is_over).wait(_some(pieces), PIECE_SECONDS)
        except Left:
            piece = b""
        except Exception as error:  # noqa: BLE001  what makes the pieces may fail: the caller sees the answer break off
            _tell(error)
            self.close()
            raise BrokenOff(type(error).__name__) from None
        if piece:
            return piece
        self.close()
        raise StopIteration

    def _goes(self) -> None:
        """The server sends something now: a caller who takes nothing is cut off."""
        if self._errands:
            with contextlib.suppress(Silent):
                self._errands.beside.expect(self, SEND_SECONDS, self._cut)

    def close(self) -> None:
        """The server wants no more. What was not delivered is undone, and a stream cleans up."""
        if self._errands:
            self._errands.beside.met(self)
        over, self._over = self._over, True
        if over or not self._errands:
            return
        try:
            Errands(self._errands.beside).wait(undo(self._reply), 2 * LAST_RESORT)
        except Silent as error:
            log.warning("an answer that nobody took could not be undone: %s", error)


async def _some(pieces: AsyncIterator[bytes]) -> bytes:
    """The next piece that is not empty; empty at the end."""
    async for piece in pieces:
        if piece:
            return piece
    return b""


def _head(reply: Reply, *, bare: bool) -> tuple[str, list[tuple[str, str]]]:
    """Status and headers. A `bare` answer, to HEAD, does not tell the length of a body that was never made."""
    headers = [(name, value) for name, value in reply.headers.items() if not is_hop_by_hop(name)]
    if isinstance(reply.body, bytes) and reply.status not in BODILESS and (reply.body or not bare):
        headers.append(("Content-Length", str(len(reply.body))))
    if any(char in "\r\n\0" for _, value in headers for char in value):
        raise ValueError("a header of this answer has a line break in it")
    plain = [(name, value.encode("latin-1", "replace").decode("latin-1")) for name, value in headers]
    return f"{reply.status} {PHRASES.get(reply.status, 'Status')}", plain


def _refusal(slug: str, detail: str) -> Reply:
    reply = Problem(slug, detail).reply()
    reply.headers = SECURITY | reply.headers
    return reply


def _tell(error: Exception) -> None:
    """Log a defect, without its words: they may hold what was sent."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    log.error("a defect: %s at %s:%d", type(error).__name__, os.path.basename(at.filename), at.lineno or 0)


app = Wsgi()
"""The API, made of the environment: `gunicorn sublet_functions.wsgi:app`."""
