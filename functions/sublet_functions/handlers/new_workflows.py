"""`POST /workflows`: store jobs that wait for each other. A repeated request with an id or Idempotency-Key
stores nothing.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from sublet.errors import Busy, Invalid, NotDurable, Refused, Unavailable, Unconfirmed, did_you_mean
from sublet.model import Submission
from sublet.protocol import keys
from sublet.submission.submit import new_id
from sublet.workflows import members, operations
from sublet.workflows.graph import Node
from sublet_functions.handlers.call import Call
from sublet_functions.handlers.submit import idempotency_key, keyed_id, known_tasks, submission
from sublet_functions.handlers.within import outside
from sublet_functions.http.problems import MayBeStored, Problem, invalid_value, slug_of
from sublet_functions.http.response import Response, json_response
from sublet_functions.schemas.query import Empty
from sublet_functions.schemas.workflows import NewWorkflow, WorkflowJob

EDGES_MAX = 50_000
"""Most edges of a request."""
COMPARED = 200
AT_ONCE = 50
"""How many jobs are checked, which takes some ms, before other requests get a turn."""
_WORD = re.compile(r"[A-Za-z0-9_.:-]*[A-Za-z0-9_.-]")
_EDGE = re.compile(r"edge (\S+) to (\S+): ")
_WHOLE_ID = re.compile(r"[0-9]{1,5}-")


@dataclass
class _Graph:
    asked: Sequence[WorkflowJob]
    id: str
    ids: list[str] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def labels(self) -> dict[str, str]:
        return {
            job_id: job.name or (job_id if job.id else f"jobs.{at}")
            for at, (job, job_id) in enumerate(zip(self.asked, self.ids, strict=True))
        }


async def submit_workflow(call: Call[NewWorkflow, Empty]) -> Response:
    """Store up to 10,000 jobs that wait for each other, and return their ids. No job starts before all are
    stored. 201 if one is new; 200 if all were there, by the same workflow id or Idempotency-Key.
    """
    key = idempotency_key(call)
    graph = await _graph(call, key)
    if call.principal.scope is not None:
        await _check_scope(call, graph)
    is_repeatable = key is not None or call.body.id is not None
    plan = operations.store(call.store.operations, graph.id, graph.nodes, is_repeatable=is_repeatable)
    try:
        stored = await call.store.follow(plan)
    except (Unconfirmed, NotDurable, Busy):
        raise
    except Unavailable as error:
        if is_repeatable:
            raise
        resend = (
            "the same request again could store its jobs twice: give it an id, or send an Idempotency-Key"
        )
        raise MayBeStored(str(error), resend) from error
    except (Invalid, Refused) as error:
        raise _problem(error, graph, key) from None
    call.store.nudge([node.job.queue for node in graph.nodes.values()])
    is_new = any(one.created for one in stored)
    headers = {"Location": f"{call.request.prefix}/workflows/{graph.id}"}
    if key is not None and not is_new:
        headers["Idempotent-Replayed"] = "true"
    found = zip(graph.asked, graph.ids, graph.warnings, strict=True)
    items = [
        {"name": job.name, "id": job_id} | ({"warning": warning} if warning else {})
        for job, job_id, warning in found
    ]
    return json_response({"id": graph.id, "jobs": items}, 201 if is_new else 200, headers)


async def _graph(call: Call[NewWorkflow, Empty], key: str | None) -> _Graph:
    asked, jobs = call.body, call.body.jobs
    if key is not None and asked.id is not None:
        raise _invalid("not together with an Idempotency-Key: send one of them", "id")
    edges = sum(len(job.after) + len(job.into) for job in jobs)
    if edges > EDGES_MAX:
        raise _invalid(f"{edges:,} edges: a request takes up to {EDGES_MAX:,}", "jobs")
    known = await known_tasks(call, jobs)
    seed = key if key is not None else asked.id
    digest = await _digest(asked) if seed is not None else ""
    graph = _Graph(jobs, "")
    made: list[Submission] = []
    async for at, job in _in_turns(jobs):
        if job.key is not None:
            raise _invalid("a job of a workflow has none: leave it out", "jobs", at, "key")
        if key is not None and job.id is not None:
            raise _invalid("not together with an Idempotency-Key: send one of them", "jobs", at, "id")
        # with an own id, another body has other jobs; with a key, it has another workflow, and is refused
        place: object = at if key is not None else [digest, at]
        own = keyed_id(call, seed, place) if seed is not None else None
        one, warning = submission(call, job, None, known, at, own)
        if " key=" in f" {one.rules}":
            raise _invalid(
                f"{job.task} has a deduplication key, and a job of a workflow has none: submit it by itself",
                "jobs",
                at,
                "task",
            )
        made.append(one)
        graph.warnings.append(warning)
    graph.ids = [one.id for one in made]
    partition = keys.partition_of_id(graph.ids[0])
    own = keyed_id(call, key, digest) if key is not None else asked.id
    graph.id = _full(own, partition) if own is not None else new_id(partition)
    _add_nodes(graph, made)
    return graph


def _full(own: str, partition: int) -> str:
    return own if own.startswith(f"{partition}-") else f"{partition}-{own}"


async def _digest(asked: NewWorkflow) -> str:
    found = hashlib.sha256()
    async for _, job in _in_turns(asked.jobs):
        text = json.dumps(job.model_dump(mode="json"), sort_keys=True)
        found.update(text.encode("utf-8", "surrogatepass"))
    return found.hexdigest()


async def _in_turns(jobs: Sequence[WorkflowJob]) -> AsyncIterator[tuple[int, WorkflowJob]]:
    for at, job in enumerate(jobs):
        if at % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        yield at, job


def _add_nodes(graph: _Graph, made: Sequence[Submission]) -> None:
    by_name: dict[str, str] = {}
    for at, (job, one) in enumerate(zip(graph.asked, made, strict=True)):
        if one.id in graph.nodes:
            raise _invalid(f"id {one.id} is given twice: give each job its own id", "jobs", at, "id")
        if job.name is not None and by_name.setdefault(job.name, one.id) != one.id:
            raise _invalid(f"name {job.name} is given twice: give each job its own name", "jobs", at, "name")
        words = [one.rules] if one.rules else []
        words += [f"on_failure={job.on_failure}"] if job.on_failure != "cancel" else []
        words += [f"give_up={round(job.give_up * 1000)}"] if job.give_up is not None else []
        graph.nodes[one.id] = Node(one._replace(rules=" ".join(words)))
    for at, (job, one) in enumerate(zip(graph.asked, made, strict=True)):
        graph.nodes[one.id].after.update(dict.fromkeys(_targets(graph, by_name, job.after, at, "after")))
    for at, (job, one) in enumerate(zip(graph.asked, made, strict=True)):
        for other in _targets(graph, by_name, job.into, at, "into"):
            if other in graph.nodes:
                graph.nodes[other].after[one.id] = None
            else:
                graph.nodes[one.id].into[other] = None


def _targets(
    graph: _Graph, by_name: Mapping[str, str], words: Sequence[str], at: int, name: str
) -> Iterator[str]:
    for number, word in enumerate(words):
        target = by_name.get(word, word)
        if target not in graph.nodes and not _WHOLE_ID.match(target):
            near = did_you_mean(word, islice(by_name, COMPARED))
            reason = f"{word!r} is neither the name of a job in this request nor a whole id, such as 0-{word}{near}"
            raise _invalid(reason, "jobs", at, name, number)
        yield target


async def _check_scope(call: Call[NewWorkflow, Empty], graph: _Graph) -> None:
    others = [one for node in graph.nodes.values() for one in (*node.after, *node.into)]
    hidden = await outside(call, [one for one in dict.fromkeys(others) if one not in graph.nodes])
    for at, job in enumerate(graph.asked):
        for name, words in (("after", job.after), ("into", job.into)):
            for number, word in enumerate(words):
                if word in hidden:
                    raise _invalid(f"there is no job {word}", "jobs", at, name, number)
    if call.body.id is not None:
        base = call.store.operations.base_of_job(graph.id)
        if not await call.store.run(members.may_add(base, graph.id, graph.ids)):
            raise Problem("key-taken", f"id {graph.id}: a workflow has it: choose another")


def _problem(error: Invalid | Refused, graph: _Graph, key: str | None) -> Problem:
    labels, text = graph.labels(), str(error)
    said = _WORD.sub(lambda word: labels.get(word[0], word[0]), text)
    if key is not None and "exists, and is not a member" in text:
        return Problem(
            "idempotency-mismatch",
            "Idempotency-Key: its first request had another body: send that body again, or a new key for a new workflow",
        )
    edge = _EDGE.search(text)
    if edge:
        return _invalid(said, *_place(graph, labels, edge[1], edge[2]))
    if isinstance(error, Invalid):
        return _invalid(said, "jobs")
    return Problem(slug_of(error), said)


def _place(graph: _Graph, labels: Mapping[str, str], upstream: str, downstream: str) -> Sequence[str | int]:
    for own, other, name in ((downstream, upstream, "after"), (upstream, downstream, "into")):
        if own in graph.nodes:
            at = graph.ids.index(own)
            asked = graph.asked[at]
            known = (other, labels.get(other))
            words = asked.after if name == "after" else asked.into
            found = [number for number, word in enumerate(words) if word in known]
            if found:
                return "jobs", at, name, found[0]
    return ("jobs",)


def _invalid(reason: str, *where: str | int) -> Problem:
    text = reason if where == ("jobs",) or "edge " in reason else f"{'.'.join(map(str, where))}: {reason}"
    return Problem("invalid", text, errors=[invalid_value(reason, "body", *where)])
