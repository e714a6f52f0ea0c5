"""Complete a job and store the jobs that follow it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

from sublet.errors import Invalid, JobsError, LeaseLost, NotFound, OutOfMemory, QueueFull, Refused, WrongState
from sublet.model import Completion, Ending, Failure, Following, State, Submission
from sublet.options import PAYLOAD_MAX
from sublet.protocol import keys
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call, refusal, script
from sublet.submission.submit import SubmitOperations
from sublet.workflows import graph, storing
from sublet.workflows.graph import Node
from sublet.workflows.operations import admitted
from sublet.workflows.storing import Linked

FOLLOWING_MAX = 10_000
"""Most jobs that may follow one, not counting a callback."""
ANSWERS = ("completed", "LEASE_LOST", "NOT_FOUND")
REFUSED = "invalid_result"
"""The error code of a job whose completion was refused."""
Sender = Callable[[Sequence[Ending]], Awaitable[list[str]]]
"""Sends outcomes of one kind; returns the answers in order."""


def check(job_id: str, following: Following) -> None:
    """Raise Invalid if jobs that follow a job are too many, too large, repeated, or of another partition."""
    jobs = [*_all(following)]
    if len(following.jobs) > FOLLOWING_MAX:
        raise Invalid(
            f"Then of {len(following.jobs):,} jobs: at most {FOLLOWING_MAX:,} may follow a job: let the jobs that follow submit more"
        )
    if len({job.id for job in jobs}) < len(jobs):
        raise Invalid(
            "Then with two jobs of one id: call Task.job(…) for each, with a different job_id= (in JSON: id) if you set any"
        )
    for job in jobs:
        if keys.partition_of_id(job.id) != keys.partition_of_id(job_id):
            raise Invalid(
                f"Then with a job for queue {job.queue}, which is in another partition than job {job_id}: use a queue of the "
                "same one"
            )
        if len(job.payload) > PAYLOAD_MAX:
            raise Invalid(
                f"Then with arguments of {len(job.payload):,} bytes (JSON): a job that follows takes at most {PAYLOAD_MAX:,}: pass the address "
                "of the data"
            )


def _all(following: Following) -> Iterator[Submission]:
    yield from following.jobs
    if following.callback is not None:
        yield following.callback


def complete(operations: SubmitOperations, ending: Completion, following: Following) -> Plan[str]:
    """Complete the job and store those that follow; return `completed`, LEASE_LOST or NOT_FOUND. Safe to
    repeat. Raises QueueFull, OutOfMemory, WrongState, Invalid: the job still runs.
    """
    check(ending.lease.id, following)
    base = operations.bases[keys.partition_of_id(ending.lease.id) % len(operations.bases)]
    steps = graph.calls(_nodes(following))
    *before, last = steps or [[]]  # those before start with the completion, too: the workflow is open
    for jobs in before:
        call = storing.workflow(base, following.workflow, "open", jobs)
        answer = yield from admitted(operations, base, [one.job for one in jobs], call)
        if isinstance(answer, str):
            error = _refusal(answer)
            if isinstance(error, WrongState):  # perhaps this is a repeat, and all is done
                break
            raise error
    last_call = proceed(base, ending, following.workflow, last)
    reply: str = yield from admitted(operations, base, [one.job for one in last], last_call)
    if reply not in ANSWERS:
        raise _refusal(reply)
    return reply


def _refusal(words: str) -> JobsError:
    error = refusal(words)
    return error if isinstance(error, QueueFull | WrongState | Invalid) else Invalid(words)


def _nodes(following: Following) -> dict[str, Node]:
    nodes = {job.id: Node(job) for job in following.jobs}
    callback = following.callback
    if callback is not None:
        rules = f"{callback.rules} on_failure={following.on_failure}".strip() if nodes else callback.rules
        nodes[callback.id] = Node(callback._replace(rules=rules), dict.fromkeys(nodes))
    return nodes


def proceed(base: str, ending: Completion, workflow_id: str, jobs: Sequence[Linked]) -> Call[str]:
    """Complete a job, and store up to 200 others. Returns `completed`, or the refusal as text."""
    return script("proceed").call(
        base, bytes.decode, storing.fields(jobs), id=ending.lease.id, token=ending.lease.token, result=ending.result,
        workflow=workflow_id,
    )  # fmt: skip


async def settle_each(
    endings: Sequence[Ending],
    senders: Mapping[type, Sender],
    send_following: Callable[[Completion, Following], Awaitable[str]],
) -> list[str]:
    """Send outcomes by kind, and each completion with jobs that follow by itself; return the answers in
    order. Two more answers: `QUEUE_FULL …` (queue or Redis), `dead <reason>` (these jobs can never be stored).
    """
    answers: dict[int, str] = {}

    async def send(kind: type) -> None:
        own = [i for i, ending in enumerate(endings) if type(ending) is kind and not _following(ending)]
        if own:
            answers.update(zip(own, await senders[kind]([endings[i] for i in own]), strict=True))

    async def send_one(i: int, ending: Completion, following: Following) -> None:
        try:
            answers[i] = await send_following(ending, following)
        except (QueueFull, OutOfMemory) as error:
            answers[i] = f"QUEUE_FULL {error}"
        except (LeaseLost, NotFound) as error:
            answers[i] = error.code
        except (Invalid, Refused) as error:
            answers[i] = await fail_instead(ending, error, senders[Failure])

    pairs = [(i, ending, _following(ending)) for i, ending in enumerate(endings)]
    await asyncio.gather(
        *map(send, senders),
        *(send_one(i, e, following) for i, e, following in pairs if isinstance(e, Completion) and following),
    )
    return [answers[i] for i in range(len(endings))]


async def fail_instead(ending: Completion, error: JobsError, send: Sender) -> str:
    """End a job whose completion can never be stored: as dead. Returns `dead <reason>`, or another answer."""
    (answer,) = await send([Failure(ending.lease, REFUSED, str(error), again=False)])
    return f"{answer} {error}" if answer == State.DEAD else answer


def stored(ending: Ending, answer: str) -> tuple[Ending, str]:
    """Return the outcome that was stored, and its answer: after `fail_instead`, a Failure and `dead`."""
    state, _, reason = answer.partition(" ")
    if isinstance(ending, Completion) and state == State.DEAD:
        return Failure(ending.lease, REFUSED, reason, again=False), state
    return ending, answer


def _following(ending: Ending) -> Following | None:
    found = ending.following if isinstance(ending, Completion) else None
    return found if found and (found.jobs or found.callback) else None
