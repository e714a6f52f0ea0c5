"""Streams of tasks' chunks, with real workers, on Redis and over HTTP."""

import asyncio
import os
import signal

import pytest

from sublet import App, Client, Context, NotFound, State
from sublet.client.sync_client import SyncClient
from sublet.connection.settings import Settings
from sublet.errors import Invalid, LeaseLost, OutOfMemory, Unavailable
from sublet.store.waiting import streams
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support import misbehaving_tasks, step_tasks
from tests.support.processes import on_linux

pytest_plugins = ["tests.support.job_sources", "tests.support.worker_processes"]
app = App(settings=Settings())
GATE: dict[str, asyncio.Event] = {}


@app.task(max_attempts=2, backoff=0.0)
async def tells(ctx: Context, words: list[str], fails: bool = False) -> int:
    """Emits words, and fails once if asked to."""
    for word in words:
        await ctx.emit(f"{word}{ctx.attempt}")
    if fails and ctx.attempt == 1:
        raise ConnectionError("in the middle")
    return len(words)


@app.task(run="thread")
def tells_plainly(ctx: Context, words: list[str]) -> None:
    for word in words:
        ctx.emit(word)


@app.task
async def waits_between(ctx: Context) -> str:
    """Emits, waits for the test, and emits again."""
    await ctx.emit({"first": 1})
    await GATE["go"].wait()
    await ctx.emit({"second": 2})
    return "end"


@app.task
async def emits_before_a_step(ctx: Context) -> None:
    await ctx.emit("before")
    await ctx.step("sum", asyncio.to_thread, sum, [1, 2])


@app.task(max_attempts=1)
async def emits_nonsense(ctx: Context) -> list[str]:
    found = []
    for chunk in (object(), "x" * 70_000):
        try:
            await ctx.emit(chunk)
        except Invalid as error:
            found.append(f"{type(error).__name__}: {error}")
    return found


async def drain(source, own=app, **how):
    async with asyncio.timeout(30):
        return await Worker(own, source, WorkerConfig(slots=1, lease=60, **how)).run(drain=True)


async def values(client, job_id, **how):
    async with asyncio.timeout(30):
        return [chunk.value async for chunk in client.stream(job_id, **how)]


async def test_the_chunks_of_a_task_are_there_when_its_job_has_ended(source, store):
    (submitted,) = await source.submit([tells.job(["a", "b"])])
    await drain(source)
    client = Client(store=store)
    assert (await client.get(submitted.id)).state is State.COMPLETED
    assert await values(client, submitted.id) == ["a1", "b1"]


async def test_a_new_attempt_is_seen_by_its_number(source, store):
    (submitted,) = await source.submit([tells.job(["a", "b"], fails=True)])
    await drain(source)
    await drain(source)
    found = [chunk async for chunk in Client(store=store).stream(submitted.id)]
    assert [(chunk.value, chunk.attempt) for chunk in found] == [("a1", 1), ("b1", 1), ("a2", 2), ("b2", 2)]
    assert [chunk.id for chunk in found] == [2, 3, 5, 6]
    assert [c.value async for c in Client(store=store).stream(submitted.id, found[1].id)] == ["a2", "b2"]


async def test_many_chunks_take_few_calls(store, monkeypatch):
    sent = []
    emit = store.emit

    async def counted(lease, emission):
        sent.append(len(emission.chunks))
        await emit(lease, emission)

    monkeypatch.setattr(store, "emit", counted)
    (submitted,) = await store.submit([tells.job([str(n) for n in range(250)])])
    await drain(store)
    assert sum(sent) == 250
    assert len(sent) <= 5
    assert len(await values(Client(store=store), submitted.id)) == 250


async def test_a_thread_emits(source, store):
    (submitted,) = await source.submit([tells_plainly.job(["a", "b"])])
    await drain(source)
    assert await values(Client(store=store), submitted.id) == ["a", "b"]


@on_linux
async def test_a_child_process_emits(source, store):
    (submitted,) = await source.submit([step_tasks.tells.job(3)])
    await drain(source, step_tasks.app, processes=1)
    assert await values(Client(store=store), submitted.id) == [0, 1, 2]


async def test_a_reader_gets_chunks_while_the_task_runs(source, store):
    GATE["go"] = asyncio.Event()
    (submitted,) = await source.submit([waits_between.job()])
    found = []
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(drain(source))
        async for chunk in Client(store=store).stream(submitted.id):
            found.append(chunk.value)
            GATE["go"].set()
    assert found == [{"first": 1}, {"second": 2}]


async def test_readers_are_woken_and_do_not_poll(store, monkeypatch):
    monkeypatch.setattr(streams, "REREAD", 3600.0)
    GATE["go"] = asyncio.Event()
    (submitted,) = await store.submit([waits_between.job()])
    both = []

    async def read():
        async for chunk in Client(store=store).stream(submitted.id):
            both.append(chunk.value)
            if len(both) == 5:
                GATE["go"].set()

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(read())
        group.create_task(drain(store))
    assert both == [{"first": 1}] * 5 + [{"second": 2}] * 5
    assert store.streams._feeds == {}


async def test_a_plain_client_reads_along(store, place):
    GATE["go"] = asyncio.Event()
    (submitted,) = await store.submit([waits_between.job()])
    found = []
    loop = asyncio.get_running_loop()

    def read():
        with SyncClient(place.settings) as client:
            for chunk in client.stream(submitted.id):
                found.append(chunk.value)
                loop.call_soon_threadsafe(GATE["go"].set)

    if "fake" in str(place.settings.redis_url):
        pytest.skip("a client of its own needs a real server")
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(read))
        group.create_task(drain(store))
    assert found == [{"first": 1}, {"second": 2}]


async def test_a_stream_ends_with_its_time_and_an_unknown_job_has_none(store):
    (submitted,) = await store.submit([tells.job(["a"])])
    client = Client(store=store)
    with pytest.raises(TimeoutError, match="it was not cancelled"):
        await values(client, submitted.id, timeout=0.05)
    with pytest.raises(NotFound):
        await values(client, "0-none")


@app.task
async def emits_at_its_end(ctx: Context) -> None:
    """The second chunk would wait for others, and there are none."""
    await ctx.emit("first")
    await asyncio.sleep(0.01)
    await ctx.emit("last")


@pytest.mark.parametrize(
    ("task", "wanted"),
    [(emits_before_a_step, ["emit", "step", "settle"]), (emits_at_its_end, ["emit", "emit", "settle"])],
    ids=["step", "outcome"],
)
async def test_chunks_are_sent_before_a_step_and_before_the_outcome(store, monkeypatch, task, wanted):
    order = []
    for name in ("emit", "step", "settle"):
        whole = getattr(store, name)

        async def noted(*args, name=name, whole=whole):
            order.append(name)
            return await whole(*args)

        monkeypatch.setattr(store, name, noted)
    await store.submit([task.job()])
    await drain(store)
    assert order == wanted


async def test_a_chunk_that_is_no_json_or_too_large_is_refused(store):
    (submitted,) = await store.submit([emits_nonsense.job()])
    await drain(store)
    first, second = (await Client(store=store).get(submitted.id)).result
    assert first.startswith("Invalid: emit: the chunk cannot be written as JSON")
    assert second == "Invalid: emit: a chunk of 70,002 bytes (JSON): at most 65,536 fit: emit it in parts"


async def test_chunks_survive_an_outage_once(store, monkeypatch):
    """The server stores a batch, and its answer is lost."""
    emit, calls = store.emit, []

    async def lost_once(lease, emission):
        await emit(lease, emission)
        calls.append(emission.before)
        if len(calls) == 1:
            raise Unavailable("the answer was lost")

    monkeypatch.setattr(store, "emit", lost_once)
    (submitted,) = await store.submit([tells.job(["a", "b"])])
    await drain(store)
    assert calls[:2] == [0, 0]
    assert await values(Client(store=store), submitted.id) == ["a1", "b1"]


async def test_a_job_whose_chunks_do_not_fit_is_completed(store, monkeypatch, caplog):
    async def full(lease, emission):
        raise OutOfMemory("the server is full")

    monkeypatch.setattr(store, "emit", full)
    (submitted,) = await store.submit([tells.job(["a"])])
    await drain(store)
    assert (await Client(store=store).get(submitted.id)).state is State.COMPLETED
    assert "cannot store the chunks of a stream: the server is full" in caplog.text


async def test_a_task_learns_at_its_next_chunk_that_its_lease_is_lost(store, monkeypatch):
    async def lost(lease, emission):
        raise LeaseLost("another attempt has begun")

    monkeypatch.setattr(store, "emit", lost)
    (submitted,) = await store.submit([tells.job(["a"] * 1500)])
    await drain(store)
    ended = (await Client(store=store).get(submitted.id)).attempts
    assert ended[0].code == "LeaseLost"


@on_linux
@pytest.mark.parametrize("through", ["redis", "http"])
def test_a_reader_sees_the_attempt_after_a_killed_worker_and_no_chunk_of_its_ghost(stage):
    ghost = stage.hire("--slots", "1", "--lease", "1s")
    (job_id,) = stage.submit(misbehaving_tasks.emits_until, stage.go)
    chunks = stage.client.stream(job_id)
    assert [next(chunks).value, next(chunks).attempt] == [[1, 0], 1]
    ghost.send(signal.SIGSTOP)
    other = stage.hire("--slots", "1", "--lease", "60s")
    while (chunk := next(chunks)).attempt == 1:
        pass
    assert chunk.value == [2, 0]
    ghost.send(signal.SIGCONT)  # it emits on, without its lease
    ghost.until("lost")
    stage.say_go()
    rest = [chunk, *chunks]
    assert {one.attempt for one in rest} == {2}
    assert [one.value for one in rest] == [[2, n] for n in range(len(rest))]
    stage.until_ended(job_id)
    assert stage.codes(job_id) == ["lease_expired", "completed"]
    os.kill(ghost.pid, signal.SIGKILL)
    assert other.stop() == 0
