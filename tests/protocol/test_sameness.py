"""Sameness: an id is one job, and a key is one unfinished job of its queue (a part of submit)."""

import pytest

from sublet.model import Submission, Submitted
from sublet.protocol import keys, verbs


def created(*ids):
    return [Submitted(i, True) for i in ids]


def exists(*ids):
    return [Submitted(i, False) for i in ids]


# ids


async def test_the_same_id_again_changes_nothing(desk):
    await desk.submit("a", payload=b"first")
    before = desk.everything()
    assert await desk.submit("a", payload=b"second", rules="priority=9", queue="elsewhere") == exists("a")
    assert desk.everything() == before


async def test_an_id_stays_taken_in_every_state_of_its_job(desk):
    await desk.complete(await desk.running("a"))
    assert await desk.submit("a") == exists("a")
    assert desk.state("a") == "completed"


async def test_the_same_id_twice_in_one_call_is_one_job(desk):
    assert await desk.submit("a", "a", "b") == [*created("a"), *exists("a"), *created("b")]
    assert desk.members("queue:q") == ["a", "b"]


async def test_a_mixed_batch_is_answered_item_by_item(desk):
    await desk.submit("old")
    jobs = [
        ("new", "q", "t", "", b""),
        ("old", "q", "t", "", b""),
        ("b@d", "q", "t", "", b""),
        ("late", "q", "t", "delay=5", b""),
    ]
    answers = await desk.run(verbs.submit(desk.base, [Submission(*job) for job in jobs]))
    assert answers[:2] == [*created("new"), *exists("old")]
    assert answers[2].startswith("INVALID ")
    assert answers[3:] == created("late")
    assert (desk.state("new"), desk.state("late"), desk.state("b@d")) == ("queued", "scheduled", None)


# keys


async def test_a_key_is_one_unfinished_job(desk):
    assert await desk.submit("a", rules="key=k") == created("a")
    before = desk.everything()
    assert await desk.submit("b", rules="key=k") == exists("a")
    assert desk.everything() == before
    assert await desk.submit("c", rules="key=other") == created("c")


async def test_a_key_belongs_to_its_queue(desk):
    await desk.submit("a", rules="key=k")
    assert await desk.submit("b", rules="key=k", queue="elsewhere") == created("b")
    assert desk.raw.get(keys.lock(desk.base, "q", "k")) == "a"
    assert desk.raw.get(keys.lock(desk.base, "elsewhere", "k")) == "b"


async def test_one_key_twice_in_one_call_is_one_job(desk):
    assert await desk.submit("a", "b", rules="key=k") == [*created("a"), *exists("a")]
    assert desk.state("b") is None


async def test_a_key_may_hold_any_visible_character(desk):
    key = "a=b|c:{d}%s^$().[]*+-?!~"
    await desk.submit("a", rules=f"key={key} tries=5")
    assert await desk.submit("b", rules=f"key={key}") == exists("a")
    assert desk.raw.get(keys.lock(desk.base, "q", key)) == "a"


@pytest.mark.parametrize("end", ["complete", "bury", "cancel"])
async def test_a_key_is_free_when_its_job_has_ended(desk, end):
    lease = await desk.running("a", rules="key=k")
    if end == "complete":
        await desk.complete(lease)
    elif end == "bury":
        await desk.fail(lease, again=False)
    else:
        await desk.operate("cancel", "a")
        await desk.release(lease)
    assert await desk.submit("b", rules="key=k") == created("b")


async def test_a_key_is_held_while_its_job_waits_for_another_try(desk):
    await desk.fail(await desk.running("a", rules="key=k"))
    assert desk.state("a") == "scheduled"
    assert await desk.submit("b", rules="key=k") == exists("a")


async def test_the_end_of_a_job_frees_a_key_only_if_it_still_names_this_job(desk):
    lease = await desk.running("a", rules="key=k")
    desk.raw.set(keys.lock(desk.base, "q", "k"), "b")
    await desk.complete(lease)
    assert desk.raw.get(keys.lock(desk.base, "q", "k")) == "b"


async def test_a_key_of_a_missing_job_is_free(desk):
    desk.raw.set(keys.lock(desk.base, "q", "k"), "ghost")
    assert await desk.submit("a", rules="key=k") == created("a")


async def test_a_key_with_a_window_is_held_for_that_time(desk):
    await desk.complete(await desk.running("a", rules="key=k window=90000 retention=60000"))
    desk.elapse(80)
    assert await desk.submit("b", rules="key=k window=90000") == exists("a")
    await desk.prune()
    assert desk.state("a") is None
    assert await desk.submit("b", rules="key=k window=90000") == exists("a")
    desk.elapse(10)
    assert await desk.submit("b", rules="key=k window=90000") == created("b")


async def test_a_key_is_free_after_its_window_although_the_job_waits(desk):
    await desk.submit("a", rules="key=k window=1000")
    desk.elapse(1)
    assert await desk.submit("b", rules="key=k window=1000") == created("b")
