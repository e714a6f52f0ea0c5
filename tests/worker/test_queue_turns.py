"""The turns of a worker's queues: shares by weight, no queue starves, strict order on request."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet import App, Invalid
from sublet.client.client import Client
from sublet.worker.capacity import QueueTurns
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker

pytest_plugins = ["tests.support.job_sources"]


class Redis:
    """Queues with so many jobs each, claimed as the script `claim` does: in the given order."""

    def __init__(self, **jobs):
        self.jobs = Counter(jobs)

    def claim(self, turns, n, queues, asked=None):
        asked, taken = asked or turns.order(queues), []
        for queue in asked:
            some = min(n - len(taken), self.jobs[queue])
            self.jobs[queue] -= some
            taken += [queue] * some
        turns.record(asked, taken)
        return taken


@given(
    weights=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=2),
    sizes=st.lists(st.integers(1, 20), min_size=1, max_size=5),
)
def test_queues_that_always_have_jobs_get_shares_by_weight(weights, sizes):
    """At any moment no queue is further ahead of another than the jobs of one claim."""
    turns, redis = QueueTurns(weights), Redis(**dict.fromkeys(weights, 10**6))
    served = Counter()
    for i in range(200):
        served.update(redis.claim(turns, sizes[i % len(sizes)], list(weights)))
        shares = [served[queue] / weights[queue] for queue in weights]
        assert max(shares) - min(shares) <= max(sizes)


@given(
    weights=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 9), min_size=2),
    n=st.integers(1, 20),
    lag=st.integers(1, 3),
)
def test_claims_that_overlap_keep_the_shares(weights, n, lag):
    """A worker sends its next claim before the reply to the last one has arrived."""
    turns, redis = QueueTurns(weights), Redis(**dict.fromkeys(weights, 10**6))
    served, sent = Counter(), []
    for _ in range(400):
        sent.append(turns.order(list(weights)))
        if len(sent) > lag:
            served.update(redis.claim(turns, n, list(weights), asked=sent.pop(0)))
    shares = [served[queue] / weights[queue] for queue in weights]
    assert max(shares) - min(shares) <= (lag + 1) * n


@given(idle=st.integers(1, 500), n=st.integers(1, 20))
def test_a_queue_that_was_empty_saves_up_no_turns(idle, n):
    """After any time without jobs it gets half of the next jobs; it is ahead by two claims at most."""
    turns, redis = QueueTurns(["busy", "idle"]), Redis(busy=10**6)
    for _ in range(idle):
        redis.claim(turns, n, ["busy", "idle"])
    redis.jobs["idle"] = 10**6
    served = Counter()
    for _ in range(20):
        served.update(redis.claim(turns, n, ["busy", "idle"]))
        assert abs(served["idle"] - served["busy"]) <= 2 * n


def test_a_claim_that_gets_nothing_changes_no_turn():
    turns = QueueTurns(["a", "b"])
    before = list(turns.order(["a", "b"]))
    assert Redis().claim(turns, 5, ["a", "b"]) == []
    assert list(turns.order(["a", "b"])) == before


def test_many_workers_begin_with_different_queues():
    queues = [f"q{i}" for i in range(8)]
    assert len({QueueTurns(queues).order(queues)[0] for _ in range(200)}) == 8


def test_strict_order_is_the_given_one():
    turns, redis = QueueTurns(["z", "a"], strict=True), Redis(z=3, a=3)
    assert [redis.claim(turns, 2, ["z", "a"]) for _ in range(3)] == [["z", "z"], ["z", "a"], ["a", "a"]]


@pytest.mark.parametrize(
    ("queues", "strict", "words"),
    [({"a": 0}, False, "queue a: its weight 0"), ({"a": 1001}, False, "from 1 to 1000"), ({"a": 1.5, "b": 1}, False, "queue a: its weight 1.5: use a whole number"), ({"a": 2}, True, "strict order has no weights")],
)  # fmt: skip
def test_invalid_weights_are_refused(queues, strict, words):
    with pytest.raises(Invalid, match=words):
        Worker(App(), None, WorkerConfig(queues=queues, strict=strict))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("over", ["redis"])
async def test_a_job_does_not_wait_for_the_backlog_of_another_queue(store, source, strict):
    """One slot, 100 jobs in the first queue, and one in the last: with turns it is among the first three."""
    app, order = App(), []

    @app.task(queue="a_bulk")
    async def bulk() -> None:
        order.append("bulk")

    @app.task(queue="z_urgent")
    async def urgent() -> None:
        order.append("urgent")

    await Client(store=store).submit_all([*(bulk.job() for _ in range(100)), urgent.job()])
    worker = Worker(app, source, WorkerConfig(slots=1, name="w", strict=strict))
    await asyncio.wait_for(worker.run(drain=True), 60)
    assert len(order) == 101
    assert (order.index("urgent") < 3) is not strict
