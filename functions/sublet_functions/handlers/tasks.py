"""`/tasks`: the catalogue of tasks."""

from collections import Counter
from typing import Any

from sublet.errors import did_you_mean
from sublet.tasks import catalogue
from sublet.tasks.catalogue import TaskInfo
from sublet_functions.handlers.call import Call
from sublet_functions.http.cursor import decode_cursor, encode_cursor
from sublet_functions.http.problems import Problem
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty, PageQuery
from sublet_functions.schemas.requests import TaskPublication


async def list_tasks(call: Call[Empty, PageQuery]) -> Response:
    """List the tasks that workers have published, and those of the server's app, by name: options, and JSON Schemas
    of arguments and result.
    """
    asked, known = call.query, await _all(call)
    after = decode_cursor(asked.cursor) or ""
    found = [info for name, info in known.items() if name > after][: asked.limit]
    cursor = encode_cursor(found[-1].name) if len(found) == asked.limit else None
    link = f'<{call.request.prefix}/tasks?limit={asked.limit}&cursor={cursor}>; rel="next"'
    headers = {"Link": link} if cursor else {}
    return json_response({"tasks": found, "cursor": cursor}, headers=headers, reads=len(found))


async def get_task(call: Call[Empty, Empty]) -> Response:
    """Return one task: its options, and the JSON Schemas of its arguments and result."""
    known, name = await _all(call), call.path["name"]
    if name not in known:
        near = did_you_mean(name, known) or ": GET /tasks lists them"
        raise Problem("not-found", f"no worker has published a task {name}{near}")
    return json_response(known[name])


async def publish_tasks(call: Call[TaskPublication, Empty]) -> Response:
    """Put a worker's tasks into the catalogue when it starts, or renew them there. A task that no worker renews for
    7 days is removed.
    """
    base = call.store.operations.bases[0]
    tasks = [catalogue.description(TaskInfo(**task.model_dump())) for task in call.body.tasks]
    answers = await call.store.follow(catalogue.publish(base, tasks, starting=call.body.starting))
    counts = Counter(answers)
    return json_response({name: counts[name] for name in ("written", "kept", "full")})


async def _all(call: Call[Any, Any]) -> dict[str, TaskInfo]:
    found = await call.store.follow_existing(catalogue.published(call.store.operations.bases[0]))
    return call.known.infos(found) if call.known else found
