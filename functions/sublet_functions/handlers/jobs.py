"""`GET /jobs/{id}`, `GET /jobs`: read jobs."""

from typing import TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel

from sublet.errors import NotFound
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.within import check_job
from sublet_functions.http.auth import Principal
from sublet_functions.http.cursor import decode_cursor, encode_cursor
from sublet_functions.http.problems import invalid_at
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty, ListQuery, WaitQuery

HIDDEN = ("payload", "result", "checkpoint")
Stored = TypeVar("Stored", bound=BaseModel)


def shown(stored: Stored, principal: Principal) -> Stored:
    """Return a job or a schedule; payload, result and checkpoint are None unless the principal sees payloads."""
    if principal.sees_payloads:
        return stored
    return stored.model_copy(update=dict.fromkeys(type(stored).model_fields.keys() & set(HIDDEN)))


async def get_job(call: Call[Empty, WaitQuery]) -> Response:
    """Return one job with its first and last five ended attempts; with `wait`, when it has ended, or after so
    many seconds. Payload, result and checkpoint are null unless the token sees payloads (`GET /whoami`).
    """
    job_id, store = call.path["id"], call.store
    await check_job(call)
    if call.query.wait and (await store.watch(job_id, call.query.wait)).state is None:
        raise NotFound(f"job {job_id} never existed, or was deleted (retention, erase): check its id")
    return json_response(shown(await store.follow(store.operations.get(job_id)), call.principal))


async def list_jobs(call: Call[Empty, ListQuery]) -> Response:
    """List jobs that match all filters; in each partition finished jobs newest first. A page reads at most
    1,000 jobs, so a page with a cursor may be empty: another follows.
    """
    asked, operations, scope = call.query, call.store.operations, call.principal.scope
    if asked.queue is not None:
        call.principal.check(asked.queue)
    filters = asked.model_dump(exclude={"state", "limit", "cursor"})
    with invalid_at("query", "cursor"):
        page = await call.store.follow(
            operations.list_jobs(
                asked.state or None,
                limit=asked.limit,
                cursor=decode_cursor(asked.cursor),
                within=scope,
                **filters,
            )
        )
    cursor = encode_cursor(page.cursor)
    headers = {}
    if cursor:
        following = asked.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        query = urlencode(following | {"cursor": cursor}, doseq=True)
        headers["Link"] = f'<{call.request.prefix}/jobs?{query}>; rel="next"'
    jobs = [shown(job, call.principal) for job in page.jobs]
    return json_response({"jobs": jobs, "cursor": cursor}, headers=headers)
