"""Operations on workflows, as plans: generators that yield calls to Redis."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

from sublet.errors import Invalid, JobsError, NoNamespace, NotFound, Unavailable
from sublet.model import Submission, Submitted
from sublet.options import PAYLOAD_MAX
from sublet.protocol import keys
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call, refusal
from sublet.submission import durability
from sublet.submission.admission import estimated_bytes
from sublet.submission.submit import SubmitOperations
from sublet.workflows import graph, storing
from sublet.workflows.graph import Node
from sublet.workflows.storing import Linked

T = TypeVar("T")

UPSTREAM_PAGE = 1000
"""Most ids of upstreams that one call reads."""


def store(
    operations: SubmitOperations,
    workflow_id: str,
    nodes: Mapping[str, Node],
    *,
    is_repeatable: bool = False,
) -> Plan[list[Submitted]]:
    """Store a workflow of `nodes` (by job id); return a `Submitted` for each, not in their order. Raises
    Invalid, Refused, Unavailable.

    A graph may need several calls: none of its jobs starts before the last call. If a later call than the
    first fails, the stored jobs are cancelled; but after Unavailable, if `is_repeatable`, they stay for a
    repetition.
    """
    base = _check(operations, workflow_id, nodes)
    steps = graph.calls(nodes)
    asked = {node.job.durability or operations.settings.durability for node in nodes.values()}
    waits = () if asked <= durability.NONE else durability.waits(operations.settings, asked)
    if waits:
        yield from operations.fsync_support.check({base: None}, waits)
    answers: list[Submitted] = []
    for number, jobs in enumerate(steps):
        is_last = number == len(steps) - 1
        call = storing.workflow(base, workflow_id, "seal" if is_last else "open", jobs)
        if waits and is_last:
            call = durability.confirmed(call, waits, [job_id for job_id in nodes])
        try:
            answers += yield from _send(operations, base, jobs, call)
        except JobsError as error:
            is_kept = is_repeatable and isinstance(error, Unavailable)
            if number and not is_kept:  # a sealed one stays
                with contextlib.suppress(JobsError):
                    yield storing.workflow(base, workflow_id, "cancel")
            raise
    return answers


def _check(operations: SubmitOperations, workflow_id: str, nodes: Mapping[str, Node]) -> str:
    partition = keys.partition_of_id(workflow_id)
    for job_id, node in nodes.items():
        others = [one for one in (job_id, *node.after, *node.into) if keys.partition_of_id(one) != partition]
        if others:
            raise Invalid(
                f"job {others[0]} is in another partition than the first job of the workflow: use one queue, or queues of "
                f"partition {partition}, for the workflow and the jobs that it waits for"
            )
        if len(node.job.payload) > PAYLOAD_MAX:
            raise Invalid(
                f"job {job_id}: arguments of {len(node.job.payload):,} bytes (JSON): a job of a workflow takes at most {PAYLOAD_MAX:,}: "
                "pass the address of the data"
            )
    return operations.bases[partition]


def _send(
    operations: SubmitOperations, base: str, jobs: Sequence[Linked], call: Call[list[Submitted] | str]
) -> Plan[list[Submitted]]:
    own = [one.job for one in jobs]
    try:
        answer = yield from admitted(operations, base, own, call)
    except NoNamespace:
        yield from operations.prepare()
        answer = yield from admitted(operations, base, own, call)
    if isinstance(answer, str):
        raise refusal(f"{answer}; nothing of this call was stored") or Invalid(answer)
    return answer


def admitted(operations: SubmitOperations, base: str, jobs: Sequence[Submission], call: Call[T]) -> Plan[T]:
    """Make a call that stores jobs; return its answer. Raises OutOfMemory, without the call, if the server
    has too little memory.
    """
    admission, size = operations.admission, estimated_bytes(jobs)
    if admission is not None and not admission.admit(base, size):
        full = yield from admission.check(base, size)
        if full:
            raise full
        admission.begin(size)
    try:
        answer: T = yield call
    finally:
        operations.end(size)
    return answer


def upstream(operations: SubmitOperations, job_id: str) -> Plan[list[str]]:
    """Return the ids of the jobs that a job waits for, or waited for, in the order given. Raises NotFound."""
    base = operations.bases[
        keys.partition_of_id(keys.check_name("id", job_id, keys.ID_MAX)) % len(operations.bases)
    ]
    key = keys.upstream(base, job_id)
    if not (yield Call((("HLEN", keys.job(base, job_id)),), int)):
        raise NotFound(f"no job {job_id}: it never existed, or was deleted (retention, erase)")
    found: list[str] = []
    while True:
        command = ("LRANGE", key, len(found), len(found) + UPSTREAM_PAGE - 1)
        page: list[str] = yield Call((command,), lambda reply: [one.decode() for one in reply])
        found += page
        if len(page) < UPSTREAM_PAGE:
            return found
