"""spend: what running jobs really cost."""

import pytest

from sublet.errors import Invalid
from sublet.model import Lease
from sublet.protocol import flow, keys


async def spend(desk, lease, cost):
    (answer,) = await desk.run(flow.spend(desk.base, [(lease, cost)]))
    return answer


def full_in(desk, owner="q"):
    """The seconds until a bucket is full again."""
    return max(0, float(desk.raw.get(keys.bucket(desk.base, owner)) or 0) / 1000 - desk.now() / 1000)


async def test_the_difference_is_charged_to_the_queue_and_the_group(desk):
    await desk.operate_queue("configure", "q", None, "rate=10 per=1000 group_rate=1 group_per=1000")
    lease = await desk.running("a", rules="group=g cost=20")
    assert (1.5 < full_in(desk) <= 2, 19.5 < full_in(desk, "q|g") <= 20) == (True, True)
    assert await spend(desk, lease, 50) == "spent"
    assert await spend(desk, lease, 50) == "spent"
    assert (4.5 < full_in(desk) <= 5, 49.5 < full_in(desk, "q|g") <= 50) == (True, True)
    assert await spend(desk, lease, 0) == "spent"
    assert (full_in(desk), full_in(desk, "q|g")) == (0, 0)


async def test_a_lost_lease_and_a_missing_job_are_answered_so(desk):
    await desk.operate_queue("configure", "q", None, "concurrency=5")
    lease = await desk.running("a")
    await desk.complete(lease)
    assert await spend(desk, lease, 5) == "LEASE_LOST"
    assert await spend(desk, Lease("none", "t", 1, 1, "q", "t", 1, b"", ""), 5) == "NOT_FOUND"


async def test_without_flow_control_it_changes_nothing(desk):
    lease = await desk.running("a")
    before = desk.everything()
    assert await spend(desk, lease, 5) == "spent"
    assert desk.everything() == before


@pytest.mark.parametrize("cost", ["-1", "x", "1.5", "9" * 15])
async def test_an_invalid_cost_is_refused(desk, cost):
    await desk.operate_queue("configure", "q", None, "concurrency=5")
    lease = await desk.running("a")
    with pytest.raises(Invalid, match="use a whole number of up to 14 digits"):
        await spend(desk, lease, cost)
