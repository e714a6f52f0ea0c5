"""emit: the chunks of a running task are there in order, once, and within limits."""

import pytest

from sublet.errors import Invalid, LeaseLost, NotFound, TooMany
from sublet.model import Lease, State
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import script
from sublet.steps.chunks import CHUNK_MAX, EMIT_MAX, StreamEntry


def limits() -> tuple[int, int]:
    """Entries and bytes that a stream may have, as the script has them."""
    words = script("emit").text.split("local CHUNK_MAX, ENTRIES, BYTES = ")[1].split("\n")[0].split(", ")
    return int(words[1]), int(words[2])


async def test_chunks_are_read_in_order_behind_the_mark_of_their_attempt(desk):
    lease = await desk.running("a")
    assert await desk.emit(lease, b'"one"', b'"two"') == "emitted"
    await desk.emit(lease, b'{"three":3}')
    page = await desk.stream("a")
    assert page.entries == [
        StreamEntry(1, 1, b""),
        StreamEntry(2, 1, b'"one"'),
        StreamEntry(3, 1, b'"two"'),
        StreamEntry(4, 1, b'{"three":3}'),
    ]
    assert (page.cursor, page.missed, page.more, page.state) == (4, False, False, State.RUNNING)
    assert [chunk.value for chunk in page.chunks()] == ["one", "two", {"three": 3}]


async def test_a_reader_goes_on_after_a_chunk(desk):
    lease = await desk.running("a")
    await desk.emit(lease, b"1", b"2", b"3")
    page = await desk.stream("a", 2)
    assert ([one.chunk for one in page.entries], page.missed) == ([b"2", b"3"], False)
    page = await desk.stream("a", 4)
    assert (page.entries, page.cursor, page.more, page.missed) == ([], 4, False, False)
    page = await desk.stream("a", 0, count=2)
    assert (len(page.entries), page.cursor, page.more) == (2, 2, True)


async def test_a_new_attempt_marks_itself(desk):
    lease = await desk.running("a")
    await desk.emit(lease, b"1")
    await desk.release(lease)
    again = await desk.take("a")
    await desk.emit(again, b"2")
    assert [(one.id, one.attempt, one.chunk) for one in (await desk.stream("a")).entries] == [
        (1, 1, b""),
        (2, 1, b"1"),
        (3, 2, b""),
        (4, 2, b"2"),
    ]


async def test_a_call_sent_twice_adds_its_chunks_once(desk):
    lease = await desk.running("a")
    for _ in range(2):
        await desk.emit(lease, b"1", b"2", before=0)
    await desk.emit(lease, b"2", b"3", before=1)
    await desk.emit(lease, b"3", before=2)
    assert [chunk.value for chunk in (await desk.stream("a")).chunks()] == [1, 2, 3]


async def test_without_a_number_each_call_adds_its_chunks(desk):
    lease = await desk.running("a")
    for _ in range(2):
        await desk.emit(lease, b"1")
    assert [chunk.value for chunk in (await desk.stream("a")).chunks()] == [1, 1]


async def test_a_ghost_emits_nothing(desk):
    ghost = await desk.running("a")
    await desk.release(ghost)
    with pytest.raises(LeaseLost, match="stop"):
        await desk.emit(ghost, b"1")
    await desk.take("a")
    with pytest.raises(LeaseLost, match="stop"):
        await desk.emit(ghost, b"1")
    assert not desk.raw.exists(keys.stream(desk.base, "a"))


async def test_a_finished_and_a_missing_job_emit_nothing(desk):
    lease = await desk.running("a")
    await desk.complete(lease)
    with pytest.raises(LeaseLost):
        await desk.emit(lease, b"1")
    with pytest.raises(NotFound):
        await desk.emit(Lease("none", "t", 1, 1, "q", "t", 1, b"", ""), b"1")
    assert (await desk.stream("none")).state is None


@pytest.mark.parametrize("chunk", [b"", b"x" * (CHUNK_MAX + 1)])
async def test_an_empty_or_a_large_chunk_is_refused_with_the_whole_call(desk, chunk):
    lease = await desk.running("a")
    with pytest.raises(Invalid, match="it may have 1 to 65536"):
        await desk.emit(lease, b"1", chunk)
    assert (await desk.stream("a")).entries == []


async def test_too_many_chunks_and_a_malformed_number_are_refused(desk):
    lease = await desk.running("a")
    with pytest.raises(TooMany):
        await desk.emit(lease, *[b"1"] * (EMIT_MAX + 1))
    with pytest.raises(Invalid, match="a number of up to 14 digits"):
        await desk.emit(lease, b"1", before=-1)


async def test_a_full_stream_loses_its_oldest_entries_and_a_reader_learns_of_it(desk):
    lease, (entries, _) = await desk.running("a"), limits()
    for _ in range(entries // EMIT_MAX):
        await desk.emit(lease, *[b"1"] * EMIT_MAX)
    assert desk.raw.xlen(keys.stream(desk.base, "a")) <= entries
    page = await desk.stream("a", 1)
    assert page.missed
    assert page.entries[0].id == entries + 1 - desk.raw.xlen(keys.stream(desk.base, "a")) + 1
    assert page.chunks()[0].missed
    assert not page.chunks()[1].missed
    assert (await desk.stream("a")).missed
    assert not (await desk.stream("a", entries)).missed


async def test_a_stream_of_many_bytes_loses_its_oldest_chunks(desk):
    lease, (_, most) = await desk.running("a"), limits()
    chunk = b'"' + b"x" * (CHUNK_MAX - 2) + b'"'
    for n in range(3 * most // (20 * CHUNK_MAX)):
        await desk.emit(lease, *[chunk] * 20)
        kept = desk.raw.xrange(keys.stream(desk.base, "a"))
        size = sum(len(text) for _, fields in kept for text in fields.values())
        assert size <= most
        assert desk.job("a")["streamed"].split()[1] == str(size), n
    assert size > most * 0.8
    assert kept[-1][0] == f"{20 * (n + 1) + 1}-0"


async def test_a_stream_that_was_deleted_begins_anew_behind_its_old_numbers(desk):
    lease = await desk.running("a")
    await desk.emit(lease, b"1", b"2")
    desk.raw.delete(keys.stream(desk.base, "a"))
    await desk.emit(lease, b"3")
    page = await desk.stream("a", 3)
    assert [(one.id, one.chunk) for one in page.entries] == [(4, b"3")]
    assert desk.job("a")["streamed"].split()[:3] == ["4", "1", "3"]


async def test_a_job_that_lost_its_count_goes_on_behind_the_newest_entry(desk):
    lease = await desk.running("a")
    await desk.emit(lease, b"1")
    desk.raw.hdel(keys.job(desk.base, "a"), "streamed")
    await desk.emit(lease, b"2")
    assert [one.id for one in (await desk.stream("a")).entries] == [1, 2, 3, 4]


async def test_a_reader_of_another_stream_begins_anew(desk):
    lease = await desk.running("a")
    await desk.emit(lease, b"1")
    page = await desk.stream("a", 700)
    assert (page.entries, page.cursor, page.missed, page.more) == ([], 0, True, True)


async def test_chunks_are_published_to_those_who_watch(desk):
    lease = await desk.running("a")
    channel = keys.stream(desk.base, "a")
    with desk.raw.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(channel)
        await desk.emit(lease, b"1")
        await desk.run(verbs.watch(desk.base, ["a"]))
        await desk.emit(lease, b"2")
        messages = []
        while not messages:
            messages += filter(None, [listener.get_message(timeout=1)])
        assert [message["data"] for message in messages] == ["3"]


async def test_a_stream_is_kept_as_long_as_its_job(desk):
    lease = await desk.running("a", "retention=600000")
    await desk.emit(lease, b"1")
    channel = keys.stream(desk.base, "a")
    assert desk.raw.pttl(channel) == -1
    await desk.complete(lease)
    left = desk.raw.zscore(keys.structure(desk.base, "completed"), "a") - desk.now()
    assert abs(desk.raw.pttl(channel) - left) < 5000
    assert 590_000 < desk.raw.pttl(channel) <= 600_000
    page = await desk.stream("a")
    assert (page.is_over, page.state, len(page.entries)) == (True, State.COMPLETED, 2)


@pytest.mark.parametrize("end", ["dead", "cancelled"])
async def test_the_stream_of_a_job_that_went_wrong_expires_unless_it_is_retried(desk, end):
    lease = await desk.running("a", "tries=1")
    await desk.emit(lease, b"1")
    channel = keys.stream(desk.base, "a")
    if end == "dead":
        await desk.fail(lease)
    else:
        await desk.release(lease)
        await desk.operate("cancel", "a")
    assert 13 * 86_400_000 < desk.raw.pttl(channel) <= 14 * 86_400_000
    await desk.operate("retry", "a")
    await desk.emit(await desk.take("a"), b"2")
    assert desk.raw.pttl(channel) == -1
    assert [chunk.value for chunk in (await desk.stream("a")).chunks()] == [1, 2]


async def test_a_log_beside_the_chunks_does_not_hide_them_from_the_end(desk):
    lease = await desk.running("a")
    await desk.emit(lease, b"1")
    await desk.note(lease, log=b"a line")
    await desk.complete(lease)
    assert desk.raw.pttl(keys.stream(desk.base, "a")) > 0


async def test_erase_deletes_the_stream(desk):
    lease = await desk.running("a")
    await desk.emit(lease, b"1")
    await desk.complete(lease)
    await desk.operate("erase", "a")
    assert not desk.raw.exists(keys.stream(desk.base, "a"))


async def test_a_job_deleted_before_its_retention_takes_its_stream_along(desk):
    await desk.run(verbs.configure(desk.base, "*", 0, "completed=1"))
    for name in ("a", "b", "c"):
        lease = await desk.running(name)
        await desk.emit(lease, b"1")
        await desk.complete(lease)
    await desk.run(verbs.prune(desk.base, limit=100))
    left = [name for name in ("a", "b", "c") if desk.raw.exists(keys.job(desk.base, name))]
    assert left == [name for name in ("a", "b", "c") if desk.raw.exists(keys.stream(desk.base, name))]
    assert len(left) == 1
