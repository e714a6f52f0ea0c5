"""`GET /whoami`: a token's rights."""

from sublet_functions.handlers.call import Call
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty


async def whoami(call: Call[Empty, Empty]) -> Response:
    """Return the token's name, roles and queues, and whether it sees payloads. Redis is not asked."""
    principal = call.principal
    queues = None if principal.scope is None else principal.scope.entries
    return json_response(
        {
            "name": principal.name,
            "roles": sorted(principal.roles),
            "queues": queues,
            "payloads": principal.sees_payloads,
        }
    )
