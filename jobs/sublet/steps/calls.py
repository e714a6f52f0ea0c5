"""The calls that keep, read and await the steps of a job."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sublet.errors import Invalid, JobsError
from sublet.model import Lease, Submission, Suspension
from sublet.protocol import keys
from sublet.protocol.payload import encoded
from sublet.protocol.scripts import Call, refusal, script

STEP_MAX = 64 * 1024


class Kept(NamedTuple):
    """A kept step: when it was kept (ms since 1970), its kind, and its value. This is JSON; of kind `timeout`
    empty, of `call` the id of an unfinished job, of `called` the text that `Called.of` parses.
    """

    at_ms: int
    kind: str
    value: bytes


class CalledJob(NamedTuple):
    """A step's name, and the job to store for it. The script makes the job's id."""

    step: str
    job: Submission


class Called(NamedTuple):
    """How a called job ended: `completed` with its result, `dead` or `cancelled` with `<code> <message>`, or
    `refused` with a message: completed, but its result does not fit into a step.
    """

    id: str
    state: str
    body: bytes

    @classmethod
    def of(cls, value: bytes) -> "Called":
        """Parse the value of a step of kind `called`."""
        head, _, body = value.partition(b"\n")
        job_id, _, state = head.decode().partition(" ")
        return cls(job_id, state, body)

    @property
    def value(self) -> bytes:
        """The step's value, as `of` parses it."""
        return f"{self.id} {self.state}\n".encode() + self.body


def kept(stored: bytes) -> Kept:
    """Parse a stored step."""
    head, _, value = stored.partition(b"\n")
    at, _, kind = head.decode().partition(" ")
    return Kept(int(at), kind, value)


def step(base: str, lease: Lease, steps: Mapping[str, bytes]) -> Call[dict[str, Kept]]:
    """Keep up to 100 steps of a running job, by name. One kept before stays, unless it is a signal. Returns
    those that stayed; if `steps` is empty, all kept ones. Raises LeaseLost, NotFound, StepsFull, Invalid.
    """

    def read(reply: list[bytes]) -> dict[str, Kept]:
        if not steps:
            return {reply[i].decode(): kept(reply[i + 1]) for i in range(0, len(reply), 2)}
        return {name: kept(word) for name, word in zip(steps, reply, strict=True) if word != b"kept"}

    rest = [word for step in steps.items() for word in step]
    return script("step").call(base, read, rest, id=lease.id, token=lease.token)


def call(base: str, lease: Lease, called: CalledJob) -> Call[Kept | JobsError]:
    """Store a job for a step, once. Returns the step, or the error that refused the job. Raises LeaseLost,
    NotFound, StepsFull, Invalid.
    """
    job = called.job
    if keys.partition_of_id(job.id) != keys.partition_of_id(lease.id):
        raise Invalid(
            f"step {called.step}: queue {job.queue} is in another partition than job {lease.id}: call a task with a queue "
            "of the same partition"
        )

    def read(reply: bytes) -> Kept | JobsError:
        return kept(reply) if b"\n" in reply else refusal(reply.decode()) or Invalid(reply.decode())

    return script("call").call(
        base, read, id=lease.id, token=lease.token, name=called.step, queue=job.queue, task=job.task, rules=job.rules,
        payload=job.payload,
    )  # fmt: skip


def value_of(value: Any) -> bytes:
    """Return a signal's value as JSON. Raises Invalid, also over 64 KiB."""
    text = encoded("signal: the value", value)
    if len(text) > STEP_MAX:
        raise Invalid(
            f"signal of {len(text):,} bytes: the limit is {STEP_MAX:,}: send the address of the data"
        )
    return text


def suspend(base: str, endings: Sequence[Suspension]) -> Call[list[str]]:
    """End up to 100 attempts whose tasks wait. Returns per lease `scheduled <ms>` (until when), `queued` (the
    wait is over), `dead`, `cancelled`, LEASE_LOST or NOT_FOUND.
    """
    rest = [
        field
        for e in endings
        for field in (
            e.lease.id,
            e.lease.token,
            e.kind,
            e.name,
            "" if e.seconds is None else round(e.seconds * 1000),
        )
    ]
    return script("suspend").call(base, lambda reply: [word.decode() for word in reply], rest)


def signal(base: str, job_id: str, name: str, value: bytes, by: str = "") -> Call[str]:
    """Keep a signal for an unfinished job; queue the job if it waits for this signal. Returns `kept`. Raises
    NotFound, Invalid, StepsFull; WrongState, also if another value or a step of this name is kept.
    """
    return script("signal").call(base, bytes.decode, id=job_id, name=name, value=value, by=by)
