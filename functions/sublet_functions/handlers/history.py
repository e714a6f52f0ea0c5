"""`GET /history`: rates and numbers of jobs over time, for charts."""

from sublet_functions.handlers.call import Call
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty, HistoryQuery


async def get_history(call: Call[Empty, HistoryQuery]) -> Response:
    """Return rates and numbers of jobs: an hour or a day by minutes, or 30 days by hours.

    Workers and ticks take a sample a minute. Where none ran for over five minutes (in the 30 days: an hour), the values are null.
    """
    return json_response(await call.store.follow(call.store.operations.history(call.query.span)))
