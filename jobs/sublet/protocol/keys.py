"""All Redis keys, and the rules for names. `docs/reference/protocol.md` describes the contents of each key.

A *base* is the hash tag of one partition of a namespace, `{sublet:0}`. All keys of the partition begin with it, so they are on one
node of a cluster. The base is also the key of the hash with the partition's metadata. A test compares these keys with the scripts'.
"""

import re
import zlib
from collections.abc import Callable
from functools import lru_cache

STRUCTURES = ("scheduled", "running", "completed", "dead", "cancelled")
"""The sorted sets of a partition that are named after the state of their jobs."""

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_KEY = re.compile(r"[!-~]{1,128}")


is_name: Callable[[str], re.Match[str] | None] = _NAME.fullmatch
"""Whether a text may name a queue, a task, a worker or a namespace: use the result as a truth value."""


def is_id(text: str) -> bool:
    """Whether this is a valid id of a job."""
    return _ID.fullmatch(text) is not None


def is_key(text: str) -> bool:
    """Whether this is a valid key of a job: 1 to 128 visible ASCII characters."""
    return _KEY.fullmatch(text) is not None


def base(namespace: str, partition: int = 0) -> str:
    """The base of one partition."""
    return f"{{{namespace}:{partition}}}"


@lru_cache(1024)
def partition_of_queue(queue: str, partitions: int) -> int:
    """The partition of a queue's jobs."""
    return zlib.crc32(queue.encode()) % partitions if partitions > 1 else 0


def partition_of_id(job_id: str) -> int:
    """The partition at the start of an id, `<partition>-…`; 0 if the id has none."""
    head, dash, _ = job_id.partition("-")
    return int(head) if dash and head.isascii() and head.isdigit() and len(head) < 6 else 0


def job(base: str, job_id: str) -> str:
    """The hash of one job."""
    return f"{base}:job:{job_id}"


def queue(base: str, name: str) -> str:
    """The sorted set of a queue's queued jobs, by priority and order."""
    return f"{base}:queue:{name}"


def structure(base: str, state: str) -> str:
    """The sorted set of the jobs in a state other than `queued`, by the moment at which they leave it (ms)."""
    return f"{base}:{state}"


def queues(base: str) -> str:
    """The hash of all known queues, with their settings."""
    return f"{base}:queues"


def backlog(base: str) -> str:
    """The hash of each queue's unfinished jobs: `<queue> jobs`, `<queue> bytes` and `<queue> running`."""
    return f"{base}:backlog"


def counts(base: str) -> str:
    """The hash of counts and durations of each queue: `<queue> <what> <class>`."""
    return f"{base}:counts"


def lock(base: str, queue: str, key: str) -> str:
    """The string with the id of the job that holds a key of a queue."""
    return f"{base}:key:{queue}|{key}"


def claim(base: str, claim_id: str) -> str:
    """The memo of a claim: a string with its token and job ids, kept for 10 s."""
    return f"{base}:claim:{claim_id}"


def wake(base: str, queue: str) -> str:
    """The wake-up list on which idle workers of a queue block. One element wakes one of them."""
    return f"{base}:wake:{queue}"


def alarm(base: str) -> str:
    """The string with the next due moment and the worker that will claim then."""
    return f"{base}:alarm"


def workers(base: str) -> str:
    """The sorted set of the registered workers, by their last heartbeat (ms)."""
    return f"{base}:workers"


def worker(base: str, name: str) -> str:
    """The hash of one worker: its description, and whether it was asked to drain."""
    return f"{base}:worker:{name}"


def schedules(base: str) -> str:
    """The sorted set of all schedules, by the moment at which the next occurrence is due (ms)."""
    return f"{base}:schedules"


def schedule(base: str, name: str) -> str:
    """The hash of one schedule: its plan, the task and arguments of its jobs, and its next occurrence."""
    return f"{base}:schedule:{name}"


def pools(base: str) -> str:
    """The hash of all pools, with their settings."""
    return f"{base}:pools"


def pool(base: str, name: str) -> str:
    """The hash of a pool's averages and counts."""
    return f"{base}:pool:{name}"


def crew(base: str, pool: str) -> str:
    """The sorted set of a pool's workers, by their last heartbeat (ms)."""
    return f"{base}:crew:{pool}"


def summons(base: str, pool: str) -> str:
    """The sorted set of a pool's open summonses, by the moment at which each expires (ms)."""
    return f"{base}:summons:{pool}"


def events(base: str) -> str:
    """The capped stream of every state change of every job."""
    return f"{base}:events"


def ended(base: str) -> str:
    """The channel on which the ids of watched jobs are published when they end."""
    return f"{base}:ended"
