"""Entry points for Google's functions-framework: `from sublet_functions.google import http, event` is a whole
`main.py`.

`event` is for triggers without an HTTP request (Eventarc, Pub/Sub).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from sublet_functions.handlers.triggers import PLATFORM
from sublet_functions.http.request import Request
from sublet_functions.wsgi import BODILESS, app

if TYPE_CHECKING:
    from werkzeug.wrappers import Response


class TickFailed(Exception):
    """The tick failed. The platform sends the event again if it is configured to."""


def http(request: Any) -> Response:
    """Answer a Flask request, without the Content-Type that Flask adds to an empty response."""
    from werkzeug.wrappers import Response

    response = Response.from_app(app, request.environ)
    if response.status_code in BODILESS or response.content_length == 0:
        response.headers.pop("Content-Type", None)
    return response


def event(cloud_event: Any) -> None:
    """Run one round of a tick, for any event. The platform authenticates the sender. Raises TickFailed or
    LoopUnresponsive.
    """
    response = app.ask(Request("POST", "/tick"), PLATFORM)
    if response.status != 200:
        problem = json.loads(bytes(response.body)) if isinstance(response.body, bytes) else {}
        reason = f"{problem.get('title', '')}: {problem.get('detail', '')}"
        raise TickFailed(f"the tick failed with {response.status}: {reason}")
