"""Google's functions-framework: `from sublet_functions.google import http, event` is the whole of a `main.py`.

`http` is the API, a WSGI application that is called with the environment of Flask's request. `event` is for triggers
that are no HTTP request to us (Eventarc, Pub/Sub): whatever came, the upkeep is done.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sublet_functions.api.request import Request
from sublet_functions.handlers.triggers import PLATFORM
from sublet_functions.wsgi import BODILESS, app

if TYPE_CHECKING:
    from werkzeug.wrappers import Response


class NotDone(Exception):
    """The upkeep could not be done; raised to the platform, which calls again if it was told to."""


def http(request: Any) -> Response:
    """Answer an HTTP request. Flask would take the application itself for an answer, but say of what type even no body is."""
    from werkzeug.wrappers import Response  # comes with the framework, and is needed nowhere else

    answer = Response.from_app(app, request.environ)
    if answer.status_code in BODILESS or answer.content_length == 0:
        answer.headers.pop("Content-Type", None)
    return answer


def event(cloud_event: Any) -> None:
    """Do one round of upkeep, whatever the event says. Who may send one is decided by the platform, so no token is asked for.

    Raises NotDone where it could not be done.
    """
    reply = app.ask(Request("POST", "/tick"), PLATFORM)
    if reply.status != 200:
        problem = json.loads(bytes(reply.body)) if isinstance(reply.body, bytes) else {}
        raise NotDone(f"no tick: {reply.status} {problem.get('title', '')}: {problem.get('detail', '')}")
