"""Calls the hooks of `@app.on_failure`. No job waits for them, or is affected by their errors."""

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import Mapping
from typing import Any

from sublet.app import Task
from sublet.model import Ending, Failure, Lease, LostJob, Release, State, Suspension
from sublet.tasks.failures import AttemptFailure, FailureHook

log = logging.getLogger(__name__)

SECONDS = 5.0
"""How many seconds a hook's call is awaited, and at the worker's end all calls."""
TOGETHER = 8
"""Most failures whose hooks run at once, and most threads of hooks."""
WAITING = 1000
"""Most failures whose hooks wait or run; for more none is called."""


class FailureHooks:
    """Calls the functions under `@app.on_failure` of each failed attempt's app, at most once per attempt."""

    def __init__(self, tasks: Mapping[str, Task[..., Any]]) -> None:
        self._tasks = tasks
        self._calls: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(TOGETHER)
        self._threads = 0

    def settled(self, ending: Ending, answer: str) -> None:
        """Call the hooks for a failure (no cancellation), or a release or suspension that made the job dead;
        not if `answer` is LEASE_LOST or NOT_FOUND.
        """
        lease, state = ending.lease, answer.partition(" ")[0]
        if state in ("LEASE_LOST", "NOT_FOUND"):
            return  # the next worker reports it
        if isinstance(ending, Failure) and ending.code != "cancelled":
            self._report(lease, State(state), ending.code, ending.message, ending.detail)
        elif isinstance(ending, Release) and state == State.DEAD:
            self._report(lease, State.DEAD, ending.code, ending.reason)
        elif isinstance(ending, Suspension) and state == State.DEAD:
            self._report(lease, State.DEAD, "steps_full", "the job has as many steps as it may have")

    def _report(self, lease: Lease, state: State, code: str, message: str, traceback: str = "") -> None:
        self._put(
            AttemptFailure(
                lease.id, lease.task, lease.queue, lease.attempt, code, state, message, traceback, lease.tags
            )
        )

    def taken_over(self, lease: Lease) -> None:
        """Call the hooks for the previous attempt of a claimed job, whose lease ended without an outcome."""
        message = "its worker reported no outcome; the job is tried again"
        self._report(lease._replace(attempt=lease.attempt - 1), State.RUNNING, lease.recovered, message)

    def lost(self, job: LostJob) -> None:
        """Call the hooks for the last attempt of a job that died as its lease expired."""
        message = "its worker reported no outcome; no tries were left"
        self._put(AttemptFailure(job.id, job.task, job.queue, job.attempt, job.code, State.DEAD, message))

    def _put(self, failure: AttemptFailure) -> None:
        task = self._tasks.get(failure.task)
        if task is None or not task.app.failure_hooks:
            return
        if len(self._calls) >= WAITING:
            _warn("were not called: too many calls wait", "the hooks", failure)
            return
        call = asyncio.get_running_loop().create_task(self._call(task.app.failure_hooks, failure))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, hooks: list[FailureHook], failure: AttemptFailure) -> None:
        async with self._free:
            for hook in list(hooks):
                name = getattr(hook, "__qualname__", type(hook).__qualname__)
                run = self._run(hook, failure)
                if run is None:
                    _warn(f"was not called: {TOGETHER} threads of earlier calls still run", name, failure)
                    continue
                await asyncio.wait([run], timeout=SECONDS)
                if not run.done():
                    run.cancel()
                    _warn(f"took longer than {SECONDS:g} s: it is not awaited any more", name, failure)
                elif error := run.result():
                    # without the exception's text, which may have arguments of the job
                    _warn(f"raised {type(error).__name__}{_place(error)}", name, failure)

    def _run(
        self, hook: FailureHook, failure: AttemptFailure
    ) -> "asyncio.Future[BaseException | None] | None":
        loop = asyncio.get_running_loop()
        if inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(type(hook).__call__):
            return loop.create_task(_guarded(hook, failure))
        if self._threads >= TOGETHER:
            return None
        self._threads += 1
        future: asyncio.Future[BaseException | None] = loop.create_future()

        def ended(error: BaseException | None) -> None:
            self._threads -= 1
            if not future.done():
                future.set_result(error)

        def run() -> None:
            error: BaseException | None = None
            try:
                hook(failure)
            except BaseException as raised:  # noqa: BLE001  # SystemExit, too, must not end the worker
                error = raised
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended, error)

        # a daemon: a stuck hook keeps no process
        threading.Thread(target=run, name="sublet-failure-hook", daemon=True).start()
        return future

    async def aclose(self, seconds: float) -> None:
        """Wait up to `seconds`, at most 5, for calls of hooks, then cancel them; threads continue."""
        if self._calls:
            _, late = await asyncio.wait(self._calls, timeout=min(seconds, SECONDS))
            for call in late:
                call.cancel()
            if late:
                log.warning("the worker ends before %d calls of failure hooks have ended", len(late))


async def _guarded(hook: FailureHook, failure: AttemptFailure) -> BaseException | None:
    try:
        called = hook(failure)
        assert called is not None
        await called
    except BaseException as error:  # noqa: BLE001  # asyncio would let SystemExit end the worker
        return error
    return None


def _place(error: BaseException) -> str:
    last = error.__traceback__
    while last and last.tb_next:
        last = last.tb_next
    return f" ({last.tb_frame.f_code.co_filename}:{last.tb_lineno})" if last else ""


def _warn(words: str, name: str, failure: AttemptFailure) -> None:
    log.warning(
        "failure hook %s %s (task %s, job %s, attempt %d); the job is not affected",
        name,
        words,
        failure.task,
        failure.id,
        failure.attempt,
    )
