"""Random calls on a queue with groups and limits. After each, what flow control promises must be true."""

import contextlib
import random

import pytest

from sublet.errors import JobsError
from sublet.protocol import flow, keys
from tests.support.draws import few

GROUPS = ("", "a", "b", "c")
SETTINGS = (
    "",
    "concurrency=3",
    "group_concurrency=2",
    "concurrency=4 group_concurrency=1",
    "rate=5 per=1000 burst=3",
    "group_rate=2 group_per=1000",
    "concurrency=3 group_concurrency=2 rate=9 per=1000 burst=4 group_rate=4 group_per=1000 group_burst=2",
)
CONFLICTS = (
    "debounce=400",
    "debounce=1000 at_most=1500",
    "on_conflict=replace",
    "on_conflict=cancel_running",
)
OWN = ("", "concurrency=1", "concurrency=4", "rate=1 per=500", "share=3")


class Fuzz:
    """One queue under random calls. `leases` are those that the callers hold."""

    def __init__(self, desk, seed):
        self.desk, self.random, self.n, self.leases, self.began = desk, random.Random(seed), 0, [], 0

    async def step(self):
        desk, drawn = self.desk, self.random
        name = drawn.choice([*["submit"] * 5, *["claim"] * 6, *["end"] * 6, "operate", "elapse", "elapse", "configure", "tune",
                             "pause", "reap", "spend", "reconcile"])  # fmt: skip
        self.began, self.is_touched = desk.now(), name != "elapse"
        self.buckets = {}  # a bucket that is full again during the step is deleted
        self.buckets = {owner: self.full_at(owner) for owner in ("q", *(f"q|{group}" for group in GROUPS))}
        with contextlib.suppress(JobsError):  # a verb that does not fit the job's state
            await getattr(self, name)()
        self.check(name)
        if name == "claim":
            self.leases = [lease for lease in self.leases if desk.job(lease.id).get("token") == lease.token]

    async def submit(self):
        words = []
        if group := self.random.choice(GROUPS):
            words.append(f"group={group}")
        for word in ("cost=2", "priority=3", "delay=300", "tries=1"):
            if self.random.random() < 0.15:
                words.append(word)
        if self.random.random() < 0.3 and "delay=300" not in words:
            words += [f"key=k{self.random.randrange(3)}", self.random.choice(CONFLICTS)]
        many = self.random.choice([1, 1, 4])
        self.is_touched = not any(word.startswith(("delay", "debounce")) for word in words)
        await self.desk.submit(*(f"j{self.n + i}" for i in range(many)), rules=" ".join(words))
        self.n += many

    async def claim(self):
        n = self.random.choice([0, 1, 1, 3, 20])
        self.desk.raw.delete(keys.wake(self.desk.base, "q"))  # the caller was woken
        before = {group: len(ids) for group, ids in self.running().items()}
        leases = await self.desk.claim(n)
        self.leases += leases
        took = {self.group(lease.id) for lease in leases}
        running = self.running()
        for group in took:
            most = self.limit(group, "concurrency")
            assert len(running[group]) <= most, f"{group} runs {len(running[group])} of {most}, {before}"
        if took:
            assert sum(map(len, running.values())) <= self.setting("concurrency")
        if len(leases) < n:
            assert not self.startable(), "a job could start, and the claim took none"

    async def end(self):
        if not self.leases:
            return
        lease = self.leases.pop(self.random.randrange(len(self.leases)))
        how = self.random.choice(["complete", "complete", "fail", "dead", "release", "later", "twice"])
        if how in ("complete", "twice"):
            for _ in range(1 + (how == "twice")):
                await self.desk.complete(lease)
        elif how in ("fail", "dead"):
            await self.desk.fail(lease, again=how == "fail")
        else:
            await self.desk.release(lease, 0.5 if how == "later" else 0)

    async def operate(self):
        job = f"j{self.random.randrange(max(1, self.n))}"
        verb = self.random.choice(["cancel", "retry", "promote", "reschedule"])
        rules = self.random.choice(["priority=7", "delay=400", "delay=0"])
        await self.desk.operate(verb, job, None, *([rules] if verb == "reschedule" else []))

    async def elapse(self):
        self.desk.elapse(self.random.choice([0.05, 0.2, 0.5, 1.1, 1.1, 40]))

    async def configure(self):
        await self.desk.operate_queue("configure", "q", None, self.random.choice(SETTINGS))

    async def tune(self):
        await self.desk.operate_queue(
            "group", "q", None, self.random.choice(GROUPS[1:]), self.random.choice(OWN)
        )

    async def pause(self):
        await self.desk.operate_queue("pause")
        await self.desk.operate_queue("resume")

    async def reap(self):
        await self.desk.reap()

    async def spend(self):
        if self.leases:
            await self.desk.run(
                flow.spend(self.desk.base, [(self.random.choice(self.leases), self.random.randrange(6))])
            )

    async def reconcile(self):
        if self.leases:
            await self.desk.reconcile(self.leases.pop())

    # what is stored

    def key(self, name):
        return getattr(keys, name)(self.desk.base, "q")

    def group(self, job_id):
        header = self.desk.job(job_id)["spec"].split("\n")[0]
        return next((word[6:] for word in header.split() if word.startswith("group=")), "")

    def running(self):
        found = {}
        for job_id in self.desk.members("running"):
            found.setdefault(self.group(job_id), set()).add(job_id)
        return found

    def setting(self, name, text=None):
        text = (self.desk.raw.hget(keys.queues(self.desk.base), "q") or "") if text is None else text
        words = dict(word.split("=") for word in text.split() if "=" in word)
        return int(words.get(name, 10**9))

    def is_limited(self):
        text = self.desk.raw.hget(keys.queues(self.desk.base), "q") or ""
        return "concurrency=" in text or "rate=" in text or self.desk.raw.hlen(self.key("groups"))

    def limit(self, group, name):
        if not group:
            return 10**9
        own = self.desk.raw.hget(self.key("groups"), group) or ""
        found = self.setting(name, own)
        return found if found < 10**9 else self.setting(f"group_{name}")

    def full_at(self, owner):
        return max(
            float(self.desk.raw.get(keys.bucket(self.desk.base, owner)) or 0), self.buckets.get(owner, 0)
        )

    def startable(self):
        """Whether a job could start now, as its limits of places and stored tokens say; at the step's beginning."""
        raw, running = self.desk.raw, self.running()
        settings = raw.hget(keys.queues(self.desk.base), "q") or ""
        if "paused=" in settings or sum(map(len, running.values())) >= self.setting("concurrency"):
            return False
        if "rate=" in settings and self.full_at("q") > self.began:
            return False
        for group in GROUPS:
            waiting = raw.zcard(
                keys.waiting(self.desk.base, "q", group) if group else keys.queue(self.desk.base, "q")
            )
            full_at = self.full_at(f"q|{group}")
            if (
                waiting
                and len(running.get(group, ())) < self.limit(group, "concurrency")
                and full_at < self.began
            ):
                return True
        return False

    def check(self, after):
        raw, running = self.desk.raw, self.running()
        if " flow=1" not in (raw.hget(keys.queues(self.desk.base), "q") or ""):
            assert not raw.zcard(self.key("grouped"))
            return
        everyone = set().union(*running.values()) if running else set()
        places = set(raw.hkeys(self.key("places")))
        assert places <= everyone, after
        # A job that ran before the queue had groups gets its place with the first limit.
        assert places == everyone or not self.is_limited(), after
        turns, full = set(raw.zrange(self.key("turns"), 0, -1)), set(raw.zrange(self.key("full"), 0, -1))
        tokens = dict(raw.zrange(self.key("tokens"), 0, -1, withscores=True))
        assert not turns & full, after
        assert set(tokens) <= full, after
        waits = set()
        for group in GROUPS:
            home = keys.waiting(self.desk.base, "q", group) if group else keys.queue(self.desk.base, "q")
            if group:
                of_group = raw.smembers(keys.group_places(self.desk.base, "q", group))
                assert of_group == {job for job in running.get(group, ()) if job in places}, after
            if raw.zcard(home):
                waits.add(group)
            if group in full and group not in tokens:
                assert len(running.get(group, ())) >= self.limit(group, "concurrency"), (
                    f"{after}: {group} has room and no turn"
                )
        assert waits == turns | full, after
        grouped = {
            i for group in GROUPS[1:] for i in raw.zrange(keys.waiting(self.desk.base, "q", group), 0, -1)
        }
        assert set(raw.zrange(self.key("grouped"), 0, -1)) == grouped, after
        moment = (raw.hget(self.key("flow"), "alarm") or "").split(" ")[0]
        due = [at for _, at in raw.zrange(keys.structure(self.desk.base, "scheduled"), 0, 0, withscores=True)]
        # A moment that no worker kept, as it is gone: the next claim finds the job.
        is_missed = any(float(at) < self.desk.now() for at in (moment, *due) if at)
        if self.is_touched and not is_missed and not [at for at in tokens.values() if at <= self.desk.now()]:
            assert not self.startable() or self.desk.wake_ups() == 1, (
                f"{after}: a job may start, and nobody is woken"
            )


@pytest.mark.parametrize("seed", range(few(12)))
async def test_random_calls_keep_every_promise(desk, seed):
    fuzz = Fuzz(desk, seed)
    for _ in range(200):
        await fuzz.step()
