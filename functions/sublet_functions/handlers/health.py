"""`/`, `/healthz`, `/readyz`: is anybody there?"""

from sublet.protocol import server_info
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import json_reply
from sublet_functions.schemas.query import Nothing

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
}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Sublet</title></head>
<body><h1>Sublet</h1><p>A job scheduler with no master. This is its HTTP face.</p>
<ul>
{}
</ul></body></html>
"""


async def index(call: Call[Nothing, Nothing]) -> Reply:
    """Where things are: JSON, or a plain page for a browser."""
    if "text/html" not in call.request.headers.get("accept", ""):
        return json_reply({"name": "sublet", "links": LINKS}, headers={"Vary": "Accept"})
    lines = "\n".join(f'<li><a href="{path.lstrip("/")}">{name}</a></li>' for name, path in LINKS.items())
    return Reply(
        200, _PAGE.format(lines).encode(), {"Content-Type": "text/html; charset=utf-8", "Vary": "Accept"}
    )


async def healthz(call: Call[Nothing, Nothing]) -> Reply:
    """This process is alive. Redis is not asked: a platform that restarts us for its sake would help nobody."""
    return json_reply({"status": "ok"})


async def readyz(call: Call[Nothing, Nothing]) -> Reply:
    """This process can do its work: Redis answers, and the namespace is of this version. 503 if not."""
    await call.store.run(server_info.clock())
    return json_reply({"status": "ready"})
