"""group: the settings of one group of a queue."""

import pytest

from sublet.errors import Changed, Invalid
from sublet.protocol import flow, keys


async def tune(desk, settings, group="g", revision=None):
    return await desk.operate_queue("group", "q", revision, group, settings)


async def test_settings_are_replaced_as_a_whole_and_removed(desk):
    assert await tune(desk, "concurrency=5 share=2") == "concurrency=5 share=2"
    assert await tune(desk, "share=3") == "share=3"
    assert desk.raw.hgetall(keys.groups(desk.base, "q")) == {"g": "share=3"}
    assert await tune(desk, "") == ""
    assert not desk.raw.exists(keys.groups(desk.base, "q"))


async def test_the_queues_own_settings_and_a_pause_stay(desk):
    await desk.operate_queue("configure", "q", None, "jobs=5 concurrency=2")
    await desk.operate_queue("pause")
    await tune(desk, "share=3")
    text = desk.raw.hget(keys.queues(desk.base), "q")
    assert text.startswith("3 group jobs=5 concurrency=2 ")
    assert "paused=" in text


async def test_another_revision_is_refused_and_a_repeat_is_answered(desk):
    assert await tune(desk, "share=3", revision=0) == "share=3"
    assert await tune(desk, "share=3", revision=0) == "share=3"
    with pytest.raises(Changed, match="queue q is at revision 1, not 0"):
        await tune(desk, "share=4", revision=0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("share=0", "setting share=0: use 1 to 100"),
        ("share=101", "setting share=101: use 1 to 100"),
        ("concurrency=0", "setting concurrency=0: use 1 or more; to start no jobs, pause the queue"),
        ("rate=5", "setting rate=5: say for how many ms"),
        ("jobs=5", "setting jobs=5: a group takes"),
        ("share=2 share=2", "setting share=2: a group takes .* each once"),
        ("x", "setting x: a group takes"),
    ],
)
async def test_an_invalid_setting_is_refused(desk, settings, words):
    with pytest.raises(Invalid, match=words):
        await tune(desk, settings)
    assert desk.everything() == {desk.base: {"layout": "1", "partitions": "1"}}


@pytest.mark.parametrize("group", ["", "two words", "g" * 129, "é", ".", ".."])
async def test_an_invalid_group_is_refused(desk, group):
    with pytest.raises(Invalid, match="and a group with 1 to 128 of ! to ~"):
        await tune(desk, "share=2", group)


async def test_a_queue_has_settings_for_so_many_groups(desk):
    texts = {f"g{i}": "share=2" for i in range(100_000)}
    for i in range(0, 100_000, 10_000):
        desk.raw.hset(keys.groups(desk.base, "q"), mapping=dict(list(texts.items())[i : i + 10_000]))
    with pytest.raises(Invalid, match="queue q has 100000 groups with settings, the most"):
        await tune(desk, "share=2", "one-more")
    assert await tune(desk, "share=5", "g7") == "share=5"


async def test_an_order_is_recorded_with_the_person(desk):
    await desk.run(flow.group(desk.base, "q", 0, "g", "share=2", "anna"))
    ((_, entry),) = desk.raw.xrange(keys.audit(desk.base))
    assert (entry["by"], entry["verb"], entry["what"], entry["queue"], entry["outcome"]) == (
        "anna",
        "group",
        "g",
        "q",
        "share=2",
    )
