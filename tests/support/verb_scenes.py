"""A scene for each verb: a small namespace in which one call of it has an effect, a later change, and the
replies to a copy of the request before and after that change. For tests that run every verb.

All durations are whole minutes, so that `plain` gives the same text for the stored data of every run.
"""

import copy
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from sublet.errors import Changed, LeaseLost, NotFound, WrongState
from sublet.model import (
    Beat,
    Card,
    Claimed,
    Completion,
    Description,
    Failure,
    Lease,
    Note,
    Reaped,
    Release,
    Standing,
    State,
    Submission,
    Submitted,
    Suspension,
)
from sublet.operations import pools
from sublet.operations.pools import Summoning
from sublet.protocol import flow, keys, verbs
from sublet.protocol.scripts import Call
from sublet.schedules import firing
from sublet.schedules.firing import FireRequest, Picked
from sublet.steps import calls as steps
from sublet.steps import chunks
from sublet.workflows import following, storing
from tests.support.paths import ROOT

MINUTE = 60


class Stage(NamedTuple):
    """The prepared scene of one verb."""

    call: Call[Any]
    """The call."""
    again: Any
    """The reply to a copy before the change; None for the first reply; NotFound if that is raised."""
    moves: Callable[[Any], Awaitable[Any]]
    """Makes the later change, given the first reply."""
    late: Any
    """The reply to a copy after the change; an exception's class for a refusal."""


async def reply_of(call: Awaitable[Any]) -> Any:
    """A call's reply, or NotFound: a repeated erase raises it."""
    try:
        return await call
    except NotFound:
        return NotFound


def claim_id(job_id: str) -> str:
    """A claim id that is the same in every run."""
    return f"the-claim-that-takes-{job_id}"


async def running(desk: Any, job_id: str, rules: str = "", lease: float = 2 * MINUTE) -> Lease:
    return await desk.running(job_id, rules, claim_id=claim_id(job_id), lease=lease)


async def take(desk: Any, job_id: str) -> Lease:
    return await desk.take(job_id, worker="another", claim_id="another-" + claim_id(job_id), lease=2 * MINUTE)


async def init(desk: Any) -> Stage:
    desk.raw.delete(desk.base)
    return Stage(verbs.init(desk.base), None, lambda _: desk.submit("a"), "1")


async def submit(desk: Any) -> Stage:
    jobs = [
        Submission("new", "q", "t", "key=k", b"{}"),
        Submission("later", "q", "t", "delay=960000 tags=x", b"x" * 2000),
    ]
    desk.raw.zadd(keys.tag(desk.base, "x"), {"deleted": 1})
    known = [Submitted("new", False), Submitted("later", False)]

    async def moves(_: Any) -> None:
        await desk.complete(await take(desk, "new"))

    return Stage(verbs.submit(desk.base, jobs), known, moves, known)


async def workflow(desk: Any) -> Stage:
    await desk.submit("before")
    one = [Submission(name, "q", "t", "", b"{}") for name in ("first", "second")]
    jobs = [storing.Linked(one[0], ["before"]), storing.Linked(one[1], ["first"])]
    known = [Submitted("first", False), Submitted("second", False)]
    call = storing.workflow(desk.base, "f", "seal", jobs)
    return Stage(call, known, lambda _: desk.operate("cancel", "before"), known)


async def claim(desk: Any) -> Stage:
    await desk.running("lost", lease=MINUTE, claim_id=claim_id("lost"))
    await desk.submit("due", rules="delay=60000")
    desk.elapse(2 * MINUTE)
    await desk.submit("a", payload=b"x" * 2000)
    await desk.submit("b")
    call = verbs.claim(desk.base, claim_id=claim_id("two"), worker="w", lease=2 * MINUTE, n=2, queues=["q"])

    async def moves(claimed: Claimed) -> None:
        for lease in claimed.leases:
            await desk.complete(lease)

    return Stage(call, None, moves, Claimed([], 2.0))


async def heartbeat(desk: Any) -> Stage:
    lease = await running(desk, "a")

    async def moves(_: Any) -> None:
        desk.elapse(5 * MINUTE)
        await take(desk, "a")

    return Stage(
        verbs.heartbeat(desk.base, [Beat(lease, b"0.5")], lease=4 * MINUTE), None, moves, ["LEASE_LOST"]
    )


async def complete(desk: Any) -> Stage:
    lease = await running(desk, "a", "retention=60000 key=k")
    await desk.watch("a")

    async def moves(_: Any) -> None:
        desk.elapse(2 * MINUTE)
        await desk.prune()
        await desk.submit("a")

    return Stage(verbs.complete(desk.base, [Completion(lease, b'"done"')]), None, moves, ["LEASE_LOST"])


async def proceed(desk: Any) -> Stage:
    lease = await running(desk, "a")
    jobs = [
        storing.Linked(Submission("b", "q", "t", "", b"{}")),
        storing.Linked(Submission("c", "q", "t", "", b"{}"), ["b"]),
    ]
    call = following.proceed(desk.base, Completion(lease, b"1"), "flow", jobs)
    return Stage(call, None, lambda _: take(desk, "b"), "completed")


async def fail(desk: Any) -> Stage:
    lease = await running(desk, "a")

    async def moves(_: Any) -> None:
        await desk.operate("promote", "a")
        await take(desk, "a")

    return Stage(
        verbs.fail(desk.base, [Failure(lease, "Boom", "words", "more")]), None, moves, ["LEASE_LOST"]
    )


async def release(desk: Any) -> Stage:
    lease = await running(desk, "a")

    async def moves(_: Any) -> None:
        await take(desk, "a")

    return Stage(verbs.release(desk.base, [Release(lease, 0, "why")]), None, moves, ["LEASE_LOST"])


async def cancel(desk: Any) -> Stage:
    await desk.submit("a", rules="key=k")
    return Stage(verbs.cancel(desk.base, "a", 0), None, lambda _: desk.operate("retry", "a"), Changed)


async def retry(desk: Any) -> Stage:
    await desk.fail(await running(desk, "a", "key=k"), again=False)
    return Stage(verbs.retry(desk.base, "a", 1), None, lambda _: take(desk, "a"), Changed)


async def promote(desk: Any) -> Stage:
    await desk.submit("a", rules="delay=960000")
    return Stage(verbs.promote(desk.base, "a", 0), None, lambda _: take(desk, "a"), Changed)


async def reschedule(desk: Any) -> Stage:
    await desk.submit("a", rules="key=k")
    call = verbs.reschedule(desk.base, "a", 0, "priority=5 delay=960000")
    return Stage(call, None, lambda _: desk.operate("promote", "a"), Changed)


async def erase(desk: Any) -> Stage:
    await desk.fail(await running(desk, "a", "key=k window=60000"), again=False)
    return Stage(verbs.erase(desk.base, "a", 1), NotFound, lambda _: desk.submit("a"), Changed)


async def reap(desk: Any) -> Stage:
    await running(desk, "lost", lease=MINUTE)
    await desk.submit("due", rules="delay=60000")
    desk.elapse(2 * MINUTE)
    nothing = Reaped(0, 0, False, False, 0, 1)
    return Stage(verbs.reap(desk.base, limit=10, by="tick"), nothing, lambda _: take(desk, "lost"), nothing)


async def prune(desk: Any) -> Stage:
    await desk.complete(await running(desk, "old", "retention=60000"))
    desk.elapse(2 * MINUTE)
    kept = await running(desk, "kept")
    return Stage(verbs.prune(desk.base, limit=10), (0, False), lambda _: desk.complete(kept), (0, False))


async def watch(desk: Any) -> Stage:
    lease = await running(desk, "a")

    async def moves(_: Any) -> None:
        await desk.complete(lease, b'"done"')

    ended = [Standing(State.COMPLETED, b'"done"', "<0> w <0> completed")]
    return Stage(verbs.watch(desk.base, ["a"]), None, moves, ended)


async def pause(desk: Any) -> Stage:
    await desk.submit("a")
    return Stage(
        verbs.pause(desk.base, "q", 0), None, lambda _: desk.run(verbs.resume(desk.base, "q", 1)), Changed
    )


async def resume(desk: Any) -> Stage:
    await desk.run(verbs.pause(desk.base, "q", 0))
    await desk.submit("a")
    return Stage(
        verbs.resume(desk.base, "q", 1), None, lambda _: desk.run(verbs.pause(desk.base, "q", 2)), Changed
    )


async def configure(desk: Any) -> Stage:
    await desk.submit("a")
    call = verbs.configure(desk.base, "q", 0, "jobs=2 bytes=1000")
    return Stage(call, None, lambda _: desk.run(verbs.configure(desk.base, "q", 1, "jobs=3")), Changed)


async def group(desk: Any) -> Stage:
    await desk.submit("a", "b", rules="group=g")
    await desk.operate_queue("configure", "q", None, "group_concurrency=1")
    await take(desk, "a")
    call = flow.group(desk.base, "q", 1, "g", "concurrency=2 share=3")
    return Stage(call, None, lambda _: desk.run(flow.group(desk.base, "q", 2, "g", "")), Changed)


async def spend(desk: Any) -> Stage:
    await desk.operate_queue("configure", "q", None, "group_rate=1 group_per=6000000")
    lease = await running(desk, "a", "group=g cost=2")

    async def moves(_: Any) -> None:
        await desk.complete(lease)

    return Stage(flow.spend(desk.base, [(lease, 9)]), None, moves, ["LEASE_LOST"])


async def audit(desk: Any) -> Stage:
    def call(order: str) -> Call[str]:
        return verbs.audit(desk.base, order * 22, "anna", "retry", "task=t", "q", "5 jobs found")

    return Stage(call("a"), None, lambda _: desk.run(call("b")), "recorded")


async def note(desk: Any) -> Stage:
    lease = await running(desk, "a")

    async def moves(_: Any) -> None:
        await desk.release(lease)
        await take(desk, "a")

    return Stage(verbs.note(desk.base, [Note(lease, b"[1]", b"one\ntwo")]), None, moves, ["LEASE_LOST"])


async def emit(desk: Any) -> Stage:
    lease = await running(desk, "a")

    async def moves(_: Any) -> None:
        await desk.release(lease)
        await take(desk, "a")

    return Stage(chunks.emit(desk.base, lease, chunks.Emission(0, [b"1", b"2"])), None, moves, LeaseLost)


async def step(desk: Any) -> Stage:
    lease = await running(desk, "a")
    sent = steps.step(desk.base, lease, {"paid": b"1"})
    call = sent._replace(read=lambda reply: [name for name in sent.read(reply)])

    async def moves(_: Any) -> None:
        await desk.release(lease)
        await take(desk, "a")

    return Stage(call, ["paid"], moves, LeaseLost)


async def call(desk: Any) -> Stage:
    lease = await running(desk, "a")
    job = Submission("0-unused", "q", "t", "priority=5", b"{}")
    sent = steps.call(desk.base, lease, steps.CalledJob("label", job))

    async def moves(_: Any) -> None:
        await desk.release(lease)
        await take(desk, next(iter(desk.members("queue:q"))))
        await take(desk, "a")

    return Stage(sent._replace(read=lambda reply: sent.read(reply).kind), None, moves, LeaseLost)


async def suspend(desk: Any) -> Stage:
    lease = await running(desk, "a")

    async def moves(_: Any) -> None:
        await desk.signal("a")
        await take(desk, "a")

    call = steps.suspend(desk.base, [Suspension(lease, "signal", "go", 16 * MINUTE)])
    return Stage(call, None, moves, ["LEASE_LOST"])


async def signal(desk: Any) -> Stage:
    await desk.suspend(await running(desk, "a"))

    async def moves(_: Any) -> None:
        await desk.complete(await take(desk, "a"))

    return Stage(steps.signal(desk.base, "a", "go", b"true"), None, moves, WrongState)


async def enlist(desk: Any) -> Stage:
    await desk.enlist("w", "an-earlier-life")
    card = Card("w", "life", "worker_id", b'{"pid":1}')
    return Stage(verbs.enlist(desk.base, card), None, lambda _: desk.drain("w", "life"), "drain")


async def drain(desk: Any) -> Stage:
    await desk.enlist("w", "life")
    return Stage(verbs.drain(desk.base, "w", "life"), None, lambda _: desk.enlist("w", "another"), Changed)


async def reconcile(desk: Any) -> Stage:
    await desk.enlist("w", "life")
    leases = [
        (job_id, (await running(desk, job_id, rules)).attempt)
        for job_id, rules in (("a", "tries=1 key=k"), ("b", ""))
    ]
    return Stage(
        verbs.reconcile(desk.base, "w", "life", leases), None, lambda _: take(desk, "b"), ["dead", "LEASE_LOST"]
    )  # fmt: skip


async def publish(desk: Any) -> Stage:
    tasks = [Description("a", "ab" * 8, b"{}"), Description("b", "cd" * 8, b"[]")]
    later = [Description("a", "ef" * 8, b"{}")]

    async def moves(_: Any) -> None:
        await desk.run(verbs.publish(desk.base, later, starting=True))

    call = verbs.publish(desk.base, tasks, starting=False)
    return Stage(call, ["kept", "kept"], moves, ["kept", "kept"])


async def sample(desk: Any) -> Stage:
    await desk.submit("a")
    sent = verbs.sample(desk.base, 1, desk.raw.time()[0] * 1000)
    call = sent._replace(read=lambda reply: sent.read(reply)[0])
    return Stage(call, "kept", lambda _: desk.submit("b"), "kept")


async def overdue(desk: Any) -> int:
    """A schedule whose occurrence was a minute ago; returns that occurrence."""
    occurrence: int = desk.now() - MINUTE * 1000
    await desk.put("sched", occurrence=occurrence, overlap="queue", rules="tries=2", payload=b"x" * 2000)
    return occurrence


async def schedule(desk: Any) -> Stage:
    occurrence = desk.now() + 10 * MINUTE * 1000
    what = dict(
        plan=b"{}",
        queue="q",
        task="t",
        rules="tries=2",
        overlap="skip",
        paused=False,
        occurrence=occurrence,
        due=occurrence,
        payload=b"{}",
    )
    return Stage(
        firing.schedule(desk.base, "sched", 0, **what), None, lambda _: desk.put("sched", 1, occurrence=occurrence, task="other"), Changed
    )  # fmt: skip


async def pick(desk: Any) -> Stage:
    occurrence = await overdue(desk)
    nothing = Picked(desk.now(), False, [])

    async def moves(picked: Picked) -> None:
        assert (
            await desk.fire(picked.picks[0], occurrence, then=occurrence + 600 * MINUTE * 1000) == "fired 1"
        )

    return Stage(firing.pick(desk.base, unread=[("other", "1")]), nothing, moves, nothing)


async def fire(desk: Any) -> Stage:
    occurrence = await overdue(desk)
    later = occurrence + 600 * MINUTE * 1000
    shot = FireRequest((await desk.pick()).picks[0], [occurrence], 3, later, later)
    return Stage(
        firing.fire(desk.base, "tick", [shot]), None, lambda _: desk.put("sched", 1, occurrence=later, task="other"), ["CHANGED"]
    )  # fmt: skip


async def pool(desk: Any) -> Stage:
    call = pools.pool(desk.base, "p", 0, "queues=q,r invoker=http max=3", "https://example.org/work")
    return Stage(call, None, lambda _: desk.pool("p", 1, "queues=q invoker=none"), Changed)


async def summon(desk: Any) -> Stage:
    settings = "queues=q invoker=none slots=1 arrive=600000"
    await desk.pool("p", 0, settings, "there")
    await desk.submit(*(f"j{i}" for i in range(30)))
    numbers = {
        "ready": 30,
        "running": 0,
        "rate": 0,
        "run": 1000,
        "need": 6000,
        "wanted": 6,
        "crew": 0,
        "summoned": 3,
        "owed": 3,
    }

    async def moves(_: Any) -> None:
        for i in range(1, 4):
            await desk.join(f"w{i}", f"{claim_id('p')}.{i}")
        await desk.summon(3, summons=claim_id("more"))

    late = numbers | {"crew": 3, "summoned": 3, "owed": 0}
    return Stage(
        pools.summon(desk.base, "p", summons=claim_id("p"), n=3), Summoning(3, "", settings, "there", numbers), moves,
        Summoning(0, "", settings, "there", late),
    )  # fmt: skip


async def complain(desk: Any) -> Stage:
    await desk.pool()
    call = pools.complain(desk.base, "p", summons=claim_id("p"), n=2, reason="it answers 503")
    return Stage(call, None, lambda _: desk.pool("p", 1, ""), NotFound)


async def repair(desk: Any) -> Stage:
    await running(desk, "held")
    await desk.submit("a", "b", rules="key=k")
    await desk.submit("c")
    desk.raw.delete(keys.queue(desk.base, "q"), keys.lock(desk.base, "q", "k"))
    desk.raw.zadd(keys.structure(desk.base, "dead"), {"held": 1})
    call = verbs.repair(desk.base, "mend", [("job", "held"), ("job", "a"), ("job", "c")])

    async def moves(_: Any) -> None:
        await desk.complete(await take(desk, "a"))

    return Stage(call, ["sound"] * 3, moves, ["sound"] * 3)


async def recount(desk: Any) -> Stage:
    await desk.submit("a", "b", payload=b"x" * 50)
    desk.raw.hset(keys.backlog(desk.base), mapping={"q jobs": 7, "q running": 2})
    stamp = desk.raw.xrevrange(keys.events(desk.base), count=1)[0][0]
    call = verbs.recount(desk.base, "mend", stamp, [("q", 2, 100, 0)])
    return Stage(call, ["sound"], lambda _: take(desk, "a"), Changed)


async def drop(desk: Any) -> Stage:
    await desk.submit("a")

    async def moves(_: Any) -> None:
        desk.raw.delete(desk.base)
        await desk.run(verbs.init(desk.base))

    return Stage(verbs.drop(desk.base, 1), None, moves, Changed)


STAGES: dict[str, Callable[[Any], Awaitable[Stage]]] = {
    stage.__name__: stage
    for stage in (
        init, submit, workflow, claim, heartbeat, complete, proceed, fail, release, cancel, retry, promote, reschedule, erase, reap, prune, watch,
        pause, resume, configure, group, spend, audit, note, emit, step, call, suspend, signal, enlist, drain, reconcile, publish, sample, schedule, pick, fire, pool, summon, complain,
        repair, recount, drop,
    )
}  # fmt: skip


async def stage(verb: str, desk: Any) -> Stage:
    """Prepare a verb's scene; a verb without one fails its tests."""
    assert verb in STAGES, f"{verb} has no stage: add one with its effect and the replies to its copies"
    return await STAGES[verb](desk)


def elsewhere(desk: Any, base: str = "") -> Any:
    """The same desk in another partition: the next one, unless given."""
    other = copy.copy(desk)
    other.base = base or keys.base(desk.base[1:].rpartition(":")[0], 1)
    text = (ROOT / "tests" / "support" / "elapse.lua").read_text()
    other.elapse = lambda seconds: desk.raw.eval(text, 1, other.base, round(seconds * 1000))
    return other


def plain(value: Any, desk: Any, since: int) -> str:
    """A reply or a stored value as text that is the same in every run: moments become minutes since `since`."""
    text = repr(value).replace(desk.base, "BASE")
    text = re.sub(
        r"(?:\b|(?<=\\n))\d-(?=sched:|call-)", "0-", text
    )  # the ids of some jobs have their partition in them
    text = re.sub(
        r"\b(1\d{12})(?:\.0)?\b", lambda moment: f"<{round((int(moment[1]) - since) / 60_000)}>", text
    )
    text = re.sub(r"\b\d{16}(?=\.[a-z])|(?<='fence': ')\d{16}", "FENCE", text)
    return re.sub(r"'\d{13}-\d+'|'<-?\d+>-\d+'", "ENTRY", text)


def how_often(counts: dict[str, str]) -> dict[str, int]:
    """The counters without their durations: `<queue> <event>` → how often."""
    found: Counter[str] = Counter()
    for name, number in counts.items():
        what, _, last = name.rpartition(" ")
        found[what] += int(number) * (last != "ms")
    return dict(found)


def stored(desk: Any, since: int) -> dict[str, str]:
    """All that is stored, key by key, as such text."""
    found = desk.everything()
    if keys.counts(desk.base) in found:
        found[keys.counts(desk.base)] = how_often(found[keys.counts(desk.base)])
    ordered = {
        key: dict(sorted(value.items())) if isinstance(value, dict) else value for key, value in found.items()
    }
    return {plain(key, desk, since): plain(value, desk, since) for key, value in ordered.items()}
