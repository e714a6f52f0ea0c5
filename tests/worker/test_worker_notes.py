"""Notes of a running task: kept through outages, outcomes and attempts."""

import asyncio

import pytest

from sublet import App, Client, Context, Snooze, State
from sublet.connection.settings import Settings
from sublet.errors import Unavailable
from sublet.worker import heartbeat
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support.workers_beside import beside

pytest_plugins = ["tests.support.job_sources"]
app = App(settings=Settings())


@app.task(max_attempts=3, backoff=0.0)
async def climbs(ctx: Context, how: str) -> int:
    """Stores a checkpoint, logs it, and ends as its argument demands; the third attempt completes."""
    height = (ctx.restored or 0) + 1
    ctx.checkpoint(height)
    ctx.log(f"at {height}")
    ctx.progress(height / 3, stage=f"stage {height}")
    if height < 3 and how == "fails":
        raise ValueError(how)
    if height < 3 and how == "snoozes":
        raise Snooze(0, "later")
    return height


@app.task
async def waits(ctx: Context) -> None:
    ctx.checkpoint("here")
    await asyncio.sleep(60)


def words(attempt):
    return [line.partition(" ")[2] for line in attempt.log]


async def run(source, store, how):
    (submitted,) = await source.submit([climbs.job(how)])
    async with asyncio.timeout(30):
        await Worker(app, source, WorkerConfig(slots=1, lease=60)).run(drain=True)
    return await Client(store=store).get(submitted.id)


@pytest.mark.parametrize("how", ["completes", "fails", "snoozes"])
async def test_the_last_logs_of_a_task_are_kept_with_its_job(source, store, how):
    """They are sent before the outcome: afterwards the lease is gone."""
    job = await run(source, store, how)
    heights = [1] if how == "completes" else [1, 2, 3]
    assert [words(attempt) for attempt in job.attempts] == [[f"at {height}"] for height in heights]
    assert (job.state, job.checkpoint) == (State.COMPLETED, None)


@pytest.mark.parametrize("how", ["fails", "snoozes"])
async def test_the_next_attempt_continues_from_the_checkpoint(source, store, how):
    assert (await run(source, store, how)).result == 3


async def until_its_checkpoint_is_stored(source, client, lease):
    """Run a job until its checkpoint is readable; returns the job after the worker's end."""
    (submitted,) = await source.submit([waits.job()])
    async with asyncio.timeout(30), beside(app, source, lease=lease):
        while (await client.get(submitted.id)).checkpoint != "here":
            await asyncio.sleep(0.01)
    return await client.get(submitted.id)


async def test_a_checkpoint_is_readable_while_the_task_runs(source, client):
    job = await until_its_checkpoint_is_stored(source, client, lease=60)
    assert job.checkpoint == "here"  # released, with the checkpoint


async def test_a_checkpoint_is_kept_through_an_outage(source, client, monkeypatch):
    monkeypatch.setattr(heartbeat, "NEWS_EVERY", 0.01)
    note, failures = source.note, []

    async def note_badly(notes):
        if len(failures) < 3:
            failures.append(notes)
            raise Unavailable("away")
        return await note(notes)

    monkeypatch.setattr(source, "note", note_badly)
    await until_its_checkpoint_is_stored(source, client, lease=0.3)
    assert len(failures) == 3
