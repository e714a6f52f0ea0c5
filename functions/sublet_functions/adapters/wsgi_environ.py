"""A request in a WSGI environ (PEP 3333)."""

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
from urllib.parse import unquote_to_bytes, urlsplit

from sublet_functions.http.problems import Problem, cut_off_body
from sublet_functions.http.request import decode_header, quote_path

log = logging.getLogger(__name__)

Environ = dict[str, Any]

CHUNK = 64 * 1024
RAW = ("RAW_URI", "REQUEST_URI")
SOCKETS = ("gunicorn.socket", "werkzeug.socket")
_BYTE = re.compile(r"%[0-9A-Fa-f]{2}|.", re.DOTALL)
_CLOSED = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR


def path_of(environ: Environ) -> str:
    """Return the percent-encoded path below the mount point: as sent, if the server gives that; else encoded
    from `PATH_INFO`, where `%2F` has become a slash.
    """
    script, info = str(environ.get("SCRIPT_NAME", "")), str(environ.get("PATH_INFO", ""))
    for name in RAW:
        sent = _path(environ.get(name))
        if unquote_to_bytes(sent.encode("latin-1", "replace")).decode("latin-1") == script + info:
            return "".join(_BYTE.findall(sent)[len(script) :]) or "/"
    return quote_path(info.encode("latin-1", "replace")) or "/"


def prefix_of(environ: Environ) -> str:
    """Return the percent-encoded path at which the application is mounted; empty at the root."""
    return quote_path(str(environ.get("SCRIPT_NAME", "")).rstrip("/").encode("latin-1", "replace"))


def _path(target: object) -> str:
    text = target if isinstance(target, str) else ""
    if text.startswith("/"):
        return text.partition("#")[0].partition("?")[0]
    try:
        return urlsplit(text).path
    except ValueError:
        return ""


def headers_of(environ: Environ) -> dict[str, str]:
    """Return the request's headers by lower-case name."""
    found = {name[5:]: value for name, value in environ.items() if name.startswith("HTTP_")}
    found |= {name: environ[name] for name in ("CONTENT_TYPE", "CONTENT_LENGTH") if environ.get(name)}
    return {name.replace("_", "-").lower(): decode_header(str(value)) for name, value in found.items()}


def has_body(environ: Environ) -> bool:
    """Whether the request may have a body, by its headers or the server's `wsgi.input_terminated`."""
    return any(
        environ.get(name) for name in ("CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING", "wsgi.input_terminated")
    )


def read_body(environ: Environ, most: int, seconds: float) -> bytes:
    """Return the whole body, of at most `most` bytes.

    Raises Problem if it is too large, cut off, takes more than `seconds` (a blocked read: longer), or is
    chunked and the server does not support that, and for an invalid Content-Length.
    """
    length = _length(environ)
    if length is not None and length > most:
        raise Problem("too-large", f"the body has {length:,} bytes: send at most {most:,}")
    until = time.monotonic() + seconds
    body = bytearray()
    left = most + 1 if length is None else length
    while left > 0:
        chunk = _read(environ, min(left, CHUNK))
        body += chunk
        left -= len(chunk)
        if not chunk:
            break
        if time.monotonic() > until and left > 0:
            raise Problem(
                "timeout", f"the body did not arrive within {seconds:g} s: send it faster, or less of it"
            )
    if length is None and len(body) > most:
        raise Problem("too-large", f"the body has more than {most:,} bytes: send at most that")
    if length is not None and left > 0:
        raise Problem(
            "bad-request",
            f"the body was cut off after {len(body):,} of {length:,} bytes: send the whole request again",
        )
    return bytes(body)


def _length(environ: Environ) -> int | None:
    text = str(environ.get("CONTENT_LENGTH") or "")
    chunked = "HTTP_TRANSFER_ENCODING" in environ
    if environ.get("wsgi.input_terminated") and (chunked or not text):
        return None
    if chunked:
        raise Problem("bad-request", "this server does not support chunked bodies: send a Content-Length")
    text = text or "0"
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise Problem("bad-request", "Content-Length: send the number of the body's bytes, in digits")
    return int(text)


def _read(environ: Environ, size: int) -> bytes:
    try:
        return bytes(environ["wsgi.input"].read(size))
    except Exception as error:  # noqa: BLE001  the server's own: a malformed chunk, or a broken connection
        log.debug("a body was cut off: %s", type(error).__name__)
        raise cut_off_body() from None


def has_disconnected(environ: Environ) -> bool:
    """Whether the client has closed the connection; False if the server does not show it."""
    for name in SOCKETS:
        if name in environ:
            return _is_closed(environ[name])
    check = environ.get("waitress.client_disconnected")
    return bool(callable(check) and check())


def _is_closed(one: Any) -> bool:
    poll = select.poll()
    try:
        poll.register(one.fileno(), _CLOSED)
        return bool(poll.poll(0))
    except (OSError, ValueError):  # closed here, too
        return True


def cut(environ: Environ, how: int = socket.SHUT_RDWR) -> None:
    """Shut down the client's connection, in one or both directions, so that a blocked thread can continue.
    Does nothing if the server hides the socket.
    """
    for name in SOCKETS:
        if name in environ:
            with (
                contextlib.suppress(OSError, ValueError),  # closed already
                socket.socket(fileno=os.dup(environ[name].fileno())) as same,
            ):
                same.shutdown(how)


def is_ending() -> bool:
    """Whether gunicorn is stopping; False under another server."""
    worker = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(worker, "alive", True) is False
