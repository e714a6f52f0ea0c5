"""`GET /metrics`: the numbers for Prometheus, where its library is installed."""

from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import Problem
from sublet_functions.schemas.query import Nothing


async def metrics(call: Call[Nothing, Nothing]) -> Reply:
    """What Prometheus scrapes: jobs by queue and state, what became of them, how long they waited and ran.

    All processes of a fleet tell the same: scrape one, or take `max by (…)`.
    """
    try:
        from sublet_functions.handlers.prometheus import (  # not everywhere where requests are answered is it installed
            TEXT,
            exposition,
        )
    except ModuleNotFoundError:
        words = "this takes prometheus-client: pip install 'sublet[http]' (from a checkout: '.[http]')"
        raise Problem("not-set-up", words) from None
    return Reply(200, await exposition(call.store), {"Content-Type": TEXT})
