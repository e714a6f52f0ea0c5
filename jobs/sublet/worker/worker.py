"""Runs jobs: claim → heartbeat beside → run → complete, fail or release.

Several small loops over one set of attempts. Two claim, so that one request is under way while the jobs of the other run; two
settle what has ended (`sublet.worker.settle_loop`); one sends the signs of life (`sublet.worker.heartbeat`); one keeps the appointments for what falls
due; a thread sees whether the loop turns at all (`sublet.worker.watchdog`). The source packs what they send in the same turn into one
round trip. The worker knows nothing of Redis.
"""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sublet.app import App, builtin
from sublet.errors import Forbidden, Unavailable
from sublet.execution.attempt import Attempt, Why
from sublet.execution.runner import NO_LIMITS, Limits, Runner
from sublet.model import Ending, Lease, Release
from sublet.store.outage_log import Outage
from sublet.store.source import JobSource
from sublet.worker.capacity import Room, lines_of
from sublet.worker.claim_loop import Claiming, Stay
from sublet.worker.heartbeat import Pulse
from sublet.worker.registration import Register, worker_name
from sublet.worker.settle_loop import Settling
from sublet.worker.summary import Summary, told
from sublet.worker.time_budget import Budget
from sublet.worker.timeouts import Deadlines
from sublet.worker.watchdog import Watchdog

SLOTS = 100
"""Jobs at a time, where some are async tasks and nobody says otherwise."""
SETTLEMENTS = 2
"""Settlements that may be under way at once."""
CLEAN_UP = 1.0
"""Seconds that tasks have to clean up once they are told to stop."""
LAST_WORDS = 3.0
"""Seconds that a stopping worker spends on telling the source what has ended."""

Report = Callable[[str, Lease | None, str], None]
"""Hears what happens: an event's name, the lease it is about, and more words."""


class Worker:
    """Takes jobs from a source and runs them, `slots` at a time, until it is stopped, dry, or out of time.

    Every job takes a slot; a plain function also takes one of `processes` children, each of them under `limits`. No job is
    claimed that has no room. With `stall`, a worker that has work and finishes none for so many seconds gives up. `worker_id` is
    its exclusive identity: it takes over the leases of the previous holder. A worker of a `pool` counts as one that it has, if it
    serves all the pool's queues; if it was summoned, it says so by its `summons`. A worker may be killed at any line: what it held comes
    back when the leases end, or when its successor on the same machine starts.
    """

    def __init__(
        self,
        app: App,
        source: JobSource,
        *,
        queues: Sequence[str] | None = None,
        slots: int | None = None,
        processes: int | None = None,
        lease: float = 30.0,
        grace: float = 8.0,
        stall: float | None = None,
        limits: Limits = NO_LIMITS,
        commands: bool = False,
        name: str | None = None,
        worker_id: str = "",
        pool: str = "",
        summons: str = "",
        report: Report = lambda event, lease, words: None,
    ) -> None:
        self.source, self.report, self.pool = source, report, pool
        self.tasks = app.tasks | builtin(app) if commands else app.tasks
        self.queues = list(queues or app.queues())
        self.processes = processes or os.cpu_count() or 1
        self.slots = slots or (
            self.processes if all(task.takes_process for task in self.tasks.values()) else SLOTS
        )
        self.lease, self.grace, self.stall = lease, grace, stall
        self.name = name or worker_name()
        self.summary = Summary()
        self._attempts: set[Attempt] = set()
        self._deadlines: Deadlines[Attempt] = Deadlines(lambda attempt: attempt.end(Why.TIMED_OUT))
        self._runner = Runner(self.tasks, slots=self.slots, processes=self.processes, limits=limits)
        self._room = Room(self.slots, self.processes, lambda: self._runner.ahead)
        self._over = asyncio.Event()
        self._grace_ends, self._draining = 0.0, False
        self._progressed_at = time.monotonic()
        self._outage, self._budget = Outage(), Budget(None, grace, {})
        self._register = Register(source, self.name, worker_id, self._about, name is not None, pool, summons)
        self._stay = Stay(0.0, self._may_go, bool(pool))
        self._pulse = Pulse(source, self._attempts, lease, self._seen, self._outage)
        self._settling = Settling(source, self._settled, self._outage)

    def stop(self) -> None:
        """Take no more jobs; let the running ones finish for `grace` seconds, give the rest back. Called again: give back now."""
        hurry = self._over.is_set() and not self._draining
        self._draining = False
        self.report(
            "stopping", None, f"jobs that run: {self._room.busy}" + (", giving them back" if hurry else "")
        )
        self._leave(0.0 if hurry else self.grace)

    def drain(self) -> None:
        """Take no more jobs, and go when the running ones have finished, however long they take."""
        if not self._over.is_set():
            self._draining = True
            self.report("draining", None, f"jobs to finish: {self._room.busy}")
            self._leave(float("inf"))

    def _leave(self, grace: float) -> None:
        self._register.stand_down()
        self._grace_ends = time.monotonic() + min(grace, max(0.0, self._budget.left - CLEAN_UP))
        self._over.set()
        self._room.changed.set()

    async def run(
        self,
        *,
        drain: bool = False,
        seconds: float | None = None,
        max_jobs: int | None = None,
        linger: float = 0.0,
    ) -> Summary:
        """Work until stopped; with `drain` until there is nothing to claim; with `max_jobs` until so many were run.

        With `seconds` it is gone by then: it takes no job that could not be finished in time, and gives back what is not.
        `linger` is how many seconds one that drains waits for more to come. If it has a pool, it goes when that can spare it.
        """
        started = self._stay.since = time.monotonic()
        stall, self._stay.seconds = self.stall, linger
        self._budget, self._room.most = Budget(seconds, self.grace, self.tasks), max_jobs
        await self._enlist()
        watchdog = Watchdog(self._name_of, self.stall)
        watchdog.start()
        asking = Claiming(
            self.source, self.name, self.queues, lines_of(self.queues, self.tasks.values()), self.lease, self._room, self._budget,
            self._start, lambda: len(self._attempts), self._outage, self._over, self._stay if linger or self.pool else None,
        )  # fmt: skip
        claiming = asking.loops(drain)
        beside = [asyncio.create_task(self._settling.run()) for _ in range(SETTLEMENTS)]
        beside += [
            asyncio.create_task(loop)
            for loop in (self._pulse.run(), *([self._mind_stall(stall)] if stall else []))
        ]
        dry = asyncio.create_task(asyncio.wait(claiming, return_when=asyncio.FIRST_EXCEPTION))
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait(
                [dry, over, *beside], timeout=self._budget.to_claim, return_when=asyncio.FIRST_COMPLETED
            )
            await _end([dry, over, *claiming])
            await self._wind_down()
        finally:
            watchdog.stop()
            self._deadlines.stop()
            try:
                await _end([dry, over, *claiming, *asking.stop(), *beside])
            finally:
                await self._go()
        self.summary.stuck += self._runner.stuck
        self.summary.seconds = round(time.monotonic() - started, 3)
        return self.summary

    async def _go(self) -> None:
        """Leave the register, unless what is still held is to be found there and given back; end children and threads."""
        try:
            if not (self._outage.ongoing or self._attempts):
                await self._register.leave()
        finally:
            await self._runner.aclose(max(0.1, self._budget.left))

    async def _enlist(self) -> None:
        try:
            given_back = await self._register.enlist()
        except Forbidden:  # it could take no job, either, however long it asked
            raise
        except Unavailable as error:
            self._outage.failed("enlist", error)
            return
        if given_back:
            self.report("reconciled", None, f"jobs given back for predecessors: {given_back}")
        if self._register.unwanted:
            self.report(
                "unwanted",
                None,
                f"nobody waits for this summons, or pool {self.pool} is gone or has other queues",
            )
            self.drain()

    async def _may_go(self) -> bool:
        """May this idle worker go? Raises Unavailable."""
        self.summary.dismissed = await self._register.retire()
        if self.summary.dismissed:
            idle = f"nothing to do for {self._stay.seconds:g} s"
            self.report("leaving", None, idle + (f", and pool {self.pool} can spare it" if self.pool else ""))
        return self.summary.dismissed

    async def _seen(self) -> None:
        self._runner.keeper.check()
        if self._runner.stuck >= self.slots:
            self._give_up(f"as many threads as there are slots ({self.slots}) would not end")
        try:
            if await self._register.seen():
                self.drain()
        except Forbidden as error:
            self._outage.hindered("be seen on the register", error)

    def _about(self) -> dict[str, Any]:
        """What this worker says of itself on the register."""
        done = {name: getattr(self.summary, name) for name in ("completed", "failed", "released", "refused")}
        return {"slots": self.slots, "processes": self.processes, "queues": self.queues, **done}

    def _start(self, lease: Lease) -> None:
        attempt = Attempt(lease, self._pulse.hear)
        self._attempts.add(attempt)
        if not self._budget.suffices(lease):
            self._settling.put(attempt, Release(lease, 0, "the worker has no time left for it"))
            return
        if not self._room.busy:
            self._progressed_at = time.monotonic()
        task = self.tasks.get(lease.task)
        in_child = task is not None and task.takes_process
        self._room.take(in_child)
        attempt.running = self._runner.start(attempt)
        attempt.running.add_done_callback(partial(self._ended, attempt, in_child))
        self._deadlines.watch(attempt, lease.timeout_ms)
        self.report("started", lease, lease.recovered)

    def _ended(self, attempt: Attempt, in_child: bool, _: object) -> None:
        self._room.leave(in_child)
        self._progressed_at = time.monotonic()
        self._deadlines.forget(attempt, attempt.lease.timeout_ms)
        ending, attempt.running = (
            attempt.ending(),
            None,
        )  # a child's run holds its attempt: no circle for the garbage collector
        if ending is None:
            if attempt in self._attempts:
                self._attempts.discard(attempt)
                self.report("lost", attempt.lease, "its lease was given to another, or the job is over")
        else:
            self._settling.put(attempt, ending)

    def _settled(self, attempt: Attempt, ending: Ending, answer: str) -> None:
        """Count an ending, and say it."""
        self._attempts.discard(attempt)
        self._stay.was_busy()
        self.report(self.summary.count(ending, answer), ending.lease, told(ending, answer))
        self._room.changed.set()

    async def _mind_stall(self, stall: float) -> None:
        """Give up when there is work and none of it ends."""
        while not self.summary.stalled:
            silent = time.monotonic() - self._progressed_at if self._room.busy else 0.0
            if silent < stall:
                asked, at = max(0.05, min(stall - silent, stall / 4)), time.monotonic()
                await asyncio.sleep(asked)
                self._progressed_at += max(
                    0.0, time.monotonic() - at - asked
                )  # while this process slept, nothing could end
                continue
            self._give_up(
                f"no job has ended for {silent:.0f} s: giving back those that run ({self._room.busy})"
            )

    def _give_up(self, why: str) -> None:
        """Go, and say that the platform should send another."""
        if not self.summary.stalled:
            self.summary.stalled = True
            self.report("stalled", None, why)
            self._leave(0.0)

    async def _wind_down(self) -> None:
        """Let what runs finish within the grace, give the rest back, and have all of it settled."""
        if not self._over.is_set():
            self._leave(self.grace)
        while self._room.busy and (left := self._grace_ends - time.monotonic()) > 0:
            await self._room.change(left)
        for attempt in list(self._attempts):
            attempt.end(Why.STOPPING)
        await self._room.until(lambda: not self._room.busy, CLEAN_UP)
        for attempt in list(
            self._attempts
        ):  # a task that does not stop: this process goes, and others may have its job
            if attempt.running and not attempt.running.done():
                attempt.why = Why.LOST
                self.summary.stuck += 1
                self._settling.put(attempt, Release(attempt.lease, 0, "the worker stopped, its task did not"))
        await self._room.until(lambda: not self._attempts, min(LAST_WORDS, max(0.5, self._budget.left)))

    def _name_of(self, task: "asyncio.Task[Any] | None") -> str:
        """What an asyncio task of this worker does, in words."""
        attempt = next(
            (attempt for attempt in list(self._attempts) if task and attempt.running is task), None
        )
        return (
            f"task {attempt.lease.task} (job {attempt.lease.id})" if attempt else "something beside the tasks"
        )


async def _end(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and see them gone. Raises what one of them died of."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
