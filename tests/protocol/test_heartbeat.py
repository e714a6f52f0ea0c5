"""heartbeat: extend leases."""

import pytest

from sublet.model import Beat
from sublet.protocol import verbs


async def test_a_heartbeat_extends_the_lease(desk):
    lease = await desk.running("a", lease=10)
    desk.elapse(8)
    end = await desk.heartbeat(lease, extend=20)
    assert end == desk.score("running", "a")
    assert end == int(desk.job("a")["heartbeat_at"]) + 20_000
    desk.elapse(15)
    assert await desk.claim() == []


async def test_a_heartbeat_never_extends_past_the_timeout_and_its_grace(desk):
    lease = await desk.running("a", rules="timeout=20000", lease=10)
    claimed_at = int(desk.job("a")["claimed_at"])
    assert await desk.heartbeat(lease, extend=24) < claimed_at + 25_000
    assert await desk.heartbeat(lease, extend=60) == claimed_at + 25_000
    desk.elapse(24)
    assert await desk.heartbeat(lease, extend=10) == int(desk.job("a")["claimed_at"]) + 25_000


async def test_without_a_timeout_heartbeats_extend_a_lease_without_limit(desk):
    lease = await desk.running("a", rules="timeout=none")
    desk.elapse(1_000_000)
    assert await desk.heartbeat(lease, extend=400) == int(desk.job("a")["heartbeat_at"]) + 400_000


async def test_an_expired_lease_that_was_not_taken_back_can_still_be_extended(desk):
    lease = await desk.running("a", lease=10)
    desk.elapse(60)
    assert await desk.heartbeat(lease) > desk.now()
    assert await desk.claim() == []


async def test_progress_is_kept_as_it_was_sent(desk):
    lease = await desk.running("a")
    await desk.heartbeat(lease, progress=b'{"percent": 40}')
    assert desk.job("a")["progress"] == '{"percent": 40}'
    await desk.heartbeat(lease)
    assert desk.job("a")["progress"] == '{"percent": 40}'


async def test_progress_of_more_than_1_kib_is_not_kept(desk):
    lease = await desk.running("a")
    await desk.heartbeat(lease, progress=b"x" * 1025)
    assert "progress" not in desk.job("a")
    await desk.heartbeat(lease, progress=b"x" * 1024)
    assert desk.job("a")["progress"] == "x" * 1024


async def test_a_heartbeat_of_a_cancelled_job_returns_the_request_and_extends_the_lease(desk):
    lease = await desk.running("a", lease=10)
    await desk.operate("cancel", "a")
    assert await desk.heartbeat(lease, extend=60) == "CANCEL_REQUESTED"
    assert desk.score("running", "a") == int(desk.job("a")["heartbeat_at"]) + 60_000


async def test_a_repeated_heartbeat_has_one_effect(desk):
    lease = await desk.running("a")
    assert abs(await desk.heartbeat(lease) - await desk.heartbeat(lease)) < 5000
    assert desk.state("a") == "running"
    assert desk.job("a")["attempt"] == "1"


async def test_a_heartbeat_for_an_unknown_job_is_not_found(desk):
    lease = await desk.running("a")
    before = desk.everything()
    assert await desk.heartbeat(lease._replace(id="nobody")) == "NOT_FOUND"
    assert desk.everything() == before


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
async def test_a_heartbeat_after_the_end_has_lost_its_lease(desk, verb):
    lease = await desk.running("a")
    await getattr(desk, verb)(lease)
    before = desk.everything()
    assert await desk.heartbeat(lease, progress=b"1") == "LEASE_LOST"
    assert desk.everything() == before


async def test_a_heartbeat_with_another_claims_token_has_lost_its_lease(desk):
    old = await desk.running("a")
    desk.elapse(30)
    new = await desk.take("a")
    before = desk.everything()
    assert await desk.heartbeat(old, progress=b"1") == "LEASE_LOST"
    for token in ("", "x", new.token + "x", new.token[:-1], new.token.upper()):
        assert await desk.heartbeat(new._replace(token=token)) == "LEASE_LOST"
    assert desk.everything() == before
    assert isinstance(await desk.heartbeat(new), int)


async def test_a_job_that_was_never_claimed_has_no_lease(desk):
    lease = await desk.running("a")
    await desk.submit("b")
    for token in (lease.token, ""):
        assert await desk.heartbeat(lease._replace(id="b", token=token)) == "LEASE_LOST"
    assert desk.state("b") == "queued"


async def test_each_lease_of_a_call_has_its_own_reply(desk):
    await desk.submit("a", "b", "c", "d")
    a, b, c, d = await desk.claim(4)
    await desk.complete(b)
    await desk.operate("cancel", "c")
    beats = [Beat(a, b"1"), Beat(b, b"2"), Beat(c), Beat(d._replace(id="nobody")), Beat(d), Beat(a, b"3")]
    answers = await desk.run(verbs.heartbeat(desk.base, beats, lease=60))
    end = desk.score("running", "a")
    assert answers == [end, "LEASE_LOST", "CANCEL_REQUESTED", "NOT_FOUND", end, end]
    assert desk.job("a")["progress"] == "3"
    assert "progress" not in desk.job("b")


async def test_a_lease_missing_in_running_does_no_harm(desk):
    lease = await desk.running("a")
    desk.raw.zrem(f"{desk.base}:running", "a")
    assert isinstance(await desk.heartbeat(lease), int)
    assert desk.members("running") == []
    assert await desk.complete(lease) == "completed"


async def test_a_store_sends_any_number_of_heartbeats(store):
    jobs = [store.operations.submission("t", b"{}", "q", "") for _ in range(250)]
    await store.submit(jobs)
    leases = [
        lease
        for _ in range(3)
        for lease in (await store.claim(worker="w", queues=["q"], n=100, lease=30)).leases
    ]
    lost = leases[120]._replace(token="1.x")
    answers = await store.heartbeat([Beat(lease) for lease in [*leases[:120], lost, *leases[121:]]], lease=60)
    assert [i for i, answer in enumerate(answers) if answer == "LEASE_LOST"] == [120]
