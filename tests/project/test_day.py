"""A day of traffic on a server whose clock runs ahead: in the evening it uses no more memory than in the
morning.

`bench/day.py` runs the same day with all its traffic. Here a step is twenty minutes and the retentions are
shorter, so that every limit is reached.
"""

import pytest

from tests.faults.chaos.servers import Missing
from tests.support.paths import ROOT

BENCH = ROOT / "bench"
KEPT = 200
STATES = ("scheduled", "queued", "running", "completed", "dead", "cancelled")


@pytest.fixture
def day(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    import day

    return day


@pytest.mark.timeout(120)
async def test_memory_does_not_grow_from_morning_to_evening(day, tmp_path):
    scale = day.Scale(rate=80, kept=KEPT, step=20, tenants=20)
    try:
        with day.ahead(tmp_path) as (url, offset):
            today = day.Day(url, offset, scale)
            await today.begin()
            hours = await today.play()
            await today.aclose()
    except Missing as why:
        pytest.skip(str(why))
    assert day.steady(hours, 6) == []
    evening = hours[-1]
    assert len(hours) == 24
    happened = {word for word, count in today.told.items() if count}
    assert {"completed", "dead", "cancelled", "fired", "retried", "scheduled", "lost"} <= happened
    assert min(evening[state] for state in ("completed", "dead", "cancelled")) > KEPT * 0.9, (
        "the kept jobs did not reach the limits"
    )
    assert evening["job:*"] == sum(evening[state] for state in STATES)
    assert evening["queues"] <= day.NAMES
    assert evening["queue:*"] <= len(day.FIXED), "an empty queue must not have a key"


def test_growth_of_memory_is_reported(day):
    hours = [
        {"used": 1_000_000, "queues": 1000},
        {"used": 1_040_000, "queues": 1140},
        {"used": 1_060_000, "queues": 1160},
    ]
    assert day.steady(hours[:2], 1) == []
    assert day.steady(hours, 1) == [
        "used: 1,000,000 after 1 hours, 1,060,000 in the end",
        "queues: 1,000 after 1 hours, 1,160 in the end",
    ]
