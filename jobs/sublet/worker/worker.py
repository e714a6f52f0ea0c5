"""A worker: it claims jobs, runs them, sends heartbeats meanwhile, and settles each attempt."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from sublet.app import App, builtin
from sublet.errors import Forbidden, Unavailable
from sublet.execution.attempt import Attempt, Why
from sublet.execution.failure_hooks import FailureHooks
from sublet.execution.runner import Runner
from sublet.model import Completion, Ending, Lease, Release
from sublet.store.orphans import sweep_regularly
from sublet.store.source import JobSource
from sublet.store.store import Store
from sublet.store.waiting.ready_queues import check_entries
from sublet.worker import host_identity
from sublet.worker.capacity import Capacity, Lending, QueueTurns, queue_sets
from sublet.worker.claim_loop import ClaimConfig, ClaimLoops
from sublet.worker.config import DEFAULTS, WorkerConfig
from sublet.worker.heartbeat import Heartbeat
from sublet.worker.linger import Linger
from sublet.worker.registration import Registration, named_queues, worker_name
from sublet.worker.settle_loop import SettleLoop
from sublet.worker.state import WorkerState
from sublet.worker.summary import COUNTERS, Summary, leaving_text, outcome_text, unwanted_text
from sublet.worker.time_limits.stall import Progress
from sublet.worker.time_limits.time_budget import TimeBudget
from sublet.worker.time_limits.timeouts import Stalls, Timeouts
from sublet.worker.time_limits.watchdog import Watchdog
from sublet.workflows.following import stored

SLOTS = 100
"""Default number of slots, unless all tasks run in child processes or as programs."""
SETTLE_LOOPS = 2
CANCELS_IGNORED = 5
CLEAN_UP = 1.0
LAST_SETTLE = 3.0

Report = Callable[[str, Lease | None, str], None]
"""Called at each event, with its name (`started`, `completed`, …), its job's lease or None, and details."""
Loops = list["asyncio.Task[None]"]


class Worker:
    """Claims jobs and runs them. When it is killed, its jobs run again, while tries are left, once their leases
    end, or a new worker on this machine sees that this process is gone.
    """

    def __init__(
        self,
        app: App,
        source: JobSource,
        config: WorkerConfig = DEFAULTS,
        report: Report = lambda event, lease, detail: None,
    ) -> None:
        self.source = source
        self.report = report
        self.config = config
        app.load()
        self.tasks = app.tasks | builtin(app) if config.commands else app.tasks
        self._take_queues(config.queues or app.queues())
        self.processes = config.processes or os.cpu_count() or 1
        only_plain = all(task.takes_process for task in self.tasks.values())
        self.slots = config.slots or (self.processes if only_plain else SLOTS)
        self.name = config.name or worker_name()
        self.summary = Summary()
        self._grace_ends = 0.0
        self._draining = False
        self._storage = app.storage(source.settings if isinstance(source, Store) else None)
        self._runner = self._make_runner()
        self._capacity = Capacity(self.slots, self.processes, lambda: self._runner.ahead)
        self._state = WorkerState(self._capacity, TimeBudget(None, config.grace, {}))
        self._attempts = self._state.attempts
        self._progress = Progress(self._attempts, self._capacity, self._give_up)
        self._lending = Lending(
            self._attempts, self._capacity, self.tasks, self._runner.lend, self._warn_starved
        )
        self._outage = self._state.outage
        self._failures = FailureHooks(self.tasks)
        self._stalls = Stalls()
        self._timeouts: Timeouts[Attempt] = Timeouts(lambda attempt: attempt.end(Why.TIMED_OUT))
        self._settling = SettleLoop(source, self._settled, self._outage)
        self._heartbeat = Heartbeat(
            source, self._attempts, config.lease, self._renew_registration, self._outage
        )
        self._registration = self._make_registration()
        self._linger = Linger(0.0, self._may_leave, self._outage, in_pool=bool(config.pool))

    def _take_queues(self, queues: Sequence[str] | Mapping[str, int]) -> None:
        self.queues = tuple(queues)
        check_entries(self.queues)
        self._card_queues = named_queues(self.queues)
        self._turns = QueueTurns(queues, self.config.strict)

    def _make_runner(self) -> Runner:
        return Runner(
            self.tasks,
            slots=self.slots,
            processes=self.processes,
            limits=self.config.limits,
            storage=self._storage,
        )

    def _make_registration(self) -> Registration:
        config = self.config
        return Registration(
            self.source,
            self.name,
            self._about,
            worker_id=config.worker_id,
            named=config.name is not None,
            pool=config.pool,
            summons=config.summons,
            tasks=self.tasks,
        )

    def stop(self) -> None:
        """Make `run` claim no more jobs, and release those that still run after `grace` seconds. A second
        call releases them at once.
        """
        hurry = self._state.stopping.is_set() and not self._draining
        self._draining = False
        self.report(
            "stopping",
            None,
            f"running jobs: {self._capacity.running}" + (", releasing them" if hurry else ""),
        )
        self._stop_claiming(0.0 if hurry else self.config.grace)

    def drain(self) -> None:
        """Make `run` claim no more jobs, and end when the running ones have ended, or its `seconds` are over."""
        if not self._state.stopping.is_set():
            self._draining = True
            self.report("draining", None, f"running jobs: {self._capacity.running}")
            self._stop_claiming(float("inf"))

    def _stop_claiming(self, grace: float) -> None:
        self._registration.leave_pool()
        self._grace_ends = time.monotonic() + min(grace, max(0.0, self._state.budget.left - CLEAN_UP))
        self._state.stopping.set()
        self._capacity.changed.set()

    async def run(
        self,
        *,
        drain: bool = False,
        seconds: float | None = None,
        max_jobs: int | None = None,
        linger: float = 0.0,
    ) -> Summary:
        """Work until stopped, drained or stalled; with `drain`, at most until no job runs or can be claimed;
        with `max_jobs`, until so many attempts (not those of an `unknown_task`) have started and ended.

        With `seconds`, the worker ends within that time: it starts no job whose timeout exceeds the rest (a
        timeout that never fits is ignored), and releases unfinished ones. With `drain`, it waits `linger`
        seconds for more jobs, and in a pool leaves only when the pool can spare it. Raises Invalid for a name
        in use, Refused, Unfit, and Forbidden.
        """
        started = self._prepare(seconds, max_jobs, linger)
        await self._enlist()
        watchdog = self._start_watchdog()
        self._lending.start()
        claims, claim_loops = self._start_claims(drain, linger)
        other_loops = self._start_other_loops()
        try:
            await self._wait_for_end(claim_loops, other_loops)
            await _cancel(claim_loops)
            await self._finish_attempts()
        finally:
            watchdog.stop()
            self._lending.stop()
            self._timeouts.clear()
            self._stalls.clear()
            try:
                await _cancel([*claim_loops, *claims.stop(), *other_loops])
            finally:
                await self._leave()
        self.summary.stuck += self._runner.stuck
        self.summary.seconds = round(time.monotonic() - started, 3)
        return self.summary

    def _prepare(self, seconds: float | None, max_jobs: int | None, linger: float) -> float:
        self._linger.since = started = time.monotonic()
        self._linger.seconds = linger
        self._state.budget = TimeBudget(seconds, self.config.grace, self.tasks)
        self._capacity.max_jobs = max_jobs
        return started

    async def _enlist(self) -> None:
        try:
            recovered = await self._registration.enlist()
        except Forbidden:
            raise
        except Unavailable as error:
            self._outage.failed("register", error)
            return
        if recovered:
            self.report(
                "reconciled",
                None,
                f"leases of predecessors, ended: {recovered}; their jobs run again while tries are left",
            )
        if self._registration.unwanted:
            self.report("unwanted", None, unwanted_text(self.config.pool))
            self.drain()

    def _start_watchdog(self) -> Watchdog:
        watchdog = Watchdog(self._name_of, self.config.stall or self.config.blocked)
        watchdog.start()
        return watchdog

    def _start_claims(self, drain: bool, linger: float) -> tuple[ClaimLoops, Loops]:
        sets = queue_sets(self.queues, self.tasks.values())
        config = ClaimConfig(
            self.name, self.queues, sets, self._turns, self.config.lease, self.config.strict,
            self._registration.life, drain, isinstance(self.source, Store),
        )  # fmt: skip
        claims = ClaimLoops(
            self.source,
            config,
            self._state,
            self._start,
            self._linger if linger or self.config.pool else None,
            self._failures.lost,
            self._drain_replaced,
        )
        return claims, claims.start()

    def _drain_replaced(self) -> None:
        self._registration.warn_replaced()
        self.drain()

    def _start_other_loops(self) -> Loops:
        loops = [self._settling.run() for _ in range(SETTLE_LOOPS)] + [self._heartbeat.run()]
        if self.config.stall:
            loops.append(self._progress.watch(self.config.stall))
        if self._storage and isinstance(self.source, Store):
            loops.append(sweep_regularly(self.source, self._storage))
        return [asyncio.create_task(loop) for loop in loops]

    async def _wait_for_end(self, claim_loops: Loops, other_loops: Loops) -> None:
        dry = asyncio.create_task(asyncio.wait(claim_loops, return_when=asyncio.FIRST_EXCEPTION))
        stopping = asyncio.create_task(self._state.stopping.wait())
        try:
            await asyncio.wait(
                [dry, stopping, *other_loops],
                timeout=self._state.budget.to_claim,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            await _cancel([dry, stopping])

    async def _finish_attempts(self) -> None:
        if not self._state.stopping.is_set():
            self._stop_claiming(self.config.grace)
        while self._capacity.running and (left := self._grace_ends - time.monotonic()) > 0:
            await self._capacity.wait_for_change(left)
        for attempt in list(self._attempts):
            attempt.end(Why.STOPPING)
        await self._capacity.wait_until(lambda: not self._capacity.running, CLEAN_UP)
        for attempt in list(self._attempts):
            self._abandon(attempt)
        last = min(LAST_SETTLE, max(0.5, self._state.budget.left))
        await self._capacity.wait_until(lambda: not self._attempts, last)

    def _abandon(self, attempt: Attempt) -> None:
        if attempt.running and not attempt.running.done():
            attempt.why = Why.LOST
            self.summary.stuck += 1
            self._settling.put(
                attempt,
                Release(attempt.lease, 0, "the worker stopped, but the task ignored its cancellation"),
            )

    async def _leave(self) -> None:
        # A successor finds leases by the registration: it stays if any may be left
        try:
            await self._registration.publication.aclose()
            if not (self._outage.ongoing or self._attempts):
                await self._registration.leave()
        finally:
            await self._failures.aclose(max(0.1, self._state.budget.left))
            await self._runner.aclose(max(0.1, self._state.budget.left))

    async def _may_leave(self) -> bool:
        self.summary.dismissed = await self._registration.retire()
        if self.summary.dismissed:
            self.report("leaving", None, leaving_text(self._linger.seconds, self.config.pool))
        return self.summary.dismissed

    async def _renew_registration(self) -> None:
        self._runner.guard.check()
        stuck = sum(attempt.cancels_ignored >= CANCELS_IGNORED for attempt in self._attempts)
        if self._runner.stuck + stuck >= self.slots:
            what = "tasks" if stuck else "threads"
            self._give_up(
                f"{self.slots} {what}, as many as there are slots, do not end although they were cancelled"
            )
        try:
            if await self._registration.renew():
                self.drain()
        except Forbidden as error:
            self._outage.hindered("renew the registration", error)

    def _about(self) -> dict[str, Any]:
        done = {name: getattr(self.summary, name) for name in COUNTERS}
        about = {"slots": self.slots, "processes": self.processes, **self._card_queues, **done}
        about["memory"] = host_identity.resident_memory(self._runner.pids)
        if self._progress.ended_at:
            about["last_job"] = round(time.monotonic() - self._progress.ended_at, 1)
        if self._capacity.waiting:
            about |= {"waiting": self._capacity.waiting, "starved": bool(self._capacity.starved)}
        return about

    def _warn_starved(self, detail: str) -> None:
        self.report("starved", None, detail)
        for attempt in self._attempts:
            if attempt.reports.waiting:
                self._runner.log_starved(attempt)

    def _start(self, lease: Lease) -> None:
        if lease.lost:
            self._failures.taken_over(lease)
        attempt = Attempt(lease, self._heartbeat.notify, self._lending.notify, self.source)
        self._attempts.add(attempt)
        if not self._state.budget.suffices(lease):
            self._settling.put(
                attempt, Release(lease, 0, "the worker has less time left than the job's timeout")
            )
            return
        self._progress.job_starts()
        task = self.tasks.get(lease.task)
        in_child = task is not None and task.takes_process
        self._capacity.job_started(in_child)
        attempt.running = self._runner.start(attempt)
        attempt.running.add_done_callback(partial(self._ended, attempt, in_child))
        self._timeouts.add(attempt, lease.timeout_ms)
        if lease.stall_ms is not None:
            self._stalls.add(attempt)
        self.report("started", lease, lease.recovered)

    def _ended(self, attempt: Attempt, in_child: bool, _: object) -> None:
        self._capacity.job_ended(in_child)
        self._progress.job_ended()
        self._timeouts.remove(attempt, attempt.lease.timeout_ms)
        if attempt.lease.stall_ms is not None:
            self._stalls.remove(attempt)
        if attempt.reports.waiting:
            attempt.reports.waiting = False
            self._lending.count()
        ending = attempt.ending()
        if isinstance(ending, Release) and ending.code == "unknown_task":
            self._capacity.job_was_unknown()
        # This breaks a cycle: a child's run refers to its attempt.
        attempt.running = None
        if ending is not None:
            self._settling.put(attempt, ending)
        elif attempt in self._attempts:
            self._attempts.discard(attempt)
            self.report(
                "lost",
                attempt.lease,
                "its lease has expired, or the job has ended: the outcome is dropped",
            )

    def _settled(self, attempt: Attempt, ending: Ending, answer: str) -> None:
        self._attempts.discard(attempt)
        self._linger.job_ended()
        ending, answer = stored(ending, answer)
        if not isinstance(ending, Completion):
            self._failures.settled(ending, answer)
        self.report(self.summary.count(ending, answer), ending.lease, outcome_text(ending, answer))
        self._capacity.changed.set()

    def _give_up(self, why: str) -> None:
        if not self.summary.stalled:
            self.summary.stalled = True
            self.report("stalled", None, why)
            self._stop_claiming(0.0)

    def _name_of(self, task: "asyncio.Task[Any] | None") -> str:
        attempts = list(self._attempts)
        attempt = next((attempt for attempt in attempts if task and attempt.running is task), None)
        if attempt is None:
            return "code outside of the tasks"
        return f"task {attempt.lease.task} (job {attempt.lease.id})"


async def _cancel(tasks: Sequence["asyncio.Task[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
