"""`GET /metrics`: statistics for Prometheus."""

from sublet.source_tree import install_command
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.statistics import shared_statistics
from sublet_functions.http.problems import Problem
from sublet_functions.http.response import Response
from sublet_functions.schemas.query import Empty


async def metrics(call: Call[Empty, Empty]) -> Response:
    """Return metrics for Prometheus: jobs by queue and state, outcomes, waiting and running times.

    All servers of a namespace return the same metrics: scrape one of them, or use `max by (…)`.
    """
    try:
        from sublet_functions.handlers.prometheus import (
            MEDIA_TYPE,
            exposition,
        )
    except ModuleNotFoundError:
        raise Problem(
            "not-set-up",
            f"GET /metrics needs the package prometheus-client on the server: {install_command('http')}",
        ) from None
    found, read_at = await shared_statistics(call)
    text = await exposition(found)
    return Response(200, text, {"Content-Type": MEDIA_TYPE}, reads=found.reads, read_at=read_at)
