"""The limits of one call, and malformed calls (part of every verb)."""

import pytest

from sublet.errors import Invalid, NotFound, Refused, TooMany
from sublet.model import Beat, Completion, Failure, Note, Release, Submission
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import Call, script


def of_leases(base, lease, n):
    """A call of each verb over `n` leases or ids."""
    return {
        "heartbeat": verbs.heartbeat(base, [Beat(lease, b"1")] * n, lease=60),
        "complete": verbs.complete(base, [Completion(lease, b"1")] * n),
        "fail": verbs.fail(base, [Failure(lease, "Boom", "words", "more words")] * n),
        "release": verbs.release(base, [Release(lease, 0, "why")] * n),
        "watch": verbs.watch(base, [lease.id] * n),
        "note": verbs.note(base, [Note(lease, b"1", b"a line")] * n),
        "reconcile": verbs.reconcile(base, "w", "1", [(lease.id, lease.attempt)] * n),
    }


BATCHED = ["heartbeat", "complete", "fail", "release", "watch", "note", "reconcile"]


def most(verb):
    return {"complete": 64, "fail": 50, "heartbeat": 200, "watch": 200}.get(verb, 100)


@pytest.mark.parametrize("verb", BATCHED)
async def test_a_call_takes_up_to_its_limit_of_items(desk, verb):
    lease = await desk.running("a")
    answers = await desk.run(of_leases(desk.base, lease, most(verb))[verb])
    assert len(answers) == most(verb)
    assert answers[0] == answers[-1]


@pytest.mark.parametrize("verb", BATCHED)
async def test_one_item_above_the_limit_is_refused_and_changes_nothing(desk, verb):
    lease = await desk.running("a")
    before = desk.everything()
    with pytest.raises(TooMany, match=f"{most(verb) + 1} items"):
        await desk.run(of_leases(desk.base, lease, most(verb) + 1)[verb])
    assert desk.everything() == before


@pytest.mark.parametrize("verb", BATCHED)
async def test_a_call_without_items_changes_nothing(desk, verb):
    lease = await desk.running("a")
    before = desk.everything()
    assert await desk.run(of_leases(desk.base, lease, 0)[verb]) == []
    assert desk.everything() == before


@pytest.mark.parametrize("verb", ["submit", "heartbeat", "complete", "fail", "release", "note", "reconcile"])
async def test_an_incomplete_item_is_refused_and_changes_nothing(desk, verb):
    lease = await desk.running("a")
    calls = {
        **of_leases(desk.base, lease, 2),
        "submit": verbs.submit(desk.base, [Submission("b", "q", "t", "", b"x")] * 2),
    }
    before = desk.everything()
    with pytest.raises(TooMany, match="items"):
        await desk.run(Call((calls[verb].commands[0][:-1],), list, calls[verb].text))
    assert desk.everything() == before


@pytest.mark.parametrize("verb", ["claim", "reap", "prune"])
@pytest.mark.parametrize("limit", [-1, -200, 201, "1.5", "nan", "inf"])
async def test_a_limit_out_of_bounds_is_refused_and_changes_nothing(desk, verb, limit):
    await desk.submit("a", "b", rules="delay=1000")
    desk.elapse(1)
    calls = {
        "claim": verbs.claim(desk.base, claim_id="x" * 22, worker="w", lease=30, n=limit, queues=["q"]),
        "reap": verbs.reap(desk.base, limit=limit, by="tick"),
        "prune": verbs.prune(desk.base, limit=limit),
    }
    before = desk.everything()
    with pytest.raises(TooMany):
        await desk.run(calls[verb])
    assert desk.everything() == before


@pytest.mark.real_server
@pytest.mark.parametrize("verb", ["complete", "prune"])
async def test_an_empty_call_deletes_no_kept_jobs(desk, verb):
    completed = {f"j{i}": 9e12 for i in range(100_001)}
    desk.raw.zadd(keys.structure(desk.base, "completed"), completed)
    await desk.run(verbs.complete(desk.base, []) if verb == "complete" else verbs.prune(desk.base, limit=0))
    assert desk.raw.zcard(keys.structure(desk.base, "completed")) == 100_001


SINGLE = {
    "cancel": 2,
    "retry": 2,
    "promote": 2,
    "reschedule": 3,
    "erase": 2,
    "pause": 2,
    "resume": 2,
    "configure": 3,
    "reap": 2,
    "prune": 1,
    "claim": 4,
}
SINGLE |= {"enlist": 4, "drain": 2, "reconcile": 2}
FIRST = {
    "pause": ["q", "1"],
    "resume": ["q", "1"],
    "configure": ["q", "1"],
    "claim": ["c" * 22, "1", "jobs=1"],
}
FIRST |= {verb: ["w", "1", "", "{}"] for verb in ("enlist", "drain", "reconcile")}
"""The first arguments of a call; the other verbs take a job and a number."""


@pytest.mark.parametrize(("verb", "count"), [(verb, n) for verb, most in SINGLE.items() for n in range(most)])
async def test_missing_arguments_are_refused_with_a_message(desk, verb, count):
    """…by every script, because a client in another language may omit one: no Lua error is raised, and
    nothing is changed.
    """
    await desk.running("a")
    await desk.operate_queue("pause")
    before = desk.everything()
    words = FIRST.get(verb, ["a", "1"])[:count]
    with pytest.raises((Invalid, Refused)):
        await desk.run(Call((("EVAL", script(verb).text, 1, desk.base, *words),), list, script(verb).text))
    assert desk.everything() == before


@pytest.mark.parametrize("lease", ["inf", "1e400", "nan", "-5", "0x10", "30000.7", "", "9" * 15])
@pytest.mark.parametrize("verb", ["claim", "heartbeat"])
async def test_an_invalid_lease_is_refused(desk, verb, lease):
    """A lease without an end would outlive its worker."""
    held = await desk.running("a", rules="timeout=none")
    await desk.submit("b", rules="timeout=none")
    before = desk.everything()
    words = ["c" * 22, "w", lease, "1", "q"] if verb == "claim" else [lease, "a", held.token, ""]
    with pytest.raises(Invalid, match="lease"):
        await desk.run(Call((("EVAL", script(verb).text, 1, desk.base, *words),), list, script(verb).text))
    assert desk.everything() == before


async def test_a_claim_with_an_invalid_queue_name_is_refused(desk):
    with pytest.raises(Invalid, match="worker and queues: 1 to 128"):
        await desk.claim(queues=("q", "no queue"))


async def test_a_repeated_rule_is_refused(desk):
    """Otherwise a job could exceed the limit on its payload by megabytes."""
    (answer,) = await desk.submit("a", rules="tries=1 delay=5 tries=1")
    assert answer == "INVALID rule tries=1: give it once"
    (answer,) = await desk.submit("a", rules="timeout=none " * 5 + "timeout=none")
    assert answer == "INVALID rule timeout=none: give it once"
    (answer,) = await desk.submit("a", rules="x" * 5000)
    assert len(answer) < 300


async def test_an_error_message_does_not_contain_a_huge_argument(desk):
    with pytest.raises(NotFound) as refused:
        await desk.run(verbs.cancel(desk.base, "x" * 1_000_000, 0))
    assert len(str(refused.value)) < 400
