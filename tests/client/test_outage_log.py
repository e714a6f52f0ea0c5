"""A long outage must not fill a log."""

from types import SimpleNamespace

import pytest

from sublet.errors import Unavailable
from sublet.store import outage_log


@pytest.fixture
def clock(monkeypatch):
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(outage_log.time, "monotonic", lambda: clock.now)
    return clock


def test_an_outage_is_logged_once_then_each_minute_then_its_end(clock, caplog):
    seen = outage_log.OutageLog()
    for _ in range(200):
        seen.failed("claim", Unavailable("no answer"))
        clock.now += 0.5
        assert seen.ongoing
        seen.over()  # a single answer among failures
        assert not seen.ongoing
    clock.now += 0.5
    seen.over()
    seen.over()
    assert [record.getMessage() for record in caplog.records] == [
        "cannot claim: no answer",
        "still cannot claim, for 60 s now (119 more failures): no answer",
        "calls are answered again, after 100.5 s",
    ]


def test_a_call_is_sent_again_sooner_at_first(clock):
    seen, pauses = outage_log.OutageLog(), []
    for _ in range(6):
        seen.failed("claim", Unavailable("no answer"))
        pauses.append(round(seen.pause(0.5), 2))
        clock.now += 0.4
    assert pauses == [0.1, 0.2, 0.4, 0.5, 0.5, 0.5]


def test_the_next_outage_is_logged_at_once(clock, caplog):
    seen = outage_log.OutageLog()
    for _ in range(2):
        seen.failed("claim", Unavailable("no answer"))
        clock.now += 1
        seen.over()
    assert len(caplog.records) == 4


def test_an_error_that_is_not_an_outage_is_logged_once_a_minute(clock, caplog):
    seen = outage_log.OutageLog()
    for _ in range(122):
        seen.hindered("answer everything", Unavailable("no room"))
        assert not seen.ongoing
        seen.over()
        clock.now += 0.5
    assert [record.getMessage() for record in caplog.records] == ["cannot answer everything: no room"] * 2
