"""Random orders of submits, claims, ends and passing time, with keys that have `debounce` or `on_conflict`.

Whatever happens, a key has one waiting and one running job at most, a debounced job is never due later than `at_most` after
its first submit, arguments never run after newer ones, and those of the last submit run.
"""

import itertools
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sublet.connection.transport import SyncTransport
from sublet.model import Completion, Failure, Release, Submission
from sublet.protocol import keys, verbs
from tests.support.draws import few
from tests.support.paths import ROOT

ELAPSE = (ROOT / "tests" / "support" / "elapse.lua").read_text()
DEBOUNCE, AT_MOST, LEASE = 30, 70, 60
MODES = {
    "a": f"debounce={DEBOUNCE * 1000} at_most={AT_MOST * 1000}",
    "b": "on_conflict=replace",
    "c": "on_conflict=cancel_running",
    "d": "",
}
"""Key → the rule of its submits; one of key d, which begins without a rule, has one of the others."""
STEPS = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from("aaabcdd"), st.booleans(), st.integers(1, 2)),
    st.tuples(st.just("elapse"), st.sampled_from([5, 10, 25, 65])),
    st.tuples(st.just("claim"), st.integers(0, 3)),
    st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from(["complete", "fail", "release", "snooze"])),
    st.tuples(st.just("reap")),
)


class Keys:
    """A namespace, with the arguments that were submitted and that ran."""

    def __init__(self, transport, raw, base):
        self.run, self.raw, self.base, self.now = transport.run, raw, base, 0
        self.numbers, self.ids = itertools.count(1), itertools.count()
        self.last, self.ran, self.first = {}, {}, {}
        """By key: the arguments submitted last, those that ran last, and the moment of the first submit that waits."""
        self.leases = []
        self.run(verbs.init(base))

    def submit(self, key, again, n):
        rules = MODES[key] or MODES[("abc")[next(self.ids) % 3]]
        jobs = []
        for _ in range(n):
            self.last[key] = next(self.numbers)
            payload = json.dumps([key, self.last[key]]).encode()
            jobs.append(
                Submission(
                    f"j{next(self.ids)}",
                    "q",
                    "t",
                    f"key={key} tries=9 backoff=20000:1:20000 {rules}",
                    payload,
                )
            )
        waits = key in self.waiting()
        answers = self.run(verbs.submit(self.base, jobs))
        assert all(answer.created or answer.replaced for answer in answers)
        if again:
            assert [(a.id, a.replaced) for a in self.run(verbs.submit(self.base, jobs))] == [
                (a.id, a.replaced) for a in answers
            ]
        if not (waits and key in self.first):
            self.first[key] = self.now

    def elapse(self, seconds):
        self.raw.eval(ELAPSE, 1, self.base, seconds * 1000)
        self.now += seconds

    def claim(self, n):
        call = verbs.claim(
            self.base, claim_id=f"claim-{next(self.ids):022}", worker="w", lease=LEASE, n=n, queues=["q"]
        )
        for lease in self.run(call).leases:
            key, number = json.loads(lease.payload)
            assert number >= self.ran.get(key, 0), "older arguments ran after newer ones"
            self.ran[key] = number
            self.first.pop(key, None)
            self.leases.append(lease)

    def end(self, which, how):
        if not self.leases:
            return
        lease = self.leases.pop(which % len(self.leases))
        if how == "complete":
            self.run(verbs.complete(self.base, [Completion(lease, b"1")]))
        elif how == "fail":
            self.run(verbs.fail(self.base, [Failure(lease, "Boom")]))
        else:
            self.run(verbs.release(self.base, [Release(lease, 50 if how == "snooze" else 0)]))

    def reap(self):
        self.run(verbs.reap(self.base, limit=100, by="tick"))

    def waiting(self):
        """Key → due moment (ms; None: queued) of its waiting jobs."""
        found = {}
        scheduled = dict(self.raw.zrange(f"{self.base}:scheduled", 0, -1, withscores=True))
        queued = self.raw.zrange(f"{self.base}:queue:q", 0, -1)
        for job_id, due in [*scheduled.items(), *((job_id, None) for job_id in queued)]:
            spec = self.raw.hget(keys.job(self.base, job_id), "spec")
            key = json.loads(spec.partition("\n")[2])[0]
            assert key not in found, f"two jobs of key {key} wait"
            found[key] = (due, " after=" in spec, self.raw.hget(keys.job(self.base, job_id), "attempt"))
        return found

    def check(self):
        server_now = self.raw.time()[0] * 1000
        waiting = self.waiting()
        due, is_behind, attempt = waiting.get("a", (None, False, None))
        if due is not None and not is_behind and attempt is None:
            assert due - server_now <= (self.first["a"] + AT_MOST - self.now) * 1000 + 2000
            assert due - server_now <= DEBOUNCE * 1000 + 2000
        running = [
            json.loads(self.raw.hget(keys.job(self.base, job_id), "spec").partition("\n")[2])[0]
            for job_id in self.raw.zrange(f"{self.base}:running", 0, -1)
        ]
        assert len(running) == len(set(running)), "two jobs of a key run"

    def finish(self):
        """Run all that is left; the arguments submitted last must have run."""
        for _ in range(20):
            while self.leases:
                self.end(0, "complete")
            self.elapse(65)
            self.reap()
            self.claim(50)
        assert self.ran == self.last
        assert not [*self.raw.scan_iter(f"{self.base}:key:*")], "a key is held for ever"
        assert not self.raw.hgetall(keys.backlog(self.base))


def test_the_last_arguments_run_once_and_in_time_in_any_order(place, backend):
    numbers = itertools.count()
    raw, transport = place.raw(), SyncTransport(place.settings, place.sync_client())

    @settings(
        max_examples=few(30 if place.fake else 150), deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.lists(STEPS, max_size=40))
    def any_order(steps):
        base = keys.base(f"{place.settings.namespace}-{next(numbers)}")
        it = Keys(transport, raw, base)
        for name, *arguments in steps:
            getattr(it, name)(*arguments)
            it.check()
        it.finish()
        raw.delete(*raw.scan_iter(match=f"{base}*", count=1000))

    any_order()
    transport.close()
    raw.close()
