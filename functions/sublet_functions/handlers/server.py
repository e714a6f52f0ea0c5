"""`GET /server`: the state of Redis."""

from sublet.operations.diagnosis.server_report import COMMANDS, report
from sublet_functions.handlers.call import Call
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty


async def get_server(call: Call[Empty, Empty]) -> Response:
    """Return version, memory, persistence, eviction policy and replicas of the Redis servers, and the doctor's
    findings about them. It names no host.
    """
    bases = await call.store.bases_by_server()
    found = await call.store.follow_existing(report(call.store.settings, bases))
    return json_response(found, reads=COMMANDS * len(bases))
