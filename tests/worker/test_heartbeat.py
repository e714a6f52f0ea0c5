"""Heartbeats: one call for all leases, reports without delay, and cancellations."""

import asyncio
import logging

import pytest

from sublet import Context
from sublet.errors import NoNamespace, Unavailable
from sublet.execution.attempt import Attempt, Why
from sublet.model import Lease, News
from sublet.store.outage_log import OutageLog
from sublet.worker import heartbeat
from sublet.worker.heartbeat import Heartbeat


class Source:
    """Stores each call and returns the prepared answers."""

    def __init__(self):
        self.beats, self.notes, self.answers, self.errors = [], [], {}, []

    async def heartbeat(self, beats, *, lease):
        if self.errors:
            raise self.errors.pop(0)
        self.beats.append([(beat.lease.id, beat.progress) for beat in beats])
        return [self.answers.get(beat.lease.id, 123) for beat in beats]

    async def note(self, notes):
        if self.errors:
            raise self.errors.pop(0)
        self.notes.append([(note.lease.id, note.checkpoint, note.log) for note in notes])
        return ["noted"] * len(notes)


@pytest.fixture
async def beating(monkeypatch):
    """A heartbeat over two attempts whose tasks run until they are stopped."""
    monkeypatch.setattr(heartbeat, "NEWS_EVERY", 0.01)
    monkeypatch.setattr(heartbeat, "RENEW_EVERY", 0.1)
    source, attempts, seen = Source(), set(), []

    async def see():
        seen.append(1)

    heart = Heartbeat(source, attempts, 0.3, see, OutageLog())
    for name in ("0-a", "0-b"):
        attempt = Attempt(Lease(name, "1.c", 1, 0, "q", "t", None, b"", ""), heart.notify)
        attempt.running = asyncio.ensure_future(asyncio.sleep(60))
        attempts.add(attempt)
    running = asyncio.create_task(heart.run())
    await asyncio.sleep(0)
    yield source, {attempt.lease.id: attempt for attempt in attempts}, seen
    running.cancel()
    for attempt in attempts:
        attempt.running.cancel()
    await asyncio.gather(running, *(attempt.running for attempt in attempts), return_exceptions=True)


async def until(condition):
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_one_call_extends_all_leases_and_the_registration(beating):
    source, _, seen = beating
    await until(lambda: len(source.beats) >= 2 and len(seen) >= 2)
    assert all(sorted(name for name, _ in beat) == ["0-a", "0-b"] for beat in source.beats[:2])


async def test_a_report_is_sent_at_once_and_only_once(beating):
    source, attempts, _ = beating
    attempts["0-a"].context.progress(0.5)
    attempts["0-a"].context.checkpoint({"at": 5})
    attempts["0-b"].context.log("hello")
    await until(lambda: source.notes)
    assert source.beats[0][0][0] == "0-a"
    assert b'"fraction": 0.5' in source.beats[0][0][1]
    (a, b) = sorted(source.notes[0])
    assert a == ("0-a", b'{"at":5}', b"")
    assert b[2].endswith(b"hello")
    await until(lambda: len(source.beats) >= 3)
    assert source.beats[-1] == [(name, b"") for name, _ in source.beats[-1]]
    assert len(source.notes) == 1


async def test_an_unsent_report_is_sent_later_unless_a_newer_one_replaces_it(beating):
    source, attempts, _ = beating
    source.errors = [Unavailable("away")]
    attempts["0-a"].reports.add(News.CHECKPOINT, b"1")
    await until(lambda: not source.errors)
    attempts["0-a"].reports.add(News.CHECKPOINT, b"2")
    await until(lambda: source.notes)
    assert source.notes == [[("0-a", b"2", b"")]]


@pytest.mark.parametrize(
    ("answer", "why"),
    [("CANCEL_REQUESTED", Why.CANCELLED), ("LEASE_LOST", Why.LOST), ("NOT_FOUND", Why.LOST)],
)
async def test_a_task_is_cancelled_with_the_reason_of_the_heartbeat(beating, answer, why):
    source, attempts, _ = beating
    source.answers["0-b"] = answer
    await until(lambda: attempts["0-b"].why)
    assert (attempts["0-b"].why, attempts["0-b"].context.ending, attempts["0-b"].context.cancelled) == (
        why,
        why.value,
        True,
    )
    assert attempts["0-a"].why is None
    await until(lambda: attempts["0-b"].running.done())


async def test_a_missing_namespace_ends_all_attempts(beating):
    source, attempts, _ = beating
    source.errors = [NoNamespace("gone")]
    await until(lambda: all(attempt.why is Why.LOST for attempt in attempts.values()))


async def test_a_task_that_swallows_its_cancellation_is_cancelled_again(monkeypatch, caplog):
    monkeypatch.setattr(heartbeat, "CANCEL_AGAIN_AFTER", 0.01)
    caplog.set_level(logging.WARNING)
    cancellations = []

    async def stubborn():
        while len(cancellations) < 3:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancellations.append(1)

    async def see(): ...

    attempts = set()
    heart = Heartbeat(Source(), attempts, 0.06, see, OutageLog())
    attempt = Attempt(Lease("0-a", "1.c", 1, 0, "q", "t", None, b"", ""), heart.notify)
    attempt.running = asyncio.ensure_future(stubborn())
    attempts.add(attempt)
    beating = asyncio.create_task(heart.run())
    await asyncio.sleep(0)
    attempt.end(Why.TIMED_OUT)
    async with asyncio.timeout(10):
        await attempt.running
    beating.cancel()
    assert "was cancelled and runs on: it swallows CancelledError" in caplog.text


def test_a_report_is_kept_before_the_heartbeat_loop_starts(caplog):
    """A report is kept until it is sent, also before the heartbeat loop starts."""
    attempt = Attempt(Lease("0-a", "1.c", 1, 0, "q", "t", None, b"", ""))
    assert isinstance(attempt.context, Context)
    attempt.context.progress(0.5)
    attempt.context.flush()
    assert attempt.reports.progress
    assert attempt.note() is None
