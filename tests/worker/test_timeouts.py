"""Timeouts: one timer for all items of one duration."""

import asyncio

import pytest

from sublet.worker.time_limits.timeouts import KEPT, Timeouts


class Loop:
    """The clock and the timers of an event loop, controlled by the test."""

    def __init__(self):
        self.now, self.timers, self.errors = 100.0, [], []

    def call_later(self, seconds, call, *args):
        timer = Timer(self.now + seconds, call, args)
        self.timers.append(timer)
        return timer

    def go_to(self, moment):
        """Advance the clock, and call all due timers."""
        self.now = moment
        while due := [timer for timer in self.waiting if timer.moment <= moment]:
            due[0].called = True
            due[0].call(*due[0].args)

    def call_exception_handler(self, context):
        self.errors.append(context["exception"])

    @property
    def waiting(self):
        return [timer for timer in self.timers if not (timer.called or timer.cancelled)]


class Timer:
    def __init__(self, moment, call, args):
        self.moment, self.call, self.args = moment, call, args
        self.called = self.cancelled = False

    def cancel(self):
        self.cancelled = True


@pytest.fixture
def loop(monkeypatch):
    loop = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    monkeypatch.setattr("sublet.worker.time_limits.timeouts.time.monotonic", lambda: loop.now)
    return loop


@pytest.fixture
def late():
    return []


@pytest.fixture
def timeouts(loop, late):
    return Timeouts(late.append)


def test_an_item_expires_once_at_its_time(loop, late, timeouts):
    timeouts.add("a", 10_000)
    loop.go_to(104)
    timeouts.add("b", 10_000)
    timeouts.add("c", 2_000)
    loop.go_to(105.9)
    assert late == []
    loop.go_to(106)
    assert late == ["c"]
    loop.go_to(110)
    assert late == ["c", "a"]
    loop.go_to(114)
    assert late == ["c", "a", "b"]
    loop.go_to(1000)
    assert late == ["c", "a", "b"]
    assert loop.waiting == []


def test_a_removed_item_never_expires(loop, late, timeouts):
    for name in "abc":
        timeouts.add(name, 10_000)
    timeouts.remove("a", 10_000)
    timeouts.remove("b", 10_000)
    timeouts.remove("unknown", 10_000)
    timeouts.remove("unknown", 5_000)
    loop.go_to(200)
    assert late == ["c"]


def test_an_item_without_a_timeout_never_expires(loop, late, timeouts):
    timeouts.add("a", None)
    loop.go_to(1e9)
    timeouts.remove("a", None)
    assert (late, loop.waiting) == ([], [])


def test_items_with_one_duration_share_a_timer(loop, timeouts):
    for number in range(1000):
        loop.go_to(100 + number / 1000)
        timeouts.add(number, 300_000)
    assert len(loop.waiting) == 1


def test_durations_without_items_are_removed(loop, timeouts):
    for number in range(10 * KEPT):
        timeouts.add("a", number + 1)
        timeouts.remove("a", number + 1)
    assert len(loop.waiting) <= KEPT


def test_no_item_expires_after_clear(loop, late, timeouts):
    timeouts.add("a", 10_000)
    timeouts.clear()
    loop.go_to(200)
    assert late == []
    assert loop.waiting == []


def test_an_attempt_that_cannot_be_ended_does_not_delay_the_others(loop):
    expired = []

    def late(item):
        expired.append(item)
        if item == "a":
            raise ZeroDivisionError

    timeouts = Timeouts(late)
    for name in "abc":
        timeouts.add(name, 10_000)
    loop.go_to(110)
    timeouts.add("d", 10_000)
    loop.go_to(120)
    assert expired == ["a", "b", "c", "d"]
    assert [type(error) for error in loop.errors] == [ZeroDivisionError]
