"""A key of a wrong type, written by another program: a verb does all of its work, or raises and has changed nothing (for every verb)."""

import re

import pytest

from sublet import NotFound, Unfit
from sublet.connection.transport import follow
from sublet.model import Beat, Card, Completion, Description, Failure, Note, Release, Submission, Suspension
from sublet.operations import pools
from sublet.operations.consistency.audit import invalid_metadata
from sublet.protocol import flow, keys, queue_names, reads, server_info, verbs
from sublet.protocol.scripts import NAMES, Call
from sublet.schedules import firing
from sublet.schedules.firing import FireRequest
from sublet.steps import calls as steps
from sublet.steps import chunks
from sublet.workflows import following, storing
from tests.conftest import SCHEDULE
from tests.support.draws import one_in

VERBS = [*(name for name in NAMES if name not in ("init", "drop")), "strike", "unschedule", "unpool"]
"""`reconcile` without leases counts as `strike`, because it touches other keys. A removal counts separately,
too."""
EVERYWHERE = ":(job|key|claim|workflow|members|upstream|stream|worker:silent|schedule:|tags$|unsettled$|tag:|(flow|turns|full|tokens|tat|places|groups|waiting):)"
UNNOTICED = {"reap": ":(schedules|pools)", "fire": ":(queue|wake):", "strike": ":crew", "unpool": ":(pool|crew|summons):",
             "repair": ":(worker|schedule|pool|crew|summons):"}  # fmt: skip
"""Keys of a wrong type that are passed over: by every verb, and by some."""


async def link(desk, job_id, *after, how="seal"):
    """A job that waits for others, or for its workflow."""
    one = storing.Linked(Submission(job_id, "q", "t", "", b"{}"), after)
    assert isinstance(await desk.run(storing.workflow(desk.base, f"flow-{job_id}", how, [one])), list)


async def scene(desk):
    """A namespace with something in every structure, and calls that touch as much of it as they can."""
    dead = await desk.running("dead", "key=dead")
    await link(desk, "cancelled", "dead")
    await desk.fail(dead, again=False)
    await desk.complete(await desk.running("done", "retention=60000"))
    desk.elapse(100)
    held = [
        await desk.running(job_id, "key=" + job_id, lease=1000, worker="w") for job_id in ("held", "also")
    ]
    await desk.submit("third", queue="r", rules="key=third")
    held += await desk.claim(queues=("r",), lease=1000)
    for name in ("one", "two"):
        await desk.put(name, overlap="queue", rules="tags=x", payload=b"x" * 2000)
    one, two = (await desk.pick()).picks
    await desk.fire(one, 1000, then=2000)
    held += await desk.claim(lease=1000)
    (one,) = (await desk.pick()).picks
    assert await desk.fire(one, 2000, then=3000) == "held 0"
    desk.raw.zadd(keys.schedules(desk.base), {"one": 1, "two": 1})
    await desk.operate_queue(
        "configure",
        "f",
        None,
        "group_concurrency=1 rate=9 per=9000000 burst=9 group_rate=9 group_per=9000000",
    )
    await desk.submit("grouped", "behind", queue="f", rules="group=g")
    await desk.submit("plain", queue="f")
    held += await desk.claim(2, queues=("f",), lease=1000)
    await desk.pool("p", 0, "queues=q,r,f invoker=none slots=1")
    desk.raw.zadd(keys.summons(desk.base, "p"), {"s" * 22 + ".9": desk.now() + 10**6, "old": 1})
    await desk.submit("late", rules="delay=1900")
    await desk.ask(0, queues=("none",), worker="other", claim_id="m" * 22)
    await desk.running("lost", lease=1)
    await desk.submit("soon", queue="s", rules="delay=1000")
    desk.elapse(1.1)
    await desk.submit("waiting", "next", payload=b"x" * 2000)
    await desk.submit("elsewhere", queue="r")
    await desk.watch("held")
    await link(desk, "below", "held")
    await link(desk, "source", how="open")
    await desk.enlist("silent")
    desk.raw.zadd(keys.workers(desk.base), {"silent": 1})
    await desk.join("w")
    seen = [
        ("job", "waiting"),
        ("queue:r", "held"),
        ("job", "grouped"),
        ("grouped:f", "behind"),
        ("key:q|dead", "dead"),
        ("worker", "w"),
        ("schedule", "one"),
        ("pool", "p"),
    ]
    submissions = [
        Submission("new", "q", "t", "key=new", b"{}"),
        Submission("newer", "r", "t", "delay=1 tags=x", b"x" * 2000),
    ]
    return {
        "submit": verbs.submit(desk.base, submissions),
        "workflow": storing.workflow(
            desk.base,
            "flow-source",
            "seal",
            [storing.Linked(Submission("linked", "r", "t", "", b"x" * 2000), ["waiting"], ["below"])],
        ),
        "claim": verbs.claim(desk.base, claim_id="c" * 22, worker="w", lease=1, n=5, queues=["q", "r", "f"]),
        "heartbeat": verbs.heartbeat(desk.base, [Beat(lease, b"1") for lease in held], lease=30),
        "complete": verbs.complete(desk.base, [Completion(lease, b"1") for lease in held]),
        "proceed": following.proceed(
            desk.base,
            Completion(held[0], b"1"),
            "flow",
            [storing.Linked(Submission("linked", "r", "t", "", b"x" * 2000), ["waiting"], ["below"])],
        ),
        "fail": verbs.fail(
            desk.base, [Failure(lease, "Boom", "m", "d", again=lease.id != "also") for lease in held]
        ),
        "release": verbs.release(desk.base, [Release(lease, 0, "why") for lease in held]),
        "cancel": verbs.cancel(desk.base, "waiting", 0, "anna"),
        "retry": verbs.retry(desk.base, "dead", 1, "anna"),
        "promote": verbs.promote(desk.base, "late", 0, "anna"),
        "reschedule": verbs.reschedule(desk.base, "late", 0, "priority=5 delay=0", "anna"),
        "postpone": verbs.reschedule(desk.base, "waiting", 0, "delay=5000", "anna"),
        "erase": verbs.erase(desk.base, "dead", 1, "anna"),
        "reap": verbs.reap(desk.base, limit=10, by="tick"),
        "prune": verbs.prune(desk.base, limit=10),
        "watch": verbs.watch(desk.base, ["waiting", "held", "dead"]),
        "pause": verbs.pause(desk.base, "q", 0, "anna"),
        "resume": verbs.resume(desk.base, "q", 0, "anna"),
        "configure": verbs.configure(desk.base, "q", 0, "jobs=5", "anna"),
        "group": flow.group(desk.base, "q", 0, "g", "concurrency=5", "anna"),
        "spend": flow.spend(desk.base, [(lease, 5) for lease in held]),
        "audit": verbs.audit(desk.base, "o" * 22, "anna", "retry", "task=t", "q", "5 jobs found"),
        "note": verbs.note(desk.base, [Note(lease, b"1", b"a line") for lease in held]),
        "emit": chunks.emit(desk.base, held[0], chunks.Emission(0, [b"1", b"2"])),
        "step": steps.step(desk.base, held[0], {"paid": b"1"}),
        "steps": steps.step(desk.base, held[0], {}),
        "call": steps.call(
            desk.base, held[0], steps.CalledJob("label", Submission("0-c", "r", "t", "", b"x" * 2000))
        ),
        "suspend": steps.suspend(desk.base, [Suspension(lease, "sleep", "nap", 1) for lease in held]),
        "signal": steps.signal(desk.base, "late", "go", b"1", "anna"),
        "enlist": verbs.enlist(desk.base, Card("w", "2", "worker_id", b"{}", "p", "s" * 22 + ".9")),
        "drain": verbs.drain(desk.base, "w", "1", "anna"),
        "reconcile": verbs.reconcile(desk.base, "w", "1", [(lease.id, lease.attempt) for lease in held]),
        "strike": verbs.reconcile(desk.base, "w", "1", []),
        "publish": verbs.publish(desk.base, [Description("t", "ab" * 8, b"{}")], starting=True),
        "sample": verbs.sample(desk.base, 5, 1000),
        "schedule": firing.schedule(desk.base, "one", 1, **SCHEDULE, occurrence=5, due=5, by="anna"),
        "unschedule": firing.unschedule(desk.base, "one", 1, by="anna"),
        "pick": firing.pick(desk.base),
        "fire": firing.fire(
            desk.base, "tick", [FireRequest(one, [], 3, 9000, 9000), FireRequest(two, [1000], 0, None, None)]
        ),
        "pool": pools.pool(desk.base, "p", 1, "queues=q invoker=http", "there"),
        "unpool": pools.pool(desk.base, "p", 1, "", ""),
        "summon": pools.summon(desk.base, "p", summons="z" * 22, n=5, leaver="w"),
        "complain": pools.complain(desk.base, "p", summons="s" * 22 + ".9", n=1, reason="it is away"),
        "repair": verbs.repair(desk.base, "mend", seen),
        "recount": verbs.recount(
            desk.base, "mend", desk.raw.xrevrange(keys.events(desk.base), count=1)[0][0], [("q", 9, 9, 9)]
        ),
    }


TRACE = """
local given = redis
local function traced(f) return function(command, ...)
  for _, word in ipairs({...}) do
    if string.sub(word, 1, #KEYS[1]) == KEYS[1] then given.call('SADD', 'trace', word) end
  end
  return f(command, ...)
end end
local redis = {error_reply = given.error_reply, call = traced(given.call), pcall = traced(given.pcall)}
"""


async def touched(desk, verb):
    """The keys that a verb reads or writes in this scene."""
    call = (await scene(desk))[verb]
    desk.raw.delete("trace")
    await desk.run(Call((("EVAL", TRACE + call.text, *call.commands[0][2:]),), call.read))
    found = {key.removeprefix(desk.base) for key in desk.raw.smembers("trace")}
    desk.raw.delete("trace")
    return sorted(found - {":", ":ended"})  # a key that never exists, and a channel


def spoil(desk, key):
    """Put a value of another type there."""
    was = desk.raw.type(key)
    desk.raw.delete(key)
    if was == "set":
        desk.raw.set(key, "of a wrong type")
    else:
        desk.raw.sadd(key, "of a wrong type")


def clear(desk):
    desk.raw.delete(*desk.raw.scan_iter(match=f"{desk.base}*", count=1000))
    return desk.run(verbs.init(desk.base))


@pytest.mark.real_server
@pytest.mark.parametrize("verb", one_in(4, VERBS))
async def test_a_key_of_a_wrong_type_causes_no_partial_write(desk, verb):
    """Each key that the verb uses gets a wrong type in turn: it raises and nothing has changed, or it does the rest of its work."""
    spoiled = await touched(desk, verb)
    assert len(spoiled) >= 5
    for name in spoiled:
        await clear(desk)
        call = (await scene(desk))[verb]
        desk.raw.persist(f"{desk.base}:alarm")  # on a busy machine it could expire during the test
        spoil(desk, desk.base + name)
        before = everything(desk)
        error = await raised(desk, call)
        if error:
            assert isinstance(error, NotFound) or "(WRONGTYPE)" in str(error), (name, error)
            assert everything(desk) == before, f"{verb} wrote data before it found {name} of a wrong type"
        else:
            passed = re.match(EVERYWHERE, name) or re.match(passed_over(verb), name)
            assert passed, f"{verb} did not check that {name} is of a wrong type"
            if everything(desk) != before:
                assert_whole(desk, name)


def passed_over(verb):
    """A pattern of the keys that a verb may ignore, besides those that all may."""
    if verb in ("claim", "complete", "fail", "release", "cancel", "reconcile"):
        return ":schedules"  # it only makes a schedule due
    return UNNOTICED.get(verb) or "$"


async def raised(desk, call):
    """The exception of a call, if any."""
    try:
        await desk.run(call)
    except (Unfit, NotFound) as error:
        return error


def everything(desk):
    sets = {
        key: desk.raw.smembers(key)
        for key in desk.raw.scan_iter(match=f"{desk.base}*")
        if desk.raw.type(key) == "set"
    }
    lost = {key: desk.raw.delete(key) for key in sets}
    found = desk.everything() | sets
    for key in lost:
        desk.raw.sadd(key, *sets[key])
    return found


def assert_whole(desk, spoiled):
    """Every remaining job is only in the structure that its state names, and the backlog is right."""
    ids = [
        key.partition(":job:")[2]
        for key in desk.raw.scan_iter(match=f"{desk.base}:job:*")
        if desk.raw.type(key) == "hash"
    ]
    states = {job_id: desk.state(job_id) for job_id in ids}
    assert all(states.values())
    for queue in ("q", "r", "s"):
        waiting = [
            i
            for i in ids
            if states[i] in ("scheduled", "queued", "running") and desk.job(i)["spec"].startswith(queue)
        ]
        gone = spoiled.startswith(":job:") and desk.backlog(queue)[0] > len(waiting)
        assert desk.backlog(queue)[0] == len(waiting) + gone


async def test_a_claim_skips_values_of_another_type(desk):
    """A key of a wrong type in a job's place blocks nothing: the id is dropped, the next job is claimed, the next worker is woken."""
    await desk.submit("a", "b", "c")
    spoil(desk, keys.job(desk.base, "a"))
    desk.raw.delete(keys.wake(desk.base, "q"))
    assert await desk.claim(1) == []
    assert desk.members("queue:q") == ["b", "c"]
    assert desk.wake_ups() == 1
    assert (await desk.take("b")).attempt == 1


FIELDS = [
    "attempt=x",
    "attempt=inf",
    "tries_left=nan",
    "claimed_at=x",
    "claimed_at=",
    "rank=nan",
    "rank=",
    "worker=",
]
"""Fields of a job that another program has changed or removed."""
WORDS = [
    "backoff=1000:2",
    "backoff=1:1.2.3:1",
    "at=zz",
    "delay=zz",
    "tries=x",
    "retention=x",
    "timeout=x",
    "priority=x",
]
"""…and words of its header."""


def spoil_job(desk, what):
    name, _, value = what.partition("=")
    spoiled = keys.job(desk.base, "spoiled")
    if what in WORDS:
        desk.raw.hset(spoiled, "spec", desk.job("spoiled")["spec"].replace("\n", f" {what}\n", 1))
    elif value:
        desk.raw.hset(spoiled, name, value)
    else:
        desk.raw.hdel(spoiled, name)


@pytest.mark.real_server
@pytest.mark.parametrize("state", ["queued", "returned", "lost", "held"])
@pytest.mark.parametrize("what", FIELDS + WORDS)
async def test_a_malformed_job_does_not_stop_others(desk, what, state):
    """Nothing raises between two writes: the job goes on with default values, as do the other jobs of the call."""
    await desk.submit("before", "spoiled", "after")
    held = [] if state == "queued" else await desk.claim(3, lease=60 if state == "held" else 1)
    if state == "lost":
        desk.raw.hset(keys.job(desk.base, "spoiled"), "streak", "lease_expired 1")  # a backoff is next
    spoil_job(desk, what)
    if state == "held":
        beats = await desk.run(verbs.heartbeat(desk.base, [Beat(lease, b"1") for lease in held], lease=30))
        assert [type(answer) for answer in beats] == [int] * 3
        output = await desk.run(
            verbs.fail(desk.base, [Failure(lease, "Boom", "m", "d", again=True) for lease in held])
        )
        assert [answer.partition(" ")[0] for answer in output] == ["scheduled"] * 3
    else:
        desk.elapse(2)
        taken = {lease.id for lease in await desk.claim(5)}
        assert taken | {"spoiled"} == {"before", "spoiled", "after"}
        assert set(desk.members("running")) == taken
        assert desk.members("scheduled") == ["spoiled"] * (state == "lost")
    assert_whole(desk, "")


@pytest.mark.parametrize("what", FIELDS + WORDS)
async def test_a_malformed_job_is_completed_with_the_others(desk, what):
    await desk.submit("before", "spoiled", "after")
    held = await desk.claim(3)
    spoil_job(desk, what)
    assert (
        await desk.run(verbs.complete(desk.base, [Completion(lease, b"1") for lease in held]))
        == ["completed"] * 3
    )
    assert_whole(desk, "")


async def test_a_claim_skips_an_invalid_header(desk):
    await desk.submit("a", "b")
    desk.raw.hset(keys.job(desk.base, "a"), "spec", "nothing that anybody reads")
    assert [lease.id for lease in await desk.claim(5)] == ["b"]


COUNTERS = ["seq", "fence", *reads.TOTALS]


@pytest.mark.parametrize("verb", VERBS)
async def test_an_invalid_counter_does_not_stop_a_call(desk, verb):
    """It starts again: a half-written move is worse than a wrong sum."""
    call = (await scene(desk))[verb]
    for name in COUNTERS:
        desk.raw.hset(desk.base, name, "spoiled")
    for queue in ("q", "r", "s"):
        desk.raw.hset(
            keys.backlog(desk.base),
            mapping={f"{queue} {what}": "spoiled" for what in ("jobs", "bytes", "running")},
        )
    for name in desk.raw.hkeys(keys.counts(desk.base)):
        desk.raw.hset(keys.counts(desk.base), name, "1.5")
    for name in (
        "at",
        "came",
        "ended",
        "took",
        "rate",
        "run",
        "ran",
        "over",
        "running",
        "came_at",
        "failed",
        "arrived",
    ):
        desk.raw.hset(keys.pool(desk.base, "p"), name, "spoiled")
    for name in ("fired", "skipped", "missed"):
        desk.raw.hset(keys.schedule(desk.base, "one"), name, "spoiled")
    await desk.run(call)
    ids = [key.partition(":job:")[2] for key in desk.raw.scan_iter(match=f"{desk.base}:job:*")]
    assert all([desk.state(job_id) for job_id in ids])
    assert verb == "claim" or [lease.id for lease in await desk.claim(1, queues=("r",))]


async def test_a_queue_stays_first_in_first_out_with_an_invalid_sequence_number(desk):
    await desk.submit("a", "b")
    desk.raw.hset(desk.base, "seq", "spoiled")
    await desk.submit("c", "d")
    await desk.submit("e")
    assert [lease.id for lease in await desk.claim(5)] == ["a", "b", "c", "d", "e"]


async def test_the_count_of_jobs_deleted_by_hand_is_corrected(desk):
    await desk.operate_queue("configure", "q", None, "jobs=2")
    await desk.submit("a", "b", payload=b"x" * 50)
    desk.raw.delete(keys.job(desk.base, "a"))
    lease = await desk.take("b") if not await desk.claim(1) else None
    assert desk.backlog() == (1, 100)
    await desk.complete(lease)
    assert desk.backlog() == (0, 0)


async def test_readers_skip_malformed_data(desk):
    """Queues, numbers and events: invalid text, numbers and settings are ignored, as by the scripts."""
    await desk.submit("a")
    await desk.submit("b", queue="r")
    await desk.operate_queue("configure", "r", None, "jobs=7")
    desk.raw.hset(keys.queues(desk.base), mapping={"q": "xx yy=zz \n", b"\xff": "1 pause"})
    desk.raw.hset(keys.backlog(desk.base), mapping={"q jobs": "spoiled", "r bytes": "1.5"})
    desk.raw.hset(
        desk.base,
        mapping={"submitted": "spoiled", "maintenance": b"spoiled \xff", b"\xff": "", "failed": "9" * 30},
    )
    desk.raw.zadd(keys.structure(desk.base, "dead"), {b"\xff": 1})
    desk.raw.zadd(keys.structure(desk.base, "scheduled"), {"0-x": float("-inf")})
    desk.raw.xadd(keys.events(desk.base), {"jobs": b"\xff"})
    names = await follow(desk.run, queue_names.names(desk.base))
    assert names == ["q", "r"]
    q, r = await desk.run(reads.describe(desk.base, names))
    assert (q.revision, q.paused_at, q.limits, q.jobs, q.queued) == (0, None, {}, 0, 1)
    assert (r.revision, r.limits, r.jobs, r.bytes) == (1, {"jobs": 7}, 1, 0)
    assert await desk.run(verbs.configure(desk.base, "q", q.revision, "jobs=5")) == "jobs=5"
    found = await desk.run(reads.stats(desk.base, dict.fromkeys(names)))
    assert (found.totals["submitted"], found.totals["failed"], found.maintenance_at) == (0, 0, None)
    assert found.states["queued"] == 2
    dead = await desk.run(reads.ids(desk.base, "dead", 0, 10))
    assert await desk.run(reads.summaries(desk.base, dead)) == []
    shown = [f"{keys.queues(desk.base)} \ufffd", f"{desk.base} partitions"]
    for spoiled in ("99999", "0", "007", "-5", "abc"):
        desk.raw.hset(desk.base, "partitions", spoiled)
        assert (await desk.run(reads.partitions(desk.base)), await desk.run(invalid_metadata(desk.base))) == (
            0,
            shown,
        )
    assert (await desk.run(reads.overdue(desk.base, desk.now())))[0] == 1
    assert (await desk.run(reads.events(desk.base, "0", 100)))[-1][1] == {"jobs": "\ufffd"}


async def test_the_doctor_names_the_key(desk):
    await desk.submit("a")
    calls = server_info.foreign(desk.base, ["q"])
    assert await desk.run(calls) == []
    for name in (
        ":queues",
        ":backlog",
        ":counts",
        ":queue:q",
        ":wake:q",
        ":events",
        ":alarm",
        ":running",
        ":workers",
    ):
        desk.raw.delete(desk.base + name)
        desk.raw.sadd(desk.base + name, "of a wrong type")
        assert await desk.run(calls) == [desk.base + name]
        desk.raw.delete(desk.base + name)
