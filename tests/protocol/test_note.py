"""note: store a running task's checkpoint, for later attempts, and the last lines of its log."""

import asyncio

import pytest

from sublet.errors import Unavailable
from sublet.execution.attempt import Attempt
from sublet.model import Lease, News, Note
from sublet.protocol import reads, verbs
from sublet.store.outage_log import OutageLog
from sublet.worker.heartbeat import Heartbeat


async def test_a_checkpoint_is_handed_to_the_next_attempt(desk):
    lease = await desk.running("a")
    assert lease.checkpoint == b""
    assert await desk.note(lease, b'{"page": 7}') == "noted"
    assert desk.job("a")["checkpoint"] == '{"page": 7}'
    await desk.release(lease)
    again = await desk.take("a")
    assert (again.recovered, again.checkpoint, again.payload) == ("released", b'{"page": 7}', b"{}")


@pytest.mark.parametrize(
    "end", ["fail", "release", "lost", "reconciled", "dead and retried", "cancelled and retried"]
)
async def test_a_checkpoint_survives_every_outcome_but_a_result(desk, end):
    lease = await desk.running("a", lease=10)
    await desk.note(lease, b"[1,\n2]")
    if end == "fail":
        await desk.fail(lease)
        await desk.operate("promote", "a")
    elif end == "release":
        await desk.release(lease)
    elif end == "lost":
        desk.elapse(11)
    elif end == "reconciled":
        await desk.reconcile(lease)
    else:
        if end.startswith("cancelled"):
            await desk.operate("cancel", "a")
        await desk.fail(lease, again=False)
        await desk.operate("retry", "a")
    again = await desk.take("a", worker="another")
    assert again.attempt == 2
    assert again.checkpoint == b"[1,\n2]", "complete, with its newline"


async def test_a_checkpoint_survives_attempts_that_note_nothing(desk):
    lease = await desk.running("a")
    await desk.note(lease, b"1")
    for _ in range(3):
        await desk.release(lease)
        lease = await desk.take("a")
    assert lease.checkpoint == b"1"
    await desk.note(lease, b"2")
    await desk.release(lease)
    assert (await desk.take("a")).checkpoint == b"2"


async def test_a_repeated_claim_returns_the_same_checkpoint(desk):
    lease = await desk.running("a")
    await desk.note(lease, b"1")
    await desk.release(lease)
    first = await desk.ask(claim_id="c" * 22)
    assert await desk.ask(claim_id="c" * 22) == first._replace(next_in=2.0)
    assert first.leases[0].checkpoint == b"1"


async def test_a_checkpoint_is_deleted_when_the_job_is_completed(desk):
    lease = await desk.running("a")
    await desk.note(lease, b"1", b"a line")
    await desk.complete(lease)
    assert "checkpoint" not in desk.job("a")
    job = await desk.run(reads.get(desk.base, "a"))
    assert (job.checkpoint, job.attempts[0].log) == (None, ("a line",))


async def test_the_last_note_counts_and_an_empty_field_changes_nothing(desk):
    lease = await desk.running("a")
    await desk.note(lease, b"1", b"one")
    await desk.note(lease, b"2")
    await desk.note(lease, b"", b"one\ntwo")
    assert await desk.note(lease) == "noted"
    job = await desk.run(reads.get(desk.base, "a"))
    assert (job.checkpoint, job.log) == (2, ("one", "two"))


async def test_a_large_checkpoint_is_not_stored_and_a_long_log_keeps_its_end(desk):
    lease = await desk.running("a")
    await desk.note(lease, b"x" * 65536)
    await desk.note(lease, b"y" * 65537, b"a" + b"b" * 8191 + b"c")
    assert desk.job("a")["checkpoint"] == "x" * 65536
    assert desk.job("a")["log:1"] == "b" * 8191 + "c"


async def test_the_logs_of_the_last_five_attempts_are_kept_after_the_end(desk):
    lease = await desk.running("a")
    for n in range(1, 8):
        await desk.note(lease, log=b"of %d" % n)
        await desk.release(lease)
        assert sorted(name for name in desk.job("a") if name.startswith("log:")) == [
            f"log:{i}" for i in range(max(1, n - 4), n + 1)
        ]
        lease = await desk.take("a")
    await desk.note(lease, log=b"of 8\nand the last")
    assert await desk.complete(lease) == "completed"
    job = await desk.run(reads.get(desk.base, "a"))
    logs = {attempt.number: attempt.log for attempt in job.attempts if attempt.log}
    assert logs == {4: ("of 4",), 5: ("of 5",), 6: ("of 6",), 7: ("of 7",), 8: ("of 8", "and the last")}
    assert job.log == ()


async def test_a_log_is_dropped_after_five_attempts_without_a_log(desk):
    lease = await desk.running("a")
    await desk.note(lease, log=b"first")
    for n in range(1, 7):
        assert "log:1" in desk.job("a"), f"attempt {n} runs"
        await desk.release(lease)
        lease = await desk.take("a")
    assert "log:1" not in desk.job("a")


async def test_a_job_without_notes_has_no_fields_for_them(desk):
    lease = await desk.running("a")
    await desk.release(lease)
    await desk.complete(await desk.take("a"))
    assert not {"logged", "checkpoint", "log:1", "log:2"} & set(desk.job("a"))


@pytest.mark.parametrize("end", ["complete", "fail", "release", "reconcile"])
async def test_a_note_after_the_end_has_lost_its_lease(desk, end):
    lease = await desk.running("a")
    await getattr(desk, end)(lease)
    before = desk.everything()
    assert await desk.note(lease, b"1", b"late") == "LEASE_LOST"
    assert desk.everything() == before


async def test_a_note_with_a_lost_lease_does_not_overwrite_a_checkpoint(desk):
    ghost = await desk.running("a", lease=10)
    desk.elapse(11)
    lease = await desk.take("a", worker="another")
    await desk.note(lease, b'"mine"')
    before = desk.everything()
    assert await desk.note(ghost, b'"of a ghost"', b"of a ghost") == "LEASE_LOST"
    assert await desk.note(lease._replace(token="1.x"), b"1") == "LEASE_LOST"
    assert await desk.note(lease._replace(id="nobody"), b"1") == "NOT_FOUND"
    assert desk.everything() == before


async def test_each_lease_of_a_call_has_its_own_reply(desk):
    await desk.submit("a", "b", "c")
    a, b, c = await desk.claim(3)
    await desk.complete(b)
    notes = [
        Note(a, b"1"),
        Note(b, b"2"),
        Note(c._replace(id="nobody"), b"3"),
        Note(c, b"4", b"five"),
        Note(a, b"6"),
    ]
    assert await desk.run(verbs.note(desk.base, notes)) == [
        "noted",
        "LEASE_LOST",
        "NOT_FOUND",
        "noted",
        "noted",
    ]
    assert (desk.job("a")["checkpoint"], desk.job("c")["checkpoint"], desk.job("c")["log:1"]) == (
        "6",
        "4",
        "five",
    )


async def test_checkpoints_count_towards_the_size_limit_of_a_claim(desk):
    """A claim stops at 1 MiB, including checkpoints."""
    ids = [f"j{i:02}" for i in range(20)]
    for job_id in ids:
        await desk.submit(job_id, payload=b"x" * 2000)
    leases = await desk.claim(20)
    await desk.run(verbs.note(desk.base, [Note(lease, b"c" * 65536) for lease in leases]))
    for lease in reversed(leases):
        await desk.release(lease)
    taken = await desk.claim(20)
    assert [lease.id for lease in taken] == ids[: len(taken)]
    assert 1 << 20 <= sum(len(lease.checkpoint) + len(lease.payload) for lease in taken) < (1 << 20) + 70_000
    assert len(await desk.claim(20)) == 20 - len(taken)


async def test_a_store_sends_any_number_of_notes_in_calls_of_512_kib(store, raw):
    jobs = [store.operations.submission("t", b"{}", "q", "") for _ in range(120)]
    await store.submit(jobs)
    leases = [
        lease
        for _ in range(2)
        for lease in (await store.claim(worker="w", queues=["q"], n=100, lease=30)).leases
    ]
    assert len(leases) == 120
    lost = leases[110]._replace(token="1.x")
    notes = [Note(lease, b"k" * 60_000, b"l" * 8000) for lease in [*leases[:110], lost, *leases[111:]]]
    answers = await store.note(notes)
    assert [i for i, answer in enumerate(answers) if answer != "noted"] == [110]
    assert {len(batch) for batch in verbs.batches(notes, verbs.weight, verbs.SETTLE_MAX)} == {7, 1}


def test_a_newer_note_wins_over_an_unsent_one():
    attempt = Attempt(Lease("a", "1.c", 1, 0, "q", "t", None, b"", ""))
    attempt.reports.add(News.CHECKPOINT, b"1")
    attempt.reports.add(News.LOG, b"one")
    unsent = attempt.note()
    attempt.reports.add(News.CHECKPOINT, b"2")
    attempt.put_back(unsent)
    assert attempt.note() == Note(attempt.lease, b"2", b"one")
    assert attempt.note() is None


class Away:
    """A source that does not answer."""

    async def note(self, notes):
        raise Unavailable("away")


async def test_an_unsent_note_is_sent_later():
    attempt = Attempt(Lease("a", "1.c", 1, 0, "q", "t", None, b"", ""))
    attempt.reports.add(News.CHECKPOINT, b"1")
    await Heartbeat(Away(), [attempt], 30.0, lambda: None, OutageLog())._send([])
    assert attempt.note() == Note(attempt.lease, b"1")


async def test_a_checkpoint_is_sent_without_waiting_for_a_heartbeat():
    received = asyncio.Event()

    class Source:
        async def note(self, notes):
            received.set()

    attempts = []
    heart = Heartbeat(Source(), attempts, 600.0, lambda: None, OutageLog())
    attempts.append(Attempt(Lease("a", "1.c", 1, 0, "q", "t", None, b"", ""), heart.notify))
    running = asyncio.create_task(heart.run())
    await asyncio.sleep(0)
    attempts[0].reports.add(News.CHECKPOINT, b"1")
    try:
        async with asyncio.timeout(4):  # the heartbeat is due after five
            await received.wait()
    finally:
        running.cancel()
