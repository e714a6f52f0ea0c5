"""The graph of a workflow: its order, and the calls that store it. Without I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sublet.errors import Invalid
from sublet.model import Submission
from sublet.protocol import verbs
from sublet.workflows.storing import EDGES_MAX, Linked

CALL_JOBS = 60
"""Jobs of one call, for which it holds the server for less than 5 ms."""
WIDE = 400
"""A job with more upstreams is stored before them, and they are stored with edges into it."""


@dataclass(slots=True)
class Node:
    """A job that is to be stored, the ids of its upstreams, and of the waiting jobs that are to wait for it."""

    job: Submission
    after: dict[str, None] = field(default_factory=dict)
    into: dict[str, None] = field(default_factory=dict)


def in_order(nodes: Mapping[str, Node]) -> list[Node]:
    """Return the jobs so that each is behind its upstreams, otherwise in the order of `nodes`. Raises Invalid, which
    names a cycle.
    """
    ordered: list[Node] = []
    done: set[str] = set()
    for first in nodes:
        path: dict[str, Iterator[str]] = {}
        step: str | None = first if first not in done else None
        while step is not None or path:
            if step is not None:
                path[step] = iter(nodes[step].after)
            here = next(reversed(path))
            step = next((name for name in path[here] if name in nodes and name not in done), None)
            if step is None:
                path.popitem()
                done.add(here)
                ordered.append(nodes[here])
            elif step in path:
                raise Invalid(f"the workflow has a cycle: {_cycle([*path], step)}")
    return ordered


def _cycle(path: Sequence[str], step: str) -> str:
    ring = [*reversed(path[path.index(step) :])]
    return " → ".join([step, *ring])


def calls(nodes: Mapping[str, Node]) -> list[list[Linked]]:
    """Split a graph into the jobs of each call: up to 60 jobs, 500 edges and 512 KiB. Raises Invalid for a cycle, or
    too many upstreams outside.
    """
    ordered = in_order(nodes)
    wide = {node.job.id for node in ordered if len(node.after) > WIDE}
    new = {name: Linked(node.job, [*node.after], [*node.into]) for name, node in nodes.items()}
    for name in wide:
        outside = [one for one in new[name].after if one not in nodes]
        if len(outside) > WIDE:
            raise Invalid(
                f"job {name} waits for {len(outside)} jobs outside of the workflow: at most {WIDE} are allowed: "
                "let jobs of the workflow wait for some of them each, and this one for these"
            )
        for one in new[name].after:
            if one in nodes:
                new[one] = new[one]._replace(into=[*new[one].into, name])
        new[name] = new[name]._replace(after=outside)
    first = [new[node.job.id] for node in ordered if node.job.id in wide]
    return [*_batches([*first, *(new[node.job.id] for node in ordered if node.job.id not in wide)])]


def _batches(jobs: Sequence[Linked]) -> Iterator[list[Linked]]:
    batch: list[Linked] = []
    own: set[str] = set()
    edges = size = 0
    for one in jobs:
        more, weight = len(one.after) + len(one.into), len(one.job.payload)
        is_full = len(batch) == CALL_JOBS or edges + more > EDGES_MAX or size + weight > verbs.BYTES
        # an edge of `into` leads to a job that is stored already
        if batch and (is_full or not own.isdisjoint(one.into)):
            yield batch
            batch, own, edges, size = [], set(), 0, 0
        batch.append(one)
        own.add(one.job.id)
        edges, size = edges + more, size + weight
    if batch:
        yield batch
