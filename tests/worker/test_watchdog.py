"""A blocked loop is noticed while it is blocked, and the task that blocks it is named."""

import asyncio
import logging
import time

import pytest

from sublet.worker.time_limits import watchdog
from sublet.worker.time_limits.watchdog import Watchdog


@pytest.fixture
def watch(monkeypatch, caplog):
    monkeypatch.setattr(watchdog, "CHECK_EVERY", 0.01)
    monkeypatch.setattr(watchdog, "BLOCKED_AFTER", 0.1)
    caplog.set_level(logging.WARNING)
    dogs = []

    def start(name, stall=None):
        dogs.append(Watchdog(name, stall))
        dogs[-1].start()

    yield start
    for dog in dogs:
        dog.stop()


def block_until(condition):
    """Hold the loop: the watchdog's thread alone runs meanwhile."""
    ends = time.monotonic() + 20
    while not condition():
        time.sleep(0.01)
        assert time.monotonic() < ends


async def test_a_blocked_loop_is_logged_with_its_place_while_it_is_blocked(watch, caplog):
    async def blocker():
        block_until(lambda: "blocked" in caplog.text)

    task = asyncio.create_task(blocker())
    watch(lambda asked: "task blocker (job 0-1)" if asked is task else "another task")
    await task
    (words,) = [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]
    assert "the event loop is blocked by task blocker (job 0-1), at " in words
    assert "in block_until" in words or "test_watchdog" in words
    async with asyncio.timeout(20):
        while "the event loop runs again" not in caplog.text:
            await asyncio.sleep(0.01)


async def test_a_running_loop_causes_no_log(watch, caplog, monkeypatch):
    """The limit is above any pause of a busy machine, and below the time that passes."""
    monkeypatch.setattr(watchdog, "CHECK_EVERY", 0.001)
    monkeypatch.setattr(watchdog, "BLOCKED_AFTER", 3.0)
    watch(lambda task: "unknown")
    until = time.monotonic() + 4.0
    while time.monotonic() < until:
        await asyncio.sleep(0.01)
    assert "blocked" not in caplog.text


async def test_a_loop_that_is_blocked_for_too_long_ends_the_process(watch, caplog, monkeypatch):
    left = []
    monkeypatch.setattr(watchdog.os, "_exit", left.append)
    watch(lambda task: "task blocker (job 0-1)", stall=0.2)
    await asyncio.sleep(0)
    block_until(lambda: left)
    assert left[0] == 1
    assert "stalled: the event loop has been blocked for" in caplog.text


async def test_time_during_which_the_whole_process_was_stopped_does_not_count(watch, caplog, monkeypatch):
    """The watchdog's own clock stood still as well: the loop is not to blame, and nothing has stalled."""
    left, ahead = [], [0.0]
    real = time.monotonic
    monkeypatch.setattr(watchdog.os, "_exit", left.append)
    monkeypatch.setattr(watchdog.time, "monotonic", lambda: real() + ahead[0])
    watch(lambda task: "unknown", stall=5.0)
    await asyncio.sleep(0.05)
    ahead[0] = 3600.0
    until = real() + 20
    while "this process was stopped" not in caplog.text:
        await asyncio.sleep(0.01)
        assert real() < until
    assert left == []
    assert "blocked" not in caplog.text
