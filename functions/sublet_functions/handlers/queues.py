"""The routes of `/queues`: list and change queues, and the limits of their groups."""

from typing import Any

from sublet_functions.handlers.call import Call
from sublet_functions.http.cursor import decode_cursor, encode_cursor
from sublet_functions.http.problems import Problem, invalid_at, invalid_value
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty, PageQuery
from sublet_functions.schemas.queues import GroupSettings, GroupsQuery, QueuePatch


async def list_queues(call: Call[Empty, PageQuery]) -> Response:
    """List the token's queues that had a job or a setting, by partition. Those of a partition with up to
    about 1,000 queues are sorted by name.
    """
    asked, operations = call.query, call.store.operations
    with invalid_at("query", "cursor"):
        found, following = await call.store.follow(
            operations.queue_page(asked.limit, decode_cursor(asked.cursor), call.principal.scope)
        )
    cursor = encode_cursor(following)
    link = f'<{call.request.prefix}/queues?limit={asked.limit}&cursor={cursor}>; rel="next"'
    headers = {"Link": link} if cursor else {}
    return json_response({"queues": found, "cursor": cursor}, headers=headers, reads=len(found))


async def get_queue(call: Call[Empty, Empty]) -> Response:
    """Return one queue; an unused name has zeros, and `exists` is false. `*`: the namespace's settings; its limits hold in each partition."""
    _check(call)
    return json_response(await call.store.follow(call.store.operations.queue(call.path["queue"])))


async def change_queue(call: Call[QueuePatch, Empty]) -> Response:
    """Pause or resume a queue, set its limits and `on_dead`. Settings that are left out stay as they are."""
    store, name, patch = call.store, call.path["queue"], call.body
    _check(call)
    if patch.on_dead and "/" in patch.on_dead:
        call.principal.check(patch.on_dead.partition("/")[0])
    if name == "*" and patch.paused is not None:
        raise Problem(
            "invalid",
            "queue *: `paused` does not apply to the namespace: set it for each queue",
            errors=[invalid_value("not for queue *", "body", "paused")],
        )
    seen = await store.follow(store.operations.queue(name))
    limits = {
        kind: most for kind, most in patch.limits.items() if name == "*" or seen.limits.get(kind) != most
    }
    if limits:
        with invalid_at("body", "limits"):
            await store.follow(store.operations.configure(name, **limits))
    if "on_dead" in patch.model_fields_set and patch.on_dead != seen.on_dead:
        with invalid_at("body", "on_dead"):
            await store.follow(store.operations.configure(name, on_dead=patch.on_dead))
    if patch.paused not in (None, seen.paused_at is not None):
        await store.follow(store.operations.pause(name) if patch.paused else store.operations.resume(name))
    return json_response(await store.follow(store.operations.queue(name)))


async def list_groups(call: Call[Empty, GroupsQuery]) -> Response:
    """List groups of a queue: first those that a limit of groups holds back (theirs, or the queue's for each), then others
    that wait, run or have settings. With them: whether a limit of the whole queue holds all its jobs back.
    """
    _check(call)
    asked = call.query
    plan = call.store.operations.groups(call.path["queue"], asked.limit, asked.group)
    found = await call.store.follow(plan)
    return json_response(found, reads=4 * len(found.groups))


async def put_group(call: Call[GroupSettings, Empty]) -> Response:
    """Replace all own settings of a group: those left out are removed. The group need not have had a job."""
    _check(call)
    with invalid_at("body", model=GroupSettings):
        return json_response({"settings": await _set(call, call.body.model_dump())})


async def delete_group(call: Call[Empty, Empty]) -> Response:
    """Remove the own settings of a group; its jobs stay."""
    _check(call)
    await _set(call, dict.fromkeys(GroupSettings.model_fields))
    return Response(204)


async def _set(call: Call[Any, Any], settings: dict[str, Any]) -> str:
    queue, group = call.path["queue"], call.path["group"]
    plan = call.store.operations.change_group(queue, group, **settings)
    answer: str = await call.store.follow(plan)
    return answer


def _check(call: Call[Any, Any]) -> None:
    principal, name = call.principal, call.path["queue"]
    principal.check(name)
    if name == "*" and principal.scope is not None:
        raise Problem(
            "forbidden",
            f"queue * is the namespace, and the token of {principal.name} is limited to queues ({principal.scope}): use a token without @QUEUES",
        )
