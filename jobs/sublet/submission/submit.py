"""Taking jobs in, without I/O: what a submission is, whether there is room for it, and where it is stored."""

import os
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import cast

from sublet.connection.settings import Settings
from sublet.connection.topology import place
from sublet.connection.url import Many
from sublet.errors import Invalid, JobsError, NoNamespace, NotDurable, OutOfMemory, Unavailable, Unfit
from sublet.model import Submission, Submitted
from sublet.options import PAYLOAD_MAX
from sublet.protocol import keys, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import refusal
from sublet.submission import durability, partitions
from sublet.submission.admission import Admission, look, stored, weigh

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LETTERS = _ALPHABET.encode() * 8
"""For `bytes.translate`: a letter for each byte, so that 16 bytes of chance make 80 bits of it."""


def new_id(partition: int) -> str:
    """A job's id, `<partition>-<ULID>`: 48 bits of time, 80 of chance. Nothing relies on its order."""
    return f"{partition}-{_moment(int(time.time() * 1000))}{os.urandom(16).translate(_LETTERS).decode()}"


@lru_cache(1)  # the jobs of one ms share it
def _moment(ms: int) -> str:
    return "".join([_ALPHABET[ms >> shift & 31] for shift in range(45, -1, -5)])


class Intake:
    """Where a namespace's jobs live, and the plans that bring new ones there."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.bases = [keys.base(settings.namespace, p) for p in range(settings.partitions)]
        self.admission = Admission(settings.memory, settings.partitions)
        self.abilities = durability.Abilities()
        self._agreed = False

    def of_queue(self, queue: str) -> str:
        """The base where a queue's jobs live."""
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
        """A job to be, checked, with a fresh id or the caller's own (prefixed with its partition). Raises Invalid."""
        if not keys.is_name(task):
            raise Invalid(f"task {task[:130]!r}: use 1 to 128 of A-Z a-z 0-9 _ . : -")
        if len(payload) > PAYLOAD_MAX:
            raise Invalid(
                f"payload of {len(payload):,} bytes: at most {PAYLOAD_MAX:,}; keep the data elsewhere and send its place"
            )
        partition = keys.partition_of_queue(queue, len(self.bases))
        if job_id is None:
            return Submission(new_id(partition), queue, task, rules, payload, durability or "")
        own = job_id if job_id.startswith(f"{partition}-") else f"{partition}-{job_id}"
        if not keys.is_id(own):
            raise Invalid(f"id {own[:80]!r}: use 1 to 62 of A-Z a-z 0-9 _ . : -")
        return Submission(own, queue, task, rules, payload, durability or "")

    def prepare(self) -> Plan[None]:
        """Make the namespace where there is none. Raises Unfit for a server that evicts jobs, or another number of partitions."""
        self._agreed = False  # it may be another one by now
        yield from self.agree()  # if Redis is away, this says so, and nothing else is tried
        many = (
            None
            if self.settings.door or "+cluster:" not in self.settings.redis_url
            else Many.read(self.settings.redis_url)
        )
        for base in self.bases if many else self.bases[:1]:
            seen = yield from look(base)
            if seen and seen.policy.startswith("allkeys") and not self.settings.allow_eviction:
                where = f"{(yield place(many, base))}, a node of " if many else ""
                raise Unfit(
                    f"Redis at {where}{self.settings.shown_url} is set to evict jobs when memory is short "
                    f"(maxmemory-policy {seen.policy}): run CONFIG SET maxmemory-policy noeviction, "
                    "or set SUBLET_ALLOW_EVICTION=1 to risk it"
                )
        for base in self.bases:
            yield verbs.init(base, len(self.bases))

    def agree(self) -> Plan[bool]:
        """Is there a namespace? Raises Unfit where it has another number of partitions than this process was told.

        It makes none. Asked once, where there is one: its number does not change.
        """
        if not self._agreed:
            self._agreed = yield from partitions.agree(self.bases)
        return self._agreed

    def submit(self, jobs: Sequence[Submission]) -> Plan[list[Submitted]]:
        """Store jobs, as many as there are. Raises Invalid, Refused or Unconfirmed; some may be stored then; again is safe."""
        try:
            answers = yield from self.submit_each(jobs)
        except Unavailable as error:
            if (told := durability.doubt(error, jobs)) is error:
                raise
            raise told from error
        for answer in answers:
            if isinstance(answer, JobsError):
                raise answer
        return cast(list[Submitted], answers)

    def submit_each(self, jobs: Sequence[Submission]) -> Plan[list[Submitted | JobsError]]:
        """Store jobs, as many as there are, each on its own: per job what became of it, or why it was refused.

        Whatever durability any of them asks for, all wait for. Raises Unconfirmed if that is not reached.
        """
        answers: dict[str, list[Submitted | JobsError]] = {}
        waits = durability.waits(self.settings, jobs)
        if waits:
            yield from self.abilities.check(dict.fromkeys(self.of_queue(job.queue) for job in jobs), waits)
        for base, batch in self._batches(jobs, durability.ROUND if waits else 1):
            answers.setdefault(base, []).extend((yield from self._take_in(base, batch, waits)))
        if len(answers) == 1:
            return next(iter(answers.values()))
        in_turn = {base: iter(own) for base, own in answers.items()}
        return [next(in_turn[self.of_queue(job.queue)]) for job in jobs]

    def _take_in(
        self, base: str, batch: Sequence[Submission], waits: durability.Waits
    ) -> Plan[list[Submitted | JobsError]]:
        size = weigh(batch)
        full = {} if self.admission.believes(base, size) else (yield from self._admit(base, batch, size))
        if (
            full and len(scripts := [*verbs.batches(batch, _size)]) > 1
        ):  # there may be room for the first of them
            answers: list[Submitted | JobsError] = []
            for some in scripts:
                answers += yield from self._take_in(base, some, waits)
            return answers
        if not full:
            return (yield from self._store(base, batch, size, waits))
        let_in = [job for i, job in enumerate(batch) if i not in full]
        told = iter((yield from self._store(base, let_in, weigh(let_in), waits)) if let_in else ())
        return [full[i] if i in full else next(told) for i in range(len(batch))]

    def _store(
        self, base: str, batch: Sequence[Submission], size: int, waits: durability.Waits
    ) -> Plan[list[Submitted | JobsError]]:
        call = durability.submit(base, batch, waits) if waits else verbs.submit(base, batch)
        self.admission.send(size)
        try:
            words: list[Submitted | str] = yield call
        except NoNamespace:
            yield from self.prepare()
            words = yield call
        except NotDurable:
            self.abilities.forget(base)
            raise
        finally:
            self.admission.sent(size)
        return [
            _answer(job, word) if isinstance(word, str) else word
            for job, word in zip(batch, words, strict=True)
        ]

    def _admit(self, base: str, batch: Sequence[Submission], size: int) -> Plan[dict[int, OutOfMemory]]:
        """Which of these are not taken in, as the server is nearly full, and why. What is stored already takes no room."""
        full = yield from self.admission.refuse(base, size)
        if full is None:
            return {}
        there = yield from stored(base, batch)
        return {i: full for i in range(len(batch)) if not there[i]}

    def _batches(self, jobs: Sequence[Submission], most: int = 1) -> Iterable[tuple[str, list[Submission]]]:
        """What goes in one call, by base: as much as `most` scripts take."""
        if len(jobs) == 1:  # most of the time, and cheaper so
            yield self.of_queue(jobs[0].queue), [*jobs]
            return
        by_base: dict[str, list[Submission]] = {}
        for job in jobs:
            by_base.setdefault(self.of_queue(job.queue), []).append(job)
        for base, own in by_base.items():
            batches = verbs.batches(own, _size)
            while some := [*islice(batches, most)]:
                yield base, some[0] if len(some) == 1 else [job for batch in some for job in batch]


def _size(job: Submission) -> int:
    return len(job.payload)


def _answer(job: Submission, word: str) -> JobsError:
    return refusal(f"{word}; refused: job {job.id} of task {job.task}") or Invalid(word)
