"""Workers are killed and frozen at random under load, and replaced: nothing is lost, each job has one outcome, nothing is left.

No master process exists: clients that submit, and a tick, check whether the pool is owed workers.
`SUBLET_TEST_REPLACEMENT=30` goes on for half a minute; `SUBLET_TEST_SEED=N` repeats the choices of a run that failed.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from sublet.operations import maintenance, pools
from sublet.operations.pool import Pool
from sublet.scaling.invokers.process import ProcessInvoker
from sublet.scaling.summoner import Summoner
from sublet.store.store import Store
from tests.support import misbehaving_tasks as tasks
from tests.support.processes import children_of, on_linux
from tests.support.program_runs import bearing

pytest_plugins = ["tests.support.worker_processes"]
pytestmark = on_linux
SECONDS = float(os.environ.get("SUBLET_TEST_REPLACEMENT") or 5)
SEED = int(os.environ.get("SUBLET_TEST_SEED") or time.time_ns() % 1_000_000)
POOL = Pool(
    name="p", queues=("default",), invoker="process", max=3, slots=3, wait=0.5, linger=1.0, arrive=5.0
)
SILENT = 12.0
"""Seconds without a heartbeat after which a worker does not count."""
PATIENCE = 60.0
"""Seconds to wait for an event; not a measurement."""


def is_frozen(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "T"
    return False


def send(pid, number):
    with contextlib.suppress(ProcessLookupError):  # it ended by itself
        os.kill(pid, number)


class Fleet:
    """A pool under load, whose workers are killed and frozen."""

    def __init__(self, stage, seed):
        self.stage, self.random = stage, random.Random(seed)
        self.store = Store(stage.settings)
        self.invoker = ProcessInvoker(
            "tests.support.misbehaving_tasks:app",
            arguments=["--lease", "2s"],
            environment=stage.env,
            hear=self.read_line,
            ended=self.ended,
        )
        self.summoner = Summoner(self.store, {"process": self.invoker})
        self.ids, self.events, self.words = [], [], []
        self.frozen, self.ends = list[int](), Counter()
        self.submitting = True

    def read_line(self, worker, line):
        try:
            self.events.append((worker.pid, json.loads(line)))
        except ValueError:  # a message, or a line that was cut short by its death
            self.words.append(f"{worker.pid} {line}")

    def ended(self, summons, pid, code):
        self.ends[code] += 1

    @property
    def bases(self):
        return self.store.operations.bases

    def working(self):
        """The registered live workers that are not frozen."""
        ready = {pid for pid, event in self.events if event.get("event") == "ready"}
        return [one.pid for one in self.invoker.processes if one.pid in ready and one.pid not in self.frozen]

    async def submit_jobs(self):
        """Submit jobs, which summons workers."""
        while self.submitting:
            found = await self.store.follow(pools.look(self.bases, POOL))
            if found.sum.ready < 20:
                naps = [self.random.uniform(0.05, 0.4) for _ in range(10)]
                jobs = [tasks.naps.job(nap) for nap in naps] + [tasks.plain_naps.job(nap) for nap in naps[:2]]
                self.ids += [job.id for job in await self.store.submit(jobs)]
                self.summoner.nudge(["default"])
            await asyncio.sleep(0.1)

    async def tick(self):
        """Run a tick, as cron would."""
        while True:
            await self.store.follow(maintenance.reap(self.bases, "tick"))
            await self.summoner.summon()
            await asyncio.sleep(0.5)

    async def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"not true in time: {what}\n{self}"
            await asyncio.sleep(0.02)

    async def kill_and_freeze(self, seconds):
        """Kill and freeze workers, and kill their children. Frozen workers stay frozen, and are replaced."""
        over, deeds = time.monotonic() + seconds, ["freeze", "kill", "kill a child"]
        while deeds or time.monotonic() < over:
            await self.until(self.working, "a worker to kill or freeze")
            victim = self.random.choice(self.working())
            late = over - time.monotonic() < SILENT  # a worker frozen now will not be replaced before the end
            what = (
                deeds.pop(0)
                if deeds
                else self.random.choice(["kill", "kill a child", *["freeze"] * (not late)])
            )
            children = set(children_of(victim)) & {note.pid for note in self.stage.notes("began")}
            if what == "kill a child" and children:
                send(self.random.choice(sorted(children)), signal.SIGKILL)
            elif what == "freeze":
                self.frozen.append(victim)
                send(victim, signal.SIGSTOP)
            else:
                send(victim, signal.SIGKILL)
                await self.until(lambda: victim not in self.working(), "its end")  # noqa: B023  # called at once
            await asyncio.sleep(self.random.uniform(0.5, 2))

    async def is_empty(self):
        (stats,) = await self.store.follow(self.store.operations.stats())
        return not sum(stats.states[state] for state in ("queued", "running", "scheduled"))

    def thaw(self):
        for pid in self.frozen:
            send(pid, signal.SIGCONT)

    async def close(self):
        self.submitting = False
        self.thaw()
        await self.summoner.aclose()  # and the invoker
        await self.store.aclose()

    def __str__(self):
        living = [one.pid for one in self.invoker.processes]
        return (
            f"seed {SEED}: {len(self.ids)} jobs, living {living}, at work {self.working()}, frozen {self.frozen}, "
            f"ends {dict(self.ends)}\n" + "\n".join(self.words[-30:])
        )


@pytest.fixture
async def fleet(stage):
    fleet = Fleet(stage, SEED)
    await fleet.store.prepare()
    await fleet.store.follow(pools.put(fleet.bases, POOL))
    yield fleet
    await fleet.close()


def outcomes(fleet):
    """Compare each job's history with the files of its task and the events of its workers."""
    accepted = Counter(event["id"] for _, event in fleet.events if event.get("event") == "completed")
    done = {(note.id, note.attempt) for note in fleet.stage.notes("done")}
    assert set(accepted) <= set(fleet.ids)
    assert {n for n in accepted.values()} == {1}
    tries = Counter()
    for job_id in fleet.ids:
        job = fleet.stage.job(job_id)
        assert job.state == "completed", job
        codes = [attempt.code for attempt in job.attempts]
        assert codes.count("completed") == 1
        assert codes[-1] == "completed", codes
        assert (job_id, job.attempt) in done, f"{job_id}: attempt {job.attempt} was completed without an end"
        tries[job.attempt] += 1
    (stats,) = fleet.stage.client.stats()
    assert stats.totals["completed"] == len(fleet.ids) == len(set(fleet.ids))
    return tries


@pytest.mark.timeout(4 * PATIENCE + SECONDS)
async def test_dead_and_frozen_workers_are_replaced_and_no_job_is_lost(fleet, stage):
    print(f"SUBLET_TEST_SEED={SEED}")
    submitting, ticking = (asyncio.create_task(work) for work in (fleet.submit_jobs(), fleet.tick()))
    try:
        await fleet.until(lambda: len(fleet.working()) == POOL.max, "all workers")
        await fleet.kill_and_freeze(SECONDS)
        await fleet.until(
            lambda: len(fleet.working()) == POOL.max, "the replacement of all that are dead or frozen"
        )
        assert fleet.frozen
        assert all(map(is_frozen, fleet.frozen)), "a frozen worker was replaced"
        fleet.submitting = False
        await submitting
        deadline = time.monotonic() + PATIENCE
        while not await fleet.is_empty():
            assert time.monotonic() < deadline, f"the queue is not empty\n{fleet}"
            await asyncio.sleep(0.05)
        assert all(map(is_frozen, fleet.frozen))
        tries = outcomes(fleet)
        fleet.thaw()
        await fleet.until(
            lambda: not fleet.invoker.processes, "the end of all workers: there is nothing more to do"
        )
        await fleet.until(lambda: not bearing(stage.settings.namespace), "the end of their children")
        assert outcomes(fleet) == tries, "a late outcome of a frozen worker was accepted"
    finally:
        for task in (submitting, ticking):
            task.cancel()
        await asyncio.gather(submitting, ticking, return_exceptions=True)
    died = fleet.ends[-signal.SIGKILL]
    print(f"{fleet}\ntries: {dict(sorted(tries.items()))}; {died} killed, {len(fleet.frozen)} frozen")
    assert died
