"""The graph of a workflow: its order, and the calls that store it. Without I/O."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sublet.errors import Invalid
from sublet.model import Submission
from sublet.protocol import verbs
from sublet.workflows.storing import EDGES_MAX, Linked

CALL_JOBS = 40
"""Most jobs that `calls` puts into one call."""
CALL_EDGES = 100
"""Most edges of one call. A job with more upstreams is stored before them or, if one of these has more, after
them, with up to 500.
"""


@dataclass(slots=True)
class Node:
    """A job to store, the ids of its upstreams, and those of stored jobs that shall also wait for it."""

    job: Submission
    after: dict[str, None] = field(default_factory=dict)
    into: dict[str, None] = field(default_factory=dict)


def in_order(nodes: Mapping[str, Node]) -> list[Node]:
    """Return the jobs so that each is behind its upstreams, otherwise in the order of `nodes`. Raises Invalid
    for a cycle.
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
    """Split a graph into the jobs of each call: up to 40 jobs, 100 edges and 512 KiB, or one job with more.
    The last of several calls has no jobs: it seals the workflow. Raises Invalid for a cycle, or too many
    upstreams.
    """
    ordered = in_order(nodes)
    wide = _wide(ordered)
    new = {name: Linked(node.job, [*node.after], [*node.into]) for name, node in nodes.items()}
    for name in wide:
        outside = [one for one in new[name].after if one not in nodes]
        _check_wide(name, outside, next((one for one in new[name].after if one in wide), ""))
        for one in new[name].after:
            if one in nodes:
                new[one] = new[one]._replace(into=[*new[one].into, name])
        new[name] = new[name]._replace(after=outside)
    first = [new[node.job.id] for node in ordered if node.job.id in wide]
    batches = [*_batches([*first, *(new[node.job.id] for node in ordered if node.job.id not in wide)])]
    return [*batches, []] if len(batches) > 1 else batches


def _wide(ordered: Sequence[Node]) -> dict[str, None]:
    # A job that has a downstream gets no more upstreams
    found: dict[str, None] = {}
    for node in ordered:
        fits = len(node.after) <= EDGES_MAX and not found.keys().isdisjoint(node.after)
        if len(node.after) > CALL_EDGES and not fits:
            found[node.job.id] = None
    return found


def _check_wide(name: str, outside: Sequence[str], upstream: str) -> None:
    if len(outside) > EDGES_MAX:
        raise Invalid(
            f"job {name} waits for {len(outside)} jobs outside of the workflow: at most {EDGES_MAX} are allowed: "
            f"let other jobs of the workflow wait for some of them each, and {name} for those other jobs"
        )
    if upstream:
        raise Invalid(
            f"job {name} waits for more than {EDGES_MAX} jobs, and one of them, {upstream}, for more than {CALL_EDGES}: "
            f"let {name} wait for a job that waits for {upstream} alone"
        )


def _batches(jobs: Sequence[Linked]) -> Iterator[list[Linked]]:
    batch: list[Linked] = []
    own: set[str] = set()
    edges = size = 0
    for one in jobs:
        more, weight = len(one.after) + len(one.into), len(one.job.payload)
        is_full = len(batch) == CALL_JOBS or edges + more > CALL_EDGES or size + weight > verbs.BYTES
        # an edge of `into` leads to a job that is stored already
        if batch and (is_full or not own.isdisjoint(one.into)):
            yield batch
            batch, own, edges, size = [], set(), 0, 0
        batch.append(one)
        own.add(one.job.id)
        edges, size = edges + more, size + weight
    if batch:
        yield batch
