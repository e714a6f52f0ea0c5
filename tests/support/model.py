"""A model of all jobs in plain Python, against which the scripts are tested (see test_invariants)."""

from collections import Counter
from dataclasses import dataclass, field

from sublet.errors import Changed, KeyTaken, NotFound, WrongState

DAY = 86_400
FORTNIGHT = 14 * DAY
FULL = "QUEUE_FULL"
WAITING = ("scheduled", "queued", "running")
"""The states that count towards a queue's limits."""
FROM = {
    "cancel": ("scheduled", "queued", "running"),
    "retry": ("dead", "cancelled"),
    "promote": ("scheduled",),
    "reschedule": ("scheduled", "queued"),
}
"""The states from which an operator's verb is accepted."""


@dataclass
class Job:
    """The model's state of a job. `due` is the moment when it falls due, its lease ends or it may be
    deleted, in the model's seconds.
    """

    queue: str
    tries: int
    priority: int
    key: str | None
    window: int | None
    timeout: int
    size: int
    state: str = "queued"
    due: float = 0
    attempt: int = 0
    left: int | None = None
    ops: int = 0
    op: tuple = ()
    token: str = ""
    claimed: float = 0
    heard: float = 0
    """The moment of the last heartbeat of any attempt."""
    ended: tuple = ()
    streak: tuple = ("", 0)
    flagged: bool = False
    rank: float = 0
    worker: str = ""
    checkpoint: str | None = None
    logs: dict[int, str] = field(default_factory=dict)
    payload: bytes = b""
    mode: str = ""
    """What the submit does to the jobs of its key: `debounce`, `replace`, `cancel_running`, or nothing."""
    first: float = 0
    """The moment of its first submit since it last ran."""
    at: float = 0
    """The moment of its rules."""
    after: str | None = None
    joined: list[str] = field(default_factory=list)
    """Ids of the submits that replaced its arguments."""
    group: str = ""


@dataclass
class Queue:
    """The model's state of a queue beside its jobs. `last` is the last operator's verb: verb, revision seen,
    limits named.
    """

    revision: int = 0
    paused: bool = False
    limits: dict[str, int] = field(default_factory=dict)
    last: tuple = ()
    limits_of_groups: dict[str, str] = field(default_factory=dict)


@dataclass
class Worker:
    """The model's state of a registered worker."""

    life: str
    seen: float
    drained: bool = False


@dataclass
class Schedule:
    """The model's state of a schedule. `answer` is the request and the reply of its last firing."""

    revision: int
    occurrence: int
    overlap: str
    queue: str
    last: str = ""
    answer: tuple = ()


@dataclass
class Model:
    """All jobs, in plain Python."""

    now: float = 0
    jobs: dict[str, Job] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    locks: dict[tuple[str, str], tuple[str, float | None]] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    schedules: dict[str, Schedule] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(queue, event) → how often it happened."""

    def count(self, name):
        self.totals[name] = self.totals.get(name, 0) + 1

    def lock(self, queue, key):
        holder, until = self.locks.get((queue, key), (None, None))
        return (None, None) if until is not None and until <= self.now else (holder, until)

    def queue(self, name):
        return self.queues.setdefault(name, Queue())

    def backlog(self, queue):
        """How many jobs of a queue wait or run, the bytes of their payloads, and how many of them run."""
        there = [job for job in self.jobs.values() if job.queue == queue and job.state in WAITING]
        return len(there), sum(job.size for job in there), sum(job.state == "running" for job in there)

    def full(self, job):
        jobs, size, _ = self.backlog(job.queue)
        limits = self.queue(job.queue).limits
        return jobs + 1 > limits.get("jobs", jobs + 1) or size + job.size > limits.get(
            "bytes", size + job.size
        )

    def submit(self, job_id, job, delay):
        """The id of the existing job, FULL, or None when the job is stored."""
        if job_id in self.jobs:
            return job_id
        job.at = self.now + delay if delay else 0
        holder, until = self.lock(job.queue, job.key)
        if job.key and job.mode:
            return self.submit_ruled(job_id, job, delay, holder)
        if job.key and holder and (holder in self.jobs or until is not None):
            return holder
        if self.full(job):
            self.count("queue_full")
            return FULL
        if job.key:
            self.locks[job.queue, job.key] = (job_id, self.now + job.window if job.window else None)
        job.state, job.due = ("scheduled", self.now + delay) if delay else ("queued", 0)
        self.jobs[job_id] = job
        self.count("submitted")
        return None

    def submit_ruled(self, job_id, job, delay, holder):
        """As `submit`, for a key with a mode. The reply is ("replaced", id) if a waiting job got the arguments."""
        there = self.jobs.get(holder)
        running = (
            there if there and there.state == "running" else self.jobs.get(there.after) if there else None
        )
        running = running if running and running.state == "running" else None
        if there and job_id in there.joined:
            return ("replaced", holder)
        if there and running and job_id in running.joined:
            return ("replaced", there.after)
        waiting = there if there and there.state in ("scheduled", "queued") else None
        jobs, size, _ = self.backlog(job.queue)
        limits, grows = self.queue(job.queue).limits, job.size - (waiting.size if waiting else 0)
        if (not waiting and jobs + 1 > limits.get("jobs", jobs + 1)) or (
            (not waiting or grows > 0) and size + grows > limits.get("bytes", size + grows)
        ):
            self.count("queue_full")
            return FULL
        if job.mode == "cancel_running" and running and not running.flagged:
            revision = running.attempt + running.ops
            running.flagged, running.ops = True, running.ops + 1
            running.op = ("cancel", "", revision, "requested")
        # The moments in the header of a job without a mode do not elapse
        job.first = waiting.first if waiting and not waiting.attempt and waiting.mode else self.now
        job.at = (
            min(self.now + 30, job.first + 50) if job.mode == "debounce" else self.now + delay if delay else 0
        )
        job.after = next((i for i, one in self.jobs.items() if one is running), None)
        job.state, job.due = ("scheduled", job.at) if job.at > self.now or job.after else ("queued", 0)
        if job.state == "scheduled":
            job.due = max(job.at, self.now)
        if waiting:
            job.attempt, job.logs, job.ops = waiting.attempt, waiting.logs, waiting.ops + 1
            job.joined, job.heard, job.worker = [job_id, *waiting.joined], waiting.heard, waiting.worker
        else:
            self.count("submitted")
        own = holder if waiting else job_id
        self.jobs[own], self.locks[job.queue, job.key] = job, (own, None)
        return ("replaced", holder) if waiting else None

    def newer(self, job_id):
        """The job of the key that waits behind this one."""
        job = self.jobs[job_id]
        other = self.jobs.get(self.lock(job.queue, job.key)[0]) if job.key else None
        return other if other and other.after == job_id else None

    def holds(self, job_id):
        """Whether the job holds its key until its end."""
        job = self.jobs[job_id]
        holder, until = self.lock(job.queue, job.key) if job.key else (None, None)
        return holder == job_id and until is None

    def behind(self, job):
        """Whether the job waits for the end of another."""
        older = self.jobs.get(job.after)
        return older is not None and older.state == "running"

    def fire(self, name, by, revision, occurrence, occurrences, then):
        """The reply to firing occurrences of a schedule: each gets one job, in order, as overlap policy and
        limits allow.
        """
        one, asked = self.schedules[name], (by, revision, occurrence)
        if (revision, occurrence) != (one.revision, one.occurrence):
            return one.answer[1] if one.answer[:1] == (asked,) else "CHANGED"
        fired, skipped, stopped, one.occurrence = 0, 0, "", then
        for moment in occurrences:
            before = self.jobs.get(one.last)
            if one.overlap != "allow" and before and before.state in WAITING:
                if one.overlap == "queue":
                    stopped, one.occurrence = f"held {fired}", moment
                    break
                skipped += 1
                continue
            job_id, job = f"0-{name}:{moment}", Job(one.queue, 2, 0, None, None, 300, 3)
            if job_id not in self.jobs and self.full(job):
                self.count("queue_full")
                stopped, one.occurrence = FULL, moment
                break
            if job_id not in self.jobs:
                self.jobs[job_id] = job
                self.count("submitted")
            one.last, fired = job_id, fired + 1
        one.answer = (asked, stopped or f"{'skipped' if skipped else 'fired'} {fired}")
        return one.answer[1]

    def finish(self, job_id, state, keep):
        job = self.jobs[job_id]
        job.state, job.due = state, self.now + keep
        self.count(state)
        self.counts[job.queue, state] += 1
        newer, older = self.newer(job_id), self.jobs.get(job.after)
        if newer:
            newer.due = max(self.now, newer.at) if newer.state == "scheduled" else newer.due
        elif self.holds(job_id):
            del self.locks[job.queue, job.key]
            if older and older.state == "running":
                self.locks[job.queue, job.key] = (job.after, None)

    def over(self, job_id, verb, delay, streak=("", 0), final=False):
        """End an attempt without a result; if that is final, whatever tries are left."""
        job = self.jobs[job_id]
        job.logs = {n: log for n, log in job.logs.items() if n > job.attempt - 5}
        if job.flagged or final or job.left <= 0:
            self.finish(job_id, "cancelled" if job.flagged else "dead", FORTNIGHT)
        elif self.newer(job_id):
            self.finish(job_id, "cancelled", FORTNIGHT)
        elif delay == 0:
            job.state = "queued"
        else:
            job.state, job.due = "scheduled", self.now + delay
        job.ended, job.streak, job.flagged = (verb, job.state), streak, False
        return job.state

    def released(self, job, code, delay):
        """The streak after a release: one without delay does not interrupt a row of unknown_task."""
        refused = job.streak[:2] if job.streak[0] == "unknown_task" else ()
        before = job.streak[2:] if refused and code == "released" else job.streak
        n = before[1] + 1 if before[:1] == (code,) else 1
        return (*refused, code, n) if refused and code == "released" and delay == 0 else (code, n)

    def expire(self, job_id, verb="reap"):
        job = self.jobs[job_id]
        n = job.streak[1] + 1 if job.streak[0] == "lease_expired" else 1
        self.count("expired")
        late = verb == "reap" and job.heard >= job.claimed + job.timeout
        return self.over(job_id, verb, 0 if n == 1 and not late else 15, ("lease_expired", n))

    def enlist(self, name, life):
        """The reply to a worker's heartbeat of registration. Old workers are removed; a new life starts anew."""
        there = self.workers.get(name)
        if there is None or there.life != life:
            there = self.workers[name] = Worker(life, self.now)
        there.seen = self.now
        self.workers = {n: worker for n, worker in self.workers.items() if self.now - worker.seen < DAY}
        return "drain" if there.drained else "work"

    def reconcile(self, worker, life, leases):
        """The reply to `reconcile`: the leases of this life of the worker end, or it is removed."""
        known = self.workers.get(worker)
        ours = known is None or known.life == life
        if not leases and known and ours:
            del self.workers[worker]
        return [self.lost(job_id, attempt, worker, ours) for job_id, attempt in leases]

    def lost(self, job_id, attempt, worker, ours):
        job = self.jobs.get(job_id)
        if job is None:
            return "NOT_FOUND"
        if job.attempt != attempt or not ours:
            return "LEASE_LOST"
        if job.state == "running":
            return self.expire(job_id, "reconcile") if job.worker == worker else "LEASE_LOST"
        return job.ended[1] if job.ended[:1] == ("reconcile",) else "LEASE_LOST"

    def overdue(self, state):
        return {job_id for job_id, job in self.jobs.items() if job.state == state and job.due <= self.now}

    def late(self, answer, times=1):
        """Count a settled attempt; a late one is counted as refused."""
        self.totals["lease_lost"] = self.totals.get("lease_lost", 0) + times * (answer == "LEASE_LOST")

    def held(self, lease, verb):
        """The immediate reply to a verb on a lease; None when the lease is live."""
        job = self.jobs.get(lease.id)
        if job is None:
            return "NOT_FOUND"
        if job.token != lease.token:
            return "LEASE_LOST"
        if job.state == "running":
            return None
        return job.ended[1] if job.ended[0] == verb else "LEASE_LOST"

    def operate_queue(self, verb, name, revision, limits):
        """The reply to an operator's verb on a queue: Changed, or the settings' text. Carries it out unless
        it is a repeat.
        """
        queue = self.queue(name)
        answer = {"pause": "paused", "resume": "resumed"}.get(
            verb, " ".join(f"{k}={v}" for k, v in limits.items())
        )
        if queue.last == (verb, revision, limits) and queue.revision == revision + 1:
            return answer
        if queue.revision != revision:
            return Changed
        queue.revision, queue.last = revision + 1, (verb, revision, limits)
        if verb == "configure":
            queue.limits = limits
        else:
            queue.paused = verb == "pause"
        return answer

    def operate(self, verb, job_id, revision, rules=""):
        """The immediate reply to an operator's verb: an error, or its first answer; None when it may be
        carried out.
        """
        job = self.jobs.get(job_id)
        if job is None:
            return NotFound
        current = job.attempt + job.ops
        if job.op[:3] == (verb, rules, revision) and current == revision + 1:
            return job.op[3]
        if current != revision:
            return Changed
        if job.state not in FROM[verb]:
            return WrongState
        if verb == "retry" and job.key and self.lock(job.queue, job.key)[0] not in (None, job_id):
            return KeyTaken
        return None

    def operated(self, verb, job_id, revision, rules=""):
        """Carry out an operator's verb."""
        job = self.jobs[job_id]
        answer = "queued"
        if verb == "cancel" and job.state == "running":
            job.flagged, answer = True, "requested"
        elif verb == "cancel":
            answer = "cancelled"
            self.finish(job_id, "cancelled", FORTNIGHT)
        elif verb == "reschedule":
            answer = job.state = self.rescheduled(job, dict(word.split("=") for word in rules.split()))
        else:
            job.state = "queued"
        if verb == "retry":
            job.token, job.ended, job.streak, job.left = "", (), ("", 0), None
            if job.key and self.lock(job.queue, job.key)[0] is None:
                self.locks[job.queue, job.key] = (job_id, self.now + job.window if job.window else None)
        job.ops, job.op = job.ops + 1, (verb, rules, revision, answer)
        return answer

    def rescheduled(self, job, words):
        """Change what the words name. Returns the job's new state."""
        job.priority = int(words.get("priority", job.priority))
        if "delay" in words or "at" in words:
            job.at = self.now + int(words["delay"]) / 1000 if "delay" in words else 0
        if "delay" in words:
            job.due = self.now + int(words["delay"]) / 1000
        elif "at" in words or job.state == "queued":
            job.due = 0  # long ago
        return "scheduled" if job.due > self.now else "queued"
