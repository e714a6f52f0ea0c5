"""Capacity of a worker: slots, child processes and the total of jobs; and the queues that are claimed
together."""

import asyncio

import pytest

from sublet import App
from sublet.connection.settings import Settings
from sublet.worker.capacity import Capacity, QueueSet, queue_sets


def app_of(**queues):
    app = App(settings=Settings())
    for name, (queue, plain) in queues.items():

        async def on_the_loop() -> None: ...

        def in_a_child() -> None: ...

        app.task(name=name, queue=queue)(in_a_child if plain else on_the_loop)
    return app


@pytest.mark.parametrize(
    ("tasks", "queues", "lines"),
    [
        ({"a": ("x", False)}, ["x"], [(["x"], False)]),
        ({"a": ("x", True)}, ["x"], [(["x"], True)]),
        ({"a": ("x", False), "b": ("x", True)}, ["x"], [(["x"], True)]),
        ({"a": ("x", False), "b": ("y", True)}, ["x", "y"], [(["y"], True), (["x"], False)]),
        ({"a": ("x", False), "b": ("y", True)}, ["other", "x"], [(["other"], True), (["x"], False)]),
        ({"a": ("x", False)}, ["other", "x"], [(["other", "x"], False)]),
    ],
    ids=[
        "async",
        "plain",
        "both in one",
        "both apart",
        "an unknown queue may bring plain ones",
        "no plain ones at all",
    ],
)
def test_queues_are_claimed_together_by_the_needs_of_their_jobs(tasks, queues, lines):
    assert [
        (each.queues, each.may_need_child) for each in queue_sets(queues, app_of(**tasks).tasks.values())
    ] == lines


async def test_jobs_for_child_processes_are_limited_by_free_children():
    capacity, plain, loop = Capacity(slots=10, processes=2), QueueSet(["p"], True), QueueSet(["l"], False)
    assert (capacity.free(plain), capacity.free(loop)) == (2, 10)
    capacity.job_started(in_child=True)
    assert (capacity.free(plain), capacity.free(loop)) == (1, 9)
    with capacity.reserve(1, may_need_child=True):
        assert (capacity.free(plain), capacity.free(loop)) == (0, 8)
    for _ in range(9):
        capacity.job_started(in_child=False)
    assert (capacity.free(plain), capacity.free(loop)) == (0, 0)
    capacity.job_ended(in_child=True)
    assert (capacity.free(plain), capacity.free(loop)) == (1, 1)


async def test_no_more_jobs_start_than_max_jobs():
    capacity, line = Capacity(slots=10, processes=2), QueueSet(["l"], False)
    capacity.max_jobs = 3
    with capacity.reserve(2, may_need_child=False):
        assert capacity.free(line) == 1
    for _ in range(3):
        assert not capacity.exhausted
        capacity.job_started(in_child=False)
    assert capacity.exhausted
    capacity.job_ended(in_child=False)
    assert capacity.free(line) == 0


async def test_waiting_for_capacity_ends_with_a_change_or_a_timeout():
    capacity = Capacity(slots=1, processes=1)
    capacity.job_started(in_child=False)
    waiting = asyncio.create_task(capacity.wait_until(lambda: capacity.running == 0))
    await asyncio.sleep(0)
    capacity.job_ended(in_child=False)
    assert await waiting
    assert not await capacity.wait_until(lambda: False, 0.01)
    await capacity.wait_for_change(0.01)


def test_jobs_that_wait_for_others_lend_as_many_places_as_there_are():
    capacity, plain, loop = Capacity(slots=4, processes=2), QueueSet(["p"], True), QueueSet(["l"], False)
    for _ in range(2):
        capacity.job_started(in_child=True)
    assert (capacity.free(plain), capacity.free(loop), capacity.has_free_child) == (0, 2, False)
    capacity.waiting = capacity.waiting_in_children = 2
    assert (capacity.free(plain), capacity.free(loop), capacity.has_free_child) == (2, 4, True)
    for _ in range(2):
        capacity.job_started(in_child=True)
    capacity.waiting = capacity.waiting_in_children = 4
    assert (capacity.free(plain), capacity.free(loop), capacity.has_free_child) == (0, 4, False)
    assert capacity.starved == "4 child processes (2 of them lent)"
    capacity.waiting = capacity.waiting_in_children = 3
    assert not capacity.starved
