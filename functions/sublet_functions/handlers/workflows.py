"""`/workflows/{id}`, `GET /jobs/{id}/upstream`: read, cancel and retry jobs that wait for others."""

from collections import Counter
from typing import Any
from urllib.parse import urlencode

from sublet.operations.orders.bulk import Selection
from sublet.workflows import reading
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.within import check_job
from sublet_functions.http.cursor import decode_cursor, encode_cursor
from sublet_functions.http.problems import invalid_at
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty, PageQuery
from sublet_functions.schemas.workflows import WorkflowOrder, WorkflowQuery


async def get_workflow(call: Call[Empty, WorkflowQuery]) -> Response:
    """Return a workflow: how many of its jobs have ended, and a page of its jobs, unfinished ones first. A page with a
    cursor may be empty.
    """
    asked, store = call.query, call.store
    with invalid_at("query", "cursor"):
        found = await store.follow(
            reading.get(
                store.operations,
                call.path["id"],
                asked.limit,
                decode_cursor(asked.cursor),
                asked.state or None,
            )
        )
    cursor = encode_cursor(found.cursor)
    return json_response(
        found.model_copy(update={"cursor": cursor}), headers=_link(call, f"workflows/{found.id}", cursor)
    )


async def list_upstream(call: Call[Empty, PageQuery]) -> Response:
    """List the jobs of the token's queues that a job waits, or waited, for, in the order of its edges, each
    with its result or error. A page ends after 1 MiB of results. Results are null unless the token sees
    payloads.
    """
    job_id, asked, store = call.path["id"], call.query, call.store
    await check_job(call)
    with invalid_at("query", "cursor"):
        page = await store.follow(
            reading.upstream(
                store.operations,
                job_id,
                asked.limit,
                decode_cursor(asked.cursor),
                call.principal.scope,
                results=call.principal.sees_payloads,
            )
        )
    cursor = encode_cursor(page.cursor)
    return json_response(
        page.model_copy(update={"cursor": cursor}), headers=_link(call, f"jobs/{job_id}/upstream", cursor)
    )


async def cancel_workflow(call: Call[WorkflowOrder, Empty]) -> Response:
    """Cancel up to 200 unfinished jobs of a workflow, and close it if it is open. While the answer has a cursor, send it with
    the next request.
    """
    return await _order(call, "cancel")


async def retry_workflow(call: Call[WorkflowOrder, Empty]) -> Response:
    """Retry up to 200 dead or cancelled jobs of a workflow. Jobs cancelled because of them wait again. While the answer has a
    cursor, send it with the next request.
    """
    return await _order(call, "retry")


async def _order(call: Call[WorkflowOrder, Empty], order: str) -> Response:
    workflow_id = call.path["id"]
    with invalid_at("body", "cursor"):
        page = await call.store.order_page(
            order, Selection(workflow=workflow_id), cursor=decode_cursor(call.body.cursor)
        )
    return json_response(
        {
            "id": workflow_id,
            "outcomes": Counter(one.answer for one in page.outcomes if not one.refusal),
            "refused": sum(one.refusal is not None for one in page.outcomes),
            "cursor": encode_cursor(page.cursor),
        }
    )


def _link(call: Call[Any, Any], path: str, cursor: str | None) -> dict[str, str]:
    if not cursor:
        return {}
    asked = call.query.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    query = urlencode(asked | {"cursor": cursor}, doseq=True)
    return {"Link": f'<{call.request.prefix}/{path}?{query}>; rel="next"'}
