"""Google's functions-framework: `from functions.google import http, event` is the whole of a `main.py`.

`http` is the API, and what it has to do with Flask is that Flask takes a WSGI application for an answer. `event` is for triggers
that are no HTTP request to us (Eventarc, Pub/Sub): whatever came, the upkeep is done.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from functions.call import Request
from functions.triggers import PLATFORM
from functions.wsgi import app

if TYPE_CHECKING:
    from functions.wsgi import Wsgi


class NotDone(Exception):
    """The upkeep could not be done; raised to the platform, which calls again if it was told to."""


def http(request: Any) -> Wsgi:
    """Answer an HTTP request: Flask calls what is given back with the very environment from which it made the request."""
    return app


def event(cloud_event: Any) -> None:
    """Do one round of upkeep, whatever the event says. Who may send one is decided by the platform, so no token is asked for.

    Raises NotDone where it could not be done.
    """
    reply = app.ask(Request("POST", "/tick"), PLATFORM)
    if reply.status != 200:
        problem = json.loads(bytes(reply.body)) if isinstance(reply.body, bytes) else {}
        raise NotDone(f"no tick: {reply.status} {problem.get('title', '')}: {problem.get('detail', '')}")
