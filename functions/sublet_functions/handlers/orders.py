"""`POST /jobs/retry`, `/jobs/cancel`, `/jobs/promote`, `/jobs/erase`: orders by filter."""

from typing import Any

from sublet.errors import Busy, Unavailable, Unfit
from sublet.model import format_moment
from sublet.operations.orders.bulk import OrderOutcome, Selection
from sublet_functions.handlers.call import Call
from sublet_functions.http.cursor import decode_cursor, encode_cursor
from sublet_functions.http.problems import NotCounted, invalid_at, problem_of
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.orders import BulkOrder
from sublet_functions.schemas.query import Empty


async def retry_many(call: Call[BulkOrder, Empty]) -> Response:
    """Retry, or with `dry_run` count, up to 200 jobs of a filter: dead or, with `state` or `workflow`,
    cancelled ones.
    """
    return await _order(call, "retry")


async def cancel_many(call: Call[BulkOrder, Empty]) -> Response:
    """Cancel, or with `dry_run` count, up to 200 jobs of a filter: waiting or, with `state` or `workflow`,
    running ones.
    """
    return await _order(call, "cancel")


async def promote_many(call: Call[BulkOrder, Empty]) -> Response:
    """Queue, or with `dry_run` count, up to 200 scheduled jobs of a filter."""
    return await _order(call, "promote")


async def erase_many(call: Call[BulkOrder, Empty]) -> Response:
    """Delete, or with `dry_run` count, up to 200 finished jobs of a filter."""
    return await _order(call, "erase")


async def _order(call: Call[BulkOrder, Empty], order: str) -> Response:
    asked, wanted = call.body, call.body.filter
    if wanted.queue is not None:
        call.principal.check(wanted.queue)
    selection = Selection(**dict(wanted), within=call.principal.scope)
    with invalid_at("body", "filter", "state"):
        selection.states(order)
    try:
        with invalid_at("body", "cursor"):
            page = await call.store.order_page(
                order,
                selection,
                expected=asked.expected,
                dry_run=asked.dry_run,
                cursor=decode_cursor(asked.cursor, "body"),
                counted_at=asked.counted_at,
            )
    except Unavailable as error:
        if asked.dry_run and not isinstance(error, Busy | Unfit):
            raise NotCounted(str(error)) from error
        raise
    jobs = [_item(outcome) for outcome in page.outcomes]
    return json_response(
        {
            "found": page.found,
            "counted_at": format_moment(page.counted_at),
            "jobs": jobs,
            "cursor": encode_cursor(page.cursor),
        }
    )


def _item(outcome: OrderOutcome) -> dict[str, Any]:
    if outcome.refusal:
        return problem_of(outcome.refusal).as_item(outcome.id) | {"revision": outcome.revision}
    status = 202 if outcome.answer == "requested" else 200
    state = "running" if outcome.answer == "requested" else outcome.answer
    return {"id": outcome.id, "status": status, "state": state, "revision": outcome.revision}
