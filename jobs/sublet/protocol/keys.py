"""Every Redis key, spelled once. A test holds this equal to what the scripts spell; `docs/reference/protocol.md` says what is in each.

A *base* is one partition of a namespace, `{sublet:0}`: a hash tag, so that all its keys live on one node, and itself the
key of the partition's hash.
"""

import re
import zlib
from collections.abc import Callable
from functools import lru_cache

STRUCTURES = ("scheduled", "running", "completed", "dead", "cancelled")
"""The sorted sets that are one per partition and named after the state of the jobs in them."""

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_KEY = re.compile(r"[!-~]{1,128}")


is_name: Callable[[str], re.Match[str] | None] = _NAME.fullmatch
"""Whether a text may name a queue, a task, a worker or a namespace: use the result as a truth value."""


def is_id(text: str) -> bool:
    """Is this fit to be a job's id?"""
    return _ID.fullmatch(text) is not None


def is_key(text: str) -> bool:
    """Is this fit to be a job's key: 1 to 128 visible ASCII characters?"""
    return _KEY.fullmatch(text) is not None


def base(namespace: str, partition: int = 0) -> str:
    """The base of one partition: its hash tag, and the key of its hash."""
    return f"{{{namespace}:{partition}}}"


@lru_cache(1024)
def partition_of_queue(queue: str, partitions: int) -> int:
    """The partition where a queue's jobs live."""
    return zlib.crc32(queue.encode()) % partitions if partitions > 1 else 0


def partition_of_id(job_id: str) -> int:
    """The partition named at the head of an id, `<partition>-…`; 0 where none is."""
    head, dash, _ = job_id.partition("-")
    return int(head) if dash and head.isascii() and head.isdigit() and len(head) < 6 else 0


def job(base: str, job_id: str) -> str:
    """The hash of one job."""
    return f"{base}:job:{job_id}"


def queue(base: str, name: str) -> str:
    """The sorted set of a queue's waiting jobs, by rank."""
    return f"{base}:queue:{name}"


def structure(base: str, state: str) -> str:
    """The sorted set of the jobs in a state other than `queued`, by the moment that matters to it (ms)."""
    return f"{base}:{state}"


def queues(base: str) -> str:
    """The hash of all queues that ever had a job or a setting, with their settings."""
    return f"{base}:queues"


def backlog(base: str) -> str:
    """The hash of what each queue has waiting and running: `<queue> jobs`, `<queue> bytes` and `<queue> running`."""
    return f"{base}:backlog"


def counts(base: str) -> str:
    """The hash of what happened in each queue, and how long it took: `<queue> <what> <class>`."""
    return f"{base}:counts"


def lock(base: str, queue: str, key: str) -> str:
    """The string that names the job which holds a key of a queue."""
    return f"{base}:key:{queue}|{key}"


def claim(base: str, claim_id: str) -> str:
    """The string that remembers, for 10 s, what a claim was given."""
    return f"{base}:claim:{claim_id}"


def wake(base: str, queue: str) -> str:
    """The list on which idle workers of a queue block; one marker wakes one of them."""
    return f"{base}:wake:{queue}"


def alarm(base: str) -> str:
    """The string that says who will see to the next moment at which something falls due."""
    return f"{base}:alarm"


def workers(base: str) -> str:
    """The sorted set of the workers that have enlisted, by the moment they were last heard of (ms)."""
    return f"{base}:workers"


def worker(base: str, name: str) -> str:
    """The hash of one worker: what it says of itself, and whether it was asked to go."""
    return f"{base}:worker:{name}"


def schedules(base: str) -> str:
    """The sorted set of all schedules, by the moment at which the next occurrence of each is to be fired (ms)."""
    return f"{base}:schedules"


def schedule(base: str, name: str) -> str:
    """The hash of one schedule: its plan, what its jobs are, and its next occurrence."""
    return f"{base}:schedule:{name}"


def pools(base: str) -> str:
    """The hash of all pools, with their settings."""
    return f"{base}:pools"


def pool(base: str, name: str) -> str:
    """The hash of what was seen of a pool: averages, and counts."""
    return f"{base}:pool:{name}"


def crew(base: str, pool: str) -> str:
    """The sorted set of a pool's workers, by the moment each was last heard of (ms)."""
    return f"{base}:crew:{pool}"


def summons(base: str, pool: str) -> str:
    """The sorted set of the workers that a pool waits for, by the moment until which it does (ms)."""
    return f"{base}:summons:{pool}"


def events(base: str) -> str:
    """The capped stream of every move of every job."""
    return f"{base}:events"


def ended(base: str) -> str:
    """The channel on which the ids of watched jobs are published when they end."""
    return f"{base}:ended"
