"""`POST /jobs/{id}/upstream`: the outcomes of the jobs that a running job waited for."""

from typing import Any

from sublet.client.result import outcome_of
from sublet.errors import JobFailed, LeaseLost, NotFound
from sublet.model import Standing
from sublet.protocol.reads import json_of
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.leases import lease, lease_problem
from sublet_functions.handlers.within import lease_answers
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.steps import UpstreamRequest


async def upstream_page(call: Call[UpstreamRequest, Empty]) -> Response:
    """Read the outcomes of the jobs that a running job waited for, 50 in a page, for its worker."""
    job_id, asked = call.path["id"], call.body
    try:
        page = await call.store.upstream(lease(job_id, asked.token), asked.start)
    except (LeaseLost, NotFound) as error:
        (word,) = await lease_answers(call, [job_id], [error.code])
        raise lease_problem(job_id, word) from None
    jobs = [_shown(upstream, standing) for upstream, standing in page.jobs]
    return json_response({"id": job_id, "jobs": jobs, "following": page.following})


def _shown(job_id: str, standing: Standing) -> dict[str, Any]:
    error = outcome_of(job_id, standing, json_of).error
    shown = {"id": job_id, "state": standing.state, "result": json_of(standing.result), "error": None}
    if isinstance(error, JobFailed):
        shown["error"] = {"code": error.code, "message": error.message, "detail": error.detail}
    return shown
