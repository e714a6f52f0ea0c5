"""The alarm: one worker at a time waits for the next due time (part of claim)."""

from sublet.protocol import keys


def alarm(desk):
    return desk.raw.get(keys.alarm(desk.base))


async def test_without_due_times_a_worker_polls_after_2_s(desk):
    assert (await desk.ask()).next_in == 2
    assert alarm(desk) is None


async def test_a_due_time_after_2_s_is_not_an_appointment(desk):
    await desk.submit("a", rules="delay=2500")
    assert (await desk.ask()).next_in == 2
    assert alarm(desk) is None


async def test_a_due_time_within_2_s_is_one_workers_appointment(desk):
    await desk.submit("a", rules="delay=1500")
    before = desk.everything()
    first = (await desk.ask(worker="w1")).next_in
    assert 1.0 < first <= 1.5
    assert alarm(desk) == f"{desk.score('scheduled', 'a')} w1"
    after = desk.everything()
    assert after.pop(keys.alarm(desk.base))
    assert after == before


async def test_other_workers_poll_after_2_s(desk):
    await desk.submit("a", rules="delay=1500")
    await desk.ask(worker="w1")
    assert (await desk.ask(worker="w2")).next_in == 2
    assert alarm(desk).endswith(" w1")


async def test_a_worker_that_asks_again_keeps_its_appointment(desk):
    await desk.submit("a", rules="delay=1500")
    await desk.ask(worker="w1")
    desk.elapse(0.5)
    assert 0.5 < (await desk.ask(worker="w1")).next_in <= 1.0


async def test_an_earlier_due_time_goes_to_the_next_caller(desk):
    await desk.submit("a", rules="delay=1500")
    await desk.ask(worker="w1")
    await desk.submit("b", rules="delay=700")
    assert (await desk.ask(worker="w2")).next_in <= 0.7
    assert alarm(desk) == f"{desk.score('scheduled', 'b')} w2"


async def test_the_end_of_a_lease_is_an_appointment(desk):
    await desk.submit("late", rules="delay=1900")
    await desk.running("a", lease=1.2)
    await desk.ask(worker="other")
    assert alarm(desk) == f"{desk.score('running', 'a')} other"


async def test_the_end_of_a_lease_is_not_its_holders_appointment(desk):
    """If the holder died, its appointment would be lost, and the others would poll up to 2 s late."""
    await desk.running("a", lease=1.2)
    assert (await desk.ask(worker="w")).next_in == 2
    assert alarm(desk) is None
    await desk.submit("late", rules="delay=1900")
    assert (await desk.ask(worker="w")).next_in <= 1.9
    assert alarm(desk) == f"{desk.score('scheduled', 'late')} w", "the other due time is its appointment"
    assert (await desk.ask(worker="other")).next_in <= 1.2


async def test_a_missed_appointment_goes_to_the_next_caller(desk):
    await desk.submit("a", rules="delay=1000")
    await desk.ask(worker="dead")
    ttl = desk.raw.pttl(keys.alarm(desk.base))
    assert 500 < ttl <= 1050
    desk.elapse(1.1)
    assert alarm(desk) is None
    (lease,) = await desk.claim(worker="w2")
    assert lease.id == "a"


async def test_overdue_jobs_are_due_at_once(desk):
    await desk.submit(*(f"j{i}" for i in range(12)), rules="delay=1000")
    desk.elapse(5)
    assert (await desk.ask(0)).next_in == 0
    assert (await desk.ask(0, worker="other")).next_in == 2


async def test_a_job_delayed_by_the_claim_itself_is_an_appointment(desk):
    """Nothing was scheduled when it began."""
    for _ in range(2):
        await desk.running("a", rules="backoff=1000:1:1000", lease=1)
        desk.elapse(1.1)
    assert (await desk.ask(worker="other")).next_in < 1.1
    assert desk.state("a") == "scheduled"
    assert alarm(desk) == f"{desk.score('scheduled', 'a')} other"


async def test_a_fraction_of_a_ms_is_rounded(desk):
    desk.raw.zadd(keys.structure(desk.base, "running"), {"ghost": desk.now() + 1500.5})
    assert 1 < (await desk.ask()).next_in <= 1.501
