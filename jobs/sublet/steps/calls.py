"""The calls that keep, read and await the steps of a job."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sublet.errors import Invalid
from sublet.model import Lease, Suspension
from sublet.protocol.scripts import Call, script

STEP_MAX = 64 * 1024


class Kept(NamedTuple):
    """A kept step: when (ms since 1970), by what (`step`, `signal`, `sleep`, `timeout`), and its value (JSON
    or empty).
    """

    at_ms: int
    kind: str
    value: bytes


def kept(stored: bytes) -> Kept:
    """Parse a stored step."""
    head, _, value = stored.partition(b"\n")
    at, _, kind = head.decode().partition(" ")
    return Kept(int(at), kind, value)


def step(base: str, lease: Lease, steps: Mapping[str, bytes]) -> Call[dict[str, Kept]]:
    """Keep up to 100 steps of a running job. Returns those kept before, which stay; if `steps` is empty, all
    kept ones. Raises LeaseLost, NotFound, StepsFull, Invalid.
    """

    def read(reply: list[bytes]) -> dict[str, Kept]:
        if not steps:
            return {reply[i].decode(): kept(reply[i + 1]) for i in range(0, len(reply), 2)}
        return {name: kept(word) for name, word in zip(steps, reply, strict=True) if word != b"kept"}

    rest = [word for step in steps.items() for word in step]
    return script("step").call(base, read, rest, id=lease.id, token=lease.token)


def value_of(value: Any) -> bytes:
    """Return a signal's value as JSON. Raises Invalid."""
    try:
        encoded = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"signal: the value cannot be written as JSON: {error}") from None
    if len(encoded) > STEP_MAX:
        raise Invalid(
            f"signal of {len(encoded):,} bytes: the limit is {STEP_MAX:,}: send the address of the data"
        )
    return encoded


def suspend(base: str, endings: Sequence[Suspension]) -> Call[list[str]]:
    """End up to 100 attempts whose tasks wait. Returns per lease `scheduled <ms>`, `queued`, `dead`, `cancelled`,
    LEASE_LOST or NOT_FOUND.
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
    """Keep a signal for an unfinished job; queue the job if it waits for this signal. Returns `kept`."""
    return script("signal").call(base, bytes.decode, id=job_id, name=name, value=value, by=by)
