"""The Redis keys of a partition, and the rules for names.

A *base*, `{sublet:0}`, is the beginning of all keys of a partition, and the key of the hash that describes
it. A function with a base returns the key of the structure that its docstring names.
"""

import hashlib
import re
import secrets
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache

from sublet.errors import Invalid

STRUCTURES = ("scheduled", "running", "completed", "dead", "cancelled")
"""Sorted sets named after the state of their jobs."""

NAME_MAX = 128
_NAME = re.compile(rf"(?!\.\.?\Z)[A-Za-z0-9_.:-]{{1,{NAME_MAX}}}")
ID_MAX = 64
"""Most characters of a job id, its partition's number included."""
HASHED = "sha256:"
"""The beginning of a deduplication key that is stored as a hash."""
_KEY = re.compile(rf"(?!{HASHED})[!-~]{{1,128}}")


is_name: Callable[[str], re.Match[str] | None] = _NAME.fullmatch
"""Whether a text is a valid name of a queue, task, worker or namespace; a match or None."""


def name_rule(most: int = NAME_MAX) -> str:
    """Return the rule for names of up to `most` characters, for errors."""
    return f"use 1 to {most} of A-Z a-z 0-9 _ . : -, but not . or .. alone"


def entry_rule() -> str:
    """Return the rule for an entry of a worker's queues."""
    return f"{name_rule()}, or a beginning of a name and * for all queues that begin so"


def check_name(kind: str, name: object, most: int = NAME_MAX) -> str:
    """Return `name` if it is valid, else raise Invalid; `kind` says in the message what it names."""
    if not isinstance(name, str) or len(name) > most or not is_name(name):
        raise Invalid(f"{kind} {str(name)[:80]!r}: {name_rule(most)}")
    return name


_PATTERN = re.compile(r"[A-Za-z0-9_.:-]{0,127}\*")
is_pattern: Callable[[str], re.Match[str] | None] = _PATTERN.fullmatch
"""Whether a text is a valid pattern of queue names, such as `tenant-*` or `*`; a match or None."""


def fits(queue: str, entry: str) -> bool:
    """Whether `entry`, a queue's name or a pattern, includes this queue."""
    return queue.startswith(entry[:-1]) if entry.endswith("*") else queue == entry


def is_id(text: str) -> bool:
    """Whether a text is a valid job id."""
    return len(text) <= ID_MAX and is_name(text) is not None


def is_key(text: str) -> bool:
    """Whether a deduplication key is stored unchanged: 1 to 128 visible ASCII characters that do not begin
    with `sha256:`.
    """
    return _KEY.fullmatch(text) is not None


def stored_key(text: str) -> str:
    """Return how a deduplication key is stored: unchanged if `is_key`, else as its SHA-256 hash."""
    if is_key(text):
        return text
    return HASHED + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def base(namespace: str, partition: int = 0) -> str:
    """Return the base of a partition: `{sublet:0}`."""
    return f"{{{namespace}:{partition}}}"


@lru_cache(1024)
def partition_of_queue(queue: str, partitions: int) -> int:
    """Return the number, from 0, of a queue's partition."""
    return zlib.crc32(queue.encode()) % partitions if partitions > 1 else 0


def partition_of_id(job_id: str) -> int:
    """Return the partition number with which a job id begins (`<partition>-…`); 0 without one."""
    head, dash, _ = job_id.partition("-")
    return int(head) if dash and head.isascii() and head.isdigit() and len(head) < 6 else 0


def job(base: str, job_id: str) -> str:
    """A job's hash."""
    return f"{base}:job:{job_id}"


def queue(base: str, name: str) -> str:
    """Sorted set of queued jobs without a group, by priority, then order of arrival."""
    return f"{base}:queue:{name}"


def grouped(base: str, queue: str) -> str:
    """Sorted set of queued jobs with a group, by priority, then order of arrival."""
    return f"{base}:grouped:{queue}"


def queued(base: str, queue: str) -> tuple[str, str]:
    """Keys of the sorted sets of a queue's queued jobs: without a group, and with one."""
    return f"{base}:queue:{queue}", f"{base}:grouped:{queue}"


def queued_by(base: str, queue: str, settings: bytes | None) -> tuple[str, ...]:
    """The keys of `queued`, without the second if these settings lack `flow=1`: then no job has a group."""
    return queued(base, queue) if b" flow=1" in (settings or b"") else (f"{base}:queue:{queue}",)


def waiting(base: str, queue: str, group: str) -> str:
    """Sorted set of a group's queued jobs, by priority, then order of arrival."""
    return f"{base}:waiting:{queue}|{group}"


def turns(base: str, queue: str) -> str:
    """Sorted set of groups that may have a turn, by priority, then fair order."""
    return f"{base}:turns:{queue}"


def full(base: str, queue: str) -> str:
    """Sorted set of groups that their own limit holds back, by priority, then fair order."""
    return f"{base}:full:{queue}"


def tokens(base: str, queue: str) -> str:
    """Sorted set of groups that wait for a token, by its moment (ms)."""
    return f"{base}:tokens:{queue}"


def places(base: str, queue: str) -> str:
    """Hash of the running jobs of a queue with limits or groups, each with its group."""
    return f"{base}:places:{queue}"


def group_places(base: str, queue: str, group: str) -> str:
    """Set of a group's running jobs that have a place."""
    return f"{base}:places:{queue}|{group}"


def bucket(base: str, queue: str) -> str:
    """String with the moment (ms) at which a queue (of a group: `<queue>|<group>`) has all its tokens again."""
    return f"{base}:tat:{queue}"


def flow(base: str, queue: str) -> str:
    """Hash of a queue's flow control: its last turn, its alarm, and cursors of its checks."""
    return f"{base}:flow:{queue}"


def groups(base: str, queue: str) -> str:
    """Hash of a queue's groups with settings of their own."""
    return f"{base}:groups:{queue}"


def structure(base: str, state: str) -> str:
    """Sorted set of the jobs in a state other than queued. Score (ms): when a job is due, its lease ends, or it may
    be deleted.
    """
    return f"{base}:{state}"


def unsettled(base: str) -> str:
    """Set of jobs and workflows (`/` in front) for which some waiting jobs must still be updated. `scheduled`
    has them, too, with `>` in front.
    """
    return f"{base}:unsettled"


def queues(base: str) -> str:
    """Hash of known queues, with their settings."""
    return f"{base}:queues"


def tags(base: str) -> str:
    """Sorted set of tags that have an index, by last use (ms)."""
    return f"{base}:tags"


def tag(base: str, name: str) -> str:
    """A tag's index: the sorted set of its newest jobs, by submission (ms)."""
    return f"{base}:tag:{name}"


def workflow(base: str, workflow_id: str) -> str:
    """A workflow's hash."""
    return f"{base}:workflow:{workflow_id}"


def members(base: str, workflow_id: str) -> str:
    """Sorted set of a workflow's jobs. Score: 0 while unfinished, 1 completed, 2 dead, 3 cancelled."""
    return f"{base}:members:{workflow_id}"


def upstream(base: str, job_id: str) -> str:
    """List of the jobs that a job waits for, or waited for, in the order of its edges."""
    return f"{base}:upstream:{job_id}"


def downstream(base: str, job_id: str) -> str:
    """List of the jobs that wait for a job's end (a caller with its step); for `/` and a workflow's id, of
    its jobs, which wait until all are stored.
    """
    return f"{base}:downstream:{job_id}"


def broken(base: str, job_id: str) -> str:
    """List of the downstream jobs that a job's failure cancelled, holds back, or did not stop."""
    return f"{base}:broken:{job_id}"


def backlog(base: str) -> str:
    """Hash with numbers of unfinished jobs: `<queue> jobs`, `<queue> bytes`, `<queue> running`."""
    return f"{base}:backlog"


def counts(base: str) -> str:
    """Hash of each queue's waits and attempts by duration, and its dead and cancelled jobs."""
    return f"{base}:counts"


def lock(base: str, queue: str, key: str) -> str:
    """String with the id of the job that holds a deduplication key."""
    return f"{base}:key:{queue}|{key}"


def new_claim_id(life: str = "") -> str:
    """Return a random claim id; `life`, which a worker with an exclusive identity gives, is put in front."""
    return f"{life}.{secrets.token_urlsafe(16)}" if life else secrets.token_urlsafe(16)


def claim(base: str, claim_id: str) -> str:
    """String with a claim's token and job ids, and `+` if repeated, kept for 10 s; `-` if withdrawn."""
    return f"{base}:claim:{claim_id}"


def wake(base: str, queue: str) -> str:
    """List on which the idle workers of a queue, or of a pattern, block. An element wakes one worker; in a
    pattern's list it is a queue's name.
    """
    return f"{base}:wake:{queue}"


def alarm(base: str) -> str:
    """String with the next due moment (ms), and the one worker that claims then."""
    return f"{base}:alarm"


def workers(base: str) -> str:
    """Sorted set of registered workers, by last heartbeat (ms)."""
    return f"{base}:workers"


def worker(base: str, name: str) -> str:
    """A worker's hash: life, description, drain flag, …."""
    return f"{base}:worker:{name}"


def catalogue(base: str) -> str:
    """Sorted set of published tasks, by last renewal (ms)."""
    return f"{base}:catalogue"


def tasks(base: str) -> str:
    """Hash of published tasks: digest and description."""
    return f"{base}:tasks"


def schedules(base: str) -> str:
    """Sorted set of schedules, by when each is next to be looked at: when it is due (ms, with jitter), when a
    delayed occurrence is tried again, or 99999999999999 for never."""
    return f"{base}:schedules"


def schedule(base: str, name: str) -> str:
    """A schedule's hash."""
    return f"{base}:schedule:{name}"


def pools(base: str) -> str:
    """Hash of pools, with their settings."""
    return f"{base}:pools"


def pool(base: str, name: str) -> str:
    """Hash of a pool's averages and counts."""
    return f"{base}:pool:{name}"


def crew(base: str, pool: str) -> str:
    """Sorted set of a pool's workers, by last heartbeat (ms). It is negative for a guest: a worker over HTTP
    without an open summons, unless the pool's invoker is `none`."""
    return f"{base}:crew:{pool}"


def owner(base: str, name: str) -> str:
    """Sorted set of an API token's live workers, by last `enlist` (ms)."""
    return f"{base}:owner:{name}"


def summons(base: str, pool: str) -> str:
    """Sorted set of a pool's open summonses, by expiry (ms)."""
    return f"{base}:summons:{pool}"


def minutes(base: str) -> str:
    """String with the history of the last 1,440 minutes."""
    return f"{base}:minutes"


def hours(base: str) -> str:
    """String with the history of the last 720 hours."""
    return f"{base}:hours"


def events(base: str) -> str:
    """Capped stream of jobs' state changes."""
    return f"{base}:events"


def audit(base: str) -> str:
    """Capped stream of the commands that people gave."""
    return f"{base}:audit"


def stream(base: str, job_id: str) -> str:
    """Capped stream of a job's chunks; also the pub/sub channel that announces them."""
    return f"{base}:stream:{job_id}"


def ended(base: str) -> str:
    """Pub/sub channel of the ids of watched jobs, and of workflows, that have just ended."""
    return f"{base}:ended"


SIZES = len(STRUCTURES) + 1


def size_commands(base: str) -> list[tuple[str, str]]:
    """Return the commands whose replies `sizes` parses."""
    return [*(("ZCARD", structure(base, name)) for name in STRUCTURES), ("SCARD", unsettled(base))]


def sizes(replies: Sequence[int]) -> dict[str, int]:
    """Return how many jobs each of `STRUCTURES` has. Members of `scheduled` that are no jobs are not counted."""
    *counts, marks = map(int, replies)
    found = dict(zip(STRUCTURES, counts, strict=True))
    return found | {"scheduled": max(0, found["scheduled"] - marks)}
