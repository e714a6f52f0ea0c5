"""How much one call takes, and what becomes of a call that is not well formed (a part of every verb)."""

import contextlib

import pytest
import redis

from jobs import keys, verbs
from jobs.errors import TooMany
from jobs.model import Beat, Completion, Failure, Release, Submission
from jobs.scripts import Call


def of_leases(base, lease, n):
    """Calls over `n` leases, and over `n` ids."""
    return {
        "heartbeat": verbs.heartbeat(base, [Beat(lease, b"1")] * n, lease=60),
        "complete": verbs.complete(base, [Completion(lease, b"1")] * n),
        "fail": verbs.fail(base, [Failure(lease, "Boom", "words", "more words")] * n),
        "release": verbs.release(base, [Release(lease, 0, "why")] * n),
        "watch": verbs.watch(base, [lease.id] * n),
    }


BATCHED = ["heartbeat", "complete", "fail", "release", "watch"]


def most(verb):
    return 100 if verb in ("complete", "fail") else 200


@pytest.mark.parametrize("verb", BATCHED)
async def test_200_items_are_a_call_or_100_results_or_failures(desk, verb):
    lease = await desk.running("a")
    answers = await desk.run(of_leases(desk.base, lease, most(verb))[verb])
    assert len(answers) == most(verb)
    assert answers[0] == answers[-1]


@pytest.mark.parametrize("verb", BATCHED)
async def test_one_item_more_is_refused_and_changes_nothing(desk, verb):
    lease = await desk.running("a")
    before = desk.everything()
    with pytest.raises(TooMany, match=f"{most(verb) + 1} items"):
        await desk.run(of_leases(desk.base, lease, most(verb) + 1)[verb])
    assert desk.everything() == before


@pytest.mark.parametrize("verb", BATCHED)
async def test_no_items_at_all_change_nothing(desk, verb):
    lease = await desk.running("a")
    before = desk.everything()
    assert await desk.run(of_leases(desk.base, lease, 0)[verb]) == []
    assert desk.everything() == before


@pytest.mark.parametrize("verb", ["submit", "heartbeat", "complete", "fail", "release"])
async def test_an_item_cut_short_is_refused_and_changes_nothing(desk, verb):
    lease = await desk.running("a")
    calls = {**of_leases(desk.base, lease, 2), "submit": verbs.submit(desk.base, [Submission("b", "q", "t", "", b"x")] * 2)}
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
async def test_nothing_is_forgotten_by_a_call_that_asks_for_nothing(desk, verb):
    completed = {f"j{i}": 9e12 for i in range(100_001)}
    desk.raw.zadd(keys.structure(desk.base, "completed"), completed)
    await desk.run(verbs.complete(desk.base, []) if verb == "complete" else verbs.prune(desk.base, limit=0))
    assert desk.raw.zcard(keys.structure(desk.base, "completed")) == 100_001


@pytest.mark.parametrize("lease", ["nan", "-5", "1.5", "soon", ""])
@pytest.mark.parametrize("verb", ["claim", "heartbeat"])
async def test_a_lease_that_makes_no_sense_loses_no_job(desk, verb, lease):
    if verb == "claim":
        await desk.submit("a")
        call = verbs.claim(desk.base, claim_id="x" * 22, worker="w", lease=77, n=1, queues=["q"])
    else:
        call = verbs.heartbeat(desk.base, [Beat(await desk.running("a"))], lease=77)
    args = [lease if arg == 77_000 else arg for arg in call.commands[0][2:]]
    with contextlib.suppress(redis.ResponseError):
        desk.raw.execute_command("EVAL", call.text, *args)
    assert desk.state("a") in ("queued", "running")
    desk.elapse(60)
    assert [taken.id for taken in await desk.claim()] == ["a"]
