"""`POST /jobs/{id}/step`: keep and read the steps of a running job."""

from typing import Any

from sublet.errors import LeaseLost, NotFound
from sublet.protocol.reads import json_of, shown
from sublet.steps.calls import STEP_MAX, Called, Kept
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.leases import lease, lease_problem
from sublet_functions.handlers.within import lease_answers
from sublet_functions.http.body import stored_json
from sublet_functions.http.response import Response, json_response, timestamp
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.steps import Steps


async def step(call: Call[Steps, Empty]) -> Response:
    """Keep steps of a running job: new ones give all tries back. Return those of the request that were kept
    before, and stay; without `steps`, all.
    """
    job_id, asked = call.path["id"], call.body
    steps = {name: stored_json(value, STEP_MAX, "body", "steps", name) for name, value in asked.steps.items()}
    try:
        there = await call.store.step(lease(job_id, asked.token), steps)
    except (LeaseLost, NotFound) as error:
        (word,) = await lease_answers(call, [job_id], [error.code])
        raise lease_problem(job_id, word) from None
    return json_response({"id": job_id, "steps": {name: shown_step(kept) for name, kept in there.items()}})


def shown_step(kept: Kept) -> dict[str, Any]:
    """Return a kept step as responses have it."""
    return {"kind": kept.kind, "kept_at": timestamp(float(kept.at_ms)), "value": _value(kept)}


def _value(kept: Kept) -> Any:
    if kept.kind == "call":
        return kept.value.decode()
    if kept.kind != "called":
        return json_of(kept.value)
    called = Called.of(kept.value)
    is_done = called.state == "completed"
    return {
        "id": called.id,
        "state": called.state,
        "result": json_of(called.body) if is_done else None,
        "error": None if is_done else shown(called.body),
    }
