"""init: create the metadata of a namespace."""

import pytest

from sublet.errors import Invalid, NoNamespace, WrongLayout
from sublet.model import Submission
from sublet.protocol import verbs
from sublet.protocol.scripts import NAMES

OTHERS = [name for name in NAMES if name != "init"]
STRUCTURES = ["scheduled", "running", "completed", "dead", "cancelled"]
TOUCHED = {
    "submit": (), "claim": ("scheduled", "running"), "heartbeat": ("running",), "complete": ("running", "completed", "dead", "cancelled"),
    "drop": (), "publish": (), "step": ("running",), "emit": ("running",),
}  # fmt: skip
"""The verbs that do not touch all structures; of `submit`, `claim` and `complete` the straight paths."""


async def test_a_new_namespace_has_a_layout_and_nothing_else(transport, raw, base):
    assert await transport.run(verbs.init(base)) == "1"
    assert raw.keys(f"{base}*") == [base]
    assert raw.hgetall(base) == {"layout": "1", "partitions": "1"}


async def test_init_again_changes_nothing(desk):
    await desk.running("a")
    before = desk.everything()
    assert await desk.run(verbs.init(desk.base)) == "1"
    assert desk.everything() == before


async def test_init_refuses_another_versions_data(transport, raw, base):
    raw.hset(base, "layout", "0")
    with pytest.raises(WrongLayout, match="has layout 0, not 1"):
        await transport.run(verbs.init(base))
    assert raw.hgetall(base) == {"layout": "0"}


async def test_another_partition_count_is_refused(desk):
    before = desk.everything()
    with pytest.raises(WrongLayout, match="has 1 partitions, not 2"):
        await desk.run(verbs.init(desk.base, 2))
    assert desk.everything() == before


@pytest.mark.parametrize("number", ["", "0", "-1", "1.5", "01", "10000", "many", "nan"])
async def test_an_invalid_partition_count_is_refused(transport, raw, base, number):
    with pytest.raises(Invalid, match="partitions: use a whole number from 1 to 9999"):
        await transport.run(verbs.init(base, number))
    assert not raw.exists(base)


@pytest.mark.parametrize("verb", OTHERS)
async def test_without_a_namespace_a_verb_is_refused_and_writes_nothing(
    transport, raw, base, each_verb, verb
):
    with pytest.raises(NoNamespace, match="run the script init"):
        await transport.run(each_verb(base)[verb])
    assert raw.keys(f"{base}*") == []


@pytest.mark.parametrize("verb", OTHERS)
async def test_with_another_layout_a_verb_is_refused_and_writes_nothing(desk, each_verb, verb):
    lease = await desk.running("a")
    await desk.submit("b")
    desk.raw.hset(desk.base, "layout", "2")
    before = desk.everything()
    with pytest.raises(WrongLayout):
        await desk.run(each_verb(desk.base, lease)[verb])
    assert desk.everything() == before


@pytest.mark.parametrize(
    ("verb", "structure"), [(v, s) for v in OTHERS for s in STRUCTURES if s in TOUCHED.get(v, STRUCTURES)]
)
async def test_a_structure_of_a_wrong_type_raises_before_any_write(desk, each_verb, verb, structure):
    lease = await desk.running("a")
    await desk.submit("b")
    desk.raw.delete(f"{desk.base}:{structure}")
    desk.raw.set(f"{desk.base}:{structure}", "no sorted set")
    before = desk.everything()
    with pytest.raises(Exception, match="WRONGTYPE"):
        await desk.run(each_verb(desk.base, lease)[verb])
    assert desk.everything() == before


@pytest.mark.parametrize(
    ("verb", "structure"), [(v, s) for v in TOUCHED for s in STRUCTURES if s not in TOUCHED[v]]
)
async def test_a_structure_that_a_frequent_verb_does_not_use_does_not_stop_it(
    desk, each_verb, verb, structure
):
    lease = await desk.running("a")
    desk.raw.delete(f"{desk.base}:{structure}")
    desk.raw.set(f"{desk.base}:{structure}", "no sorted set")
    await desk.run(each_verb(desk.base, lease)[verb])
    assert desk.raw.get(f"{desk.base}:{structure}") == "no sorted set"


@pytest.mark.parametrize("verb", ["submit", "claim", "fail", "release", "cancel"])
async def test_a_queue_of_a_wrong_type_raises_before_any_write(desk, each_verb, verb):
    lease = await desk.running("a")
    desk.raw.set(f"{desk.base}:queue:q", "no sorted set")
    before = desk.everything()
    with pytest.raises(Exception, match="WRONGTYPE"):
        await desk.run(each_verb(desk.base, lease)[verb])
    assert desk.everything() == before


async def test_a_store_creates_its_namespace_at_the_first_call(store, raw, base):
    assert (await store.claim(worker="w", queues=["q"], n=1, lease=30)).leases == []
    assert raw.hgetall(base) == {"layout": "1", "partitions": "1"}


async def test_a_store_creates_its_namespace_again_after_a_flush(store, raw, base):
    await store.submit([Submission("a", "q", "t", "", b"{}")])
    raw.delete(*raw.keys(f"{base}*"))
    assert (await store.submit([Submission("b", "q", "t", "", b"{}")]))[0].created
    raw.delete(*raw.keys(f"{base}*"))
    assert (await store.claim(worker="w", queues=["q"], n=1, lease=30)).leases == []
    assert raw.hgetall(base) == {"layout": "1", "partitions": "1"}
