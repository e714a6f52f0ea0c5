"""A request as WSGI (PEP 3333) hands it over: its path as it was sent, its headers, its body, and whether its sender is there.

And what little can be seen of the server itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import select
import signal
import socket
import time
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from sublet_functions.api.request import as_text
from sublet_functions.api.response import Problem

log = logging.getLogger(__name__)

Environ = dict[str, Any]

CHUNK = 64 * 1024
"""Bytes of a body that are read at once."""
RAW = ("RAW_URI", "REQUEST_URI")
"""Where servers tell the address as it was sent: gunicorn and werkzeug, and uWSGI and mod_wsgi."""
SOCKETS = ("gunicorn.socket", "werkzeug.socket")
"""Where servers let an application see the connection."""
_BYTE = re.compile(r"%[0-9A-Fa-f]{2}|.", re.DOTALL)
_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR
_PLAIN = "/:@!$&'()*+,;=~"
"""What stands in a path as it is."""


def path_of(environ: Environ) -> str:
    """The path below the place where the application is mounted, still percent-encoded: as it was sent, where that is told.

    Middleware may have changed `PATH_INFO`, so an address is only believed if it means the same. Otherwise the path is encoded
    anew, and nobody knows any more which of its slashes had been sent as `%2F`.
    """
    script, info = str(environ.get("SCRIPT_NAME", "")), str(environ.get("PATH_INFO", ""))
    for name in RAW:
        sent = _path(environ.get(name))
        if unquote_to_bytes(sent.encode("latin-1", "replace")).decode("latin-1") == script + info:
            return "".join(_BYTE.findall(sent)[len(script) :]) or "/"
    return quote(info.encode("latin-1", "replace"), safe=_PLAIN) or "/"


def _path(address: object) -> str:
    """The path of an address, which a proxy's request names in full."""
    text = address if isinstance(address, str) else ""
    if text.startswith("/"):
        return text.partition("#")[0].partition("?")[0]
    try:
        return urlsplit(text).path
    except ValueError:
        return ""


def headers_of(environ: Environ) -> dict[str, str]:
    """The headers by lower-case name."""
    found = {name[5:]: value for name, value in environ.items() if name.startswith("HTTP_")}
    found |= {name: environ[name] for name in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(name)}
    return {name.replace("_", "-").lower(): as_text(str(value)) for name, value in found.items()}


def has_body(environ: Environ) -> bool:
    """May there be one?"""
    return any(
        environ.get(name) for name in ("CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING", "wsgi.input_terminated")
    )


def read_body(environ: Environ, most: int, seconds: float) -> bytes:
    """The whole body. Raises Problem for one that is too large, too slow or cut off, and where nobody can know where it ends."""
    length = _length(environ)
    if length is not None and length > most:
        raise Problem("too-large", f"the body has {length:,} bytes: at most {most:,}")
    until, body, left = time.monotonic() + seconds, bytearray(), most + 1 if length is None else length
    while left > 0:
        chunk = _read(environ, min(left, CHUNK))
        body += chunk
        left -= len(chunk)
        if not chunk:
            break
        if time.monotonic() > until and left > 0:
            raise Problem("timeout", f"the body was not here after {seconds:g} s")
    if length is None and len(body) > most:
        raise Problem("too-large", f"the body has more than {most:,} bytes")
    if length is not None and left > 0:
        raise Problem("bad-request", f"the body broke off: {len(body):,} of {length:,} bytes have come")
    return bytes(body)


def _length(environ: Environ) -> int | None:
    """The bytes that a body has; None for one that the server ends. Raises Problem."""
    said, chunked = str(environ.get("CONTENT_LENGTH") or ""), "HTTP_TRANSFER_ENCODING" in environ
    if environ.get("wsgi.input_terminated") and (chunked or not said):
        return None
    if chunked:
        raise Problem(
            "bad-request", "this server passes on no body that comes in chunks: send its Content-Length"
        )
    said = said or "0"
    if not re.fullmatch(r"[0-9]{1,18}", said):
        raise Problem("bad-request", "Content-Length is no number")
    return int(said)


def _read(environ: Environ, size: int) -> bytes:
    try:
        return bytes(environ["wsgi.input"].read(size))
    except Exception as error:  # noqa: BLE001  each server has its own, for a chunk that is none or a connection that broke
        log.debug("a body broke off: %s", type(error).__name__)
        raise Problem("bad-request", "the body broke off, or its chunks cannot be understood") from None


def has_left(environ: Environ) -> bool:
    """Has the caller closed its end of the connection? False also where the server does not let us see that."""
    for name in SOCKETS:
        if name in environ:
            return _is_closed(environ[name])
    asked = environ.get("waitress.client_disconnected")
    return bool(callable(asked) and asked())


def _is_closed(one: Any) -> bool:
    look = select.poll()
    try:
        look.register(one.fileno(), _CLOSED)
        return bool(look.poll(0))
    except (OSError, ValueError):  # it is closed on this side, too
        return True


def cut(environ: Environ, how: int = socket.SHUT_RDWR) -> None:
    """End a connection, in one direction or both, where the server shows it: a thread that is held up by it goes on.

    That is done below whatever the server has wrapped around it, and from any thread: nothing is closed under anybody's hands.
    """
    for name in SOCKETS:
        if name in environ:
            with (
                contextlib.suppress(OSError, ValueError),  # it is closed, or the caller has gone
                socket.socket(fileno=os.dup(environ[name].fileno())) as same,
            ):
                same.shutdown(how)


def is_ending() -> bool:
    """Has the server been told to stop? gunicorn tells applications nothing, but its worker, which gets the signal, notes it."""
    worker = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(worker, "alive", True) is False
