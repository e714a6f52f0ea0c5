"""The operations of a namespace."""

import re
import time
from collections.abc import Callable, Container, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from sublet.connection.settings import Settings
from sublet.errors import Changed, Invalid, NotFound
from sublet.model import Job, JobSummary, Page, Queue, Reaped, State, Stats, WorkerInfo
from sublet.operations import job_list, maintenance, workers
from sublet.options import Seconds, check_group, waiting_rules
from sublet.protocol import keys, queue_names, reads, verbs
from sublet.protocol.person import person
from sublet.protocol.plan import Plan
from sublet.protocol.scripts import Call
from sublet.steps import calls as steps
from sublet.submission.submit import SubmitOperations
from sublet.workflows import members

if TYPE_CHECKING:
    from sublet.operations.groups import Groups
    from sublet.operations.history import History, Span
    from sublet.operations.orders.audit import AuditPage
    from sublet.operations.orders.bulk import OrderPage, Selection
    from sublet.operations.orders.erase import Erased

LOOKS = 5

_NUMBERED = re.compile(r"[0-9]{1,5}-")
_CURSOR = re.compile(r"([^/]+)/([0-9]{1,20})/([A-Za-z0-9_.:-]{0,128})")


class Operations(SubmitOperations):
    """All operations on jobs, queues and workers. Most methods return a plan, which a client runs: a
    generator that yields calls to Redis.

    All raise Invalid for an invalid argument. Plans for one job raise NotFound if there is none, WrongState
    if its state forbids the change, Changed if it has another revision than `revision` (None: any).
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.unread: dict[str, dict[str, str]] = {}
        """Schedules that this version cannot read, as `sublet.schedules.firing.Unread`."""
        self.sample_at = 0.0
        """When `sample` next asks Redis, by the monotonic clock."""

    def check_queue(self, name: str, *others: str) -> None:
        """Raise Invalid unless `name` is a valid name of a queue, or one of `others`."""
        if keys.is_pattern(name) and name not in others:
            raise Invalid(
                f"queue {name!r}: this takes no pattern: name each queue; `sublet queues` lists them"
            )
        if name not in others:
            keys.check_name("queue", name)

    def base_of_job(self, job_id: str) -> str:
        """Return the key prefix of the partition that a job's id names."""
        keys.check_name("id", job_id, keys.ID_MAX)
        return self.bases[keys.partition_of_id(job_id) % len(self.bases)]

    def full_id(self, job_id: str) -> str:
        """Return the whole id of a job that was submitted with its own id: `0-order-7` for `order-7`. With several
        partitions, return `job_id`; raises NotFound unless it begins with a number.
        """
        if len(self.bases) == 1:
            full = job_id if job_id.startswith("0-") else f"0-{job_id}"
            return full if keys.is_id(full) else job_id
        if _NUMBERED.match(job_id):
            return job_id
        raise NotFound(
            f"no job {job_id}: an id begins with the number of its partition, e.g. 0-{job_id}: use the one that the submit returned"
        )

    def get(self, job_id: str) -> Plan[Job]:
        """Return a job with its attempts and `waits_for`. Raises Unfit for malformed data."""
        base = self.base_of_job(job_id)
        job: Job = yield reads.get(base, job_id)
        from sublet.operations import groups  # slow to load

        (found,) = yield from groups.with_reasons(base, [job])
        return found

    def cancel(self, job_id: str, revision: int | None = None) -> Plan[str]:
        """Cancel an unfinished job. Returns `cancelled`, or `requested` if it runs."""
        return self._order(verbs.cancel, job_id, revision)

    def retry(self, job_id: str, revision: int | None = None, *, anew: bool = False) -> Plan[str]:
        """Queue a dead or cancelled job with all its tries; `anew`: without its kept steps. Returns `queued`,
        or `scheduled` if it waits for other jobs. Raises KeyTaken if another job has its key by now.
        """
        return self._order(partial(verbs.retry, how="anew" if anew else ""), job_id, revision)

    def signal(self, job_id: str, name: str, value: bytes) -> Plan[str]:
        """Keep a signal (`value`: JSON) as a step of an unfinished job, even before it waits. Returns `kept`. Raises
        StepsFull; WrongState also if another value is kept.
        """
        answer: str = yield steps.signal(self.base_of_job(job_id), job_id, name, value, person())
        return answer

    def promote(self, job_id: str, revision: int | None = None) -> Plan[str]:
        """Queue a scheduled job now, unless it waits for a signal. Returns `queued`."""
        return self._order(verbs.promote, job_id, revision)

    def reschedule(
        self,
        job_id: str,
        revision: int | None = None,
        *,
        run_at: datetime | None = None,
        delay: Seconds | None = None,
        priority: int | None = None,
    ) -> Plan[str]:
        """Give a scheduled or queued job another time (`run_at`, or `delay` from now), priority, or both.
        Returns `queued` or `scheduled <ms>`.
        """
        rules = waiting_rules(run_at, delay, priority)
        return self._order(
            lambda base, name, seen, by: verbs.reschedule(base, name, seen, rules, by), job_id, revision
        )

    def erase(self, job_id: str, revision: int | None = None) -> "Plan[Erased]":
        """Delete a finished job; the caller deletes the large payload and result that `Erased` names."""
        from sublet.operations.orders.erase import erase

        return erase(self.settings, self.base_of_job(job_id), job_id, revision, person())

    def order_page(
        self,
        order: str,
        wanted: "Selection",
        *,
        expected: int | None = None,
        dry_run: bool = False,
        cursor: str | None = None,
        counted_at: datetime | None = None,
    ) -> "Plan[OrderPage]":
        """Give an order (`retry`, `cancel`, `promote` or `erase`) to a page of the jobs that match `wanted`,
        not to those submitted or ended after `counted_at`; `dry_run`: only count them. Raises Changed if
        there are over a tenth more than `expected`."""
        from sublet.operations.orders import bulk
        from sublet.operations.orders.erase import erase

        def give(job: JobSummary, order_id: str) -> Plan[tuple[str, tuple[bytes, ...]]]:
            base = self.base_of_job(job.id)
            if order == "erase":
                erased = yield from erase(self.settings, base, job.id, job.revision)
                return "erased", erased.references
            return (yield from bulk.give(order, wanted, base, job, order_id)), ()

        if wanted.queue is not None:
            self.check_queue(wanted.queue)
        sections = self._sections(wanted.states(order), wanted.listed())
        return bulk.order_page(
            sections, wanted, order, None if dry_run else give, expected, cursor, counted_at
        )

    def audit(
        self, limit: int = 50, cursor: str | None = None, within: Container[str] | None = None
    ) -> "Plan[AuditPage]":
        """Return a page of the commands that people gave, for the queues in `within` (None: all)."""
        from sublet.operations.orders import audit

        return audit.page(self.bases, limit, cursor, within)

    def _order(
        self, verb: Callable[[str, str, int, str], Call[str]], job_id: str, revision: int | None
    ) -> Plan[str]:
        base, looks = self.base_of_job(job_id), 1 if revision is not None else LOOKS
        while True:
            seen = revision if revision is not None else (yield reads.get(base, job_id)).revision
            try:
                answer: str = yield verb(base, job_id, seen, person())
                return answer
            except Changed:
                looks -= 1
                if not looks:
                    raise

    def pause(self, queue: str) -> Plan[str]:
        """Stop claims of a queue's jobs; running ones continue. Returns `paused`."""
        return self._change(queue, lambda base, seen: verbs.pause(base, queue, seen.revision, person()))

    def resume(self, queue: str) -> Plan[str]:
        """Allow claims of a queue's jobs again. Returns `resumed`."""
        return self._change(queue, lambda base, seen: verbs.resume(base, queue, seen.revision, person()))

    def configure(self, queue: str, **settings: float | str | None) -> Plan[str]:
        """Set limits of a queue (unfinished `jobs`, their `bytes`, `concurrency`, `rate`, …), or of `*`: how
        many finished jobs (`completed`, `dead`, `cancelled`) and `queues` each partition keeps. `on_dead`
        names the task to submit for each dead job.

        None removes a setting; others stay. Returns all as text (`jobs=5 bytes=9`, `per` in ms).
        """
        from sublet.protocol import flow

        for name, value in settings.items():
            if isinstance(value, int | float) and not 0 <= value < 10**14:
                raise Invalid(f"{name}={value}: a limit is 0 to {10**14 - 1:,}")
            if isinstance(value, str):
                self._check_hook(queue, value)

        def change(base: str, seen: Queue) -> Call[str]:
            words = flow.words({**seen.limits, "on_dead": seen.on_dead, **settings})
            return verbs.configure(base, queue, seen.revision, words, person())

        return self._change(queue, change)

    def groups(self, queue: str, limit: int = 100, group: str | None = None) -> "Plan[Groups]":
        """Return up to `limit` (≤ 1,000) groups of a queue, or only `group`."""
        from sublet.operations import groups

        self.check_queue(queue)
        if group is not None:
            check_group(group)
        found: Groups = yield from groups.groups(self.base_of_queue(queue), queue, limit, group)
        return found

    def change_group(self, queue: str, group: str, **settings: float | None) -> Plan[str]:
        """Set a group's own `concurrency`, `rate`, `per`, `burst`, `share`; None removes one (a rate only with its `per`
        and `burst`), others stay.
        Returns all as text, `per` in ms.
        """
        from sublet.operations import groups

        self.check_queue(queue)
        base = self.base_of_queue(queue)
        for looks in range(LOOKS, 0, -1):
            (seen,) = yield reads.describe(base, [queue])
            try:
                return (yield from groups.change(base, queue, seen.revision, group, settings, person()))
            except Changed:
                if looks == 1:
                    raise
        raise AssertionError("unreachable")

    def _check_hook(self, queue: str, on_dead: str) -> None:
        *others, task = on_dead.split("/")
        if len(others) > 1 or not all(map(keys.is_name, (*others, task))):
            raise Invalid(
                f"on_dead {on_dead[:80]!r}: use TASK or QUEUE/TASK, for each name {keys.name_rule()}"
            )
        bases = set(self.bases) if queue == "*" else {self.base_of_queue(queue)}
        if others and bases != {self.base_of_queue(others[0])}:
            raise Invalid(
                f"on_dead {on_dead}: queue {others[0]} is in another partition than the dead jobs: "
                f"use on_dead {task}, which runs in the queue of the dead job"
            )

    def _change(self, queue: str, change: Callable[[str, Queue], Call[str]]) -> Plan[str]:
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
        """End expired leases and queue due jobs, together at most 100 per partition. Returns the counts."""
        return maintenance.reap(self.bases, by)

    def fire(self, by: str) -> Plan[int]:
        """Submit the jobs of due occurrences. Returns how many jobs. Raises OutOfMemory."""
        return maintenance.fire(self.bases, by, self.admission, self.unread)

    def maintain(self, by: str) -> Plan[None]:
        """Reap, and fire schedules, where something is due; else write nothing."""
        return maintenance.maintain(self.bases, by, self.admission)

    def prune(self) -> Plan[tuple[int, bool]]:
        """Delete finished jobs past their retention or too many. Returns how many, and if more may remain."""
        return maintenance.prune(self.bases)

    def workers(self) -> Plan[list[WorkerInfo]]:
        """Return up to 1,000 registered workers with their leases, the one with the latest heartbeat first."""
        return workers.workers(self.bases)

    def drain(self, worker: str) -> Plan[str]:
        """Ask a worker to drain. Returns `drain`. Raises NotFound; Changed if it has just restarted."""
        return workers.drain(self.bases, worker)

    def queue(self, name: str) -> Plan[Queue]:
        """Return job counts, limits and settings of a queue, known or not; `*`: settings of one partition."""
        self.check_queue(name, "*")
        found: list[Queue] = yield reads.describe(self.base_of_queue(name), [name])
        return found[0]

    def queues(self) -> Plan[list[Queue]]:
        """Return all known queues, sorted by name."""
        found: list[Queue] = []
        for base in self.bases:
            names = yield from queue_names.names(base)
            for i in range(0, len(names), queue_names.PAGE):
                found += yield reads.describe(base, names[i : i + queue_names.PAGE])
        return sorted(found, key=lambda queue: queue.name)

    def queue_page(
        self, limit: int, cursor: str | None = None, within: Container[str] | None = None
    ) -> Plan[tuple[list[Queue], str | None]]:
        """Return up to `limit` known queues, if given only of `within`, and the next cursor or None."""
        at, scan, after = _queue_position(self.bases, cursor)
        found: list[Queue] = []
        while at < len(self.bases) and len(found) < limit:
            names, following = yield from queue_names.page(self.bases[at], scan)
            rest = [name for name in names if name > after and (within is None or name in within)]
            some = rest[: limit - len(found)]
            found += (yield reads.describe(self.bases[at], some)) if some else []
            if len(some) < len(rest):
                after = some[-1]
            else:
                at, scan, after = (at, following, "") if following else (at + 1, 0, "")
        return found, f"{self.bases[at]}/{scan}/{after}" if at < len(self.bases) else None

    def stats(self) -> Plan[list[Stats]]:
        """Return per partition the number of jobs by state, and totals since it was created."""
        found: list[Stats] = []
        for base in self.bases:
            found.append((yield from queue_names.stats(base)))
        return found

    def sample(self) -> Plan[None]:
        """Record the numbers of jobs for the history, unless this minute has them."""
        if time.monotonic() >= self.sample_at:
            from sublet.operations import history

            self.sample_at = time.monotonic() + 60
            seconds = yield from history.sample(self.bases)
            self.sample_at = time.monotonic() + seconds

    def history(self, span: "Span" = "hour") -> "Plan[History]":
        """Return rates and numbers of jobs over the last hour, day or month (`span`)."""
        from sublet.operations import history

        return history.history(self.bases, span)

    def list_jobs(
        self,
        state: State | str | Iterable[State] | None = None,
        *,
        limit: int = 50,
        cursor: str | None = None,
        **filters: Any,
    ) -> Plan[Page]:
        """Return a page of the jobs in these states (None: all) that match the `filters`, as in `Filter`."""
        wanted = job_list.filter_of(filters)
        if wanted.queue is not None:
            self.check_queue(wanted.queue)
        wanted.check()
        states = job_list.states_of(state)
        sections: job_list.Sections = self._sections(states, wanted)
        older: dict[str, int] = {}
        if wanted.tag is not None and wanted.workflow is None:
            sections, older = yield from job_list.with_index(sections, wanted.tag)
        if wanted.tag is not None or wanted.workflow is not None:
            wanted = wanted._replace(states=states)
        page: Page = yield from job_list.list_jobs(sections, wanted, limit, cursor, older)
        from sublet.operations import groups

        found: Page = yield from groups.with_reasons_of_all(self.base_of_job, page)
        return found

    def keyed(self, queue: str, key: str) -> Plan[list[JobSummary]]:
        """Return a list of the one job with this deduplication key in a queue; empty if none has it."""
        self.check_queue(queue)
        base = self.base_of_queue(queue)
        holder: bytes | None = yield Call(
            (("GET", keys.lock(base, queue, keys.stored_key(key))),), lambda reply: reply
        )
        found: list[JobSummary] = (yield reads.summaries(base, [reads.shown(holder)])) if holder else []
        return found

    def _sections(self, states: Sequence[State], wanted: job_list.Filter) -> list[tuple[str, str]]:
        if wanted.workflow is not None:
            return members.sections(self.base_of_job(wanted.workflow), wanted.workflow, states)
        bases = self.bases if wanted.queue is None else [self.base_of_queue(wanted.queue)]
        names = {State.QUEUED: list(job_list.ALL_QUEUES)}
        if wanted.queue is not None:
            names[State.QUEUED] = [f"{kind}:{wanted.queue}" for kind in job_list.ALL_QUEUES.values()]
        if wanted.code is not None:  # a completed job has no last error
            states = [each for each in states if each is not State.COMPLETED]
        found = [name for each in states for name in names.get(each, [each.value])]
        return [(base, name) for name in found for base in bases]


def _queue_position(bases: Sequence[str], cursor: str | None) -> tuple[int, int, str]:
    if cursor is None:
        return 0, 0, ""
    found = _CURSOR.fullmatch(cursor)
    if not found or found[1] not in bases or int(found[2]) >= 1 << 64:
        raise Invalid(f"cursor {cursor[:80]!r}: use the cursor of the page before")
    return bases.index(found[1]), int(found[2]), found[3]
