"""What a worker has room for: slots, children, jobs in all; and which queues are claimed together."""

import asyncio

import pytest

from sublet import App
from sublet.connection.settings import Settings
from sublet.worker.capacity import Line, Room, lines_of


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
def test_queues_are_claimed_together_by_what_their_jobs_may_need(tasks, queues, lines):
    assert [(line.queues, line.plain) for line in lines_of(queues, app_of(**tasks).tasks.values())] == lines


async def test_a_plain_line_has_no_more_room_than_there_are_free_children():
    room, plain, loop = Room(slots=10, processes=2), Line(["p"], True), Line(["l"], False)
    assert (room.free(plain), room.free(loop)) == (2, 10)
    room.take(in_child=True)
    assert (room.free(plain), room.free(loop)) == (1, 9)
    with room.asked(1, plain=True):
        assert (room.free(plain), room.free(loop)) == (0, 8)
    for _ in range(9):
        room.take(in_child=False)
    assert (room.free(plain), room.free(loop)) == (0, 0)
    room.leave(in_child=True)
    assert (room.free(plain), room.free(loop)) == (1, 1)


async def test_no_more_jobs_are_taken_than_were_asked_for_in_all():
    room, line = Room(slots=10, processes=2), Line(["l"], False)
    room.most = 3
    with room.asked(2, plain=False):
        assert room.free(line) == 1
    for _ in range(3):
        assert not room.spent
        room.take(in_child=False)
    assert room.spent
    room.leave(in_child=False)
    assert room.free(line) == 0


async def test_who_waits_for_room_hears_of_a_change_and_gives_up_in_time():
    room = Room(slots=1, processes=1)
    room.take(in_child=False)
    waiting = asyncio.create_task(room.until(lambda: room.busy == 0))
    await asyncio.sleep(0)
    room.leave(in_child=False)
    assert await waiting
    assert not await room.until(lambda: False, 0.01)
    await room.change(0.01)
