"""What takes more than one call, without I/O: each plan yields calls, is sent their answers, and returns its own.

Transports follow plans, so async and sync clients share every decision made here: which partition, how many at a time,
what to do when a job moved on between looking and acting.
"""

import re
from collections.abc import Callable

from sublet.errors import Changed, Invalid
from sublet.model import Job, Page, Queue, Reaped, State, Stats, WorkerInfo
from sublet.operations import maintenance
from sublet.operations import workers as roster
from sublet.protocol import keys, reads, verbs
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call
from sublet.submission.submit import SubmitOperations

PAGE_EXAMINED = 1000
"""Jobs that one page of a list looks at, at most."""
LOOKS = 5
"""How often an operator's verb looks again at a job that keeps moving."""

_OFFSET = re.compile(r"[0-9]{1,15}")


class Operations(SubmitOperations):
    """Where a namespace's jobs live, and the plans over it."""

    def check_queue(self, name: str, *others: str) -> None:
        """Raise Invalid if this can name no queue and is none of the others."""
        if not keys.is_name(name) and name not in others:
            raise Invalid(f"queue {name[:80]!r}: use 1 to 128 of A-Z a-z 0-9 _ . : -")

    def base_of_job(self, job_id: str) -> str:
        """The base where a job lives. Raises Invalid for an id that cannot be."""
        if not keys.is_id(job_id):
            raise Invalid(f"id {job_id[:80]!r}: use 1 to 64 of A-Z a-z 0-9 _ . : -")
        return self.bases[keys.partition_of_id(job_id) % len(self.bases)]

    def get(self, job_id: str) -> Plan[Job]:
        """One job. Raises NotFound."""
        job: Job = yield reads.get(self.base_of_job(job_id), job_id)
        return job

    def cancel(self, job_id: str, revision: int | None = None) -> Plan[str]:
        """`cancelled`, or `requested` when the job runs. Raises WrongState, NotFound, or Changed if a revision was given."""
        return self._order(verbs.cancel, job_id, revision)

    def retry(self, job_id: str, revision: int | None = None) -> Plan[str]:
        """Revive a dead or cancelled job. Raises WrongState, KeyTaken, NotFound, or Changed if a revision was given."""
        return self._order(verbs.retry, job_id, revision)

    def promote(self, job_id: str, revision: int | None = None) -> Plan[str]:
        """Queue a scheduled job now. Raises WrongState, NotFound, or Changed if a revision was given."""
        return self._order(verbs.promote, job_id, revision)

    def _order(
        self, verb: Callable[[str, str, int], Call[str]], job_id: str, revision: int | None
    ) -> Plan[str]:
        """Carry out an operator's verb on the job as seen; without a revision of the caller's, look, and look again."""
        base, looks = self.base_of_job(job_id), 1 if revision is not None else LOOKS
        while True:
            seen = revision if revision is not None else (yield reads.get(base, job_id)).revision
            try:
                answer: str = yield verb(base, job_id, seen)
                return answer
            except Changed:
                looks -= 1
                if not looks:
                    raise

    def pause(self, queue: str) -> Plan[str]:
        """Hand out no more jobs of a queue. `paused`. Raises Invalid for a name that cannot be."""
        return self._arrange(queue, lambda base, seen: verbs.pause(base, queue, seen.revision))

    def resume(self, queue: str) -> Plan[str]:
        """Hand out the jobs of a paused queue again. `resumed`. Raises Invalid for a name that cannot be."""
        return self._arrange(queue, lambda base, seen: verbs.resume(base, queue, seen.revision))

    def configure(self, queue: str, **limits: int | None) -> Plan[str]:
        """Set limits: `jobs` and `bytes` of a queue, `completed`, `dead`, `cancelled` of all partitions (`*`); None lifts one.

        What is not named stays. Answers all that hold now, as words. Raises Invalid for a name or limit that cannot be.
        """
        for name, value in limits.items():
            if value is not None and not 0 <= value < 10**14:
                raise Invalid(f"{name}={value}: a limit is 0 to {10**14 - 1:,}")

        def change(base: str, seen: Queue) -> Call[str]:
            held = {name: value for name, value in {**seen.limits, **limits}.items() if value is not None}
            return verbs.configure(
                base, queue, seen.revision, " ".join(f"{name}={value}" for name, value in held.items())
            )

        return self._arrange(queue, change)

    def _arrange(self, queue: str, change: Callable[[str, Queue], Call[str]]) -> Plan[str]:
        """Look at a queue's settings, change them as seen, and look again if somebody else was faster."""
        self.check_queue(queue, "*")
        answer = ""
        for base in self.bases if queue == "*" else [self.base_of_queue(queue)]:
            for looks in range(LOOKS, 0, -1):
                (seen,) = yield reads.describe(base, [queue])
                try:
                    answer = yield change(base, seen)
                    break
                except Changed:
                    if looks == 1:
                        raise
        return answer

    def reap(self, by: str) -> Plan[Reaped]:
        """Do what time has decided, in every partition. Schedules and pools that are to be seen to are only told of."""
        return maintenance.reap(self.bases, by)

    def fire(self, by: str) -> Plan[int]:
        """Give the occurrences of schedules that have come their jobs: how many there are. Any number may do so at once.

        Raises OutOfMemory where a server has no room for them: the occurrences wait.
        """
        return maintenance.fire(self.bases, by, self.admission)

    def see_to(self, by: str) -> Plan[None]:
        """Do a share of the upkeep where something is overdue; where nothing is, nothing is written."""
        return maintenance.see_to(self.bases, by, self.admission)

    def prune(self) -> Plan[tuple[int, bool]]:
        """Forget what is past its time, in every partition: jobs forgotten, whether there may be more."""
        return maintenance.prune(self.bases)

    def workers(self) -> Plan[list[WorkerInfo]]:
        """All workers on the register, with what they hold; the latest heard of first."""
        return roster.workers(self.bases)

    def drain(self, worker: str) -> Plan[str]:
        """Ask a worker to finish and go: it hears of it at its next sign of life. Raises Invalid or NotFound."""
        return roster.drain(self.bases, worker)

    def queue(self, name: str) -> Plan[Queue]:
        """One queue, known or not; `*` has the settings of the whole namespace."""
        self.check_queue(name, "*")
        found: list[Queue] = yield reads.describe(self.base_of_queue(name), [name])
        return found[0]

    def queues(self, after: str = "", most: int | None = None) -> Plan[list[Queue]]:
        """The queues that ever had a job or a setting, by name: those that come after a name, all or at most so many."""
        found: list[Queue] = []
        for base in self.bases:
            names = [name for name in (yield reads.queues(base)) if name > after][:most]
            for i in range(0, len(names), PAGE_EXAMINED):
                found += yield reads.describe(base, names[i : i + PAGE_EXAMINED])
        return sorted(found, key=lambda queue: queue.name)[:most]

    def stats(self) -> Plan[list[Stats]]:
        """Each partition in numbers."""
        found: list[Stats] = []
        for base in self.bases:
            names = yield reads.queues(base)
            found.append((yield reads.stats(base, names)))
        return found

    def list_jobs(
        self,
        state: State | None = None,
        queue: str | None = None,
        task: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Plan[Page]:
        """Jobs by state, queue and task; looks at 1,000 a page at most. Raises Invalid for a cursor from elsewhere."""
        if queue is not None:
            self.check_queue(queue)
        shelves = yield from self._shelves(state, queue)
        at, offset = _place(shelves, cursor)
        found: list[Job] = []
        examined = 0
        while at < len(shelves) and len(found) < limit and examined < PAGE_EXAMINED:
            base, structure = shelves[at]
            ids = yield reads.ids(base, structure, offset, min(100, PAGE_EXAMINED - examined))
            jobs = {job.id: job for job in ((yield reads.summaries(base, ids)) if ids else ())}
            for job_id in ids:
                job = jobs.get(job_id)
                if job and queue in (None, job.queue) and task in (None, job.task):
                    found.append(job)
                examined, offset = examined + 1, offset + 1
                if len(found) == limit:
                    break
            if not ids:
                at, offset = at + 1, 0
        more = at < len(shelves)
        return Page(jobs=tuple(found), cursor=f"{shelves[at][0]}/{shelves[at][1]}/{offset}" if more else None)

    def _shelves(self, state: State | None, queue: str | None) -> Plan[list[tuple[str, str]]]:
        """The structures that may hold such jobs: (base, structure), in the order in which they are listed."""
        shelves: list[tuple[str, str]] = []
        for wanted in [state] if state else list(State):
            for base in self.bases if queue is None else [self.base_of_queue(queue)]:
                if wanted is not State.QUEUED:
                    shelves.append((base, wanted.value))
                else:
                    names = [queue] if queue else (yield reads.queues(base))
                    shelves += [(base, f"queue:{name}") for name in names]
        return shelves


def _place(shelves: list[tuple[str, str]], cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    base, _, rest = cursor.partition("/")
    structure, _, offset = rest.rpartition("/")
    if (base, structure) not in shelves or not _OFFSET.fullmatch(offset):
        raise Invalid(f"cursor {cursor[:80]!r}: use the one of the page before, with the same filters")
    return shelves.index((base, structure)), int(offset)
