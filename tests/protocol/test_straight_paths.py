"""The straight paths of submit, claim and complete have exactly the effect of the rest of their scripts.

Two namespaces get the same calls, one from scripts without the straight paths. The scripts read a clock that only
the test moves, so replies and all stored data must be equal.
"""

import itertools
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.exceptions import ResponseError

from sublet.protocol.scripts import script, source
from tests.support.draws import few

STRAIGHT = ("submit", "claim", "complete")
TAKEN: Counter[str] = Counter()
"""Calls per verb, and of these the ones that took the straight path."""
QUEUES, RULES = (
    ("q", "r"),
    ("delay=1000", "tries=1", "timeout=2000", "keep=1", "key=k", "retention=1", "group=g"),
)


class Twins:
    """Two namespaces on one server. `call` runs a verb in both and compares replies and stored data."""

    def __init__(self, raw: Any, name: str) -> None:
        self.raw, self.name, self.bases = raw, name, (f"{{{name}}}:s", f"{{{name}}}:g")
        self.us, self.ids, self.leases, self.claimed = (
            1_700_000_000_123_456,
            itertools.count(),
            [],
            itertools.count(),
        )
        raw.delete(*self.bases, *raw.scan_iter(match=f"{{{name}}}:*", count=1000))
        self.elapse(0)
        self.call("init", 1)

    def elapse(self, ms: int) -> None:
        self.us += ms * 1000
        self.raw.hset(f"{{{self.name}}}clock", mapping={"s": self.us // 10**6, "us": self.us % 10**6})

    def text(self, verb: str, straight: bool) -> str:
        """The text of a verb, with this test's clock and without short expiries. Past the straight path it sets a key."""
        *before, own = script(verb).libraries, verb
        libraries = [name for name in before[0] if not name.startswith("straight/")]
        general = f"redis.call('SET', '{{{self.name}}}general', '1')\n"
        parts = [source(name) for name in before[0] if straight and name not in libraries]
        text = "".join([*parts, general, *map(source, libraries), source(own)])
        text = text.replace("call('TIME')", f"call('HMGET', '{{{self.name}}}clock', 's', 'us')")
        for expiry in ("'PX', '10000'", "'PX', MEMO", "'PX', wait + 50"):
            text = text.replace(expiry, "'PX', '99999999'")
        return text.replace("list, LISTENS", "list, '99999999'")

    def stored(self, base: str) -> dict[str, Any]:
        """All stored data of a namespace. Of the events, not their ids; of an expiry, that there is one."""
        found = sorted(self.raw.scan_iter(match=f"{base}*", count=1000))
        with self.raw.pipeline(transaction=False) as pipe:
            for key in found:
                pipe.type(key)
                pipe.pttl(key)
            about = pipe.execute()
            reads = {
                "string": pipe.get,
                "hash": pipe.hgetall,
                "set": pipe.smembers,
                "zset": lambda key: pipe.zrange(key, 0, -1, withscores=True),
                "list": lambda key: pipe.lrange(key, 0, -1),
                "stream": pipe.xrange,
            }
            for key, kind in zip(found, about[::2], strict=True):
                reads[kind](key)
            values = pipe.execute()
        values = [
            [event for _, event in v] if k == "stream" else v for k, v in zip(about[::2], values, strict=True)
        ]
        return {
            key.removeprefix(base): (value, left > 0)
            for key, value, left in zip(found, values, about[1::2], strict=True)
        }

    def call(self, verb: str, *args: Any) -> tuple[Any, bool]:
        """Call a verb in both namespaces. Returns the reply, and whether the first took the straight path."""
        replies = []
        for base, straight in zip(self.bases, (True, False), strict=True):
            self.raw.delete(f"{{{self.name}}}general")
            try:
                replies.append(self.raw.eval(self.text(verb, straight), 1, base, *args))
            except ResponseError as error:  # an answer like others
                replies.append(re.sub(r" script: .*", "", str(error)).replace(base, ""))
            if straight:
                went_straight = not self.raw.exists(f"{{{self.name}}}general")
        assert replies[0] == replies[1]
        assert self.stored(self.bases[0]) == self.stored(self.bases[1])
        TAKEN[verb] += 1
        TAKEN[f"{verb} straight"] += went_straight
        return replies[0], went_straight

    def submit(self, n: int = 1, queue: str = "q", rules: str = "", payload: str = "{}") -> bool:
        jobs = [(f"j{next(self.ids)}", queue, "t", rules, payload) for _ in range(n)]
        return self.call("submit", *itertools.chain(*jobs))[1]

    def claim(
        self, n: Any = 1, *queues: str, lease: Any = 30000, claim_id: str = "", worker: str = "w"
    ) -> bool:
        claim_id = claim_id or f"claim-{next(self.claimed):022d}"
        reply, straight = self.call("claim", claim_id, worker, lease, n, *(queues or ("q",)))
        if isinstance(reply, list):
            self.leases += [(reply[i], reply[0]) for i in range(3, len(reply), 6)]
        return straight

    def complete(self, *leases: tuple[str, str], result: str = "null") -> bool:
        leases = leases or (self.leases.pop(),)
        return self.call("complete", *itertools.chain(*((*lease, result) for lease in leases)))[1]

    def both(self, command: str, key: str, *words: Any) -> None:
        """Run a command on a key of both namespaces."""
        for base in self.bases:
            self.raw.execute_command(command, base + key, *words)


@pytest.fixture
def twins(raw: Any, place: Any) -> Twins:
    return Twins(raw, f"{place.settings.namespace}:0")


def test_plain_jobs_take_the_straight_path(twins: Twins) -> None:
    assert not twins.submit()  # a new queue
    assert [twins.submit() for _ in range(10)] == [True] * 10
    assert twins.submit(2)
    assert [twins.claim(), twins.claim(3, "r", "q"), twins.claim(100)] == [True] * 3
    assert [twins.complete(), twins.complete(*twins.leases)] == [True] * 2
    assert twins.claim()  # nothing waits
    twins.submit(queue="r")
    assert [twins.submit(), twins.submit(queue="r"), twins.claim(9, "q", "r")] == [True] * 3
    assert twins.complete(*twins.leases[-3:])
    twins.elapse(86_400_001)
    twins.submit(2)
    twins.claim(2)
    assert twins.complete(*twins.leases[-2:])  # deletes completed jobs past their retention
    assert len(twins.raw.keys(f"{twins.bases[0]}:job:*")) == 16 - 4 + 2


DOTS = (".", "..")
SUBMITS: dict[str, Any] = {
    "rules": lambda t: t.submit(rules="tries=1"),
    "a long payload": lambda t: t.submit(payload="x" * 1025),
    "a new queue": lambda t: t.submit(queue="new"),
    "a queue with settings": lambda t: (t.call("configure", "q", 0, "jobs=9"), t.submit())[1],
    "a known id": lambda t: t.call("submit", "j0", "q", "t", "", "{}")[1],
    "an invalid id": lambda t: t.call("submit", "a b", "q", "t", "", "{}")[1],
    "a long id": lambda t: t.call("submit", "a" * 65, "q", "t", "", "{}")[1],
    "an invalid queue": lambda t: (t.both("HSET", ":queues", "a b", ""), t.submit(queue="a b"))[1],
    "a long queue": lambda t: (t.both("HSET", ":queues", "a" * 129, ""), t.submit(queue="a" * 129))[1],
    "an invalid task": lambda t: t.call("submit", "x", "q", "a b", "", "{}")[1],
    "a long task": lambda t: t.call("submit", "x", "q", "a" * 129, "", "{}")[1],
    **{f"the id {dots}": lambda t, dots=dots: t.call("submit", dots, "q", "t", "", "{}")[1] for dots in DOTS},
    **{
        f"the queue {dots}": lambda t, dots=dots: (t.both("HSET", ":queues", dots, ""), t.submit(queue=dots))[
            1
        ]
        for dots in DOTS
    },
    **{
        f"the task {dots}": lambda t, dots=dots: t.call("submit", "x", "q", dots, "", "{}")[1]
        for dots in DOTS
    },
    "another layout": lambda t: (t.both("HSET", "", "layout", "2"), t.submit())[1],
    "a worker that waits for a pattern": lambda t: (t.claim(1, "q*"), t.submit())[1],
    "a broken number in order of queueing": lambda t: (t.both("HSET", "", "seq", "x"), t.submit())[1],
}
PLAIN_JOB = ("x", "q", "t", "", "{}")
SECOND: dict[str, Any] = {
    "half a job": PLAIN_JOB[:4],
    "rules": ("x", "q", "t", "tries=1", "{}"),
    "another queue": ("x", "r", "t", "", "{}"),
    "a long payload": ("x", "q", "t", "", "x" * 1025),
    "a known id": ("j0", "q", "t", "", "{}"),
    "the id of the first": ("first", "q", "t", "", "{}"),
    "an invalid id": ("a b", "q", "t", "", "{}"),
    "a long id": ("a" * 65, "q", "t", "", "{}"),
    "an invalid task": ("x", "q", "a b", "", "{}"),
    "a long task": ("x", "q", "a" * 129, "", "{}"),
    **{f"the id {dots}": (dots, "q", "t", "", "{}") for dots in DOTS},
    **{f"the task {dots}": ("x", "q", dots, "", "{}") for dots in DOTS},
}
"""What the second of two jobs has."""
MANY: dict[str, Any] = {
    **{
        f"a second job with {what}": lambda t, words=words: t.call("submit", "first", *PLAIN_JOB[1:], *words)[
            1
        ]
        for what, words in SECOND.items()
    },
    "201 jobs": lambda t: t.submit(201),
    "rules": lambda t: t.submit(2, rules="tries=1"),
    "a new queue": lambda t: t.submit(2, "new"),
    "a queue with settings": lambda t: (t.call("configure", "q", 0, "jobs=9"), t.submit(2))[1],
    "an invalid queue": lambda t: (t.both("HSET", ":queues", "a b", ""), t.submit(2, "a b"))[1],
    "a long queue": lambda t: (t.both("HSET", ":queues", "a" * 129, ""), t.submit(2, "a" * 129))[1],
    **{
        f"the queue {dots}": lambda t, dots=dots: (t.both("HSET", ":queues", dots, ""), t.submit(2, dots))[1]
        for dots in DOTS
    },
    "another layout": lambda t: (t.both("HSET", "", "layout", "2"), t.submit(2))[1],
    "a worker that waits for a pattern": lambda t: (t.claim(1, "q*"), t.submit(2))[1],
    "a broken number in order of queueing": lambda t: (t.both("HSET", "", "seq", "x"), t.submit(2))[1],
}
CLAIMS: dict[str, Any] = {
    "no jobs wanted": lambda t: t.claim(0),
    "too many jobs": lambda t: t.claim(101),
    "half a job": lambda t: t.claim(1.5),
    "no number": lambda t: t.claim("x"),
    "five queues": lambda t: t.claim(1, "q", "r", "s", "t", "u"),
    "one queue twice": lambda t: t.claim(3, "q", "q"),
    "a pattern": lambda t: t.claim(1, "q*"),
    "a long queue": lambda t: t.claim(1, "q" * 129),
    "a worker that waits for a pattern": lambda t: (t.claim(1, "r*"), t.claim())[1],
    "a worker that was replaced": lambda t: (t.both("HSET", "", "replaced", "life 9999999999999"), t.claim())[
        1
    ],
    "a short lease": lambda t: t.claim(lease=1999),
    "an invalid lease": lambda t: t.claim(lease="3e4"),
    "a long lease": lambda t: t.claim(lease="9" * 15),
    "an invalid claim": lambda t: t.claim(claim_id="a b" * 9),
    "a short claim": lambda t: t.claim(claim_id="a" * 21),
    "a long claim": lambda t: t.claim(claim_id="a" * 65),
    "a repeated claim": lambda t: (t.claim(claim_id="a" * 22), t.claim(claim_id="a" * 22))[1],
    "an invalid worker": lambda t: t.claim(worker="a b"),
    "a long worker": lambda t: t.claim(worker="a" * 129),
    **{f"the queue {dots}": lambda t, dots=dots: t.claim(1, dots) for dots in DOTS},
    **{f"the worker {dots}": lambda t, dots=dots: t.claim(worker=dots) for dots in DOTS},
    "another layout": lambda t: (t.both("HSET", "", "layout", "2"), t.claim())[1],
    "a lease that ends soon": lambda t: (t.claim(lease=3000), t.elapse(1001), t.claim())[2],
    "a job that is due soon": lambda t: (t.submit(rules="delay=1999"), t.claim())[1],
    "an occurrence that is due soon": lambda t: (
        t.both("ZADD", ":schedules", t.us // 1000 + 1999, "s"),
        t.claim(),
    )[1],
    "very many counts": lambda t: (
        t.both("HSET", ":counts", *itertools.chain(*((f"c{i}", 1) for i in range(20000)))),
        t.claim(),
    )[1],
    "a paused queue": lambda t: (t.call("pause", "q", 0), t.claim())[1],
    "a queue with limits of what runs": lambda t: (t.call("configure", "q", 0, "concurrency=2"), t.claim())[
        1
    ],
    "a job with rules": lambda t: (t.submit(rules="priority=1"), t.claim())[1],
    "a released job": lambda t: (t.claim(), t.call("release", *t.leases[-1], 0, "released", ""), t.claim())[
        -1
    ],
    "a second attempt": lambda t: (t.both("HSET", ":job:j0", "attempt", 1), t.claim())[1],
    "a retried job": lambda t: (t.both("HSET", ":job:j0", "tries_left", 1), t.claim())[1],
    "a long payload": lambda t: (t.claim(3), t.submit(payload="x" * 1025), t.claim())[2],
    "a job that is in two places": lambda t: (t.both("HSET", ":job:j0", "state", "dead"), t.claim())[1],
    "an id without a job": lambda t: (t.both("DEL", ":job:j0"), t.claim())[1],
    "a broken job": lambda t: (t.both("HSET", ":job:j0", "spec", "x"), t.claim())[1],
}
COMPLETIONS: dict[str, Any] = {
    "no lease": lambda t: t.call("complete")[1],
    "two arguments": lambda t: t.call("complete", *t.leases[0])[1],
    "too many leases": lambda t: (t.submit(64), t.claim(70), t.complete(*t.leases[:65]))[-1],
    "one lease twice": lambda t: t.complete(t.leases[0], t.leases[0]),
    "another token": lambda t: t.complete((t.leases[0][0], "1.x")),
    "no job": lambda t: t.complete(("x", t.leases[0][1])),
    "another layout": lambda t: (t.both("HSET", "", "layout", "2"), t.complete())[1],
    "a limit of finished jobs": lambda t: (t.both("HSET", ":queues", "*", "1 configure completed=1"), t.complete())[1],
    "very many queues": lambda t: (
        t.both("HSET", ":queues", *itertools.chain(*((f"q{i}", "1 pause") for i in range(10001)))), t.complete())[1],
    "very many counts": lambda t: (
        t.both("HSET", ":counts", *itertools.chain(*((f"c{i}", 1) for i in range(20000)))), t.complete())[1],
    "as many completed jobs as are kept": lambda t: (
        t.both("ZADD", ":completed", *itertools.chain(*((t.us, f"c{i}") for i in range(100_000)))), t.complete())[1],
    "more dead jobs than are kept": lambda t: (
        t.both("ZADD", ":dead", *itertools.chain(*((t.us, f"c{i}") for i in range(100_001)))), t.complete())[1],
    "a dead job past its retention": lambda t: (t.both("ZADD", ":dead", 1, "x"), t.complete())[1],
    "a cancelled job past its retention": lambda t: (t.both("ZADD", ":cancelled", 1, "x"), t.complete())[1],
    "a second attempt": lambda t: (
        t.call("release", *t.leases.pop(), 0, "released", ""), t.claim(2), t.complete(*t.leases))[2],
    "a job that is watched": lambda t: (t.call("watch", t.leases[-1][0]), t.complete())[1],
    "a job that holds a place": lambda t: (t.call("configure", "q", 0, "concurrency=2"), t.complete())[1],
    "a job with a log": lambda t: (t.call("note", *t.leases[-1], "", "log"), t.complete())[1],
    "a job with an operator's order": lambda t: (t.both("HSET", f":job:{t.leases[-1][0]}", "ops", 1), t.complete())[1],
    "a job with rules": lambda t: (t.submit(rules="retention=1"), t.claim(2), t.complete())[2],
    "a long payload": lambda t: (t.submit(payload="x" * 1025), t.claim(2), t.complete())[2],
    "a broken moment": lambda t: (t.both("HSET", f":job:{t.leases[-1][0]}", "claimed_at", "x"), t.complete())[1],
    "a long moment": lambda t: (t.both("HSET", f":job:{t.leases[-1][0]}", "claimed_at", "1" * 17), t.complete())[1],
    "no worker": lambda t: (t.both("HDEL", f":job:{t.leases[-1][0]}", "worker"), t.complete())[1],
    "a completed job": lambda t: (t.complete(t.leases[-1]), t.complete())[1],
}  # fmt: skip


@pytest.mark.real_server
@pytest.mark.parametrize("what", SUBMITS)
def test_a_submit_with_this_is_not_plain(twins: Twins, what: str) -> None:
    twins.submit()
    assert not SUBMITS[what](twins)


@pytest.mark.real_server
@pytest.mark.parametrize("what", MANY)
def test_a_submit_of_many_jobs_with_this_is_not_plain(twins: Twins, what: str) -> None:
    twins.submit()
    assert not MANY[what](twins)


@pytest.mark.real_server
@pytest.mark.parametrize("what", CLAIMS)
def test_a_claim_with_this_is_not_plain(twins: Twins, what: str) -> None:
    for _ in range(3):
        twins.submit()
    assert not CLAIMS[what](twins)


@pytest.mark.real_server
@pytest.mark.parametrize("what", COMPLETIONS)
def test_a_completion_with_this_is_not_plain(twins: Twins, what: str) -> None:
    twins.submit(2)
    twins.claim()
    assert not COMPLETIONS[what](twins)


BROKEN = [
    ("HSET", ":backlog", "q jobs", "x"), ("HSET", ":backlog", "q jobs", "-5"), ("HSET", ":backlog", "q bytes", "x"),
    ("HSET", ":backlog", "q running", "x"), ("HSET", ":backlog", "q running", "-5"), ("HSET", ":counts", "q wait 5", "x"),
    ("HSET", ":counts", "q completed ms", "x"), ("HSET", "", "submitted", "x"), ("HSET", "", "completed", "x"),
    ("HSET", "", "fence", "x"), ("DEL", ":wake:q"), ("RPUSH", ":wake:q", "1"), ("DEL", ":backlog"),
]  # fmt: skip
PLAIN = st.one_of(
    st.tuples(
        st.just("submit"),
        st.sampled_from((1, 1, 2, 23)),
        st.sampled_from(QUEUES),
        st.just(""),
        st.sampled_from(("", "{}", "x" * 1024)),
    ),
    st.tuples(
        st.just("claim"), st.sampled_from((1, 3, 12)), st.sampled_from((("q",), ("q", "r"))), st.just(30000)
    ),
    st.tuples(st.just("complete"), st.integers(1, 12), st.just(False)),
)
ODD = st.one_of(
    st.tuples(st.just("submit"), st.sampled_from((1, 2, 12)), st.sampled_from(QUEUES), st.sampled_from(RULES), st.sampled_from(("{}", "x" * 1025))),
    st.tuples(st.just("claim"), st.sampled_from((1, 3)), st.sampled_from((("q", "q"), ("q*", "r"), ("r",))), st.sampled_from((2500, 400000))),
    st.tuples(st.just("complete"), st.integers(1, 12), st.just(True)),
    st.tuples(st.sampled_from(("fail", "release", "watch", "note", "heartbeat"))),
    st.tuples(st.just("elapse"), st.sampled_from((6, 1500, 2500, 40000, 90_000_000))),
    st.tuples(st.just("settings"), st.sampled_from(("pause", "resume"))),
    st.tuples(st.just("break"), st.sampled_from(BROKEN)),
)  # fmt: skip
STEPS = st.one_of(PLAIN, PLAIN, ODD)


def step(twins: Twins, what: str, *how: Any) -> None:
    """Do one drawn step in both namespaces."""
    if what == "submit":
        twins.submit(how[0], *how[1:])
    elif what == "claim":
        twins.claim(how[0], *how[1], lease=how[2])
    elif what == "complete" and twins.leases:
        chosen = twins.leases[-how[0] :]
        if not how[1]:
            del twins.leases[-how[0] :]
        twins.complete(*chosen)
    elif what == "elapse":
        twins.elapse(*how)
    elif what == "settings":
        revision = (twins.raw.hget(f"{twins.bases[0]}:queues", "q") or "0").split() or ["0"]
        twins.call(how[0], "q", revision[0])
    elif what == "break":
        twins.both(*how[0])
    elif twins.leases:
        lease = twins.leases[-1]
        words = {"fail": (*lease, "Boom", "", "", "yes"), "release": (*lease, 0, "released", ""), "watch": lease[:1],
                 "note": (*lease, "checkpoint", "log"), "heartbeat": (30000, *lease, "")}[what]  # fmt: skip
        twins.call(what, *words)


@pytest.mark.real_server
def test_random_calls_have_the_same_effect_with_and_without_the_straight_paths(raw: Any, place: Any) -> None:
    @settings(
        max_examples=few(320), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(st.lists(STEPS, min_size=20, max_size=40))
    def same(steps: list[Any]) -> None:
        twins = Twins(raw, f"{place.settings.namespace}:0")
        for drawn in steps:
            step(twins, *drawn)

    TAKEN.clear()
    same()
    for verb in STRAIGHT:
        assert 0 < TAKEN[f"{verb} straight"] < TAKEN[verb], "both paths are to be tried"
