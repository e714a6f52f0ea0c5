"""`/workers`: the register. Workers come, are seen, give back what dead ones of their own held, and leave."""

from typing import Any

from sublet import model
from sublet.errors import NotFound
from sublet.operations import pools, workers
from sublet_functions.api.auth import Role
from sublet_functions.api.parsing import written
from sublet_functions.api.request import Call, Reply
from sublet_functions.api.response import Problem, json_reply
from sublet_functions.schemas.query import LifeQuery, Nothing, WorkersQuery
from sublet_functions.schemas.requests import Card, Gone, Retiring

ABOUT_MAX = 4096
"""Bytes that a worker may say of itself."""


async def list_workers(call: Call[Nothing, WorkersQuery]) -> Reply:
    """The workers on the register, at most 1,000: where each runs, what it holds, when it was last heard of."""
    held = call.query.jobs
    return json_reply(
        {"workers": await call.store.follow(workers.workers(call.store.operations.bases, jobs=held))}
    )


async def enlist(call: Call[Card, Nothing]) -> Reply:
    """A worker's sign of life. Answers whether it has been asked to finish and go."""
    said = call.body
    await _own(call, call.words["name"], said.life)  # nobody takes a name that came with another token
    about = written({**said.about, "principal": call.who.name}, ABOUT_MAX, "body", "about")
    drain = await call.store.enlist(
        model.Card(call.words["name"], said.life, said.worker_id, about, said.pool, said.summons)
    )
    return json_reply({"drain": drain})


async def leave(call: Call[Nothing, LifeQuery]) -> Reply:
    """Strike off a worker that holds nothing any more. The same again, or another life by then: nothing happens."""
    name, life = call.words["name"], call.query.life
    worker = await _own(call, name, life)
    if worker:
        await call.store.leave(model.Card(name, life, "", b""))
        call.store.nudge(_queues(worker))  # what it leaves behind may need others
    return Reply(204)


async def retire(call: Call[Retiring, Nothing]) -> Reply:
    """May an idle worker of a pool go? If so it counts no more from this moment, and must take nothing more."""
    name, said = call.words["name"], call.body
    bases = call.store.operations.bases
    if not await _own(call, name, said.life):  # another has come by its name
        return json_reply({"leave": True})
    return json_reply({"leave": await call.store.follow(pools.may_leave(bases, said.pool, name))})


async def reconcile(call: Call[Gone, Nothing]) -> Reply:
    """Strike off a worker that is gone for good, and end its leases now. Only where it came with a token of the same name."""
    name, life = call.words["name"], call.body.life
    ended = await call.store.reconcile({name: life}) if await _own(call, name, life) else 0
    return json_reply({"ended": ended})


async def drain(call: Call[Nothing, Nothing]) -> Reply:
    """Ask a worker to finish and go. It hears of it at its next sign of life."""
    await call.store.follow(call.store.operations.drain(call.words["name"]))
    return json_reply({"drain": True}, 202)


async def _own(call: Call[Any, Any], name: str, life: str) -> model.WorkerInfo | None:
    """This life of a worker, if it is on the register. Raises Problem if it came with another name's token, or has that name."""
    admin = Role.ADMIN in call.who.roles
    if (
        name != call.who.name and call.is_token(name) and not admin
    ):  # those who claim without a name claim by their token's
        raise Problem(
            "forbidden",
            f"{name} is the name of another token: only that one may speak for a worker of this name",
        )
    try:
        worker = await call.store.follow(workers.worker(call.store.operations.bases, name))
    except NotFound:
        return None
    if worker.about.get("principal") != call.who.name and not admin:
        raise Problem(
            "forbidden", f"worker {name} did not come with this token: only its own may speak for it"
        )
    return worker if worker.life == life else None


def _queues(worker: model.WorkerInfo) -> list[str]:
    """The queues that a worker says it takes jobs from."""
    said = worker.about.get("queues")
    return [name for name in said if isinstance(name, str)] if isinstance(said, list) else []
