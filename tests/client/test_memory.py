"""A full server refuses new jobs, and finishes stored ones (for every verb)."""

import contextlib

import pytest

from sublet.errors import OutOfMemory
from sublet.model import Submission
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import NAMES, Call

TRACE = """
local given = redis
local redis = {error_reply = given.error_reply, pcall = given.pcall, call = function(command, ...)
  given.call('RPUSH', KEYS[1] .. ':trace', command .. ' ' .. tostring((...)))
  return given.call(command, ...)
end}
"""
READS = {"TIME", "HGET", "HMGET", "GET", "EXISTS", "PTTL", "ZCARD", "ZRANGE", "ZSCORE", "LLEN", "HSTRLEN", "HLEN", "XLEN",
         "ZCOUNT", "HEXISTS", "XREVRANGE", "STRLEN"}  # fmt: skip
OTHERS = [
    name
    for name in NAMES
    if name not in ("init", "submit", "schedule", "fire", "publish", "note", "call", "emit")
]
"""All verbs but those that only need memory."""


async def prepare(desk):
    """Create one job in each state, and due maintenance; return a lease."""
    held = await desk.running("held", rules="timeout=none", lease=100_000)
    await desk.fail(await desk.running("dead"), again=False)
    await desk.complete(await desk.running("done", rules="retention=60000"))
    await desk.running("lost")
    await desk.enlist("w")
    await desk.put()
    await desk.pool()
    await desk.submit("due", rules="delay=1000")
    await desk.submit("late", rules="delay=1000000")
    await desk.submit("waiting", payload=b"x" * 3000)
    desk.elapse(100)
    desk.raw.zadd(keys.structure(desk.base, "dead"), {"unknown": 1})  # for `repair`
    desk.raw.hset(keys.job(desk.base, held.id), "held", 1)
    return held


@pytest.fixture
def calls(each_verb):
    """A call of each verb that changes something, after `prepare`."""

    def of(desk, lease):
        return {
            **each_verb(desk.base, lease),
            "cancel": verbs.cancel(desk.base, "waiting", desk.revision("waiting")),
            "retry": verbs.retry(desk.base, "dead", desk.revision("dead")),
            "promote": verbs.promote(desk.base, "late", desk.revision("late")),
            "reschedule": verbs.reschedule(desk.base, "late", desk.revision("late"), "delay=5000"),
            "erase": verbs.erase(desk.base, "done", desk.revision("done")),
            "watch": verbs.watch(desk.base, ["waiting"]),
            "repair": verbs.repair(desk.base, "mend", [("dead", "unknown"), ("job", "waiting")]),
            "recount": verbs.recount(
                desk.base, "mend", desk.raw.xrevrange(keys.events(desk.base), count=1)[0][0], [("q", 9, 9, 9)]
            ),
        }

    return of


@pytest.mark.parametrize("verb", OTHERS)
async def test_a_full_server_allows_the_first_write_of_each_verb(desk, calls, verb):
    call = calls(desk, await prepare(desk))[verb]
    await desk.run(Call((("EVAL", TRACE + call.text, *call.commands[0][2:]),), call.read))
    trace = desk.raw.lrange(f"{desk.base}:trace", 0, -1)
    assert next(line for line in trace if line.split()[0] not in READS) == f"DEL {desk.base}:"


@pytest.fixture
def memory_full(desk, place):
    """Makes the server full while it is entered."""
    if place.is_given:
        pytest.skip("SUBLET_TEST_REDIS_URL is somebody's server: its memory limit is not ours to set")

    @contextlib.contextmanager
    def full():
        desk.raw.config_set("maxmemory", 1)
        try:
            yield
        finally:
            desk.raw.config_set("maxmemory", 0)

    return full


@pytest.mark.real_server
async def test_a_full_server_refuses_new_jobs_and_stores_nothing(desk, memory_full):
    await desk.submit("a")
    before = desk.everything()
    with memory_full():
        with pytest.raises(OutOfMemory, match="maxmemory"):
            await desk.submit("b", "c", rules="key=k")
        assert (await desk.submit("a"))[0].created is False
    assert desk.everything() == before
    assert all(answer.created for answer in await desk.submit("b", rules="key=k"))


@pytest.mark.real_server
async def test_a_full_server_neither_creates_nor_changes_a_namespace(desk, memory_full):
    with memory_full():
        assert await desk.run(verbs.init(desk.base)) == "1"
        with pytest.raises(OutOfMemory):
            await desk.run(verbs.init(f"{desk.base}:other"))
    assert not desk.raw.exists(f"{desk.base}:other")


@pytest.mark.real_server
@pytest.mark.parametrize("verb", OTHERS)
async def test_every_other_verb_works_when_the_server_is_full(desk, calls, memory_full, verb):
    lease = await prepare(desk)
    before, call = desk.everything(), calls(desk, lease)[verb]
    with memory_full():
        answer = await desk.run(call)
    assert answer is not None
    assert desk.everything() != before


@pytest.mark.real_server
async def test_a_job_lives_to_its_end_on_a_full_server(desk, memory_full):
    await desk.submit("a", rules="backoff=0:1:0", payload=b"x" * 5000)
    await desk.submit("b", "c", "d", rules="delay=1000")
    with memory_full():
        await desk.fail(await desk.take("a"), "Boom", "words", "x" * 4000)
        await desk.release(await desk.take("a"), reason="shutdown")
        desk.elapse(1)
        assert (await desk.reap())[1] == 3
        for job_id in "abcd":
            lease = await desk.take(job_id)
            assert isinstance(await desk.heartbeat(lease, progress=b"50"), int)
            assert await desk.complete(lease, b"x" * 2000) == "completed"
        desk.elapse(90_000)
        assert await desk.prune() == (4, False)
    assert desk.raw.keys(f"{desk.base}:job:*") == []


@pytest.mark.real_server
async def test_a_store_raises_out_of_memory_for_a_full_server(store, desk, memory_full):
    with memory_full():
        with pytest.raises(OutOfMemory) as caught:
            await store.submit([Submission("0-a", "q", "t", "", b"{}")])
        assert caught.value.code == "OOM"
        assert (await store.claim(worker="w", queues=["q"], n=1, lease=30)).leases == []
