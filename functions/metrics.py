"""`GET /metrics`: the numbers for Prometheus, where its library is installed."""

from functions.call import Call, Reply
from functions.queries import Nothing
from functions.reply import Problem


async def metrics(call: Call[Nothing, Nothing]) -> Reply:
    """What Prometheus scrapes: jobs by queue and state, what became of them, how long they waited and ran.

    All processes of a fleet tell the same: scrape one, or take `max by (…)`.
    """
    try:
        from functions.exposition import TEXT, exposition  # not everywhere where requests are answered is it installed
    except ModuleNotFoundError:
        words = "this takes prometheus-client: pip install 'sublet[http]' (from a checkout: '.[http]')"
        raise Problem("not-set-up", words) from None
    return Reply(200, await exposition(call.store), {"Content-Type": TEXT})
