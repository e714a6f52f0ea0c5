"""`GET /queues`, `GET|PATCH /queues/{queue}`: what is in the queues, what they may hold, and whether they are paused."""

from sublet_functions.api.cursor import opened, sealed
from sublet_functions.api.parsing import fault, telling
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import Problem, json_reply
from sublet_functions.schemas.query import Nothing, PageQuery
from sublet_functions.schemas.requests import QueueChange


async def list_queues(call: Call[Nothing, PageQuery]) -> Reply:
    """The queues that ever had a job or a setting, by name."""
    asked, operations = call.query, call.store.operations
    found = await call.store.follow(operations.queues(opened(asked.cursor) or "", asked.limit))
    cursor = sealed(found[-1].name) if len(found) == asked.limit else None
    headers = {"Link": f'</queues?limit={asked.limit}&cursor={cursor}>; rel="next"'} if cursor else {}
    return json_reply({"queues": found, "cursor": cursor}, headers=headers)


async def get_queue(call: Call[Nothing, Nothing]) -> Reply:
    """One queue, known or not; `*` has the settings of the whole namespace."""
    return json_reply(await call.store.follow(call.store.operations.queue(call.words["queue"])))


async def change_queue(call: Call[QueueChange, Nothing]) -> Reply:
    """Pause or resume a queue, and set its limits. What is not named stays; what is so already is not done again."""
    store, name, change = call.store, call.words["queue"], call.body
    if name == "*" and change.paused is not None:
        raise Problem(
            "invalid",
            "name the queue: they are paused one by one",
            errors=[fault("not for *", "body", "paused")],
        )
    seen = await store.follow(store.operations.queue(name))
    limits = {
        kind: most for kind, most in change.limits.items() if name == "*" or seen.limits.get(kind) != most
    }
    if limits:
        with telling("body", "limits"):
            await store.follow(store.operations.configure(name, **limits))
    if change.paused not in (None, seen.paused_at is not None):
        await store.follow(store.operations.pause(name) if change.paused else store.operations.resume(name))
    return json_reply(await store.follow(store.operations.queue(name)))
