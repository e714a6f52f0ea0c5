"""`GET /audit`: the orders that people gave."""

from sublet_functions.handlers.call import Call
from sublet_functions.http.cursor import decode_cursor, encode_cursor
from sublet_functions.http.problems import invalid_at
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty, PageQuery


async def list_audit(call: Call[Empty, PageQuery]) -> Response:
    """List the orders that people gave over HTTP or on a command line (cancel, pause, …), newest first, for
    the token's queues. About the last 1,000 of each partition are kept.
    """
    asked = call.query
    with invalid_at("query", "cursor"):
        plan = call.store.operations.audit(asked.limit, decode_cursor(asked.cursor), call.principal.scope)
        page = await call.store.follow(plan)
    cursor = encode_cursor(page.cursor)
    link = f'<{call.request.prefix}/audit?limit={asked.limit}&cursor={cursor}>; rel="next"'
    return json_response(
        {"entries": page.entries, "cursor": cursor}, headers={"Link": link} if cursor else {}
    )
