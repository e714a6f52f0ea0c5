"""Wake-ups: one submit wakes one idle worker, fifty wake fifty, and one worker waits for due jobs.

Real workers, each with its own connections, on real servers; their commands are read there, with MONITOR.
"""

import asyncio
import json
import signal
import time
import uuid
from collections import Counter
from datetime import timedelta
from typing import NamedTuple

import pytest

from sublet import App, State
from sublet.protocol import keys, verbs
from sublet.protocol.scripts import script
from sublet.store.store import Store
from sublet.worker import claim_loop
from sublet.worker.config import WorkerConfig
from sublet.worker.worker import Worker
from tests.support.blocked_clients import blocked, until

pytest_plugins = ["tests.support.command_line"]
pytestmark = pytest.mark.real_server
NEVER = 600.0
"""Seconds until a worker polls, in tests where it must not."""
CREW = 50

app = App()
GATE: dict[str, asyncio.Event] = {}


@app.task
async def add(a: int) -> int:
    return a + 1


@app.task
async def stay() -> None:
    await GATE["open"].wait()


class Answer(NamedTuple):
    """A claim's answer, and the times of its call and its answer."""

    asked_at: float
    at: float
    ids: list[str]
    next_in: float


class Watched(Store):
    """A store that records its answers. With `only_woken`, its worker never polls: it claims only after a
    wake-up.
    """

    only_woken = False

    def __init__(self, settings):
        super().__init__(settings)
        self.answers: list[Answer] = []
        self._once, self._claims._claim_once = self._claims._claim_once, self._claim_once

    async def _claim_once(self, *request):
        asked_at = time.monotonic()
        claimed = await self._once(*request)
        self.answers.append(
            Answer(asked_at, time.monotonic(), [lease.id for lease in claimed.leases], claimed.next_in)
        )
        return claimed._replace(next_in=NEVER) if self.only_woken else claimed


@pytest.fixture
async def hire(place, raw, monkeypatch):
    """Start so many workers; return when each waits for a wake-up after an empty claim. They end with the
    test.
    """
    GATE["open"] = asyncio.Event()
    crew, running = [], []

    async def start(count, *, slots=1, only_woken=False):
        before = blocked(raw)
        if only_woken:
            monkeypatch.setattr(claim_loop, "IDLE", NEVER)
        for _ in range(count):
            source = Watched(place.settings)
            source.only_woken = only_woken
            crew.append(
                Worker(
                    app,
                    source,
                    WorkerConfig(queues=["default"], slots=slots, name=f"w{len(crew)}", grace=0.0),
                )
            )
            running.append(asyncio.create_task(crew[-1].run()))
        await until(lambda: blocked(raw) >= before + count)
        return crew[-count:]

    yield start
    GATE["open"].set()
    for one in crew:
        one.stop()
    await asyncio.wait_for(asyncio.gather(*running), 30)
    for one in crew:
        await one.source.aclose()


@pytest.fixture
def sent_commands(raw, base):
    """The commands of clients about this namespace since the last call, as lists of words."""
    with raw.monitor() as monitor:

        def read():
            mark, commands = uuid.uuid4().hex, []
            raw.echo(mark)
            while mark not in (line := monitor.next_command())["command"]:
                if line["client_type"] != "lua" and base in line["command"]:
                    commands.append(line["command"].split(" "))
            return commands

        yield read


def claimers(commands):
    """How often each worker has claimed."""
    return Counter(words[5] for words in commands if words[:2] == ["EVALSHA", script("claim").sha])


async def running(client):
    """The running jobs."""
    return (await client.list_jobs(state=State.RUNNING, limit=200)).jobs


async def test_one_submit_wakes_one_idle_worker_of_fifty(hire, client, sent_commands):
    """Ten jobs, one after another. Only the worker that gets one claims, and once more from each of its
    loops afterwards.
    """
    await hire(CREW, only_woken=True)
    sent_commands()
    done_by = Counter()
    for number in range(10):
        job_id = (await client.submit("add", {"a": number})).id
        assert await client.result(job_id, 20) == number + 1
        done_by[(await client.get(job_id)).attempts[0].worker] += 1
    claims = claimers(sent_commands())
    assert claims.keys() == done_by.keys(), "a worker was woken without a job"
    assert all(claims[name] <= (1 + claim_loop.LOOPS) * jobs for name, jobs in done_by.items()), (
        claims,
        done_by,
    )


@pytest.mark.parametrize("how", ["one by one", "in one batch"])
async def test_fifty_submits_wake_fifty_workers_and_all_run_at_once(hire, client, how):
    crew = await hire(CREW, only_woken=True)
    if how == "one by one":
        for _ in range(CREW):
            await client.submit("stay")
    else:
        await client.submit_all([stay.job() for _ in range(CREW)])
    await until(lambda: all(one._capacity.running for one in crew))
    assert sorted(job.worker for job in await running(client)) == sorted(one.name for one in crew)


async def test_a_wake_up_that_is_lost_or_reaches_a_busy_worker_delays_a_job_by_one_poll(
    hire, client, raw, base
):
    """The first job's wake-up is lost: a worker polls within 2 s. Now it is busy, and must leave the second job's
    wake-up to the other one.
    """
    (busy,) = await hire(1)
    submit_without_wake_up(raw, base, stay.job())
    await until(lambda: busy._capacity.running)
    (idle,) = await hire(1, only_woken=True)
    await client.submit("stay")
    await until(lambda: idle._capacity.running)
    assert len(await running(client)) == 2


def submit_without_wake_up(raw, base, job):
    """Submit a job, and remove its wake-up before a worker gets it."""
    with raw.pipeline(transaction=True) as both:
        both.execute_command(*verbs.submit(base, [job]).with_text())
        both.delete(keys.wake(base, "default"))
        assert both.execute() == [["created"], 1]


async def test_an_idle_worker_sends_its_next_claim_ahead(hire):
    (one,) = await hire(1)
    await until(lambda: one.source._claims._wakeups._ahead)


async def test_a_due_job_is_started_by_the_one_worker_with_its_time(hire, client):
    """Ten idle workers. All but the one that waits for the due time leave: no accidental poll can explain
    the start.
    """
    crew = await hire(10)
    handle = await client.submit_all([add.options(delay=2.5).job(1)])
    due_at = (await client.get(handle[0].id)).due_at
    await until(lambda: any(one.source.answers[-1].next_in < 2 for one in crew))
    (owner,) = [one for one in crew if one.source.answers[-1].next_in < 2]
    for one in crew:
        if one is not owner:
            one.stop()
    assert await client.result(handle[0].id, 20) == 2
    (attempt,) = (await client.get(handle[0].id)).attempts
    assert attempt.worker == owner.name
    assert attempt.claimed_at >= due_at, "not before it is due"
    brought = next(i for i, answer in enumerate(owner.source.answers) if answer.ids)
    polled, got = owner.source.answers[brought - 1 : brought + 1]
    assert got.asked_at - polled.at >= polled.next_in - 0.01, "the worker slept until the due time"
    assert attempt.claimed_at - due_at < timedelta(seconds=2 - polled.next_in), (
        "earlier than with a poll every 2 s"
    )
    assert all(answer.next_in == 2 for one in crew if one is not owner for answer in one.source.answers)


async def test_an_idle_worker_claims_at_most_once_a_second_with_any_number_of_slots(
    hire, sent_commands, monkeypatch
):
    monkeypatch.setattr(
        "sublet.worker.heartbeat.RENEW_EVERY", NEVER
    )  # registered workers are seen every 5 s, and ten start slowly on a busy machine
    await hire(5, slots=1)
    await hire(5, slots=100)
    sent_commands()
    began = time.monotonic()
    commands = []
    while time.monotonic() - began < 4.2:
        await asyncio.sleep(0.1)
        commands += sent_commands()
    asked = Counter(words[0] for words in commands)
    assert set(asked) <= {"EVALSHA", "BLPOP"}
    seconds = time.monotonic() - began
    assert asked.total() <= 10 * seconds, asked
    assert len(claimers(commands)) == 10, "all workers still poll"
    assert max(claimers(commands).values()) <= seconds / 2 + 1, "each worker polls every 2 s"


def test_idle_processes_are_woken_as_well(shell):
    """Three real workers of one slot, idle; three jobs that stay: each gets one."""
    workers = [shell.start("work", "tasks:app", "--slots", "1", "--name", f"p{i}") for i in range(3)]
    try:
        ready = [json.loads(one.stdout.readline()) for one in workers]
        assert [event["event"] for event in ready] == ["ready"] * 3
        ids = {shell.ok("submit", "forever") for _ in workers}
        assert {json.loads(one.stdout.readline())["id"] for one in workers} == ids
    finally:
        for one in workers:
            one.send_signal(signal.SIGTERM)
            one.send_signal(signal.SIGINT)
            one.communicate(timeout=20)
