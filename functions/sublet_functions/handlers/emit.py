"""`POST /jobs/{id}/emit`: append chunks to the stream of a running job."""

from sublet.errors import LeaseLost, NotFound
from sublet.steps import chunks
from sublet.steps.chunks import CHUNK_MAX
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.leases import job_state, lease, lease_problem
from sublet_functions.handlers.within import lease_answers
from sublet_functions.http.body import stored_json
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.steps import Emission


async def emit(call: Call[Emission, Empty]) -> Response:
    """Append chunks to a running job's stream, which keeps the newest 10,000, at most 8 MiB."""
    job_id, asked = call.path["id"], call.body
    values = [stored_json(value, CHUNK_MAX, "body", "chunks", at) for at, value in enumerate(asked.chunks)]
    try:
        await call.store.emit(lease(job_id, asked.token), chunks.Emission(asked.before, values))
    except (LeaseLost, NotFound) as error:
        (word,) = await lease_answers(call, [job_id], [error.code])
        raise lease_problem(job_id, word) from None
    return json_response(job_state(job_id, "running"))
