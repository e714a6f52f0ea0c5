"""Make submissions, prepare the namespace, and store jobs."""

import os
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from typing import cast

from sublet.connection.settings import Settings
from sublet.connection.topology import node_of
from sublet.connection.url import MultiServerUrl
from sublet.errors import Invalid, JobsError, NoNamespace, NotDurable, OutOfMemory, Unavailable, Unfit
from sublet.large_payloads.storage import WAYS_OUT
from sublet.model import Submission, Submitted
from sublet.options import PAYLOAD_MAX
from sublet.protocol import keys, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call, refusal
from sublet.submission import durability, partitions
from sublet.submission.admission import JOB_BYTES, Admission, estimated_bytes, read_memory
from sublet.submission.batches import batches

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LETTERS = _ALPHABET.encode() * 8
"""For `bytes.translate`: a letter per byte, so that 16 random bytes make 80 random bits."""


def new_id(partition: int) -> str:
    """Make a random job id, `<partition>-<ULID>`; the ULID begins with the time."""
    return f"{partition}-{_time_part(int(time.time() * 1000))}{os.urandom(16).translate(_LETTERS).decode()}"


@lru_cache(1)
def _time_part(ms: int) -> str:
    return "".join([_ALPHABET[ms >> shift & 31] for shift in range(45, -1, -5)])


def too_large(task: str, payload: bytes) -> Invalid:
    """Return the error for a payload above 256 KiB."""
    return Invalid(
        f"task {task}: arguments of {len(payload):,} bytes (JSON): at most {PAYLOAD_MAX:,} are allowed: {WAYS_OUT}"
    )


class SubmitOperations:
    """The operations that store new jobs, as plans: generators that yield calls to Redis.

    If `admission` is None (SUBLET_MEMORY=1), this process never refuses jobs for lack of memory.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.bases = [keys.base(settings.namespace, p) for p in range(settings.partitions)]
        self.admission = Admission(settings.memory, settings.partitions) if settings.memory < 1 else None
        self.fsync_support = durability.FsyncSupport()
        self._exists = False

    def base_of_queue(self, queue: str) -> str:
        """Return the base (key prefix, e.g. `{sublet:0}`) of a queue's partition."""
        return self.bases[keys.partition_of_queue(queue, len(self.bases))]

    def submission(
        self,
        task: str,
        payload: bytes,
        queue: str,
        rules: str,
        job_id: str | None = None,
        durability: str | None = None,
    ) -> Submission:
        """Make a job, without storing it. Its id is random, or `job_id`, with its partition's number in front.
        `rules`: options as text; `durability` None: the settings'. Raises Invalid.
        """
        if not keys.is_name(task):
            raise Invalid(f"task {task[:80]!r}: {keys.name_rule()}")
        if len(payload) > PAYLOAD_MAX and self.settings.large_payloads is None:
            raise too_large(task, payload)
        partition = keys.partition_of_queue(queue, len(self.bases))
        if job_id is None:
            return Submission(new_id(partition), queue, task, rules, payload, durability or "")
        if not isinstance(job_id, str):
            raise Invalid(f"id {str(job_id)[:80]} is a {type(job_id).__name__}: use text")
        own = job_id if job_id.startswith(f"{partition}-") else f"{partition}-{job_id}"
        if not keys.is_id(own) or own.removeprefix(f"{partition}-") in ("", ".", ".."):
            raise Invalid(f"id {job_id[:80]!r}: {keys.name_rule(keys.ID_MAX - len(f'{partition}-'))}")
        return Submission(own, queue, task, rules, payload, durability or "")

    def prepare(self) -> Plan[None]:
        """Create a missing namespace. Raises Unfit for another partition count, or a server that evicts jobs
        (unless that is allowed).
        """
        self._exists = False
        yield from self.exists()
        many = None
        if not self.settings.client_factory and "+cluster:" in self.settings.redis_url:
            many = MultiServerUrl.read(self.settings.redis_url)
        for base in self.bases if many else self.bases[:1]:
            yield from self._check_eviction(base, many)
        for base in self.bases:
            yield verbs.init(base, len(self.bases))

    def _check_eviction(self, base: str, cluster: MultiServerUrl | None) -> Plan[None]:
        seen = yield from read_memory(base)
        if seen and seen.policy.startswith("allkeys") and not self.settings.allow_eviction:
            where = f"{(yield node_of(cluster, base))}, a node of " if cluster else ""
            raise Unfit(
                f"Redis at {where}{self.settings.shown_url} is set to evict jobs when memory is short "
                f"(maxmemory-policy {seen.policy}): run CONFIG SET maxmemory-policy noeviction, "
                "or set SUBLET_ALLOW_EVICTION=1 to risk it"
            )

    def exists(self) -> Plan[bool]:
        """Whether the namespace exists; a yes is remembered. Raises Unfit for another partition count."""
        if not self._exists:
            self._exists = yield from partitions.exists(self.bases)
        return self._exists

    def straight(self, job: Submission) -> tuple[Call[bytes], int] | None:
        """Return the one call that stores this job, and its estimated bytes, to pass to `end`; None if it
        waits for durability, or the server must be asked for its memory.
        """
        if (job.durability or self.settings.durability) != "none":
            return None
        base, size = self.base_of_queue(job.queue), 0
        if self.admission is not None:
            size = JOB_BYTES + len(job.payload) * 5 // 4
            if not self.admission.admit(base, size):
                return None
        return verbs.submit_one(base, job), size

    def end(self, size: int) -> None:
        """Stop counting `size` bytes of jobs as being submitted."""
        if self.admission is not None:
            self.admission.end(size)

    def answer(self, job: Submission, word: bytes) -> Submitted | JobsError:
        """Return Submitted, or the error, for the reply to the call of `straight`."""
        answer = verbs.submitted(job, word)
        return _refusal(job, answer) if isinstance(answer, str) else answer

    def submit(self, jobs: Sequence[Submission]) -> Plan[list[Submitted]]:
        """Store any number of jobs; return the answers in order. Raises Invalid, Refused, Unavailable or
        Unconfirmed: some may be stored then, and the same call again is safe.
        """
        try:
            answers = yield from self.submit_each(jobs)
        except Unavailable as error:
            durability.raise_with_ids(error, jobs)
        for answer in answers:
            if isinstance(answer, JobsError):
                raise answer
        return cast(list[Submitted], answers)

    def submit_each(self, jobs: Sequence[Submission]) -> Plan[list[Submitted | JobsError]]:
        """Store each job, even if others are refused; return per job, in order, `Submitted` or the error.

        If one asks for durability, all wait for it. Raises Unavailable, Invalid, or Unconfirmed if the wait fails.
        """
        asked = {job.durability or self.settings.durability for job in jobs}
        waits = () if asked <= durability.NONE else durability.waits(self.settings, asked)
        if waits:
            bases = dict.fromkeys(self.base_of_queue(job.queue) for job in jobs)
            yield from self.fsync_support.check(bases, waits)
        if len(jobs) == 1:
            return (yield from self._submit_batch(self.base_of_queue(jobs[0].queue), jobs, waits))
        answers: dict[str, list[Submitted | JobsError]] = {}
        for base, batch in self._batches(jobs, durability.SCRIPTS_MAX if waits else 1):
            answers.setdefault(base, []).extend((yield from self._submit_batch(base, batch, waits)))
        if len(answers) == 1:
            return next(iter(answers.values()))
        in_order = {base: iter(own) for base, own in answers.items()}
        return [next(in_order[self.base_of_queue(job.queue)]) for job in jobs]

    def _submit_batch(
        self, base: str, batch: Sequence[Submission], waits: durability.Waits
    ) -> Plan[list[Submitted | JobsError]]:
        if self.admission is None:
            return (yield from self._send(base, batch, waits))
        size = estimated_bytes(batch)
        if self.admission.admit(base, size):
            return (yield from self._send(base, batch, waits, size))
        refused = yield from self._refused(self.admission, base, batch, size)
        if not refused:
            self.admission.begin(size)
            return (yield from self._send(base, batch, waits, size))
        scripts = [*batches(batch)]
        if len(scripts) > 1:  # there may be memory for the first of them
            answers: list[Submitted | JobsError] = []
            for part in scripts:
                answers += yield from self._submit_batch(base, part, waits)
            return answers
        admitted = [job for i, job in enumerate(batch) if i not in refused]
        stored_ones: list[Submitted | JobsError] = []
        if admitted:
            self.admission.begin(size := estimated_bytes(admitted))
            stored_ones = yield from self._send(base, admitted, waits, size)
        rest = iter(stored_ones)
        return [refused[i] if i in refused else next(rest) for i in range(len(batch))]

    def _refused(
        self, admission: Admission, base: str, batch: Sequence[Submission], size: int
    ) -> Plan[dict[int, OutOfMemory]]:
        full = yield from admission.check(base, size)
        if full is None:
            return {}
        try:
            there: list[bool] = []
            for part in batches(batch):
                there += yield verbs.known(base, part)
        except NoNamespace:
            there = [False] * len(batch)
        return {i: full for i in range(len(batch)) if not there[i]}

    def _send(
        self, base: str, batch: Sequence[Submission], waits: durability.Waits, size: int = 0
    ) -> Plan[list[Submitted | JobsError]]:
        try:
            call = durability.submit(base, batch, waits) if waits else verbs.submit(base, batch)
            words: list[Submitted | str] = yield call
        except NoNamespace:
            yield from self.prepare()
            words = yield call
        except NotDurable:
            self.fsync_support.forget(base)
            raise
        finally:
            self.end(size)
        return [
            _refusal(job, word) if isinstance(word, str) else word
            for job, word in zip(batch, words, strict=True)
        ]

    def _batches(
        self, jobs: Sequence[Submission], scripts_max: int
    ) -> Iterator[tuple[str, list[Submission]]]:
        by_base: dict[str, list[Submission]] = {}
        for job in jobs:
            by_base.setdefault(self.base_of_queue(job.queue), []).append(job)
        for base, own in by_base.items():
            scripts = batches(own)
            while some := [*islice(scripts, scripts_max)]:
                yield base, some[0] if len(some) == 1 else [job for batch in some for job in batch]


def _refusal(job: Submission, word: str) -> JobsError:
    return refusal(f"{word}; refused: job {job.id} of task {job.task}") or Invalid(word)
