"""Random calls on jobs that wait for others. After each, what the protocol promises of edges and workflows must be true.

A call settles two edges here instead of 50, so that a few jobs suffice to leave some for later calls.
"""

import contextlib
import random
from collections import Counter

import pytest

from sublet.errors import JobsError
from sublet.model import Submission
from sublet.protocol import keys
from sublet.protocol.scripts import Call
from sublet.workflows import storing
from sublet.workflows.storing import Linked
from tests.support.draws import few

UNFINISHED = ("scheduled", "queued", "running")
ENDED_AS = {"completed": 1, "dead": 2, "cancelled": 3}
ROOM = "local ROOM = 50"


def impatient(run):
    """Run scripts that settle two edges in a call."""

    async def patched(call):
        assert ROOM in call.text or "make_edges" not in call.text
        text = call.text.replace(ROOM, "local ROOM = 2")
        return await run(Call((("EVAL", text, *call.commands[0][2:]),), call.read))

    return patched


class Fuzz:
    """One partition under random calls. `free` has the jobs that an operator started in spite of their edges."""

    def __init__(self, desk, seed):
        self.desk, self.random, self.n, self.leases = desk, random.Random(seed), 0, []
        self.after, self.free, self.told = {}, set(), None
        desk.run = impatient(desk.run)

    async def step(self):
        name = self.random.choice(
            [*["store"] * 4, *["claim"] * 5, *["end"] * 7, "reap", "reap", *["operate"] * 3, "elapse"]
        )
        with contextlib.suppress(JobsError):  # a verb that does not fit the job's state
            await getattr(self, name)()
        self.check(name)

    # what is called

    async def store(self):
        drawn, flow = self.random, self.random.choice(["", "f", "g", "h"])
        how = drawn.choice(["open", "seal", "seal", "cancel"]) if flow else "seal"
        new = []
        for _ in range(0 if how == "cancel" else drawn.choice([0, 1, 3, 5])):
            known = [f"j{i}" for i in range(max(0, self.n - 8), self.n)]
            after = [j for j in known if self.state(j) in (*UNFINISHED, None) and drawn.random() < 0.35]
            into = [j for j in known if self.waits(j) and drawn.random() < 0.15]
            rules = [f"on_failure={drawn.choice(['cancel', 'run', 'hold'])}"] if drawn.random() < 0.8 else []
            rules += [
                word
                for word in ("tries=1", "delay=300", "give_up=2000", "priority=3")
                if drawn.random() < 0.15
            ]
            new.append(
                Linked(Submission(f"j{self.n}", drawn.choice("qr"), "t", " ".join(rules), b"{}"), after, into)
            )
            self.n += 1
        before = self.stored()
        call = storing.workflow(self.desk.base, flow, how, new)
        answer = await self.desk.run(call)
        if isinstance(answer, str):
            assert self.stored() == before, answer
            return
        assert all(one.created for one in answer)
        for one in new:
            self.after[one.job.id] = {*one.after}
            for to in one.into:
                self.after[to].add(one.job.id)
        if how != "cancel":
            again = await self.desk.run(call)
            assert again == [one._replace(created=False) for one in answer]

    async def claim(self):
        for lease in await self.desk.claim(self.random.choice([1, 1, 4]), queues=("q", "r")):
            self.leases.append(lease)
            assert lease.id in self.free or self.is_ready(lease.id), (
                f"{lease.id} runs, and an upstream has not ended"
            )

    def is_ready(self, job_id):
        spec = self.desk.job(job_id)["spec"]
        return all(
            self.state(up) == "completed"
            or ("on_failure=run" in spec and self.state(up) in (*ENDED_AS, None))
            or up in self.free
            for up in self.after[job_id]
        )

    async def end(self):
        if not self.leases:
            return
        lease = self.leases.pop(self.random.randrange(len(self.leases)))
        how = self.random.choice(["complete", "complete", "complete", "fail", "dead", "dead", "release"])
        if how == "complete":
            await self.desk.complete(lease)
        elif how == "release":
            await self.desk.release(lease)
        else:
            await self.desk.fail(lease, again=how == "fail")

    async def operate(self):
        verb = self.random.choice(["cancel", "retry", "retry", "promote"])
        if verb == "retry":
            known = [j for j in self.after if self.state(j) in ("dead", "cancelled")]
        else:
            known = [j for j in self.after if self.state(j) in UNFINISHED]
        if not known:
            return
        job_id = self.random.choice(known)
        broken = self.desk.job(job_id).get("broken", "0") != "0"
        how = self.random.choice([("",), ("", "all")]) if verb == "retry" else ()
        answer = await self.desk.operate(verb, job_id, None, *how)
        assert answer != "cancelled" or verb == "cancel" or (broken and self.state(job_id) == "cancelled")
        if verb == "promote" or (verb == "retry" and self.state(job_id) == "queued"):
            self.free.add(job_id)
            assert verb == "promote" or broken or "needs" not in self.desk.job(job_id)

    async def reap(self):
        await self.desk.reap(self.random.choice([1, 5]))

    async def elapse(self):
        self.desk.elapse(self.random.choice([0.4, 3, 40, 4000]))

    # what is stored

    def state(self, job_id):
        return self.desk.raw.hget(keys.job(self.desk.base, job_id), "state")

    def stored(self):
        scheduled, jobs = self.desk.members("scheduled"), [self.desk.job(j) for j in self.after]
        workflows = [self.desk.raw.hgetall(keys.workflow(self.desk.base, flow)) for flow in "fgh"]
        return scheduled, jobs, workflows, self.lists("downstream"), self.lists("upstream")

    def waits(self, job_id):
        return self.state(job_id) == "scheduled" and "needs" in self.desk.job(job_id)

    def lists(self, kind):
        """Upstream → its downstream jobs in one kind of lists."""
        prefix = f"{self.desk.base}:{kind}:"
        return {
            key[len(prefix) :]: self.desk.raw.lrange(key, 0, -1)
            for key in self.desk.raw.scan_iter(match=f"{prefix}*", count=10_000)
        }

    def lives(self, name):
        if name.startswith("/"):
            return self.desk.raw.hget(keys.workflow(self.desk.base, name[1:]), "state") == "open"
        return self.state(name) in UNFINISHED

    def check(self, after):
        desk, scheduled = self.desk, set(self.desk.members("scheduled"))
        downstream, broken = self.lists("downstream"), self.lists("broken")
        outstanding = Counter(j for ids in downstream.values() for j in ids)
        failed = Counter(j for ids in broken.values() for j in ids)
        for name in downstream:
            assert self.lives(name) or f">{name}" in scheduled, (
                f"{after}: {name} ended, and its edges are forgotten"
            )
        for name in broken:
            due = self.lives(name) or self.state(name) == "completed"
            assert not due or f">{name}" in scheduled, (
                f"{after}: {name} did not fail, and its broken edges are forgotten"
            )
        for job_id in self.after:
            fields = desk.job(job_id)
            if not fields:
                continue
            desk.state(job_id)
            if "needs" in fields:
                found = (outstanding[job_id] + failed[job_id], failed[job_id])
                assert (int(fields["needs"]), int(fields.get("broken", 0))) == found, (
                    f"{after}: {job_id} counts wrong"
                )
                assert fields["state"] in ("scheduled", "cancelled"), f"{after}: {job_id} has needs"
            if self.waits(job_id):
                runs, holds = (f"on_failure={how}" in fields["spec"] for how in ("run", "hold"))
                assert outstanding[job_id] or (failed[job_id] and not runs), (
                    f"{after}: {job_id} waits for nothing"
                )
                assert not failed[job_id] or holds or runs, f"{after}: {job_id} waits in vain"
            if "cause" in fields:
                assert failed[job_id], f"{after}: {job_id} has a cause and no broken edge"
        for flow in "fgh":
            members = dict(desk.raw.zrange(keys.members(desk.base, flow), 0, -1, withscores=True))
            for job_id, score in members.items():
                assert ENDED_AS.get(self.state(job_id), 0) == score or not self.state(job_id), (
                    f"{after}: {job_id} in {flow}"
                )
            state, ended_at = desk.raw.hmget(keys.workflow(desk.base, flow), "state", "ended_at")
            is_over = state in ("sealed", "cancelled") and 0 not in members.values()
            assert bool(ended_at) == is_over, f"{after}: {flow} is {state}, ended {ended_at}"

    async def finish(self):
        """Seal or cancel all, complete what runs; at the end only held jobs wait, and those behind them."""
        for flow in "fgh":
            with contextlib.suppress(JobsError):
                await self.desk.run(storing.workflow(self.desk.base, flow, "seal"))
        for _ in range(400):
            self.desk.elapse(0.5)
            await self.desk.reap(5)
            for lease in [*self.leases, *await self.desk.claim(5, queues=("q", "r"))]:
                await self.desk.complete(lease)
            self.leases = []
            left = {j: self.desk.job(j) for j in self.after if self.state(j) in UNFINISHED}
            going_on = [name for name in self.desk.members("scheduled") if name.startswith(">")]
            stuck = {
                j: fields
                for j, fields in left.items()
                if "cause" not in fields and left.keys().isdisjoint(self.after[j])
            }
            if not going_on and not stuck:
                break
        self.check("finish")
        assert not going_on, f"edges are left: {going_on}"
        assert stuck == {}


@pytest.mark.parametrize("seed", range(few(16)))
async def test_random_calls_keep_every_promise(desk, seed):
    fuzz = Fuzz(desk, seed)
    for _ in range(100):
        await fuzz.step()
    await fuzz.finish()
