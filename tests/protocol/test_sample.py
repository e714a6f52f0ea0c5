"""sample: record totals and sizes for the history, once a minute."""

import pytest

from sublet.errors import Invalid
from sublet.operations.history import HOURS, MINUTES, WIDTH
from sublet.protocol import keys, verbs


def ring(desk, key=keys.minutes):
    text = desk.raw.get(key(desk.base)) or ""
    return [text[i : i + WIDTH] for i in range(0, len(text), WIDTH)]


def last(desk):
    """The moment of the last sample, and how many are in each ring."""
    return [int(word) for word in desk.raw.hget(desk.base, "sampled").split()]


async def sample(desk, queued="", due=""):
    return (await desk.run(verbs.sample(desk.base, queued, due)))[0]


async def twice(desk):
    """Two calls in one minute of Redis's clock: once more if it ended between them."""
    while True:
        answers, begin = [await sample(desk), await sample(desk)], last(desk)[0] // 60_000
        if desk.raw.time()[0] // 60 == begin:
            return answers
        desk.raw.hdel(desk.base, "sampled")


async def test_a_sample_has_the_totals_and_the_sizes(desk):
    await desk.submit("late", rules="delay=60000")
    await desk.complete(await desk.running("done"))
    await desk.running("held")
    await desk.submit("a", "b")
    assert await sample(desk, 2, (desk.raw.time()[0] - 61) * 1000) == "sampled"
    (one,) = ring(desk)
    assert len(one) == WIDTH
    assert one.endswith("\n")
    at, *totals = (int(one[i : i + 13]) for i in range(0, 91, 13))
    assert totals == [5, 1, 0, 0, 0, 0]
    assert [int(one[i : i + 9]) for i in range(91, 127, 9)] in ([1, 2, 1, 61], [1, 2, 1, 62])
    assert ring(desk, keys.hours) == [one]
    assert last(desk) == [at, 1, 1]


async def test_two_samplers_in_one_minute_take_one_sample(desk):
    assert await twice(desk) == ["sampled", "kept"]
    assert len(ring(desk)) == len(ring(desk, keys.hours)) == 1


async def test_a_kept_sample_changes_nothing(desk):
    await twice(desk)
    before = desk.everything()
    while await sample(desk, 5) != "kept":
        before = desk.everything()
    assert desk.everything() == before


async def test_each_minute_has_a_sample_and_each_hour_keeps_its_last(desk):
    await sample(desk)
    hours = 1
    for seconds in (60, 60, 3600, 60):
        desk.elapse(seconds)
        before = last(desk)[0]
        assert await sample(desk, seconds) == "sampled"
        hours += before // 3_600_000 != last(desk)[0] // 3_600_000
    found = [int(one[:13]) for one in ring(desk)]
    assert found == sorted(found)
    assert len(found) == 5
    assert len(ring(desk, keys.hours)) == hours
    assert ring(desk, keys.hours)[-1] == ring(desk)[-1]


async def test_full_rings_begin_again_at_their_first_place(desk):
    begin = desk.raw.time()[0] * 1000
    desk.raw.hset(desk.base, "sampled", f"{begin - 3_600_000} {MINUTES - 1} {HOURS - 1}")
    assert await sample(desk) == "sampled"
    assert desk.raw.strlen(keys.minutes(desk.base)) == MINUTES * WIDTH
    assert desk.raw.strlen(keys.hours(desk.base)) == HOURS * WIDTH
    desk.elapse(3600)
    assert await sample(desk, 7) == "sampled"
    assert last(desk)[1:] == [MINUTES + 1, HOURS + 1]
    for key, most in ((keys.minutes, MINUTES), (keys.hours, HOURS)):
        assert desk.raw.strlen(key(desk.base)) == most * WIDTH
        assert ring(desk, key)[0][100:109].strip() == "7"


async def test_samples_go_on_after_redis_s_clock_was_set_back(desk):
    await sample(desk)
    later = desk.raw.time()[0] * 1000 + 86_400_000
    desk.raw.hset(desk.base, "sampled", f"{later} 1 1")
    assert await sample(desk) == "sampled"
    assert last(desk)[1:] == [2, 2]
    assert len(ring(desk)) == len(ring(desk, keys.hours)) == 2


@pytest.mark.parametrize("stored", ["", "x", "1 2", "-5 1 1", f"1 {'9' * 400} 1", "1 1.5 1", "1 2 3 4"])
async def test_a_malformed_record_of_the_last_sample_begins_the_rings_again(desk, stored):
    desk.raw.hset(desk.base, "sampled", stored)
    assert await sample(desk) == "sampled"
    assert len(ring(desk)) == len(ring(desk, keys.hours)) == 1


async def test_numbers_that_do_not_fit_or_are_malformed_keep_the_width(desk):
    desk.raw.hset(desk.base, mapping={"submitted": "9" * 15, "failed": "many", "dead": "-1"})
    assert await sample(desk, 99_999_999_999_999, 0) == "sampled"
    (one,) = ring(desk)
    assert len(one) == WIDTH
    assert one[13:26] == "9" * 13
    assert [one[i : i + 13].strip() for i in (39, 52)] == ["0", "0"]
    assert one[100:109] == "9" * 9
    desk.elapse(60)
    assert await sample(desk, 1, 99_999_999_999_999) == "sampled"
    assert ring(desk)[1][118:127].strip() == "0", "due later, by a clock that was set back"


async def test_the_caller_counts_the_queued_jobs_if_there_are_unfinished_ones(desk):
    await desk.submit("a", rules="delay=60000")
    before = desk.everything()
    word, seconds = await desk.run(verbs.sample(desk.base))
    assert word == "count"
    assert 0 < seconds <= 60
    assert desk.everything() == before
    assert await sample(desk, 0) == "sampled"


@pytest.mark.parametrize("words", [(), ("1",), ("1", "x"), ("-1", "1"), ("1", "1" * 15), ("1.5", "")])
async def test_invalid_numbers_are_refused_and_change_nothing(desk, words):
    call = verbs.sample(desk.base)
    (head,) = call.commands
    before = desk.everything()
    with pytest.raises(Invalid, match="queued and due: use a number of up to 14 digits, or nothing"):
        await desk.run(call._replace(commands=((*head[:4], *words),)))
    assert desk.everything() == before
