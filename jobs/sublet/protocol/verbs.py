"""One function per verb: each returns the call, with the reader of its reply.

"Returns" names the reply. `revision`: the one that the caller read; another raises Changed. `by`: a
person's name for the audit, or empty. `order`: the id of an order for many jobs."""

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from sublet.model import (
    Beat,
    Card,
    Claimed,
    Completion,
    Description,
    Ending,
    Failure,
    Lease,
    LostJob,
    Note,
    Reaped,
    Release,
    Standing,
    State,
    Submission,
    Submitted,
)
from sublet.protocol.scripts import Call, script

BATCH = 200
"""Most items in one call of most verbs."""
BYTES = 512 * 1024
"""Most bytes of payloads, results or details in a call of several items."""
CLAIM_MAX = 100
QUEUES_MAX = 32
"""Most queues and patterns that one claim names."""
PATTERNS_MAX = 16
"""Most patterns among one worker's queues."""
PUBLISH_MAX = 100
SETTLE_MAX = 100
"""Most leases in one release, suspend, note, spend, reap, reconcile."""
COMPLETE_MAX = 64
FAIL_MAX = 50

Item = TypeVar("Item")
_only: Callable[[list[bytes]], bytes] = itemgetter(0)


def batches(items: Sequence[Item], weigh: Callable[[Item], int], most: int = BATCH) -> Iterator[list[Item]]:
    """Split items, in order, into lists of up to `most` items and 512 KiB. A larger item is alone."""
    batch: list[Item] = []
    size = 0
    for item in items:
        weight = weigh(item)
        if batch and (len(batch) == most or size + weight > BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += weight
    if batch:
        yield batch


def weight(item: Beat | Ending | Note) -> int:
    """Return an item's approximate bytes; 0 for a heartbeat, release or suspension."""
    if isinstance(item, Completion):
        return len(item.result)
    if isinstance(item, Note):
        return len(item.checkpoint) + len(item.log)
    return len(item.message) + len(item.detail) if isinstance(item, Failure) else 0


def ms(seconds: float) -> int:
    """Convert seconds to whole milliseconds."""
    return round(seconds * 1000)


def init(base: str, partitions: int = 1) -> Call[str]:
    """Create the metadata of a missing partition. Returns the version of its layout."""
    return script("init").call(base, bytes.decode, partitions=partitions)


def submit(base: str, jobs: Sequence[Submission]) -> Call[list[Submitted | str]]:
    """Store up to 200 jobs. Returns per job the answer, or its refusal as text (`INVALID …`)."""

    def read(reply: list[bytes]) -> list[Submitted | str]:
        return [submitted(job, word) for job, word in zip(jobs, reply, strict=True)]

    own = script("submit")  # called too often for `Script.call`
    fields = [field for job in jobs for field in job[:5]]
    return Call((("EVALSHA", own.sha, 1, base, *fields),), read, own.text)


def submit_one(base: str, job: Submission) -> Call[bytes]:
    """Store one job. Returns what `submitted` parses."""
    own = script("submit")
    return Call((("EVALSHA", own.sha, 1, base, *job[:5]),), _only, own.text)


def known(base: str, jobs: Sequence[Submission]) -> Call[list[bool]]:
    """Returns per job, up to 200, whether its id or key is in use; stores nothing."""
    asked = [job._replace(rules=f"{job.rules} known=1".lstrip(), payload=b"") for job in jobs]
    call = submit(base, asked)
    return Call(call.commands, lambda reply: [word.startswith(b"exists ") for word in reply], call.text)


def submitted(job: Submission, word: bytes) -> Submitted | str:
    """Parse the reply to `submit_one`: the answer, or the refusal as text."""
    if word == b"created":
        return Submitted(job.id, True)
    if word.startswith((b"exists ", b"holder ")):
        return Submitted(word[7:].decode(), False)
    if word.startswith(b"replaced "):
        return Submitted(word[9:].decode(), False, True)
    return word.decode()


def claim(
    base: str, *, claim_id: str, worker: str, lease: float, n: int, queues: Sequence[str]
) -> Call[Claimed]:
    """Do some maintenance; lease up to `n` (≤ 100) jobs of up to 32 queues, asked in this order, for `lease`
    seconds (at most 5 s after a timeout). For 10 s, a repeat returns those of the first call that are still held."""
    return script("claim").call(
        base, _claimed, queues, claim_id=claim_id, worker=worker, lease=ms(lease), n=n
    )


def is_wide(entries: Sequence[str]) -> bool:
    """Whether a worker's queues are too many for one claim to name (over 32), or have patterns."""
    return len(entries) > QUEUES_MAX or any(entry.endswith("*") for entry in entries)


def _claimed(reply: list[Any]) -> Claimed:
    token, wait = reply[0].decode(), int(reply[1]) / 1000
    come, dead = reply[2], tuple[LostJob, ...]()
    if isinstance(come, bytes):
        come, *lines = come.decode().split("\n")
        come, dead = int(come), tuple(_lost_job(*line.split(" ")) for line in lines)
    return Claimed(
        [_lease(token, *reply[i : i + 6]) for i in range(3, len(reply), 6)], wait, bool(come), dead
    )


def _lost_job(job_id: str, attempt: str, queue: str, task: str, code: str) -> LostJob:
    return LostJob(job_id, int(attempt), queue, task, code)


def _lease(
    token: str, job_id: bytes, attempt: Any, expires: Any, spec: bytes, payload: bytes, before: bytes
) -> Lease:
    header, _, inline = spec.partition(b"\n")
    queue, task, *rules = header.decode("utf-8", "replace").split(" ")
    timeout, trace, occurrence, tries, tags, stall = _rules(rules)
    recovered, left, lost, checkpoint = "", tries - 1, False, b""
    if before:
        words, _, checkpoint = before.partition(b"\n")
        recovered, text, *flags = words.decode("utf-8", "replace").split(" ")
        left, lost = int(text), bool(flags)
    return Lease(
        job_id.decode(), token, int(attempt), int(expires), queue, task, timeout, inline or payload, recovered, trace,
        checkpoint, occurrence, tries, left, tags, lost, stall,
    )  # fmt: skip


def _rules(rules: list[str]) -> tuple[int | None, str, int | None, int, tuple[str, ...], int | None]:
    timeout: int | None = 300_000
    stall: int | None = None
    trace, at, scheduled, tries = "", None, False, 3
    tags: tuple[str, ...] = ()
    for rule in rules[1:]:
        if rule == "timeout=none":
            timeout = None
        elif rule.startswith("timeout=") and rule[8:].isdecimal():
            timeout = int(rule[8:])
        elif rule.startswith("trace="):
            trace = rule[6:]
        elif rule.startswith("at=") and rule[3:].isdecimal():
            at = int(rule[3:])
        elif rule.startswith("schedule="):
            scheduled = True
        elif rule.startswith("tries=") and rule[6:].isdecimal():
            tries = int(rule[6:])
        elif rule.startswith("tags="):
            tags = tuple(rule[5:].split(","))
        elif rule.startswith("stall=") and rule[6:].isdecimal():
            stall = int(rule[6:])
    return timeout, trace, at if scheduled else None, tries, tags, stall


def heartbeat(base: str, beats: Sequence[Beat], *, lease: float) -> Call[list[int | str]]:
    """Extend up to 200 leases; store progress. Returns per lease its new end (ms), LEASE_LOST, NOT_FOUND or
    CANCEL_REQUESTED (also extended)."""
    rest = [field for beat in beats for field in (beat.lease.id, beat.lease.token, beat.progress)]
    return script("heartbeat").call(base, _beaten, rest, lease=ms(lease))


def _beaten(reply: list[Any]) -> list[int | str]:
    return [int(word) if isinstance(word, int) or word.isdigit() else word.decode() for word in reply]


def complete(base: str, endings: Sequence[Completion]) -> Call[list[str]]:
    """Complete up to 64 jobs. Returns per lease `completed`, LEASE_LOST or NOT_FOUND."""
    return script("complete").call(
        base, _words, [f for e in endings for f in (e.lease.id, e.lease.token, e.result)]
    )


def fail(base: str, endings: Sequence[Failure]) -> Call[list[str]]:
    """Record up to 50 failures. Returns per lease `scheduled <ms>`, `dead`, `cancelled`, LEASE_LOST, NOT_FOUND."""
    rest = [
        field
        for e in endings
        for field in (
            e.lease.id,
            e.lease.token,
            e.code,
            _cut(e.message, 1024),
            _cut(e.detail, 4096),
            "yes" if e.again else "no",
        )
    ]
    return script("fail").call(base, _words, rest)


def release(base: str, endings: Sequence[Release]) -> Call[list[str]]:
    """Give up to 100 jobs back, usually without using a try. Returns per lease `queued`, `scheduled <ms>`,
    `dead`, `cancelled`, LEASE_LOST or NOT_FOUND."""
    rest = [
        f for e in endings for f in (e.lease.id, e.lease.token, ms(e.delay), e.code, _cut(e.reason, 1024))
    ]
    return script("release").call(base, _words, rest)


def _cut(text: str, limit: int) -> bytes:
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore").encode()


def _words(reply: list[bytes]) -> list[str]:
    return [word.decode() for word in reply]


def note(base: str, notes: Sequence[Note]) -> Call[list[str]]:
    """Store up to 100 checkpoints and logs. Returns per lease `noted`, LEASE_LOST or NOT_FOUND."""
    return script("note").call(
        base, _words, [f for n in notes for f in (n.lease.id, n.lease.token, n.checkpoint, n.log)]
    )


def enlist(base: str, card: Card) -> Call[str]:
    """Register a worker, or renew its registration. Returns `work`, or `drain` if it should drain."""
    return script("enlist").call(base, bytes.decode, **card._asdict())


def drain(base: str, worker: str, life: str, by: str = "") -> Call[str]:
    """Ask a worker to drain. Returns `drain`. Raises NotFound; Changed if it has another `life`."""
    return script("drain").call(base, bytes.decode, worker=worker, life=life, by=by)


def reconcile(base: str, worker: str, life: str, leases: Sequence[tuple[str, int]]) -> Call[list[str]]:
    """End up to 100 leases, (job, attempt) each, of a worker that is gone, as if they had expired; returns per
    lease `queued`, `scheduled <ms>`, `dead`, `cancelled`, LEASE_LOST or NOT_FOUND. Without leases, delete its
    registration. With another life registered, nothing changes: LEASE_LOST or NOT_FOUND for each."""
    return script("reconcile").call(
        base, _words, [f for lease in leases for f in lease], worker=worker, life=life
    )


def publish(base: str, tasks: Sequence[Description], *, starting: bool) -> Call[list[str]]:
    """Publish or renew up to 100 tasks. Unless `starting`, another description of a task that was renewed lately
    stays. Returns per task `written`, `kept` (as it was), or `full` (refused)."""
    rest = [field for task in tasks for field in task]
    return script("publish").call(base, _words, rest, starting="yes" if starting else "no")


def sample(base: str, queued: int | str = "", due: int | str = "") -> Call[tuple[str, float]]:
    """Once a minute, record numbers for the history: `queued` jobs, and when the first became `due` (ms).
    Returns `sampled`, `kept` (this minute has a sample) or `count` (call again with both numbers); and the
    seconds until the next minute.
    """

    def read(reply: list[Any]) -> tuple[str, float]:
        return reply[0].decode(), 60 - int(reply[1]) / 1000 % 60

    return script("sample").call(base, read, queued=queued, due=due)


def cancel(base: str, job_id: str, revision: int, by: str = "", how: str = "", order: str = "") -> Call[str]:
    """Cancel a job, with `how="all"` also jobs of its workflow that would run in spite of that. Returns
    `cancelled`, or `requested` if it runs.
    """
    return script("cancel").call(
        base, bytes.decode, id=job_id, revision=revision, by=by, how=how, order=order
    )


def retry(base: str, job_id: str, revision: int, by: str = "", how: str = "", order: str = "") -> Call[str]:
    """Queue a dead or cancelled job with all its tries (`how="anew"`: without its steps). Returns `queued`,
    `scheduled` if it waits for jobs, or with `how="all"` `cancelled` until a failed upstream is retried.
    """
    return script("retry").call(base, bytes.decode, id=job_id, revision=revision, by=by, how=how, order=order)


def promote(base: str, job_id: str, revision: int, by: str = "", order: str = "") -> Call[str]:
    """Queue a scheduled job now, unless it waits for a signal. Returns `queued`."""
    return script("promote").call(base, bytes.decode, id=job_id, revision=revision, by=by, order=order)


def reschedule(base: str, job_id: str, revision: int, rules: str, by: str = "") -> Call[str]:
    """Move a waiting job, change its priority, or both (`priority=5 at=MS`). Returns `queued` or `scheduled <ms>`."""
    return script("reschedule").call(base, bytes.decode, id=job_id, revision=revision, rules=rules, by=by)


def erase(base: str, job_id: str, revision: int, by: str = "") -> Call[str]:
    """Delete a finished job, not its large payloads. Returns `erased`."""
    return script("erase").call(base, bytes.decode, id=job_id, revision=revision, by=by)


def pause(base: str, queue: str, revision: int, by: str = "") -> Call[str]:
    """Stop claims of a queue. Returns `paused`."""
    return script("pause").call(base, bytes.decode, queue=queue, revision=revision, by=by)


def resume(base: str, queue: str, revision: int, by: str = "") -> Call[str]:
    """Allow claims of a queue again. Returns `resumed`."""
    return script("resume").call(base, bytes.decode, queue=queue, revision=revision, by=by)


def configure(base: str, queue: str, revision: int, settings: str, by: str = "") -> Call[str]:
    """Replace all settings of a queue (`jobs=N` …), or of the partition, `*` (`queues=N` …). Returns them
    as stored.
    """
    return script("configure").call(
        base, bytes.decode, queue=queue, revision=revision, settings=settings, by=by
    )


def audit(base: str, order: str, by: str, verb: str, what: str, queue: str, outcome: str) -> Call[str]:
    """Write a command of several calls to the audit; the same `order` replaces its entry. Returns `recorded`."""
    return script("audit").call(
        base, bytes.decode, order=order, by=by, verb=verb, what=what, queue=queue, outcome=outcome
    )


def reap(base: str, *, limit: int, by: str) -> Call[Reaped]:
    """End expired leases and queue due jobs, up to `limit` (≤ 100) in all."""

    def read(reply: list[Any]) -> Reaped:
        ended, queued, more, come, pools, partitions = map(int, reply)
        return Reaped(ended, queued, bool(more), bool(come), pools, partitions)

    return script("reap").call(base, read, limit=limit, by=by)


def prune(base: str, *, limit: int) -> Call[tuple[int, bool]]:
    """Delete up to `limit` (≤ 200) finished jobs that are past their retention or too many, and empty queues
    that are too many. Returns how many jobs, and whether more may remain.
    """
    return script("prune").call(base, lambda reply: (int(reply[0]), bool(reply[1])), limit=limit)


def repair(base: str, how: str, seen: Sequence[tuple[str, str]]) -> Call[list[str]]:
    """Check up to 100 things, each as (where it was found, id or name). `how`: `look`, or `mend` to repair them.
    Returns `sound` or the faults of each.
    """
    return script("repair").call(base, _words, [field for each in seen for field in each], how=how)


def recount(base: str, how: str, stamp: str, queues: Sequence[tuple[str, int, int, int]]) -> Call[list[str]]:
    """Compare the stored backlogs of up to 100 queues with these counts (queue, jobs, bytes, running). `how`:
    `look`; `mend` corrects them; `finish`: as `mend`, for the last queues. `stamp`: the last event's id
    before the count. Returns per queue `sound`, or `recounted` and the old numbers. Raises Changed if a job
    has moved since.
    """
    return script("recount").call(
        base, _words, [field for each in queues for field in each], how=how, stamp=stamp
    )


def drop(base: str, submitted: int, names: Sequence[str | bytes] = ()) -> Call[str]:
    """Make every verb refuse in this partition; returns `dropped`. With `names`, delete up to 1,000 keys
    instead; returns `deleted <n>`. Raises Changed if the partition was created again (without `names`: its
    total of submits is below `submitted`).
    """
    return script("drop").call(base, bytes.decode, names, submitted=submitted)


def watch(base: str, job_ids: Sequence[str]) -> Call[list[Standing]]:
    """Have the ids of up to 200 jobs published on the channel `keys.ended(base)` when they end. Returns their
    standings; a workflow's result has its numbers of completed, dead and cancelled jobs.
    """

    def read(reply: list[bytes]) -> list[Standing]:
        return [_standing(*reply[i : i + 3]) for i in range(0, len(reply), 3)]

    return script("watch").call(base, read, job_ids)


def _standing(state: bytes, result: bytes, story: bytes) -> Standing:
    known = None if state == b"NOT_FOUND" else State(state.decode())
    return Standing(known, result, story.decode("utf-8", "replace"))
