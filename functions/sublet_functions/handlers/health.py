"""`/`, `/healthz`, `/readyz`: main paths, liveness and readiness of a server process."""

from html import escape

from sublet.protocol import server_info
from sublet_functions.handlers.call import Call
from sublet_functions.http.request import VERSION
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty

LINKS = {
    "jobs": "/jobs",
    "queues": "/queues",
    "workers": "/workers",
    "events": "/events",
    "stats": "/stats",
    "metrics": "/metrics",
    "health": "/healthz",
    "ready": "/readyz",
    "openapi": "/openapi.json",
    "dashboard": "/ui",
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sublet</title></head>
<body><h1>Sublet</h1><p>A job scheduler with no master. This is its HTTP API.</p>
<ul>
{}
</ul></body></html>
"""


async def index(call: Call[Empty, Empty]) -> Response:
    """List the main paths of the API: JSON, or an HTML page for browsers."""
    links = {name: call.request.prefix + path for name, path in LINKS.items()}
    if "text/html" not in call.request.headers.get("accept", ""):
        return json_response(
            {"name": "sublet", "version": VERSION, "links": links}, headers={"Vary": "Accept"}
        )
    shown = links if call.request.prefix else {name: path[1:] for name, path in LINKS.items()}
    items = "\n".join(f'<li><a href="{escape(path)}">{name}</a></li>' for name, path in shown.items())
    headers = {"Content-Type": "text/html; charset=utf-8", "Vary": "Accept"}
    return Response(200, _PAGE.format(items).encode(), headers)


async def healthz(call: Call[Empty, Empty]) -> Response:
    """Liveness: this process runs. Redis is not asked: a restart of this process would not repair it."""
    return json_response({"status": "ok"})


async def readyz(call: Call[Empty, Empty]) -> Response:
    """Readiness: Redis answers, and at this process's first call its data was of this version. 503 if not."""
    await call.store.run(server_info.clock())
    return json_response({"status": "ready"})
