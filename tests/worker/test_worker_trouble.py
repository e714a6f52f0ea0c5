"""Errors around a worker: a server that fails once, an unsent outcome, an abandoned claim."""

import asyncio
from datetime import timedelta

import pytest

from sublet import App, Client, Context, Discard, Snooze
from sublet.errors import Denied, NoNamespace, Unavailable
from sublet.model import State
from sublet.protocol import keys
from sublet.store.store import Store
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support import tasks

pytest_plugins = ["tests.support.job_sources"]
app = App()


@app.task
async def reports_progress(ctx: Context) -> None:
    ctx.progress(0.5)
    await asyncio.sleep(60)


async def test_an_unsent_outcome_is_sent_again(source, monkeypatch):
    """The server is away for a moment when the job ends: the result is not lost, and the job does not run
    again.
    """
    settle, calls = source.settle, []

    async def settle_badly(endings):
        calls.append(len(endings))
        if len(calls) == 1:
            raise Unavailable("no answer")
        return await settle(endings)

    monkeypatch.setattr(source, "settle", settle_badly)
    monkeypatch.setattr("sublet.worker.claim_loop.RETRY_AFTER", 0.01)
    monkeypatch.setattr("sublet.worker.settle_loop.RETRY_AFTER", 0.01)
    await source.submit([tasks.add.job(1)])
    async with asyncio.timeout(20):
        summary = await Worker(tasks.app, source, WorkerConfig(slots=1)).run(drain=True)
    assert (summary.completed, calls) == (1, [1, 1])


async def test_a_half_busy_worker_claims_only_as_many_jobs_as_fit(source, raw, base):
    worker = Worker(tasks.app, source, WorkerConfig(slots=3, grace=0.0))
    running = asyncio.create_task(worker.run())
    try:
        for jobs, most in ((1, 1), (5, 3)):
            await source.submit([tasks.crowd.job(60) for _ in range(jobs)])
            async with asyncio.timeout(20):
                while raw.zcard(keys.structure(base, State.RUNNING)) < most:
                    await asyncio.sleep(0.005)
            assert raw.zcard(keys.structure(base, State.RUNNING)) == most
    finally:
        worker.stop()
        await running


@pytest.mark.parametrize(
    ("verb", "error"),
    [("claim", Unavailable), ("heartbeat", Unavailable), ("heartbeat", NoNamespace), ("settle", NoNamespace)],
)
async def test_a_worker_survives_a_single_failure_of_the_server(source, monkeypatch, verb, error):
    send, failures = getattr(source, verb), []

    async def badly(*request, **more):
        if not failures:
            failures.append(verb)
            raise error("no answer")
        return await send(*request, **more)

    monkeypatch.setattr(source, verb, badly)
    monkeypatch.setattr("sublet.worker.claim_loop.RETRY_AFTER", 0.01)
    monkeypatch.setattr("sublet.worker.settle_loop.RETRY_AFTER", 0.01)
    await source.submit([tasks.crowd.job(0.5)])
    worker = Worker(tasks.app, source, WorkerConfig(slots=2, lease=0.9, grace=0.0))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        while not failures:
            await asyncio.sleep(0.005)
    (later,) = await source.submit([tasks.add.job(1)])
    watching = asyncio.create_task(source.watch(later.id, 5))
    await asyncio.wait([watching, running], return_when=asyncio.FIRST_COMPLETED)
    died = running.done()
    if died:
        watching.cancel()
    worker.stop()
    await asyncio.wait([watching, running])
    assert not died, "the worker died"
    assert watching.result().state is State.COMPLETED


async def test_a_refused_registration_is_logged_once_and_is_not_an_outage(source, monkeypatch, caplog):
    """A token was exchanged for one of another name: jobs are claimed and settled, and a log is not filled every 5 s."""
    refused = []

    async def enlist(card):
        refused.append(card)
        raise Denied("it came with another token")

    worker = Worker(tasks.app, source, WorkerConfig(slots=2, lease=0.3, grace=0.0))
    running = asyncio.create_task(worker.run())
    monkeypatch.setattr("sublet.worker.heartbeat.RENEW_EVERY", 0.1)
    await source.submit([tasks.add.job(1)])
    async with asyncio.timeout(20):
        while not worker.summary.completed:
            await asyncio.sleep(0.005)
        monkeypatch.setattr(source, "enlist", enlist)
        while len(refused) < 3:
            await asyncio.sleep(0.005)
        await source.submit([tasks.add.job(1)])
        while worker.summary.completed < 2:
            await asyncio.sleep(0.005)
    worker.stop()
    await running
    assert caplog.text.count("cannot renew the registration: it came with another token") == 1
    assert "cannot send" not in caplog.text


async def test_progress_is_sent_once(source, monkeypatch):
    beat, reports = source.heartbeat, []

    async def record(beats, *, lease):
        reports.extend(beat.progress for beat in beats)
        return await beat(beats, lease=lease)

    monkeypatch.setattr(source, "heartbeat", record)
    await source.submit([reports_progress.job()])
    worker = Worker(app, source, WorkerConfig(slots=1, lease=0.3, grace=0.0))
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(20):
        while len(reports) < 3:
            await asyncio.sleep(0.005)
    worker.stop()
    await running
    assert [bool(progress) for progress in reports[:3]] == [True, False, False]


async def test_a_closed_store_has_released_the_jobs_of_an_abandoned_claim(place, raw, base):
    store = Store(place.settings, client=place.client(), blocking=place.client())
    (submitted,) = await store.submit([tasks.add.job(1)])
    claiming = asyncio.create_task(store.claim(worker="w", queues=["default"], n=1, lease=60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    claiming.cancel()
    await asyncio.wait([claiming])
    assert claiming.cancelled()
    await store.aclose()
    assert raw.hget(keys.job(base, submitted.id), "state") == "queued"


async def test_a_drain_does_not_end_while_the_server_does_not_answer(source, monkeypatch):
    """The server is away during a claim: the queues do not count as empty."""
    claim, worker = source.claim, Worker(tasks.app, source, WorkerConfig(slots=2))
    taken, refused = [], []

    async def claim_badly(**request):
        if taken and len(refused) < 20:
            refused.extend(["nothing runs"] * (worker.summary.completed == len(taken)))
            raise Unavailable("no answer")
        claimed = await claim(**request)
        taken.extend(claimed.leases)
        return claimed

    monkeypatch.setattr(source, "claim", claim_badly)
    monkeypatch.setattr("sublet.worker.claim_loop.RETRY_AFTER", 0.01)
    monkeypatch.setattr("sublet.worker.settle_loop.RETRY_AFTER", 0.01)
    await source.submit([tasks.add.job(i) for i in range(20)])
    async with asyncio.timeout(20):
        summary = await worker.run(drain=True)
    assert summary.completed == 20


async def test_a_drain_waits_for_unsettled_outcomes(source, raw, base, monkeypatch):
    """The server is away for a while at the last result: the worker sends it before it exits, however long
    that takes.
    """
    settle, calls = source.settle, []

    async def settle_badly(endings):
        calls.append(len(endings))
        if len(calls) < 20:
            raise Unavailable("no answer")
        return await settle(endings)

    monkeypatch.setattr(source, "settle", settle_badly)
    monkeypatch.setattr("sublet.worker.claim_loop.RETRY_AFTER", 0.01)
    monkeypatch.setattr("sublet.worker.settle_loop.RETRY_AFTER", 0.01)
    monkeypatch.setattr("sublet.worker.worker.LAST_SETTLE", 0.0)
    await source.submit([tasks.add.job(1)])
    async with asyncio.timeout(20):
        summary = await Worker(tasks.app, source, WorkerConfig(slots=1)).run(drain=True)
    assert (summary.completed, len(calls)) == (1, 20)


class SnoozeWithoutDelay(Snooze):
    def __init__(self):  # and not its own one
        pass


class DiscardWithoutText(Discard):
    def __init__(self):
        self.reason = {"not": "text"}


class ExitingMessage(Exception):
    def __str__(self):
        raise SystemExit(3)


class DiscardWithExitingReason(Discard):
    def __init__(self):
        self.reason = ExitingMessage()


RAISED = {
    "timedelta": lambda: Snooze(timedelta(hours=1)),
    "nan": lambda: Snooze(float("nan")),
    "infinite": lambda: Snooze(float("inf")),
    "text": lambda: Snooze("5"),
    "no delay": SnoozeWithoutDelay,
    "no text": DiscardWithoutText,
    "exits in its reason": DiscardWithExitingReason,
    "long": lambda: Discard("x" * 2_000_000),
    "exits in its message": ExitingMessage,
}


@app.task(max_attempts=1)
async def raises(what: str) -> None:
    raise RAISED[what]()


@app.task(max_attempts=1, run="thread")
def thread_raises(what: str) -> None:
    raise RAISED[what]()


@app.task(max_attempts=1)
def child_raises(what: str) -> None:
    raise RAISED[what]()


@pytest.mark.parametrize("task", [raises, thread_raises, child_raises], ids=["loop", "thread", "child"])
async def test_every_exception_of_a_task_ends_its_job_and_not_the_worker(source, store, task):
    """Also an invalid exception object: it would kill one worker after the other."""
    submitted = await source.submit([task.job(what) for what in RAISED])
    worker = Worker(app, source, WorkerConfig(slots=2, lease=60, grace=0.0))
    run = asyncio.create_task(worker.run())
    client, ended = Client(store=store), {}
    async with asyncio.timeout(60):
        while len(ended) < len(RAISED):
            for what, job in zip(RAISED, submitted, strict=True):
                attempts = (await client.get(job.id)).attempts
                if attempts:
                    ended[what] = attempts[0].code
            await asyncio.sleep(0.01)
            assert not run.done(), run.result()
    worker.stop()
    await run
    assert ended.pop("no delay") in ("released", "SnoozeWithoutDelay")
    assert ended == {
        "timedelta": "released",
        "nan": "ValueError",
        "infinite": "ValueError",
        "text": "ValueError",
        "no text": "discarded",
        "exits in its reason": "DiscardWithExitingReason",
        "long": "discarded",
        "exits in its message": "ExitingMessage",
    }
