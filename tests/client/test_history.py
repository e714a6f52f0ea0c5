"""The history of a namespace, as it is read."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from sublet import Invalid, SyncClient
from sublet.connection.transport import follow
from sublet.operations import history
from sublet.operations.history import HOUR, MINUTE, WIDTH
from sublet.protocol import keys
from sublet.protocol.scripts import Call
from sublet.store.store import Store
from sublet_functions.tick import TickSummary, one_round
from tests.support.history_samples import line, write

RATES = [f"{name}_per_minute" for name in history.TOTALS]


class Course:
    """Writes samples of the past, `ago` steps before the present one, and reads the history."""

    def __init__(self, raw, store):
        self.raw, self.store = raw, store
        seconds, micros = self.raw.time()
        self.now = seconds * 1000 + micros // 1000

    def write(self, *samples, base=None, key=keys.minutes, step=MINUTE):
        base = base or self.store.operations.bases[0]
        write(
            self.raw,
            key(base),
            (
                line(self.now - round(ago * step), (0, completed, 0, 0, 0, 0), (0, *(queued or [0]), 0, 0))
                for ago, completed, *queued in samples
            ),
        )

    async def read(self, span="hour"):
        return await self.store.follow(self.store.operations.history(span))


@pytest.fixture
async def course(raw, store):
    await store.prepare()
    return Course(raw, store)


def at(found, values, ago, now):
    """The value `ago` steps before `now`; another minute may have begun since."""
    return values[round((now - found.start.timestamp() * 1000) // (found.step_seconds * 1000)) - ago]


async def test_each_span_has_its_points(course):
    for span, points, seconds in (("hour", 60, 60), ("day", 1440, 60), ("month", 720, 3600)):
        before = course.raw.time()[0]
        found = await course.read(span)
        assert (found.span, found.step_seconds) == (span, seconds)
        for name in (*RATES, *history.SIZES):
            assert getattr(found, name) == (None,) * points
        end = found.start.timestamp() + points * seconds
        assert before < end <= course.raw.time()[0] + seconds, "the last point is the present minute or hour"


async def test_rates_are_differences_and_sizes_are_those_of_the_sample(course):
    course.write((3, 100, 5), (2, 160, 4), (1, 160, 0))
    found = await course.read()
    rate = [at(found, found.completed_per_minute, ago, course.now) for ago in (3, 2, 1)]
    assert rate == [None, 60.0, 0.0]
    assert [at(found, found.queued, ago, course.now) for ago in (4, 3, 2, 1)] == [None, 5, 4, 0]


async def test_the_rate_of_part_of_a_minute_is_not_scaled_up(course):
    course.now -= course.now % MINUTE
    course.write((1.5, 100), (1, 130))
    found = await course.read()
    assert [one for one in found.completed_per_minute if one is not None] == [30.0]


async def test_samples_of_a_tick_every_five_minutes_have_no_gap(course):
    course.write((15, 0, 7), (10, 50, 9), (5, 150, 1))
    found = await course.read()
    rates = [at(found, found.completed_per_minute, ago, course.now) for ago in range(15, 4, -1)]
    assert rates == [None, *[10.0] * 5, *[20.0] * 5]
    assert [at(found, found.queued, ago, course.now) for ago in (15, 11, 10, 6, 5)] == [7, 7, 9, 9, 1]


async def test_a_longer_pause_is_a_gap(course):
    course.write((20, 0, 7), (14, 60, 9), (13, 61, 8))
    found = await course.read()
    rates = [at(found, found.completed_per_minute, ago, course.now) for ago in range(20, 11, -1)]
    assert rates == [*[None] * 7, 1.0, None], "no average over the gap"
    sizes = [at(found, found.queued, ago, course.now) for ago in range(21, 12, -1)]
    assert sizes == [None, 7, None, None, None, None, None, 9, 8]


async def test_a_day_without_a_sample_is_a_gap_of_the_day_and_of_the_month(course):
    course.write((1500, 10), (1, 20), (0, 21))
    day = await course.read("day")
    assert [value for value in day.completed_per_minute if value is not None] == [1.0]
    course.write((26, 10, 3), (25, 70, 4), (0, 500, 5), key=keys.hours, step=HOUR)
    month = await course.read("month")
    assert [value for value in month.completed_per_minute if value is not None] == [1.0]
    assert [value for value in month.queued if value is not None] == [3, 4, 5]


async def test_the_last_sample_holds_for_five_minutes(course):
    course.write((5, 1, 3))
    assert (await course.read()).queued[-1] in (3, None)
    course.write((4, 1, 3))
    assert (await course.read()).queued[-1] == 3
    course.write((6, 1, 3))
    assert (await course.read()).queued[-1] is None


async def test_a_ring_that_has_begun_again_is_read_in_the_order_of_time(course):
    course.write((1, 30), (0, 40), (3, 10), (2, 20))
    found = await course.read()
    assert [one for one in found.completed_per_minute if one is not None] == [10.0] * 3


async def test_a_total_that_decreased_has_no_rate(course):
    """A failover may lose the last writes."""
    course.write((3, 100), (2, 90), (1, 95))
    found = await course.read()
    assert [at(found, found.completed_per_minute, ago, course.now) for ago in (2, 1)] == [None, 5.0]


async def test_samples_of_the_future_are_left_out(course):
    """Redis's clock was set back."""
    course.write((-2, 500, 9), (4, 10, 1), (3, 11, 2))
    found = await course.read()
    rates = [at(found, found.completed_per_minute, ago, course.now) for ago in (3, 2, 1, 0)]
    assert rates == [1.0, None, None, None]
    assert 9 not in found.queued


async def test_text_that_is_not_a_sample_is_left_out(course):
    course.write((2, 10), (1, 11))
    key = keys.minutes(course.store.operations.bases[0])
    course.raw.append(key, "x" * WIDTH + line(course.now).replace("            0", "        -many")[:70])
    found = await course.read()
    assert [one for one in found.completed_per_minute if one is not None] == [1.0]


async def test_an_unknown_span_is_refused(store):
    with pytest.raises(Invalid, match="span 'week': use hour, day, month"):
        store.operations.history("week").send(None)


async def test_partitions_are_summed(place, raw):
    wide = place._replace(settings=replace(place.settings, partitions=2))
    store = Store(wide.settings, wide.client(), wide.client())
    await store.prepare()
    course = Course(raw, store)
    for base in store.operations.bases:
        course.write((2, 10, 3), (1, 20, 4), base=base)
    found = await course.read()
    assert at(found, found.completed_per_minute, 1, course.now) == 20.0
    assert at(found, found.queued, 1, course.now) == 8
    raw.delete(keys.minutes(store.operations.bases[1]))
    found = await course.read()
    assert set(found.queued) == {None}, "a sum without one of its parts would be too low"
    await store.aclose()


async def test_a_tick_takes_a_sample_with_the_queued_jobs(desk, store):
    await desk.submit("a", "b", queue="q")
    await desk.submit("c", queue="other")
    await desk.submit("late", rules="delay=600000")
    desk.raw.hset(keys.job(desk.base, "a"), "spec", f"q t {(desk.raw.time()[0] - 120) * 1000}\n{{}}")
    await store.follow_existing(one_round(store.operations, "tick", TickSummary()))
    found = await store.follow(store.operations.history())
    assert (found.queued[-1], found.scheduled[-1], found.running[-1]) == (3, 1, 0)
    assert 120 <= found.oldest_queued_seconds[-1] < 125


async def test_a_tick_does_its_work_without_a_history(desk, store):
    desk.raw.hset(keys.minutes(desk.base), "of", "a wrong type")
    await desk.running("a", lease=0.001)
    desk.elapse(1)
    summary = TickSummary()
    done = await store.follow_existing(one_round(store.operations, "tick", summary))
    assert (summary.reaped, done.error) == (1, None)


async def test_a_later_tick_in_the_minute_asks_nothing(desk, store):
    seen: list[Call[Any]] = []

    async def run(call):
        seen.append(call)
        return await store.run(call)

    for _ in range(2):
        seen.clear()
        await follow(run, one_round(store.operations, "tick", TickSummary()))
    assert len(seen) == 2 or store.operations.sample_at > time.monotonic() + 50, "a reap and a prune"


async def test_a_worker_takes_a_sample_when_it_registers_and_in_each_minute(desk, store):
    async def samples():
        return int((desk.raw.hget(desk.base, "sampled") or "0 0").split()[1])

    async def enlist():
        await store.enlist(history_card())
        if store._sampler._sampling:
            await asyncio.wait([store._sampler._sampling])

    await desk.submit("a")
    await enlist()
    assert await samples() == 1
    await enlist()
    assert await samples() == 1
    desk.elapse(60)
    store.operations.sample_at = 0.0
    await enlist()
    assert await samples() == 2


async def test_a_sample_that_fails_does_not_fail_the_registration(desk, store):
    desk.raw.hset(keys.minutes(desk.base), "of", "a wrong type")
    assert await store.enlist(history_card()) is False
    sampling = store._sampler._sampling
    await asyncio.wait([sampling])
    assert sampling.exception() is None
    assert desk.raw.hget(desk.base, "sampled") is None


def history_card():
    from sublet.model import Card

    return Card("w", "1", "", b"{}")


@pytest.mark.real_server
def test_a_sync_client_reads_the_history(place, raw):
    with SyncClient(place.settings) as client:
        client.submit("t")
        client.store.follow(client.store.operations.sample())
        assert client.history("day").queued[-1] == 1
