"""erase: delete a finished job, and all that is stored of it."""

import pytest

from sublet.errors import Changed, NotFound, WrongState
from sublet.protocol import keys


async def ended(desk, state, job_id, rules=""):
    """A job with payload, log, attempt and result or failure, in this state."""
    lease = await desk.running(job_id, rules=rules)
    await desk.note(lease, b'{"at":"secret"}', b"a secret line")
    if state == "cancelled":
        await desk.operate("cancel", job_id)
        await desk.fail(lease, "cancelled", again=False)
    elif state == "dead":
        await desk.fail(lease, "Boom", "a secret", again=False)
    else:
        await desk.complete(lease, b'"secret"')


@pytest.mark.parametrize("state", ["completed", "dead", "cancelled"])
async def test_nothing_is_left_of_an_erased_job(desk, state):
    await desk.submit("other", queue="r")
    kept = desk.everything()
    await ended(desk, state, "a", "key=secret-key window=60000")
    assert await desk.operate("erase", "a") == "erased"
    left = desk.everything()
    claims = {name for name in left if name.startswith(keys.claim(desk.base, ""))}
    assert left.keys() - kept.keys() - claims <= {keys.counts(desk.base), keys.alarm(desk.base)}
    assert desk.members(state) == []
    assert "secret" not in repr(left)
    assert desk.job("other")["state"] == "queued"


async def test_the_key_of_another_job_stays(desk):
    await ended(desk, "dead", "a", "key=k")
    await desk.submit("b", rules="key=k")
    await desk.operate("erase", "a")
    assert desk.raw.get(keys.lock(desk.base, "q", "k")) == "b"


@pytest.mark.parametrize("state", ["scheduled", "queued", "running"])
async def test_an_unfinished_job_is_not_erased(desk, state):
    if state == "running":
        await desk.running("a")
    else:
        await desk.submit("a", rules="delay=60000" if state == "scheduled" else "")
    before = desk.everything()
    with pytest.raises(WrongState, match=rf"is {state}: erase takes .* or cancelled: cancel it first"):
        await desk.operate("erase", "a")
    assert desk.everything() == before


async def test_an_erase_with_an_old_revision_is_refused(desk):
    await ended(desk, "dead", "a")
    before = desk.everything()
    with pytest.raises(Changed):
        await desk.operate("erase", "a", 0)
    assert desk.everything() == before


async def test_a_second_erase_is_not_found_and_says_so(desk):
    await ended(desk, "completed", "a")
    await desk.operate("erase", "a")
    before = desk.everything()
    with pytest.raises(NotFound, match="no job a: it never existed, or was deleted"):
        await desk.operate("erase", "a", 1)
    assert desk.everything() == before


async def test_an_erased_job_is_not_counted_as_forgotten(desk):
    await ended(desk, "completed", "a")
    await desk.operate("erase", "a")
    assert desk.raw.hmget(desk.base, "completed", "forgotten", "forgotten_results") == ["1", None, None]
