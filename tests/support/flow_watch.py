"""The promises of flow control, checked after each script on a real server, by all that is stored (see test_invariants)."""

from types import SimpleNamespace

from sublet.errors import Changed
from tests.faults.simulation.flow.promises import Flow
from tests.faults.simulation.history import Settings
from tests.faults.simulation.request import Request
from tests.faults.simulation.server import FLOW, Look

ROUND = 1.0
"""Ms by which rounding of the two moments around a script may make it seem shorter."""


class FlowWatch:
    """Runs calls, and looks at everything after each. It knows of jobs and settings only the stored data."""

    def __init__(self, run, raw, base):
        self._run, self.raw, self.base = run, raw, base
        self.look, self.lives, self.settings, self.takers = Look(0, hashes={"queues": {}}), {}, {}, {}
        self.flow, self.took = Flow(self), set()

    def paused(self, queue):
        return self.settings.get(queue, Settings()).paused

    def by_turns(self, queue):
        """Whether flow control serves a queue."""
        return " flow=1" in self.look.hashes["queues"].get(queue, "")

    def now(self):
        seconds, micros = self.raw.time()
        return seconds * 1000 + micros // 1000

    def run(self, call):
        """Run a call, check what follows from it, and return its answer."""
        replies, began = [], self.now()
        answer = self._run(call._replace(read=lambda reply: (replies.append(reply), call.read(reply))[1]))
        request = Request.of(call.commands[0])
        if request.verb == "group":
            self.flow.own[request.one["queue"], request.one["group"]] = request.one["settings"]
        before, self.look = self.look, look_at(self.raw, self.base, self.now())
        self.lives = {
            i: SimpleNamespace(state=job["state"], queue=job["spec"].split(" ")[0])
            for i, job in self.look.jobs.items()
        }
        self.settings = {queue: parsed(text) for queue, text in self.look.hashes["queues"].items()}
        self.flow.slack = self.look.now - began + ROUND
        claim_id = request.one.get("claim_id")
        repeated = claim_id in self.took
        ids = [i.decode() for i in replies[0][3::6]] if claim_id and not repeated else []
        if ids:
            self.took.add(claim_id)
        self.flow.held = {i: cost for i, cost in self.flow.held.items() if i in self.lives}
        moved = {
            i: "running" for i in ids if self.look.jobs[i].get("token") != before.jobs.get(i, {}).get("token")
        }
        self.flow.executed(request, replies[0], moved, before, repeated)
        return answer

    def elapse(self, ms):
        """Move what the account knows into the past, as `elapse.lua` does with the stored data."""
        flow = self.flow
        for bucket in flow.buckets.values():
            bucket.full_at, bucket.used = (
                bucket.full_at - ms,
                [(at - ms, tokens) for at, tokens in bucket.used],
            )
        flow.next = {queue: at if at is None else at - ms for queue, at in flow.next.items()}
        flow.comes = {which: at - ms for which, at in flow.comes.items()}


def parsed(text):
    """A queue's settings, without the words that are no limits."""
    words = text.split()[2:]
    kept = [word for word in words if not word.startswith(("paused=", "flow="))]
    return Settings(limits=" ".join(kept), paused=any(word.startswith("paused=") for word in words))


def look_at(raw, base, now):
    """All that is stored under a base and matters to flow control, in two round trips."""
    look, names = Look(now), list(raw.scan_iter(match=f"{base}:*", count=1000))
    found = []
    look.hashes["queues"] = {}
    with raw.pipeline(transaction=False) as pipe:
        read = {
            "job": pipe.hgetall,
            "groups": pipe.hgetall,
            "queues": pipe.hgetall,
            "wake": pipe.llen,
            "tat": pipe.get,
        }
        read |= dict.fromkeys(
            ("queue", "grouped", "waiting", "turns", "full", "tokens"),
            lambda key: pipe.zrange(key, 0, -1, withscores=True),
        )
        read["places"] = lambda key: pipe.smembers(key) if "|" in key else pipe.hgetall(key)
        for name in names:
            kind, _, rest = name.removeprefix(base + ":").partition(":")
            if kind in read:
                read[kind](name)
                found.append((kind, rest))
        replies = pipe.execute()
    for (kind, rest), value in zip(found, replies, strict=True):
        if kind in FLOW:
            look.flow[f"{kind}:{rest}"] = dict(value) if isinstance(value, list) else value
        elif kind == "job":
            look.jobs[rest] = value
        elif kind == "wake":
            look.wake_ups[rest] = value
        elif kind == "queues":
            look.hashes[kind] = value
        else:
            look.shelves[f"{kind}:{rest}"] = dict(value)
    return look


def tuned(queue, group, revision, words):
    """What the model of a queue answers to `group`: Changed, or the settings. It keeps them, unless it is a repeat."""
    own = queue.limits_of_groups.get(group, "")
    if queue.last[:1] == ("group",) and queue.revision == revision + 1 and own == words:
        return words
    if queue.revision != revision:
        return Changed
    if own != words:
        queue.limits_of_groups[group] = words
        queue.revision, queue.last = revision + 1, ("group", revision, {})
    return words


def in_legal_order(taken, wanted, group_of):
    """Whether the jobs taken of each group are its first ones, in their order."""
    for group in {group_of(i) for i in taken}:
        own = [i for i in taken if group_of(i) == group]
        if own != [i for i in wanted if group_of(i) == group][: len(own)]:
            return False
    return True
