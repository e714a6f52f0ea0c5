"""The clock jumps while producers, workers, heartbeats and ticks run. No promise is broken, and nothing hangs."""

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter

import pytest
import redis.asyncio

from sublet import App, Context, State, SyncClient
from sublet.connection.settings import Settings, connect
from sublet.store.store import Store
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from sublet_functions.tick import run_tick
from tests.conftest import Place
from tests.support.paths import ROOT

pytest_plugins = ["tests.support.clocks"]
HOUR, DAY = 3600.0, 86_400.0
LEASE = 0.6
TASKS = """
import asyncio
from sublet import App, Context
app = App()

@app.task
async def step(ctx: Context, seconds: float) -> list[int]:
    await asyncio.sleep(seconds)
    return [ctx.attempt, ctx.fence]
"""

app = App()
RUNS: list[tuple[str, int, int]] = []
"""Every run in this process: the job, the attempt and its fence."""


@app.task(max_attempts=50, retention=100 * DAY, timeout=None, backoff=0.05)
async def step(ctx: Context, seconds: float) -> list[int]:
    """Rules with which no job becomes dead or is deleted during the test, so that each can be checked at the end."""
    RUNS.append((ctx.id, ctx.attempt, ctx.fence))
    await asyncio.sleep(seconds)
    return [ctx.attempt, ctx.fence]


@pytest.fixture
def place(clock):
    return Place(Settings(redis_url=clock.url, namespace=f"test-{uuid.uuid4().hex[:12]}"), None)


@pytest.fixture
def sync(place):
    with SyncClient(place.settings) as client:
        yield client


@pytest.fixture
def sublet(place, tmp_path):
    """Start the command as a user does, with extra environment variables. It is ended with the test."""
    (tmp_path / "steps.py").write_text(TASKS)
    started = []
    where = {"SUBLET_REDIS_URL": place.settings.redis_url, "SUBLET_NAMESPACE": place.settings.namespace}

    def start(*words, **env):
        env = {**os.environ, "PYTHONPATH": str(ROOT), **where, **env}
        command = [sys.executable, "-m", "sublet", *words]
        started.append(subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate(timeout=20)


def work(sublet, **env):
    """Start a worker process, and wait until it is ready."""
    worker = sublet("work", "steps:app", "--slots", "4", "--lease", f"{LEASE * 1000:.0f}ms", **env)
    assert json.loads(worker.stdout.readline())["event"] == "ready"
    return worker


@pytest.fixture
async def hire(place):
    """Run workers beside the test, each with its own connections. They are stopped at the end."""
    hired = []

    def start(source=None, report=lambda *_: None, **how):
        source = source or Store(place.settings)
        config = WorkerConfig(**{"queues": ["default"], "slots": 4, "lease": LEASE, "grace": 0.0, **how})
        worker = Worker(app, source, config, report)
        hired.append((worker, asyncio.create_task(worker.run())))

    yield start
    for worker, running in hired:
        worker.stop()
        await asyncio.wait_for(running, 20)
        await worker.source.aclose()


async def until(condition, seconds=30.0):
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not true in time"
        await asyncio.sleep(0.01)


def jump_far(clock):
    """Jump an hour and a day in both directions; then forward until every deadline has passed."""
    for seconds in (HOUR, 0, -HOUR, DAY, -DAY, 0):
        clock.jump(seconds)
        time.sleep(0.4)
    clock.jump(2 * DAY)


def tremble(clock):
    """Jump 100 ms in both directions, every few ms."""
    chance, ends = random.Random(2), time.monotonic() + 2.5
    while time.monotonic() < ends:
        clock.offset.set(chance.uniform(-0.1, 0.1))
        time.sleep(0.004)


def produce(client, sent, over):
    """Submit jobs at intervals, and repeat an earlier submit, which must find its job."""
    chance = random.Random(1)
    while not over.is_set():
        job = step.job(seconds=chance.random())
        assert client.submit_all([job])[0].created
        sent.append(job)
        assert not client.submit_all([chance.choice(sent)])[0].created
        over.wait(0.03)


def keep_ticking(client, over):
    while not over.is_set():
        run_tick(client, by="tick")
        over.wait(0.05)


def unfinished(client):
    (stats,) = client.stats()
    return sum(stats.states[state] for state in (State.SCHEDULED, State.QUEUED, State.RUNNING))


@pytest.mark.parametrize("disturb", [jump_far, tremble])
async def test_no_promise_is_broken_while_the_clock_jumps(disturb, clock, sync, hire, sublet):
    RUNS.clear()
    completed, sent, over = Counter(), [], threading.Event()
    for _ in range(3):
        hire(report=lambda event, lease, _: completed.update([lease.id] if event == "completed" else []))
    killed, _ = work(sublet), work(sublet)
    beside = [asyncio.to_thread(produce, sync, sent, over), asyncio.to_thread(keep_ticking, sync, over)]
    beside = [asyncio.create_task(each) for each in beside]
    try:
        await asyncio.to_thread(disturb, clock)
        killed.kill()
    finally:
        over.set()
        await asyncio.gather(*beside)
    await until(lambda: not unfinished(sync))
    (stats,), jobs = sync.stats(), [sync.get(job.id) for job in sent]
    assert stats.totals["submitted"] == stats.totals["completed"] == len(sent) > 20, (
        "none lost, none accepted twice"
    )
    assert {job.state for job in jobs} == {State.COMPLETED}
    assert all(job.result[0] == job.attempt for job in jobs), "the accepted result is the last attempt's"
    assert set(completed.values()) == {1}
    fences = [(job_id, fence) for job_id, _, fence in sorted(RUNS)]
    assert fences == sorted(set(fences)), "a later attempt has a higher fence"


def readers(raw):
    """The connections that wait for wake-ups."""
    return {one["id"] for one in raw.client_list() if one["cmd"] == "blpop"}


async def submit(client, seconds=0.0, **options):
    (submitted,) = await client.submit_all([step.options(**options).job(seconds=seconds)])
    return submitted.id


@pytest.mark.parametrize("jump", [-DAY, DAY])
async def test_a_blocked_read_that_the_server_does_not_end_times_out(clock, place, client, hire, raw, jump):
    """A server ends a blocked read by its clock: after a backward jump late by that jump, after a forward jump at once."""
    patience = connect(place.settings, blocking=True).connection_pool.connection_kwargs["socket_timeout"]
    assert patience == 15, "this time-out is shortened to 1 s below"
    impatient = redis.asyncio.Redis.from_url(place.settings.redis_url, protocol=2, socket_timeout=1)
    hire(source=Store(place.settings, blocking=impatient))
    await until(lambda: readers(raw))
    first = readers(raw)
    clock.jump(jump)
    await until(lambda: readers(raw) - first and not readers(raw) & first)
    assert (await client.result(await submit(client), 20))[0] == 1


@pytest.mark.parametrize("jump", [-DAY, DAY])
async def test_a_busy_worker_continues_after_a_jump(clock, client, hire, jump):
    """Delays, heartbeats and claim times after the jump have the right length."""
    hire()
    assert (await client.result(await submit(client), 20))[0] == 1
    clock.jump(jump)
    began = time.monotonic()
    await client.result(await submit(client, seconds=2 * LEASE, delay=0.3), 20)
    assert time.monotonic() - began >= 0.3 + 2 * LEASE


async def test_the_clock_of_a_client_has_no_effect(clock, client, sublet, own_clock):
    """A worker and a producer whose clock jumps by days, on a server whose clock is right."""
    own_clock.set(DAY)
    work(sublet, **own_clock.environment)
    payload = json.dumps({"seconds": 3 * LEASE})
    producer = sublet("submit", "step", payload, "--delay", "300ms", **own_clock.environment)
    job_id = producer.communicate(timeout=30)[0].strip()
    waiting = asyncio.create_task(client.result(job_id, 30))
    while not waiting.done():
        own_clock.set(random.choice([-DAY, 0, DAY]))
        await asyncio.wait([waiting], timeout=0.05)
    attempt, _ = waiting.result()
    job = await client.get(job_id)
    assert job.attempt == attempt
    moments = [job.submitted_at, job.attempts[-1].claimed_at, job.finished_at]
    assert moments == sorted(moments)
    assert clock.now() - 60 < moments[0].timestamp() <= moments[-1].timestamp() <= clock.now()


async def test_a_future_moment_is_reported_as_now(clock, client, hire, sublet):
    """After a backward jump a job was submitted in the future: readers see no negative durations."""
    clock.jump(HOUR)
    hire()
    job_id = await submit(client)
    await client.result(job_id, 20)
    clock.jump(0)
    shown = sublet("get", job_id).communicate(timeout=30)[0]
    assert "0 ms ago" in shown
    assert " -" not in shown
    looked = sublet("doctor")
    assert "nothing is overdue" in looked.communicate(timeout=30)[0]
