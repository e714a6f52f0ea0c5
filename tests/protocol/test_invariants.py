"""All verbs in any order, against a model, with stale tokens, repeated requests and passing time.

The model predicts the state of each job and the answer of each call. For random values (the jitter of a
backoff) it has bounds. All moments are chosen so that a few real milliseconds never decide whether something
is due. `SUBLET_TEST_EFFORT=50` runs fifty times as long.
"""

import itertools
import json
import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sublet.connection.transport import SyncTransport
from sublet.errors import Changed, NotFound
from sublet.model import Beat, Card, Completion, Failure, Note, Release, Submission, Submitted
from sublet.protocol import flow, keys, verbs
from sublet.protocol.scripts import Call
from sublet.schedules import firing
from sublet.schedules.firing import FireRequest, Pick
from tests.faults.simulation.request import Violation
from tests.support.draws import few
from tests.support.flow_watch import FlowWatch, in_legal_order, tuned
from tests.support.model import FORTNIGHT, FROM, FULL, Job, Model, Schedule
from tests.support.paths import ROOT
from tests.support.verb_scenes import how_often

ELAPSE = (ROOT / "tests" / "support" / "elapse.lua").read_text()
STRUCTURES = ("scheduled", "running", "completed", "dead", "cancelled")
IDS, QUEUES, KEYS, WORKERS = [f"j{i}" for i in range(12)], ("q1", "q2"), ("k1", "k2"), ("w1", "w2")
SCHEDULES, OCCURRENCE_RULES = ("n1", "n2"), "tries=2 backoff=20000:1:20000 retention=1000"
SETTLE = [
    ("heartbeat", 30), ("heartbeat", 70), ("complete",), ("complete",), ("fail", True), ("fail", True), ("fail", False),
    ("fail", False, "cancelled"),
    ("release", 0, ""), ("release", 10, ""), ("release", 0, "unknown_task"), ("note",), ("note",),
    ("spend", 0), ("spend", 3),
]  # fmt: skip
CHANGES = ("priority=5", "priority=0", "delay=20000", "priority=-3 delay=50000", "delay=0", "priority=5 at=1")
"""What is rescheduled."""
LIMITS = ({"concurrency": 2}, {"group_concurrency": 1}, {"concurrency": 2, "group_concurrency": 1},
          {"rate": 1, "per": 30000, "burst": 2}, {"group_rate": 1, "group_per": 30000, "group_concurrency": 2})  # fmt: skip
"""Limits of what runs."""
FEW, SELDOM = st.integers(0, 9), st.sampled_from([False] * 5 + [True])


class Verbs(RuleBasedStateMachine):
    """Every verb is a rule; after each step Redis must agree with the model."""

    def __init__(self, transport, raw, base):
        super().__init__()
        self.flow_watch = FlowWatch(transport.run, raw, base)
        self.run, self.raw, self.base = self.flow_watch.run, raw, base
        self.model, self.tokens, self.marks = Model(), set(), itertools.count()
        self.leases, self.orders = [], []
        self.run(verbs.init(base))

    def teardown(self):
        self.raw.delete(*self.raw.scan_iter(match=f"{self.base}*", count=1000))

    def twice(self, call: Call):
        """Send the same request twice: both replies are equal, and there is one effect."""
        first = self.run(call)
        assert self.run(call) == first
        return first

    def live(self):
        jobs = self.model.jobs
        return [lease for lease in self.leases if lease.id in jobs and self.model.held(lease, "") is None]

    def pick(self, which, stale):
        """Draw a lease: a live one, or sometimes any earlier one, or one with another job's id."""
        live = self.live()
        pool = self.leases if stale or not live else live
        lease = pool[-1 - which % len(pool)]
        return lease._replace(id=IDS[which % len(IDS)]) if stale and which > 6 else lease

    # the stored data

    def look(self):
        """State, score and important fields of every job, in one round trip."""
        ids = [*IDS, *(job_id for job_id in self.model.jobs if job_id not in IDS)]
        with self.raw.pipeline(transaction=False) as pipe:
            for name in (
                *STRUCTURES,
                *(f"{kind}:{queue}" for queue in QUEUES for kind in ("queue", "grouped")),
            ):
                pipe.zrange(f"{self.base}:{name}", 0, -1, withscores=True)
            for job_id in ids:
                pipe.hgetall(keys.job(self.base, job_id))
            for queue in QUEUES:
                pipe.llen(keys.wake(self.base, queue))
            for queue, key in itertools.product(QUEUES, KEYS):
                pipe.get(keys.lock(self.base, queue, key))
            pipe.hmget(
                keys.backlog(self.base),
                [f"{queue} {what}" for queue in QUEUES for what in ("jobs", "bytes", "running")],
            )
            pipe.hgetall(keys.counts(self.base))
            pipe.hgetall(self.base)
            pipe.zrange(keys.workers(self.base), 0, -1)
            for worker in WORKERS:
                pipe.hmget(keys.worker(self.base, worker), "life", "drain")
            replies = iter(pipe.execute())
        shelves = {name: dict(next(replies)) for name in STRUCTURES}
        shelves |= {queue: dict([*next(replies), *next(replies)]) for queue in QUEUES}
        hashes = {job_id: next(replies) for job_id in ids}
        wake_ups = {queue: next(replies) for queue in QUEUES}
        locks = {pair: next(replies) for pair in itertools.product(QUEUES, KEYS)}
        backlog = [int(number or 0) for number in next(replies)]
        counts, base, listed = next(replies), next(replies), next(replies)
        cards = {worker: (life, bool(drain)) for worker in WORKERS for life, drain in [next(replies)] if life}
        assert set(listed) == set(cards)
        return (
            shelves,
            {i: h for i, h in hashes.items() if h},
            wake_ups,
            locks,
            (backlog, Counter(how_often(counts))),
            base,
            cards,
        )

    @invariant()
    def redis_agrees_with_the_model(self):
        model = self.model
        shelves, hashes, wake_ups, locks, (backlog, counts), base, cards = self.look()
        wanted = {
            (job_id, job.queue if job.state == "queued" else job.state) for job_id, job in model.jobs.items()
        }
        assert {(job_id, shelf) for shelf, members in shelves.items() for job_id in members} == wanted
        assert set(hashes) == set(model.jobs)
        for job_id, job in model.jobs.items():
            self.one_job(job, hashes[job_id], shelves)
        for queue in QUEUES:
            assert wake_ups[queue] <= 1
            awake = wake_ups[queue] or model.queue(queue).paused or self.flow_watch.by_turns(queue)
            assert awake or not shelves[queue], f"{queue} has queued jobs and no wake-up"
        assert backlog == [number for queue in QUEUES for number in model.backlog(queue)]
        assert counts == Counter({" ".join(place): times for place, times in model.counts.items()})
        assert locks == {pair: model.lock(*pair)[0] for pair in locks}
        assert {name: int(base.get(name, 0)) for name in model.totals} == model.totals
        assert cards == {name: (worker.life, worker.drained) for name, worker in model.workers.items()}

    def one_job(self, job, stored, shelves):
        assert stored["state"] == job.state
        assert int(stored.get("attempt", 0)) == job.attempt
        assert int(stored.get("ops", 0)) == job.ops
        assert stored.get("token", "") == job.token
        assert ("claimed_at" in stored, "worker" in stored) == (job.state == "running",) * 2
        assert ("cancel_requested_at" in stored) == job.flagged
        assert stored.get("checkpoint") == job.checkpoint
        assert {int(name[4:]): log for name, log in stored.items() if name.startswith("log:")} == job.logs
        assert ("finished_at" in stored) == (job.state in ("completed", "dead", "cancelled"))
        left = None if job.state == "completed" and job.left == job.tries - job.attempt else job.left
        assert stored.get("tries_left") == (None if left is None else str(left))
        assert job.left is None or 0 <= job.left <= job.tries

    def observe(self):
        """Record the order of the jobs in their queues: by priority, then by submission."""
        shelves = self.look()[0]
        for queue in QUEUES:
            for job_id, score in shelves[queue].items():
                job = self.model.jobs[job_id]
                assert score // 2**44 == 100 - job.priority
                job.rank = score

    def moved(self, lost, due, limit):
        """Apply maintenance of at most `limit` moves to the model. Return how many leases and jobs."""
        shelves, hashes = self.look()[:2]
        gone = {job_id for job_id in lost if hashes[job_id]["state"] != "running"}
        come = {job_id for job_id in due if hashes[job_id]["state"] != "scheduled"}
        now = self.raw.time()[0] * 1000
        held = {job_id for job_id in due - come if shelves["scheduled"][job_id] > now + 2000}
        taken = len(come) + len(held)
        assert (len(gone), taken) == (min(limit, len(lost)), min(limit - len(gone), len(due)))
        for job_id in gone:
            rank = self.model.jobs[job_id].rank
            self.model.expire(job_id)
            if self.model.jobs[job_id].state == "queued":
                assert self.rank(job_id) == rank
        for job_id in come:
            assert not self.model.behind(self.model.jobs[job_id])
            self.model.jobs[job_id].state = "queued"
        for job_id in held:
            assert self.model.behind(self.model.jobs[job_id])
            self.model.jobs[job_id].due = self.model.now + 60
        return len(gone), taken

    # the rules

    @rule(
        n=st.integers(1, 3),
        known=SELDOM,
        queue=st.sampled_from(QUEUES),
        priority=st.sampled_from([0, 0, 5]),
        key=st.sampled_from([None, None, *KEYS]),
        window=st.sampled_from([None, 50]),
        delay=st.sampled_from([0, 0, 0, 10, 50]),
        tries=st.integers(1, 3),
        timeout=st.sampled_from([300, 25]),
        mode=st.sampled_from(["", "", "debounce", "replace", "cancel_running"]),
        group=st.sampled_from(["", "", "g1", "g2"]),
        cost=st.sampled_from([None, None, 2]),
    )
    def submit(self, n, known, queue, priority, key, window, delay, tries, timeout, mode, group, cost):
        if key and mode:
            window, delay = None, 0 if mode == "debounce" else delay
        else:
            mode = ""
        ids = [
            *[i for i in IDS if i not in self.model.jobs][:n],
            *[i for i in IDS if known and i in self.model.jobs][:1],
        ]
        ids += ids[: n // 3]
        words = {
            "priority": priority,
            "key": key,
            "window": window and window * 1000,
            "delay": delay * 1000,
            "tries": tries,
            "group": group or None,
            "cost": cost,
        }
        words |= {"timeout": timeout * 1000, "backoff": "20000:1:20000", "retention": 1000}
        if mode == "debounce":
            words |= {"delay": None, "debounce": 30000, "at_most": 50000}
        elif mode:
            words["on_conflict"] = mode
        rules = " ".join(f"{name}={value}" for name, value in words.items() if value is not None)
        jobs = [
            Submission(job_id, queue, "t", rules, json.dumps(f"{job_id}.{next(self.marks)}").encode())
            for job_id in ids
        ]
        made = [
            Job(queue, tries, priority, key, window if key else None, timeout, len(job.payload))
            for job in jobs
        ]
        for job, sent in zip(made, jobs, strict=True):
            job.payload, job.mode, job.group = sent.payload, mode, group
        there = [self.model.submit(i, job, delay) for i, job in zip(ids, made, strict=True)]
        expected = [
            other
            if other is FULL
            else Submitted(other[1], False, True)
            if isinstance(other, tuple)
            else Submitted(other or i, other is None)
            for i, other in zip(ids, there, strict=True)
        ]
        assert self.submitted(jobs) == expected
        self.observe()
        again = [word if word is FULL else Submitted(word.id, False, word.replaced) for word in expected]
        self.model.totals["queue_full"] = self.model.totals.get("queue_full", 0) + again.count(FULL)
        assert self.submitted(jobs) == again

    def submitted(self, jobs):
        """Submit, and return the first word of each answer."""
        answers = self.run(verbs.submit(self.base, jobs))
        return [FULL if isinstance(word, str) and word.startswith(FULL) else word for word in answers]

    @rule(
        name=st.sampled_from(SCHEDULES),
        put=SELDOM,
        overlap=st.sampled_from(["allow", "skip", "queue"]),
        queue=st.sampled_from(QUEUES),
        n=st.integers(0, 3),
        stale=SELDOM,
        by=st.sampled_from(WORKERS),
    )
    def schedule(self, name, put, overlap, queue, n, stale, by):
        """Put a schedule, or fire some of its occurrences, twice: none has two jobs, and none is left out except by overlap."""
        one = self.model.schedules.get(name)
        if one is None or put:
            seen, occurrence, last = (one.revision, one.occurrence, one.last) if one else (0, 1, "")
            what = dict(
                plan=b"{}",
                queue=queue,
                task="t",
                rules=OCCURRENCE_RULES,
                overlap=overlap,
                paused=False,
                payload=b"123",
            )
            call = firing.schedule(self.base, name, seen, **what, occurrence=occurrence, due=occurrence)
            assert self.twice(call) == ("changed" if one else "created")
            self.model.schedules[name] = Schedule(seen + 1, occurrence, overlap, queue, last)
            return
        n = n if one.occurrence < 8 else 0  # enough jobs: a step should not take long
        revision, occurrence, occurrences, then = (
            one.revision - stale,
            one.occurrence,
            range(one.occurrence, one.occurrence + n),
            one.occurrence + n + 1,
        )
        call = firing.fire(
            self.base,
            by,
            [FireRequest(Pick(name, str(revision), occurrence, b"", ""), occurrences, 0, then, then)],
        )
        for _ in range(2):
            expected = self.model.fire(name, by, revision, occurrence, occurrences, then)
            (answer,) = self.run(call)
            assert (FULL if answer.startswith(FULL) else answer) == expected
        stored = self.raw.hmget(keys.schedule(self.base, name), "occurrence", "last_id")
        assert stored == [str(one.occurrence), one.last or None]
        self.observe()

    @rule(
        verb=st.sampled_from(["pause", "resume", "resume", "configure", "configure"]),
        queue=st.sampled_from(QUEUES),
        limits=st.sampled_from([{}, {}, {"jobs": 4}, {"bytes": 15}, {"jobs": 2, "bytes": 100}, *LIMITS]),
        stale=SELDOM,
    )
    def operate_queue(self, verb, queue, limits, stale):
        limits = limits if verb == "configure" else {}
        revision = self.model.queue(queue).revision - stale
        words = [" ".join(f"{name}={value}" for name, value in limits.items())] if verb == "configure" else []
        call = getattr(verbs, verb)(self.base, queue, revision, *words)
        expected = self.model.operate_queue(verb, queue, revision, limits)
        if expected is Changed:
            with pytest.raises(Changed):
                self.run(call)
        else:
            assert self.twice(call) == expected

    @rule(
        queue=st.sampled_from(QUEUES),
        group=st.sampled_from(["g1", "g2"]),
        words=st.sampled_from(["concurrency=1", "concurrency=3 share=2", "rate=1 per=50000", ""]),
        stale=SELDOM,
    )
    def tune(self, queue, group, words, stale):
        """Give a group limits of its own."""
        revision = self.model.queue(queue).revision - stale
        call = flow.group(self.base, queue, revision, group, words)
        expected = tuned(self.model.queue(queue), group, revision, words)
        if expected is Changed:
            with pytest.raises(Changed):
                self.run(call)
        else:
            assert self.twice(call) == expected

    @rule(
        queues=st.sampled_from([("q1", "q2"), ("q2", "q1"), ("q1", "q2"), ("q1",)]),
        n=st.sampled_from([1, 2, 3, 1, 0]),
        lease=st.sampled_from([30, 70]),
        woken=st.booleans(),
        worker=st.sampled_from(WORKERS),
        then=st.sampled_from([*SETTLE, None]),
    )
    def claim(self, queues, n, lease, woken, worker, then):
        if woken:
            self.raw.lpop(keys.wake(self.base, queues[0]))
            n = max(n, 1)
        self.observe()
        scheduled, model = self.look()[0]["scheduled"], self.model
        lost, due = model.overdue("running"), model.overdue("scheduled")
        call = verbs.claim(
            self.base,
            claim_id=f"claim-{next(self.marks):022}",
            worker=worker,
            lease=lease,
            n=n,
            queues=queues,
        )
        claimed = self.run(call)
        assert self.run(call).leases == claimed.leases
        for job_id in lost:
            model.expire(job_id)
        for place, job_id in enumerate(job_id for job_id in scheduled if job_id in due):
            job = model.jobs[job_id]
            if model.behind(job):
                job.due = model.now + 60
                continue
            job.state, job.rank = "queued", (100 - job.priority) * 2**44 + 2**43 + place
        wanted = [
            i
            for q in queues
            if not model.queue(q).paused
            for _, i in sorted(
                (j.rank, i) for i, j in model.jobs.items() if (j.state, j.queue) == ("queued", q)
            )
        ]
        taken = [lease.id for lease in claimed.leases]
        if any(
            self.flow_watch.by_turns(queue) for queue in queues
        ):  # how many, and of which groups: see FlowWatch
            assert in_legal_order(taken, wanted, lambda i: (model.jobs[i].queue, model.jobs[i].group))
        else:
            assert taken == wanted[:n]
        for taken in claimed.leases:
            self.taken(taken, lease, worker)
        self.observe()
        self.leases += claimed.leases
        if then and self.leases:
            self.settle(0, False, then)

    def taken(self, lease, seconds, worker):
        job = self.model.jobs[lease.id]
        assert lease.checkpoint.decode() == (job.checkpoint or "")
        job.worker = worker
        before = job.left if job.left is not None else job.tries
        job.state, job.token, job.attempt, job.left, job.claimed = (
            "running",
            lease.token,
            job.attempt + 1,
            before - 1,
            self.model.now,
        )
        self.model.counts[job.queue, "wait"] += job.attempt == 1
        job.due = self.model.now + min(seconds, job.timeout + 5)
        assert (lease.attempt, lease.payload) == (
            job.attempt,
            b"123" if ":" in lease.id else job.payload,
        )
        assert (lease.id, lease.token) not in self.tokens
        self.tokens.add((lease.id, lease.token))
        stored = self.raw.hgetall(keys.job(self.base, lease.id))
        assert lease.expires_ms - int(stored["claimed_at"]) == min(seconds, job.timeout + 5) * 1000
        job.rank = float(stored["rank"])

    @precondition(lambda self: self.leases)
    @rule(which=FEW, stale=SELDOM, how=st.sampled_from(SETTLE))
    def end(self, which, stale, how):
        self.settle(which, stale, how)

    def settle(self, which, stale, how):
        verb, *words = how
        getattr(self, verb)(self.pick(which, stale), *words)

    def heartbeat(self, lease, extend):
        job = self.model.jobs.get(lease.id)
        expected = self.model.held(lease, "heartbeat")
        (answer,) = self.run(verbs.heartbeat(self.base, [Beat(lease)], lease=extend))
        if expected is None:
            job.heard = self.model.now
            job.due = min(self.model.now + extend, job.claimed + job.timeout + 5)
            assert (answer == "CANCEL_REQUESTED") == job.flagged
            stored = self.raw.hgetall(keys.job(self.base, lease.id))
            ends = (
                int(stored["heartbeat_at"]) + extend * 1000,
                int(stored["claimed_at"]) + (job.timeout + 5) * 1000,
            )
            assert self.raw.zscore(keys.structure(self.base, "running"), lease.id) == min(ends)
        else:
            assert answer == expected

    def complete(self, lease):
        expected = self.model.held(lease, "complete")
        old = {
            i
            for i, j in self.model.jobs.items()
            if j.state in ("completed", "dead", "cancelled") and j.due <= self.model.now
        }
        if expected is None:
            job = self.model.jobs[lease.id]
            job.ended, job.flagged, job.streak = ("complete", "completed"), False, ("", 0)
            job.checkpoint, job.logs = None, {n: log for n, log in job.logs.items() if n > job.attempt - 5}
            self.model.finish(lease.id, "completed", 60)
        self.model.late(expected)
        assert self.run(verbs.complete(self.base, [Completion(lease, b"1")])) == [expected or "completed"]
        self.forgotten(old, 2)

    def forgotten(self, old, limit):
        hashes = self.look()[1]
        gone = {job_id for job_id in old if job_id not in hashes}
        assert len(gone) == min(limit, len(old))
        for job_id in gone:
            del self.model.jobs[job_id]
        self.tokens = {pair for pair in self.tokens if pair[0] not in gone}
        return len(gone)

    def fail(self, lease, again, code="Boom"):
        expected = self.model.held(lease, "fail")
        if expected is None:
            job = self.model.jobs[lease.id]
            if not job.flagged or code != "cancelled":
                self.model.count("failed")
                self.model.counts[job.queue, "failed"] += 1
            expected = self.model.over(lease.id, "fail", 15, final=not again)
        self.model.late(expected, times=2)
        (answer,) = self.twice(verbs.fail(self.base, [Failure(lease, code, "m", "d", again)]))
        assert answer.split(" ")[0] == expected

    def release(self, lease, delay, reason):
        expected = self.model.held(lease, "release")
        if expected is None:
            job, code = self.model.jobs[lease.id], reason or "released"
            streak = self.model.released(job, code, delay)
            n = streak[-1]
            job.left += 1
            self.model.count("released")
            delay = min(2 ** (n - 1), 60) if reason else delay
            expected = self.model.over(lease.id, "release", delay, streak, final=bool(reason) and n == 20)
        self.model.late(expected, times=2)
        (answer,) = self.twice(verbs.release(self.base, [Release(lease, delay, "", reason or "released")]))
        assert answer.split(" ")[0] == expected
        if reason and expected == "scheduled":  # a second at first: a busy machine may need that for a step
            self.time_passes(20, "", 1)

    def spend(self, lease, cost):
        expected = self.model.held(lease, "spend")
        assert self.twice(flow.spend(self.base, [(lease, cost)])) == [expected or "spent"]

    def note(self, lease):
        expected = self.model.held(lease, "note")
        word = str(next(self.marks))
        if expected is None:
            job = self.model.jobs[lease.id]
            job.checkpoint, job.logs[job.attempt] = word, "log " + word
        (answer,) = self.twice(verbs.note(self.base, [Note(lease, word.encode(), f"log {word}".encode())]))
        assert answer == expected or (answer, expected) == ("noted", None)

    @rule(worker=st.sampled_from(WORKERS), life=st.sampled_from("112"), drain=SELDOM)
    def enlist(self, worker, life, drain):
        expected = self.model.enlist(worker, life)
        assert self.twice(verbs.enlist(self.base, Card(worker, life, "", b"{}"))) == expected
        if drain:
            call = verbs.drain(self.base, worker, "1")
            there = self.model.workers[worker]
            if there.life == "1":
                there.drained = True
                assert self.twice(call) == "drain"
            else:
                with pytest.raises(Changed):
                    self.run(call)

    @rule(worker=st.sampled_from(WORKERS))
    def drain_missing(self, worker):
        if worker not in self.model.workers:
            with pytest.raises(NotFound):
                self.run(verbs.drain(self.base, worker, "1"))

    @rule(
        worker=st.sampled_from(WORKERS),
        life=st.sampled_from("112"),
        which=FEW,
        most=st.integers(0, 4),
        stale=SELDOM,
    )
    def reconcile(self, worker, life, which, most, stale):
        """Reconcile leases of a dead worker, and sometimes leases of others, which must not change."""
        held = [
            (i, job.attempt)
            for i, job in self.model.jobs.items()
            if job.state == "running" and job.worker == worker
        ]
        leases = held[:most]
        if stale or not held:
            leases += [(lease.id, lease.attempt) for lease in self.leases[which : which + 2]]
            leases += [(IDS[which], which % 3)]
        leases = leases if most else []
        ranks = {i: self.model.jobs[i].rank for i, _ in leases if i in self.model.jobs}
        before = {
            i: job.attempt
            for i, job in self.model.jobs.items()
            if job.state == "running" and job.worker != worker
        }
        expected = self.model.reconcile(worker, life, leases)
        answers = self.twice(verbs.reconcile(self.base, worker, life, leases))
        assert [answer.split(" ")[0] for answer in answers] == expected
        for (job_id, _), answer in zip(leases, answers, strict=True):
            if answer == "queued" and self.model.jobs[job_id].state == "queued":
                assert self.rank(job_id) == ranks[job_id]
        assert all(
            self.model.jobs[i].state == "running" and self.model.jobs[i].attempt == n
            for i, n in before.items()
        )
        self.observe()

    @precondition(lambda self: self.model.jobs)
    @rule(
        verb=st.sampled_from(["cancel", "cancel", "retry", "promote", "reschedule"]),
        rules=st.sampled_from(CHANGES),
        which=FEW,
        stale=SELDOM,
        again=SELDOM,
        then=st.sampled_from([*SETTLE, None, None]),
    )
    def operate(self, verb, rules, which, stale, again, then):
        fit = [job_id for job_id, job in self.model.jobs.items() if job.state in FROM[verb]]
        pool = IDS if stale or not fit else fit
        job = self.model.jobs.get(pool[which % len(pool)])
        sent = (verb, pool[which % len(pool)], (job.attempt + job.ops if job else 0) - (stale and which % 2))
        sent += (rules,) if verb == "reschedule" else ()
        if again and self.orders:
            sent = self.orders[-1 - which % len(self.orders)]
        self.orders.append(sent)
        self.operated(*sent)
        live = [i for i, lease in enumerate(reversed(self.live())) if lease.id == sent[1]]
        if then and live:
            self.settle(live[0], False, then)

    def operated(self, verb, job_id, revision, *rules):
        expected = self.model.operate(verb, job_id, revision, *rules)
        call = getattr(verbs, verb)(self.base, job_id, revision, *rules)
        if isinstance(expected, type):
            with pytest.raises(expected):
                self.run(call)
        else:
            was = self.turn(job_id)
            expected = expected or self.model.operated(verb, job_id, revision, *rules)
            assert self.twice(call).split(" ")[0] == expected
            self.observe()
            if verb == "reschedule" and was is not None and expected == "queued":
                assert self.turn(job_id) == was, "a queued job keeps its turn"

    def rank(self, job_id):
        """A queued job's score."""
        job = self.model.jobs[job_id]
        structure = keys.grouped if job.group else keys.queue
        return self.raw.zscore(structure(self.base, job.queue), job_id)

    def turn(self, job_id):
        """A queued job's place among those of its priority; None if it is not queued."""
        score = self.rank(job_id)
        return None if score is None else score % 2**44

    @rule(
        seconds=st.sampled_from([20, 0, 20, 40, 100, 20, FORTNIGHT]),
        then=st.sampled_from(["", "reap", "reap", "prune", "watch"]),
        limit=st.integers(1, 4),
    )
    def time_passes(self, seconds, then, limit):
        self.raw.eval(ELAPSE, 1, self.base, seconds * 1000)
        self.flow_watch.elapse(seconds * 1000)
        self.model.now += seconds
        if then:
            getattr(self, then)(limit)

    def reap(self, limit):
        lost, due = self.model.overdue("running"), self.model.overdue("scheduled")
        reply = self.run(verbs.reap(self.base, limit=limit, by="tick"))
        moves = self.moved(lost, due, limit)
        assert reply[:3] == (*moves, sum(moves) == limit)
        self.observe()

    def prune(self, limit):
        model = self.model
        old = model.overdue("completed") | model.overdue("dead") | model.overdue("cancelled")
        reply = self.run(verbs.prune(self.base, limit=limit))
        gone = self.forgotten(old, limit)
        assert reply == (gone, gone == limit)

    def watch(self, limit):
        ids = IDS[limit : 2 * limit]
        standings = self.twice(verbs.watch(self.base, ids))
        assert [s.state for s in standings] == [
            self.model.jobs[i].state if i in self.model.jobs else None for i in ids
        ]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda raw, base: raw.hdel(keys.places(base, "q1"), "j0"), "the places of q1 are"),
        (lambda raw, base: raw.sadd(keys.group_places(base, "q1", "g1"), "j9"), "the places of q1|g1 are"),
        (lambda raw, base: raw.zrem(keys.full(base, "q1"), "g1"), "q1 has turns of"),
        (lambda raw, base: raw.zrem(keys.waiting(base, "q1", "g1"), "j1"), "q1|g1 has .* waiting"),
        (lambda raw, base: raw.delete(keys.bucket(base, "q1")), "the tokens of q1 are there"),
        (lambda raw, base: raw.hset(keys.groups(base, "q1"), "g1", "share=3"), "groups of q1 have"),
    ],
)
def test_the_watch_of_flow_control_sees_what_is_wrong(place, spoil, words):
    raw, transport, base = (
        place.raw(),
        SyncTransport(place.settings, place.sync_client()),
        keys.base(f"{place.settings.namespace}-watch"),
    )
    watch = FlowWatch(transport.run, raw, base)
    watch.run(verbs.init(base))
    watch.run(verbs.configure(base, "q1", 0, "group_concurrency=1 rate=1 per=60000 burst=3"))
    watch.run(verbs.submit(base, [Submission(i, "q1", "t", "group=g1", b"") for i in ("j0", "j1")]))
    for n in range(2):
        watch.run(verbs.claim(base, claim_id=f"{n:022}", worker="w1", lease=30, n=1, queues=["q1"]))
    watch.run(verbs.prune(base, limit=1))
    spoil(raw, base)
    with pytest.raises(Violation, match=words.replace("|", r"\|")):
        watch.run(verbs.prune(base, limit=1))
    raw.delete(*raw.scan_iter(match=f"{base}*"))
    transport.close()
    raw.close()


@pytest.mark.timeout(3600)  # a failure needs time to become a small one
def test_the_invariants_hold_after_any_sequence_of_calls(place, backend):
    numbers = itertools.count()
    raw, transport = place.raw(), SyncTransport(place.settings, place.sync_client())

    def machine():
        return Verbs(transport, raw, keys.base(f"{place.settings.namespace}-{next(numbers)}"))

    effort = float(os.environ.get("SUBLET_TEST_EFFORT", "1"))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=round(
                few(40 if place.fake else 200) * effort
            ),  # each takes five times as long there
            stateful_step_count=50,
            deadline=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    transport.close()
    raw.close()
