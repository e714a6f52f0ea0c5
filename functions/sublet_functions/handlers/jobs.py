"""`GET /jobs/{id}`, `GET /jobs`: what is there."""

from urllib.parse import urlencode

from sublet.errors import NotFound
from sublet_functions.api.cursor import opened, sealed
from sublet_functions.api.parsing import telling
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import json_reply
from sublet_functions.schemas.query import ListQuery, Nothing, WaitQuery


async def get_job(call: Call[Nothing, WaitQuery]) -> Reply:
    """All about one job: where it is, who owns it, what became of each attempt. With `wait`, as soon as it has ended."""
    job_id, store = call.words["id"], call.store
    if call.query.wait and (await store.watch(job_id, call.query.wait)).state is None:
        raise NotFound(f"no job {job_id}: it never was, or its retention has passed")
    return json_reply(await store.follow(store.operations.get(job_id)))


async def list_jobs(call: Call[Nothing, ListQuery]) -> Reply:
    """Jobs by state, queue and task; finished ones newest first. Looks at 1,000 a page at most."""
    asked, operations = call.query, call.store.operations
    with telling("query", "cursor"):
        page = await call.store.follow(
            operations.list_jobs(asked.state, asked.queue, asked.task, asked.limit, opened(asked.cursor))
        )
    cursor = sealed(page.cursor)
    headers = {}
    if cursor:
        again = asked.model_dump(mode="json", exclude_none=True, exclude_defaults=True) | {"cursor": cursor}
        headers["Link"] = f'</jobs?{urlencode(again)}>; rel="next"'
    return json_reply({"jobs": page.jobs, "cursor": cursor}, headers=headers)
